//! `dormer uninstall`: takes what dormer wrote out of a cluster, after its pods are gone.

mod remains;
mod sweep;

use crate::cluster_access::{ClusterAccess, failed};
use clap::Args;
use dormer_client::{EXIT_CODES, Failure, finish};
use dormer_proto::message;
use kube::Client;
use remains::Remains;
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

/// Time limit of one call to the API server.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Time in which deleted objects go.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// How often the cluster is read while something is awaited.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Most objects that an error names. The rest is a count.
const NAMED_MAX: usize = 5;

/// Text below the flags in `--help`.
const AFTER_HELP: &str = "\
Order: take dormer's pods away first (helm uninstall dormer -n dormer), because a running dormer writes everything again; one \
that runs outside the cluster is seen by its Lease. Without --yes the command lists what it would take away, and changes nothing. It needs an administrator's rights. \
Windows hosts keep their programs: to empty them as well, scale their MachineSets to 0 while dormer runs.";

/// Arguments of `dormer uninstall`.
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    #[command(flatten)]
    cluster: ClusterAccess,
    /// Leave the nodes that dormer configured as they are: they serve on without upgrades
    #[arg(long)]
    keep_nodes: bool,
    /// Also end what is under way: undo dormer's cordons, and close its fences
    #[arg(long)]
    under_way: bool,
    /// Do it; otherwise only list it
    #[arg(long)]
    yes: bool,
}

/// Takes dormer's traces away, and returns the exit code.
pub(crate) async fn run(options: Options) -> ExitCode {
    finish(options.run().await)
}

impl Options {
    async fn run(&self) -> Result<(String, bool), Failure> {
        let home = &self.cluster.namespace;
        let client = self.cluster.client().await?;
        remains::nobody_runs(&client, home).await?;
        let found = Remains::find(&client, home).await?;
        if found.writes.is_empty() {
            let text = format!(
                "Nothing of dormer is left in the cluster.{}",
                found.others()
            );
            return Ok((text, true));
        }
        allowed(&found, self.keep_nodes, self.under_way)?;
        if !self.yes {
            return Ok((listed(&found), true));
        }
        self.take(&client, found).await
    }

    /// Takes everything away, then looks again.
    async fn take(&self, client: &Client, found: Remains) -> Result<(String, bool), Failure> {
        let mut lines = Vec::new();
        let mut failed = 0_usize;
        for write in &found.writes {
            match sweep::carry_out(client, write).await {
                Ok(()) => lines.push(format!("  {write}")),
                Err(why) => {
                    failed += 1;
                    lines.push(format!("  {write}: FAILED: {why}"));
                }
            }
        }
        let home = &self.cluster.namespace;
        let mut left = Remains::find(client, home).await?;
        // The API server takes the objects of a kind away before the kind.
        let begun = Instant::now();
        let mut every = tokio::time::interval(POLL_EVERY);
        while failed == 0 && !left.writes.is_empty() && begun.elapsed() < GONE_WITHIN {
            every.tick().await;
            left = Remains::find(client, home).await?;
        }
        let end = match (failed, left.writes.len()) {
            (0, 0) => format!("Nothing of dormer is left in the cluster.{}", left.others()),
            (_, 0) => "Nothing of dormer is left, although a change failed.".to_owned(),
            (_, count) => format!(
                "{count} are left. Mend what failed, and run the same command again: it takes only what is left."
            ),
        };
        let done = lines.join("\n");
        Ok((format!("Done:\n{done}\n{end}"), left.writes.is_empty()))
    }
}

/// Refuses while machines are under way, and for nodes that would be left without an owner.
fn allowed(found: &Remains, keep_nodes: bool, under_way: bool) -> Result<(), Failure> {
    if !under_way && !found.under_way.is_empty() {
        let error = format!(
            "machines are under way: {}",
            message::listed(&found.under_way, NAMED_MAX)
        );
        return Err(Failure::refused(
            error,
            "let dormer finish them (spec.paused of the pool lets none begin), or end them with --under-way: \
             their nodes are uncordoned, and a host in mid-change stays as it is",
        ));
    }
    if !keep_nodes && !found.configured.is_empty() {
        let error = format!(
            "dormer configured these nodes: {}",
            message::listed(&found.configured, NAMED_MAX)
        );
        return Err(Failure::refused(
            error,
            "scale their MachineSets to 0 while dormer runs, or leave them as they are with --keep-nodes",
        ));
    }
    Ok(())
}

fn listed(found: &Remains) -> String {
    let lines: Vec<String> = found.writes.iter().map(|it| format!("  {it}")).collect();
    format!(
        "This would be done:\n{}\nNothing was changed. Run the same command with --yes to do it.{}",
        lines.join("\n"),
        found.others()
    )
}

/// Waits for an answer of the API server.
///
/// # Errors
/// The API server refused, or did not answer within [`ANSWER_MAX`].
async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, kube::Error> {
    match tokio::time::timeout(ANSWER_MAX, call).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service("no answer within 30 s".into())),
    }
}

/// As [`within`], for a person; what is absent is `None`.
async fn if_there<T>(call: impl Future<Output = kube::Result<T>>) -> Result<Option<T>, Failure> {
    match within(call).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_without_an_owner_and_open_fences_are_refused() {
        let found = Remains {
            configured: vec!["win-a".into()],
            under_way: vec!["Node win-a".into()],
            ..Remains::default()
        };
        let refused = |keep_nodes, under_way| {
            let done = allowed(&found, keep_nodes, under_way);
            done.err().map(|failure| failure.to_string())
        };
        let text = refused(false, false).expect("refused");
        assert!(text.contains("under way: Node win-a"), "{text}");
        let text = refused(false, true).expect("refused");
        assert!(text.contains("configured these nodes: win-a"), "{text}");
        assert_eq!(refused(true, true), None);
    }
}
