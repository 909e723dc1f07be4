//! Draining: under the lease, or while a person or controller deletes the Machine. The node is cordoned and drained.
//! Then the Machine is deleted or the host torn down, or the whole change is undone.

use super::{
    change::{Change, ChangeStrategy, Drain},
    draft::Draft,
    holds::name,
    input::{PhaseObservation, Request},
    phase::{Phase, Timer},
    policy, removal,
    serve::repair,
    state::{ASKED, Lease, LeasedRequest},
    table::TaskKind,
};
use dormer_engine_core::{Command, Sender};
use dormer_proto::{
    machine::{Blocker, FenceRefusal, Outcome},
    message::{Failure, cause},
    pool::AfterTimeout,
};

/// Phase of this stage, with its data.
pub(super) enum DrainPhase {
    Opening(Change),
    Evicting(Change, Drain),
    Drained,
    Deleting,
    Vanishing,
    TearingDown,
    Undoing,
    Leaving,
}

impl DrainPhase {
    pub(super) fn enter(self, draft: &mut Draft<'_>) {
        match self {
            Self::Opening(change) => draft.open(&change),
            Self::Evicting(change, drain) => begin_eviction(draft, &change, &drain),
            // A person ends it.
            Self::Drained => {}
            Self::Deleting => draft.delete(),
            Self::Vanishing => {
                draft.wait(Timer::Deadline);
            }
            Self::Leaving => {
                draft.wait(Timer::Deadline);
                removal::begin(draft);
            }
            Self::TearingDown => draft.tear_down(),
            Self::Undoing => draft.close(),
        }
    }

