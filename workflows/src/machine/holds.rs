//! Holds: who keeps a machine as it is, why, and since when. A drain or a replacement that a person asks for sets the
//! holds aside, and they are in force again when that request has ended.

use super::{
    draft::Draft,
    halt::{Halt, Hold},
    policy,
    state::State,
};
use dormer_engine_core::Sender;
use dormer_proto::{held_by::HeldBy, id::Timestamp, machine::FenceRefusal, requester::Requester};

/// Most holds of one machine. A further person's hold is refused.
pub(super) const HOLDS_MAX: usize = 16;

/// Person and reason, for people.
pub(super) fn name(from: &Sender) -> String {
    match from {
        Sender::Run(run) => run.to_string(),
        Sender::Person { who, why } if why.is_empty() => who.clone(),
        Sender::Person { who, why } => format!("{who}: {why}"),
    }
}

/// The person alone.
fn asker(from: &Sender) -> String {
    match from {
        Sender::Run(run) => run.to_string(),
        Sender::Person { who, .. } => who.clone(),
    }
}

/// The person as a record has them beside [`name`].
pub(super) fn beside_name(from: &Sender) -> Option<String> {
    Requester::beside(&asker(from))
}

impl State {
    /// Whether its Machine has the label `ignore=true`. Only the Machine decides that.
    #[must_use]
    pub fn ignored(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.ignored)
    }

    /// Reasons that nothing new starts on it, the strongest first. Each ends separately: the label by its removal, a
    /// pause and a hold by a person's resume.
    #[must_use]
    pub fn halts(&self) -> Vec<Halt> {
        let halts = self.halts_since().into_iter();
        halts.map(|(halt, _)| halt).collect()
    }

    /// When the step failed first that a person has retried since.
    #[must_use]
    pub fn failing_since(&self) -> Option<Timestamp> {
        let failing = self.failing.as_ref().filter(|it| it.retries > 0)?;
        Some(failing.first)
    }

    /// [`State::halts`], and when each of them began, if that is known.
    #[must_use]
    pub fn halts_since(&self) -> Vec<(Halt, Option<Timestamp>)> {
        // As an older build has it.
        let older = match &self.halt {
            Some(Halt::Paused { by, who }) => Some((by, who)),
            Some(Halt::Held { .. } | Halt::Ignored) | None => None,
        };
        let present = self.paused.as_ref().map(|by| (by, &self.paused_who));
        let ignored = self.ignored().then_some((Halt::Ignored, None));
        let paused = present.or(older).map(|(by, who)| {
            let by = by.clone();
            let who = who.clone();
            (Halt::Paused { by, who }, self.paused_since)
        });
        let held = self.holds().into_iter();
        let held = held.map(|hold| {
            let Hold {
                by,
                who,
                holder,
                at,
                ..
            } = hold;
            (Halt::Held { by, holder, who }, at)
        });
        let mut halts: Vec<_> = ignored.into_iter().chain(paused).chain(held).collect();
        if let Some((_, since)) = halts.first_mut() {
            *since = since.or(self.halted_since);
        }
        halts
    }

    /// Converts the halt of a build that stores only one.
    pub(super) fn take_over_halt(&mut self) {
        match self.halt.take() {
            Some(Halt::Paused { by, who }) if self.paused.is_none() => {
                self.paused = Some(by);
                self.paused_who = who;
            }
            Some(Halt::Held { by, holder, who }) if self.held.is_none() => {
                self.held = Some(by);
                self.held_who = who;
                self.held_by = holder;
            }
            Some(Halt::Paused { .. } | Halt::Held { .. } | Halt::Ignored) | None => {}
        }
    }

    /// Holds in force, the oldest first.
    #[must_use]
    pub fn holds(&self) -> Vec<Hold> {
        // As an older build has it.
        let older = match &self.halt {
            Some(Halt::Held { by, holder, who }) => Some((by, *holder, who)),
            Some(Halt::Paused { .. } | Halt::Ignored) | None => None,
        };
        let held = self.held.as_ref();
        let present = held.map(|by| (by, self.held_by, &self.held_who));
        let first = present.or(older).map(|(by, holder, who)| Hold {
            by: by.clone(),
            who: who.clone(),
            at: self.held_since,
            why: self.held_why,
            holder,
        });
        first.into_iter().chain(self.also_held.clone()).collect()
    }

    /// A new run's state with the pauses and holds of this one.
    pub(super) fn pauses_and_holds(&self) -> Self {
        Self {
            halt: self.halt.clone(),
            paused: self.paused.clone(),
            paused_who: self.paused_who.clone(),
            paused_since: self.paused_since,
            held: self.held.clone(),
            held_who: self.held_who.clone(),
            held_by: self.held_by,
            held_for_pause: self.held_for_pause,
            held_why: self.held_why,
            held_since: self.held_since,
            also_held: self.also_held.clone(),
            set_aside: self.set_aside.clone(),
            ..Self::default()
        }
    }

    /// Whether a person, or a policy in a person's name, holds it. dormer's own hold ends by itself.
    fn held_by_a_person(&self) -> bool {
        self.held.is_some() && !self.held_for_pause
    }

    fn set_holds(&mut self, holds: Vec<Hold>) {
        let mut holds = holds.into_iter();
        let first = holds.next();
        self.held_since = first.as_ref().and_then(|hold| hold.at);
        self.held_why = first.as_ref().and_then(|hold| hold.why);
        self.held_by = first.as_ref().and_then(|hold| hold.holder);
        self.held_who = first.as_ref().and_then(|hold| hold.who.clone());
        self.held = first.map(|hold| hold.by);
        self.held_for_pause = false;
        self.also_held = holds.collect();
    }

    /// Why dormer itself holds it, for its steps: the first cause of all holds.
    #[must_use]
    pub fn hold_cause(&self) -> Option<FenceRefusal> {
        self.holds().iter().find_map(|hold| hold.why)
    }

    /// Removes every hold, and returns those of people.
    fn take_holds(&mut self) -> Vec<Hold> {
        let by_people = self.held_by_a_person();
        let holds = self.holds();
        self.set_holds(Vec::new());
        if by_people { holds } else { Vec::new() }
    }

    /// Adds holds to those in force. A person has one hold: a later one of theirs changes its reason. dormer's own hold ends.
    fn add_holds(&mut self, new: Vec<Hold>) {
        let mut holds = self.take_holds();
        for hold in new {
            match holds.iter_mut().find(|it| it.is_of_the_same(&hold)) {
                Some(same) => {
                    same.by = hold.by;
                    same.who = hold.who;
                    same.why = hold.why;
                }
                None => holds.push(hold),
            }
        }
        self.set_holds(holds);
    }
}

