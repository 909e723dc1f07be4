//! Draining: under the lease, or while a person or controller deletes the Machine. The node is cordoned and drained.
//! Then the Machine is deleted or the host torn down, or the whole change is undone.

use super::{
    change::{ASKED, Change, ChangeStrategy, Drain},
    clock::{must_ask_host, wrong_clock},
    draft::Draft,
    holds::{beside_name, name},
    input::{NodeObservation, PhaseObservation, PhaseRequest},
    phase::{Phase, Timer},
    policy, removal,
    serve::repair,
    state::{Lease, LeasedRequest},
    table::TaskKind,
};
use dormer_engine_core::{Command, Sender};
use dormer_proto::{
    duration::utc,
    machine::{Blocker, FenceRefusal, Outcome, to_change},
    message::{Failure, cause},
    pool::AfterTimeout,
    requester::Requester,
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
            Self::Opening(change) if must_ask_host(draft, &change) => probe(draft),
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
            // A paused machine waits here. On resume the fence is opened, or opened again if its Node is cordoned already.
            (Self::Opening(_), Outcome::FenceOpened { .. } | Outcome::Probed { .. })
                if draft.may_not_begin() => {}
            (Self::Opening(change), Outcome::Probed { .. }) => match wrong_clock(draft) {
                // After its tear-down its new certificate would not be valid there.
                Some(failure) => give_back_for(draft, &failure),
                None => draft.open(&change),
            },
            (Self::Opening(change), Outcome::FenceOpened { .. }) => opened(draft, change),
            (Self::Opening(change), Outcome::NodeAbsent) if change.repair => repaired(draft),
            (Self::Opening(change), Outcome::NodeFound { .. }) if change.repair => {
                draft.state.note = Some("its Node is back".into());
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
                draft.state.host.tearing = None;
                match draft.state.node_name() {
                    Some(_) => draft.drain_anew(format!("{said}; it is drained again")),
                    // It came back during a repair, and no fact of it has arrived yet.
                    None => given_back(draft, format!("given back: {said}"), false),
                }
            }
            (Self::TearingDown, Outcome::FenceRefused { why, said }) => {
                // An earlier attempt may have torn a part down: the host is compared once it is given back.
                draft.state.host.half_changed = true;
                refused(draft, why, said);
            }
            (
                Self::Opening(_) | Self::Evicting(..) | Self::Deleting,
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
                draft.state.note = Some("the token was closed by somebody else".into());
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
                draft.state.phase = Phase::Evicting(change, drain);
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
            draft.state.lease,
            Lease::Held {
                over_limit: true,
                ..
            }
        );
        // A machine without a Node is being repaired; a repair within the limit has no `over_limit`.
        let absent = draft.state.node.is_none();
        match self {
            // A failed read does not prove an absence, and a host that does not let dormer in could not be torn down.
            Self::Opening(_) if matches!(task, TaskKind::FindNode | TaskKind::Probe) => {
                draft.state.host.renamed |= failure.code == policy::NAME_CHANGED;
                give_back_for(draft, &failure);
            }
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
            // A drain of a host that is torn down was refused.
            (Self::Opening(change), Timer::Again) if draft.state.is_torn_down() => {
                let step = draft.interrupted_step();
                draft.enter(step.unwrap_or(Phase::Opening(change)));
            }
            (Self::TearingDown, Timer::Again) if draft.state.is_torn_down() => {
                draft.enter(Phase::TearingDown);
            }
            (Self::Leaving, Timer::Again) => removal::begin_pass(draft, false),
            (Self::Leaving, Timer::Drain) => removal::overdue(draft),
            // The note of the state names what its removal waits for.
            (Self::Leaving, Timer::Deadline) if draft.state.own_host() => {
                draft.wait(Timer::Deadline);
            }
            (Self::Vanishing | Self::Leaving, Timer::Deadline) => {
                let message = "the Machine is being deleted and does not go: see its finalizers, \
                               lifecycle hooks and conditions";
                draft.state.note = Some(message.into());
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
            (stage, PhaseObservation::Node(node)) => stage.node_observed(draft, &node),
            // Open tasks use the old address.
            (Self::TearingDown, PhaseObservation::Address) => draft.begin_again(),
            (Self::Opening(ref change), PhaseObservation::Address)
                if must_ask_host(draft, change) =>
            {
                draft.begin_again();
            }
            // Nothing is destroyed yet: it is undone.
            (
                Self::Opening(_) | Self::Evicting(..) | Self::Drained | Self::Deleting,
                PhaseObservation::Ignored,
            ) if !draft.state.is_torn_down() => {
                give_up(draft, "the Machine was labelled to be ignored");
            }
            // A host that is torn down, or half so, is set up to the end. The others leave, or return the lease already.
            (
                Self::Opening(_)
                | Self::Evicting(..)
                | Self::Drained
                | Self::Deleting
                | Self::TearingDown
                | Self::Undoing
                | Self::Vanishing
                | Self::Leaving,
                PhaseObservation::Ignored,
            ) => {}
            // No controller would replace it: a drain for a deletion has become pointless.
            (
                Self::Opening(ref change) | Self::Evicting(ref change, _),
                PhaseObservation::Machine { .. },
            ) if change.how == ChangeStrategy::Recreate && draft.state.owner().is_none() => {
                give_up(
                    draft,
                    "no MachineSet owns the Machine any more, and none would replace it",
                );
            }
            (Self::Leaving, PhaseObservation::NodeGone) => removal::node_changed(draft, false),
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

    fn node_observed(self, draft: &mut Draft<'_>, node: &NodeObservation) {
        match self {
            // Repeats the opening of the fence, which is the only task that cordons (docs/decisions/0004-fences.md).
            Self::Evicting(change, drain) if !node.cordoned && !draft.may_not_begin() => {
                draft.state.note =
                    Some("somebody uncordoned the Node; it is cordoned again".into());
                draft.open(&change.anew());
                // Until that is done, a retry begins with it.
                draft.state.phase = uncordoned(change, drain);
            }
            // Pods may come until it is resumed, even if the Node is cordoned again.
            Self::Evicting(change, drain) if node.uncordoned => {
                draft.state.phase = uncordoned(change, drain);
            }
            // Pods may come. The worker finds out whether the Machine is deleted already.
            Self::Deleting if node.uncordoned => draft.begin_again(),
            // Pods may come once it is Ready. The worker finds out whether the host is whole: its kubelet then stays Ready.
            Self::TearingDown if node.uncordoned => draft.begin_again(),
            // Whether its Node is down, and for how long, decides about its turn.
            Self::Leaving => removal::node_changed(draft, node.uncordoned),
            // It stays drained until it is resumed: the Node is cordoned and drained again.
            Self::Drained if node.uncordoned && !draft.may_not_begin() => {
                let note = "somebody uncordoned the Node; it is drained again, until it is resumed";
                draft.state.note = Some(note.into());
                draft.enter(Phase::Opening(Change::asked(ChangeStrategy::Drain).anew()));
            }
            // The drain, the deletion or the tear-down continues.
            Self::Opening(_)
            | Self::Evicting(..)
            | Self::Drained
            | Self::Deleting
            | Self::Vanishing
            | Self::TearingDown
            | Self::Undoing => {}
        }
    }

    pub(super) fn asked(self, draft: &mut Draft<'_>, request: PhaseRequest) {
        match self {
            Self::Opening(_) | Self::Evicting(..) => match request {
                // Another client may have uncordoned it meanwhile.
                PhaseRequest::Resume { paused: true } => {
                    draft.cancel_tasks();
                    let phase = draft.state.phase.clone();
                    draft.enter(draft.cordoned_first(phase));
                }
                // The host is torn down: no earlier configuration is left.
                PhaseRequest::Abort { .. } if draft.state.is_torn_down() => {}
                PhaseRequest::Abort { by } => undo(draft, &by),
                PhaseRequest::Granted { .. } => draft.give_back(),
                // Nothing was delayed; the upgrade continues, and the machine stops afterwards.
                PhaseRequest::Resume { paused: false } | PhaseRequest::Hold => {}
                // Recorded, and handled when the node is drained, or once it serves.
                PhaseRequest::Leased | PhaseRequest::Approve => {}
            },
            Self::Drained => match request {
                PhaseRequest::Resume { .. } => {
                    draft.end_leased_request();
                    draft.enter(Phase::Undoing);
                }
                PhaseRequest::Abort { by } => undo(draft, &by),
                PhaseRequest::Granted { .. } => draft.give_back(),
                // During a pause it was not cordoned again.
                PhaseRequest::Leased if draft.state.host.uncordoned => {
                    draft.enter(Phase::Opening(Change::asked(ChangeStrategy::Drain).anew()));
                }
                PhaseRequest::Leased => emptied(draft, ChangeStrategy::Drain),
                // It stays drained until it is resumed.
                PhaseRequest::Hold | PhaseRequest::Approve => {}
            },
            Self::Deleting | Self::TearingDown | Self::Undoing => match request {
                PhaseRequest::Resume { paused: true } => draft.begin_again(),
                PhaseRequest::Granted { .. } => draft.give_back(),
                // Nothing was delayed; the current change finishes.
                PhaseRequest::Resume { paused: false } | PhaseRequest::Hold => {}
                // Recorded, and handled once it serves.
                PhaseRequest::Leased | PhaseRequest::Approve => {}
                // Closing the fence shows whether the Machine was deleted.
                PhaseRequest::Abort { by } if matches!(self, Self::Deleting) => undo(draft, &by),
                // The host or Machine is destroyed already, or the change is being given up.
                PhaseRequest::Abort { .. } => {}
            },
            Self::Vanishing | Self::Leaving => match request {
                PhaseRequest::Resume { paused: true } => draft.begin_again(),
                // Only the removal of a WindowsHost requested the lease. For any other machine the slot goes with the
                // Machine.
                PhaseRequest::Granted { .. } if matches!(self, Self::Leaving) => {
                    removal::granted(draft)
                }
                PhaseRequest::Granted { .. } => {}
                // The Machine goes, whatever a person requests.
                PhaseRequest::Resume { paused: false }
                | PhaseRequest::Hold
                | PhaseRequest::Leased
                | PhaseRequest::Approve
                | PhaseRequest::Abort { .. } => {}
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
    /// The phase with which a drain continues after a pause or a failure: if another client uncordoned the Node meanwhile,
    /// it is cordoned first.
    pub(super) fn cordoned_first(&self, phase: Phase) -> Phase {
        let uncordoned = self.state.node.as_ref().is_some_and(|node| !node.cordoned);
        if let Phase::Evicting(change, drain) = &phase
            && (uncordoned || drain.uncordoned)
        {
            return Phase::Opening(change.anew());
        }
        phase
    }

    /// The phase with which a step under the lease continues after a failure or a reset: pods may have come since the Node was
    /// drained.
    pub(super) fn drained_first(&mut self, phase: Phase) -> Phase {
        let held = self.state.lease.token().is_some();
        let ready = self.state.node.as_ref().is_some_and(|node| node.ready);
        if phase == Phase::TearingDown && held && ready {
            // Its kubelet runs, so nothing is torn down.
            self.state.note = Some("its Node is Ready, so it is drained again".into());
            return self.opening_anew();
        }
        self.cordoned_first(phase)
    }

    /// Drains a Node again whose host was to be torn down or whose Machine was to be deleted, and on which pods may
    /// run.
    pub(super) fn drain_anew(&mut self, note: String) {
        self.state.note = Some(note);
        let opening = self.opening_anew();
        self.enter(opening);
    }
}

/// Continues a repair whose Node is still absent. Since the grant the Machine API may have given the Machine up, or taken
/// that back.
fn repaired(draft: &mut Draft<'_>) {
    let how = repair(draft).how;
    draft.state.under_lease = Some(how);
    if how == ChangeStrategy::Recreate && draft.state.owner().is_none() {
        let note = "the Machine API gave the Machine up, and nobody would replace it: the repair is given up";
        draft.state.note = Some(note.into());
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
    let skipped = draft.state.drain_skipped(change.how);
    if skipped.is_some() || draft.state.node_name().is_none() {
        let why = skipped.unwrap_or_else(|| "it has no Node".into());
        draft.state.note = Some(format!("not drained: {why}"));
        return emptied(draft, change.how);
    }
    draft.evict(change.how, drain.force);
    let drain = Drain {
        overdue: drain.overdue && drain.force,
        pass_is_stale: drain.uncordoned,
        ..drain.clone()
    };
    let limited = !drain.force;
    draft.state.phase = Phase::Evicting(change.clone(), drain);
    if limited {
        draft.wait(Timer::Drain);
    }
}

/// Begins the next pass of evictions. If the Node is gone, its pods are gone from the API server as well, and the drain
/// is done.
fn next_pass(draft: &mut Draft<'_>, change: Change, drain: Drain) {
    if let Some(step) = draft.interrupted_step() {
        let note = "its Node has been down for long: its change continues, which the pods that are left waited for";
        draft.state.note = Some(note.into());
        return draft.enter(step);
    }
    if draft.state.node_name().is_some() {
        draft.evict(change.how, drain.force);
        let drain = Drain {
            pass_is_stale: drain.uncordoned,
            ..drain
        };
        draft.state.phase = Phase::Evicting(change, drain);
        return;
    }
    draft.state.note = Some("drained no further: its Node is gone".into());
    emptied(draft, change.how);
}

/// Restarts the drain under new settings of the pool for its limit or the policy after it.
fn drain_anew(draft: &mut Draft<'_>, change: Change, drain: Drain) {
    draft.push(Command::CancelTimer(Timer::Drain));
    draft.state.phase = Phase::Evicting(
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

/// Asks a host for its clock before its Node is drained. A host that the Machine API gave up is gone: its change would
/// fail under the lease, so others go first.
fn probe(draft: &mut Draft<'_>) {
    match draft.state.given_up() {
        Some(error) => give_back_for(draft, &Failure::lasting("MachineFailed", error)),
        None => draft.probe_briefly(),
    }
}

/// Returns the lease after a failure that should not delay others.
fn give_back_for(draft: &mut Draft<'_>, failure: &Failure) {
    let cause = cause(&failure.code, None, &failure.message);
    // A person's request, a machine that never served, or a host whose comparison does not show the cause would ask for
    // the lease again at once.
    let asks_at_once = draft.state.leased_request.is_some()
        || draft.state.first_bring_up()
        || draft.state.host.renamed;
    if asks_at_once && draft.state.held.is_none() {
        draft.hold_for_pause(&cause, None);
    }
    draft.state.note = Some(format!("{cause}; the lease is returned"));
    draft.enter(Phase::Undoing);
}

/// Undoes the change after a refusal that the facts do not explain. The run considers it again after a while; at once if the
/// pool was `stopped` and the refusal may be older than the settings that ended that.
fn given_back(draft: &mut Draft<'_>, note: String, stopped: bool) {
    let unexplained = !(stopped && std::mem::take(&mut draft.state.allowed_again));
    draft.state.refused_lately = unexplained;
    // A machine that never served ends its bring-up next, and would ask again at the end of it.
    if unexplained && draft.state.first_bring_up() && draft.state.held.is_none() {
        draft.hold_for_pause(&note, None);
    }
    draft.state.note = Some(note);
    draft.enter(Phase::Undoing);
}

/// Waits with the drain or the further tear-down of a host that was torn down already, until a person or another controller
/// allows it again.
fn waits_torn_down(draft: &mut Draft<'_>, said: &str) {
    let what = match draft.state.phase == Phase::TearingDown {
        true => "the next tear-down",
        false => "the drain of its Node",
    };
    let until = utc(draft.now.at.plus_ms(policy::MINUTE));
    draft.state.note = Some(format!(
        "its host is torn down, and {what} waits until {until}: {said}"
    ));
    let phase = draft.cordoned_first(draft.state.phase.clone());
    if phase != draft.state.phase {
        draft.cancel_tasks();
        draft.state.phase = phase;
    }
    draft.wait_ms(Timer::Again, policy::MINUTE);
}

/// Undoes the change, because a live read of the cluster refused it.
fn refused(draft: &mut Draft<'_>, why: FenceRefusal, said: String) {
    // A Node that serves is compared once the lease is returned, and under another token nothing may be done.
    let ends = matches!(
        why,
        FenceRefusal::NodeServes | FenceRefusal::Superseded | FenceRefusal::Gone
    );
    let waits = matches!(
        draft.state.phase,
        Phase::Opening(_) | Phase::Evicting(..) | Phase::TearingDown
    );
    if waits && !ends && draft.state.is_torn_down() {
        return waits_torn_down(draft, &said);
    }
    match why {
        FenceRefusal::NodeServes => {
            draft.restart_down_time();
            draft.state.note = Some("it was granted over the limit, and its Node serves".into());
            draft.enter(Phase::Undoing);
        }
        FenceRefusal::Superseded => {
            given_back(draft, "its objects carry a newer token".into(), false);
        }
        FenceRefusal::Gone => draft.enter(Phase::Leaving),
        // A worker answers Uncordoned only where the drain is begun again, so this is a late answer.
        FenceRefusal::Stopped | FenceRefusal::Uncordoned => {
            let stopped = why == FenceRefusal::Stopped;
            given_back(draft, format!("given back: {said}"), stopped);
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
            let by_a_person = draft.state.held.is_some() && !draft.state.held_for_pause;
            match (pause, by_a_person) {
                // A person's hold outlasts the pause.
                (true, true) => {}
                (true, false) => draft.hold_for_pause(&said, Some(why)),
                (false, _) => draft.add_own_hold(&said, why),
            }
            draft.state.note = Some(said);
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
    let goes_on = !draft.may_not_begin();
    // Pods may have come that this pass did not see.
    let again = drain.uncordoned || drain.pass_is_stale;
    if left == 0 && goes_on && !again {
        // After hours of a drain its clock may have gone wrong. Nothing is destroyed yet.
        return match must_ask_host(draft, &change) {
            true => draft.enter(Phase::Opening(change)),
            false => emptied(draft, change.how),
        };
    }
    let same = evicted == 0 && drain.left == left;
    let idle_passes = if same {
        drain.idle_passes.saturating_add(1)
    } else {
        0
    };
    let evicted = drain.evicted.saturating_add(evicted);
    draft.state.phase = Phase::Evicting(
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
    draft.state.note = Some(format!("{why}: the upgrade is given up"));
    draft.give_back();
}

/// Continues after the last pod, or when there was nothing to drain.
fn emptied(draft: &mut Draft<'_>, how: ChangeStrategy) {
    draft.state.host.uncordoned = false;
    match how {
        ChangeStrategy::Recreate => delete(draft),
        ChangeStrategy::InPlace | ChangeStrategy::Restart => {
            // A BYOH host is made anew in place: that is what a person asked for.
            draft.state.request_progress.begun |= draft.state.own_host()
                && draft.state.leased_request == Some(LeasedRequest::Recreate);
            draft.enter(Phase::TearingDown);
        }
        // A person requested a replacement meanwhile, and a controller creates another Machine.
        ChangeStrategy::Drain
            if draft.state.leased_request == Some(LeasedRequest::Recreate)
                && draft.state.owner().is_some() =>
        {
            draft.state.under_lease = Some(ChangeStrategy::Recreate);
            delete(draft);
        }
        ChangeStrategy::Drain => {
            if draft.state.phase != Phase::Drained {
                draft.enter(Phase::Drained);
            }
        }
    }
}

/// Deletes the Machine, and stores the reason, which `dormer why` shows after the Machine is gone.
fn delete(draft: &mut Draft<'_>) {
    let by = draft.state.request_progress.by.as_deref();
    let asked = draft.state.leased_request == Some(LeasedRequest::Recreate);
    let mut differs: &[String] = &[];
    if let Phase::Opening(change) | Phase::Evicting(change, _) = &draft.state.phase {
        differs = &change.differs;
    }
    draft.state.replaced_for = match (asked, by) {
        (true, Some(by)) => Some(format!("asked for by {by}")),
        (true, None) => Some(ASKED.to_owned()),
        (false, _) if differs.is_empty() => None,
        (false, _) => Some(to_change(differs)),
    };
    draft.enter(Phase::Deleting);
}

/// Applies the pool's policy to a drain that exceeds its limit.
fn overdue(draft: &mut Draft<'_>, change: Change, mut drain: Drain) {
    let pool = draft.state.pool.as_ref();
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
        // No earlier configuration is left.
        AfterTimeout::Abort if draft.state.is_torn_down() => {
            draft.state.note = Some(format!(
                "the drain takes longer than allowed, and its host is torn down already: {blocked}"
            ));
            drain.overdue = true;
            draft.state.phase = Phase::Evicting(change, drain);
        }
        AfterTimeout::Wait => {
            draft.state.note = Some(format!("the drain takes longer than allowed: {blocked}"));
            drain.overdue = true;
            draft.state.phase = Phase::Evicting(change, drain);
        }
        AfterTimeout::Abort => {
            let by = format!("the drain timed out ({blocked}); the pool's policy is abort");
            // It names no person: all of it stands for one.
            let who = Requester::beside(&by);
            draft.add_hold(by, who);
            draft.give_back();
        }
        AfterTimeout::Force => {
            draft.state.note = Some(format!("evicting without budgets: {blocked}"));
            drain.force = true;
            draft.state.phase = Phase::Evicting(change, drain);
        }
    }
}

/// Aborts an upgrade that has not destroyed anything yet.
pub(super) fn undo(draft: &mut Draft<'_>, by: &Sender) {
    // The obstacle of this drain may also obstruct the next.
    if let Phase::Evicting(_, drain) = &draft.state.phase
        && let Some(first) = drain.blockers.first()
    {
        let more = match drain.blockers.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        draft.state.note = Some(format!(
            "the upgrade was given up while {} blocked its drain: {}{more}",
            first.pod, first.why
        ));
    }
    draft.end_leased_request();
    draft.add_hold(name(by), beside_name(by));
    draft.state.clear_approval();
    draft.give_back();
}
