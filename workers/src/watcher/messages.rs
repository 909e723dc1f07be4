//! Messages to runs: the difference between the present view and what each run has received.

use super::{conditions, objects::ObservedMachine, view::View};
use crate::port::EpochStart;
use dormer_proto::{
    id::RunId,
    machine::{self, TemplateDifference},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
    pool::PoolSettings,
    rollout,
    work::{Fact, FactMessage, machine_run, rollout_run},
};
use std::collections::{BTreeMap, BTreeSet};

/// Fact about one object as published to a run.
#[derive(Debug, Clone, PartialEq)]
struct PublishedFact {
    resource: u64,
    state: FactState,
}

#[derive(Debug, Clone, PartialEq)]
enum FactState {
    Fact(Box<Fact>),
    /// It is gone, or this run's business no more.
    Gone,
    /// Fact of an earlier epoch, to be published again or withdrawn.
    Unconfirmed,
}

impl PublishedFact {
    fn new(resource: u64, fact: Fact) -> Self {
        let state = FactState::Fact(Box::new(fact));
        Self { resource, state }
    }

    /// That an object is gone, as of this resourceVersion.
    fn gone(resource: u64) -> Self {
        let state = FactState::Gone;
        Self { resource, state }
    }

    fn fact(&self) -> Option<Fact> {
        match &self.state {
            FactState::Fact(fact) => Some(fact.as_ref().clone()),
            FactState::Gone | FactState::Unconfirmed => None,
        }
    }
}

/// Facts about objects, as one run has or should have them.
type RunFacts = BTreeMap<ObjectRef, PublishedFact>;

/// Facts published to all runs. They outlive an epoch, so that the watcher can withdraw facts of objects that vanished
/// between two epochs.
#[derive(Debug, Default)]
pub(super) struct PublishedFacts {
    machines: BTreeMap<String, RunFacts>,
    rollout: RunFacts,
}

impl PublishedFacts {
    /// Starts a new epoch: marks every published fact to be published again.
    pub(super) fn begin_epoch(&mut self) {
        for facts in self.machines.values_mut().chain([&mut self.rollout]) {
            facts.retain(|_, published| published.state != FactState::Gone);
            for published in facts.values_mut() {
                *published = PublishedFact {
                    resource: 0,
                    state: FactState::Unconfirmed,
                };
            }
        }
    }

    /// Machines with a Node in the last list that still exist. The rollout does not wait for the others.
    fn still_listed(&self, view: &View) -> Option<Vec<String>> {
        self.rollout
            .values()
            .find_map(|published| match published.fact() {
                Some(Fact::Rollout(rollout::Fact::Listed { mut with_node, .. })) => {
                    let still_there = |uid: &str| {
                        view.machines
                            .get(uid)
                            .is_some_and(ObservedMachine::may_start)
                    };
                    with_node.retain(|uid| still_there(uid));
                    Some(with_node)
                }
                _ => None,
            })
    }
}

/// Writes the messages of one epoch.
#[derive(Debug)]
pub(super) struct MessageWriter {
    pub(super) beginning: EpochStart,
    /// Machines whose runs have not ended.
    live: BTreeSet<String>,
    /// Machines whose runs may have begun with these messages.
    pub(super) started: Vec<String>,
    rollout: RunId,
    pool: String,
    /// dormer's namespace, from which the names of machines' own tokens follow.
    home: String,
    settings: Option<(PoolSettings, u64)>,
    /// Whether the rollout's settings wait until the machines' runs have the facts of the last full list.
    pool_waits: bool,
}

impl MessageWriter {
    pub(super) fn new(beginning: EpochStart, pool: &str, home: &str, rollout: RunId) -> Self {
        let live = beginning.live.iter().cloned().collect();
        Self {
            beginning,
            live,
            started: Vec::new(),
            rollout,
            pool: pool.to_owned(),
            home: home.to_owned(),
            settings: None,
            pool_waits: false,
        }
    }

    /// New settings; whether they differ from those before.
    pub(super) fn set_pool(&mut self, settings: PoolSettings, latest: u64) -> bool {
        let next = match &self.settings {
            Some((same, _)) if *same == settings => return false,
            Some((_, resource)) => latest.max(resource + 1),
            None => latest,
        };
        self.pool_waits &= grants(&settings);
        self.settings = Some((settings, next));
        true
    }

