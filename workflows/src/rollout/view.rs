//! View of a rollout: unavailable machines, the queue, the slots, and what delays the next grant.

use super::{
    member::{Flag, Member},
    state::{Enrolment, Owner, Rollback, RollbackStep, State, Wants},
    uid::Uid,
    vacancy::Vacancy,
};
use dormer_proto::{
    code,
    id::{LeaseToken, Seq, Timestamp},
    message::listed,
    phase::{RolloutState, Unavailable},
    pool::{PoolEdit, Terms},
    rollout::NotCompared,
};

/// Most machines that one sentence names. The rest is a count.
const NAMED_MAX: usize = 3;

/// A rollout as the HTTP API shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Whether leases are granted.
    pub state: RolloutState,
    /// Members enrolled.
    pub members: usize,
    /// Members that are Joined.
    pub joined: usize,
    /// Members that are Failed.
    pub failed: usize,
    /// Number of unavailable machines.
    pub unavailable: usize,
    /// Most that may be unavailable; `None`: the settings are not known yet.
    pub max_unavailable: Option<usize>,
    /// Whether upgrades wait for a person's approval, machine by machine.
    pub manual_approval: bool,
    /// The highest lease token ever granted or found.
    pub token: LeaseToken,
    /// Unavailable machines, each once: as many as [`View::unavailable`].
    pub away: Vec<Away>,
    /// Machines that wait for the lease, first to last.
    pub queue: Vec<Waiting>,
    /// Slots, oldest first.
    pub slots: Vec<SlotView>,
    /// Gaps, oldest first.
    pub gaps: Vec<GapView>,
    /// Machines with a Node that have not enrolled yet.
    pub awaited: Vec<String>,
    /// Machines over the limit on members: they are never granted. At most 16 by name.
    pub turned_away: Vec<String>,
    /// Person who stopped new grants, and reason.
    pub paused: Option<String>,
    /// Why nothing is granted: there is no pool, or its `spec.stop` is true.
    pub held: Option<String>,
    /// Remedy for `held`, as an imperative sentence.
    pub held_cure: Option<String>,
    /// Remedy for another change of the cluster that grants wait for, as an imperative sentence.
    pub waits_cure: Option<String>,
    /// Whether the reason is another operator that configures hosts.
    pub neighbour: bool,
    /// The generation of the pool's spec that was read last; 0: of none.
    pub generation: u64,
    /// Last edit of that spec.
    pub edited: Option<PoolEdit>,
    /// Why that spec is refused.
    pub refused: Option<String>,
    /// Payload of the spec that a rollback overrides, and the person who requested the rollback.
    pub overridden: Option<(String, String)>,
    /// What failed and stops new grants.
    pub halted: Option<String>,
    /// Desired payload of its machines.
    pub payload: Option<String>,
    /// Last rollback that a person requested, with its progress.
    pub rollback: Option<String>,
    /// MachineSets of its machines, as last reported.
    pub machine_sets: Vec<SetView>,
    /// Condition of the next grant, in one sentence; `None`: no machine waits, or the next decision grants.
    pub waiting_for: Option<String>,
    /// Whether a slot or gap waits for a MachineSet to want as many Machines as before. A person's resume ends that wait.
    pub eroded: bool,
}

/// A machine that counts as unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// Its Machine's UID.
    pub uid: String,
    /// Why it counts as unavailable.
    pub why: Unavailable,
}

/// A machine in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its Machine's UID.
    pub uid: String,
    /// Position in the queue, from 1.
    pub position: usize,
    /// It does not serve, and so may be granted over the limit.
    pub away: bool,
}

/// A machine that holds the lease, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotView {
    /// Its fencing number.
    pub token: LeaseToken,
    /// The holder's Machine's UID.
    pub holder: String,
    /// It was granted over the limit.
    pub over_limit: bool,
    /// The record that granted it.
    pub seq: Seq,
    /// When, by our clock.
    pub since: Timestamp,
    /// Whether its holder's Machine is gone, and the slot waits for the machine in its place.
    pub vacant: bool,
    /// Condition that the slot waits for after its holder's Machine is gone. `None`: the holder is being changed.
    pub waits_for: Option<String>,
    /// Names of the machines that may end that wait.
    pub candidates: Vec<String>,
}

