//! Signals from people and from the rollout. This file handles what is the same in every phase, and passes the rest to
//! the stage's file as `PhaseRequest`.

use super::{
    draft::Draft,
    holds::{HOLDS_MAX, beside_name, name},
    input::PhaseRequest,
    lease::Departure,
    phase::{Phase, Timer},
    state::{Failing, Lease, LeasedRequest, RequestProgress, State},
};
use dormer_engine_core::{Command, Sender};
use dormer_proto::{id::LeaseToken, machine::Signal};

/// Begin of the note of a machine whose retry was refused; who keeps it as it is follows.
const NOT_RETRIED: &str = "not retried: it is ";

/// Begin of the note of a machine whose replacement serves; the replacement's name follows.
const REPLACED_BY: &str = "replaced by the Machine ";

impl State {
    /// Name of the machine that serves in its place.
    #[must_use]
    pub fn replaced_by(&self) -> Option<&str> {
        self.note.as_deref()?.strip_prefix(REPLACED_BY)
    }

    /// Pauses and holds of people, for people. dormer's own hold ends by itself.
    #[must_use]
    pub fn kept_by_people(&self) -> Option<String> {
        let halts = self.halts().into_iter();
        let of_people = halts.filter(|halt| halt.person().is_some());
        let texts: Vec<String> = of_people.map(|it| it.to_string()).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Who keeps the machine as it is, if the latest retry was refused for that.
    #[must_use]
    pub fn retry_refused(&self) -> Option<&str> {
        self.note.as_deref()?.strip_prefix(NOT_RETRIED)
    }
}

impl Draft<'_> {
    pub(super) fn signalled(&mut self, from: &Sender, signal: Signal) {
        match signal {
            Signal::Retry => self.retry(from),
            Signal::Pause => self.pause(from),
            Signal::Resume => self.resume(from),
            Signal::Hold => self.hold(from),
            Signal::Drain => self.request_lease_for(from, LeasedRequest::Drain),
            Signal::Recreate => self.request_lease_for(from, LeasedRequest::Recreate),
            Signal::Approve => self.approve(),
            Signal::Abort => self.is_asked(PhaseRequest::Abort { by: from.clone() }),
            Signal::Remove => self.remove(from),
            Signal::TrustHostKey { fingerprint } => self.trust(from, fingerprint),
            Signal::Granted { token, over_limit } => self.granted(token, over_limit),
            Signal::Enrol => self.enrol(),
            Signal::Replaced { by } => self.replaced(by),
        }
    }

    /// Retries, unless people keep the machine as it is: their hold may be newer than what the requester saw.
    fn retry(&mut self, by: &Sender) {
        if let Some(kept) = self.state.kept_by_people() {
            self.state.note = Some(format!("{NOT_RETRIED}{kept}"));
            return;
        }
        if self.state.retry_refused().is_some() {
            self.state.note = None;
        }
        self.try_again(by);
    }

    /// Continues from the step that failed. In any other state the next attempt of its step is made at once, if one is
    /// due later: of its tasks, or of what its phase tries again after a while.
    fn try_again(&mut self, by: &Sender) {
        if let Phase::Failed { from, .. } = self.state.phase.clone() {
            // An older build noted no first failure.
            let mut failing = self.state.failing.take().unwrap_or_else(|| Failing {
                phase: from.id().to_string(),
                first: self.state.phase_since.unwrap_or(self.now.at),
                retries: 0,
            });
            self.state.note = None;
            self.recheck_csrs();
            self.go_on_from(*from);
            if let Some(retried) = &mut self.state.retried {
                retried.by = Some(name(by));
                retried.who = beside_name(by);
            }
            failing.retries = failing.retries.saturating_add(1);
            self.state.failing = Some(failing);
            return;
        }
        self.push(Command::AttemptNow);
        if let Some(timer) = self.tries_again_at() {
            self.push(Command::FireNow(timer));
        }
    }

    /// Timer after which the phase tries again what did not succeed.
    fn tries_again_at(&self) -> Option<Timer> {
        let phase = &self.state.phase;
        if *phase == Phase::Serving {
            return self.state.not_compared.as_ref().map(|_| Timer::Drift);
        }
        let checks = *phase == Phase::Marking && self.state.checked_since.is_some();
        // A removal waits between its passes.
        let again = checks || *phase == Phase::Leaving || self.state.may_wait_torn_down();
        let again = again || phase.row().length(Timer::Again).is_some();
        again.then_some(Timer::Again)
    }

    /// Starts nothing new: the current step finishes, and the next one waits. The machine leaves the rollout's queue.
    fn pause(&mut self, from: &Sender) {
        // The first person's pause stays: one resume ends it.
        if self.state.paused.is_none() {
            self.state.paused = Some(name(from));
            self.state.paused_who = beside_name(from);
            self.state.paused_since = Some(self.now.at);
        }
        self.leave_queue();
    }

