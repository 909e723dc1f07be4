//! What people and the rollout say. What holds in any phase is done here; the rest is told to the phase as `Request`.

use super::{
    draft::Draft,
    phase::Phase,
    stage::Request,
    state::{Lease, LeasedRequest},
};
use dormer_engine_core::Sender;
use dormer_proto::{id::LeaseToken, machine::Signal};

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
            Signal::Abort => self.is_asked(Request::Abort { by: from.clone() }),
            Signal::Remove => self.remove(),
            Signal::TrustHostKey { fingerprint } => self.trust(from, fingerprint),
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

    /// Starts nothing new: a step that is under way goes on to its end, and the next one waits. A place in the queue is
    /// given up.
    fn pause(&mut self, from: &Sender) {
        self.s.paused = Some(name(from));
        self.withdraw();
    }

    /// Ends a pause and a hold. A label on the Machine ends by its removal alone.
    fn resume(&mut self) {
        let paused = self.s.paused.take().is_some();
        self.s.held = None;
        self.is_asked(Request::Resume { paused });
    }

    pub(super) fn hold(&mut self, from: &Sender) {
        self.s.held = Some(name(from));
        self.s.wish = None;
        self.is_asked(Request::Hold);
    }

    fn wish(&mut self, wish: LeasedRequest) {
        if self.s.ignored() {
            let note = "nothing is done while the Machine is labelled to be ignored: ask again when the label is gone";
            self.s.note = Some(note.into());
            return;
        }
        let paused = self.s.paused.take().is_some();
        self.s.held = None;
        if paused && self.s.phase != Phase::Drained {
            self.is_asked(Request::Resume { paused });
        }
        self.s.wish = Some(wish);
        self.is_asked(Request::Wish);
    }

    /// Approves the change to what is desired now, and to nothing that may be desired later.
    fn approve(&mut self) {
        let waits = matches!(self.s.phase, Phase::ApprovalWait(_));
        if !waits && !self.s.differs() {
            self.s.note = Some("there was nothing to approve".into());
            return;
        }
        self.s.approved = true;
        self.s.approved_for = self.s.desired().map(|desired| desired.version.clone());
        self.is_asked(Request::Approve);
    }

    /// Closes the run. A lease is closed and given back first: the run ends when it is.
    fn remove(&mut self) {
        self.withdraw();
        if self.s.lease.token().is_some() {
            self.s.note = Some("it holds the lease: abort or finish the upgrade first".into());
            return;
        }
        self.removed_from_rollout();
        self.end_episode("removed");
        self.enter(Phase::Gone);
    }

    /// The next task looks for this key, and no other is believed. A step that failed for the key goes on.
    fn trust(&mut self, from: &Sender, fingerprint: String) {
        let for_the_key = match &self.s.phase {
            Phase::Failed { failure, .. } => failure.code == "HostKeyChanged",
            _ => false,
        };
        if for_the_key {
            self.s.host.pin = Some(fingerprint.clone());
            self.retry();
        }
        self.s.note = Some(format!(
            "the host key {fingerprint} is trusted, says {}",
            name(from)
        ));
        self.s.host.pin = Some(fingerprint);
    }

    fn granted(&mut self, token: LeaseToken, marked: bool) {
        if let Lease::Held { token: held, .. } = self.s.lease
            && held >= token
        {
            return;
        }
        let wanted = self.s.lease == Lease::Wanted;
        self.s.lease = Lease::Held { token, marked };
        self.is_asked(Request::Granted { wanted });
    }

    /// The replacement serves, or will not come. Only a run that waits for it has an end to hear of.
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
        if self.s.ignored() {
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

/// Who it was, and why, for people.
pub(super) fn name(from: &Sender) -> String {
    match from {
        Sender::Run(run) => run.to_string(),
        Sender::Person { who, why } if why.is_empty() => who.clone(),
        Sender::Person { who, why } => format!("{who}: {why}"),
    }
}
