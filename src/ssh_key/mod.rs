//! `dormer ssh-key`: replaces the private key that opens the Windows hosts, while they and their pods run.

mod cluster;
mod crossed;
mod hosts;
mod report;
#[cfg(all(test, feature = "demo"))]
mod tests;
mod wmco;
#[cfg(all(test, feature = "demo"))]
mod wmco_tests;

use crate::cluster_access::ClusterAccess;
use clap::{Args, Subcommand, ValueEnum};
use cluster::{KeyText, KeyedCluster};
use dormer_client::{EXIT_CODES, Failure, file::read, finish};
use dormer_workers::{
    ssh::{Limits, TcpDial},
    watcher::logins::HostLogin,
};
use report::KeyReport;
use std::{path::PathBuf, process::ExitCode, sync::Arc};
use wmco::WmcoNodes;

/// Longest key, in bytes.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// Text below the flags of `rotate` in `--help`.
const ROTATE_HELP: &str = "\
Examples:
  ssh-keygen -t ed25519 -N '' -f new-key
  dormer ssh-key rotate --new new-key
  dormer ssh-key rotate --new new-key --yes

Run it where port 22 of the hosts can be reached, with an account that may update the Secret: dormer's own accounts may not. \
One host is first: the new key is added there over a login with the present one, and proven by a login. If that \
fails, the host is left as it was, and nothing else is changed. Then all others follow, and the new key becomes \
dormer's: the present one stays in the Secret as previous-private-key.pem, and opens the hosts that could not be \
reached. No node is cordoned or drained. The command keeps no state, so the same command continues after an \
interruption, and gives hosts that were away the new key. With the previous key as --new it goes back. \
docs/ssh-key.md has all of it.";

/// Text below the flags of `finish` in `--help`.
const FINISH_HELP: &str = "\
Examples:
  dormer ssh-key finish
  dormer ssh-key finish --yes
  dormer ssh-key finish --leave-out win-a --yes

It takes nothing away before every host lets the new key in and user data of new machines has it. Then the line of the \
previous key gets # before it on each host, which is proven by a login that the host refuses, and the previous key \
leaves the Secret. A host whose user data would write the previous key again at its next boot is named and left as it is. \
The same command continues after an interruption.";

/// Commands of `dormer ssh-key`.
#[derive(Debug, Subcommand)]
pub(crate) enum SshKeyCommand {
    /// Give all Windows hosts a new key beside the present one, and make it dormer's key
    #[command(after_help = format!("{ROTATE_HELP}\n\n{EXIT_CODES}"))]
    Rotate(Rotate),
    /// Take the previous key off the hosts, and out of dormer's Secret
    #[command(after_help = format!("{FINISH_HELP}\n\n{EXIT_CODES}"))]
    Finish(Finish),
}

/// Flags of both commands.
#[derive(Debug, Args)]
pub(crate) struct SshKeyArgs {
    #[command(flatten)]
    access: ClusterAccess,
    /// Secret with the key, in dormer's namespace
    #[arg(long, default_value = "cloud-private-key", value_name = "NAME")]
    secret: String,
    /// Namespace where machines read their user data, beside openshift-cluster-api
    #[arg(
        long,
        default_value = "openshift-machine-api",
        value_name = "NAMESPACE"
    )]
    machine_namespace: String,
    /// SSH port of the hosts
    #[arg(long, default_value_t = 22)]
    port: u16,
    /// Do it; otherwise only list it
    #[arg(long)]
    yes: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Form,
}

/// Flags of `dormer ssh-key rotate`.
#[derive(Debug, Args)]
pub(crate) struct Rotate {
    /// File with the new private key, without a passphrase: ed25519, ECDSA, or RSA of at least 2048 bits
    #[arg(long, value_name = "FILE")]
    new: PathBuf,
    /// Machine that is given up: it keeps the keys that it has (may be given several times)
    #[arg(long, value_name = "MACHINE")]
    leave_out: Vec<String>,
    #[command(flatten)]
    asked: SshKeyArgs,
}

/// Flags of `dormer ssh-key finish`.
#[derive(Debug, Args)]
pub(crate) struct Finish {
    /// Machine that is given up: it keeps the previous key, and dormer does not open it any more where it has no other
    /// (may be given several times)
    #[arg(long, value_name = "MACHINE")]
    leave_out: Vec<String>,
    /// This platform runs user data at a machine's first boot only, so that it brings no key back
    #[arg(long)]
    user_data_runs_once: bool,
    #[command(flatten)]
    asked: SshKeyArgs,
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

/// Runs the command, and returns the exit code.
pub(crate) async fn run(asked: SshKeyCommand) -> ExitCode {
    finish(match asked {
        SshKeyCommand::Rotate(rotate) => rotate.run().await,
        SshKeyCommand::Finish(finish) => finish.run().await,
    })
}

impl SshKeyArgs {
    async fn site(&self) -> Result<KeyedCluster, Failure> {
        Ok(KeyedCluster {
            client: self.access.client().await?,
            namespace: self.access.namespace.clone(),
            secret: self.secret.clone(),
            machine_namespace: self.machine_namespace.clone(),
            dialer: Arc::new(TcpDial { port: self.port }),
            limits: Limits::default(),
        })
    }