/// A MachineSet in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetView {
    pub name: String,
    /// `spec.replicas`.
    pub replicas: u32,
    pub machines: Option<u32>,
    /// `status.readyReplicas`.
    pub ready: Option<u32>,
    /// `status.availableReplicas`.
    pub available: Option<u32>,
}

/// A Machine that is gone and whose replacement does not serve yet, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapView {
    /// UID of the Machine that is missing.
    pub uid: String,
    /// Its owner's name, if that is known.
    pub owner: String,
    /// The record that noticed.
    pub seq: Seq,
    /// When, by our clock.
    pub since: Timestamp,
    /// Condition that it waits for.
    pub waits_for: String,
}

impl State {
    /// View of the rollout, with UIDs for names.
    #[must_use]
    pub fn view(&self) -> View {
        self.view_with(&|uid| uid.to_owned())
    }

    /// View of the rollout. `name` gives the name of a machine for its UID.
    #[must_use]
    pub fn view_with(&self, name: &dyn Fn(&str) -> String) -> View {
        let count = |flag| {
            self.members
                .values()
                .filter(|m| m.is(Flag::Enrolled) && m.is(flag))
                .count()
        };
        let awaited = self.members.iter().filter(|(_, m)| m.is(Flag::Awaited));
        let named = NamedState { state: self, name };
        View {
            state: self.label(),
            members: self.enrolled(),
            joined: count(Flag::Joined),
            failed: count(Flag::Failed),
            unavailable: self.unavailable(),
            max_unavailable: self.limit(),
            manual_approval: self.settings.is_some_and(|settings| settings.manual),
            token: self.token,
            away: self.away(),
            queue: self.queue_view(),
            slots: named.slots(),
            gaps: named.gaps(),
            awaited: awaited.map(|(uid, _)| uid.to_string()).collect(),
            turned_away: self.turned_away.iter().map(Uid::to_string).collect(),
            paused: self.paused_by(),
            held: self.held().map(str::to_owned),
            held_cure: self.held_cure().map(str::to_owned),
            waits_cure: self.waits_cure().map(str::to_owned),
            neighbour: self.neighbour().is_some(),
            generation: self.source.as_ref().map_or(0, |source| source.generation),
            edited: self
                .source
                .as_ref()
                .and_then(|source| source.edited.clone()),
            refused: self
                .source
                .as_ref()
                .and_then(|source| source.refused.clone()),
            overridden: self.overridden(),
            halted: named.halted().or_else(|| named.finding()),
            payload: self.payload.as_ref().map(|wanted| wanted.payload.clone()),
            rollback: self.rollback.as_ref().map(rollback),
            machine_sets: self.owners.values().filter_map(set_view).collect(),
            waiting_for: named.waiting_for(),
            eroded: named.eroded(),
        }
    }

    fn away(&self) -> Vec<Away> {
        let slots = self.slots.iter().map(|slot| {
            (
                &slot.uid,
                if slot.vacant {
                    Unavailable::Replaced
                } else {
                    Unavailable::Holds
                },
            )
        });
        let gaps = self.gaps.iter().map(|gap| (&gap.uid, Unavailable::Gap));
        let mut away: Vec<(&Uid, Unavailable)> = slots.chain(gaps).collect();
        let counted = away.len();
        for (uid, member) in self
            .members
            .iter()
            .filter(|(_, member)| member.unavailable())
        {
            if away[..counted].iter().all(|(counted, _)| *counted != uid) {
                away.push((uid, why(member)));
            }
        }
        away.into_iter()
            .map(|(uid, why)| Away {
                uid: uid.to_string(),
                why,
            })
            .collect()
    }

    fn queue_view(&self) -> Vec<Waiting> {
        let queue = self.queue().into_iter().zip(1..);
        queue
            .map(|(uid, position)| Waiting {
                uid: uid.to_string(),
                position,
                away: self.members.get(uid).is_some_and(Member::away),
            })
            .collect()
    }

    /// Remedy for [`State::waits`], unless something stronger stops all grants.
    fn waits_cure(&self) -> Option<&str> {
        let alone = self.held().is_none() && self.paused_by().is_none();
        alone.then(|| self.source.as_ref()?.waits_cure.as_deref())?
    }

    /// Whether the next grant waits for the end of a pause, and for nothing before that.
    #[must_use]
    pub fn waits_for_resume(&self) -> bool {
        let known = self.settings.is_some() && matches!(self.enrolment, Enrolment::Complete);
        let paused = self.held().is_none() && self.paused_by().is_some();
        known && paused && !self.queue().is_empty()
    }

