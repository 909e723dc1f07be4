//! Failed and Gone: nothing goes on by itself. A failed machine goes on from the step that failed, once something gives
//! a reason for that; one that is gone never does.

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
            // Another address, boot or version than the one that it failed with: it may work now.
            (
                Self::Failed { from },
                News::Address | News::Node { rebooted: true, .. } | News::Pool { retarget: true },
            ) => draft.go_on_from(from),
            // Nothing that gives a reason to try again.
            (
                Self::Failed { .. },
                News::Machine { .. }
                | News::Node {
                    rebooted: false, ..
                }
                | News::NodeGone
                | News::Pool { retarget: false },
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
                draft.want(Change { how, differs });
            }
            // On record: it failed with the lease in hand, and whoever mends it goes on with that.
            (Self::Failed { .. }, Request::Wish) => {}
            // Only where nothing was destroyed yet.
            (
                Self::Failed {
                    from: Phase::Opening(_) | Phase::Evicting(..) | Phase::Deleting,
                },
                Request::Abort { by },
            ) => undo(draft, &by),
            (Self::Failed { .. }, Request::Abort { .. }) => {}
            // It goes on by a retry alone; a lease that comes is kept until then.
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
    /// Goes on from `phase`, as a retry and a reset do.
    pub(super) fn go_on_from(&mut self, phase: Phase) {
        let held = self.s.lease.token().is_some();
        let phase = match phase {
            // The record of a failure goes on from the step that failed.
            Phase::Failed { from, .. } => *from,
            // A phase of a lease that is no longer held asks for it anew.
            Phase::Opening(change) | Phase::Evicting(change, _) if !held => {
                Phase::LeaseWait(change)
            }
            // A lease that is held is closed and given back, where the phase knows nothing of it.
            Phase::Serving
            | Phase::Checking
            | Phase::Applying { .. }
            | Phase::ApprovalWait(_)
            | Phase::OwnerWait(_)
            | Phase::LeaseWait(_)
                if held =>
            {
                Phase::Undoing
            }
            // They are entered again, with the lease or without it: `enter` lets none of them disturb a protected node.
            phase @ (Phase::Address
            | Phase::Probing
            | Phase::KeyWait { .. }
            | Phase::Adopting
            | Phase::PoolWait
            | Phase::ConvergingHost { .. }
            | Phase::Rebooting { .. }
            | Phase::NodeWait
            | Phase::ConvergingNode
            | Phase::ReadyWait
            | Phase::Soaking
            | Phase::Marking
            | Phase::Serving
            | Phase::Checking
            | Phase::Applying { .. }
            | Phase::ApprovalWait(_)
            | Phase::OwnerWait(_)
            | Phase::LeaseWait(_)
            | Phase::Closing
            | Phase::Opening(_)
            | Phase::Evicting(..)
            | Phase::Drained
            | Phase::Deleting
            | Phase::Vanishing
            | Phase::TearingDown
            | Phase::Undoing
            | Phase::Leaving
            | Phase::Reprobing
            | Phase::ClosingGone
            | Phase::ReplacementWait
            | Phase::Gone) => phase,
        };
        self.enter(phase);
    }
}
