//! Draining: the lease is held, or somebody else deletes the Machine. The node is cordoned and emptied, then the Machine
//! is deleted or the host torn down; or all of it is undone.

use super::{
    draft::Draft,
    phase::{Phase, Timer},
    requests::name,
    stage::{News, Request},
    state::{Change, Drain, Halt, How},
};
use dormer_engine_core::Sender;
use dormer_proto::{
    machine::{Blocker, FenceRefusal, Outcome},
    pool::AfterTimeout,
};

/// Phase of this stage, with what it remembers.
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
            Self::Evicting(change, drain) => draft.evict(change.how, drain.force),
            // A person ends it.
            Self::Drained => {}
            Self::Deleting => draft.delete(),
            Self::Vanishing | Self::Leaving => {
                draft.wait(Timer::Deadline);
            }
            Self::TearingDown => draft.tear_down(),
            Self::Undoing => draft.close(),
        }
    }

    pub(super) fn answered(self, draft: &mut Draft<'_>, outcome: Outcome) {
        match (self, outcome) {
            (Self::Opening(change), Outcome::FenceOpened { .. }) => opened(draft, change),
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
                note_skipped(draft, &skipped);
                pass_done(draft, change, drain, (evicted, left, blockers));
            }
            (Self::Evicting(..) | Self::Deleting, Outcome::FenceClosedMeanwhile) => {
                draft.s.note = Some("the token was closed by somebody else".into());
                draft.enter(Phase::Undoing);
            }
            (Self::Deleting, Outcome::MachineDeleted) => draft.enter(Phase::Vanishing),
            (Self::TearingDown, Outcome::TornDown) => draft.enter(Phase::Reprobing),
            (Self::Undoing, Outcome::FenceClosed) => draft.fence_closed("given up"),
            // A deletion that was asleep landed before the token was closed: the slot waits for the replacement.
            (Self::Undoing, Outcome::MachineDeleted) => draft.enter(Phase::Vanishing),
            // The Node is cordoned again: evictions went on meanwhile.
            (Self::Evicting(..), Outcome::FenceOpened { .. }) => {}
            // An answer to a step that was left meanwhile.
            (
                Self::Opening(_)
                | Self::Evicting(..)
                | Self::Deleting
                | Self::TearingDown
                | Self::Undoing,
                _,
            ) => {}
            // They ask for nothing.
            (Self::Drained | Self::Vanishing | Self::Leaving, _) => {}
        }
    }

    pub(super) fn fired(self, draft: &mut Draft<'_>, timer: Timer) {
        match (self, timer) {
            (Self::Evicting(change, drain), Timer::Again) => {
                draft.evict(change.how, drain.force);
            }
            (Self::Evicting(change, drain), Timer::Drain) => overdue(draft, change, drain),
            (Self::Vanishing | Self::Leaving, Timer::Deadline) => {
                let message = "the Machine is being deleted and does not go: see its finalizers, \
                               lifecycle hooks and conditions";
                draft.s.note = Some(message.into());
                draft.wait(Timer::Deadline);
            }
            // A timer of a phase that was left.
            (Self::Evicting(..) | Self::Vanishing | Self::Leaving, _) => {}
            // They wait for no timer.
            (
                Self::Opening(_)
                | Self::Drained
                | Self::Deleting
                | Self::TearingDown
                | Self::Undoing,
                _,
            ) => {}
        }
    }

    pub(super) fn observed(self, draft: &mut Draft<'_>, news: News) {
        match (self, news) {
            // What is under way goes to the old address.
            (Self::TearingDown, News::Address) => draft.begin_again(),
            // A repeat of Open: there is no other way to cordon (docs/decisions/0004-fences.md).
            (
                Self::Evicting(change, _),
                News::Node {
                    cordoned: false, ..
                },
            ) => {
                draft.s.note = Some("somebody uncordoned the Node; it is cordoned again".into());
                draft.open(&change);
            }
            // The Machine and its Node are on their way out, or the fence is being closed: neither an address nor a
            // condition changes that. A pool that wants something else finds the machine when it comes up again.
            (
                Self::Opening(_)
                | Self::Evicting(..)
                | Self::Drained
                | Self::Deleting
                | Self::Vanishing
                | Self::TearingDown
                | Self::Undoing
                | Self::Leaving,
                News::Address
                | News::Machine { .. }
                | News::Node { .. }
                | News::NodeGone
                | News::Pool { .. },
            ) => {}
        }
    }

    pub(super) fn asked(self, draft: &mut Draft<'_>, request: Request) {
        match self {
            Self::Opening(_) | Self::Evicting(..) => match request {
                Request::Resume { paused: true } => draft.begin_again(),
                Request::Abort { by } => undo(draft, &by),
                Request::Granted { .. } => draft.give_back(),
                // Nothing was held back; the upgrade goes on, and the machine rests afterwards.
                Request::Resume { paused: false } | Request::Hold => {}
                // On record; a change is under way already.
                Request::Wish | Request::Approve => {}
            },
            Self::Drained => match request {
                Request::Resume { .. } => {
                    draft.s.wish = None;
                    draft.enter(Phase::Undoing);
                }
                Request::Abort { by } => undo(draft, &by),
                Request::Granted { .. } => draft.give_back(),
                // It stays drained until it is resumed.
                Request::Hold | Request::Wish | Request::Approve => {}
            },
            Self::Deleting | Self::TearingDown | Self::Undoing => match request {
                Request::Resume { paused: true } => draft.begin_again(),
                Request::Granted { .. } => draft.give_back(),
                // Nothing was held back; what is begun goes on to its end.
                Request::Resume { paused: false } | Request::Hold => {}
                // On record; a change is under way already.
                Request::Wish | Request::Approve => {}
                // Something may be destroyed already, or it is being given up.
                Request::Abort { .. } => {}
            },
            Self::Vanishing | Self::Leaving => match request {
                Request::Resume { paused: true } => draft.begin_again(),
                // The slot goes with the Machine.
                Request::Granted { .. } => {}
                // The Machine goes, whatever is wanted of it.
                Request::Resume { paused: false }
                | Request::Hold
                | Request::Wish
                | Request::Approve
                | Request::Abort { .. } => {}
            },
        }
    }
}

