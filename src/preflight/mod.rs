//! `dormer preflight`: inspects a Windows host, or a cluster, before dormer changes anything, and prints a report.

mod cluster;
mod contract;
mod findings;
mod host;
pub(crate) mod release;
mod report;
mod rights;
mod survey;

use crate::{cluster_access::ClusterAccess, profile_command::offline};
use clap::{Args, ValueEnum};
use dormer_client::{EXIT_CODES, Failure, file::read, finish};
use dormer_lint::Severity;
use dormer_views::finding as watched;
use dormer_workers::{
    host::HostProgram,
    ssh::{HeldKey, Key, SshAgent, SshError, fingerprint},
};
use futures::future::BoxFuture;
use host::{Baseline, HostTarget};
use kube::Client;
use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

/// Longest key, in bytes.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// Text below the flags in `--help`.
const AFTER_HELP: &str = "\
Examples:
  dormer preflight --cluster
  dormer preflight --cluster --as system:serviceaccount:dormer:dormer-worker -o json
  dormer preflight --self-test 192.0.2.10 --key ~/.ssh/windows --out report.json
  dormer preflight --self-test 192.0.2.10 --ssh-agent $SSH_AUTH_SOCK
  dormer preflight --self-test 192.0.2.10 --key ~/.ssh/windows --perform-program dormer-host-perform.exe --record host.jsonl

With --cluster, preflight reads the cluster of the kubeconfig: networks, versions, secrets, user data, MachineSets and \
MachineHealthChecks, another operator, nodes, gMSA, and the rights of the account. It writes nothing there. Warnings \
alone leave the exit code at 0. Where dormer's key is in an ssh-agent and in no Secret, --ssh-agent compares with that key.

With --self-test, preflight logs in by SSH as an administrator, sends dormer-host.exe, reads facts by it, and runs it in mode plan: it \
compares the host with an example's profile and changes nothing. Preflight writes only the program and its lock, below \
C:\\Windows\\dormer; the report lists each file, and preflight removes it at the end. No secret is sent: the document has \
the name of each secret instead. The report leaves out names, addresses and texts that look like secrets.

With --perform-program as well, preflight compares this Windows with dormer's model of it: the harmless rows of the \
contract run there, in C:\\dormer-contract and with services named dormer-contract-*, which it removes. What differs is \
printed row by row. --record FILE keeps each operation with its answer.";

/// Arguments of `dormer preflight`.
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// Look at the cluster of the kubeconfig
    #[arg(long = "cluster")]
    surveys: bool,
    /// Log in to this Windows host, a name or an address, and look at it; needs --host-program, and --key or --ssh-agent
    #[arg(long, value_name = "HOST", conflicts_with = "surveys")]
    self_test: Option<String>,
    /// User of the login: an administrator
    #[arg(long, default_value = "Administrator", value_name = "NAME")]
    user: String,
    /// File with the private key, without a passphrase
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Socket of an ssh-agent that has the private key, such as $SSH_AUTH_SOCK, in place of --key
    #[arg(long, value_name = "SOCKET", conflicts_with = "key")]
    ssh_agent: Option<PathBuf>,
    /// Fingerprint of its key to use, as ssh-add -l prints it [default: the agent's only key]
    #[arg(long, value_name = "FINGERPRINT", requires = "ssh_agent")]
    ssh_agent_key: Option<String>,
    /// File with dormer-host.exe of this release
    #[arg(long, env = "DORMER_HOST_PROGRAM", value_name = "FILE")]
    host_program: Option<PathBuf>,
    /// File with dormer-host-perform.exe, built beside dormer-host.exe: also run the contract's harmless rows on the host
    #[arg(long, value_name = "FILE", requires = "self_test")]
    perform_program: Option<PathBuf>,
    /// Write each operation of those rows with its answer into this file, as JSON lines
    #[arg(long, value_name = "FILE", requires = "perform_program")]
    record: Option<PathBuf>,
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
    #[command(flatten)]
    access: ClusterAccess,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Form,
    /// Print the report as JSON, as -o json does
    #[arg(long)]
    json: bool,
    /// Also write the report into this file, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Where the private key is.
enum KeySource<'a> {
    File(&'a Path),
    /// In the agent behind this socket.
    Agent(&'a Path),
}

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Inspects the host or the cluster, prints the report, and returns the exit code.
pub(crate) async fn run(options: Options) -> ExitCode {
    finish(options.run().await)
}

/// Findings about the cluster of a running dormer, as far as its own account may read: no secret is read. Of rights
/// only the console's are checked.
pub(crate) fn while_running(
    client: Client,
    namespace: String,
) -> BoxFuture<'static, Vec<watched::Finding>> {
    Box::pin(async move {
        let survey = survey::read_while_running(&client, &namespace).await;
        // An API server that does not answer is the trouble of the roles, which say it themselves.
        let found = survey.map_or_else(|_| Vec::new(), |survey| findings::judge(&survey));
        found.into_iter().map(Into::into).collect()
    })
}

impl From<findings::PreflightFinding> for watched::Finding {
    fn from(found: findings::PreflightFinding) -> Self {
        let severity = match found.severity {
            Severity::Error => watched::FindingSeverity::Error,
            Severity::Warning => watched::FindingSeverity::Warning,
        };
        Self {
            code: found.code,
            severity: severity.into(),
            object: found.object,
            message: found.message,
            what_to_do: found.what_to_do,
        }
    }
}