impl Draft<'_> {
    /// Holds the machine for a person, or for a policy.
    pub(super) fn add_hold(&mut self, by: String, who: Option<String>) {
        self.state.add_holds(vec![Hold {
            by,
            who,
            at: Some(self.now.at),
            why: None,
            holder: Some(HeldBy::Person),
        }]);
    }

    /// Holds the machine for dormer itself, until a person has ended the cause.
    pub(super) fn add_own_hold(&mut self, cause: &str, why: FenceRefusal) {
        self.state.add_holds(vec![Hold {
            by: HeldBy::own_text(cause),
            who: None,
            at: Some(self.now.at),
            why: Some(why),
            holder: Some(HeldBy::Dormer),
        }]);
    }

    /// Whether a further hold of this person would be one too many.
    pub(super) fn too_many_holds(&self, from: &Sender) -> bool {
        let mut holds = self.state.holds();
        holds.extend(self.state.set_aside.clone());
        let asker = asker(from);
        holds.len() >= HOLDS_MAX && !holds.iter().any(|hold| hold.is_of(&asker))
    }

    /// Holds the machine for dormer itself, until a paused controller, a label, a cordon or a lost owner is no cause any
    /// more.
    pub(super) fn hold_for_pause(&mut self, cause: &str, why: Option<FenceRefusal>) {
        self.state.held = Some(HeldBy::own_text(cause));
        self.state.held_who = None;
        self.state.held_by = Some(HeldBy::Dormer);
        self.state.held_why = why;
        self.state.held_since = Some(self.now.at);
        self.state.held_for_pause = true;
    }

    /// Ends dormer's own hold, whose cause is a paused controller, a label, a cordon or a lost owner. If the cause
    /// remains, the next live read before a change holds the machine again.
    pub(super) fn end_own_hold(&mut self) {
        if std::mem::take(&mut self.state.held_for_pause) {
            self.state.held = None;
            self.state.held_by = None;
            self.state.held_since = None;
            self.state.held_why = None;
        }
    }

    /// Whether dormer's own hold has lasted for as long as a serving machine waits for its next comparison, which ends it.
    pub(super) fn own_hold_is_over(&self) -> bool {
        let lasted = self.state.held_since.map(|at| self.now.at.since_ms(at));
        self.state.held_for_pause && lasted.is_none_or(|ms| ms >= policy::CHECK_AGAIN)
    }

    /// Sets the holds of people aside, for a request that overrides them.
    pub(super) fn set_holds_aside(&mut self) {
        let holds = self.state.take_holds();
        self.state.set_aside.extend(holds);
    }

    /// Ends a person's request. The holds that it had set aside are in force again.
    pub(super) fn end_leased_request(&mut self) {
        self.state.leased_request = None;
        self.restore_holds();
    }

    /// Brings back the holds that were set aside, unless a person's request still overrides them.
    pub(super) fn restore_holds(&mut self) {
        if self.state.leased_request.is_none() && !self.state.set_aside.is_empty() {
            let mut back = std::mem::take(&mut self.state.set_aside);
            // The older hold is the first.
            back.extend(self.state.take_holds());
            self.state.add_holds(back);
        }
    }

    /// Ends the holds, as a person asks: if several people hold it, first one's own.
    pub(super) fn end_holds(&mut self, from: &Sender) {
        let mut holds = self.state.take_holds();
        let asker = asker(from);
        let mine = |hold: &Hold| hold.is_of(&asker);
        if !holds.iter().any(mine) {
            holds.clear();
        }
        holds.retain(|hold| !mine(hold));
        self.state.set_holds(holds);
    }
}
