//! Joined: the node serves. The run checks for drift, and applies changes in place or waits for the lease.

use super::{
    change::{Change, ChangeStrategy},
    clock::wrong_clock,
    draft::Draft,
    input::{PhaseObservation, PhaseRequest},
    phase::{Phase, Timer},
    policy,
    state::Down,
    table::TaskKind,
};
use dormer_engine_core::Sender;
use dormer_proto::{
    machine::{ChangeClass, Outcome, Section},
    message::{Failure, cause},
    pool::Strategy,
    rollout::NotCompared,
};

/// Phase of this stage, with its data.
pub(super) enum ServePhase {
    Serving,
    Checking,
    Applying { section: Section },
    ApprovalWait(Change),
    OwnerWait(Change),
    LeaseWait(Change),
    Closing,
}

/// Result of comparing the host with its desired configuration.
pub(super) struct Comparison {
    /// Change class; `None`: nothing differs.
    pub(super) class: Option<ChangeClass>,
    pub(super) differs: Vec<String>,
}

impl ServePhase {
    pub(super) fn enter(self, draft: &mut Draft<'_>) {
        match self {
            Self::Serving => {
                if draft.state.held_for_pause {
                    draft.wait_ms(Timer::Drift, policy::CHECK_AGAIN);
                } else {
                    draft.wait(Timer::Drift);
                }
                if draft.state.node.is_none() {
                    draft.wait(Timer::Deadline);
                }
                draft.start_pending_change();
            }
            Self::Checking => draft.plan(false),
            Self::Applying { section } => draft.converge(section),
            // A person, or an owner, ends these.
            Self::ApprovalWait(_) | Self::OwnerWait(_) => draft.await_renewal(),
            Self::LeaseWait(_) => {
                await_repair(draft);
                draft.await_renewal();
                draft.request();
            }
            Self::Closing => draft.close(),
        }
    }

