//! What people and the rollout say.

use super::{
    draft::Draft,
    state::{Halt, Lease, LeasedRequest, Phase},
};
use dormer_engine_core::Sender;
use dormer_proto::{
    id::LeaseToken,
    machine::{ChangeClass, Signal},
};

impl Draft<'_> {
    pub(super) fn signalled(&mut self, from: &Sender, signal: Signal) {
        match signal {
            Signal::Retry => self.retry(),
            Signal::Pause => self.pause(from),
            Signal::Resume => self.resume(),
            Signal::Hold => self.hold(from),
            Signal::Drain => self.wish(LeasedRequest::Drain),
            Signal::Recreate => self.wish(LeasedRequest::Recreate),
            Signal::Approve => self.approve(),
            Signal::Abort => self.abort(from),
            Signal::Remove => self.remove(),
            Signal::Granted { token, marked } => self.granted(token, marked),
            Signal::Enrol => self.enrol(),
            Signal::Replaced { by } => self.replaced(by),
        }
    }

    /// Goes on from the step that failed. In any other state there is nothing to retry.
    fn retry(&mut self) {
        if let Phase::Failed { from, .. } = self.s.phase.clone() {
            self.s.note = None;
            self.go_on_from(*from);
        }
    }

    /// Starts nothing new. What is under way goes on to its end; a place in the queue is given up.
    fn pause(&mut self, from: &Sender) {
        self.s.halt = Some(Halt::Paused { by: name(from) });
        self.withdraw();
    }

    fn resume(&mut self) {
        if self.s.halt == Some(Halt::Ignored) {
            // The label on the Machine says so; it is the label that has to go.
            return;
        }
        let paused = matches!(self.s.halt, Some(Halt::Paused { .. }));
        self.s.halt = None;
        match self.s.phase.clone() {
            Phase::Drained => {
                self.s.wish = None;
                self.enter(Phase::Undoing);
            }
            Phase::Failed { .. } => {}
            Phase::Serving => self.consider(),
            // A step that was held back begins now; one that is under way goes on.
            phase if paused => {
                self.cancel_tasks();
                self.enter(phase);
            }
            _ => {}
        }
    }

    fn hold(&mut self, from: &Sender) {
        self.s.halt = Some(Halt::Held { by: name(from) });
        self.s.wish = None;
        if matches!(
            self.s.phase,
            Phase::ApprovalWait(_) | Phase::OwnerWait(_) | Phase::LeaseWait(_)
        ) {
            self.withdraw();
            self.enter(Phase::Serving);
        }
    }

    fn wish(&mut self, wish: LeasedRequest) {
        self.s.wish = Some(wish);
        self.s.halt = None;
        match self.s.phase.clone() {
            Phase::Serving => self.consider(),
            Phase::Checking | Phase::ApprovalWait(_) | Phase::OwnerWait(_) => {
                self.cancel_tasks();
                self.enter(Phase::Serving);
            }
            Phase::LeaseWait(mut change) => {
                change.how = self.s.how(ChangeClass::Drain);
                self.s.phase = Phase::LeaseWait(change);
            }
            // A machine that failed before it ever served, or while it did, may be replaced, too.
            Phase::Failed { .. } if self.s.lease.token().is_none() => {
                let how = self.s.how(ChangeClass::Replace);
                let differs = vec!["a person asked for it".into()];
                self.want(super::state::Change { how, differs });
            }
            _ => {}
        }
    }

    fn approve(&mut self) {
        self.s.approved = true;
        if let Phase::ApprovalWait(change) = self.s.phase.clone() {
            self.want(change);
        }
    }

    /// Gives up an upgrade that has not yet destroyed anything.
    fn abort(&mut self, from: &Sender) {
        let undoable = match &self.s.phase {
            Phase::Opening(_) | Phase::Evicting(..) | Phase::Drained => true,
            Phase::Failed { from, .. } => {
                matches!(
                    **from,
                    Phase::Opening(_) | Phase::Evicting(..) | Phase::Deleting
                )
            }
            _ => false,
        };
        if matches!(self.s.phase, Phase::LeaseWait(_) | Phase::ApprovalWait(_)) {
            self.hold(from);
        } else if undoable {
            self.s.halt = Some(Halt::Held { by: name(from) });
            self.s.wish = None;
            self.cancel_tasks();
            self.enter(Phase::Undoing);
        }
    }

    /// Closes the run. A lease is closed and given back first: the run ends when it is.
    fn remove(&mut self) {
        self.withdraw();
        if self.s.lease.token().is_some() {
            self.s.note = Some("it holds the lease: abort or finish the upgrade first".into());
            return;
        }
        self.leave_rollout(false, true);
        self.end_episode("removed");
        self.enter(Phase::Gone);
    }

    fn granted(&mut self, token: LeaseToken, marked: bool) {
        if let Lease::Held { token: held, .. } = self.s.lease
            && held >= token
        {
            return;
        }
        let wanted = self.s.lease == Lease::Wanted;
        self.s.lease = Lease::Held { token, marked };
        match self.s.phase.clone() {
            // What it should become changed meanwhile, and is not allowed: given back.
            Phase::LeaseWait(_) if wanted && self.s.barred().is_some() => {
                self.enter(Phase::Undoing);
            }
            Phase::LeaseWait(change) if wanted => {
                self.begin_episode("upgrade");
                self.enter(Phase::Opening(change));
            }
            // Deleted meanwhile: the slot goes with the Machine.
            phase if phase.leaving() => {}
            Phase::Failed { .. } => {}
            // It no longer wants it: closed and given back, since only that frees the slot.
            _ => {
                self.cancel_tasks();
                self.enter(Phase::Undoing);
            }
        }
    }

    fn replaced(&mut self, by: Option<String>) {
        if self.s.phase != Phase::ReplacementWait {
            return;
        }
        self.s.note = Some(by.map_or_else(
            || "no replacement will come: its owner has as many Machines as it wants".into(),
            |by| format!("replaced by the Machine {by}"),
        ));
        self.enter(Phase::Gone);
    }

    /// The rollout lost its history: it hears everything again.
    fn enrol(&mut self) {
        if self.s.halt == Some(Halt::Ignored) {
            // Nobody waits for a machine that is not to be touched.
            self.s.reported.get_or_insert_default();
            return self.leave_rollout(false, true);
        }
        self.s.reported = None;
        if self.s.lease == Lease::Wanted {
            self.request();
        }
    }
}

fn name(from: &Sender) -> String {
    match from {
        Sender::Run(run) => run.to_string(),
        Sender::Person { who, why } if why.is_empty() => who.clone(),
        Sender::Person { who, why } => format!("{who}: {why}"),
    }
}