    /// Messages after a full list: all facts for every machine and the rollout, and "gone" for each live run whose
    /// Machine the list lacks. The list may follow hours in which nothing was watched. So the rollout gets its facts after
    /// the machines, and settings that let it grant only with [`MessageWriter::pool_due`].
    pub(super) fn everything(
        &mut self,
        view: &mut View,
        published: &mut PublishedFacts,
    ) -> Vec<FactMessage> {
        view.find_astray(&self.home);
        view.changed.clear();
        let mut uids: BTreeSet<String> = view.machines.keys().cloned().collect();
        uids.extend(self.live.iter().cloned());
        uids.extend(published.machines.keys().cloned());
        let mut messages = Vec::new();
        for uid in &uids {
            messages.extend(self.lost_node(view, published, uid));
            messages.extend(self.write_machine(view, published, uid));
        }
        let settings = self.settings.as_ref();
        self.pool_waits = settings.is_some_and(|(all, _)| grants(all));
        messages.extend(self.write_rollout(view, published, true));
        messages
    }

    /// The rollout's settings, a part of a round after the full list. By then each machine has reported a lost Node to the
    /// rollout, which would otherwise grant by older facts.
    pub(super) fn pool_due(
        &mut self,
        view: &View,
        published: &mut PublishedFacts,
    ) -> Vec<FactMessage> {
        match std::mem::take(&mut self.pool_waits) {
            true => self.write_rollout(view, published, false),
            false => Vec::new(),
        }
    }

    /// What changed since the last messages.
    pub(super) fn changes(
        &mut self,
        view: &mut View,
        published: &mut PublishedFacts,
    ) -> Vec<FactMessage> {
        view.find_astray(&self.home);
        let changed = std::mem::take(&mut view.changed);
        changed
            .iter()
            .flat_map(|uid| self.write_machine(view, published, uid))
            .collect()
    }

    /// The settings for each live run and the rollout, if they are new to it.
    pub(super) fn pool_changes(
        &mut self,
        view: &View,
        published: &mut PublishedFacts,
    ) -> Vec<FactMessage> {
        let uids: Vec<_> = self.live.iter().cloned().collect();
        let mut messages = self.write_rollout(view, published, false);
        messages.extend(
            uids.iter()
                .flat_map(|uid| self.write_machine(view, published, uid)),
        );
        messages
    }

    /// Whether a run is there, or may begin, for this machine.
    fn concerns(&self, uid: &str, machine: &ObservedMachine) -> bool {
        machine.may_start() || self.live.contains(uid)
    }

    /// Messages for the run of this machine: the facts that differ from the published ones.
    fn write_machine(
        &mut self,
        view: &View,
        published: &mut PublishedFacts,
        uid: &str,
    ) -> Vec<FactMessage> {
        let Ok(run) = machine_run(uid) else {
            return Vec::new();
        };
        let Some(machine) = view.machines.get(uid) else {
            if view.is_veiled(uid) {
                return Vec::new();
            }
            let known = self.live.remove(uid) | published.machines.remove(uid).is_some();
            let gone = PublishedFact::gone(view.latest);
            let gone = self.message(&run, object("Machine", uid), &gone, false);
            return if known { vec![gone] } else { Vec::new() };
        };
        if !self.concerns(uid, machine) {
            return Vec::new();
        }
        if self.live.insert(uid.to_owned()) {
            self.started.push(uid.to_owned());
        }
        let may_start = machine.may_start();
        let wanted = self.wanted(view, machine);
        let facts = published.machines.entry(uid.to_owned()).or_default();
        let mut messages = Vec::new();
        for (object, published) in difference(facts, wanted, view.latest) {
            let start = may_start && object.kind == "Machine";
            messages.push(self.message(&run, object, &published, start));
        }
        messages
    }

