//! States and phases of a machine, and states of a rollout: ids for programs, and texts for people. All processes use
//! these, so none has to parse another's sentences.

use std::fmt;

/// A closed list of values, each with an id that never changes.
pub trait Listed: Copy + Eq + fmt::Debug + 'static {
    /// All values, in the order of the documents.
    const ALL: &'static [Self];

    /// Its id, as JSON has it.
    fn id(self) -> &'static str;

    /// The value of that id.
    fn of_id(id: &str) -> Option<Self> {
        Self::ALL.iter().find(|value| value.id() == id).copied()
    }
}

/// Defines an enum with an id for each variant, and lists it.
#[macro_export]
macro_rules! listed {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $id:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $crate::phase::Listed for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::phase::Listed::id(*self))
            }
        }
    };
}

listed! {
    /// State of a machine: the six states of its life, and two in which it does nothing by itself.
    pub enum MachineState {
        /// The Machine exists; its host cannot be configured yet.
        Provisioned = "Provisioned",
        /// SSH works; the host is being configured.
        Reachable = "Reachable",
        /// The host is configured; its Node is coming up.
        Configured = "Configured",
        /// The Node serves.
        Joined = "Joined",
        /// The Node is being emptied, or the Machine is being deleted.
        Draining = "Draining",
        /// The Machine is gone, or its host was torn down.
        Recreated = "Recreated",
        /// A step failed for good, and a person decides.
        Failed = "Failed",
        /// The run is over.
        Gone = "Gone",
    }
}

listed! {
    /// Phase of a machine: a step within its state.
    pub enum MachinePhase {
        /// The Machine has no InternalIP yet.
        AddressWait = "address-wait",
        /// The host is tried over SSH for the first time.
        Probing = "probing",
        /// The host refuses dormer's SSH key.
        KeyWait = "key-wait",
        /// The host has a Node already, and is compared with its desired state.
        Adopting = "adopting",
        /// The pool's settings are not known yet, or name a payload that does not fit.
        PoolWait = "pool-wait",
        /// The profile's host section is applied.
        ConvergingHost = "converging-host",
        /// The host restarts.
        Rebooting = "rebooting",
        /// The Node has not registered yet.
        NodeWait = "node-wait",
        /// The profile's node section is applied.
        ConvergingNode = "converging-node",
        /// The Node is not Ready yet.
        ReadyWait = "ready-wait",
        /// The Node has to stay Ready for a while.
        Soaking = "soaking",
        /// The version is written on the Node.
        Marking = "marking",
        /// The Node serves, and nothing is done to it.
        Serving = "serving",
        /// The host is compared with its desired state.
        Checking = "checking",
        /// A change is applied that does not disturb pods.
        Applying = "applying",
        /// A change waits for a person's approval.
        ApprovalWait = "approval-wait",
        /// A change is refused: no controller would replace the Machine.
        OwnerWait = "owner-wait",
        /// A change waits for the rollout's lease.
        LeaseWait = "lease-wait",
        /// The fence is closed and the Node is uncordoned.
        Closing = "closing",
        /// The fence is opened and the Node is cordoned.
        Opening = "opening",
        /// Pods are evicted.
        Evicting = "evicting",
        /// The Node is drained and stays so, at a person's request.
        Drained = "drained",
        Deleting = "deleting",
        /// The Machine has a deletionTimestamp and still exists.
        Vanishing = "vanishing",
        /// The profile is removed from the host.
        TearingDown = "tearing-down",
        /// An upgrade is given up: the fence is closed and the cordon restored.
        Undoing = "undoing",
        /// The Machine is being deleted, not by dormer.
        Leaving = "leaving",
        /// The torn-down host is tried over SSH.
        Reprobing = "reprobing",
        /// The Machine is gone; its lease's fence is closed.
        ClosingGone = "closing-gone",
        /// Another Machine has to serve in its place.
        ReplacementWait = "replacement-wait",
        /// A step failed for good.
        Failed = "failed",
        /// The run is over.
        Gone = "gone",
    }
}

