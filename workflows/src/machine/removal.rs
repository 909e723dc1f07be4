//! Removal of a WindowsHost: dormer drains its node, tears the host down, deletes its Node and removes its finalizer.
//! No controller does any of that. A host that does not answer is forgotten by force, and the note names what stays on
//! it. A host that has served needs the rollout's lease, as for an upgrade, so that several removals at once take one
//! node after the other; it serves until it gets the lease. A host that never served needs no lease.

use super::{
    change::ChangeStrategy,
    draft::Draft,
    phase::Timer,
    policy,
    state::{Lease, Removal},
    table::TaskKind,
};
use dormer_proto::{
    code,
    machine::{FenceRefusal, Outcome},
    message::Failure,
    pool::AfterTimeout,
};

/// What stays on a host that is not torn down.
const LEFT: &str = "dormer's services, files, networks and certificates are still there; wipe it before it is switched on";

/// Starts, or restarts, the remaining steps. Every step recognises what was done before.
pub(super) fn begin(draft: &mut Draft<'_>) {
    if draft.state.own_host() && may_begin(draft) {
        wait_for_drain(draft);
        pass(draft, false);
    }
}

/// A pass of evictions, or the next step where there is nothing to empty.
pub(super) fn begin_pass(draft: &mut Draft<'_>, force: bool) {
    if draft.state.own_host() && may_begin(draft) {
        pass(draft, force);
    }
}

/// Handles the grant of the lease.
pub(super) fn granted(draft: &mut Draft<'_>) {
    draft.state.removal.cordoned = draft.state.out_by_a_person();
    draft.state.note = None;
    begin(draft);
}

/// Its Node has changed while it waits for its turn.
pub(super) fn node_changed(draft: &mut Draft<'_>, uncordoned: bool) {
    let cordoned = draft.state.node.as_ref().is_some_and(|node| node.cordoned);
    draft.state.removal.uncordoned &= cordoned;
    // Under the lease a pass may cordon it at any moment.
    match draft.state.lease.token() {
        Some(_) => draft.state.removal.own_cordon |= !cordoned,
        None => draft.state.removal.own_cordon &= !(uncordoned || draft.state.node_serves()),
    }
    if draft.state.lease == Lease::Wanted {
        begin_pass(draft, false);
    }
}

/// Whether the removal may proceed: no other operator runs, and the machine holds the lease or never served.
fn may_begin(draft: &mut Draft<'_>) -> bool {
    if let Some(other) = draft.state.neighbour().map(str::to_owned) {
        draft.state.note = Some(format!("its removal waits: {other}"));
        draft.wait_ms(Timer::Again, policy::REMOVAL_AGAIN);
        return false;
    }
    if !draft.state.removal_waits() {
        return true;
    }
    if draft.state.lease != Lease::Wanted {
        draft.request();
    }
    let note = "its removal waits for its turn: nodes that serve are taken one after the other";
    draft.state.note = Some(note.into());
    // A removal that failed before goes last, and within the limit.
    if draft.state.removal.rounds > 0 {
        return false;
    }
    // One that has been down for long may go over the limit.
    let long = draft.is_down_for_long();
    let left = draft.repair_left_ms();
    match draft.state.down.as_mut().filter(|down| !down.long) {
        Some(down) if long => down.long = true,
        Some(_) => draft.wait_ms(Timer::Again, left),
        None => {}
    }
    false
}

fn pass(draft: &mut Draft<'_>, force: bool) {
    if draft.state.node_name().is_none() || draft.state.removal.node_left.is_some() {
        return tear_down(draft);
    }
    // The pass cordons it first, and the fact of that, or its answer, may come late.
    let cordoned = draft.state.node.as_ref().is_some_and(|node| node.cordoned);
    draft.state.removal.own_cordon |= !cordoned;
    draft.evict(ChangeStrategy::Recreate, force);
}

/// Starts the timer for the pool's drain limit; without a limit there is no timer. The phase's row has none,
/// since a Machine that its controller deletes needs none.
fn wait_for_drain(draft: &mut Draft<'_>) {
    let pool = draft.state.pool.as_ref();
    let limit = pool.map_or(0, |pool| pool.drain_timeout_ms);
    if limit > 0 {
        draft.wait_ms(Timer::Drain, limit);
    }
}

/// Applies the pool's policy to a drain that takes too long. A host whose entry is gone is not kept, so `Abort` waits
/// as well.
pub(super) fn overdue(draft: &mut Draft<'_>) {
    if !draft.state.own_host() {
        return;
    }
    let pool = draft.state.pool.as_ref();
    let force = pool.is_some_and(|pool| pool.after_timeout == AfterTimeout::Force);
    draft.state.note = Some(if force {
        "its removal evicts without budgets".into()
    } else {
        "its removal takes longer than a drain is allowed: pods hold it".into()
    });
    wait_for_drain(draft);
    if force {
        begin_pass(draft, true);
    }
}