    fn shown(&self, report: &KeyReport) -> (String, bool) {
        let text = match self.output {
            Form::Text => report.text(),
            Form::Json => format!("{:#}", report.json()),
        };
        (text, report.good())
    }
}

impl Rotate {
    async fn run(&self) -> Result<(String, bool), Failure> {
        let new = KeyText::of("--new", read("--new", &self.new, KEY_BYTES_MAX)?)?;
        let site = self.asked.site().await?;
        let report = rotate(&site, &new, &self.leave_out, self.asked.yes).await?;
        Ok(self.asked.shown(&report))
    }
}

impl Finish {
    async fn run(&self) -> Result<(String, bool), Failure> {
        let site = self.asked.site().await?;
        let once = self.user_data_runs_once;
        let report = take_away(&site, &self.leave_out, once, self.asked.yes).await?;
        Ok(self.asked.shown(&report))
    }
}

/// Machines of this cluster, if all of `left_out` are among them.
///
/// # Errors
/// One is not, or they cannot be listed.
async fn hosts_but(site: &KeyedCluster, left_out: &[String]) -> Result<Vec<HostLogin>, Failure> {
    let hosts = site.hosts().await?;
    let there = |name: &&String| hosts.iter().any(|host| host.name == **name);
    match left_out.iter().find(|name| !there(name)) {
        Some(unknown) => Err(Failure::Usage(format!(
            "--leave-out {unknown}: there is no Windows machine {unknown}"
        ))),
        None => Ok(hosts),
    }
}

/// Adds `new` to all hosts but `left_out`, and makes it dormer's key.
///
/// # Errors
/// The key, the account or the first host is not fit for it: nothing was changed.
async fn rotate(
    site: &KeyedCluster,
    new: &KeyText,
    left_out: &[String],
    yes: bool,
) -> Result<KeyReport, Failure> {
    let keys = site.keys().await?;
    let moved = keys.present.public == new.public;
    let old = match (&keys.previous, moved) {
        (Some(previous), true) => previous,
        (None, true) => {
            return Err(Failure::refused(
                format!(
                    "the Secret {} has this very key: it is no new one",
                    site.whole()
                ),
                "make another one: ssh-keygen -t ed25519 -N '' -f new-key",
            ));
        }
        (Some(previous), false) if previous.public != new.public => {
            return Err(Failure::refused(
                format!(
                    "a rotation is under way: the Secret {} has a previous key, and it is not the one of --new",
                    site.whole()
                ),
                "end it first: dormer ssh-key finish",
            ));
        }
        (_, false) => &keys.present,
    };
    site.may_write().await?;
    let of_wmco = WmcoNodes::find(site).await?;
    let hosts = hosts_but(site, left_out).await?;
    let mut report = KeyReport::of_rotation(old, new, yes);
    if !yes {
        report.rows = hosts::planned(&hosts, left_out);
        return Ok(report);
    }
    let pair = (&old.key, &new.key);
    report.rows = hosts::add_to_all(site, &hosts, left_out, pair).await?;
    if !moved {
        // A host that is away may follow later. If one refuses the key, the key may be wrong.
        report.refused = report.rows.iter().filter(|row| row.refused).count();
        if report.refused > 0 {
            return Ok(report);
        }
        if report.rows.iter().any(|row| row.failed()) && !report.rows.iter().any(|row| row.good()) {
            return Err(Failure::refused(
                format!(
                    "no host took the new key, and nothing was changed\n{}",
                    report.text()
                ),
                "run it where port 22 of the hosts can be reached: docs/ssh-key.md",
            ));
        }
        if !site.replace(&keys, new, Some(old)).await? {
            crossed::resolve(site, &keys, &hosts, &report, (old, new)).await?;
        }
        report.secret = Some(format!(
            "Secret {}: the new key is dormer's, the old one is the previous key",
            site.whole()
        ));
    }
    report.wmco = of_wmco.follow(site, (old, new)).await?;
    Ok(report)
}

/// Takes the previous key off all hosts but `left_out`, and out of the Secret.
///
/// # Errors
/// A host or the user data of new machines does not have the new key: nothing was changed.
async fn take_away(
    site: &KeyedCluster,
    left_out: &[String],
    once: bool,
    yes: bool,
) -> Result<KeyReport, Failure> {
    let keys = site.keys().await?;
    let Some(old) = &keys.previous else {
        return Ok(KeyReport::nothing(format!(
            "The Secret {} has no previous key: no rotation is under way.",
            site.whole()
        )));
    };
    let new = &keys.present;
    site.may_write().await?;
    let hosts = hosts_but(site, left_out).await?;
    let mut report = KeyReport::of_end(old, new, yes);
    if !site.user_data_follows(old, new).await? {
        report.unchecked = true;
    }
    if !yes {
        report.rows = hosts::planned(&hosts, left_out);
        return Ok(report);
    }
    report.rows = hosts::open_all(site, &hosts, left_out, &new.key).await;
    if report.rows.iter().any(|row| row.failed()) {
        report.stopped = true;
        return Ok(report);
    }
    let pair = (&old.key, &new.key);
    report.rows = hosts::remove_from_all(site, &hosts, left_out, pair, once).await;
    if report.rows.iter().all(|row| !row.failed()) {
        if !site.replace(&keys, new, None).await? {
            return Err(Failure::refused(
                format!(
                    "the hosts were changed, and somebody else changed the Secret {} meanwhile",
                    site.whole()
                ),
                format!("{}; then run the same command again", crossed::WHO),
            ));
        }
        report.secret = Some(format!(
            "Secret {}: the previous key was taken out",
            site.whole()
        ));
    }
    Ok(report)
}
