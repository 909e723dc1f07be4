//! `dormer preflight`: looks at a real Windows host before dormer is let at it, and prints a report to send.

mod cluster;
mod host;
mod report;

use crate::profile_command::offline;
use clap::Args;
use dormer_client::{EXIT_CODES, Failure, file::read, finish};
use dormer_workers::ssh::{Key, SshError, fingerprint};
use host::{Baseline, HostTarget};
use std::{io::IsTerminal, path::PathBuf, process::ExitCode, time::Instant};

/// Longest key that is read, in bytes.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// What is said below the flags.
const AFTER_HELP: &str = "\
It logs in by SSH as an administrator, reads facts, and runs dormer's script in mode plan: the script compares the \
host with an example's profile and changes nothing. All that is written lies below C:\\ProgramData\\dormer (the script, \
and the document that it compares with); each file is named in the report and removed at the end. No secret is sent: \
where a profile would have one, the document has its name. The report leaves out names, addresses and whatever looks \
like a secret.";

/// Which host, and how to get there.
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// The Windows host: a name or an address
    #[arg(long, value_name = "HOST", required = true)]
    self_test: String,
    /// Who logs in: an administrator
    #[arg(long, default_value = "Administrator", value_name = "NAME")]
    user: String,
    /// The file with the private key, without a passphrase
    #[arg(long, value_name = "FILE", required = true)]
    key: PathBuf,
    /// The port of SSH
    #[arg(long, default_value_t = 22)]
    port: u16,
    /// The host's key, by its fingerprint (SHA256:…); without it, it is shown and asked for
    #[arg(long, value_name = "FINGERPRINT")]
    host_key: Option<String>,
    /// The built-in profile that the host is compared with: openshift or upstream
    #[arg(long, default_value = "openshift", value_name = "NAME")]
    profile: String,
    /// A layer of your own on top (may be given several times, the last one highest)
    #[arg(long, value_name = "FILE")]
    layer: Vec<PathBuf>,
    /// A folder with a payload; without it, an example's manifest
    #[arg(long, value_name = "DIR")]
    payload: Option<PathBuf>,
    /// Looks in the cluster of this kubeconfig, too, whether another operator for Windows hosts runs there
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Prints the report as JSON
    #[arg(long)]
    json: bool,
    /// Writes the report into this file, too, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Looks, reports, and says by the exit code how it went.
pub(crate) async fn run(options: Options) -> ExitCode {
    finish(options.run().await)
}

impl Options {
    async fn run(&self) -> Result<(String, bool), Failure> {
        let profile = offline::layered(&self.profile, &self.layer)?;
        let payload = offline::payload(self.payload.as_deref())?;
        let key = self.key()?;
        let target = HostTarget {
            address: self.self_test.clone(),
            port: self.port,
            user: self.user.clone(),
            key,
        };
        let wanted = Baseline {
            profile: &profile,
            payload: &payload,
        };
        let mut report = host::check(&target, &wanted, |shown| self.known(shown)).await;
        if let Some(kubeconfig) = &self.kubeconfig {
            let begun = Instant::now();
            let seen = cluster::check(kubeconfig).await;
            let ms = begun.elapsed().as_millis();
            let ms = u64::try_from(ms).unwrap_or(u64::MAX);
            report.step("look for another operator", ms, seen);
        }
        if let Some(path) = &self.out {
            let text = report.json();
            std::fs::write(path, text + "\n").map_err(|error| {
                Failure::refused(format!("cannot write {}: {error}", path.display()), "")
            })?;
        }
        let text = if self.json {
            report.json()
        } else {
            report.text()
        };
        Ok((text, report.good()))
    }

    fn key(&self) -> Result<Key, Failure> {
        let text = read(&self.key, KEY_BYTES_MAX)?;
        let failed = |e: SshError| Failure::refused(format!("{}: {e}", self.key.display()), "");
        Key::read(&text).map_err(failed)
    }

    /// Whether the host's key is the one that is meant.
    ///
    /// # Errors
    /// It is not, or nobody is there to say so: a sentence for the report.
    fn known(&self, shown: &str) -> Result<(), String> {
        let print = fingerprint(shown);
        let sum = print.rsplit(' ').next().unwrap_or_default();
        match &self.host_key {
            Some(said) if said.trim() == sum => Ok(()),
            Some(said) => Err(format!(
                "the host shows the key {print}, not {}",
                said.trim()
            )),
            None if std::io::stdin().is_terminal() => asked(&print),
            None => Err(format!(
                "the host shows the key {print}: compare it with what ssh-keygen -lf says on the host, and name it: \
                 --host-key {sum}"
            )),
        }
    }
}

fn asked(print: &str) -> Result<(), String> {
    eprint!("The host shows the key {print}. Is it the host's? [y/N] ");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    if read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(format!("the host's key {print} was not confirmed"))
}
