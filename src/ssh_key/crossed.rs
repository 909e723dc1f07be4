//! Two people who rotate at once. The Secret lets one of them through; the other key is taken off the hosts again,
//! because it would be left there unknown.

use super::{
    cluster::{KeyText, KeyedCluster, Keys},
    hosts,
    report::{HostRow, KeyOutcome, KeyReport},
};
use dormer_client::Failure;
use dormer_workers::watcher::logins::HostLogin;

/// How to see who it was.
pub(super) const WHO: &str = "kubectl get secret --show-managed-fields says who it was";

/// Continues after another client changed the Secret while the hosts got the new key. Where the keys are still those that
/// were `read`, they are written again. Otherwise the new key leaves the hosts that this command gave it.
///
/// # Errors
/// Another person rotates: the new key is not dormer's.
pub(super) async fn resolve(
    site: &KeyedCluster,
    read: &Keys,
    hosts: &[HostLogin],
    report: &KeyReport,
    (old, new): (&KeyText, &KeyText),
) -> Result<(), Failure> {
    let now = site.keys().await?;
    if now.are(read) && site.replace(&now, new, Some(old)).await? {
        return Ok(());
    }
    let now = site.keys().await?;
    let crossed = format!(
        "somebody else changed the Secret {} meanwhile",
        site.whole()
    );
    // The same key: it is dormer's, so it stays on the hosts. No other key: it may become dormer's yet.
    if now.have(new) || now.are(read) {
        let what_to_do = format!("{WHO}; run the same command again to continue");
        return Err(Failure::refused(crossed, what_to_do));
    }
    // A host that took the key before has it from another person, or from an earlier run: it is named, and keeps it.
    let given = |row: &&HostRow| row.outcome == KeyOutcome::Done;
    let others: Vec<String> = report
        .rows
        .iter()
        .filter(|row| !given(row))
        .map(|row| row.machine.clone())
        .collect();
    // User data never had the new key, so that it brings none back.
    let pair = (&new.key, &now.login());
    let rows = hosts::remove_from_all(site, hosts, &others, pair, true).await;
    let theirs = now.present.fingerprint();
    Err(Failure::refused(
        format!(
            "{crossed}: dormer's key is {theirs} now, and not that of --new{}",
            left(&rows, &report.rows)
        ),
        format!("{WHO}; end that rotation first: dormer ssh-key finish"),
    ))
}

/// Sentence about the hosts that had the new key: what came of taking it off, and how they were before.
fn left(rows: &[HostRow], before: &[HostRow]) -> String {
    let gone = rows.iter().filter(|row| row.good()).count();
    let had = before
        .iter()
        .filter(|row| row.outcome == KeyOutcome::Already);
    let had = had.map(|row| format!("{} (it did before)", row.machine));
    let failed = rows.iter().filter(|row| row.failed());
    let failed = failed.map(|row| format!("{} ({})", row.machine, row.why));
    let kept: Vec<String> = failed.chain(had).collect();
    let gone = format!("; {gone} hosts do not let that one in any more");
    match kept.as_slice() {
        [] => gone,
        kept => format!(
            "{gone}, and these may: {}. Take its line, which ends in rotated-by-dormer, out by hand there",
            kept.join(", ")
        ),
    }
}
