//! Vacancies: slots of deleted machines, and gaps. They end when a candidate is Joined, or when the owner wants no replacement.

use super::{
    draft::{Draft, OWNER_CHECK_MS, UnservedCandidate},
    member::{Flag, Member},
    state::{Gap, Loss, Slot, State, Wants},
    uid::Uid,
};
use dormer_proto::{
    id::{LeaseToken, Timestamp},
    machine,
};

/// Largest difference between the clocks of two API servers, in milliseconds: a replacement may seem this much older
/// than the deletion that caused it.
const SKEW_MS: u64 = 10_000;

/// A slot or gap that waits for a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vacancy {
    /// Machine that is gone or leaving.
    pub(super) uid: Uid,
    /// Number of its owner among [`State::owners`]; 0: none.
    pub(super) owner: u16,
    /// Its deletion.
    pub(super) loss: Loss,
    /// Grant of the slot, or opening of the gap, by the engine's clock.
    pub(super) since: Timestamp,
}

impl From<&Gap> for Vacancy {
    fn from(gap: &Gap) -> Self {
        Self {
            uid: gap.uid.clone(),
            owner: gap.owner,
            loss: gap.loss,
            since: gap.at,
        }
    }
}

impl Vacancy {
    fn of(slot: &Slot) -> Option<Self> {
        Self::expected(slot).filter(|_| slot.vacant)
    }

    /// Also of a slot whose Machine is being deleted and not gone yet: its replacement may come before that.
    fn expected(slot: &Slot) -> Option<Self> {
        let loss = slot.loss?;
        Some(Self {
            uid: slot.uid.clone(),
            owner: slot.owner,
            loss,
            since: slot.at,
        })
    }

    /// Whether `member` may be the replacement. A machine that served or was created before the deletion may not. Time
    /// stamps have whole seconds and come from API servers whose clocks differ, so [`SKEW_MS`] is tolerated.
    fn fits(&self, uid: &Uid, member: &Member) -> bool {
        let unserved_before = member.served == 0 || member.served > self.loss.tick;
        let created_after = self
            .loss
            .deleted
            .is_none_or(|at| member.created.plus_ms(SKEW_MS) >= at);
        let same_owner = self.owner != 0 && member.owner == self.owner && *uid != self.uid;
        let eligible = !member.is(Flag::Claimed) && !member.is(Flag::Left) && !member.leaves();
        same_owner && unserved_before && created_after && eligible
    }
}

impl State {
    /// Slots and gaps that wait for a replacement.
    pub(super) fn vacancies(&self) -> Vec<Vacancy> {
        let slots = self.slots.iter().filter_map(Vacancy::of);
        slots.chain(self.gaps.iter().map(Vacancy::from)).collect()
    }

    /// [`State::vacancies`], and those that begin once a Machine that is being deleted is gone.
    pub(super) fn expected_vacancies(&self) -> Vec<Vacancy> {
        let slots = self.slots.iter().filter_map(Vacancy::expected);
        slots.chain(self.gaps.iter().map(Vacancy::from)).collect()
    }

