//! Table of the phases' times: when a machine in a phase is slow or stuck, and the part of a change that it times.

use dormer_proto::phase::{Listed, MachinePhase};

/// Part of a change. A plan adds the times of its phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangePart {
    /// The Node is fenced and cordoned.
    Fence,
    /// Its pods are evicted.
    Drain,
    /// The Machine is deleted.
    Delete,
    /// The next Machine's host comes up.
    Provision,
    /// The node's files and services are removed from the host.
    TearDown,
    /// The host is configured as a node.
    Configure,
    /// The version is written on the Node.
    Mark,
    /// The host is compared.
    Check,
    /// What needs no lease is applied.
    Apply,
    /// The fence is removed.
    Close,
}

/// What is usual for the time of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseTiming {
    pub phase: MachinePhase,
    /// Minutes after which its machine is slow, and after which it is stuck. `None`: the phase has no limit of its own.
    pub limits: Option<(u64, u64)>,
    /// The part of a change that it belongs to. `None`: no plan counts it.
    pub part: Option<ChangePart>,
    /// Whether only some changes include it.
    pub optional: bool,
    /// Whether it follows a phase that failed.
    pub after_failure: bool,
}

/// The table: a row for each phase, in the order of [`MachinePhase`].
///
/// A Windows bring-up of 40 minutes is normal, and a reboot with updates lasts up to 20 (docs/field-notes.md). A step
/// that waits for the cloud, the network or another controller has no better known limit. The waits for an approval and
/// for the lease have neither limit nor part: their duration cannot be estimated.
pub static TIMINGS: [PhaseTiming; MachinePhase::ALL.len()] = {
    use ChangePart as C;
    use MachinePhase as P;
    [
        // A Machine whose first observation has an address does not wait for one.
        row(P::AddressWait)
            .limits(5, 15)
            .part(C::Provision)
            .optional(),
        row(P::Probing).limits(15, 30).part(C::Provision),
        row(P::KeyWait).limits(15, 30).part(C::Provision).optional(),
        row(P::Adopting).limits(20, 60),
        row(P::PoolWait).limits(1, 5),
        row(P::ConvergingHost).limits(20, 60).part(C::Configure),
        row(P::Rebooting)
            .limits(20, 30)
            .part(C::Configure)
            .optional(),
        row(P::NodeWait).limits(5, 20).part(C::Configure).optional(),
        row(P::ConvergingNode).limits(20, 60).part(C::Configure),
        row(P::ReadyWait)
            .limits(5, 20)
            .part(C::Configure)
            .optional(),
        row(P::Soaking).limits(20, 60).part(C::Configure),
        // A check of a Node that fails for half an hour fails its machine.
        row(P::Marking).limits(10, 30).part(C::Mark),
        row(P::Serving),
        row(P::Checking).limits(20, 60).part(C::Check),
        row(P::Applying).limits(20, 60).part(C::Apply),
        row(P::ApprovalWait),
        row(P::OwnerWait),
        row(P::LeaseWait),
        row(P::Closing).limits(20, 60).part(C::Close),
        row(P::Opening).limits(20, 60).part(C::Fence),
        row(P::Evicting).limits(20, 60).part(C::Drain),
        row(P::Drained),
        row(P::Deleting).limits(20, 60).part(C::Delete),
        row(P::Vanishing).limits(10, 30).part(C::Delete),
        row(P::TearingDown).limits(20, 60).part(C::TearDown),
        row(P::Undoing).limits(20, 60).after_failure(),
        row(P::Leaving).limits(10, 30).after_failure(),
        row(P::Reprobing).limits(15, 30).part(C::TearDown),
        row(P::ClosingGone).limits(20, 60),
        row(P::ReplacementWait).limits(20, 60),
        row(P::Failed).after_failure(),
        row(P::Gone),
    ]
};

/// Whether the rows are in the order of [`MachinePhase`]. The lookup is by index.
const fn in_order() -> bool {
    let mut at = 0;
    while at < TIMINGS.len() {
        if TIMINGS[at].phase as usize != at {
            return false;
        }
        at += 1;
    }
    true
}
const _: () = assert!(in_order(), "a row of TIMINGS is out of order");

impl PhaseTiming {
    /// Row of a phase.
    pub fn of(phase: MachinePhase) -> &'static Self {
        &TIMINGS[phase as usize]
    }

    const fn limits(mut self, slow: u64, stuck: u64) -> Self {
        self.limits = Some((slow, stuck));
        self
    }

    const fn part(mut self, part: ChangePart) -> Self {
        self.part = Some(part);
        self
    }

    const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    const fn after_failure(mut self) -> Self {
        self.after_failure = true;
        self
    }
}

const fn row(phase: MachinePhase) -> PhaseTiming {
    PhaseTiming {
        phase,
        limits: None,
        part: None,
        optional: false,
        after_failure: false,
    }
}