    /// All that the run of this machine should know.
    fn wanted(&self, view: &View, machine: &ObservedMachine) -> RunFacts {
        let mut wanted = RunFacts::new();
        let mut add = |kind: &str, uid: &str, resource: u64, fact: machine::Fact| {
            let fact = PublishedFact::new(resource, Fact::Machine(fact));
            wanted.insert(object(kind, uid), fact);
        };
        let mut fact = machine.published();
        fact.store = Some(self.beginning.incarnation);
        fact.owner = view.owner_of(machine).cloned();
        // Where Cluster API says itself what differs, it compares more than the template has.
        if fact.template.is_empty() {
            fact.template = outdated(view, machine);
        }
        fact.node_absent = machine.node_uid.is_none()
            && fact
                .node
                .as_ref()
                .is_some_and(|name| !view.node_names.contains_key(name));
        let ours = conditions::of(view, machine, &self.home);
        fact.conditions.extend(ours);
        let settings = self.settings.as_ref();
        if let Some((all, _)) = settings {
            fact.neighbour.clone_from(&all.neighbour);
        }
        let fact = machine::Fact::Machine(fact);
        add("Machine", &machine.fact.machine.uid, machine.resource, fact);
        if let Some((settings, resource)) =
            settings.and_then(|(all, resource)| Some((all.for_machine()?, resource)))
        {
            add("Pool", &self.pool, *resource, machine::Fact::Pool(settings));
        }
        if let Some(node) = view.node_of(machine) {
            add(
                "Node",
                &node.fact.uid,
                node.resource,
                machine::Fact::Node(node.fact.clone()),
            );
        }
        for csr in view.csrs_of(machine) {
            let fact = machine::Fact::Csr(csr.fact.clone());
            add("CertificateSigningRequest", &csr.uid, csr.resource, fact);
        }
        wanted
    }

    /// The Node that `nodeRef` still names, though a list that was made after the Machines' lacks it.
    fn lost_node(
        &self,
        view: &View,
        published: &mut PublishedFacts,
        uid: &str,
    ) -> Option<FactMessage> {
        let machine = view
            .machines
            .get(uid)
            .filter(|machine| self.concerns(uid, machine))?;
        // It may have registered again.
        if view.node_of(machine).is_some() {
            return None;
        }
        let node = machine
            .node_uid
            .as_deref()
            .filter(|node| !view.nodes.contains_key(*node))?;
        let node = object("Node", node);
        if let Some(facts) = published.machines.get_mut(uid) {
            facts.remove(&node);
        }
        let gone = PublishedFact::gone(view.latest);
        Some(self.message(&machine_run(uid).ok()?, node, &gone, false))
    }

    /// Messages for the rollout. After a full list they also name the machines with a Node.
    pub(super) fn write_rollout(
        &self,
        view: &View,
        published: &mut PublishedFacts,
        listed: bool,
    ) -> Vec<FactMessage> {
        let mut wanted = RunFacts::new();
        let mut add = |kind: &str, uid: &str, resource: u64, fact: rollout::Fact| {
            let fact = PublishedFact::new(resource, Fact::Rollout(fact));
            wanted.insert(object(kind, uid), fact);
        };
        let settings = self.settings.as_ref().filter(|_| !self.pool_waits);
        if let Some((settings, resource)) = settings {
            add(
                "Pool",
                &self.pool,
                *resource,
                rollout::Fact::Pool(settings.clone()),
            );
        }
        for owner in view.owners() {
            add(
                "MachineSet",
                &owner.uid.clone(),
                view.latest,
                rollout::Fact::Owner(owner),
            );
        }
        let with_node = if listed {
            Some(view.with_node())
        } else {
            published.still_listed(view)
        };
        if let Some(with_node) = with_node {
            add(
                "List",
                &self.pool,
                view.latest,
                rollout::Fact::Listed {
                    with_node,
                    sets: (!view.sets_hidden).then(|| view.sets.keys().cloned().collect()),
                },
            );
        }
        // A set that may not be listed may still exist, and settings that wait are published before long.
        let unsaid = |object: &ObjectRef| match object.kind.as_str() {
            "MachineSet" => view.sets_hidden,
            "Pool" => self.pool_waits,
            _ => false,
        };
        let unseen: RunFacts = published
            .rollout
            .extract_if(.., |object, _| {
                unsaid(object) && !wanted.contains_key(object)
            })
            .collect();
        let changes = difference(&mut published.rollout, wanted, view.latest);
        published.rollout.extend(unseen);
        let message = |(object, published): (ObjectRef, PublishedFact)| {
            let start = published.fact().is_some();
            self.message(&self.rollout, object, &published, start)
        };
        changes.into_iter().map(message).collect()
    }

