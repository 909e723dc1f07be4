//! Since when each machine is in its phase and in its halt, learnt from the records as they are read.

use dormer_engine_core::Run;
use dormer_proto::{
    id::{RunId, Seq, Timestamp},
    lock::Locked as _,
    phase::MachinePhase,
};
use dormer_workflows::{Dormer, State};
use std::{collections::BTreeMap, sync::Mutex, time::Duration};
use tokio::time::Instant;

/// Time after a read of all runs for which a change counts as seen when it happened.
const FRESH: Duration = Duration::from_secs(30);

/// Begins of all machines. Each lock is held for one map operation, never across an await.
#[derive(Debug, Default)]
pub(super) struct AllPhaseTimes {
    of: Mutex<BTreeMap<RunId, PhaseTimes>>,
    /// Time at which all runs were read last.
    read: Mutex<Option<Instant>>,
}

impl AllPhaseTimes {
    /// Learns from a record when the phase and the halt of its run began.
    pub(super) fn observe(&self, run: &Run<Dormer>, at: Timestamp) {
        let fresh = self
            .read
            .locked()
            .is_some_and(|read| read.elapsed() < FRESH);
        let mut begins = self.of.locked();
        let known = begins.get(&run.id);
        if known.is_some_and(|known| known.seq >= run.seq) {
            return;
        }
        if let Some(next) = PhaseTimes::after(known, run, at, fresh) {
            begins.insert(run.id.clone(), next);
        }
    }

    /// All runs were read now.
    pub(super) fn observe_all(&self) {
        *self.read.locked() = Some(Instant::now());
    }

    /// Forgets runs that are stored no more.
    pub(super) fn forget(&self, stored: impl Fn(&RunId) -> bool) {
        self.of.locked().retain(|run, _| stored(run));
    }

    pub(super) fn get(&self, run: &RunId) -> Option<PhaseTimes> {
        self.of.locked().get(run).cloned()
    }
}

/// Times at which a machine's phase and its halt began. `None`: before this process read the run first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PhaseTimes {
    seq: Seq,
    phase: MachinePhase,
    pub(crate) phase_since: Option<Timestamp>,
    halt: Option<String>,
    pub(crate) halt_since: Option<Timestamp>,
}

impl PhaseTimes {
    /// What a record of this time says, after the one `before` it. `fresh`: the runs were read shortly before, so a change
    /// is not much older than the record.
    fn after(before: Option<&Self>, run: &Run<Dormer>, at: Timestamp, fresh: bool) -> Option<Self> {
        let State::Machine(state) = &run.state else {
            return None;
        };
        let phase = state.phase.id();
        let halt = state.view().halt.map(|halt| halt.to_string());
        let known = match before {
            _ if run.entered.seq == run.seq => Some(at),
            Some(before) if before.phase == phase => before.phase_since,
            Some(_) if fresh => Some(at),
            _ => None,
        };
        // The phase may have ended and begun again since the runs were read.
        let ordered = first_order(run, phase);
        let phase_since = known.map(|known| known.max(run.entered.at)).max(ordered);
        let halt_since = match before {
            Some(before) if before.halt == halt => before.halt_since,
            Some(_) if fresh => Some(at),
            _ => None,
        };
        Some(Self {
            seq: run.seq,
            phase,
            phase_since,
            halt_since: halt_since.filter(|_| halt.is_some()),
            halt,
        })
    }
}

/// First order of the phase's only task. Other phases have several tasks, or none.
fn first_order(run: &Run<Dormer>, phase: MachinePhase) -> Option<Timestamp> {
    use MachinePhase::{Applying, Checking, Closing};
    let orders = run.tasks.iter().map(|task| task.first_at);
    let first = orders.min();
    first.filter(|_| [Applying, Checking, Closing].contains(&phase))
}
