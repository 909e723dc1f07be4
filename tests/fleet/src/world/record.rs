//! The world's own record of events, independent of all reports.

mod ledger;

use dormer_proto::lock::Locked as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use ledger::{NodeLedger, SetLedger};
use serde::Serialize;

use super::{Pace, WorldClock};

/// Entries kept; the oldest go first. Counts and the unavailability figures lose nothing by it.
pub const ENTRIES_MAX: usize = 1_000_000;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "what")]
pub enum Happened {
    /// A node became able to serve: Ready, schedulable, not deleted.
    NodeAvailable { node: String },
    /// A node that served stopped serving.
    NodeUnavailable {
        node: String,
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
        /// The requesting user.
        by: String,
    },
    /// A pod was deleted without asking its budget.
    PodDeleted {
        /// `namespace/name`.
        pod: String,
        /// The requesting user.
        by: String,
    },
    /// A Machine's deletion was requested (the first time).
    MachineDeleted {
        /// `namespace/name`.
        name: String,
        /// UID of the Machine.
        machine: String,
        /// The requesting user.
        by: String,
    },
    /// The host program ran and changed something, or would have.
    Converged {
        /// UID of the host's Machine.
        machine: String,
        /// Task id and attempt as the program received them, `task/attempt`.
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
    /// Linux nodes that serve.
    linux_nodes: BTreeSet<String>,
    sets: BTreeMap<String, SetLedger>,
    /// Node of each Machine UID, as its nodeRef said last.
    nodes_of: BTreeMap<String, String>,
    unavailable: usize,
    unavailable_max: usize,
    unavailable_max_nodes: Vec<String>,
    /// A lease token was opened on a Node.
    begun: bool,
    taken_max: usize,
    taken_max_nodes: Vec<String>,
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
    pub pods_evicted: u64,
    /// Pods deleted without asking a budget.
    pub pods_deleted: u64,
    /// Machines whose deletion was requested.
    pub machines_deleted: u64,
    /// Calls of the host program that changed something.
    pub converges_with_change: u64,
}

impl Record {
    /// An empty record.
    pub fn new(clock: WorldClock, pace: Pace) -> Self {
        Self {
            clock,
            pace,
            inner: Arc::default(),
        }
    }

    /// Writes down what happened.
    pub fn push(&self, happened: Happened) {
        let at = self.pace.simulated(self.clock.elapsed());
        let mut inner = self.lock();
        inner.push(at, happened);
    }

    /// Says for which reasons a node does not serve now (none: it serves), of which MachineSet it
    /// is (its UID; `None`: as before), and by whose doing. A node counts as unavailable only once
    /// it has served: a first bring-up serves no pod.
    pub fn node_state(
        &self,
        node: &str,
        set: Option<&str>,
        reasons: BTreeSet<Unavailable>,
        by: Option<&str>,
    ) {
        let at = self.pace.simulated(self.clock.elapsed());
        self.lock().node_changed(at, node, by, |ledger| {
            ledger.reasons = reasons;
            if let Some(set) = set {
                ledger.set = Some(set.to_owned());
            }
        });
    }

    /// An upgrade begins on a node: an open lease token is written on it. A node that serves at that moment is taken until
    /// it, or another node of its set in its place, serves without such a token.
    pub fn node_fenced(&self, node: &str) {
        let mut inner = self.lock();
        inner.begun = true;
        if let Some(ledger) = inner.nodes.get_mut(node) {
            ledger.taken |= ledger.served && ledger.up();
        }
        inner.count();
    }

    /// A node carries no open lease token.
    pub fn node_unfenced(&self, node: &str) {
        let mut inner = self.lock();
        if let Some(ledger) = inner.nodes.get_mut(node) {
            ledger.taken &= !ledger.up();
        }
    }

    /// A person takes a node, which carries no open lease token, out of dormer's care: from then on it is theirs that it
    /// does not serve, and it is taken no more. A host that dormer tore down stays taken.
    pub fn node_let_go(&self, node: &str) {
        let mut inner = self.lock();
        if let Some(ledger) = inner.nodes.get_mut(node) {
            ledger.taken &= ledger.torn_down;
        }
    }

    /// Whether an upgrade has begun on any node.
    pub fn upgrade_begun(&self) -> bool {
        self.lock().begun
    }

    /// The name of a node that serves now: of several the first in their order.
    pub fn a_serving_node(&self) -> Option<String> {
        let inner = self.lock();
        let windows = inner
            .nodes
            .iter()
            .filter(|(_, node)| node.served && node.up())
            .map(|(name, _)| name);
        windows.chain(&inner.linux_nodes).min().cloned()
    }

    /// A Linux node serves, or does so no more. It is not upgraded, so nothing else about it is recorded.
    pub fn linux_node(&self, node: &str, serves: bool) {
        let mut inner = self.lock();
        if serves {
            inner.linux_nodes.insert(node.to_owned());
        } else {
            inner.linux_nodes.remove(node);
        }
    }

    /// A Node object was deleted. Its place counts as unavailable until another node of its set
    /// serves, or the set is smaller; a node without a set is simply gone.
    pub fn node_deleted(&self, node: &str, by: Option<&str>) {
        let at = self.pace.simulated(self.clock.elapsed());
        let deleted = BTreeSet::from([Unavailable::Deleted]);
        let mut inner = self.lock();
        inner.node_changed(at, node, by, |ledger| ledger.reasons = deleted);
        let Some(ledger) = inner.nodes.remove(node).filter(|l| l.served) else {
            return;
        };
        if let Some(set) = inner
            .sets
            .get_mut(ledger.set.as_deref().unwrap_or_default())
        {
            set.down = set.down.saturating_sub(1);
            // What else a set misses that was made larger is no gap of a machine.
            let replaced = ledger.taken && set.early > 0;
            set.early -= usize::from(replaced);
            let gap = ledger.set.is_some() && !replaced && set.lacks_one();
            set.gaps += usize::from(gap);
            set.taken_gaps += usize::from(gap && ledger.taken);
        }
        inner.count();
    }

