//! Inputs whose effect depends on the phase. `stage.rs` passes them to the file of the phase's stage.

use dormer_engine_core::Sender;

/// Observation whose effect depends on the phase.
pub(super) enum PhaseObservation {
    /// The Machine has another address.
    Address,
    /// The Machine was observed.
    Machine {
        /// Its own phase is `Failed`.
        failed: bool,
    },
    /// Its Node was observed.
    Node(NodeObservation),
    NodeGone,
    /// The pool's settings were observed.
    Pool {
        /// They want a version other than the one in progress.
        retarget: bool,
        /// The strategy, or the need for approval, has changed.
        rules: bool,
        /// The limit of a drain, or the policy after it, has changed.
        drain: bool,
        /// A pause has ended that delayed changes which do not disturb pods.
        resumed: bool,
    },
    /// The Machine got the label `ignore=true` while it holds the lease.
    Ignored,
}

/// A Node as observed, and what changed since the last observation.
pub(super) struct NodeObservation {
    pub(super) ready: bool,
    pub(super) cordoned: bool,
    /// Its boot differs from the last observation.
    pub(super) rebooted: bool,
    /// It was cordoned at the last observation and is not now.
    pub(super) uncordoned: bool,
}

/// Request of a person or of the rollout whose effect depends on the phase.
pub(super) enum PhaseRequest {
    /// A halt has ended.
    Resume {
        /// It was a pause, which may have delayed a step.
        paused: bool,
    },
    /// The machine must stay out of the rollout.
    Hold,
    /// A person wants something that needs the lease; the record has it as `State::leased_request`.
    Leased,
    /// A person approves the change.
    Approve,
    /// A person aborts the upgrade.
    Abort {
        /// The person who aborts it.
        by: Sender,
    },
    /// The rollout granted the lease; the record has it.
    Granted {
        /// Whether the machine had requested it.
        wanted: bool,
    },
}