    fn paused_by(&self) -> Option<String> {
        match &self.pause {
            Some(pause) if pause.why.is_empty() => Some(pause.who.clone()),
            Some(pause) => Some(format!("{}: {}", pause.who, pause.why)),
            // The reason that holds grants is more specific.
            None if self.held().is_some() => None,
            None => self.paused().then(|| "the pool's settings".to_owned()),
        }
    }

    fn overridden(&self) -> Option<(String, String)> {
        let source = self.source.as_ref()?;
        Some((source.spec_payload.clone()?, source.overridden_by.clone()?))
    }
}

/// `None`: nothing is known of it, or it is gone.
fn set_view(owner: &Owner) -> Option<SetView> {
    let Wants::Replicas(replicas) = owner.wants else {
        return None;
    };
    let name = owner.name.clone();
    let machines = owner.has;
    Some(SetView {
        name,
        replicas,
        machines,
        ready: owner.ready,
        available: owner.available,
    })
}

fn rollback(it: &Rollback) -> String {
    let step = match &it.step {
        RollbackStep::Writing => "being written into the pool's status".to_owned(),
        RollbackStep::Written => "written into the pool's status".to_owned(),
        RollbackStep::Refused(why) => format!("not done: {why}"),
        RollbackStep::Ending(by) => {
            format!("being taken out of the pool's status, requested by {by}")
        }
        RollbackStep::Ended(by) => {
            format!("{by} requested its end, and the pool's settings do not show that yet")
        }
        RollbackStep::NotEnded(why) => format!("in force, because its end failed: {why}"),
    };
    format!(
        "from {} back to {}, asked for by {}; {step}",
        it.from, it.to, it.by
    )
}

fn why(member: &Member) -> Unavailable {
    if member.is(Flag::Open) {
        Unavailable::OpenToken
    } else if member.is(Flag::Failed) {
        Unavailable::Failed
    } else if member.leaves() {
        Unavailable::Deleting
    } else if member.is(Flag::Cordoned) {
        Unavailable::Cordoned
    } else {
        Unavailable::Down
    }
}

/// A state, and what its machines are called.
struct NamedState<'a> {
    state: &'a State,
    name: &'a dyn Fn(&str) -> String,
}