impl MachinePhase {
    /// Whether it only waits for something: its text then says no more than what it waits for does.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(
            self,
            Self::AddressWait
                | Self::KeyWait
                | Self::PoolWait
                | Self::NodeWait
                | Self::ReadyWait
                | Self::ApprovalWait
                | Self::OwnerWait
                | Self::LeaseWait
                | Self::Vanishing
                | Self::ReplacementWait
        )
    }

    /// Row of the phase: the state that it belongs to, and its name for people. The machine's workflow has a row of its
    /// own for each phase, with what holds there (`workflows/src/machine/table.rs`).
    const fn row(self) -> (MachineState, &'static str) {
        use MachineState as S;
        match self {
            Self::AddressWait => (S::Provisioned, "waiting for an address"),
            Self::Probing => (S::Provisioned, "probing"),
            Self::KeyWait => (S::Provisioned, "waiting for the key to be accepted"),
            Self::Adopting => (S::Provisioned, "adopting"),
            Self::PoolWait => (S::Reachable, "waiting for the pool's settings"),
            Self::ConvergingHost => (S::Reachable, "converging the host"),
            Self::Rebooting => (S::Reachable, "rebooting"),
            Self::NodeWait => (S::Configured, "waiting for the Node"),
            Self::ConvergingNode => (S::Configured, "converging the node"),
            Self::ReadyWait => (S::Configured, "waiting for Ready"),
            Self::Soaking => (S::Configured, "soaking"),
            Self::Marking => (S::Configured, "marking the Node"),
            Self::Serving => (S::Joined, "serving"),
            Self::Checking => (S::Joined, "checking"),
            Self::Applying => (S::Joined, "applying in place"),
            Self::ApprovalWait => (S::Joined, "waiting for approval"),
            Self::OwnerWait => (S::Joined, "waiting for an owner"),
            Self::LeaseWait => (S::Joined, "waiting for the lease"),
            Self::Closing => (S::Joined, "closing the fence"),
            Self::Opening => (S::Draining, "opening the fence"),
            Self::Evicting => (S::Draining, "evicting"),
            Self::Drained => (S::Draining, "drained"),
            Self::Deleting => (S::Draining, "deleting the Machine"),
            Self::Vanishing => (S::Draining, "waiting for the Machine to be gone"),
            Self::TearingDown => (S::Draining, "tearing down"),
            Self::Undoing => (S::Draining, "undoing"),
            Self::Leaving => (S::Draining, "being deleted by somebody else"),
            Self::Reprobing => (S::Recreated, "probing the torn-down host"),
            Self::ClosingGone => (S::Recreated, "closing the fence of a Machine that is gone"),
            Self::ReplacementWait => (S::Recreated, "waiting for the replacement"),
            Self::Failed => (S::Failed, "failed"),
            Self::Gone => (S::Gone, "gone"),
        }
    }

    /// The state that it belongs to.
    #[must_use]
    pub const fn state(self) -> MachineState {
        self.row().0
    }

    /// Its name for people. It may change; programs compare [`Listed::id`].
    #[must_use]
    pub const fn text(self) -> &'static str {
        self.row().1
    }
}

listed! {
    /// Whether a pool's rollout grants leases, and if not, why.
    pub enum RolloutState {
        /// Leases are granted.
        Open = "Open",
        /// The pool's settings or some of its Machines are not known yet; nothing is granted.
        Enrolling = "Enrolling",
        /// A person or the pool's settings stopped new grants.
        Paused = "Paused",
        /// A machine failed under the lease; nothing is granted until that is mended.
        Halted = "Halted",
    }
}

listed! {
    /// Why a machine counts as unavailable.
    pub enum Unavailable {
        /// It holds the lease.
        Holds = "holds",
        /// It held the lease, was deleted, and its replacement does not serve yet.
        Replaced = "replaced",
        /// Another client deleted it, and its replacement does not serve yet.
        Gap = "gap",
        /// It carries an open token of an upgrade that this rollout did not begin.
        OpenToken = "open-token",
        /// Its Machine is being deleted.
        Deleting = "deleting",
        Failed = "failed",
        /// Another client cordoned its Node.
        Cordoned = "cordoned",
        /// Its Node is not Ready.
        Down = "down",
    }
}

impl Unavailable {
    /// Text for people, which follows the machine's name.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds the lease",
            Self::Replaced => "is being replaced",
            Self::Gap => "was deleted by somebody else",
            Self::OpenToken => "carries an open token",
            Self::Deleting => "is being deleted",
            Self::Failed => "failed",
            Self::Cordoned => "is cordoned by another client",
            Self::Down => "is not Ready",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids<T: Listed>() -> Vec<&'static str> {
        T::ALL.iter().map(|value| value.id()).collect()
    }

    #[test]
    fn every_id_is_found_again_and_stands_for_one_value() {
        for phase in MachinePhase::ALL {
            assert_eq!(MachinePhase::of_id(phase.id()), Some(*phase));
        }
        let mut all = ids::<MachinePhase>();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), MachinePhase::ALL.len());
        let only_waits = |it: MachinePhase| it.text().starts_with("waiting for ");
        for phase in MachinePhase::ALL {
            assert_eq!(phase.waits(), only_waits(*phase), "{}", phase.text());
        }
        assert_eq!(MachinePhase::of_id("waiting for the Node"), None);
    }

    #[test]
    fn every_state_has_a_phase() {
        for state in MachineState::ALL {
            let phases = MachinePhase::ALL;
            assert!(
                phases.iter().any(|phase| phase.state() == *state),
                "{state}"
            );
        }
    }
}
