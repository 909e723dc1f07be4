//! Phases of a machine, with the data that each stores in the history, and their timers. `table.rs` has the properties
//! of each phase, the file of its stage has the behaviour.

use super::change::{Change, Drain};
use dormer_proto::{
    id::Timestamp,
    machine::Section,
    message::Failure,
    phase::{Listed, MachinePhase, MachineState},
};
use serde::{Deserialize, Serialize};

/// Phase of a run, as stored in the history. Each state has one or more phases; see [`Phase::label`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum Phase {
    // Provisioned
    /// Waits for an InternalIP.
    #[default]
    Address,
    /// First probe of the host.
    Probing,
    /// The host refuses our key; user data may not have run yet (scenario 3).
    KeyWait {
        /// Since when.
        since: Timestamp,
    },
    /// The host has a Node already: compares it and changes nothing.
    Adopting,

    // Reachable
    /// Waits for the pool's settings.
    PoolWait,
    /// Converges the profile's first section.
    ConvergingHost {
        /// Whether this configuration has already rebooted the host; `configure.rs` limits how often.
        rebooted: bool,
    },
    /// Waits for another boot than this one.
    Rebooting {
        /// The boot that must end.
        boot_id: String,
        /// Whether dormer ordered the reboot.
        asked: bool,
    },

    // Configured
    /// Waits for the Node to appear.
    NodeWait,
    /// Converges the profile's second section.
    ConvergingNode,
    /// Waits for the Node to be Ready.
    ReadyWait,
    /// Waits while the Node stays Ready (the soak time).
    Soaking,
    /// Writes the version on the Node.
    Marking,

    // Joined
    Serving,
    /// Compares the host with its desired state.
    Checking,
    /// Applies a change that disturbs no pod.
    Applying {
        /// Section of the document.
        section: Section,
    },
    /// A change waits for a person's approval.
    ApprovalWait(Change),
    /// A change is refused, because no owner would replace the Machine.
    OwnerWait(Change),
    LeaseWait(Change),
    /// Changed and healthy: closes the fence.
    Closing,

    // Draining
    /// Writes the open token, and cordons.
    Opening(Change),
    /// Evicts, pass by pass.
    Evicting(Change, Drain),
    /// Drained at a person's request.
    Drained,
    /// Deletes the Machine.
    Deleting,
    /// Waits for the Machine to be gone.
    Vanishing,
    /// Removes everything that the profile installed.
    TearingDown,
    /// Aborts the change: closes the fence and restores the cordon.
    Undoing,
    /// The Machine is being deleted, not by this run.
    Leaving,

    // Recreated
    /// Torn down; probes the host again.
    Reprobing,
    /// The Machine is gone: closes the token wherever it is still open.
    ClosingGone,
    /// Waits for the replacement to serve.
    ReplacementWait,

    /// A step failed and will not be retried automatically.
    Failed {
        /// Phase to continue from.
        from: Box<Phase>,
        /// Why.
        failure: Failure,
    },
    /// Over.
    Gone,
}

impl Phase {
    /// Name of the phase, without its data.
    #[must_use]
    pub fn id(&self) -> MachinePhase {
        match self {
            Self::Address => MachinePhase::AddressWait,
            Self::Probing => MachinePhase::Probing,
            Self::KeyWait { .. } => MachinePhase::KeyWait,
            Self::Adopting => MachinePhase::Adopting,
            Self::PoolWait => MachinePhase::PoolWait,
            Self::ConvergingHost { .. } => MachinePhase::ConvergingHost,
            Self::Rebooting { .. } => MachinePhase::Rebooting,
            Self::NodeWait => MachinePhase::NodeWait,
            Self::ConvergingNode => MachinePhase::ConvergingNode,
            Self::ReadyWait => MachinePhase::ReadyWait,
            Self::Soaking => MachinePhase::Soaking,
            Self::Marking => MachinePhase::Marking,
            Self::Serving => MachinePhase::Serving,
            Self::Checking => MachinePhase::Checking,
            Self::Applying { .. } => MachinePhase::Applying,
            Self::ApprovalWait(_) => MachinePhase::ApprovalWait,
            Self::OwnerWait(_) => MachinePhase::OwnerWait,
            Self::LeaseWait(_) => MachinePhase::LeaseWait,
            Self::Closing => MachinePhase::Closing,
            Self::Opening(_) => MachinePhase::Opening,
            Self::Evicting(..) => MachinePhase::Evicting,
            Self::Drained => MachinePhase::Drained,
            Self::Deleting => MachinePhase::Deleting,
            Self::Vanishing => MachinePhase::Vanishing,
            Self::TearingDown => MachinePhase::TearingDown,
            Self::Undoing => MachinePhase::Undoing,
            Self::Leaving => MachinePhase::Leaving,
            Self::Reprobing => MachinePhase::Reprobing,
            Self::ClosingGone => MachinePhase::ClosingGone,
            Self::ReplacementWait => MachinePhase::ReplacementWait,
            Self::Failed { .. } => MachinePhase::Failed,
            Self::Gone => MachinePhase::Gone,
        }
    }

    /// State of the phase.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.id().state().id()
    }

    /// Its own short name, for people and for the transition table.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.id().text()
    }

    /// Whether the node serves and no disturbing step has begun.
    #[must_use]
    pub fn joined(&self) -> bool {
        self.id().state() == MachineState::Joined
    }

    /// The phase itself, or the one in which it failed.
    pub(super) fn step(&self) -> &Self {
        if let Self::Failed { from, .. } = self {
            return from.step();
        }
        self
    }

    /// Whether, under a lease, nothing that the node needs to serve is destroyed yet, so that returning the lease is
    /// enough.
    #[must_use]
    pub fn whole(&self) -> bool {
        let Self::Failed { from, .. } = self else {
            return self.joined() || self.drains();
        };
        from.whole()
    }

    /// Whether a lease is used, and all that the node needs to serve is still there.
    fn drains(&self) -> bool {
        matches!(
            self,
            Self::Opening(_) | Self::Evicting(..) | Self::Drained | Self::Deleting | Self::Undoing
        )
    }

    pub(super) fn failed(&self) -> Option<(&Self, &Failure)> {
        let Self::Failed { from, failure } = self else {
            return None;
        };
        Some((from, failure))
    }

    /// Change of a node that serves until the change may begin.
    pub(super) fn awaited_change(&self) -> Option<&Change> {
        let (Self::ApprovalWait(change) | Self::OwnerWait(change) | Self::LeaseWait(change)) = self
        else {
            return None;
        };
        Some(change)
    }

    /// Progress of the drain that runs.
    pub(super) fn drain(&self) -> Option<&Drain> {
        let Self::Evicting(_, drain) = self else {
            return None;
        };
        Some(drain)
    }

    /// Whether the removal of a BYOH host has failed, and waits for a person.
    #[must_use]
    pub fn removal_failed(&self) -> bool {
        matches!(self, Self::Failed { from, .. } if **from == Self::Leaving)
    }
}

/// Timer of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Timer {
    /// The current step repeats.
    Again,
    /// The current phase has taken too long.
    Deadline,
    /// The Node has been Ready for long enough.
    Soak,
    /// Time of the next drift check.
    Drift,
    /// The drain has taken too long.
    Drain,
}
