//! Holds: who keeps a machine as it is, why, and since when. A drain or a replacement that a person asks for sets the
//! holds aside, and they are in force again when that request has ended.

use super::{
    draft::Draft,
    state::{Halt, Hold, State, person},
};
use dormer_engine_core::Sender;
use dormer_proto::machine::FenceRefusal;

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

impl State {
    /// Holds in force, the oldest first.
    #[must_use]
    pub fn holds(&self) -> Vec<Hold> {
        // As an older build has it.
        let older = match &self.halt {
            Some(Halt::Held { by }) => Some(by),
            Some(Halt::Paused { .. } | Halt::Ignored) | None => None,
        };
        let first = self.held.as_ref().or(older).map(|by| Hold {
            by: by.clone(),
            at: self.held_since,
            why: self.held_why,
        });
        first.into_iter().chain(self.also_held.clone()).collect()
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
            match holds.iter_mut().find(|it| it.person() == hold.person()) {
                Some(same) => {
                    same.by = hold.by;
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
    pub(super) fn add_hold(&mut self, by: String) {
        self.add_hold_for(by, None);
    }

    /// Holds the machine for a person or, with `why`, for dormer itself until a person has ended the cause.
    pub(super) fn add_hold_for(&mut self, by: String, why: Option<FenceRefusal>) {
        let at = Some(self.now.at);
        self.s.add_holds(vec![Hold { by, at, why }]);
    }

    /// Whether a further hold of this person would be one too many.
    pub(super) fn too_many_holds(&self, by: &str) -> bool {
        let mut holds = self.s.holds();
        holds.extend(self.s.set_aside.clone());
        holds.len() >= HOLDS_MAX && holds.iter().all(|hold| hold.person() != person(by))
    }

    /// Holds the machine for dormer itself, until a paused controller, a label, a cordon or a lost owner is no cause any
    /// more.
    pub(super) fn hold_for_pause(&mut self, by: String, why: Option<FenceRefusal>) {
        self.s.held = Some(by);
        self.s.held_why = why;
        self.s.held_since = Some(self.now.at);
        self.s.held_for_pause = true;
    }

    /// Sets the holds of people aside, for a request that overrides them.
    pub(super) fn set_holds_aside(&mut self) {
        let holds = self.s.take_holds();
        self.s.set_aside.extend(holds);
    }

    /// Ends a person's request. The holds that it had set aside are in force again.
    pub(super) fn end_leased_request(&mut self) {
        self.s.leased_request = None;
        self.holds_are_back();
    }

    /// Brings back the holds that were set aside, unless a person's request still overrides them.
    pub(super) fn holds_are_back(&mut self) {
        if self.s.leased_request.is_none() && !self.s.set_aside.is_empty() {
            let mut back = std::mem::take(&mut self.s.set_aside);
            // The older hold is the first.
            back.extend(self.s.take_holds());
            self.s.add_holds(back);
        }
    }

    /// Ends the holds, as a person asks: if several people hold it, first one's own.
    pub(super) fn end_holds(&mut self, from: &Sender) {
        let mut holds = self.s.take_holds();
        let asker = name(from);
        let mine = |hold: &Hold| hold.person() == person(&asker);
        if !holds.iter().any(mine) {
            holds.clear();
        }
        holds.retain(|hold| !mine(hold));
        self.s.set_holds(holds);
    }
}
