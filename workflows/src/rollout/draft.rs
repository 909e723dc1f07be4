//! Draft of a rollout's decision: the new state, the commands, and the steps after every input.

use super::{
    Rollout, Timer,
    member::{Flag, Member},
    state::{DEPARTED_MAX, Enrolment, OWNERS_MAX, Owner, State, TURNED_AWAY_MAX, Wants},
    uid::Uid,
};
use dormer_engine_core::{Command, Decision, Now};
use dormer_proto::{
    machine,
    rollout::MEMBERS_MAX,
    work::{self, Signal},
};

/// Most machines that are asked to enrol at once. A record with so many questions and the largest event fits into a message
/// (`workflows/tests/rollout_size.rs`); with 512 it would not.
const ASKING_MAX: usize = 256;
/// Time that a Machine may take to enrol by itself before it is asked, in milliseconds.
const ASK_MS: u64 = 30_000;
/// Time that an owner may be unknown before the rollout checks the last full list, in milliseconds: longer than the ten
/// minutes between two full lists.
pub(super) const OWNER_CHECK_MS: u64 = 15 * 60_000;

/// Draft of a decision.
pub(super) struct Draft<'a> {
    pub(super) now: Now<'a>,
    pub(super) state: State,
    commands: Vec<Command<Rollout>>,
    was_busy: bool,
    /// Vacancies with the machines that could end them before this input.
    unserved_candidates: Vec<UnservedCandidate>,
}

/// A candidate that does not serve yet, and the vacancy that it may end.
pub(super) struct UnservedCandidate {
    pub(super) vacancy: Uid,
    pub(super) candidate: Uid,
}

impl<'a> Draft<'a> {
    pub(super) fn new(now: Now<'a>, state: State) -> Self {
        let was_busy = !state.slots.is_empty();
        let unserved_candidates = state.unserved_candidates();
        Self {
            now,
            state,
            commands: Vec::new(),
            was_busy,
            unserved_candidates,
        }
    }

    /// Takes the steps that follow every input.
    pub(super) fn finish(mut self) -> Decision<Rollout> {
        self.complete_enrolment();
        self.notice_deletions();
        let before = std::mem::take(&mut self.unserved_candidates);
        self.notice_lost(&before);
        self.end_vacancies();
        self.grant();
        self.ask_later();
        self.schedule_owner_check();
        self.mark_episode();
        Decision {
            state: self.state,
            commands: self.commands,
        }
    }

    /// Marks an episode, which lasts from a first grant until no slot is held.
    fn mark_episode(&mut self) {
        match (self.was_busy, !self.state.slots.is_empty()) {
            (false, true) => self.push(Command::BeginEpisode("rollout")),
            (true, false) => self.push(Command::EndEpisode("every slot has ended".into())),
            (false, false) | (true, true) => {}
        }
    }

    pub(super) fn push(&mut self, command: Command<Rollout>) {
        self.commands.push(command);
    }

    /// Issues a task.
    pub(super) fn run(&mut self, task: machine::Task) {
        let policy = crate::machine::policy::of(&task);
        self.push(Command::Run(task, policy));
    }

    /// Sends a signal to the machine `uid`. A UID comes from a run's id, and so fits into one.
    pub(super) fn send(&mut self, uid: &Uid, signal: machine::Signal) {
        if let Ok(to) = work::machine_run(&uid.to_string()) {
            self.push(Command::Signal(to, Signal::Machine(signal)));
        }
    }

    /// The next tick.
    pub(super) fn tick(&mut self) -> u64 {
        self.state.tick += 1;
        self.state.tick
    }

    /// The number of the owner with this UID; 0 if there is no room for another.
    pub(super) fn owner(&mut self, uid: &str) -> u16 {
        let uid = Uid::new(uid);
        if let Some((id, _)) = self.state.owners.iter().find(|(_, owner)| owner.uid == uid) {
            return *id;
        }
        if self.state.owners.len() >= OWNERS_MAX {
            self.forget_owners();
        }
        if self.state.owners.len() >= OWNERS_MAX {
            return 0;
        }
        let free = (1..=u16::MAX)
            .find(|id| !self.state.owners.contains_key(id))
            .unwrap_or(0);
        self.state.owners.insert(
            free,
            Owner {
                uid,
                ..Owner::default()
            },
        );
        free
    }

    /// Forgets owners that are gone with all their Machines.
    fn forget_owners(&mut self) {
        let State {
            owners,
            members,
            slots,
            gaps,
            ..
        } = &mut self.state;
        let used = |id: u16| {
            members.values().any(|m| m.owner == id)
                || slots.iter().any(|slot| slot.owner == id)
                || gaps.iter().any(|gap| gap.owner == id)
        };
        owners.retain(|id, owner| matches!(owner.wants, Wants::Replicas(_)) || used(*id));
    }

    /// Makes room for one more member; `false` if there is none. A machine that enrols takes precedence over one that
    /// only its owner names.
    pub(super) fn room_for(&mut self, uid: &Uid, enrols: bool) -> bool {
        if self.has_room(uid) {
            return true;
        }
        enrols && (self.drop_spare(|m| !m.is_stranger()) || self.drop_spare(|_| true))
    }

    fn has_room(&self, uid: &Uid) -> bool {
        let members = &self.state.members;
        members.contains_key(uid) || members.len() < MEMBERS_MAX
    }

    /// Drops one of the members that neither enrolled nor are awaited, if `may_go`; `false` if there is none.
    fn drop_spare(&mut self, may_go: impl Fn(&Member) -> bool) -> bool {
        let spare = |m: &Member| !m.is(Flag::Enrolled) && !m.is(Flag::Awaited) && may_go(m);
        let found = self.state.members.iter().find(|(_, m)| spare(m));
        let Some(found) = found.map(|(uid, _)| uid.clone()) else {
            return false;
        };
        self.drop_member(&found);
        true
    }