    /// Repeats the published facts of this machine's run.
    pub(super) fn repeats_for(
        &self,
        view: &View,
        published: &PublishedFacts,
        uid: &str,
    ) -> Vec<FactMessage> {
        let (Ok(run), Some(facts)) = (machine_run(uid), published.machines.get(uid)) else {
            return Vec::new();
        };
        let may_start = view
            .machines
            .get(uid)
            .is_some_and(ObservedMachine::may_start);
        let start = |object: &ObjectRef| may_start && object.kind == "Machine";
        let decided =
            |fact: &Fact| matches!(fact, Fact::Machine(machine::Fact::Csr(csr)) if !csr.pending);
        let mut messages = Vec::new();
        for (object, published) in facts {
            if let FactState::Fact(fact) = &published.state
                && !decided(fact)
            {
                let start = start(object);
                messages.push(self.message(&run, object.clone(), published, start));
            }
        }
        messages
    }

    /// The published facts, for the run of the rollout, which may have missed them.
    pub(super) fn repeats_for_rollout(&self, published: &PublishedFacts) -> Vec<FactMessage> {
        let mut messages = Vec::new();
        for (object, published) in &published.rollout {
            if let FactState::Fact(_) = &published.state {
                messages.push(self.message(&self.rollout, object.clone(), published, true));
            }
        }
        messages
    }

    /// The next live machine after `cursor`, by UID; `None` at the end.
    pub(super) fn next_after(&self, cursor: &str) -> Option<String> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.live
            .range::<str, _>((Excluded(cursor), Unbounded))
            .next()
            .cloned()
    }

    /// How many machines have, or may have, a run.
    pub(super) fn live(&self) -> usize {
        self.live.len()
    }

    fn message(
        &self,
        run: &RunId,
        object: ObjectRef,
        published: &PublishedFact,
        may_start: bool,
    ) -> FactMessage {
        let version = Version {
            epoch: self.beginning.epoch,
            resource: published.resource,
        };
        let body = Inbound::Observed(Observation {
            object,
            version,
            fact: published.fact(),
            may_start,
        });
        InboxMessage {
            run: run.clone(),
            incarnation: Some(self.beginning.incarnation),
            body,
        }
    }
}

/// Fields in which a Machine differs from the template of its set. A Machine that is being deleted has no successor.
fn outdated(view: &View, machine: &ObservedMachine) -> Vec<TemplateDifference> {
    let owner = view.owner_of(machine).filter(|_| !machine.fact.deleting);
    let set = owner.and_then(|owner| view.sets.get(&owner.uid));
    set.map(|set| set.fields.that_differ_in(&machine.fields))
        .unwrap_or_default()
}

/// Whether the rollout may grant with these settings.
fn grants(pool: &PoolSettings) -> bool {
    !pool.paused && !pool.absent && pool.held.is_none()
}

/// The run of a pool's rollout.
pub(super) fn rollout_of(pool: &str) -> Result<RunId, dormer_proto::id::IdError> {
    rollout_run(pool)
}

fn object(kind: &str, uid: &str) -> ObjectRef {
    ObjectRef {
        cluster: String::new(),
        kind: kind.to_owned(),
        uid: uid.to_owned(),
    }
}

/// Makes `known` equal to `wanted`. Returns the new facts, and withdraws those that are no longer wanted. Versions grow
/// with every change, also if the fact changed without an object's resourceVersion.
fn difference(
    known: &mut RunFacts,
    mut wanted: RunFacts,
    latest: u64,
) -> Vec<(ObjectRef, PublishedFact)> {
    let mut changes = Vec::new();
    for (object, published) in known.iter_mut() {
        if published.state != FactState::Gone && !wanted.contains_key(object) {
            *published = PublishedFact::gone(latest.max(published.resource + 1));
            changes.push((object.clone(), published.clone()));
        }
    }
    // A fact with which a run may begin goes before those that need the run.
    let first = wanted
        .keys()
        .find(|object| object.kind == "Machine")
        .cloned();
    let first = first.and_then(|object| wanted.remove_entry(&object));
    for (object, mut fact) in first.into_iter().chain(wanted) {
        if let Some(before) = known.get_mut(&object) {
            if before.state == fact.state {
                before.resource = before.resource.max(fact.resource);
                continue;
            }
            if before.state != FactState::Unconfirmed && before.resource >= fact.resource {
                fact.resource = before.resource + 1;
            }
        }
        changes.push((object.clone(), fact.clone()));
        known.insert(object, fact);
    }
    changes
}

#[cfg(test)]
mod tests;
