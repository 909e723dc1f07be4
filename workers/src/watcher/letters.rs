//! Letters to runs: what each run should know by the present view, and what it was told.

use super::{objects::MachineSeen, view::View};
use crate::port::Beginning;
use dormer_proto::{
    id::RunId,
    machine,
    message::{Inbound, Letter, ObjectRef, Observation, Version},
    pool::PoolSettings,
    rollout,
    work::{Fact, FactLetter, machine_run, rollout_run},
};
use std::collections::{BTreeMap, BTreeSet};

/// What a run was told of one object.
#[derive(Debug, Clone, PartialEq)]
struct Said {
    resource: u64,
    what: What,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    Fact(Box<Fact>),
    /// It is gone, or this run's business no more.
    Gone,
    /// Something in an earlier epoch: it is to be said again, or unsaid.
    Old,
}

impl Said {
    fn fact(&self) -> Option<Fact> {
        match &self.what {
            What::Fact(fact) => Some(fact.as_ref().clone()),
            What::Gone | What::Old => None,
        }
    }
}

type About = BTreeMap<ObjectRef, Said>;

/// What all runs were told. It outlives an epoch, so that what vanished in a gap can be unsaid.
#[derive(Debug, Default)]
pub(super) struct Told {
    machines: BTreeMap<String, About>,
    rollout: About,
}

impl Told {
    /// A new epoch: everything is to be said again.
    pub(super) fn age(&mut self) {
        for about in self.machines.values_mut().chain([&mut self.rollout]) {
            about.retain(|_, said| said.what != What::Gone);
            about.values_mut().for_each(|said| {
                *said = Said {
                    resource: 0,
                    what: What::Old,
                }
            });
        }
    }
}

impl Told {
    /// Of the machines that the last list found with a Node, those that still stand: nobody waits for the others.
    fn still_listed(&self, view: &View) -> Option<Vec<String>> {
        self.rollout.values().find_map(|said| match said.fact() {
            Some(Fact::Rollout(rollout::Fact::Listed { mut with_node })) => {
                let stands = |uid: &str| view.machines.get(uid).is_some_and(MachineSeen::may_start);
                with_node.retain(|uid| stands(uid));
                Some(with_node)
            }
            _ => None,
        })
    }
}

/// Writes the letters of one epoch.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) beginning: Beginning,
    /// Machines whose runs have not ended.
    live: BTreeSet<String>,
    /// Machines whose runs may have begun with these letters.
    pub(super) started: Vec<String>,
    rollout: RunId,
    pool: String,
    settings: Option<(PoolSettings, u64)>,
}

impl Writer {
    /// `rollout` is the run of `pool`.
    pub(super) fn new(beginning: Beginning, pool: &str, rollout: RunId) -> Self {
        let live = beginning.live.iter().cloned().collect();
        Self {
            beginning,
            live,
            started: Vec::new(),
            rollout,
            pool: pool.to_owned(),
            settings: None,
        }
    }

    /// New settings; whether they differ from those before.
    pub(super) fn set_pool(&mut self, settings: PoolSettings, latest: u64) -> bool {
        let next = match &self.settings {
            Some((same, _)) if *same == settings => return false,
            Some((_, resource)) => latest.max(resource + 1),
            None => latest,
        };
        self.settings = Some((settings, next));
        true
    }

    /// Everything that a full list says: letters to every machine and to the rollout, and "gone" for each live run
    /// whose Machine the list lacks.
    pub(super) fn everything(&mut self, view: &mut View, told: &mut Told) -> Vec<FactLetter> {
        view.changed.clear();
        let mut uids: BTreeSet<String> = view.machines.keys().cloned().collect();
        uids.extend(self.live.iter().cloned());
        uids.extend(told.machines.keys().cloned());
        let mut letters = self.write_rollout(view, told, true);
        for uid in &uids {
            letters.extend(self.lost_node(view, told, uid));
            letters.extend(self.write_machine(view, told, uid));
        }
        letters
    }

    /// What changed since the last letters.
    pub(super) fn news(&mut self, view: &mut View, told: &mut Told) -> Vec<FactLetter> {
        let changed = std::mem::take(&mut view.changed);
        changed
            .iter()
            .flat_map(|uid| self.write_machine(view, told, uid))
            .collect()
    }

