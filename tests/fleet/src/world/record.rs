//! The world's own record: what truly happened, whoever claims otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;

use super::{Pace, WorldClock};

/// Entries kept; the oldest go first. Counts and the unavailability figures lose nothing by it.
pub const ENTRIES_MAX: usize = 1_000_000;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "what")]
pub enum Happened {
    /// A node became able to serve: Ready, schedulable, not deleted.
    NodeAvailable {
        /// The Node.
        node: String,
    },
    /// A node that served stopped serving.
    NodeUnavailable {
        /// The Node.
        node: String,
        /// Why.
        why: Unavailable,
        /// The user whose request did it; `None` when it happened by itself.
        by: Option<String>,
    },
    /// A kubelet process started; `again` when this host had one before.
    KubeletStarted {
        /// UID of the host's Machine.
        machine: String,
        /// Whether this host had run one before.
        again: bool,
    },
    /// A pod was evicted (the request was granted).
    PodEvicted {
        /// `namespace/name`.
        pod: String,
        /// The user that asked.
        by: String,
    },
    /// A pod was deleted without asking its budget.
    PodDeleted {
        /// `namespace/name`.
        pod: String,
        /// The user that asked.
        by: String,
    },
    /// A Machine's deletion was asked for (the first time).
    MachineDeleted {
        /// `namespace/name`.
        name: String,
        /// UID of the Machine.
        machine: String,
        /// The user that asked.
        by: String,
    },
    /// The converge script ran on a host and changed something, or would have.
    Converged {
        /// UID of the host's Machine.
        machine: String,
        /// Task id and attempt as the script was told, `task/attempt`.
        task: String,
        /// Whether it changed anything.
        changed: bool,
    },
    /// A host's services were torn down.
    TornDown {
        /// UID of the host's Machine.
        machine: String,
    },
    /// A host finished a boot.
    Booted {
        /// UID of the host's Machine.
        machine: String,
        /// Its how many-eth boot, from 1.
        boot: u32,
    },
    /// A command was run on a host by SSH.
    RemoteCommand {
        /// UID of the host's Machine.
        machine: String,
        /// How many PowerShell processes it started.
        powershell_starts: u32,
    },
    /// An SFTP session was opened.
    SftpSession {
        /// UID of the host's Machine.
        machine: String,
    },
    /// A fault struck.
    FaultStruck {
        /// Its name.
        fault: &'static str,
        /// The Machine's name it struck.
        machine: String,
    },
}

/// Why a node does not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unavailable {
    /// Its Ready condition is not True.
    NotReady,
    /// It was cordoned.
    Cordoned,
    /// Its Node object was deleted, or its Machine is being deleted.
    Deleted,
    /// Its host was torn down.
    TornDown,
}

/// One line of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// When, in the world's time since its start.
    pub at: Duration,
    /// What.
    #[serde(flatten)]
    pub happened: Happened,
}

/// The world's own record. Clones share it.
#[derive(Clone)]
pub struct Record {
    clock: WorldClock,
    pace: Pace,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    entries: std::collections::VecDeque<Entry>,
    nodes: BTreeMap<String, NodeLedger>,
    unavailable: usize,
    unavailable_max: usize,
    unavailable_max_nodes: Vec<String>,
    tally: Tally,
}

/// How often what happened, in the whole life of the world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Commands run by SSH.
    pub remote_commands: u64,
    /// PowerShell processes started by them.
    pub powershell_starts: u64,
    /// SFTP sessions opened.
    pub sftp_sessions: u64,
    /// Kubelets started on a host that had run one before.
    pub kubelet_restarts: u64,
    /// Pods evicted.
    pub pods_evicted: u64,
    /// Pods deleted without asking a budget.
    pub pods_deleted: u64,
    /// Machines whose deletion was asked for.
    pub machines_deleted: u64,
    /// Runs of the converge script that changed something.
    pub converges_with_change: u64,
}

#[derive(Default)]
struct NodeLedger {
    served: bool,
    reasons: BTreeSet<Unavailable>,
}

impl Record {
    /// An empty record.
    pub fn new(clock: WorldClock, pace: Pace) -> Self {
        Self { clock, pace, inner: Arc::default() }
    }

    /// Writes down what happened.
    pub fn push(&self, happened: Happened) {
        let at = self.pace.simulated(self.clock.elapsed());
        let mut inner = self.lock();
        inner.tally.count(&happened);
        inner.entries.push_back(Entry { at, happened });
        if inner.entries.len() > ENTRIES_MAX {
            inner.entries.pop_front();
        }
    }

    /// Says for which reasons a node does not serve now (none: it serves), and by whose doing. A
    /// node counts as unavailable only once it has served: a first bring-up serves nobody.
    pub fn node_state(&self, node: &str, reasons: BTreeSet<Unavailable>, by: Option<&str>) {
        let happened = {
            let mut inner = self.lock();
            inner.node_state(node, reasons, by)
        };
        if let Some(happened) = happened {
            self.push(happened);
        }
    }

    /// A node is out of the count for good: it was removed on purpose and its set is smaller now,
    /// or a replacement took its place.
    pub fn node_forgotten(&self, node: &str) {
        let mut inner = self.lock();
        if let Some(ledger) = inner.nodes.remove(node)
            && ledger.served
            && !ledger.reasons.is_empty()
        {
            inner.unavailable -= 1;
        }
    }

    /// The most nodes that were unavailable at one time, of those that had served before.
    pub fn max_unavailable_observed(&self) -> usize {
        self.lock().unavailable_max
    }

