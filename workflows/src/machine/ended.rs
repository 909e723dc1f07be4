//! Failed and Gone: nothing continues without a cause from outside. A failed machine continues from the step that
//! failed once there is a reason. A machine that is gone never continues.

use super::{
    draft::Draft,
    drain::undo,
    phase::Phase,
    stage::{News, Request},
    state::Change,
};
use dormer_engine_core::Command;
use dormer_proto::machine::ChangeClass;

/// Phase of this stage, with what it remembers.
pub(super) enum EndedPhase {
    Failed { from: Phase },
    Gone,
}

impl EndedPhase {
    pub(super) fn enter(self, draft: &mut Draft<'_>) {
        match self {
            Self::Failed { .. } => {}
            Self::Gone => draft.push(Command::Complete),
        }
    }

    pub(super) fn observed(self, draft: &mut Draft<'_>, news: News) {
        match (self, news) {
            // What failed was a step to another version.
            (Self::Failed { .. }, News::Pool { retarget: true, .. }) if draft.s.protected() => {
                draft.enter(Phase::Checking);
            }
            // Another address, boot or version than the one that it failed with: it may work now.
            (
                Self::Failed { from },
                News::Address
                | News::Node { rebooted: true, .. }
                | News::Pool { retarget: true, .. },
            ) => draft.go_on_from(from),
            // The host is ignored: if nothing is destroyed yet, the change is undone.
            (Self::Failed { from }, News::HandsOff) if from.whole() => draft.give_back(),
            // Nothing that gives a reason to try again.
            (
                Self::Failed { .. },
                News::Machine { .. }
                | News::Node {
                    rebooted: false, ..
                }
                | News::NodeGone
                | News::HandsOff
                | News::Pool {
                    retarget: false, ..
                },
            ) => {}
            // It is over.
            (Self::Gone, _) => {}
        }
    }

    pub(super) fn asked(self, draft: &mut Draft<'_>, request: Request) {
        match (self, request) {
            // A machine that failed before it ever served, or while it did, may be replaced, too.
            (Self::Failed { .. }, Request::Wish) if draft.s.lease.token().is_none() => {
                let how = draft.s.how(ChangeClass::Replace);
                let differs = vec!["a person asked for it".into()];
                draft.want(Change {
                    how,
                    differs,
                    repair: false,
                });
            }
            // Recorded: it failed while it held the lease, and a retry continues with that lease.
            (Self::Failed { .. }, Request::Wish) => {}
            // Only where nothing was destroyed yet.
            (
                Self::Failed {
                    from: Phase::Opening(_) | Phase::Evicting(..) | Phase::Deleting,
                },
                Request::Abort { by },
            ) => undo(draft, &by),
            (Self::Failed { .. }, Request::Abort { .. }) => {}
            // Only a retry continues it; a lease that is granted is kept until then.
            (
                Self::Failed { .. },
                Request::Resume { .. } | Request::Hold | Request::Approve | Request::Granted { .. },
            ) => {}
            // It is over.
            (Self::Gone, _) => {}
        }
    }
}

impl Draft<'_> {
    /// Continues from the step that failed, as it was begun.
    pub(super) fn go_on_from(&mut self, phase: Phase) {
        let held = self.s.lease.token().is_some();
        match phase {
            // A lease granted meanwhile is closed and returned, if the step does not use it.
            phase if held && phase.joined() && phase != Phase::Closing => self.give_back(),
            phase => self.enter(phase),
        }
    }

    /// Goes back to the phase of an earlier record. A node that serves is compared first, and what differs takes the
    /// way of every change: plan, approval, lease, drain.
    ///
    /// `same_lease`: the record was made under the lease that is held now. `whole`: nothing is destroyed under it.
    pub(super) fn go_back(&mut self, same_lease: bool, whole: bool) {
        let held = self.s.lease.token().is_some();
        let phase = match self.s.phase.clone() {
            Phase::Failed { from, .. } => *from,
            phase => phase,
        };
        let phase = match phase {
            // An earlier record does not know the present lease. The lease is returned, after an incomplete host is set
            // up again.
            _ if held && !same_lease && whole => Phase::Undoing,
            _ if held && !same_lease => Phase::Reprobing,
            phase if held && phase.joined() && phase != Phase::Closing => Phase::Undoing,
            phase if held => phase,
            // A comparison shows its present configuration.
            phase @ (Phase::Address
            | Phase::Probing
            | Phase::KeyWait { .. }
            | Phase::Adopting
            | Phase::Serving) => phase,
            _ if self.s.in_service => Phase::Checking,
            // It is not brought up yet.
            phase @ (Phase::PoolWait
            | Phase::ConvergingHost { .. }
            | Phase::Rebooting { .. }
            | Phase::NodeWait
            | Phase::ConvergingNode
            | Phase::ReadyWait
            | Phase::Soaking
            | Phase::Marking) => phase,
            // A step under a lease that is not held, of a machine that never served.
            _ => Phase::Address,
        };
        self.enter(phase);
    }
}
