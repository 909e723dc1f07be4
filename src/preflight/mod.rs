//! `dormer preflight`: inspects a real Windows host before dormer configures it, and prints a report.

mod cluster;
mod host;
mod report;

use crate::profile_command::offline;
use clap::Args;
use dormer_client::{EXIT_CODES, Failure, file::read, finish};
use dormer_workers::{
    host::HostProgram,
    ssh::{Key, SshError, fingerprint},
};
use host::{Baseline, HostTarget};
use std::{io::IsTerminal, path::PathBuf, process::ExitCode, time::Instant};

/// Longest key, in bytes.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// Text below the flags in `--help`.
const AFTER_HELP: &str = "\
Preflight logs in by SSH as an administrator, sends dormer-host.exe, reads facts by it, and runs it in mode plan: it \
compares the host with an example's profile and changes nothing. Preflight writes only the program and its lock, below \
C:\\Windows\\dormer; the report lists each file, and preflight removes it at the end. No secret is sent: the document has \
the name of each secret instead. The report leaves out names, addresses and texts that look like secrets.";

/// Arguments of `dormer preflight`.
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// Windows host: a name or an address
    #[arg(long, value_name = "HOST", required = true)]
    self_test: String,
    /// User of the login: an administrator
    #[arg(long, default_value = "Administrator", value_name = "NAME")]
    user: String,
    /// File with the private key, without a passphrase
    #[arg(long, value_name = "FILE", required = true)]
    key: PathBuf,
    /// File with dormer-host.exe of this release
    #[arg(
        long,
        env = "DORMER_HOST_PROGRAM",
        value_name = "FILE",
        required = true
    )]
    host_program: PathBuf,
    /// SSH port
    #[arg(long, default_value_t = 22)]
    port: u16,
    /// Fingerprint of the host's key (SHA256:…); without it, preflight shows the key and asks you to confirm it
    #[arg(long, value_name = "FINGERPRINT")]
    host_key: Option<String>,
    /// Built-in profile to compare the host with: openshift or upstream
    #[arg(long, default_value = "openshift", value_name = "NAME")]
    profile: String,
    /// File with a layer of your own on top (may be given several times, later ones on top)
    #[arg(long, value_name = "FILE")]
    layer: Vec<PathBuf>,
    /// Folder with a payload [default: an example manifest]
    #[arg(long, value_name = "DIR")]
    payload: Option<PathBuf>,
    /// Kubeconfig of a cluster; preflight also looks there for another operator that configures Windows hosts
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Also write the report into this file, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Inspects the host, prints the report, and returns the exit code.
pub(crate) async fn run(options: Options) -> ExitCode {
    finish(options.run().await)
}

impl Options {
    async fn run(&self) -> Result<(String, bool), Failure> {
        let profile = offline::layered(&self.profile, &self.layer)?;
        let payload = offline::payload(self.payload.as_deref())?;
        let key = self.key()?;
        let program = HostProgram::read(&self.host_program)
            .map_err(|error| Failure::refused(error.to_string(), ""))?;
        let target = HostTarget {
            address: self.self_test.clone(),
            port: self.port,
            user: self.user.clone(),
            key,
        };
        let wanted = Baseline {
            profile: &profile,
            payload: &payload,
            program: &program,
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

    /// Checks that the host's key is the expected one.
    ///
    /// # Errors
    /// The key differs, or no person can confirm it: a sentence for the report.
    fn known(&self, shown: &str) -> Result<(), String> {
        let print = fingerprint(shown);
        let sum = print.rsplit(' ').next().unwrap_or_default();
        match &self.host_key {
            Some(said) if said.trim() == sum => Ok(()),
            Some(said) => Err(format!("the host has the key {print}, not {}", said.trim())),
            None if std::io::stdin().is_terminal() => asked(&print),
            None => Err(format!(
                "the host has the key {print}: compare it with the output of ssh-keygen -lf on \
                 the host, and confirm it with --host-key {sum}"
            )),
        }
    }
}

fn asked(print: &str) -> Result<(), String> {
    eprint!("The host has the key {print}. Is that correct? [y/N] ");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    if read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(format!("nobody confirmed the host's key {print}"))
}
