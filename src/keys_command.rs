//! `dormer keys`: makes the keys by which dormer's roles sign their messages over NATS, and engines their records.

use clap::{Args, Subcommand};
use dormer_client::{EXIT_CODES, Failure, finish};
use dormer_nats::{
    history_keys::{HISTORY_KEYS_FILE, make_history_keys},
    signing::{KeysError, PUBLIC_KEYS_FILE, make},
};
use dormer_run::config::Role;
use std::{path::PathBuf, process::ExitCode};

/// Subcommands for keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Make a private key for each role, the ring of public keys, and a key of the history, in a new folder; nothing is
    /// overwritten
    #[command(after_help = EXIT_CODES)]
    Make(Make),
}

/// Arguments of `dormer keys make`.
#[derive(Debug, Args)]
pub(crate) struct Make {
    /// New folder for the keys
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// Ring of public keys to keep beside the new ones, for a rotation
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Keys of the history to keep before the new one, for a rotation: the first in the file writes, all are accepted
    #[arg(long, value_name = "FILE")]
    keep_history: Option<PathBuf>,
}

/// Runs the subcommand, and returns the exit code.
pub(crate) fn run(asked: Keys) -> ExitCode {
    let Keys::Make(make) = asked;
    finish(make.run().map(|text| (text, true)))
}

impl Make {
    fn run(&self) -> Result<String, Failure> {
        let roles = Role::ALL.map(Role::as_str);
        let refused = |why: KeysError| {
            let what_to_do = "name a folder that does not exist yet, in one that does";
            Failure::refused(why.to_string(), what_to_do)
        };
        let mut files = make(&self.output, &roles, self.keep.as_deref()).map_err(refused)?;
        let history = self.output.join(HISTORY_KEYS_FILE);
        make_history_keys(&history, self.keep_history.as_deref()).map_err(refused)?;
        files.push(history);
        let folder = self.output.display();
        let mut text = String::new();
        for file in &files {
            text += &format!("{}\n", file.display());
        }
        text += "\nGive each role its own private key and the ring, as a Secret:\n";
        for role in roles {
            text += &format!(
                "  kubectl -n dormer create secret generic dormer-keys-{role} \\\n    \
                 --from-file={folder}/{role}.key --from-file={folder}/{PUBLIC_KEYS_FILE}\n"
            );
        }
        text +=
            "Then set nats.keys in the chart's values, or start each process with --nats-keys.\n";
        text += &format!(
            "\nGive the keys of the history to engines only, and keep a copy where NATS' owner has no access:\n  \
             kubectl -n dormer create secret generic dormer-history-keys \\\n    \
             --from-file={folder}/{HISTORY_KEYS_FILE}\n\
             Then set history.keys in the chart's values, or start each engine with --history-keys.\n"
        );
        if self.keep.is_some() {
            text += "In a rotation every role gets the new ring first, with its old private key.\n";
        }
        Ok(text)
    }
}
