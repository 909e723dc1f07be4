//! Host fence after a restore of dormer's store: records that the dump lacks may have written a later fence on the host than
//! the run knows.

use super::{draft::Draft, phase::Phase, state::State};
use dormer_proto::{id::Incarnation, machine::Task, message::Failure};

/// Code of a call that a host refused because of a later fence (`FailureCode::FenceTooOld` of the host program).
const FENCE_TOO_OLD: &str = "fence_too_old";

/// Whether two facts name different stores. A watcher of an earlier build names none.
pub(super) fn is_another_store(before: Option<Incarnation>, now: Option<Incarnation>) -> bool {
    before.zip(now).is_some_and(|(before, now)| before != now)
}

impl State {
    /// Incarnation of the store that its last fact named.
    pub(super) fn store(&self) -> Option<Incarnation> {
        self.machine.as_ref()?.store
    }
}

impl Draft<'_> {
    /// Takes the next generation of the host fence if the store was restored: the host then refuses a worker that still has
    /// a task of the lost store.
    pub(super) fn note_restore(&mut self, before: Option<Incarnation>) {
        let restored = is_another_store(before, self.state.store());
        // Without a generation, the next probe takes the one after that on the host.
        if restored && self.state.host.generation > 0 {
            self.state.host.generation += 1;
            self.state.host.restored = true;
        }
    }

    /// Continues a step that the host refused before the fact of the restore came.
    pub(super) fn continue_refused(&mut self) {
        if let Phase::Failed { from, failure } = &self.state.phase
            && self.state.host.restored
            && failure.code == FENCE_TOO_OLD
        {
            let from = from.as_ref().clone();
            self.go_on_from(from);
        }
    }

    /// Generation after a comparison. One that was ordered before the restore was known has the generation from before.
    pub(super) fn compared_generation(&self, compared: u64) -> u64 {
        let host = &self.state.host;
        match host.restored {
            true => compared.max(host.generation),
            false => compared,
        }
    }

    /// Orders a task again that the host refused, if the store was restored: lost records may have taken several
    /// generations. In any other run the refusal means that a newer dormer has taken the host over.
    pub(super) fn ordered_again(&mut self, task: &Task, failure: &Failure) -> bool {
        if !self.state.host.restored || failure.code != FENCE_TOO_OLD {
            return false;
        }
        let (Task::Converge { generation, .. }
        | Task::Reboot { generation, .. }
        | Task::TearDown { generation, .. }) = task
        else {
            return false;
        };
        self.state.host.generation = self.state.host.generation.max(generation + 1);
        if let Task::Converge { section, .. } = task {
            self.converge(*section);
        } else if let Task::Reboot { boot_id, .. } = task {
            self.reboot(boot_id.clone());
        } else if self.state.phase == Phase::TearingDown {
            self.tear_down();
        } else {
            // A removal tries again by itself.
            return false;
        }
        true
    }
}