/// The token is open and the Node cordoned, as far as the change wants that.
fn opened(draft: &mut Draft<'_>, change: Change) {
    if change.how == How::Restart {
        return draft.enter(Phase::ConvergingHost { rebooted: false });
    }
    let machine = draft.s.machine.as_ref();
    let skip = machine.is_some_and(|machine| machine.exclude_drain);
    if skip && change.how == How::Drain {
        // It would be called drained with every pod there.
        draft.s.note = Some(
            "not drained: machine.openshift.io/exclude-node-draining is set on the Machine, so all its pods stay"
                .into(),
        );
        draft.s.wish = None;
        return draft.enter(Phase::Undoing);
    }
    if skip || draft.s.node_name().is_none() {
        let why = if skip {
            "not drained: machine.openshift.io/exclude-node-draining is set on the Machine"
        } else {
            "not drained: it has no Node"
        };
        draft.s.note = Some(why.into());
        return emptied(draft, change.how);
    }
    draft.enter(Phase::Evicting(change, Drain::default()));
    // `enter` makes it a wait for the lease, should that be lost.
    if matches!(draft.s.phase, Phase::Evicting(..)) {
        draft.wait(Timer::Drain);
    }
}

/// The live cluster does not let it go on: what is under way is undone.
fn refused(draft: &mut Draft<'_>, why: FenceRefusal, said: String) {
    match why {
        FenceRefusal::NodeServes => {
            draft.s.note = Some("it was granted over the limit, and its Node serves".into());
            draft.enter(Phase::Undoing);
        }
        FenceRefusal::Superseded => {
            draft.s.note = Some("a newer token stands on its objects".into());
            draft.enter(Phase::Undoing);
        }
        FenceRefusal::Gone => draft.enter(Phase::Leaving),
        FenceRefusal::Stopped => {
            draft.s.note = Some(format!("given back: {said}"));
            draft.enter(Phase::Undoing);
        }
        // Only a person can tell what is wrong here.
        FenceRefusal::NotWindows | FenceRefusal::ControlPlane | FenceRefusal::NotItsNode => {
            draft.s.halt = Some(Halt::Held {
                by: format!("dormer: {said}"),
            });
            draft.s.note = Some(said);
            draft.enter(Phase::Undoing);
        }
    }
}

/// Pods that an unreachable node does not end, and that the drain did not wait for.
fn note_skipped(draft: &mut Draft<'_>, skipped: &[Blocker]) {
    if skipped.is_empty() {
        return;
    }
    let pods: Vec<&str> = skipped.iter().map(|one| one.pod.as_str()).collect();
    draft.s.note = Some(format!(
        "not waited for, because the node does not answer: {}",
        pods.join(", ")
    ));
}

/// A pass of evictions is done: so many were evicted, so many are left, held by these.
fn pass_done(
    draft: &mut Draft<'_>,
    change: Change,
    drain: Drain,
    (evicted, left, blockers): (u32, u32, Vec<Blocker>),
) {
    if left == 0 {
        return emptied(draft, change.how);
    }
    let evicted = drain.evicted.saturating_add(evicted);
    draft.s.phase = Phase::Evicting(
        change,
        Drain {
            evicted,
            left,
            blockers,
            ..drain
        },
    );
    draft.wait(Timer::Again);
}

/// The last pod is evicted, or nothing was to be drained.
fn emptied(draft: &mut Draft<'_>, how: How) {
    match how {
        How::Recreate => draft.enter(Phase::Deleting),
        How::InPlace | How::Restart => draft.enter(Phase::TearingDown),
        How::Drain => draft.enter(Phase::Drained),
    }
}

/// The drain takes longer than the pool lets it.
fn overdue(draft: &mut Draft<'_>, change: Change, mut drain: Drain) {
    let pool = draft.s.pool.as_ref();
    let policy = pool.map_or(AfterTimeout::Wait, |pool| pool.after_timeout);
    let blocked = drain
        .blockers
        .first()
        .map(|b| format!("{}: {}", b.pod, b.why));
    let blocked = blocked.unwrap_or_else(|| format!("{} pods are left", drain.left));
    match policy {
        AfterTimeout::Wait => {
            draft.s.note = Some(format!("the drain takes longer than allowed: {blocked}"));
        }
        AfterTimeout::Abort => {
            let by = format!("the drain timed out ({blocked}); the pool's policy is abort");
            draft.s.halt = Some(Halt::Held { by });
            draft.cancel_tasks();
            draft.enter(Phase::Undoing);
        }
        AfterTimeout::Force => {
            draft.s.note = Some(format!("evicting without budgets: {blocked}"));
            drain.force = true;
            draft.s.phase = Phase::Evicting(change, drain);
        }
    }
}

/// A person gives an upgrade up that has not yet destroyed anything.
pub(super) fn undo(draft: &mut Draft<'_>, by: &Sender) {
    draft.s.halt = Some(Halt::Held { by: name(by) });
    draft.s.wish = None;
    draft.cancel_tasks();
    draft.enter(Phase::Undoing);
}
