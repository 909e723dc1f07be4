//! Failed and Gone. A failed machine continues from the step that failed once there is a reason: a person's retry, another
//! address, boot or version, or a Node that comes late. Time alone is one where a host did not answer under the lease, and
//! where a removal failed. A machine that is gone never continues.

use super::{
    configure::finishes_first,
    draft::Draft,
    drain::undo,
    input::{NodeObservation, PhaseObservation, PhaseRequest},
    phase::{Phase, Timer},
    removal,
    state::Retried,
};
use dormer_engine_core::Command;

/// Observation that another version is desired than the one that failed.
const NEXT_VERSION: PhaseObservation = PhaseObservation::Pool {
    retarget: true,
    rules: false,
    drain: false,
    resumed: false,
};

/// Phase of this stage, with its data.
pub(super) enum EndedPhase {
    Failed { from: Phase },
    Gone,
}

impl EndedPhase {
    pub(super) fn enter(self, draft: &mut Draft<'_>) {
        match self {
            // Another version was published while pods kept the step from being given up for it.
            Self::Failed { from } if next_version_follows(draft, &from) => {
                Self::Failed { from }.observed(draft, NEXT_VERSION);
            }
            Self::Failed { .. } => draft.try_again_later(),
            Self::Gone => draft.push(Command::Complete),
        }
    }

    pub(super) fn fired(self, draft: &mut Draft<'_>, timer: Timer) {
        match (self, timer) {
            // A removal requests the lease again.
            (
                Self::Failed {
                    from: Phase::Leaving,
                },
                Timer::Again,
            ) => draft.enter(Phase::Leaving),
            (Self::Failed { from }, Timer::Again) if draft.state.failure_may_end_by_itself() => {
                draft.go_on_from(from);
            }
            // They wait for no timer.
            (
                Self::Failed { .. } | Self::Gone,
                Timer::Again | Timer::Deadline | Timer::Soak | Timer::Drift | Timer::Drain,
            ) => {}
        }
    }