    /// Ends a pause and the holds. The label on the Machine has to be removed by a person.
    fn resume(&mut self, from: &Sender) {
        if self.state.retry_refused().is_some() {
            self.state.note = None;
        }
        let paused = self.state.paused.take().is_some();
        self.end_holds(from);
        self.is_asked(PhaseRequest::Resume { paused });
    }

    pub(super) fn hold(&mut self, from: &Sender) {
        if self.too_many_holds(from) {
            self.state.note = Some(format!("{HOLDS_MAX} people hold it already"));
            return;
        }
        self.end_leased_request();
        self.add_hold(name(from), beside_name(from));
        self.is_asked(PhaseRequest::Hold);
    }

    fn request_lease_for(&mut self, by: &Sender, request: LeasedRequest) {
        if self.state.ignored() {
            let note = "nothing is done while the Machine is labelled to be ignored: ask again when the label is gone";
            self.state.note = Some(note.into());
            return;
        }
        let paused = self.state.paused.take().is_some();
        self.set_holds_aside();
        if paused && self.state.phase != Phase::Drained {
            self.is_asked(PhaseRequest::Resume { paused });
        }
        self.state.leased_request = Some(request);
        self.state.request_progress = RequestProgress {
            by: Some(name(by)),
            who: beside_name(by),
            at: Some(self.now.at),
            over_cordon: self.state.is_cordoned_by_others(),
            begun: false,
        };
        self.is_asked(PhaseRequest::Leased);
    }

    /// Approves the change to the present desired version only, not to later ones.
    fn approve(&mut self) {
        let waits = matches!(self.state.phase, Phase::ApprovalWait(_));
        if !waits && !self.state.differs() {
            self.state.note =
                Some("nothing waits for an approval: its host is as it should be".into());
            return;
        }
        self.state.approved = true;
        self.state.approved_for = self.state.desired().map(|desired| desired.version.clone());
        self.is_asked(PhaseRequest::Approve);
    }

    /// Closes the run. If it holds the lease, it first closes the fence and returns the lease.
    fn remove(&mut self, from: &Sender) {
        self.leave_queue();
        if self.state.lease.token().is_some() {
            self.state.note = Some("it holds the lease: abort or finish the upgrade first".into());
            return;
        }
        self.removed_from_rollout();
        // A person closed the run, so it does not restart even if the Machine is listed again.
        self.state.machine_gone = false;
        let by = name(from);
        self.state.note = Some(format!(
            "removed from dormer by {by}; a reset takes that back"
        ));
        self.end_episode("removed");
        self.enter(Phase::Gone);
    }

    /// Pins this key for the next task and all later ones. A step that failed because of the key continues, and a serving
    /// host that could not be compared because of it is compared at once.
    fn trust(&mut self, from: &Sender, fingerprint: String) {
        let failed = self.state.phase.failed().map(|(_, failure)| &failure.code);
        let not_compared = self.state.not_compared.as_ref().map(|it| &it.code);
        let not_compared = not_compared.filter(|_| self.state.phase == Phase::Serving);
        let for_the_key = failed
            .or(not_compared)
            .is_some_and(|it| it == "HostKeyChanged");
        if for_the_key {
            self.state.host.pin = Some(fingerprint.clone());
            self.try_again(from);
        }
        self.state.note = Some(format!(
            "the host key {fingerprint} is trusted, says {}",
            name(from)
        ));
        self.state.host.pin = Some(fingerprint);
    }

    fn granted(&mut self, token: LeaseToken, over_limit: bool) {
        if let Lease::Held { token: held, .. } = self.state.lease
            && held >= token
        {
            return;
        }
        let wanted = self.state.lease == Lease::Wanted;
        if self.state.lease.token().is_none() {
            // What came under the last lease does not count.
            (self.state.host.uncordoned, self.state.host.stopped) = (false, false);
        }
        self.state.allowed_again = false;
        self.state.lease = Lease::Held { token, over_limit };
        self.is_asked(PhaseRequest::Granted { wanted });
    }

    /// Handles the signal that the replacement serves or will not come. Only a run that waits for it reacts.
    fn replaced(&mut self, by: Option<String>) {
        if self.state.phase != Phase::ReplacementWait {
            return;
        }
        self.state.note = Some(by.map_or_else(
            || "no replacement will come: its owner has as many Machines as it wants".into(),
            |by| format!("{REPLACED_BY}{by}"),
        ));
        self.enter(Phase::Gone);
    }

    /// Reports everything again to a rollout that lost its history.
    fn enrol(&mut self) {
        if self.state.ignored() {
            // The rollout does not wait for an ignored machine.
            self.state.reported.get_or_insert_default();
            return self.leave_rollout(Departure::RunRests);
        }
        self.state.reported = None;
        if self.state.lease == Lease::Wanted {
            self.request();
        }
    }
}