    pub(super) fn answered(self, draft: &mut Draft<'_>, outcome: Outcome) {
        match (self, outcome) {
            // A paused machine waits here, with its Node cordoned. On resume the fence is opened again.
            (Self::Opening(_), Outcome::FenceOpened { .. }) if draft.halted() => {}
            (Self::Opening(change), Outcome::FenceOpened { .. }) => opened(draft, change),
            (Self::Opening(change), Outcome::NodeAbsent) if change.repair => repaired(draft),
            (Self::Opening(change), Outcome::NodeFound { .. }) if change.repair => {
                draft.s.note = Some("its Node is back".into());
                draft.enter(Phase::Undoing);
            }
            (
                Self::TearingDown | Self::Deleting,
                Outcome::FenceRefused {
                    why: FenceRefusal::Uncordoned,
                    said,
                },
            ) => {
                // The worker says so only of a host that no order has touched.
                draft.s.host.tearing = None;
                draft.drain_anew(format!("{said}; it is drained again"));
            }
            (
                Self::Opening(_) | Self::Evicting(..) | Self::Deleting | Self::TearingDown,
                Outcome::FenceRefused { why, said },
            ) => refused(draft, why, said),
            (
                Self::Evicting(change, drain),
                Outcome::Evicted {
                    evicted,
                    left,
                    blockers,
                    skipped,
                },
            ) => {
                draft.note_skipped(&skipped);
                pass_done(draft, change, drain, (evicted, left, blockers));
            }
            (Self::Evicting(..) | Self::Deleting, Outcome::FenceClosedMeanwhile) => {
                draft.s.note = Some("the token was closed by somebody else".into());
                draft.enter(Phase::Undoing);
            }
            (Self::Deleting, Outcome::MachineDeleted) => draft.enter(Phase::Vanishing),
            (Self::TearingDown, Outcome::TornDown) => draft.enter(Phase::Reprobing),
            (Self::Undoing, Outcome::FenceClosed) => draft.fence_closed("given up"),
            // A delayed deletion arrived before the token was closed: the slot waits for the replacement.
            (Self::Undoing, Outcome::MachineDeleted) => draft.enter(Phase::Vanishing),
            // The Node is cordoned again. A pass that began before that does not end the drain.
            (Self::Evicting(change, drain), Outcome::FenceOpened { .. }) => {
                let drain = Drain {
                    uncordoned: false,
                    ..drain
                };
                draft.s.phase = Phase::Evicting(change, drain);
            }
            (Self::Leaving, outcome) => removal::answered(draft, outcome),
            // Answer to a task of an earlier phase, or in a phase without tasks.
            (
                Self::Opening(_)
                | Self::Evicting(..)
                | Self::Deleting
                | Self::TearingDown
                | Self::Undoing
                | Self::Drained
                | Self::Vanishing,
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

    pub(super) fn gave_up(self, draft: &mut Draft<'_>, task: TaskKind, failure: Failure) {
        let over_limit = matches!(
            draft.s.lease,
            Lease::Held {
                over_limit: true,
                ..
            }
        );
        // A machine without a Node is being repaired; a repair within the limit has no `over_limit`.
        let absent = draft.s.node.is_none();
        match self {
            // A failed read does not prove an absence.
            Self::Opening(_) if task == TaskKind::FindNode => give_back_for(draft, &failure),
            // Ready for as long as the attempts took: its kubelet runs, and pods may have come.
            Self::TearingDown if failure.code == "NodeUncordoned" => {
                draft.drain_anew("somebody uncordoned its Node; it is drained again".into());
            }
            // A dead host must not delay other repairs: it returns the lease, and waits before it asks again.
            Self::TearingDown if (over_limit || absent) && policy::is_unanswered(&failure.code) => {
                give_back_for(draft, &failure);
            }
            Self::Leaving => removal::gave_up(draft, task, failure),
            // Any other failed task fails the phase.
            Self::Opening(_)
            | Self::Evicting(..)
            | Self::Drained
            | Self::Deleting
            | Self::Vanishing
            | Self::TearingDown
            | Self::Undoing => draft.fail(failure),
        }
    }

    pub(super) fn fired(self, draft: &mut Draft<'_>, timer: Timer) {
        match (self, timer) {
            (Self::Evicting(change, drain), Timer::Again) => next_pass(draft, change, drain),
            (Self::Evicting(change, drain), Timer::Drain) => overdue(draft, change, drain),
            (Self::Leaving, Timer::Again) => removal::begin_pass(draft, false),
            (Self::Leaving, Timer::Drain) => removal::overdue(draft),
            // The note of the state names what its removal waits for.
            (Self::Leaving, Timer::Deadline) if draft.s.own_host() => {
                draft.wait(Timer::Deadline);
            }
            (Self::Vanishing | Self::Leaving, Timer::Deadline) => {
                let message = "the Machine is being deleted and does not go: see its finalizers, \
                               lifecycle hooks and conditions";
                draft.s.note = Some(message.into());
                draft.wait(Timer::Deadline);
            }
            // A timer of a phase that was left.
            (Self::Evicting(..), Timer::Deadline | Timer::Soak | Timer::Drift) => {}
            (Self::Vanishing, Timer::Again | Timer::Soak | Timer::Drift | Timer::Drain) => {}
            (Self::Leaving, Timer::Soak | Timer::Drift) => {}
            // They wait for no timer.
            (
                Self::Opening(_)
                | Self::Drained
                | Self::Deleting
                | Self::TearingDown
                | Self::Undoing,
                Timer::Again | Timer::Deadline | Timer::Soak | Timer::Drift | Timer::Drain,
            ) => {}
        }
    }

    pub(super) fn observed(self, draft: &mut Draft<'_>, observation: PhaseObservation) {
        match (self, observation) {
            (
                stage,
                PhaseObservation::Node {
                    ready,
                    cordoned,
                    uncordoned,
                    rebooted: _,
                },
            ) => stage.node_observed(draft, ready, cordoned, uncordoned),
            // Open tasks use the old address.
            (Self::TearingDown, PhaseObservation::Address) => draft.begin_again(),
            // Nothing is destroyed yet: it is undone.
            (
                Self::Opening(_) | Self::Evicting(..) | Self::Drained | Self::Deleting,
                PhaseObservation::Ignored,
            ) => {
                give_up(draft, "the Machine was labelled to be ignored");
            }
            // `TearingDown` continues: its host is half torn down. The others leave, or return the lease already.
            (
                Self::TearingDown | Self::Undoing | Self::Vanishing | Self::Leaving,
                PhaseObservation::Ignored,
            ) => {}
            // No controller would replace it: a drain for a deletion has become pointless.
            (
                Self::Opening(ref change) | Self::Evicting(ref change, _),
                PhaseObservation::Machine { .. },
            ) if change.how == ChangeStrategy::Recreate && draft.s.owner().is_none() => {
                give_up(
                    draft,
                    "no MachineSet owns the Machine any more, and none would replace it",
                );
            }
            (Self::Leaving, PhaseObservation::NodeGone) => removal::node_changed(draft),
            // The rollout went back to what the machine carries, and nothing is destroyed yet.
            (
                Self::Opening(_) | Self::Evicting(..),
                PhaseObservation::Pool { retarget: true, .. },
            ) if draft.is_superseded() => {
                draft.went_back();
            }
            // A drain that takes too long by the new settings is found overdue by them.
            (Self::Evicting(change, drain), PhaseObservation::Pool { drain: true, .. }) => {
                drain_anew(draft, change, drain);
            }
            // The Machine and its Node are leaving, or the fence is being closed. Neither an address nor a condition
            // changes that. New settings of the pool take effect when the machine comes up again.
            (
                Self::Opening(_)
                | Self::Evicting(..)
                | Self::Drained
                | Self::Deleting
                | Self::Vanishing
                | Self::TearingDown
                | Self::Undoing
                | Self::Leaving,
                PhaseObservation::Address
                | PhaseObservation::Machine { .. }
                | PhaseObservation::NodeGone
                | PhaseObservation::Pool { .. },
            ) => {}
        }
    }

    /// The Node was observed. `cordon_ended`: it was cordoned at the last observation and is not now.
    fn node_observed(self, draft: &mut Draft<'_>, ready: bool, cordoned: bool, cordon_ended: bool) {
        match self {
            // Repeats the opening of the fence, which is the only task that cordons (docs/decisions/0004-fences.md).
            Self::Evicting(change, drain) if !cordoned && !draft.halted() => {
                draft.s.note = Some("somebody uncordoned the Node; it is cordoned again".into());
                draft.open(&change.anew());
                // Until that is done, a retry begins with it.
                draft.s.phase = uncordoned(change, drain);
            }
            // Pods may come until it is resumed, even if the Node is cordoned again.
            Self::Evicting(change, drain) if cordon_ended => {
                draft.s.phase = uncordoned(change, drain);
            }
            // Pods may come. The worker finds out whether the Machine is deleted already.
            Self::Deleting if cordon_ended => {
                draft.s.host.uncordoned = true;
                draft.begin_again();
            }
            // Pods may come. The worker finds out whether the host is whole: its kubelet then stays Ready.
            Self::TearingDown if cordon_ended && ready => {
                draft.s.host.uncordoned = true;
                draft.begin_again();
            }
            // Whether its Node is down, and for how long, decides about its turn.
            Self::Leaving => removal::node_changed(draft),
            // It stays drained until it is resumed: the Node is cordoned and drained again.
            Self::Drained if cordon_ended && !draft.halted() => {
                let note = "somebody uncordoned the Node; it is drained again, until it is resumed";
                draft.s.note = Some(note.into());
                draft.enter(Phase::Opening(Change {
                    how: ChangeStrategy::Drain,
                    differs: vec![ASKED.into()],
                    repair: false,
                    anew: true,
                }));
            }
            // The drain, the deletion or the tear-down goes on.
            Self::Opening(_)
            | Self::Evicting(..)
            | Self::Drained
            | Self::Deleting
            | Self::Vanishing
            | Self::TearingDown
            | Self::Undoing => {}
        }
    }

    pub(super) fn asked(self, draft: &mut Draft<'_>, request: Request) {
        match self {
            Self::Opening(_) | Self::Evicting(..) => match request {
                // Another client may have uncordoned it meanwhile.
                Request::Resume { paused: true } => {
                    draft.cancel_tasks();
                    let phase = draft.s.phase.clone();
                    draft.enter(draft.cordoned_first(phase));
                }
                Request::Abort { by } => undo(draft, &by),
                Request::Granted { .. } => draft.give_back(),
                // Nothing was delayed; the upgrade continues, and the machine stops afterwards.
                Request::Resume { paused: false } | Request::Hold => {}
                // Recorded, and handled when the node is drained, or once it serves.
                Request::Leased | Request::Approve => {}
            },
            Self::Drained => match request {
                Request::Resume { .. } => {
                    draft.end_leased_request();
                    draft.enter(Phase::Undoing);
                }
                Request::Abort { by } => undo(draft, &by),
                Request::Granted { .. } => draft.give_back(),
                Request::Leased => emptied(draft, ChangeStrategy::Drain),
                // It stays drained until it is resumed.
                Request::Hold | Request::Approve => {}
            },
            Self::Deleting | Self::TearingDown | Self::Undoing => match request {
                Request::Resume { paused: true } => draft.begin_again(),
                Request::Granted { .. } => draft.give_back(),
                // Nothing was delayed; the current change finishes.
                Request::Resume { paused: false } | Request::Hold => {}
                // Recorded, and handled once it serves.
                Request::Leased | Request::Approve => {}
                // Closing the fence shows whether the Machine was deleted.
                Request::Abort { by } if matches!(self, Self::Deleting) => undo(draft, &by),
                // The host or Machine is destroyed already, or the change is being given up.
                Request::Abort { .. } => {}
            },
            Self::Vanishing | Self::Leaving => match request {
                Request::Resume { paused: true } => draft.begin_again(),
                // Only the removal of a WindowsHost requested the lease. For any other machine the slot goes with the
                // Machine.
                Request::Granted { .. } if matches!(self, Self::Leaving) => removal::granted(draft),
                Request::Granted { .. } => {}
                // The Machine goes, whatever a person requests.
                Request::Resume { paused: false }
                | Request::Hold
                | Request::Leased
                | Request::Approve
                | Request::Abort { .. } => {}
            },
        }
    }
}

/// The drain, whose Node another client has uncordoned.
fn uncordoned(change: Change, drain: Drain) -> Phase {
    Phase::Evicting(
        change,
        Drain {
            uncordoned: true,
            pass_is_stale: true,
            ..drain
        },
    )
}

impl Draft<'_> {
    /// The phase with which a drain goes on after a pause or a failure: if another client uncordoned the Node meanwhile,
    /// it is cordoned first.
    pub(super) fn cordoned_first(&self, phase: Phase) -> Phase {
        let uncordoned = self.s.node.as_ref().is_some_and(|node| !node.cordoned);
        if let Phase::Evicting(change, drain) = &phase
            && (uncordoned || drain.uncordoned)
        {
            return Phase::Opening(change.anew());
        }
        phase
    }

    /// Drains a Node once more whose host was to be torn down or whose Machine was to be deleted, and on which pods may
    /// run.
    pub(super) fn drain_anew(&mut self, note: String) {
        self.s.note = Some(note);
        self.enter(Phase::Opening(Change {
            how: self.s.under_lease.unwrap_or(ChangeStrategy::InPlace),
            differs: vec!["its pods may have come back".into()],
            repair: false,
            anew: true,
        }));
    }
}

/// Continues a repair whose Node is still absent. Since the grant the Machine API may have given the Machine up, or taken
/// that back.
fn repaired(draft: &mut Draft<'_>) {
    let how = repair(draft).how;
    draft.s.under_lease = Some(how);
    if how == ChangeStrategy::Recreate && draft.s.owner().is_none() {
        let note = "the Machine API gave the Machine up, and nobody would replace it: the repair is given up";
        draft.s.note = Some(note.into());
        return draft.give_back();
    }
    emptied(draft, how);
}

/// Continues after the fence was opened and, if the change needs it, the Node cordoned.
fn opened(draft: &mut Draft<'_>, change: Change) {
    if change.repair {
        // Hours may have passed since the last search.
        return draft.find_node();
    }
    match change.how {
        ChangeStrategy::Restart => draft.enter(Phase::ConvergingHost { rebooted: false }),
        ChangeStrategy::Recreate | ChangeStrategy::InPlace | ChangeStrategy::Drain => {
            let change = Change {
                anew: false,
                ..change
            };
            draft.enter(Phase::Evicting(change, Drain::default()));
        }
    }
}

/// Begins the first pass of evictions, or the first after a pause or a failure. The pool's limit of the drain counts
/// from here.
fn begin_eviction(draft: &mut Draft<'_>, change: &Change, drain: &Drain) {
    let skipped = draft.s.drain_skipped(change.how);
    if skipped.is_some() || draft.s.node_name().is_none() {
        let why = skipped.unwrap_or_else(|| "it has no Node".into());
        draft.s.note = Some(format!("not drained: {why}"));
        return emptied(draft, change.how);
    }
    draft.evict(change.how, drain.force);
    let drain = Drain {
        overdue: drain.overdue && drain.force,
        pass_is_stale: drain.uncordoned,
        ..drain.clone()
    };
    let limited = !drain.force;
    draft.s.phase = Phase::Evicting(change.clone(), drain);
    if limited {
        draft.wait(Timer::Drain);
    }
}

/// Begins the next pass of evictions. If the Node is gone, its pods are gone from the API server as well, and the drain
/// is done.
fn next_pass(draft: &mut Draft<'_>, change: Change, drain: Drain) {
    if draft.s.node_name().is_some() {
        draft.evict(change.how, drain.force);
        let drain = Drain {
            pass_is_stale: drain.uncordoned,
            ..drain
        };
        draft.s.phase = Phase::Evicting(change, drain);
        return;
    }
    draft.s.note = Some("drained no further: its Node is gone".into());
    emptied(draft, change.how);
}

/// Restarts the drain under new settings of the pool for its limit or the policy after it.
fn drain_anew(draft: &mut Draft<'_>, change: Change, drain: Drain) {
    draft.push(Command::CancelTimer(Timer::Drain));
    draft.s.phase = Phase::Evicting(
        change,
        Drain {
            force: false,
            overdue: false,
            idle_passes: 0,
            ..drain
        },
    );
    draft.wait(Timer::Drain);
}

/// Returns the lease after a failure that should not delay others.
fn give_back_for(draft: &mut Draft<'_>, failure: &Failure) {
    let cause = cause(&failure.code, None, &failure.message);
    // A person's request would ask for the lease again at once.
    if draft.s.leased_request.is_some() && draft.s.held.is_none() {
        draft.hold_for_pause(format!("dormer: {cause}"), None);
    }
    draft.s.note = Some(format!("{cause}; the lease is returned"));
    draft.enter(Phase::Undoing);
}

/// Undoes the change, because a live read of the cluster refused it.
fn refused(draft: &mut Draft<'_>, why: FenceRefusal, said: String) {
    match why {
        FenceRefusal::NodeServes => {
            draft.s.note = Some("it was granted over the limit, and its Node serves".into());
            draft.enter(Phase::Undoing);
        }
        FenceRefusal::Superseded => {
            draft.s.note = Some("its objects carry a newer token".into());
            draft.enter(Phase::Undoing);
        }
        FenceRefusal::Gone => draft.enter(Phase::Leaving),
        // A worker answers Uncordoned only where the drain is begun again, so this is a late answer.
        FenceRefusal::Stopped | FenceRefusal::Uncordoned => {
            draft.s.note = Some(format!("given back: {said}"));
            draft.enter(Phase::Undoing);
        }
        // A person has to resolve these. dormer reads a pause, a label, a cordon or a missing owner again after a
        // while: the facts about it may arrive late, and without the wait the run would request the lease at once.
        FenceRefusal::Paused
        | FenceRefusal::Ignored
        | FenceRefusal::NoOwner
        | FenceRefusal::Cordoned
        | FenceRefusal::OtherDormer
        | FenceRefusal::NotWindows
        | FenceRefusal::ControlPlane
        | FenceRefusal::NotItsNode => {
            let pause = matches!(
                why,
                FenceRefusal::Paused
                    | FenceRefusal::Ignored
                    | FenceRefusal::NoOwner
                    | FenceRefusal::Cordoned
            );
            let by_a_person = draft.s.held.is_some() && !draft.s.held_for_pause;
            match (pause, by_a_person) {
                // A person's hold outlasts the pause.
                (true, true) => {}
                (true, false) => draft.hold_for_pause(format!("dormer: {said}"), Some(why)),
                (false, _) => draft.add_hold_for(format!("dormer: {said}"), Some(why)),
            }
            draft.s.note = Some(said);
            draft.enter(Phase::Undoing);
        }
    }
}

/// Continues after a pass of evictions: number evicted, number left, and what holds them.
fn pass_done(
    draft: &mut Draft<'_>,
    change: Change,
    drain: Drain,
    (evicted, left, blockers): (u32, u32, Vec<Blocker>),
) {
    // A paused machine waits here, drained or not: nothing is destroyed before it is resumed.
    let goes_on = !draft.halted();
    // Pods may have come that this pass did not see.
    let again = drain.uncordoned || drain.pass_is_stale;
    if left == 0 && goes_on && !again {
        return emptied(draft, change.how);
    }
    let same = evicted == 0 && drain.left == left;
    let idle_passes = if same {
        drain.idle_passes.saturating_add(1)
    } else {
        0
    };
    let evicted = drain.evicted.saturating_add(evicted);
    draft.s.phase = Phase::Evicting(
        change,
        Drain {
            evicted,
            left,
            blockers,
            idle_passes,
            ..drain
        },
    );
    if goes_on {
        draft.wait_ms(Timer::Again, policy::next_pass(idle_passes));
    }
}

/// Undoes what has begun, and returns the lease. `why` is the reason, for people.
fn give_up(draft: &mut Draft<'_>, why: &str) {
    draft.s.note = Some(format!("{why}: the upgrade is given up"));
    draft.give_back();
}

/// Continues after the last pod, or when there was nothing to drain.
fn emptied(draft: &mut Draft<'_>, how: ChangeStrategy) {
    draft.s.host.uncordoned = false;
    match how {
        ChangeStrategy::Recreate => delete(draft),
        ChangeStrategy::InPlace | ChangeStrategy::Restart => {
            // A BYOH host is made anew in place: that is what a person asked for.
            draft.s.request_progress.begun |=
                draft.s.own_host() && draft.s.leased_request == Some(LeasedRequest::Recreate);
            draft.enter(Phase::TearingDown);
        }
        // A person requested a replacement meanwhile, and a controller creates another Machine.
        ChangeStrategy::Drain
            if draft.s.leased_request == Some(LeasedRequest::Recreate)
                && draft.s.owner().is_some() =>
        {
            draft.s.under_lease = Some(ChangeStrategy::Recreate);
            delete(draft);
        }
        ChangeStrategy::Drain => {
            if draft.s.phase != Phase::Drained {
                draft.enter(Phase::Drained);
            }
        }
    }
}

/// Deletes the Machine, and stores the reason, which `dormer why` shows after the Machine is gone.
fn delete(draft: &mut Draft<'_>) {
    let by = draft.s.request_progress.by.as_deref();
    let asked = draft.s.leased_request == Some(LeasedRequest::Recreate);
    let mut differs = String::new();
    if let Phase::Opening(change) | Phase::Evicting(change, _) = &draft.s.phase {
        differs = change.differs.join(", ");
    }
    draft.s.replaced_for = match (asked, by) {
        (true, Some(by)) => Some(format!("asked for by {by}")),
        (true, None) => Some(ASKED.to_owned()),
        (false, _) if differs.is_empty() => None,
        (false, _) => Some(format!("to change: {differs}")),
    };
    draft.enter(Phase::Deleting);
}

/// Applies the pool's policy to a drain that exceeds its limit.
fn overdue(draft: &mut Draft<'_>, change: Change, mut drain: Drain) {
    let pool = draft.s.pool.as_ref();
    let policy = pool.map_or(AfterTimeout::Wait, |pool| pool.after_timeout);
    let blocked = drain
        .blockers
        .first()
        .map(|b| format!("{}: {}", b.pod, b.why));
    let blocked = blocked.unwrap_or_else(|| match drain.left {
        1 => "1 pod is left".to_owned(),
        left => format!("{left} pods are left"),
    });
    match policy {
        AfterTimeout::Wait => {
            draft.s.note = Some(format!("the drain takes longer than allowed: {blocked}"));
            drain.overdue = true;
            draft.s.phase = Phase::Evicting(change, drain);
        }
        AfterTimeout::Abort => {
            let by = format!("the drain timed out ({blocked}); the pool's policy is abort");
            draft.add_hold(by);
            draft.give_back();
        }
        AfterTimeout::Force => {
            draft.s.note = Some(format!("evicting without budgets: {blocked}"));
            drain.force = true;
            draft.s.phase = Phase::Evicting(change, drain);
        }
    }
}

/// Aborts an upgrade that has not destroyed anything yet.
pub(super) fn undo(draft: &mut Draft<'_>, by: &Sender) {
    // The obstacle of this drain may also obstruct the next.
    if let Phase::Evicting(_, drain) = &draft.s.phase
        && let Some(first) = drain.blockers.first()
    {
        let more = match drain.blockers.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        draft.s.note = Some(format!(
            "the upgrade was given up while {} blocked its drain: {}{more}",
            first.pod, first.why
        ));
    }
    draft.end_leased_request();
    draft.add_hold(name(by));
    draft.s.approval_is_spent();
    draft.give_back();
}