impl Options {
    async fn run(&self) -> Result<(String, bool), Failure> {
        if self.surveys {
            return self.surveyed().await;
        }
        let (Some(host), Some(key), Some(program)) =
            (&self.self_test, self.key_source(), &self.host_program)
        else {
            return Err(self.incomplete());
        };
        if self.access.account.is_some() {
            return Err(Failure::Usage(
                "--as goes with --cluster: on a host preflight logs in as --user".into(),
            ));
        }
        let profile = offline::layered(&self.profile, &self.layer)?;
        let payload = offline::payload(self.payload.as_deref())?;
        let key = match key {
            KeySource::File(file) => read_key(file)?,
            KeySource::Agent(socket) => self.agent_key(socket).await?,
        };
        let program = program_of("--host-program", program)?;
        let performing = self.perform_program.as_deref();
        let performing = performing
            .map(|file| program_of("--perform-program", file))
            .transpose()?;
        let target = HostTarget {
            address: host.clone(),
            port: self.port,
            user: self.user.clone(),
            key,
        };
        let wanted = Baseline {
            profile: &profile,
            payload: &payload,
            program: &program,
            performing: performing.as_ref(),
        };
        let (mut report, recording) =
            host::check(&target, &wanted, |shown| self.known(shown)).await;
        if self.access.kubeconfig.is_some() || self.access.context.is_some() {
            let begun = Instant::now();
            let seen = cluster::check(self.access.client().await).await;
            let ms = begun.elapsed().as_millis();
            let ms = u64::try_from(ms).unwrap_or(u64::MAX);
            report.step("look for another operator", ms, seen);
        }
        if let Some(path) = &self.out {
            written("--out", path, &report.json())?;
        }
        match (&self.record, &recording) {
            (Some(path), Ok(lines)) => written("--record", path, lines.trim_end())?,
            (Some(path), Err(why)) => {
                eprintln!("--record {} was not written: {why}", path.display());
            }
            (None, _) => {}
        }
        let text = match self.form() {
            Form::Json => report.json(),
            Form::Text => report.text(),
        };
        Ok((text, report.good()))
    }

    fn key_source(&self) -> Option<KeySource<'_>> {
        let file = self.key.as_deref().map(KeySource::File);
        file.or_else(|| self.ssh_agent.as_deref().map(KeySource::Agent))
    }

    /// The key of `--ssh-agent-key`, or else the only one.
    async fn agent_key(&self, socket: &Path) -> Result<Key, Failure> {
        let wanted: Vec<String> = self.ssh_agent_key.iter().cloned().collect();
        let held = HeldKey::choose(Arc::new(SshAgent::at(socket)), &wanted).await;
        let failed = |error| Failure::refused(format!("--ssh-agent: {error}"), "");
        Ok(held.map_err(failed)?.key)
    }

    /// What lacks, if neither a cluster nor a whole host is named.
    fn incomplete(&self) -> Failure {
        let lacks = |given: bool, flag: &'static str| (!given).then_some(flag);
        let lacking = [
            lacks(
                self.key_source().is_some(),
                "--key FILE (or --ssh-agent SOCKET)",
            ),
            lacks(self.host_program.is_some(), "--host-program FILE"),
        ];
        let lacking: Vec<&str> = lacking.into_iter().flatten().collect();
        Failure::Usage(match self.self_test {
            Some(_) => format!("--self-test also needs {}", lacking.join(" and ")),
            None => "say what to look at:\n  dormer preflight --cluster looks at the cluster of the kubeconfig\n  \
                     dormer preflight --self-test HOST --key FILE --host-program FILE looks at a Windows host"
                .to_owned(),
        })
    }

    fn form(&self) -> Form {
        if self.json { Form::Json } else { self.output }
    }

    /// Report about the cluster.
    async fn surveyed(&self) -> Result<(String, bool), Failure> {
        let client = self.access.own_client().await?;
        let namespace = &self.access.namespace;
        // None of dormer's accounts may read all of this, and each has its own rights.
        let mut survey = match &self.access.account {
            Some(account) => {
                let theirs = self.access.client().await?;
                survey::read(&client, namespace, Some((account.as_str(), &theirs))).await?
            }
            None => survey::read(&client, namespace, None).await?,
        };
        if let Some(socket) = &self.ssh_agent {
            let failed = |error: SshError| Failure::refused(error.to_string(), "");
            let key = self.agent_key(socket).await?;
            survey.agent_key = Some(key.public_line().map_err(failed)?);
        }
        let found = findings::judge(&survey);
        if let Some(path) = &self.out {
            written("--out", path, &cluster::json(&survey, &found))?;
        }
        let text = match self.form() {
            Form::Json => cluster::json(&survey, &found),
            Form::Text => cluster::text(&survey, &found),
        };
        let good = found.iter().all(|it| it.severity == Severity::Warning);
        Ok((text, good))
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

pub(crate) fn read_key(path: &Path) -> Result<Key, Failure> {
    let text = read("--key", path, KEY_BYTES_MAX)?;
    let failed = |e: SshError| Failure::refused(format!("--key {}: {e}", path.display()), "");
    Key::read(&text).map_err(failed)
}

fn program_of(flag: &str, path: &Path) -> Result<HostProgram, Failure> {
    HostProgram::read(path).map_err(|error| Failure::Usage(format!("{flag}: {error}")))
}

fn written(flag: &str, path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, format!("{text}\n"))
        .map_err(|error| Failure::refused(format!("{flag} {}: {error}", path.display()), ""))
}

fn asked(print: &str) -> Result<(), String> {
    eprint!("The host has the key {print}. Is that correct? [y/N] ");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    if read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(format!("the host's key {print} was not confirmed"))
}