    /// The settings to every live run and to the rollout, where they are new to it.
    pub(super) fn pool_news(&mut self, view: &View, told: &mut Told) -> Vec<FactLetter> {
        let uids: Vec<_> = self.live.iter().cloned().collect();
        let mut letters = self.write_rollout(view, told, false);
        letters.extend(
            uids.iter()
                .flat_map(|uid| self.write_machine(view, told, uid)),
        );
        letters
    }

    /// Whether a run is there, or may begin, for this machine.
    fn concerns(&self, uid: &str, seen: &MachineSeen) -> bool {
        seen.may_start() || self.live.contains(uid)
    }

    /// What the run of this machine is to be told now: what differs from what it was told.
    fn write_machine(&mut self, view: &View, told: &mut Told, uid: &str) -> Vec<FactLetter> {
        let Ok(run) = machine_run(uid) else {
            return Vec::new();
        };
        let Some(seen) = view.machines.get(uid) else {
            if view.is_veiled(uid) {
                return Vec::new();
            }
            let known = self.live.remove(uid) | told.machines.remove(uid).is_some();
            let gone = self.letter(&run, object("Machine", uid), (view.latest, None), false);
            return if known { vec![gone] } else { Vec::new() };
        };
        if !self.concerns(uid, seen) {
            return Vec::new();
        }
        if self.live.insert(uid.to_owned()) {
            self.started.push(uid.to_owned());
        }
        let may_start = seen.may_start();
        let wanted = self.wanted(view, seen);
        let about = told.machines.entry(uid.to_owned()).or_default();
        let mut letters = Vec::new();
        for (object, said) in difference(about, wanted, view.latest) {
            let start = may_start && object.kind == "Machine";
            letters.push(self.letter(&run, object, (said.resource, said.fact()), start));
        }
        letters
    }

    /// All that the run of this machine should know.
    fn wanted(&self, view: &View, seen: &MachineSeen) -> About {
        let mut about = About::new();
        let mut say = |kind: &str, uid: &str, resource: u64, fact: machine::Fact| {
            about.insert(
                object(kind, uid),
                Said {
                    resource,
                    what: What::Fact(Box::new(Fact::Machine(fact))),
                },
            );
        };
        let fact = machine::Fact::Machine(seen.fact.clone());
        say("Machine", &seen.fact.machine.uid, seen.resource, fact);
        if let Some((settings, resource)) = &self.settings {
            say(
                "Pool",
                &self.pool,
                *resource,
                machine::Fact::Pool(settings.clone()),
            );
        }
        if let Some(node) = view.node_of(seen) {
            say(
                "Node",
                &node.fact.uid,
                node.resource,
                machine::Fact::Node(node.fact.clone()),
            );
        }
        for csr in view.csrs_of(seen) {
            let fact = machine::Fact::Csr(csr.fact.clone());
            say("CertificateSigningRequest", &csr.uid, csr.resource, fact);
        }
        about
    }

    /// The Node that `nodeRef` still names, though a list that was made after the Machines' lacks it.
    fn lost_node(&self, view: &View, told: &mut Told, uid: &str) -> Option<FactLetter> {
        let seen = view
            .machines
            .get(uid)
            .filter(|seen| self.concerns(uid, seen))?;
        let node = seen
            .node_uid
            .as_deref()
            .filter(|node| !view.nodes.contains_key(*node))?;
        let node = object("Node", node);
        told.machines
            .get_mut(uid)
            .and_then(|about| about.remove(&node));
        Some(self.letter(&machine_run(uid).ok()?, node, (view.latest, None), false))
    }