    /// How many machines a set should have; `None`: the set is gone.
    pub fn set_size(&self, set: &str, replicas: Option<usize>) {
        let mut inner = self.lock();
        let ledger = inner.sets.entry(set.to_owned()).or_default();
        let replicas = replicas.unwrap_or(0);
        // In a smaller set a node that is there, and down by itself, fills a place that needs no replacement any more.
        let smaller = ledger.replicas.is_some_and(|before| replicas < before);
        let there = ledger.up + if smaller { ledger.down } else { 0 };
        ledger.replicas = Some(replicas);
        let real = replicas.saturating_sub(there);
        ledger.gaps = ledger.gaps.min(real);
        ledger.taken_gaps = ledger.taken_gaps.min(real);
        inner.count();
    }

    pub fn node_of(&self, machine: &str, node: &str) {
        let mut inner = self.lock();
        if inner.nodes_of.get(machine).is_none_or(|n| n != node) {
            inner.nodes_of.insert(machine.to_owned(), node.to_owned());
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

    /// The most nodes that were taken at one time: that served when an upgrade began on them, and were not back, or
    /// replaced. Nodes that were down by themselves do not count.
    pub fn max_taken_observed(&self) -> usize {
        self.lock().taken_max
    }

    /// Which nodes those were, without those that were deleted by then.
    pub fn max_taken_nodes(&self) -> Vec<String> {
        self.lock().taken_max_nodes.clone()
    }

    /// How many nodes are unavailable now, of those that had served before.
    pub fn unavailable_now(&self) -> usize {
        self.lock().unavailable
    }

    /// How many nodes serve now.
    pub fn serving_now(&self) -> usize {
        self.lock()
            .nodes
            .values()
            .filter(|n| n.served && n.up())
            .count()
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

    /// Calls of the host program per host and task: `(machine uid, task/attempt) -> runs`.
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
        self.inner.locked()
    }
}

impl Inner {
    fn push(&mut self, at: Duration, happened: Happened) {
        self.tally.count(&happened);
        let torn = match &happened {
            Happened::TornDown { machine } => Some((machine, true)),
            Happened::KubeletStarted { machine, .. } => Some((machine, false)),
            _ => None,
        };
        let torn = torn.and_then(|(m, torn)| Some((self.nodes_of.get(m)?.clone(), torn)));
        self.entries.push_back(Entry { at, happened });
        if self.entries.len() > ENTRIES_MAX {
            self.entries.pop_front();
        }
        if let Some((node, torn)) = torn
            && self.nodes.contains_key(&node)
        {
            self.node_changed(at, &node, None, |ledger| {
                // A host that is torn down without a token is taken as well.
                ledger.taken |= torn && ledger.served && ledger.up();
                ledger.torn_down = torn;
            });
        }
    }

    fn node_changed(
        &mut self,
        at: Duration,
        node: &str,
        by: Option<&str>,
        change: impl FnOnce(&mut NodeLedger),
    ) {
        let ledger = self.nodes.entry(node.to_owned()).or_default();
        let served = ledger.served;
        let was_up = ledger.up();
        let was_set = ledger.set.clone();
        let was = ledger.reasons.clone();
        change(ledger);
        let up = ledger.up();
        let set = ledger.set.clone();
        ledger.served |= up;
        let why = ledger.reasons.difference(&was).next().copied();
        let why = why.unwrap_or(if ledger.torn_down {
            Unavailable::TornDown
        } else {
            Unavailable::NotReady
        });
        if served {
            self.set_mut(was_set.as_deref()).count_out(was_up);
        }
        if served || up {
            let taken = self.nodes.values().filter(|n| n.taken && n.set == set);
            let taken = taken.count();
            self.set_mut(set.as_deref()).count_in(up, !served, taken);
        }
        self.count();
        let node = node.to_owned();
        match (served && was_up, up) {
            (false, true) => self.push(at, Happened::NodeAvailable { node }),
            (true, false) => {
                let by = by.map(str::to_owned);
                self.push(at, Happened::NodeUnavailable { node, why, by });
            }
            _ => {}
        }
    }

    fn set_mut(&mut self, set: Option<&str>) -> &mut SetLedger {
        self.sets
            .entry(set.unwrap_or_default().to_owned())
            .or_default()
    }

    fn count(&mut self) {
        self.unavailable = self.sets.values().map(SetLedger::unavailable).sum();
        self.note_max();
        let there = self.nodes.values().filter(|node| node.taken).count();
        let taken = there + self.sets.values().map(SetLedger::taken).sum::<usize>();
        if taken > self.taken_max {
            self.taken_max = taken;
            let nodes = self.nodes.iter().filter(|(_, node)| node.taken);
            self.taken_max_nodes = nodes.map(|(name, _)| name.clone()).collect();
        }
    }

    fn note_max(&mut self) {
        if self.unavailable > self.unavailable_max {
            self.unavailable_max = self.unavailable;
            let down = self.nodes.iter().filter(|(_, n)| n.served && !n.up());
            self.unavailable_max_nodes = down.map(|(name, _)| name.clone()).collect();
        }
    }
}

impl Tally {
    fn count(&mut self, happened: &Happened) {
        match happened {
            Happened::RemoteCommand {
                powershell_starts, ..
            } => {
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
mod tests;