pub(super) fn answered(draft: &mut Draft<'_>, outcome: Outcome) {
    // The task began before another client deleted the Machine.
    if !draft.state.own_host() {
        return;
    }
    if matches!(outcome, Outcome::Evicted { .. }) {
        draft.state.removal.unlinked = None;
    }
    if let Some(step) = step_of(&outcome) {
        draft.state.removal.failures.remove(step.name());
    }
    match outcome {
        Outcome::Evicted {
            left: 0, skipped, ..
        } => {
            draft.note_skipped(&skipped);
            tear_down(draft);
        }
        Outcome::Evicted { blockers, .. } => {
            let held = blockers.first();
            draft.state.note = held.map(|it| format!("its removal waits for {}: {}", it.pod, it.why));
            draft.wait_ms(Timer::Again, policy::REMOVAL_AGAIN);
        }
        Outcome::Probed { .. } => draft.tear_down_for_good(),
        Outcome::TornDown => {
            let left = draft.state.removal.node_left.clone();
            draft.forget_host(left);
        }
        Outcome::FenceRefused { why, said } => refused(draft, why, said),
        // The object is deleted now, and the run ends with it.
        Outcome::HostForgotten
        // Answers to earlier steps.
        | Outcome::Converged { .. }
        | Outcome::RebootAsked
        | Outcome::Planned { .. }
        | Outcome::CsrApproved { .. }
        | Outcome::CsrRefused { .. }
        | Outcome::NodeMarked
        | Outcome::NodeChecked { .. }
        | Outcome::FenceOpened { .. }
        | Outcome::FenceClosed
        | Outcome::PayloadSet
        | Outcome::NodeFound { .. }
        | Outcome::NodeAbsent
        | Outcome::FenceClosedMeanwhile
        | Outcome::MachineDeleted => {}
    }
}

fn refused(draft: &mut Draft<'_>, why: FenceRefusal, said: String) {
    match why {
        FenceRefusal::Gone => draft.forget_host(None),
        FenceRefusal::NodeServes => {
            // The removal had a lease over the limit, or none. Its node serves, so it waits for its turn in the queue.
            draft.state.in_service = true;
            draft.restart_down_time();
            // Only a read that may find it Ready and cordoned says nothing of the cordon.
            let schedulable = draft.state.lease.token().is_none() || draft.state.removal.cordoned;
            let by_facts = draft.state.node.as_ref().is_some_and(|node| node.cordoned);
            draft.state.removal.uncordoned = schedulable && by_facts;
            // The pass under this lease cordoned it, unless a person had. None has cordoned a Node that is Ready and schedulable
            // by the facts as well.
            let held = draft.state.lease.token().is_some();
            draft.state.removal.own_cordon |= held && !draft.state.removal.cordoned;
            draft.state.removal.own_cordon &= !draft.state.node_serves();
            draft.release(false);
            begin_pass(draft, false);
        }
        FenceRefusal::Stopped
        | FenceRefusal::Paused
        | FenceRefusal::OtherDormer
        | FenceRefusal::Ignored
        | FenceRefusal::NoOwner
        | FenceRefusal::Cordoned
        | FenceRefusal::Uncordoned
        | FenceRefusal::Superseded => {
            draft.state.note = Some(format!("its removal waits: {said}"));
            draft.wait_ms(Timer::Again, policy::REMOVAL_AGAIN);
        }
        // The link may be outdated: the watcher corrects it. dormer cleans the host, whichever machine owns that Node.
        FenceRefusal::NotItsNode | FenceRefusal::NotWindows | FenceRefusal::ControlPlane => {
            let at = draft.now.at;
            let since = *draft.state.removal.unlinked.get_or_insert(at);
            let decided = draft.state.removal.node_left.is_some();
            if decided || at.since_ms(since) < policy::LINK_MAX {
                draft.state.note = Some(format!("its removal waits for its Node: {said}"));
                return draft.wait_ms(Timer::Again, policy::REMOVAL_AGAIN);
            }
            let left = format!("its host was torn down, and the Node left as it is: {said}");
            draft.state.note = Some(left.clone());
            draft.state.removal.node_left = Some(left);
            tear_down(draft);
        }
    }
}

