//! Phases of a machine, with what each remembers in the history, and the timers that they may wait for. What each
//! phase is like stands in `table.rs`; what it does, in the file of its stage.

use super::{
    state::{Change, Drain},
    table::PhaseRow,
};
use dormer_proto::{
    id::Timestamp,
    machine::Section,
    message::Failure,
    phase::{Listed, MachinePhase, MachineState},
};
use serde::{Deserialize, Serialize};

/// Phase of a run, as the history has it. Each of the six states is one or more of these; [`Phase::label`] says which.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum Phase {
    // Provisioned
    /// Waits for an InternalIP.
    #[default]
    Address,
    /// Looks at the host for the first time.
    Probing,
    /// The host refuses our key; user data may not have run yet (scenario 3).
    KeyWait {
        /// Since when.
        since: Timestamp,
    },
    /// The host has a Node already: compares, changes nothing.
    Adopting,

    // Reachable
    /// Waits for the pool to say what the machine should be.
    PoolWait,
    /// Converges the profile's first section.
    ConvergingHost {
        /// Whether the one reboot was had.
        rebooted: bool,
    },
    /// Waits for a boot that is not this one.
    Rebooting {
        /// The boot that must end.
        boot_id: String,
        /// Whether the host was asked.
        asked: bool,
    },

    // Configured
    /// Waits for the Node to appear.
    NodeWait,
    /// Converges the profile's second section.
    ConvergingNode,
    /// Waits for the Node to be Ready.
    ReadyWait,
    /// Waits whether it stays so.
    Soaking,
    /// Writes our version on the Node.
    Marking,

    // Joined
    /// Serves.
    Serving,
    /// Compares the host with what is desired.
    Checking,
    /// Applies a change that disturbs nobody.
    Applying {
        /// Which half.
        section: Section,
    },
    /// A change waits for a person's approval.
    ApprovalWait(Change),
    /// A change is refused: nobody would replace the Machine.
    OwnerWait(Change),
    /// A change waits for the lease.
    LeaseWait(Change),
    /// Changed and healthy: gives the node back.
    Closing,

    // Draining
    /// Writes the open token, and cordons.
    Opening(Change),
    /// Evicts, pass by pass.
    Evicting(Change, Drain),
    /// Drained, as a person asked.
    Drained,
    /// Deletes the Machine.
    Deleting,
    /// Waits for the Machine to be gone.
    Vanishing,
    /// Undoes what a profile did.
    TearingDown,
    /// Gives up: restores the cordon.
    Undoing,
    /// Somebody else deletes the Machine.
    Leaving,

    // Recreated
    /// Torn down; the host is looked at anew.
    Reprobing,
    /// The Machine is gone: closes the token wherever it still stands.
    ClosingGone,
    /// Waits for the replacement to serve.
    ReplacementWait,

    /// A step failed and will not be tried again by itself.
    Failed {
        /// Where to go on.
        from: Box<Phase>,
        /// Why.
        failure: Failure,
    },
    /// Over.
    Gone,
}

impl Phase {
    /// Its name, without what it remembers.
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

    /// Its row in the table of phases.
    #[must_use]
    pub fn row(&self) -> &'static PhaseRow {
        PhaseRow::of(self.id())
    }

    /// The state that this is a part of.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.id().state().id()
    }

    /// Its own short name, for people and for the transition table.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.id().text()
    }

    /// Whether the node serves and nothing has begun that disturbs it.
    #[must_use]
    pub fn joined(&self) -> bool {
        self.id().state() == MachineState::Joined
    }

    /// Whether, under a lease, nothing is destroyed yet that makes the node serve: giving the lease back is all that it
    /// takes.
    #[must_use]
    pub fn whole(&self) -> bool {
        match self {
            Self::Failed { from, .. } => from.whole(),
            Self::Opening(_)
            | Self::Evicting(..)
            | Self::Drained
            | Self::Deleting
            | Self::Undoing => true,
            phase => phase.joined(),
        }
    }

    /// Whether the Machine's end is under way or past: nothing is done on the host any more.
    #[must_use]
    pub fn leaving(&self) -> bool {
        self.row().leaves
    }
}

/// What a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Timer {
    /// The present step is done once more.
    Again,
    /// The present phase has taken too long.
    Deadline,
    /// The Node has been Ready for long enough.
    Soak,
    /// Time to look for drift.
    Drift,
    /// The drain has taken too long.
    Drain,
}
