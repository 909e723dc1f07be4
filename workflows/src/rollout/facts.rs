//! Facts from the watcher: settings, owners, and which Machines have a Node.

use super::{
    draft::Draft,
    member::{Flag, Member},
    state::{
        BUILDS_MAX, Enrolment, OWNERS_MAX, Rollback, RollbackStep, Settings, Source, TargetPayload,
        Wants,
    },
    uid::Uid,
};
use dormer_engine_core::Command;
use dormer_proto::{
    message::ObjectRef,
    other_operator::OtherOperator,
    pool::{Approval, PoolSettings, other_build},
    rollout::{Fact, OwnedMachine, OwnerFact},
    work,
};

impl Draft<'_> {
    pub(super) fn observed(&mut self, object: &ObjectRef, fact: Option<work::Fact>) {
        match fact {
            Some(work::Fact::Rollout(Fact::Pool(pool))) => self.on_pool(&pool),
            Some(work::Fact::Rollout(Fact::Owner(owner))) => self.on_owner(&owner),
            Some(work::Fact::Rollout(Fact::Listed { with_node, sets })) => {
                // With more sets than the limit, the list allows no conclusion.
                let sets = sets.filter(|sets| sets.len() <= OWNERS_MAX);
                self.state.sets = sets.map(|sets| sets.iter().map(|uid| Uid::new(uid)).collect());
                self.unlisted_owners_are_gone();
                self.listed(&with_node);
            }
            None => self.owner_gone(&Uid::new(&object.uid)),
            // A machine's fact; the pool's settings come in a rollout's.
            Some(work::Fact::Machine(_)) => {}
        }
    }

    fn on_pool(&mut self, pool: &PoolSettings) {
        // A failed read does not prove an absence.
        let known = match self.state.neighbour() {
            Some(runs) => OtherOperator::Runs(runs.to_owned()),
            None => OtherOperator::Unread,
        };
        let neighbour = pool.neighbour.clone().after(&known);
        let before = self.state.source.as_ref();
        let asked =
            before.is_some_and(|it| it.override_ended && it.spec_payload == pool.spec_payload);
        self.state.source = source(pool, &neighbour);
        if let Some(written) = &pool.spec_payload
            && pool.override_ended
            && !asked
        {
            self.clear_override(written);
        }
        if let Some(version) = self.note_builds(pool) {
            // As without a pool: the last settings still hold for machines in progress.
            let (why, cure) = other_build(&version);
            let source = self.state.source.get_or_insert_default();
            source.held = Some(why);
            source.held_cure = Some(cure.to_owned());
            if let Some(known) = &mut self.state.settings {
                known.paused = true;
            }
            return;
        }
        let settings = Settings {
            max_unavailable: pool.max_unavailable,
            paused: pool.paused,
            manual: pool.approval == Approval::Manual,
            max_repairs: pool.max_repairs,
        };
        if pool.absent && self.state.settings.is_some() {
            // The last settings still hold for machines in progress; no other machine begins.
            if let Some(known) = &mut self.state.settings {
                known.paused = true;
            }
            return;
        }
        self.state.settings = Some(settings);
        // Every Windows build has the same payload; only the hash differs.
        let payload = pool
            .desired
            .values()
            .next()
            .map(|desired| desired.payload.clone());
        self.state.payload = payload.map(|payload| {
            let terms = pool.terms.get(&payload).cloned().unwrap_or_default();
            TargetPayload { payload, terms }
        });
        let over = |rollback: &mut Rollback| match (&rollback.instead, &pool.spec_payload) {
            (Some(instead), Some(written)) => instead != written,
            (None, _) | (Some(_), None) => {
                let wanted = self.state.payload.as_ref().map(|wanted| &wanted.payload);
                wanted.is_some_and(|it| *it != rollback.to && *it != rollback.from)
            }
        };
        self.state.rollback.take_if(over);
        // Also an end that was written, but that no worker could report.
        let ended = |it: &mut Rollback| {
            let written = matches!(it.step, RollbackStep::Ended(_) | RollbackStep::NotEnded(_));
            written && it.instead.is_some() && pool.overridden_by.is_none()
        };
        self.state.rollback.take_if(ended);
        self.repeat_rollback(pool);
    }

    /// Remembers the build of each payload. Returns a version that is known with another build.
    fn note_builds(&mut self, pool: &PoolSettings) -> Option<String> {
        let builds = &mut self.state.builds;
        for (version, terms) in &pool.terms {
            match (builds.get(version), &terms.build) {
                (Some(known), Some(build)) if known != build => return Some(version.clone()),
                (None, Some(build)) => {
                    builds.insert(version.clone(), build.clone());
                }
                _ => {}
            }
        }
        while builds.len() > BUILDS_MAX {
            // The pool wants only a few, so another one is there.
            let others = builds.keys().filter(|it| !pool.terms.contains_key(*it));
            let Some(oldest) = others.min_by_key(|it| numbers(it)).cloned() else {
                break;
            };
            builds.remove(&oldest);
        }
        None
    }

    /// Writes a rollback of the history into the pool's status again, if it is missing there: the pool was recreated,
    /// or its status was lost.
    fn repeat_rollback(&mut self, pool: &PoolSettings) {
        let wanted = self.state.payload.as_ref().map(|wanted| &wanted.payload);
        let lost = |it: &&Rollback| {
            let stood = it.step == RollbackStep::Written && it.instead.is_some();
            stood && pool.overridden_by.is_none() && wanted == Some(&it.from)
        };
        if let Some(rollback) = self.state.rollback.as_ref().filter(lost).cloned() {
            self.write_rollback(rollback);
        }
    }

    fn on_owner(&mut self, fact: &OwnerFact) {
        let id = self.owner(&fact.uid);
        if id == 0 {
            return;
        }
        self.notice_fewer(id, fact.replicas);
        // A machine that left and still exists will be listed later.
        let unnamed_yet = |m: &Member| m.is(Flag::Left) && !m.is(Flag::Listed);
        let ours = self
            .state
            .members
            .iter()
            .filter(|(_, m)| m.owner == id && unnamed_yet(m));
        let waits: Vec<Uid> = ours.map(|(uid, _)| uid.clone()).collect();
        for member in self.state.members.values_mut().filter(|m| m.owner == id) {
            member.set(Flag::Listed, false);
        }
        let mut unnamed = 0;
        for machine in &fact.machines {
            unnamed += u32::from(!self.names(id, machine) && !machine.deleting);
        }
        // A Machine that no owner names and that never enrolled is gone.
        self.state.members.retain(|uid, m| {
            let known = m.is(Flag::Listed) || m.is(Flag::Enrolled) || m.is(Flag::Awaited);
            m.owner != id || known || waits.contains(uid)
        });
        if let Some(owner) = self.state.owners.get_mut(&id) {
            owner.name.clone_from(&fact.name);
            owner.wants = Wants::Replicas(fact.replicas);
            owner.unnamed = unnamed;
            owner.autoscaled = fact.autoscaled;
            // An older watcher does not report how many are ready; then nothing is shown.
            let has = u32::try_from(fact.machines.len()).unwrap_or(u32::MAX);
            owner.has = fact.ready.map(|_| has);
            (owner.ready, owner.available) = (fact.ready, fact.available);
        }
    }

    /// Adds a Machine that an owner names; `false`: there is no room.
    fn names(&mut self, owner: u16, machine: &OwnedMachine) -> bool {
        let uid = Uid::new(&machine.uid);
        if !self.room_for(&uid, false) {
            return false;
        }
        let left = self.state.departed.contains(&uid);
        let member = self.state.members.entry(uid).or_default();
        if member.is(Flag::Enrolled) {
            // The rollout asks it again if its owner no longer names it.
            member.set(Flag::Asked, false);
        } else {
            (member.created, member.owner) = (machine.created, owner);
            if left && !member.is(Flag::Left) {
                // An outdated fact: the Machine is gone, or it would be a member.
                member.left(true);
            }
        }
        member.set(Flag::Listed, true);
        member.set(Flag::OwnerDeletes, machine.deleting);
        if member.leaves() {
            member.wants = 0;
        }
        true
    }

    /// Treats owners as gone that a full list lacks: they were deleted while no watcher ran, or dormer's store was restored
    /// beside another cluster. A watcher that starts reports no deletion of a set that it never saw.
    fn unlisted_owners_are_gone(&mut self) {
        let Some(sets) = &self.state.sets else { return };
        let known = |wants: Wants| matches!(wants, Wants::Replicas(_));
        let owners = self.state.owners.values();
        let gone = owners.filter(|it| known(it.wants) && !sets.contains(&it.uid));
        let gone: Vec<Uid> = gone.map(|owner| owner.uid.clone()).collect();
        for uid in gone {
            self.owner_gone(&uid);
            // If the set exists after all, its next fact counts as new.
            self.push(Command::ForgetFact(ObjectRef {
                cluster: String::new(),
                kind: "MachineSet".to_owned(),
                uid: uid.to_string(),
            }));
        }
    }

    fn owner_gone(&mut self, uid: &Uid) {
        let Some((id, owner)) = self
            .state
            .owners
            .iter_mut()
            .find(|(_, owner)| owner.uid == *uid)
        else {
            return;
        };
        let id = *id;
        owner.wants = Wants::Gone;
        owner.unnamed = 0;
        (owner.has, owner.ready, owner.available) = (None, None, None);
        self.state
            .members
            .retain(|_, m| m.owner != id || m.is(Flag::Enrolled) || m.is(Flag::Awaited));
    }

    /// Begins the enrolment. Only a run that has never known its whole pool waits for a list.
    fn listed(&mut self, with_node: &[String]) {
        if self.state.enrolment == Enrolment::Complete {
            return;
        }
        self.state.enrolment = Enrolment::Listed;
        for member in self.state.members.values_mut() {
            member.set(Flag::Awaited, false);
        }
        for text in with_node {
            let uid = Uid::new(text);
            if !self.room_for(&uid, true) {
                self.turn_away(uid);
                continue;
            }
            let member = self.state.members.entry(uid).or_default();
            // One that was seen without a Node before is not adopted yet.
            let said =
                member.is(Flag::HadNode) || member.is(Flag::Joined) || member.is(Flag::Failed);
            let over = member.leaves() || member.is(Flag::Left);
            member.set(Flag::Awaited, !(said || over));
        }
        let known = [Flag::Listed, Flag::Enrolled, Flag::Awaited, Flag::Left];
        self.state
            .members
            .retain(|_, m| m.is_stranger() || known.into_iter().any(|flag| m.is(flag)));
    }
}

/// Origin of the settings, if their watcher reports it.
fn source(pool: &PoolSettings, neighbour: &OtherOperator) -> Option<Source> {
    let source = Source {
        held: pool.held.clone(),
        held_cure: pool.held_cure.clone(),
        spec_payload: pool.spec_payload.clone(),
        overridden_by: pool.overridden_by.clone(),
        override_ended: pool.override_ended,
        generation: pool.generation,
        edited: pool.edited.clone(),
        refused: pool.refused.clone(),
        waits: pool.waits.clone(),
        waits_cure: pool.waits_cure.clone(),
        neighbour: neighbour.runs().map(str::to_owned),
    };
    (source != Source::default()).then_some(source)
}

/// Numbers of a version, by which versions are in order.
fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}