pub(super) fn gave_up(draft: &mut Draft<'_>, task: TaskKind, failure: Failure) {
    if !draft.state.own_host() {
        return;
    }
    let address = draft.state.address().unwrap_or("no address").to_owned();
    let unanswered = policy::is_unanswered(&failure.code);
    let code = code::shown(&failure.code);
    match task {
        // dormer never logged in to it, so nothing of dormer's is on it.
        TaskKind::Probe if draft.state.node_name().is_none() => {
            draft.state.note = Some(format!("the host at {address} was never reached ({code})"));
            draft.forget_host(None);
        }
        TaskKind::TearDown | TaskKind::Probe if unanswered => forget_by_force(
            draft,
            format!("the host at {address} did not answer ({code}), and was not torn down: {LEFT}"),
        ),
        TaskKind::TearDown | TaskKind::Probe | TaskKind::Evict | TaskKind::ForgetHost
        // A phase that leaves awaits none of these.
        | TaskKind::Plan
        | TaskKind::Converge
        | TaskKind::Reboot
        | TaskKind::MarkNode
        | TaskKind::OpenFence
        | TaskKind::DeleteMachine
        | TaskKind::CloseFence
        | TaskKind::FindNode => try_again(draft, task, failure),
    }
}

/// The step that this answers, where that is progress.
fn step_of(outcome: &Outcome) -> Option<TaskKind> {
    match outcome {
        Outcome::Evicted { .. } => Some(TaskKind::Evict),
        Outcome::Probed { .. } => Some(TaskKind::Probe),
        Outcome::TornDown => Some(TaskKind::TearDown),
        // The last step, and what is no step of a removal.
        Outcome::HostForgotten
        | Outcome::FenceRefused { .. }
        | Outcome::Converged { .. }
        | Outcome::RebootAsked
        | Outcome::Planned { .. }
        | Outcome::CsrApproved { .. }
        | Outcome::CsrRefused { .. }
        | Outcome::NodeMarked
        | Outcome::NodeChecked { .. }
        | Outcome::FenceOpened { .. }
        | Outcome::FenceClosed
        | Outcome::PayloadSet
        | Outcome::NodeFound { .. }
        | Outcome::NodeAbsent
        | Outcome::FenceClosedMeanwhile
        | Outcome::MachineDeleted => None,
    }
}

/// Restarts a removal after a pause when a step has failed. A step that fails repeatedly is for a person: the removal
/// returns its lease, and requests it again, last of all, after a longer pause.
fn try_again(draft: &mut Draft<'_>, step: TaskKind, failure: Failure) {
    let removal = &mut draft.state.removal;
    let failed = removal.failures.entry(step.name().to_owned()).or_default();
    *failed = failed.saturating_add(1);
    let failed = *failed;
    removal.failed = failed;
    let Failure { code, message, .. } = failure;
    if failed < policy::REMOVAL_FAILURES_MAX {
        let wait = policy::removal_again(failed);
        let minutes = wait / policy::MINUTE;
        draft.state.note = Some(format!(
            "its removal failed and begins again in {minutes} min: {code}: {message}"
        ));
        return draft.wait_ms(Timer::Again, wait);
    }
    // Every step has all of its attempts again.
    let rounds = removal.rounds.saturating_add(1);
    *removal = Removal {
        rounds,
        own_cordon: removal.own_cordon,
        ..Removal::default()
    };
    let wait = policy::removal_rests(rounds);
    let minutes = wait / policy::MINUTE;
    draft.lasting(
        &code,
        format!(
            "{message}; its removal was tried {failed} times: mend that and retry it, or label its WindowsHost \
             windowsmachineconfig.openshift.io/ignore=true to let it go as it is. By itself it asks for its turn again \
             in {minutes} min"
        ),
    );
    rest(draft, wait);
}

/// Returns the lease of a removal that failed: the rollout waits for no replacement.
fn rest(draft: &mut Draft<'_>, wait: u64) {
    draft.leave_queue();
    draft.release(false);
    draft.wait_ms(Timer::Again, wait);
}

/// A failed removal that still has the lease, as earlier builds left it: it returns the lease.
pub(super) fn return_lease(draft: &mut Draft<'_>) {
    if draft.state.phase.removal_failed() && draft.state.lease.token().is_some() {
        draft.state.removal.rounds = draft.state.removal.rounds.max(1);
        rest(draft, policy::removal_rests(1));
    }
}

fn forget_by_force(draft: &mut Draft<'_>, debt: String) {
    draft.state.note = Some(debt.clone());
    draft.forget_host(Some(debt));
}

fn tear_down(draft: &mut Draft<'_>) {
    let logged_in = draft.state.host.facts.is_some();
    if draft.state.address().is_none() {
        if logged_in || draft.state.node_name().is_some() {
            let debt =
                format!("the address of its host is unknown, so it was not torn down: {LEFT}");
            return forget_by_force(draft, debt);
        }
        return draft.forget_host(None);
    }
    if logged_in {
        draft.tear_down_for_good();
    } else {
        // An earlier run may have configured it.
        draft.probe_briefly();
    }
}
