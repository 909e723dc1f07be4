//! Status of the watcher, for health endpoints and people.

use dormer_proto::id::Epoch;
use std::{collections::BTreeMap, time::Duration};

/// How long lists may fail until the watcher no longer counts as at work.
const FAILING_MAX: Duration = Duration::from_secs(120);

/// A kind of object that machines come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The kind, with its group and namespace.
    pub what: String,
    pub state: SourceState,
    /// Whether every installation has the right to it. Rights to Cluster API's kinds are an option of the chart.
    pub expected: bool,
}

/// Whether a source of machines is readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceState {
    /// It is listed and watched.
    Watched,
    /// The cluster does not know the kind.
    Absent,
    /// dormer may not read it: the missing right. Absent objects of this kind then prove nothing.
    Forbidden(String),
}

/// Status of the watcher. Counts refer to the present view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether this process publishes. If not, `holder` names the process that does.
    pub elected: bool,
    /// Holder of the Kubernetes Lease, as last read by this process.
    pub holder: Option<String>,
    /// The epoch of the last full list.
    pub epoch: Epoch,
    /// When the last full list was published, by this process's clock.
    pub listed: Option<jiff::Timestamp>,
    /// What machines come from: each API that the cluster serves, with its sets.
    pub sources: Vec<Source>,
    /// Problems of WindowsHosts, by host or entry.
    pub hosts_amiss: BTreeMap<String, String>,
    /// Windows Machines.
    pub machines: usize,
    /// Machines that have, or may have, a run.
    pub live: usize,
    /// Machines with `windowsmachineconfig.openshift.io/ignore=true`.
    pub ignored: usize,
    /// Machines for which another API is authoritative (`status.authoritativeAPI`). dormer does not act on them.
    pub elsewhere: usize,
    /// Pending CSRs of kubelets that are none of our machines'.
    pub foreign_csrs: usize,
    /// Readings of objects that could not be understood, since the start.
    pub unreadable: u64,
    /// Whether the cluster's settings for nodes, and what else changes the cluster, are watched; `None`: their watches have
    /// not all begun. Without a watch they are read often.
    pub settings: Option<SourceState>,
    /// Reason for which the pool's spec is refused: the field and the problem.
    pub pool_refused: Option<String>,
    /// Reason for which no lease is granted, with the remedy: there is no pool, its `spec.stop` is true, or the
    /// ConfigMap of an earlier build exists.
    pub grants_held: Option<String>,
    /// Another operator that configures Windows hosts: which one and where, and how to stop it. While it runs, dormer
    /// leaves every host alone.
    pub neighbour: Option<String>,
    /// Reason for which the search for another operator failed. The last result stays in force.
    pub neighbour_unread: Option<String>,
    /// Since when every list has failed, by this process's clock; `None` while they succeed.
    pub failing: Option<jiff::Timestamp>,
    /// What went wrong last, in one sentence; `None` since it went right again.
    pub error: Option<String>,
}

impl Status {
    /// Whether the watcher works: it has listed and continues, or another one is elected. One whose lists have
    /// failed for two minutes does not.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.ready_at(jiff::Timestamp::now())
    }

    fn ready_at(&self, now: jiff::Timestamp) -> bool {
        let failing = |since| Duration::try_from(now.duration_since(since)).unwrap_or_default();
        let lost = self
            .failing
            .map(failing)
            .is_some_and(|failing| failing >= FAILING_MAX);
        if self.elected {
            self.listed.is_some() && !lost
        } else {
            self.holder.is_some()
        }
    }

    /// The right to a source of machines that every installation has, and the elected watcher does not.
    #[must_use]
    pub fn lacks(&self) -> Option<&str> {
        let mut expected = self.sources.iter().filter(|it| self.elected && it.expected);
        expected.find_map(|it| match &it.state {
            SourceState::Forbidden(why) => Some(why.as_str()),
            SourceState::Watched | SourceState::Absent => None,
        })
    }

    /// A round ended with this trouble.
    pub(super) fn failed(&mut self, trouble: String) {
        self.failing.get_or_insert_with(jiff::Timestamp::now);
        self.error = Some(trouble);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_elected_watcher_whose_lists_fail_for_long_is_not_ready() {
        let now = jiff::Timestamp::now();
        let mut status = Status {
            elected: true,
            listed: Some(now),
            ..Status::default()
        };
        assert!(status.ready_at(now));
        status.failed("no way to the API server".into());
        let since = status.failing.expect("a time");
        assert!(status.ready_at(since + Duration::from_secs(119)));
        status.failed("still none".into());
        assert_eq!(status.failing, Some(since), "the first failure counts");
        assert!(!status.ready_at(since + FAILING_MAX));
        let elsewhere = Status {
            elected: false,
            holder: Some("another".into()),
            ..status
        };
        assert!(elsewhere.ready_at(since + FAILING_MAX));
    }

    #[test]
    fn a_watcher_lacks_the_rights_that_every_installation_has_and_no_others() {
        let source = |what: &str, expected: bool| Source {
            what: what.to_owned(),
            state: SourceState::Forbidden(format!("dormer may not list {what}")),
            expected,
        };
        let of = |elected: bool, sources: Vec<Source>| {
            let status = Status {
                elected,
                sources,
                ..Status::default()
            };
            status.lacks().map(str::to_owned)
        };
        let cluster = || source("machines.cluster.x-k8s.io", false);
        let machines = || source("machines.machine.openshift.io", true);
        assert_eq!(of(true, vec![cluster()]), None);
        assert_eq!(
            of(true, vec![cluster(), machines()]).as_deref(),
            Some("dormer may not list machines.machine.openshift.io")
        );
        assert_eq!(of(false, vec![machines()]), None, "another one reads them");
        let watched = Source {
            state: SourceState::Watched,
            ..machines()
        };
        assert_eq!(of(true, vec![watched]), None);
    }
}