    /// What the rollout is to be told now; after a full list also who has a Node.
    pub(super) fn write_rollout(
        &self,
        view: &View,
        told: &mut Told,
        listed: bool,
    ) -> Vec<FactLetter> {
        let mut wanted = About::new();
        let mut say = |kind: &str, uid: &str, resource: u64, fact: rollout::Fact| {
            wanted.insert(
                object(kind, uid),
                Said {
                    resource,
                    what: What::Fact(Box::new(Fact::Rollout(fact))),
                },
            );
        };
        if let Some((settings, resource)) = &self.settings {
            say(
                "Pool",
                &self.pool,
                *resource,
                rollout::Fact::Pool(settings.clone()),
            );
        }
        for owner in view.owners() {
            say(
                "MachineSet",
                &owner.uid.clone(),
                view.latest,
                rollout::Fact::Owner(owner),
            );
        }
        let with_node = if listed {
            Some(view.with_node())
        } else {
            told.still_listed(view)
        };
        if let Some(with_node) = with_node {
            say(
                "List",
                &self.pool,
                view.latest,
                rollout::Fact::Listed { with_node },
            );
        }
        let news = difference(&mut told.rollout, wanted, view.latest);
        let letter = |(object, said): (ObjectRef, Said)| {
            let fact = said.fact();
            let start = fact.is_some();
            self.letter(&self.rollout, object, (said.resource, fact), start)
        };
        news.into_iter().map(letter).collect()
    }

    /// What this machine's run was told, once more.
    pub(super) fn again(&self, view: &View, told: &Told, uid: &str) -> Vec<FactLetter> {
        let (Ok(run), Some(about)) = (machine_run(uid), told.machines.get(uid)) else {
            return Vec::new();
        };
        let may_start = view.machines.get(uid).is_some_and(MachineSeen::may_start);
        let start = |object: &ObjectRef| may_start && object.kind == "Machine";
        let decided =
            |fact: &Fact| matches!(fact, Fact::Machine(machine::Fact::Csr(csr)) if !csr.pending);
        let mut letters = Vec::new();
        for (object, said) in about {
            if let What::Fact(fact) = &said.what
                && !decided(fact)
            {
                let what = (said.resource, Some(fact.as_ref().clone()));
                let start = start(object);
                letters.push(self.letter(&run, object.clone(), what, start));
            }
        }
        letters
    }

    /// What the rollout was told, once more.
    pub(super) fn rollout_again(&self, told: &Told) -> Vec<FactLetter> {
        let mut letters = Vec::new();
        for (object, said) in &told.rollout {
            if let What::Fact(fact) = &said.what {
                let what = (said.resource, Some(fact.as_ref().clone()));
                letters.push(self.letter(&self.rollout, object.clone(), what, true));
            }
        }
        letters
    }

    /// The live machine after `cursor`, in the order of their UIDs; `None` at the end.
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

    fn letter(
        &self,
        run: &RunId,
        object: ObjectRef,
        (resource, fact): (u64, Option<Fact>),
        may_start: bool,
    ) -> FactLetter {
        let version = Version {
            epoch: self.beginning.epoch,
            resource,
        };
        let body = Inbound::Observed(Observation {
            object,
            version,
            fact,
            may_start,
        });
        Letter {
            run: run.clone(),
            incarnation: Some(self.beginning.incarnation),
            body,
        }
    }
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

/// Makes `about` what is `wanted`, and returns what was not said yet; what is wanted no more is unsaid.
/// Versions grow with every change, also where the fact changed and no object's resourceVersion did.
fn difference(about: &mut About, mut wanted: About, latest: u64) -> Vec<(ObjectRef, Said)> {
    let mut news = Vec::new();
    for (object, said) in about.iter_mut() {
        if said.what != What::Gone && !wanted.contains_key(object) {
            let resource = latest.max(said.resource + 1);
            *said = Said {
                resource,
                what: What::Gone,
            };
            news.push((object.clone(), said.clone()));
        }
    }
    // A fact whose run may begin with it goes before those that need the run.
    let first = wanted
        .keys()
        .find(|object| object.kind == "Machine")
        .cloned();
    let first = first.and_then(|object| wanted.remove_entry(&object));
    for (object, mut said) in first.into_iter().chain(wanted) {
        if let Some(before) = about.get_mut(&object) {
            if before.what == said.what {
                before.resource = before.resource.max(said.resource);
                continue;
            }
            if before.what != What::Old && before.resource >= said.resource {
                said.resource = before.resource + 1;
            }
        }
        news.push((object.clone(), said.clone()));
        about.insert(object, said);
    }
    news
}

#[cfg(test)]
mod tests;
