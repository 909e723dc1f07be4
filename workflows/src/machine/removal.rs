//! Removal of a host of one's own: its node is emptied, the host torn down, its Node deleted and its object let go. No
//! controller does any of that. A host that does not answer is forgotten by force, and what stays on it is noted.
//!
//! It needs no lease: a person took the entry away, as a person deletes a Machine. While it lasts the machine counts as
//! away, so the rollout takes no other in the meantime.

use super::{draft::Draft, phase::Timer, policy, state::How, table::TaskKind};
use dormer_proto::{
    machine::{FenceRefusal, Outcome},
    message::Failure,
    pool::AfterTimeout,
};

/// Begins, or begins again, what is left to do. Every step finds what was done before.
pub(super) fn begin(draft: &mut Draft<'_>) {
    if !draft.s.own_host() {
        return;
    }
    wait_for_drain(draft);
    begin_pass(draft, false);
}

/// A pass of evictions, or the next step where there is nothing to empty.
pub(super) fn begin_pass(draft: &mut Draft<'_>, force: bool) {
    if !draft.s.own_host() {
        return;
    }
    if let Some(other) = draft.s.neighbour().map(str::to_owned) {
        draft.s.note = Some(format!("its removal waits: {other}"));
        draft.wait_ms(Timer::Again, policy::REMOVAL_AGAIN);
        return;
    }
    let skip = draft.s.machine.as_ref().is_some_and(|m| m.exclude_drain);
    if skip || draft.s.node_name().is_none() {
        return tear_down(draft);
    }
    draft.evict(How::Recreate, force);
}

/// The pool's limit for a drain; without one it may take as long as it takes. The phase's row has no such timer,
/// since a Machine that its controller deletes needs none.
fn wait_for_drain(draft: &mut Draft<'_>) {
    let pool = draft.s.pool.as_ref();
    let limit = pool.map_or(0, |pool| pool.drain_timeout_ms);
    if limit > 0 {
        draft.wait_ms(Timer::Drain, limit);
    }
}

/// A drain that takes too long: the pool's policy. A host whose entry is gone is not kept, so `Abort` waits, too.
pub(super) fn overdue(draft: &mut Draft<'_>) {
    if !draft.s.own_host() {
        return;
    }
    let pool = draft.s.pool.as_ref();
    let force = pool.is_some_and(|pool| pool.after_timeout == AfterTimeout::Force);
    draft.s.note = Some(if force {
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
    // What was begun before somebody else deleted the Machine.
    if !draft.s.own_host() {
        return;
    }
    match outcome {
        Outcome::Evicted { left: 0, .. } => tear_down(draft),
        Outcome::Evicted { blockers, .. } => {
            let held = blockers.first();
            draft.s.note = held.map(|it| format!("its removal waits for {}: {}", it.pod, it.why));
            draft.wait_ms(Timer::Again, policy::REMOVAL_AGAIN);
        }
        Outcome::TornDown => draft.forget_host(None),
        Outcome::FenceRefused {
            why: FenceRefusal::Stopped,
            said,
        } => {
            draft.s.note = Some(format!("its removal waits: {said}"));
            draft.wait_ms(Timer::Again, policy::REMOVAL_AGAIN);
        }
        // The Node is another machine's: it is neither emptied nor deleted.
        Outcome::FenceRefused { said, .. } => {
            draft.s.note = Some(said);
            draft.forget_host(Some("its host was left as it is".into()));
        }
        // Its object goes now, and with it the run. Other answers are to steps that were left.
        _ => {}
    }
}

pub(super) fn gave_up(draft: &mut Draft<'_>, task: TaskKind, failure: Failure) {
    if !draft.s.own_host() {
        return;
    }
    if task == TaskKind::TearDown && policy::is_unanswered(&failure.code) {
        let address = draft.s.address().unwrap_or("no address").to_owned();
        let debt = format!(
            "the host at {address} did not answer ({}), and was not torn down: dormer's services, files, networks and \
             certificates are still there; wipe it before it is switched on",
            failure.code
        );
        draft.s.note = Some(debt.clone());
        return draft.forget_host(Some(debt));
    }
    draft.fail(failure);
}

fn tear_down(draft: &mut Draft<'_>) {
    // Nothing was ever written on a host that never answered, unless it has a Node.
    if draft.s.host.facts.is_none() && draft.s.node_name().is_none() {
        return draft.forget_host(None);
    }
    draft.tear_down_for_good();
}