    /// Machines that may end `vacancy`.
    pub(super) fn candidates<'a>(
        &'a self,
        vacancy: &'a Vacancy,
    ) -> impl Iterator<Item = (&'a Uid, &'a Member)> {
        self.members.iter().filter(|(uid, m)| vacancy.fits(uid, m))
    }

    /// Machines of the owner that would be candidates if they were not to be ignored.
    pub(super) fn ignored_candidates<'a>(
        &'a self,
        vacancy: &'a Vacancy,
    ) -> impl Iterator<Item = &'a Uid> {
        let ours =
            move |member: &Member| member.owner == vacancy.owner && member.is(Flag::NeverServed);
        let ignored = self.members.iter().filter(move |(_, m)| ours(m));
        ignored.map(|(uid, _)| uid)
    }

    /// Whether the owner needs no more Machines: it has as many as it wants, not counting those that are deleted, being
    /// deleted, or ignored since before they ever served. True for an owner that this rollout does not know, or that is
    /// gone; false for one whose number is not known yet.
    fn needs_no_more(&self, vacancy: &Vacancy) -> bool {
        let Some(owner) = self.owners.get(&vacancy.owner) else {
            return true;
        };
        let wanted = match owner.wants {
            Wants::Unknown => return false,
            Wants::Gone => return true,
            Wants::Replicas(wanted) => wanted as usize,
        };
        let missing = |uid: &Uid| {
            self.gaps.iter().any(|gap| gap.uid == *uid)
                || self
                    .slots
                    .iter()
                    .any(|slot| slot.vacant && slot.uid == *uid)
        };
        let stays = |uid: &Uid, member: &Member| {
            let not_counted = member.leaves() || member.is(Flag::NeverServed);
            member.owner == vacancy.owner
                && member.is(Flag::Listed)
                && !not_counted
                && !missing(uid)
        };
        let live = self.members.iter().filter(|(uid, m)| stays(uid, m)).count();
        // A Machine for which there was no room may be the candidate: then the vacancy waits for it.
        owner.unnamed == 0 && live >= wanted
    }

    /// Candidates of each vacancy that do not serve yet.
    pub(super) fn unserved_candidates(&self) -> Vec<UnservedCandidate> {
        let mut found = Vec::new();
        for vacancy in &self.vacancies() {
            let unserved = self.candidates(vacancy).filter(|(_, m)| m.served == 0);
            found.extend(unserved.map(|(uid, _)| UnservedCandidate {
                vacancy: vacancy.uid.clone(),
                candidate: uid.clone(),
            }));
        }
        found
    }

    /// Whether the cluster autoscaler shrinks this owner below what it wanted when the vacancy began: a replacement was
    /// deleted before it served, because its Node came too late. One vacancy after another would then shrink the set to
    /// its minimum (docs/field-notes.md, Machines of OpenShift). The number of any other owner is a person's.
    pub(super) fn eroded(&self, vacancy: &Vacancy) -> bool {
        let owner = self.owners.get(&vacancy.owner);
        let wants = owner.filter(|it| it.autoscaled).map(|it| it.wants);
        match (wants, vacancy.loss.wanted) {
            (Some(Wants::Replicas(wants)), Some(wanted)) => vacancy.loss.unserved && wants < wanted,
            _ => false,
        }
    }

    pub(super) fn waits_for_an_owner(&self) -> bool {
        let unknown = |v: &Vacancy| {
            self.owners
                .get(&v.owner)
                .is_some_and(|owner| owner.wants == Wants::Unknown)
        };
        self.vacancies().iter().any(unknown)
    }
}