    pub(super) fn answered(self, draft: &mut Draft<'_>, outcome: Outcome) {
        match (self, outcome) {
            (Self::Checking, Outcome::Planned { class, differs, .. }) => {
                compared(draft, Comparison { class, differs })
            }
            // The change that it waits for stays: its token was renewed, if that was due.
            (
                Self::ApprovalWait(_) | Self::OwnerWait(_) | Self::LeaseWait(_),
                Outcome::Planned { .. },
            ) => draft.await_renewal(),
            (Self::Applying { section }, Outcome::Converged { .. }) => match section {
                Section::Host => draft.enter(Phase::Applying {
                    section: Section::Node,
                }),
                Section::Node => draft.enter(Phase::Marking),
            },
            (Self::Closing, Outcome::FenceClosed) => {
                // A request that came meanwhile is handled once it serves.
                draft.state.clear_approval();
                if draft.state.request_progress.begun {
                    draft.end_leased_request();
                }
                // It is marked, and so has passed its checks.
                draft.state.in_service = true;
                draft.fence_closed("upgraded");
            }
            // A delayed deletion arrived before the token was closed: the slot waits for the replacement.
            (Self::Closing, Outcome::MachineDeleted) => draft.enter(Phase::Vanishing),
            (Self::Serving, Outcome::NodeAbsent) => node_is_absent(draft),
            (Self::Serving, Outcome::NodeFound { name }) => node_is_there(draft, &name),
            // Answer to a task of an earlier phase, or in a phase without tasks.
            (
                Self::Serving
                | Self::Checking
                | Self::Applying { .. }
                | Self::Closing
                | Self::ApprovalWait(_)
                | Self::OwnerWait(_)
                | Self::LeaseWait(_),
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
        match self {
            Self::Checking => not_compared(draft, failure),
            Self::Serving if task == TaskKind::FindNode => node_unknown(draft, &failure),
            // The next comparison renews the token: it lasts for days after it is due.
            Self::ApprovalWait(_) | Self::OwnerWait(_) | Self::LeaseWait(_)
                if task == TaskKind::Plan =>
            {
                let cause = cause(&failure.code, None, &failure.message);
                draft.state.note = Some(format!("{cause}; the host could not be compared"));
                draft.await_renewal();
            }
            // The Node serves, and the next comparison finds what is left to do.
            Self::Applying { .. } if policy::is_outside_host(&failure.code) => {
                not_applied(draft, failure);
            }
            Self::Applying { .. }
            | Self::Closing
            | Self::Serving
            | Self::ApprovalWait(_)
            | Self::OwnerWait(_)
            | Self::LeaseWait(_) => draft.fail(failure),
        }
    }

    pub(super) fn fired(self, draft: &mut Draft<'_>, timer: Timer) {
        match (self, timer) {
            (Self::Serving, Timer::Drift) => {
                draft.end_own_hold();
                // The first close may have failed.
                draft.close_restored();
                // A person's request waits in Serving.
                match draft.state.leased_request.is_some() && !draft.is_stopped_by_person() {
                    true => draft.enter(Phase::Serving),
                    false => draft.enter(Phase::Checking),
                }
            }
            (Self::Serving, Timer::Deadline) if draft.state.node.is_none() => draft.find_node(),
            // Its Node came back.
            (Self::Serving, Timer::Deadline) => {}
            (Self::LeaseWait(_), Timer::Deadline) => await_repair(draft),
            (Self::ApprovalWait(_) | Self::OwnerWait(_) | Self::LeaseWait(_), Timer::Drift) => {
                draft.renew_host_token()
            }
            // A timer of a phase that was left.
            (Self::LeaseWait(_), Timer::Again | Timer::Soak | Timer::Drain) => {}
            (Self::Serving, Timer::Again | Timer::Soak | Timer::Drain) => {}
            (
                Self::ApprovalWait(_) | Self::OwnerWait(_),
                Timer::Again | Timer::Deadline | Timer::Soak | Timer::Drain,
            ) => {}
            // They wait for no timer.
            (
                Self::Checking | Self::Applying { .. } | Self::Closing,
                Timer::Again | Timer::Deadline | Timer::Soak | Timer::Drift | Timer::Drain,
            ) => {}
        }
    }

    pub(super) fn observed(self, draft: &mut Draft<'_>, observation: PhaseObservation) {
        match observation {
            PhaseObservation::Address => self.address_changed(draft),
            PhaseObservation::Machine { .. } => self.machine_observed(draft),
            PhaseObservation::Node(node) => self.node_observed(draft, node.rebooted),
            PhaseObservation::NodeGone => self.node_gone(draft),
            PhaseObservation::Pool {
                retarget,
                rules,
                resumed,
                ..
            } => self.pool_observed(draft, retarget || rules, resumed),
            // No phase of this stage changes anything under the lease; `Closing` only ends a change.
            PhaseObservation::Ignored => {}
        }
    }

    fn address_changed(self, draft: &mut Draft<'_>) {
        match self {
            Self::Serving => {
                draft.state.moved = true;
                draft.enter(Phase::Checking);
            }
            // Open tasks use the old address.
            Self::Checking | Self::Applying { .. } => draft.begin_again(),
            // Its services need the new address, whatever change they wait for.
            Self::ApprovalWait(_) | Self::OwnerWait(_) | Self::LeaseWait(_) => {
                draft.state.moved = true;
                draft.leave_queue();
                draft.enter(Phase::Checking);
            }
            // It is compared once it serves.
            Self::Closing => draft.state.moved = true,
        }
    }

    fn machine_observed(self, draft: &mut Draft<'_>) {
        match self {
            // It may have an owner now, or need none any more.
            Self::OwnerWait(change) if change.repair => {
                let now = repair(draft);
                draft.queue_for(now);
            }
            Self::OwnerWait(change) => draft.queue_for(change),
            // It may have been given up, or have lost its owner, since the search for its Node.
            Self::LeaseWait(change) if change.repair => {
                let now = repair(draft);
                match now.how == ChangeStrategy::Recreate && draft.state.owner().is_none() {
                    true => {
                        draft.leave_queue();
                        draft.queue_for(now);
                    }
                    // The position in the queue stays.
                    false => draft.state.phase = Phase::LeaseWait(now),
                }
            }
            // While the Node serves, the Machine's own status changes nothing.
            Self::Serving
            | Self::Checking
            | Self::Applying { .. }
            | Self::ApprovalWait(_)
            | Self::LeaseWait(_)
            | Self::Closing => {}
        }
    }

    fn node_observed(self, draft: &mut Draft<'_>, rebooted: bool) {
        match self {
            // The host rebooted by itself: a comparison shows whether everything still runs.
            Self::Serving if rebooted && !draft.may_not_begin() => draft.enter(Phase::Checking),
            // The rollout learns whether it is available; an absent Node gets time.
            Self::Serving => {}
            // A comparison or a change is already under way.
            Self::Checking | Self::Applying { .. } => {}
            // The change was to restore the Node, and the Node is back.
            Self::LeaseWait(change) | Self::OwnerWait(change) if change.repair => {
                draft.leave_queue();
                draft.enter(Phase::Checking);
            }
            // It may be repaired over the limit, once it has not been Ready for long.
            Self::LeaseWait(_) => await_repair(draft),
            // The change that they wait for brings everything up again.
            Self::ApprovalWait(_) | Self::OwnerWait(_) => {}
            // The fence is closed whatever the Node does.
            Self::Closing => {}
        }
    }

    fn node_gone(self, draft: &mut Draft<'_>) {
        match self {
            // The time of the Node's absence begins.
            Self::Serving => draft.enter(Phase::Serving),
            // The absence is timed from the return to Serving.
            Self::Checking | Self::Applying { .. } | Self::Closing => {}
            Self::LeaseWait(_) => await_repair(draft),
            // The change that they wait for brings the Node back.
            Self::ApprovalWait(_) | Self::OwnerWait(_) => {}
        }
    }

    fn pool_observed(self, draft: &mut Draft<'_>, other: bool, resumed: bool) {
        match self {
            Self::Serving => draft.start_pending_change(),
            // It has nothing to compare yet, and gets the version that is desired when its turn comes.
            Self::ApprovalWait(change) | Self::OwnerWait(change)
                if draft.state.first_bring_up() =>
            {
                match draft.state.leased_request {
                    Some(_) => draft.queue_for(change),
                    None => draft.queue_for_version(),
                }
            }
            Self::LeaseWait(_) if draft.state.first_bring_up() => {}
            // The comparison and the method of the change may be outdated.
            Self::ApprovalWait(_) | Self::OwnerWait(_) => draft.enter(Phase::Checking),
            // A change that the pause delayed, and that does not disturb pods, needs no lease.
            Self::LeaseWait(ref change)
                if (other || (resumed && change.how == ChangeStrategy::Restart))
                    && draft.state.leased_request.is_none() =>
            {
                draft.leave_queue();
                draft.enter(Phase::Checking);
            }
            // The position in the queue stays: the version, or the person's request, is the same.
            Self::LeaseWait(_) => {}
            Self::Checking => draft.begin_again(),
            // Both phases first finish the version in progress.
            Self::Applying { .. } | Self::Closing => {}
        }
    }

    pub(super) fn asked(self, draft: &mut Draft<'_>, request: PhaseRequest) {
        match request {
            PhaseRequest::Resume { paused } => self.resumed(draft, paused),
            PhaseRequest::Hold => self.held(draft),
            PhaseRequest::Leased => self.start_leased_request(draft),
            PhaseRequest::Approve => self.approved(draft),
            PhaseRequest::Abort { by } => self.aborted(draft, &by),
            PhaseRequest::Granted { wanted } => self.granted(draft, wanted),
        }
    }

    fn resumed(self, draft: &mut Draft<'_>, paused: bool) {
        match self {
            // Its timers run again, and the run considers the desired version.
            Self::Serving => draft.enter(Phase::Serving),
            Self::Checking
            | Self::Applying { .. }
            | Self::ApprovalWait(_)
            | Self::OwnerWait(_)
            | Self::LeaseWait(_)
            | Self::Closing => {
                // A hold delays nothing in these phases.
                if paused {
                    draft.begin_again();
                }
            }
        }
    }

    fn held(self, draft: &mut Draft<'_>) {
        match self {
            Self::ApprovalWait(_) | Self::OwnerWait(_) | Self::LeaseWait(_) => {
                draft.leave_queue();
                draft.enter(Phase::Serving);
            }
            // It stops now, or after the current step.
            Self::Serving | Self::Checking | Self::Applying { .. } | Self::Closing => {}
        }
    }

    fn start_leased_request(self, draft: &mut Draft<'_>) {
        match self {
            Self::Serving => draft.start_pending_change(),
            Self::Checking | Self::ApprovalWait(_) | Self::OwnerWait(_) => {
                draft.cancel_tasks();
                draft.enter(Phase::Serving);
            }
            Self::LeaseWait(mut change) => {
                change.how = draft.state.how(ChangeClass::Drain);
                change.repair = false;
                match change.how == ChangeStrategy::Recreate && draft.state.owner().is_none() {
                    true => {
                        draft.leave_queue();
                        draft.queue_for(change);
                    }
                    // The position in the queue stays.
                    false => draft.state.phase = Phase::LeaseWait(change),
                }
            }
            // Recorded, and handled once it serves.
            Self::Applying { .. } | Self::Closing => {}
        }
    }

    fn approved(self, draft: &mut Draft<'_>) {
        match self {
            Self::ApprovalWait(change) => draft.queue_for(change),
            // Recorded for the time when it is needed.
            Self::Serving
            | Self::Checking
            | Self::Applying { .. }
            | Self::OwnerWait(_)
            | Self::LeaseWait(_)
            | Self::Closing => {}
        }
    }

    fn aborted(self, draft: &mut Draft<'_>, by: &Sender) {
        match self {
            Self::ApprovalWait(_) | Self::OwnerWait(_) | Self::LeaseWait(_) => {
                draft.state.clear_approval();
                draft.hold(by);
            }
            // No upgrade has begun, or it is done.
            Self::Serving | Self::Checking | Self::Applying { .. } | Self::Closing => {}
        }
    }

    fn granted(self, draft: &mut Draft<'_>, wanted: bool) {
        match self {
            // The conditions of its request have changed: return the lease and consider again.
            Self::LeaseWait(change) if wanted && !may_begin(draft, &change) => {
                draft.enter(Phase::Undoing);
            }
            Self::LeaseWait(change) if wanted => {
                draft.begin_episode(if change.repair { "repair" } else { "upgrade" });
                draft.state.under_lease = Some(change.how);
                draft.enter(Phase::Opening(change));
            }
            // The machine no longer needs the lease.
            Self::LeaseWait(_)
            | Self::Serving
            | Self::Checking
            | Self::Applying { .. }
            | Self::ApprovalWait(_)
            | Self::OwnerWait(_)
            | Self::Closing => draft.give_back(),
        }
    }
}

/// Continues after the comparison of a serving host.
pub(super) fn compared(draft: &mut Draft<'_>, found: Comparison) {
    let apply = Phase::Applying {
        section: Section::Host,
    };
    if draft.state.stray_token().is_some() && !draft.is_stopped_by_person() {
        return finish_earlier(draft, found.class);
    }
    match found.class {
        None if draft.state.differs() || unmarked(draft) => draft.enter(Phase::Marking),
        None => {
            draft.state.moved = false;
            draft.state.clear_approval();
            draft.enter(Phase::Serving);
        }
        Some(_) if draft.is_stopped_by_person() => draft.enter(Phase::Serving),
        // Under a pause the comparison has renewed what ends, and everything else waits.
        Some(ChangeClass::Live)
            if draft.state.change_refusal().is_none() && !draft.state.live_held() =>
        {
            draft.enter(apply);
        }
        // A new address is no change of the pool: only this host's services are reconfigured.
        Some(ChangeClass::Restart) if draft.state.moved && !draft.state.differs() => {
            draft.enter(apply)
        }
        Some(class) => {
            if let Some(failure) = wrong_clock(draft) {
                return not_applied(draft, failure);
            }
            let how = draft.state.how(class);
            draft.queue_for(Change {
                how,
                differs: found.differs,
                repair: false,
                anew: false,
                asked: false,
            });
        }
    }
}

/// Requests the lease for an upgrade that an earlier store began: its token is open, and only a lease closes it.
pub(super) fn finish_earlier(draft: &mut Draft<'_>, class: Option<ChangeClass>) {
    let how = draft.state.how(class.unwrap_or(ChangeClass::Restart));
    draft.queue_for(Change {
        how,
        differs: vec!["an upgrade that an earlier store began".into()],
        repair: false,
        anew: false,
        asked: false,
    });
}

/// Records why the host cannot be compared, for people and for the rollout. The first message of a code stays.
pub(super) fn remember_not_compared(draft: &mut Draft<'_>, failure: Failure) {
    let Failure {
        code,
        message,
        shown_key,
        ..
    } = failure;
    let known = draft.state.not_compared.as_ref();
    if known.is_none_or(|known| known.code != code) {
        draft.state.not_compared = Some(NotCompared {
            code,
            message,
            shown_key,
        });
    }
}

/// Waits until a Node has not been Ready for long. It may have been Ready in between, so only the present period
/// counts.
fn await_repair(draft: &mut Draft<'_>) {
    let Some(down) = draft.state.down.filter(|down| !down.long) else {
        return;
    };
    let waits = draft.wait_since(Timer::Deadline, down.since);
    draft.state.down = Some(Down {
        long: !waits,
        ..down
    });
}

fn unmarked(draft: &Draft<'_>) -> bool {
    let node = draft.state.node.as_ref();
    node.is_some_and(|node| node.version.as_ref() != Some(&draft.state.target.version))
}

/// Leaves a host that cannot be compared as it is: most often the cause is in dormer (a key, a right, a profile), or a
/// closed port. A host is replaced only if it does not answer and its Node has not been Ready for long.
fn not_compared(draft: &mut Draft<'_>, failure: Failure) {
    let code = failure.code.clone();
    let cause = cause(&code, None, &failure.message);
    draft.state.note = Some(format!("{cause}; the host could not be compared"));
    remember_not_compared(draft, failure);
    let dead = policy::is_unanswered(&code) && draft.is_down_for_long();
    let pool = draft.state.pool.as_ref();
    let recreate =
        pool.is_some_and(|pool| pool.strategy == Strategy::Recreate) && !draft.state.own_host();
    if dead && recreate && draft.state.differs() {
        let differs = vec![format!(
            "the version; the host does not answer ({code}), and its Node has not been Ready for long"
        )];
        draft.queue_for(Change {
            how: ChangeStrategy::Recreate,
            differs,
            repair: false,
            anew: false,
            asked: false,
        });
    } else {
        serve_unchecked(draft);
    }
}

/// Leaves a serving host whose change could not be carried out, for a cause on the way to it.
fn not_applied(draft: &mut Draft<'_>, failure: Failure) {
    let cause = cause(&failure.code, None, &failure.message);
    draft.state.note = Some(format!(
        "{cause}; the host could not be changed, and is compared again"
    ));
    remember_not_compared(draft, failure);
    serve_unchecked(draft);
}

/// Returns to Serving without an immediate comparison, which has just failed.
pub(super) fn serve_unchecked(draft: &mut Draft<'_>) {
    draft.state.phase = Phase::Serving;
    draft.wait_ms(Timer::Drift, policy::CHECK_AGAIN);
    if draft.state.node.is_none() {
        draft.wait(Timer::Deadline);
    }
}

/// Whether a change may begin, now that the lease is granted. It must be allowed and approved. An owner must be there to
/// replace a Machine that is deleted for it. A Node to be brought back must still be absent.
fn may_begin(draft: &Draft<'_>, change: &Change) -> bool {
    let state = &draft.state;
    let owned = change.how != ChangeStrategy::Recreate || state.owner().is_some();
    let approved = change.repair || !state.needs_approval();
    let needed = !change.repair || state.node.is_none();
    state.change_refusal().is_none() && owned && approved && needed
}

/// Handles an absent Node: the API server has no Node of this machine. It runs no pods and is configured again under
/// the lease, one machine at a time.
fn node_is_absent(draft: &mut Draft<'_>) {
    if draft.state.node.is_some() {
        // It came back meanwhile.
        return;
    }
    if let Some(machine) = &mut draft.state.machine {
        machine.node = None;
    }
    if draft.is_stopped_by_person() {
        draft.wait(Timer::Deadline);
        return;
    }
    let change = repair(draft);
    draft.queue_for(change);
}

/// Repair of a machine without a Node. The instance of a Machine that the Machine API gave up is gone for good, and its
/// address may be another's by now: such a Machine is replaced, and dormer does not log in there.
pub(super) fn repair(draft: &Draft<'_>) -> Change {
    let given_up = draft.state.given_up().filter(|_| !draft.state.own_host());
    let (how, why) = match given_up {
        Some(error) => (
            ChangeStrategy::Recreate,
            format!("its Node is gone, and the Machine API gave the Machine up: {error}"),
        ),
        None => (
            ChangeStrategy::InPlace,
            "its Node is gone, and its kubelet must register again".to_owned(),
        ),
    };
    Change {
        how,
        differs: vec![why],
        repair: true,
        anew: false,
        asked: false,
    }
}

/// Handles a Node that exists although the watcher does not report it: nothing is done.
fn node_is_there(draft: &mut Draft<'_>, name: &str) {
    if draft.state.node.is_none() {
        draft.state.note = Some(format!(
            "its Node {name} exists, but the watcher does not report it: check the watcher's rights and log"
        ));
        draft.wait(Timer::Deadline);
    }
}

/// Handles a failed search for its Node. A failed search does not prove an absence.
fn node_unknown(draft: &mut Draft<'_>, failure: &Failure) {
    let cause = cause(&failure.code, None, &failure.message);
    draft.state.note = Some(format!("{cause}; the search for its Node failed"));
    if draft.state.node.is_none() {
        draft.wait(Timer::Deadline);
    }
}