    fn drop_member(&mut self, uid: &Uid) {
        let Some(member) = self.state.members.remove(uid) else {
            return;
        };
        if let Some(owner) = self.state.owners.get_mut(&member.owner)
            && member.is(Flag::Listed)
        {
            owner.unnamed += 1;
        }
    }

    /// Turns away a machine over the limit, and asks it again when there is room.
    pub(super) fn turn_away(&mut self, uid: Uid) {
        if self.state.turned_away.len() < TURNED_AWAY_MAX && !self.state.turned_away.contains(&uid)
        {
            self.state.turned_away.push(uid.clone());
        }
        // Nothing else of it is recorded. If its signal is repeated, it is turned away again, or there is room by then.
        if let Ok(run) = work::machine_run(&uid.to_string()) {
            self.push(Command::Forget(run));
        }
    }

    /// Removes a member whose run has closed. While its Machine exists, its owner does not create another.
    pub(super) fn leave(&mut self, uid: &Uid, gone: bool) {
        let Some(member) = self.state.members.get_mut(uid) else {
            return;
        };
        member.left(gone);
        let named = member.is(Flag::Listed) || (!member.leaves() && member.owner != 0);
        if !named {
            self.state.members.remove(uid);
        }
    }

    /// Removes a member whose run has closed for good, and forgets its signals once no repeat can arrive.
    pub(super) fn depart(&mut self, uid: &Uid, gone: bool) {
        self.leave(uid, gone);
        self.state.turned_away.retain(|turned| turned != uid);
        if !self.state.departed.contains(uid) {
            self.state.departed.push_back(uid.clone());
        }
        if self.state.departed.len() > DEPARTED_MAX
            && let Some(oldest) = self.state.departed.pop_front()
            && let Ok(run) = work::machine_run(&oldest.to_string())
        {
            self.push(Command::Forget(run));
        }
        self.ask_turned_away();
    }

    /// Asks a machine that was turned away, if there is room for it now.
    pub(super) fn ask_turned_away(&mut self) {
        if self.state.enrolled() < MEMBERS_MAX
            && let Some(turned) = self.state.turned_away.pop()
        {
            self.send(&turned, machine::Signal::Enrol);
        }
    }

    fn complete_enrolment(&mut self) {
        let awaited = self.state.members.values().any(|m| m.is(Flag::Awaited));
        if self.state.enrolment == Enrolment::Listed && !awaited {
            self.state.enrolment = Enrolment::Complete;
        }
    }

    /// Machines to ask: the awaited ones, members that their owner no longer names, and Machines that it names but that
    /// have not enrolled, for which a slot or gap might wait in vain.
    fn to_ask(&self, member: &Member) -> bool {
        let named = self
            .state
            .owners
            .get(&member.owner)
            .is_some_and(|owner| !owner.name.is_empty());
        let reason = if member.is(Flag::Enrolled) {
            member.is(Flag::Awaited) || (named && !member.is(Flag::Listed))
        } else {
            !member.is(Flag::Left) && !member.leaves()
        };
        reason && !member.is(Flag::Asked)
    }

    fn ask_later(&mut self) {
        if !self.state.asks && self.state.members.values().any(|m| self.to_ask(m)) {
            self.state.asks = true;
            self.push(Command::StartTimer(Timer::Ask, ASK_MS));
        }
    }

    fn ask(&mut self) {
        let room = self.room_to_ask();
        let due = self
            .state
            .members
            .iter()
            .filter(|(_, m)| self.to_ask(m))
            .take(room);
        let due: Vec<_> = due.map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            self.ask_to_enrol(&uid);
        }
    }

    /// How many more machines may be asked now.
    fn room_to_ask(&self) -> usize {
        let members = self.state.members.values();
        ASKING_MAX.saturating_sub(members.filter(|m| m.is(Flag::Asking)).count())
    }

    fn ask_to_enrol(&mut self, uid: &Uid) {
        if let Some(member) = self.state.members.get_mut(uid) {
            member.set(Flag::Asked, true);
            member.set(Flag::Asking, true);
        }
        self.send(uid, machine::Signal::Enrol);
    }

    /// Asks a machine that this rollout does not know, as after the loss of its history: at once, or with the others when
    /// fewer are being asked. It takes precedence over a machine that only its owner names, but over none that is being
    /// asked, so that the questions stay limited.
    pub(super) fn ask_stranger(&mut self, uid: &Uid) {
        let may_go = |m: &Member| !m.is_stranger() && !m.is(Flag::Asking);
        if !self.has_room(uid) && !self.drop_spare(may_go) {
            return self.turn_away(uid.clone());
        }
        let member = self.state.members.entry(uid.clone()).or_default();
        member.set(Flag::Stranger, true);
        if self.room_to_ask() > 0 {
            self.ask_to_enrol(uid);
        }
    }

    fn schedule_owner_check(&mut self) {
        if !self.state.owner_check && self.state.waits_for_an_owner() {
            self.state.owner_check = true;
            self.push(Command::StartTimer(Timer::OwnerCheck, OWNER_CHECK_MS));
        }
    }

    pub(super) fn fired(&mut self, timer: Timer) {
        match timer {
            Timer::Ask => {
                self.state.asks = false;
                self.ask();
            }
            Timer::OwnerCheck => {
                self.state.owner_check = false;
                self.give_up_missing_owners();
            }
        }
    }
}