impl Draft<'_> {
    /// Merges reports of a deletion: the owner's may come before the member's own.
    pub(super) fn notice_deletions(&mut self) {
        let State {
            members,
            slots,
            gaps,
            ..
        } = &self.state;
        let is_due = |uid: &Uid, member: &Member| {
            let opens = member.is(Flag::HadNode) && member.owner != 0 && !member.is(Flag::GapEnded);
            let gap = gaps.iter().any(|gap| gap.uid == *uid);
            let slot = slots.iter().find(|slot| slot.uid == *uid);
            member.leaves() && slot.map_or(opens && !gap, |slot| slot.loss.is_none())
        };
        let due = members.iter().filter(|(uid, m)| is_due(uid, m));
        let due: Vec<_> = due.map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            self.deletion_known(&uid, None);
        }
    }

    /// Notes which vacancies have lost a candidate of `before`.
    pub(super) fn notice_lost(&mut self, before: &[UnservedCandidate]) {
        let State {
            members,
            slots,
            gaps,
            ..
        } = &mut self.state;
        let lost = |of: &Uid| {
            let mut candidates = before.iter().filter(|it| it.vacancy == *of);
            let gone = |member: &Member| member.leaves() || member.is(Flag::Left);
            candidates.any(|it| members.get(&it.candidate).is_none_or(gone))
        };
        let slots = slots.iter_mut().filter_map(|slot| {
            let loss = slot.loss.as_mut()?;
            Some((&slot.uid, loss))
        });
        let gaps = gaps.iter_mut().map(|gap| (&gap.uid, &mut gap.loss));
        for (uid, loss) in slots.chain(gaps) {
            loss.unserved |= lost(uid);
        }
    }

    /// Notes for each vacancy of an owner how many Machines it wanted, before it wants only `now`.
    pub(super) fn notice_fewer(&mut self, owner: u16, now: u32) {
        let wants = self.state.owners.get(&owner).map(|owner| owner.wants);
        let Some(Wants::Replicas(before)) = wants else {
            return;
        };
        if before <= now {
            return;
        }
        let slots = self.state.slots.iter_mut().filter(|it| it.owner == owner);
        let slots = slots.filter_map(|slot| slot.loss.as_mut());
        let gaps = self.state.gaps.iter_mut().filter(|it| it.owner == owner);
        for loss in slots.chain(gaps.map(|gap| &mut gap.loss)) {
            loss.wanted.get_or_insert(before);
        }
    }

    /// A person says that the owners are to have as many Machines as they want now: no vacancy counts as [`State::eroded`].
    pub(super) fn accept_fewer(&mut self) {
        let slots = self
            .state
            .slots
            .iter_mut()
            .filter_map(|slot| slot.loss.as_mut());
        let gaps = self.state.gaps.iter_mut().map(|gap| &mut gap.loss);
        for loss in slots.chain(gaps) {
            loss.unserved = false;
        }
    }

    /// Ends every slot and gap that has its replacement or will get none.
    pub(super) fn end_vacancies(&mut self) {
        while let Some((vacancy, by)) = self.next_end() {
            if let Some(by) = &by
                && let Some(member) = self.state.members.get_mut(by)
            {
                member.set(Flag::Claimed, true);
            }
            self.end(&vacancy, by);
        }
    }

    /// Next vacancy that ends, and its replacement: each replacement ends the youngest vacancy that it fits. Another
    /// candidate may be too old for that one, and still fit an older one.
    fn next_end(&self) -> Option<(Vacancy, Option<Uid>)> {
        let mut vacancies = self.state.vacancies();
        vacancies.sort_by_key(|v| std::cmp::Reverse((v.loss.deleted, v.loss.tick)));
        let joined = |v: &Vacancy| {
            let by = self.state.candidates(v).find(|(_, m)| m.is(Flag::Joined));
            by.map(|(uid, _)| (v.clone(), Some(uid.clone())))
        };
        let none = |v: &&Vacancy| {
            let no_candidate = self.state.candidates(v).next().is_none();
            v.owner == 0 || (no_candidate && self.state.needs_no_more(v) && !self.state.eroded(v))
        };
        let replaced = vacancies.iter().find_map(joined);
        replaced.or_else(|| vacancies.iter().find(none).map(|v| (v.clone(), None)))
    }

    fn end(&mut self, vacancy: &Vacancy, by: Option<Uid>) {
        let slots = self.state.slots.len();
        self.state.slots.retain(|slot| slot.uid != vacancy.uid);
        if self.state.slots.len() < slots {
            let by = by.map(|by| by.to_string());
            return self.send(&vacancy.uid, machine::Signal::Replaced { by });
        }
        self.state.gaps.retain(|gap| gap.uid != vacancy.uid);
        if let Some(member) = self.state.members.get_mut(&vacancy.uid) {
            member.set(Flag::GapEnded, true);
        }
    }

    /// Treats owners as gone that had no fact for [`OWNER_CHECK_MS`] and are not in the last full list. Without such a
    /// list they stay unknown, and their vacancies keep waiting.
    pub(super) fn give_up_missing_owners(&mut self) {
        let Some(sets) = &self.state.sets else { return };
        let at = self.now.at;
        let old = self
            .state
            .vacancies()
            .into_iter()
            .filter(|v| at.since_ms(v.since) >= OWNER_CHECK_MS);
        let owners: Vec<u16> = old.map(|v| v.owner).collect();
        for (id, owner) in &mut self.state.owners {
            let unknown = owner.wants == Wants::Unknown && owners.contains(id);
            if unknown && !sets.contains(&owner.uid) {
                owner.wants = Wants::Gone;
            }
        }
    }

    /// A fresh slot for `token`.
    pub(super) fn slot(&self, uid: &Uid, token: LeaseToken, owner: u16) -> Slot {
        Slot {
            token,
            uid: uid.clone(),
            owner,
            over_limit: false,
            first: false,
            seq: self.now.seq,
            at: self.now.at,
            loss: None,
            vacant: false,
        }
    }
}