    pub(super) fn observed(self, draft: &mut Draft<'_>, observation: PhaseObservation) {
        match (self, observation) {
            // A removal that failed continues only on a person's retry or its own timer.
            (
                Self::Failed {
                    from: Phase::Leaving,
                },
                _,
            ) => {}
            // What failed was a step to another version.
            (Self::Failed { .. }, PhaseObservation::Pool { retarget: true, .. })
                if draft.state.protected() =>
            {
                draft.enter(Phase::Checking);
            }
            // Pods may run there: another version needs the lease.
            (Self::Failed { .. }, PhaseObservation::Pool { retarget: true, .. })
                if draft.state.pods_before_service() =>
            {
                if draft.may_queue_for_version() {
                    draft.queue_for_version();
                }
            }
            // Another address, boot or version than the one that it failed with: it may work now.
            (
                Self::Failed { from },
                PhaseObservation::Address
                | PhaseObservation::Node(NodeObservation { rebooted: true, .. })
                | PhaseObservation::Pool { retarget: true, .. },
            ) => draft.go_on_from(from),
            // The awaited object came after the deadline: the cluster was slow, not the machine.
            (
                Self::Failed {
                    from: from @ (Phase::NodeWait | Phase::ReadyWait),
                },
                PhaseObservation::Node(NodeObservation { ready, .. }),
            ) if ready || from == Phase::NodeWait => draft.go_on_from(from),
            // Pods may come until a retry, even if the Node is cordoned again.
            (
                Self::Failed {
                    from: Phase::Evicting(..),
                },
                PhaseObservation::Node(NodeObservation {
                    uncordoned: true, ..
                }),
            ) => draft.uncordoned_meanwhile(),
            // The host is ignored: if nothing is destroyed yet, the change is undone.
            (Self::Failed { from }, PhaseObservation::Ignored)
                if from.whole() && !draft.state.is_torn_down() =>
            {
                draft.give_back();
            }
            // Inputs that give no reason to try again.
            (
                Self::Failed { .. },
                PhaseObservation::Machine { .. }
                | PhaseObservation::Node(_)
                | PhaseObservation::NodeGone
                | PhaseObservation::Ignored
                | PhaseObservation::Pool {
                    retarget: false, ..
                },
            ) => {}
            // It is over.
            (
                Self::Gone,
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
        match (self, request) {
            // The lease was returned, so a grant in flight is returned as well. A removal cannot be undone, so a run
            // that waits for the lease for it accepts the grant.
            (
                Self::Failed {
                    from: Phase::Leaving,
                },
                PhaseRequest::Granted { .. } | PhaseRequest::Abort { .. },
            ) => removal::return_lease(draft),
            // Its timer may have come due during the pause, when timers are ignored.
            (
                Self::Failed {
                    from: Phase::Leaving,
                },
                PhaseRequest::Resume { paused: true },
            ) => draft.enter(Phase::Leaving),
            // The host is being removed, so no other request changes anything.
            (
                Self::Failed {
                    from: Phase::Leaving,
                },
                _,
            ) => {}
            // A machine that failed before it ever served, or while it served, may be replaced as well.
            (Self::Failed { .. }, PhaseRequest::Leased) if draft.state.lease.token().is_none() => {
                draft.want_replacement();
            }
            // Recorded: it failed while it held the lease, and a retry continues with that lease.
            (Self::Failed { .. }, PhaseRequest::Leased) => {}
            // Only where nothing was destroyed yet.
            (
                Self::Failed {
                    from: Phase::Opening(_) | Phase::Evicting(..) | Phase::Deleting,
                },
                PhaseRequest::Abort { by },
            ) if !draft.state.is_torn_down() => undo(draft, &by),
            (Self::Failed { .. }, PhaseRequest::Abort { .. }) => {}
            // Another version was published during the hold.
            (Self::Failed { .. }, PhaseRequest::Resume { .. })
                if draft.state.retargeted() && draft.may_queue_for_version() =>
            {
                draft.queue_for_version();
            }
            // Its timer may have come due during the pause.
            (Self::Failed { from }, PhaseRequest::Resume { paused: true }) => {
                Self::Failed { from }.enter(draft);
            }
            // Only a retry continues it; a lease that is granted is kept until then.
            (
                Self::Failed { .. },
                PhaseRequest::Resume { .. }
                | PhaseRequest::Hold
                | PhaseRequest::Approve
                | PhaseRequest::Granted { .. },
            ) => {}
            // It is over.
            (
                Self::Gone,
                PhaseRequest::Resume { .. }
                | PhaseRequest::Hold
                | PhaseRequest::Leased
                | PhaseRequest::Approve
                | PhaseRequest::Abort { .. }
                | PhaseRequest::Granted { .. },
            ) => {}
        }
    }
}

/// Whether the next version, which is known already, may mend what failed: the step came after the host was configured, and
/// pods that may run there kept the run from leaving it for that version.
fn next_version_follows(draft: &Draft<'_>, from: &Phase) -> bool {
    let after_host = matches!(
        from,
        Phase::ConvergingNode | Phase::ReadyWait | Phase::Soaking | Phase::Marking
    );
    let kept = match draft.state.lease.token() {
        Some(_) => draft.state.version_refusal().is_none() && !finishes_first(draft),
        None => draft.state.pods_before_service(),
    };
    after_host && kept && draft.state.retargeted()
}

impl Draft<'_> {
    /// Remembers that another client uncordoned the Node of a drain that has failed.
    fn uncordoned_meanwhile(&mut self) {
        if let Phase::Failed { from, .. } = &mut self.state.phase
            && let Phase::Evicting(_, drain) = from.as_mut()
        {
            drain.uncordoned = true;
        }
    }

    /// Continues from the step that failed, and remembers the failure until the step has succeeded.
    pub(super) fn go_on_from(&mut self, phase: Phase) {
        let failed = self.state.phase.failed();
        let failed = failed.map(|(from, failure)| (from.id(), failure.clone()));
        if self.state.failure_may_end_by_itself() {
            self.push(Command::CancelTimer(Timer::Again));
        }
        self.take_up(phase);
        self.state.retried = failed.map(|(failed, failure)| Retried {
            at: self.now.at,
            by: None,
            who: None,
            failed: failed.to_string(),
            failure,
            phase: self.state.phase.id().to_string(),
        });
    }

    /// Takes a step up as it was begun.
    fn take_up(&mut self, phase: Phase) {
        let held = self.state.lease.token().is_some();
        // A lease granted meanwhile is closed and returned, if the step does not use it.
        if held && phase.joined() && phase != Phase::Closing {
            return self.give_back();
        }
        match phase {
            // The step belongs to a version that is no longer wanted.
            Phase::ConvergingNode | Phase::ReadyWait | Phase::Soaking | Phase::Marking
                if self.state.retargeted()
                    && !self.state.protected()
                    && !self.state.pods_before_service()
                    && !finishes_first(self) =>
            {
                self.enter(Phase::ConvergingHost { rebooted: false });
            }
            // A removal that failed would have requested the lease by itself.
            Phase::Leaving => {
                self.push(Command::CancelTimer(Timer::Again));
                self.enter(Phase::Leaving);
            }
            phase @ (Phase::Evicting(..) | Phase::TearingDown) => {
                let phase = self.drained_first(phase);
                self.enter(phase);
            }
            // It is there by now.
            Phase::NodeWait if self.state.node.is_some() => self.enter(Phase::ConvergingNode),
            Phase::ReadyWait if self.state.node.as_ref().is_some_and(|node| node.ready) => {
                self.enter(Phase::Soaking);
            }
            // No Node came: the host may have another name by now than the one that is waited for.
            Phase::NodeWait => match held {
                true => self.enter(Phase::Reprobing),
                false => self.enter(Phase::Probing),
            },
            phase @ (Phase::Address
            | Phase::Probing
            | Phase::KeyWait { .. }
            | Phase::Adopting
            | Phase::PoolWait
            | Phase::ConvergingHost { .. }
            | Phase::Rebooting { .. }
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
            | Phase::Drained
            | Phase::Deleting
            | Phase::Vanishing
            | Phase::Undoing
            | Phase::Reprobing
            | Phase::ClosingGone
            | Phase::ReplacementWait
            | Phase::Failed { .. }
            | Phase::Gone) => self.enter(phase),
        }
    }

    /// Goes back to the phase of an earlier record. A node that serves is compared first, and what differs takes the
    /// way of every change: plan, approval, lease, drain.
    ///
    /// `same_lease`: the record was made under the lease that is held now. `present`: the phase before the reset.
    pub(super) fn go_back(&mut self, same_lease: bool, present: &Phase) {
        let held = self.state.lease.token().is_some();
        let torn_down = self.state.was_torn_down();
        let whole = present.whole() && (present.step().joined() || !torn_down);
        // Half a tear-down is finished: of a host that was not torn down no certificate of a Node is approved.
        let half_torn = present.step() == &Phase::TearingDown;
        let phase = self.state.phase.step().clone();
        // An earlier record does not know the present lease. The lease is returned, after an incomplete host is set
        // up again.
        if held && !same_lease {
            return self.enter(match (whole, half_torn) {
                (true, _) => Phase::Undoing,
                (false, true) => Phase::TearingDown,
                (false, false) => Phase::Reprobing,
            });
        }
        if held {
            // Pods may have come since that record: a drain that is under way is not skipped. The worker refuses the deletion
            // while the Node is Ready.
            let drains = matches!(present.step(), Phase::Opening(_) | Phase::Evicting(..));
            self.state.host.uncordoned |= phase == Phase::Deleting && drains;
            let configures = matches!(
                phase,
                Phase::NodeWait
                    | Phase::ConvergingNode
                    | Phase::ReadyWait
                    | Phase::Soaking
                    | Phase::Marking
            );
            let unfinished = configures && self.state.host.half_changed;
            let skips = phase == Phase::TearingDown || phase.row().after_drain || unfinished;
            let back = phase.joined() && phase != Phase::Closing;
            let phase = if back {
                Phase::Undoing
            } else if drains && skips {
                self.opening_anew()
            } else {
                self.drained_first(phase)
            };
            return self.enter(phase);
        }
        let phase = match phase {
            // A comparison shows its present configuration.
            phase @ (Phase::Address
            | Phase::Probing
            | Phase::KeyWait { .. }
            | Phase::Adopting
            | Phase::Serving) => phase,
            _ if self.state.in_service => Phase::Checking,
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
            Phase::Checking
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
            | Phase::Failed { .. }
            | Phase::Gone => Phase::Address,
        };
        self.enter(phase);
    }
}