impl NamedState<'_> {
    fn name(&self, uid: &Uid) -> String {
        (self.name)(&uid.to_string())
    }

    fn names<'a>(&self, uids: impl Iterator<Item = &'a Uid>) -> String {
        let names: Vec<_> = uids.map(|uid| self.name(uid)).collect();
        listed(&names, NAMED_MAX)
    }

    fn slots(&self) -> Vec<SlotView> {
        let vacancies = self.state.vacancies();
        let vacant = |uid: &Uid| vacancies.iter().find(|v| v.uid == *uid);
        let slots = self.state.slots.iter();
        slots
            .map(|slot| SlotView {
                token: slot.token,
                holder: slot.uid.to_string(),
                over_limit: slot.over_limit,
                seq: slot.seq,
                since: slot.at,
                vacant: slot.vacant,
                waits_for: vacant(&slot.uid)
                    .filter(|_| slot.vacant)
                    .map(|v| self.vacancy(v)),
                candidates: vacant(&slot.uid)
                    .filter(|_| slot.vacant)
                    .map_or_else(Vec::new, |v| self.candidates(v)),
            })
            .collect()
    }

    fn candidates(&self, vacancy: &Vacancy) -> Vec<String> {
        let candidates = self.state.candidates(vacancy);
        candidates.map(|(uid, _)| self.name(uid)).collect()
    }

    fn gaps(&self) -> Vec<GapView> {
        let owner = |id| {
            self.state
                .owners
                .get(&id)
                .map_or("", |owner| owner.name.as_str())
        };
        let gaps = self.state.gaps.iter();
        gaps.map(|gap| GapView {
            uid: gap.uid.to_string(),
            owner: owner(gap.owner).to_owned(),
            seq: gap.seq,
            since: gap.at,
            waits_for: self.vacancy(&gap.into()),
        })
        .collect()
    }

    /// Condition that a vacancy waits for.
    fn vacancy(&self, vacancy: &Vacancy) -> String {
        let candidates: Vec<_> = self.state.candidates(vacancy).collect();
        let failed = candidates.iter().all(|(_, m)| m.is(Flag::Failed));
        let owner = self.state.owners.get(&vacancy.owner);
        let names = self.names(candidates.iter().map(|(uid, _)| *uid));
        let ignored = self.names(self.state.ignored_candidates(vacancy));
        match (candidates.is_empty(), owner) {
            (false, _) if failed => format!("{names}, failed: retry it, or delete its Machine"),
            (false, _) => format!("{names} to be Joined"),
            (true, Some(owner)) if owner.wants == Wants::Unknown => {
                "the first report about its MachineSet".to_owned()
            }
            (true, Some(_)) if !ignored.is_empty() => format!(
                "{ignored}, whose Machine has the label ignore=true: remove the label, or delete the Machine"
            ),
            (true, Some(owner)) if self.state.eroded(vacancy) => format!(
                "{} to have {} replicas again: it has {} since a replacement was deleted before it served, as the cluster \
                 autoscaler does. Scale it up, or resume the rollout if fewer are wanted",
                owner.name,
                vacancy.loss.wanted.unwrap_or_default(),
                match owner.wants {
                    Wants::Replicas(wants) => wants,
                    Wants::Unknown | Wants::Gone => 0,
                }
            ),
            (true, Some(owner)) => format!("{} to create a Machine", owner.name),
            // It ends with the next step (`needs_no_more`).
            (true, None) => "the end of this wait: its MachineSet is not known".to_owned(),
        }
    }

    /// Whether [`Self::vacancy`] waits for a MachineSet to want as many Machines as before.
    fn eroded(&self) -> bool {
        let vacancies = self.state.vacancies();
        let waits = |it: &Vacancy| self.state.candidates(it).next().is_none();
        vacancies
            .iter()
            .any(|it| waits(it) && self.state.eroded(it))
    }

    fn halted(&self) -> Option<String> {
        let failures = self.state.failures();
        if failures.is_empty() {
            return None;
        }
        let holds = |uid: &&&Uid| self.state.slot_of(uid).is_some();
        let holders = failures.iter().filter(holds).copied();
        let others = failures.iter().filter(|uid| !holds(uid)).copied();
        let holders = self.names(holders);
        let others = self.names(others);
        let kinds = [
            (holders, "holding the lease"),
            (others, "replacing a Machine that is gone"),
        ];
        let failed = kinds.into_iter().filter(|(names, _)| !names.is_empty());
        let texts: Vec<_> = failed
            .map(|(names, how)| format!("{names} failed while {how}"))
            .collect();
        Some(texts.join("; "))
    }

    /// Which hosts cannot be compared, and why: `7 hosts cannot be compared: a, b, c and 4 more: the key is refused
    /// (AuthRejected)`.
    fn finding(&self) -> Option<String> {
        let finding = self.state.finding()?;
        let names = self.names(finding.uids.iter().copied());
        let NotCompared { code, message, .. } = finding.trouble;
        let hosts = match finding.uids.len() {
            1 => "1 host".to_owned(),
            count => format!("{count} hosts"),
        };
        let message = message.trim_end_matches('.');
        let code = code::shown(code);
        Some(format!(
            "{hosts} cannot be compared: {names}: {message} ({code})"
        ))
    }

    fn waiting_for(&self) -> Option<String> {
        let state = self.state;
        let awaited = state.members.iter().filter(|(_, m)| m.is(Flag::Awaited));
        let awaited = awaited.map(|(uid, _)| uid);
        if state.settings.is_none() {
            return Some("the pool's settings".to_owned());
        }
        match state.enrolment {
            Enrolment::Unlisted => {
                return Some("a full list of the Machines that have a Node".to_owned());
            }
            Enrolment::Listed => {
                let names = self.names(awaited);
                return Some(format!("every Machine with a Node to enrol: {names}"));
            }
            Enrolment::Complete => {}
        }
        let queue = state.queue();
        let may_go = |uid: &&&Uid| {
            let member = state.members.get(uid);
            state.may_go(uid) && member.is_none_or(|m| !state.kept_by_a_person(m))
        };
        let first = queue.iter().find(may_go).or(queue.first())?;
        if let Some(held) = state.held() {
            return Some(format!("the pool to allow upgrades: {held}"));
        }
        if let Some(by) = state.paused_by() {
            return Some(format!("a resume (paused by {by})"));
        }
        if let Some(change) = state.rollback_not_in_settings() {
            return Some(format!("{change} to be in the pool's settings"));
        }
        if let Some(barred) = self.barred(&queue) {
            return Some(barred);
        }
        if let Some(waits) = state.waits_for_cluster() {
            return Some(format!("another change of the cluster to end: {waits}"));
        }
        let halted = self
            .halted()
            .map(|why| format!("a retry, or another candidate: {why}"));
        let found = self
            .finding()
            .map(|why| format!("dormer to reach its hosts again: {why}"));
        halted
            .or(found)
            .or_else(|| self.kept_by_people(&queue))
            .or_else(|| Some(self.room(first)))
    }

    /// Why no waiting machine can be granted the lease, if none of their changes is allowed.
    fn barred(&self, queue: &[&Uid]) -> Option<String> {
        if queue.iter().any(|uid| self.state.may_go(uid)) {
            return None;
        }
        let names = self.names(queue.iter().copied());
        let wanted = self.state.payload.as_ref();
        let held = |terms: &Terms| terms.skew.clone().or(terms.expired.clone());
        let why = wanted.map_or_else(String::new, |wanted| match held(&wanted.terms) {
            Some(why) => format!(": {why}"),
            None => {
                let known = wanted.terms.may_follow.join(", ");
                let known = if known.is_empty() {
                    "no version"
                } else {
                    &known
                };
                // The reports do not say which payload a machine has.
                let installed = wanted.terms.paths.keys().take(NAMED_MAX);
                let named = installed.filter_map(|from| {
                    let path = wanted.terms.path(&wanted.payload, from)?;
                    Some(format!("; for machines at {from}: {path}"))
                });
                let paths: String = named.collect();
                format!(": payload {} may follow {known}{paths}", wanted.payload)
            }
        });
        Some(format!("an allowed upgrade of {names}{why}"))
    }

    /// Waiting machines, if other clients keep all of their Nodes cordoned.
    fn kept_by_people(&self, queue: &[&Uid]) -> Option<String> {
        let kept = |uid: &&&Uid| {
            let member = self.state.members.get(uid);
            member.is_some_and(|m| self.state.kept_by_a_person(m))
        };
        if !queue.iter().all(|uid| kept(&uid)) {
            return None;
        }
        let names = self.names(queue.iter().copied());
        Some(format!(
            "{names} to be uncordoned: another client cordoned the Node, and dormer does not upgrade it"
        ))
    }

    /// Condition that has to end before `first` can be granted.
    fn room(&self, first: &Uid) -> String {
        let carriers: Vec<_> = self.state.carriers().map(|(uid, _)| uid).collect();
        let at_first = self.state.slots.iter().find(|slot| slot.first);
        if let Some(slot) = at_first {
            return format!(
                "{} to finish the upgrade it was in before",
                self.name(&slot.uid)
            );
        }
        if !carriers.is_empty() && !carriers.contains(&first) {
            let names = self.names(carriers.into_iter());
            return format!("{names} to finish an upgrade that an earlier store began");
        }
        let limit = self.state.limit().unwrap_or(0);
        let away = self.state.away();
        let named = away.iter().take(NAMED_MAX);
        let mut absences: Vec<_> = named.map(|away| self.absence(away)).collect();
        if let more @ 1.. = away.len().saturating_sub(NAMED_MAX) {
            absences.push(format!("{more} more are unavailable"));
        }
        let machines = if limit == 1 { "machine" } else { "machines" };
        let most = format!("a slot: at most {limit} {machines} may be unavailable");
        match absences.is_empty() {
            true => most,
            false => format!("{most}, and {}", absences.join(", ")),
        }
    }

    /// Unavailable machines, and why.
    fn absence(&self, away: &Away) -> String {
        let name = (self.name)(&away.uid);
        let uid = Uid::new(&away.uid);
        let waits_for = || {
            let vacancy = self.state.vacancies().into_iter().find(|v| v.uid == uid);
            vacancy.map_or_else(String::new, |v| self.vacancy(&v))
        };
        match away.why {
            Unavailable::Holds => format!("{name} holds the lease"),
            Unavailable::Replaced | Unavailable::Gap => {
                format!("{name} is gone and waits for {}", waits_for())
            }
            Unavailable::OpenToken => {
                format!("{name} is in an upgrade that an earlier store began")
            }
            Unavailable::Deleting => format!("{name} is being deleted"),
            Unavailable::Failed => format!("{name} failed"),
            Unavailable::Cordoned | Unavailable::Down => format!("{name} {}", away.why.text()),
        }
    }
}
