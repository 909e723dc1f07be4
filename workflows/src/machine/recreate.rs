//! Recreated: the Machine is gone and the run waits for its replacement, or its host is torn down and configured again.

use super::{
    draft::Draft,
    input::{PhaseObservation, PhaseRequest},
    lease::Departure,
    phase::{Phase, Timer},
};
use dormer_proto::machine::Outcome;

/// Phase of this stage.
pub(super) enum RecreatePhase {
    Reprobing,
    ClosingGone,
    ReplacementWait,
}

impl RecreatePhase {
    pub(super) fn enter(self, draft: &mut Draft<'_>) {
        match self {
            Self::Reprobing => draft.probe(),
            Self::ClosingGone => draft.close(),
            Self::ReplacementWait => {
                draft.wait(Timer::Deadline);
            }
        }
    }

    pub(super) fn answered(self, draft: &mut Draft<'_>, outcome: Outcome) {
        match (self, outcome) {
            (Self::Reprobing, Outcome::Probed { .. }) => {
                draft.enter(Phase::ConvergingHost { rebooted: false });
            }
            // No controller recreates a WindowsHost, so its slot waits for no replacement.
            (Self::ClosingGone, Outcome::FenceClosed | Outcome::MachineDeleted)
                if draft.state.own_host() =>
            {
                draft.release(false);
                draft.leave_rollout(Departure::MachineGone { gap: false });
                draft.end_episode("gone");
                draft.enter(Phase::Gone);
            }
            (Self::ClosingGone, Outcome::FenceClosed | Outcome::MachineDeleted) => {
                draft.release(true);
                draft.end_episode("recreated");
                draft.enter(Phase::ReplacementWait);
            }
            // Answer to a task of an earlier phase; ReplacementWait has no tasks.
            (
                Self::Reprobing | Self::ClosingGone | Self::ReplacementWait,
                Outcome::Probed { .. }
                | Outcome::Converged { .. }
                | Outcome::RebootAsked
                | Outcome::Planned { .. }
                | Outcome::TornDown
                | Outcome::CsrApproved { .. }
                | Outcome::CsrRefused { .. }
                | Outcome::NodeMarked
                | Outcome::NodeChecked { .. }
                | Outcome::FenceOpened { .. }
                | Outcome::FenceRefused { .. }
                | Outcome::FenceClosed
                | Outcome::Evicted { .. }
                | Outcome::PayloadSet
                | Outcome::NodeFound { .. }
                | Outcome::NodeAbsent
                | Outcome::HostForgotten
                | Outcome::FenceClosedMeanwhile
                | Outcome::MachineDeleted,
            ) => {}
        }
    }

    pub(super) fn fired(self, draft: &mut Draft<'_>, timer: Timer) {
        match (self, timer) {
            (Self::ReplacementWait, Timer::Deadline) => draft.enter(Phase::Gone),
            // A timer of a phase that was left.
            (Self::ReplacementWait, Timer::Again | Timer::Soak | Timer::Drift | Timer::Drain) => {}
            // They wait for no timer.
            (
                Self::Reprobing | Self::ClosingGone,
                Timer::Again | Timer::Deadline | Timer::Soak | Timer::Drift | Timer::Drain,
            ) => {}
        }
    }

    pub(super) fn observed(self, draft: &mut Draft<'_>, observation: PhaseObservation) {
        match (self, observation) {
            // Open tasks use the old address.
            (Self::Reprobing, PhaseObservation::Address) => draft.begin_again(),
            // The desired version and the Node matter when the host is configured.
            (
                Self::Reprobing,
                PhaseObservation::Machine { .. }
                | PhaseObservation::Node(_)
                | PhaseObservation::NodeGone
                | PhaseObservation::Pool { .. },
            ) => {}
            // The host is not whole: it is set up to the end.
            (Self::Reprobing, PhaseObservation::Ignored) => {}
            // The Machine is gone: a late fact about it or its Node changes nothing.
            (
                Self::ClosingGone | Self::ReplacementWait,
                PhaseObservation::Address
                | PhaseObservation::Machine { .. }
                | PhaseObservation::Node(_)
                | PhaseObservation::NodeGone
                | PhaseObservation::Pool { .. }
                | PhaseObservation::Ignored,
            ) => {}
        }
    }

    pub(super) fn asked(self, draft: &mut Draft<'_>, request: PhaseRequest) {
        match self {
            Self::Reprobing => match request {
                PhaseRequest::Resume { paused: true } => draft.begin_again(),
                PhaseRequest::Granted { .. } => draft.give_back(),
                // Nothing was held back.
                PhaseRequest::Resume { paused: false } => {}
                // Recorded, and carried out once the node serves.
                PhaseRequest::Hold | PhaseRequest::Leased | PhaseRequest::Approve => {}
                // The host is torn down: no earlier configuration is left.
                PhaseRequest::Abort { .. } => {}
            },
            Self::ClosingGone | Self::ReplacementWait => match request {
                PhaseRequest::Resume { paused: true } => draft.begin_again(),
                // The slot goes with the Machine.
                PhaseRequest::Granted { .. } => {}
                // The Machine is gone, so no request can change anything.
                PhaseRequest::Resume { paused: false }
                | PhaseRequest::Hold
                | PhaseRequest::Leased
                | PhaseRequest::Approve
                | PhaseRequest::Abort { .. } => {}
            },
        }
    }
}
