//! Which file answers for which phase. Each stage's file says what its phases do with every kind of input: `enter`,
//! `answered`, `gave_up`, `fired`, `observed`, `asked`. A pair of phase and input that changes nothing is listed there,
//! with the reason; so a new phase does not compile before each of them names it.

use super::{
    configure::ConfigurePhase,
    draft::Draft,
    drain::DrainPhase,
    ended::EndedPhase,
    phase::{Phase, Timer},
    provision::ProvisionPhase,
    recreate::RecreatePhase,
    serve::ServePhase,
    table::TaskKind,
};
use dormer_engine_core::Sender;
use dormer_proto::{machine::Outcome, message::Failure};

/// Stage of a machine: the file that answers for its phase, with what the phase remembers.
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

/// What was seen of the world, as far as it depends on the phase what follows.
pub(super) enum News {
    /// The Machine has another address.
    Address,
    /// The Machine was seen.
    Machine {
        /// Its own phase is `Failed`.
        failed: bool,
    },
    /// Its Node was seen.
    Node {
        ready: bool,
        cordoned: bool,
        /// It runs another boot than when it was seen before.
        rebooted: bool,
        /// It was cordoned when it was seen before, and is not now.
        uncordoned: bool,
    },
    /// Its Node is gone.
    NodeGone,
    /// The pool's settings were seen.
    Pool {
        /// They want another version than the one that the machine is being brought to.
        retarget: bool,
        /// How a change is carried out, or whether it waits for approval, is otherwise than before.
        rules: bool,
        /// How long a drain may take, or what follows then, is otherwise than before.
        drain: bool,
    },
    /// The Machine was labelled to be left alone, while the lease is held.
    HandsOff,
}

/// What a person or the rollout wants, as far as it depends on the phase what follows.
pub(super) enum Request {
    /// A halt is over.
    Resume {
        /// It was a pause, which may have held a step back.
        paused: bool,
    },
    /// It is to keep out of the rollout.
    Hold,
    /// A person wants something that needs the lease; it is on record as `State::wish`.
    Wish,
    /// A person approves the change.
    Approve,
    /// An upgrade is to be given up.
    Abort {
        /// Who wants that.
        by: Sender,
    },
    /// The rollout granted the lease, which is on record.
    Granted {
        /// The machine had asked for it.
        wanted: bool,
    },
}

impl Phase {
    /// The stage that answers for it.
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
        self.s.phase.clone().stage()
    }

    /// Asks for what the phase needs that was just entered.
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

    /// A worker did a task.
    pub(super) fn answered(&mut self, outcome: Outcome) {
        match self.stage() {
            Stage::Provision(phase) => phase.answered(self, outcome),
            Stage::Configure(phase) => phase.answered(self, outcome),
            Stage::Serve(phase) => phase.answered(self, outcome),
            Stage::Drain(phase) => phase.answered(self, outcome),
            Stage::Recreate(phase) => phase.answered(self, outcome),
            // A step that was under way when another failed.
            Stage::Ended(EndedPhase::Failed { .. } | EndedPhase::Gone) => {}
        }
    }

    /// A task that the phase awaits will not be tried again.
    pub(super) fn gave_up(&mut self, task: TaskKind, failure: Failure) {
        match self.stage() {
            Stage::Provision(phase) => phase.gave_up(self, failure),
            Stage::Configure(phase) => phase.gave_up(self, task, failure),
            Stage::Serve(phase) => phase.gave_up(self, task, failure),
            Stage::Drain(phase) => phase.gave_up(self, task, failure),
            // Each of their steps fails as a whole. Failed and Gone await nothing.
            Stage::Recreate(_) | Stage::Ended(_) => self.fail(failure),
        }
    }

    /// A timer came due. A machine that is halted begins nothing, and fails of nothing: when the halt ends, its phase
    /// begins anew with its timers. What leaves has nothing to begin. On a host that is left alone no timer counts.
    pub(super) fn fired(&mut self, timer: Timer) {
        if self.s.left_alone() || (self.halted() && !self.s.phase.leaving()) {
            return;
        }
        match self.stage() {
            Stage::Provision(phase) => phase.fired(self, timer),
            Stage::Configure(phase) => phase.fired(self, timer),
            Stage::Serve(phase) => phase.fired(self, timer),
            Stage::Drain(phase) => phase.fired(self, timer),
            Stage::Recreate(phase) => phase.fired(self, timer),
            // They wait for no timer.
            Stage::Ended(EndedPhase::Failed { .. } | EndedPhase::Gone) => {}
        }
    }

    /// The world changed.
    pub(super) fn saw(&mut self, news: News) {
        match self.stage() {
            Stage::Provision(phase) => phase.observed(self, news),
            Stage::Configure(phase) => phase.observed(self, news),
            Stage::Serve(phase) => phase.observed(self, news),
            Stage::Drain(phase) => phase.observed(self, news),
            Stage::Recreate(phase) => phase.observed(self, news),
            Stage::Ended(phase) => phase.observed(self, news),
        }
    }

    /// Somebody wants something.
    pub(super) fn is_asked(&mut self, request: Request) {
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