    /// Which nodes those were.
    pub fn max_unavailable_nodes(&self) -> Vec<String> {
        self.lock().unavailable_max_nodes.clone()
    }

    /// How many nodes are unavailable now, of those that had served before.
    pub fn unavailable_now(&self) -> usize {
        self.lock().unavailable
    }

    /// How many nodes serve now.
    pub fn serving_now(&self) -> usize {
        self.lock().nodes.values().filter(|n| n.served && n.reasons.is_empty()).count()
    }

    /// Starts the count of the most unavailable nodes anew (not the record).
    pub fn reset_max_unavailable(&self) {
        let mut inner = self.lock();
        inner.unavailable_max = 0;
        inner.note_max();
    }

    /// How often what happened.
    pub fn tally(&self) -> Tally {
        self.lock().tally
    }

    /// All lines, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.iter().cloned().collect()
    }

    /// Whether any line says so.
    pub fn any(&self, mut says: impl FnMut(&Happened) -> bool) -> bool {
        self.lock().entries.iter().any(|e| says(&e.happened))
    }

    /// Runs of the converge script per host and task: `(machine uid, task/attempt) -> runs`.
    pub fn converges(&self) -> BTreeMap<(String, String), u32> {
        let mut runs = BTreeMap::new();
        for entry in &self.lock().entries {
            if let Happened::Converged { machine, task, .. } = &entry.happened {
                *runs.entry((machine.clone(), task.clone())).or_insert(0) += 1;
            }
        }
        runs
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn node_state(
        &mut self,
        node: &str,
        reasons: BTreeSet<Unavailable>,
        by: Option<&str>,
    ) -> Option<Happened> {
        if !self.nodes.contains_key(node) {
            self.nodes.insert(node.to_owned(), NodeLedger::default());
        }
        let ledger = self.nodes.get_mut(node)?;
        if ledger.reasons == reasons && ledger.served {
            return None;
        }
        let (was, had_served) = (std::mem::replace(&mut ledger.reasons, reasons), ledger.served);
        let new_reason = ledger.reasons.difference(&was).next().copied();
        let up = ledger.reasons.is_empty();
        ledger.served |= up;
        let name = node.to_owned();
        match (had_served, was.is_empty(), up) {
            (false, _, true) => Some(Happened::NodeAvailable { node: name }),
            (false, _, false) => None,
            (true, false, true) => {
                self.unavailable -= 1;
                Some(Happened::NodeAvailable { node: name })
            }
            (true, true, false) => {
                self.unavailable += 1;
                self.note_max();
                let why = new_reason.unwrap_or(Unavailable::NotReady);
                Some(Happened::NodeUnavailable { node: name, why, by: by.map(str::to_owned) })
            }
            (true, _, _) => None,
        }
    }

    fn note_max(&mut self) {
        if self.unavailable > self.unavailable_max {
            self.unavailable_max = self.unavailable;
            let down = self.nodes.iter().filter(|(_, n)| n.served && !n.reasons.is_empty());
            self.unavailable_max_nodes = down.map(|(name, _)| name.clone()).collect();
        }
    }
}

impl Tally {
    fn count(&mut self, happened: &Happened) {
        match happened {
            Happened::RemoteCommand { powershell_starts, .. } => {
                self.remote_commands += 1;
                self.powershell_starts += u64::from(*powershell_starts);
            }
            Happened::SftpSession { .. } => self.sftp_sessions += 1,
            Happened::KubeletStarted { again: true, .. } => self.kubelet_restarts += 1,
            Happened::PodEvicted { .. } => self.pods_evicted += 1,
            Happened::PodDeleted { .. } => self.pods_deleted += 1,
            Happened::MachineDeleted { .. } => self.machines_deleted += 1,
            Happened::Converged { changed: true, .. } => self.converges_with_change += 1,
            Happened::KubeletStarted { .. }
            | Happened::Converged { .. }
            | Happened::NodeAvailable { .. }
            | Happened::NodeUnavailable { .. }
            | Happened::TornDown { .. }
            | Happened::Booted { .. }
            | Happened::FaultStruck { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record::new(WorldClock::system(), Pace::LIFE)
    }

    fn because(reasons: &[Unavailable]) -> BTreeSet<Unavailable> {
        reasons.iter().copied().collect()
    }

    #[tokio::test]
    async fn a_first_bring_up_never_counts() {
        let record = record();
        record.node_state("a", because(&[Unavailable::NotReady]), None);
        record.node_state("b", because(&[Unavailable::NotReady, Unavailable::Cordoned]), None);
        assert_eq!(record.max_unavailable_observed(), 0);
        record.node_state("a", because(&[]), None);
        record.node_state("a", because(&[Unavailable::Cordoned]), Some("dormer"));
        record.node_state("a", because(&[Unavailable::Cordoned, Unavailable::NotReady]), None);
        assert_eq!((record.max_unavailable_observed(), record.unavailable_now()), (1, 1));
        record.node_state("a", because(&[]), None);
        assert_eq!((record.max_unavailable_observed(), record.unavailable_now()), (1, 0));
    }

    #[tokio::test]
    async fn two_at_once_are_two() {
        let record = record();
        for node in ["a", "b"] {
            record.node_state(node, because(&[]), None);
        }
        for node in ["a", "b"] {
            record.node_state(node, because(&[Unavailable::Deleted]), None);
        }
        assert_eq!(record.max_unavailable_observed(), 2);
        record.node_forgotten("a");
        assert_eq!(record.unavailable_now(), 1);
        assert_eq!(record.max_unavailable_nodes(), ["a", "b"]);
    }
}
