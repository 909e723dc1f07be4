//! Dispatch of inputs to the stages' files. Each file handles every kind of input for its phases: `enter`, `answered`,
//! `gave_up`, `fired`, `observed`, `asked`. It also lists each pair of phase and input that changes nothing, with the
//! reason. A new phase therefore does not compile until every function names it.

use super::{
    configure::ConfigurePhase,
    draft::Draft,
    drain::DrainPhase,
    ended::EndedPhase,
    input::{PhaseObservation, PhaseRequest},
    phase::{Phase, Timer},
    provision::ProvisionPhase,
    recreate::RecreatePhase,
    serve::ServePhase,
    table::TaskKind,
};
use dormer_proto::{machine::Outcome, message::Failure};

/// Stage of a machine: the file that handles its phase, with the data of the phase.
pub(super) enum Stage {
    /// `provision.rs`
    Provision(ProvisionPhase),
    /// `configure.rs`
    Configure(ConfigurePhase),
    /// `serve.rs`
    Serve(ServePhase),
    /// `drain.rs`
    Drain(DrainPhase),
    /// `recreate.rs`
    Recreate(RecreatePhase),
    /// `ended.rs`
    Ended(EndedPhase),
}

impl Phase {
    /// Stage that handles the phase.
    pub(super) fn stage(self) -> Stage {
        use Stage::{Configure, Drain, Ended, Provision, Recreate, Serve};
        match self {
            Self::Address => Provision(ProvisionPhase::Address),
            Self::Probing => Provision(ProvisionPhase::Probing),
            Self::KeyWait { since } => Provision(ProvisionPhase::KeyWait { since }),
            Self::Adopting => Provision(ProvisionPhase::Adopting),

            Self::PoolWait => Configure(ConfigurePhase::PoolWait),
            Self::ConvergingHost { rebooted } => {
                Configure(ConfigurePhase::ConvergingHost { rebooted })
            }
            Self::Rebooting { boot_id, asked } => {
                Configure(ConfigurePhase::Rebooting { boot_id, asked })
            }
            Self::NodeWait => Configure(ConfigurePhase::NodeWait),
            Self::ConvergingNode => Configure(ConfigurePhase::ConvergingNode),
            Self::ReadyWait => Configure(ConfigurePhase::ReadyWait),
            Self::Soaking => Configure(ConfigurePhase::Soaking),
            Self::Marking => Configure(ConfigurePhase::Marking),

            Self::Serving => Serve(ServePhase::Serving),
            Self::Checking => Serve(ServePhase::Checking),
            Self::Applying { section } => Serve(ServePhase::Applying { section }),
            Self::ApprovalWait(change) => Serve(ServePhase::ApprovalWait(change)),
            Self::OwnerWait(change) => Serve(ServePhase::OwnerWait(change)),
            Self::LeaseWait(change) => Serve(ServePhase::LeaseWait(change)),
            Self::Closing => Serve(ServePhase::Closing),

            Self::Opening(change) => Drain(DrainPhase::Opening(change)),
            Self::Evicting(change, drain) => Drain(DrainPhase::Evicting(change, drain)),
            Self::Drained => Drain(DrainPhase::Drained),
            Self::Deleting => Drain(DrainPhase::Deleting),
            Self::Vanishing => Drain(DrainPhase::Vanishing),
            Self::TearingDown => Drain(DrainPhase::TearingDown),
            Self::Undoing => Drain(DrainPhase::Undoing),
            Self::Leaving => Drain(DrainPhase::Leaving),

            Self::Reprobing => Recreate(RecreatePhase::Reprobing),
            Self::ClosingGone => Recreate(RecreatePhase::ClosingGone),
            Self::ReplacementWait => Recreate(RecreatePhase::ReplacementWait),

            Self::Failed { from, .. } => Ended(EndedPhase::Failed { from: *from }),
            Self::Gone => Ended(EndedPhase::Gone),
        }
    }
}

impl Draft<'_> {
    fn stage(&self) -> Stage {
        self.state.phase.clone().stage()
    }

    /// Issues the tasks and timers of a phase on entry.
    pub(super) fn begin_phase(&mut self) {
        match self.stage() {
            Stage::Provision(phase) => phase.enter(self),
            Stage::Configure(phase) => phase.enter(self),
            Stage::Serve(phase) => phase.enter(self),
            Stage::Drain(phase) => phase.enter(self),
            Stage::Recreate(phase) => phase.enter(self),
            Stage::Ended(phase) => phase.enter(self),
        }
    }

    /// Handles a finished task.
    pub(super) fn answered(&mut self, outcome: Outcome) {
        match self.stage() {
            Stage::Provision(phase) => phase.answered(self, outcome),
            Stage::Configure(phase) => phase.answered(self, outcome),
            Stage::Serve(phase) => phase.answered(self, outcome),
            Stage::Drain(phase) => phase.answered(self, outcome),
            Stage::Recreate(phase) => phase.answered(self, outcome),
            // Answer to a task that was still running when another one failed.
            Stage::Ended(EndedPhase::Failed { .. } | EndedPhase::Gone) => {}
        }
    }

    /// Handles a task of the phase that will not be tried again.
    pub(super) fn gave_up(&mut self, task: TaskKind, failure: Failure) {
        match self.stage() {
            Stage::Provision(phase) => phase.gave_up(self, failure),
            Stage::Configure(phase) => phase.gave_up(self, task, failure),
            Stage::Serve(phase) => phase.gave_up(self, task, failure),
            Stage::Drain(phase) => phase.gave_up(self, task, failure),
            // In these phases every failed task fails the phase. Failed and Gone await no task.
            Stage::Recreate(_) | Stage::Ended(_) => self.fail(failure),
        }
    }

    /// Handles a due timer. A halted machine begins nothing and does not fail: when the halt ends, its phase restarts
    /// with new timers. A machine that leaves has nothing to begin. On an ignored host no timer counts.
    pub(super) fn fired(&mut self, timer: Timer) {
        if self.state.left_alone() || (self.may_not_begin() && !self.state.phase.leaving()) {
            return;
        }
        match self.stage() {
            Stage::Provision(phase) => phase.fired(self, timer),
            Stage::Configure(phase) => phase.fired(self, timer),
            Stage::Serve(phase) => phase.fired(self, timer),
            Stage::Drain(phase) => phase.fired(self, timer),
            Stage::Recreate(phase) => phase.fired(self, timer),
            Stage::Ended(phase) => phase.fired(self, timer),
        }
    }

    /// Handles an observation.
    pub(super) fn observe(&mut self, observation: PhaseObservation) {
        match self.stage() {
            Stage::Provision(phase) => phase.observed(self, observation),
            Stage::Configure(phase) => phase.observed(self, observation),
            Stage::Serve(phase) => phase.observed(self, observation),
            Stage::Drain(phase) => phase.observed(self, observation),
            Stage::Recreate(phase) => phase.observed(self, observation),
            Stage::Ended(phase) => phase.observed(self, observation),
        }
    }

    /// Handles a request.
    pub(super) fn is_asked(&mut self, request: PhaseRequest) {
        match self.stage() {
            Stage::Provision(phase) => phase.asked(self, request),
            Stage::Configure(phase) => phase.asked(self, request),
            Stage::Serve(phase) => phase.asked(self, request),
            Stage::Drain(phase) => phase.asked(self, request),
            Stage::Recreate(phase) => phase.asked(self, request),
            Stage::Ended(phase) => phase.asked(self, request),
        }
    }
}
