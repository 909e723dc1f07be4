//! View of the cluster in the watcher, and the machines that a changed object concerns.

use super::{
    csr::ObservedCsr,
    objects::{ObservedMachine, ObservedNode, ObservedSet},
};
use crate::kubernetes::csr::FirstAsker;
use dormer_proto::machine::MachineApi;
use std::collections::{BTreeMap, BTreeSet};

/// Most objects of one kind that are kept; more are counted and left out.
pub(super) const OBJECTS_MAX: usize = 50_000;

/// Kinds of objects that facts are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// Machines of an API.
    Machine(MachineApi),
    /// Sets of machines of an API.
    Set(MachineApi),
    Node,
    Csr,
    Pool,
    /// ConfigMap with the pool's settings of an earlier build.
    PoolMap,
    /// The ConfigMap with entries for BYOH hosts.
    Instances,
}

/// Whose name is in a request for a first certificate of another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameOf {
    /// A Node's that is there.
    Node,
    /// A Node's that another machine is to have.
    OtherMachine,
    /// No Node's and no machine's.
    Nobody,
}

/// Machines that refer to the set `owner` as their controller.
fn owned_by<'a>(
    machines: &'a BTreeMap<String, ObservedMachine>,
    owner: &str,
) -> impl Iterator<Item = String> + use<'a> {
    let owner = owner.to_owned();
    let of = move |machine: &ObservedMachine| {
        let refers = machine.fact.owner.as_ref();
        refers.is_some_and(|it| it.uid == owner)
    };
    let owned = machines.iter().filter(move |(_, machine)| of(machine));
    owned.map(|(uid, _)| uid.clone())
}

/// One object, read.
#[derive(Debug, Clone)]
pub(super) enum ObservedObject {
    Machine(Box<ObservedMachine>),
    Set(ObservedSet),
    Node(ObservedNode),
    Csr(ObservedCsr),
}

impl ObservedObject {
    pub(super) fn of(machine: ObservedMachine) -> Self {
        Self::Machine(Box::new(machine))
    }

    fn key(&self) -> (Kind, &str, u64) {
        match self {
            Self::Machine(object) => {
                let machine = &object.fact.machine;
                (Kind::Machine(machine.api), &machine.uid, object.resource)
            }
            Self::Set(object) => (Kind::Set(object.api), &object.uid, object.resource),
            Self::Node(object) => (Kind::Node, &object.fact.uid, object.resource),
            Self::Csr(object) => (Kind::Csr, &object.uid, object.resource),
        }
    }
}

/// Most requests with one machine's own token that are compared, the oldest first: a host can make any number of them.
pub(super) const OWN_ASTRAY_MAX: usize = 16;

/// Objects of the cluster by UID, from one epoch's list and its watches.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) machines: BTreeMap<String, ObservedMachine>,
    pub(super) sets: BTreeMap<String, ObservedSet>,
    pub(super) nodes: BTreeMap<String, ObservedNode>,
    pub(super) csrs: BTreeMap<String, ObservedCsr>,
    /// The largest resourceVersion seen.
    pub(super) latest: u64,
    pub(super) node_names: BTreeMap<String, String>,
    pub(super) csr_names: BTreeMap<String, BTreeSet<String>>,
    /// Pending requests for a first certificate.
    pub(super) first_requests: BTreeSet<String>,
    /// Those of them that show that a host has the wrong name, and whose name that is.
    pub(super) astray: BTreeMap<String, NameOf>,
    /// Requests of users without the right, by the node name in them.
    pub(super) stranger_names: BTreeMap<String, BTreeSet<String>>,
    /// Machines by the expected name of their Node, and by the name in their `nodeRef`.
    pub(super) claims: BTreeMap<String, BTreeSet<String>>,
    /// Machines that have a run: they are of interest even when they are no Windows machines any more.
    runs: BTreeSet<String>,
    /// UIDs that were deleted: a late event does not bring them back. UIDs are never used again.
    gone: BTreeSet<String>,
    /// Machines that exist, but cannot be read or exceed the limit. Nothing is published about them, above all not that
    /// they are gone.
    veiled: BTreeSet<String>,
    /// Whether machines of some API may not be listed: an absent one may still exist.
    pub(super) machines_hidden: bool,
    /// Sets of some API may not be listed.
    pub(super) sets_hidden: bool,
    /// Machines by what would be the same in two APIs: name, and provider id.
    twins: BTreeMap<String, BTreeSet<String>>,
    /// Machines about which something changed.
    pub(super) changed: BTreeSet<String>,
    /// Something changed that owner facts show.
    pub(super) owners_changed: bool,
    /// A MachineSet has other numbers of ready and available machines.
    pub(super) numbers_changed: bool,
}

impl View {
    /// An empty view. `runs`: UIDs of the machines whose runs have not ended.
    pub(super) fn new(runs: &[String]) -> Self {
        Self {
            runs: runs.iter().cloned().collect(),
            ..Self::default()
        }
    }

    /// Adds or replaces an object; `false` if there is no room for it. An older version is ignored.
    pub(super) fn observe(&mut self, object: ObservedObject) -> bool {
        let (kind, uid, resource) = object.key();
        let known = self.resource(kind, uid);
        if self.gone.contains(uid) || known.is_some_and(|known| resource < known) {
            return true;
        }
        if let ObservedObject::Machine(machine) = &object
            && !machine.windows
            && known.is_none()
            && !self.runs.contains(uid)
        {
            return true;
        }
        if known.is_none() && self.count(kind) >= OBJECTS_MAX {
            if matches!(kind, Kind::Machine(_)) {
                self.veiled.insert(uid.to_owned());
            }
            return false;
        }
        self.latest = self.latest.max(resource);
        match object {
            ObservedObject::Machine(machine) => self.observe_machine(*machine),
            ObservedObject::Set(set) => {
                // The number of ready Machines changes with every Node: that alone waits for the next repeats.
                let known = self.sets.get(&set.uid);
                let same = known.is_some_and(|known| {
                    (
                        known.replicas,
                        known.windows,
                        &known.name,
                        &known.selector,
                        known.autoscaled,
                    ) == (
                        set.replicas,
                        set.windows,
                        &set.name,
                        &set.selector,
                        set.autoscaled,
                    )
                });
                let kept = |known: &ObservedSet| {
                    known.selector == set.selector && known.fields == set.fields
                };
                if !known.is_some_and(kept) {
                    self.changed.extend(owned_by(&self.machines, &set.uid));
                }
                self.numbers_changed |= known.is_some_and(|known| {
                    (known.ready, known.available) != (set.ready, set.available)
                });
                self.owners_changed |= !same;
                self.sets.insert(set.uid.clone(), set);
            }
            ObservedObject::Node(node) => self.observe_node(node),
            ObservedObject::Csr(csr) => self.observe_csr(csr),
        }
        true
    }

    /// Marks a Machine that exists and cannot be read.
    pub(super) fn veil(&mut self, uid: &str) {
        self.veiled.insert(uid.to_owned());
    }

    /// Whether a Machine exists about which nothing can be published.
    pub(super) fn is_veiled(&self, uid: &str) -> bool {
        self.veiled.contains(uid) || (self.machines_hidden && !self.gone.contains(uid))
    }

    fn observe_machine(&mut self, machine: ObservedMachine) {
        let uid = machine.fact.machine.uid.clone();
        self.veiled.remove(&uid);
        self.unclaim(&uid);
        for name in claimed(&machine) {
            self.claims
                .entry(name.to_owned())
                .or_default()
                .insert(uid.clone());
            self.touch(name);
        }
        let mut keys = self.machines.get(&uid).map(twin_keys).unwrap_or_default();
        keys.iter()
            .for_each(|key| forget(&mut self.twins, key, &uid));
        for key in twin_keys(&machine) {
            let uids = self.twins.entry(key.clone()).or_default();
            uids.insert(uid.clone());
            keys.push(key);
        }
        self.machines.insert(uid.clone(), machine);
        self.count_once(&keys);
        self.changed.insert(uid);
        self.owners_changed = true;
    }

    /// Counts only the authoritative one of machines that two APIs show.
    fn count_once(&mut self, keys: &[String]) {
        let same = keys.iter().filter_map(|key| self.twins.get(key)).flatten();
        let uids: BTreeSet<String> = same.cloned().collect();
        for uid in uids {
            let Some(one) = self.machines.get(&uid) else {
                continue;
            };
            if !one.fact.machine.api.is_cluster() {
                continue;
            }
            let of = twin_keys(one);
            let others = of.iter().filter_map(|key| self.twins.get(key)).flatten();
            let mut others = others.filter_map(|other| self.machines.get(other));
            let twin = others.any(|other| other.stands_for(one));
            if let Some(one) = self.machines.get_mut(&uid)
                && one.twin != twin
            {
                one.twin = twin;
                self.changed.insert(uid);
                self.owners_changed = true;
            }
        }
    }

    fn observe_node(&mut self, node: ObservedNode) {
        let name = node.fact.name.clone();
        let uid = node.fact.uid.clone();
        self.touch(&name);
        if let Some(before) = self.node_names.insert(name, uid.clone())
            && before != uid
        {
            // Another Node has the name now; the deletion of the earlier one will still arrive.
            self.nodes.remove(&before);
            self.mark_gone(before);
        }
        self.nodes.insert(uid, node);
    }

    /// Keeps only pending requests, the ones that were pending until their decision, and those whose certificate was issued.
    fn observe_csr(&mut self, mut csr: ObservedCsr) {
        let before = self.csrs.get(&csr.uid);
        csr.node = csr
            .node
            .or_else(|| before.and_then(|before| before.node.clone()));
        let unknown_requester = before.and_then(|before| before.unknown_requester.clone());
        if before.is_none() && !csr.fact.pending && csr.fact.issued.is_none() {
            return;
        }
        if let Some(unknown_requester) =
            unknown_requester.filter(|it| csr.unknown_requester.as_ref() != Some(it))
        {
            forget(&mut self.stranger_names, &unknown_requester.node, &csr.uid);
            self.touch(&unknown_requester.node);
        }
        if let Some(name) = csr.unknown_requester.as_ref().map(|it| it.node.clone()) {
            let uids = self.stranger_names.entry(name.clone()).or_default();
            uids.insert(csr.uid.clone());
            self.touch(&name);
        }
        match csr.first {
            Some(_) => self.first_requests.insert(csr.uid.clone()),
            None => self.first_requests.remove(&csr.uid),
        };
        if let Some(name) = &csr.node {
            self.csr_names
                .entry(name.clone())
                .or_default()
                .insert(csr.uid.clone());
            self.touch(&name.clone());
        }
        self.csrs.insert(csr.uid.clone(), csr);
    }

    /// Finds the requests that show that a host has the wrong name, and marks the machines that wait for a Node if they are
    /// others than before. `home`: the namespace of dormer.
    pub(super) fn find_astray(&mut self, home: &str) {
        let misnamed = self.first_requests.iter().filter_map(|uid| {
            let csr = self.csrs.get(uid)?;
            Some((csr, self.name_in(csr, home)?))
        });
        let mut in_order: Vec<(&ObservedCsr, NameOf)> = misnamed.collect();
        in_order.sort_by_key(|(csr, _)| csr.resource);
        let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
        let compared = in_order.into_iter().filter(|(csr, _)| {
            let Some(FirstAsker::Own(user)) = &csr.first else {
                return true;
            };
            let count = asked.entry(user).or_default();
            *count += 1;
            *count <= OWN_ASTRAY_MAX
        });
        let by_uid = compared.map(|(csr, name_of)| (csr.uid.clone(), name_of));
        let astray: BTreeMap<String, NameOf> = by_uid.collect();
        if astray == self.astray {
            return;
        }
        let waits = |machine: &&ObservedMachine| {
            let expected = machine.expected.as_ref();
            expected.is_some_and(|name| !self.node_names.contains_key(name))
        };
        let waiting = self.machines.values().filter(waits);
        let waiting: Vec<String> = waiting
            .map(|machine| machine.fact.machine.uid.clone())
            .collect();
        self.changed.extend(waiting);
        self.astray = astray;
    }

    /// Whose name a request for a first certificate has, if that shows that its host has the wrong one.
    fn name_in(&self, csr: &ObservedCsr, home: &str) -> Option<NameOf> {
        let asker = csr.first.as_ref()?;
        let name = csr.node.as_ref()?;
        let owner = self.owner_of_csr(name);
        let name_of = match (self.node_names.contains_key(name), owner) {
            (true, _) => NameOf::Node,
            (false, Some(_)) => NameOf::OtherMachine,
            (false, None) => NameOf::Nobody,
        };
        let wrong = match (asker, name_of) {
            // The user shows whose host asks.
            (FirstAsker::Own(_), NameOf::OtherMachine) => {
                !owner.is_some_and(|owner| asker.may_be(home, owner))
            }
            (FirstAsker::Own(_), _) | (_, NameOf::Node) => true,
            // It may be that machine's own.
            (_, NameOf::OtherMachine) => false,
            // Of what all hosts share, only a name that is taken already shows that something is wrong.
            (asker, NameOf::Nobody) => *asker != FirstAsker::Shared,
        };
        wrong.then_some(name_of)
    }

    /// Whether the machine's run had not ended when this epoch began.
    pub(super) fn has_run(&self, uid: &str) -> bool {
        self.runs.contains(uid)
    }

    /// Takes out a host that is another dormer's: to its run here it is gone. It may come back.
    pub(super) fn disown(&mut self, uid: &str) {
        self.unclaim(uid);
        if self.machines.remove(uid).is_some() {
            self.owners_changed = true;
        }
        self.veiled.remove(uid);
        self.changed.insert(uid.to_owned());
    }

    /// Takes out an object that was deleted at `resource`.
    pub(super) fn lose(&mut self, kind: Kind, uid: &str, resource: u64) {
        self.latest = self.latest.max(resource);
        self.mark_gone(uid.to_owned());
        match kind {
            Kind::Machine(_) => {
                self.unclaim(uid);
                let lost = self.machines.remove(uid);
                let keys = lost.as_ref().map(twin_keys).unwrap_or_default();
                keys.iter()
                    .for_each(|key| forget(&mut self.twins, key, uid));
                self.count_once(&keys);
                self.veiled.remove(uid);
                self.changed.insert(uid.to_owned());
                self.owners_changed = true;
            }
            Kind::Set(_) => {
                self.owners_changed |= self.sets.remove(uid).is_some();
            }
            Kind::Node => {
                if let Some(node) = self.nodes.remove(uid) {
                    self.node_names.remove(&node.fact.name);
                    self.touch(&node.fact.name);
                }
            }
            Kind::Csr => {
                let lost = self.csrs.remove(uid);
                self.first_requests.remove(uid);
                let (node, unknown_requester) =
                    lost.map_or((None, None), |csr| (csr.node, csr.unknown_requester));
                if let Some(name) = node {
                    forget(&mut self.csr_names, &name, uid);
                    self.touch(&name);
                }
                if let Some(unknown_requester) = unknown_requester {
                    forget(&mut self.stranger_names, &unknown_requester.node, uid);
                    self.touch(&unknown_requester.node);
                }
            }
            Kind::Pool | Kind::PoolMap | Kind::Instances => {}
        }
    }

    fn mark_gone(&mut self, uid: String) {
        if self.gone.len() < OBJECTS_MAX {
            self.gone.insert(uid);
        }
    }

    fn unclaim(&mut self, uid: &str) {
        let Some(before) = self.machines.get(uid) else {
            return;
        };
        let names: Vec<_> = claimed(before).map(str::to_owned).collect();
        for name in names {
            self.touch(&name);
            forget(&mut self.claims, &name, uid);
        }
    }

    /// Marks the machines that claim this name for new messages.
    fn touch(&mut self, name: &str) {
        if let Some(uids) = self.claims.get(name) {
            self.changed.extend(uids.iter().cloned());
        }
    }

    fn resource(&self, kind: Kind, uid: &str) -> Option<u64> {
        match kind {
            Kind::Machine(_) => self.machines.get(uid).map(|object| object.resource),
            Kind::Set(_) => self.sets.get(uid).map(|object| object.resource),
            Kind::Node => self.nodes.get(uid).map(|object| object.resource),
            Kind::Csr => self.csrs.get(uid).map(|object| object.resource),
            Kind::Pool | Kind::PoolMap | Kind::Instances => None,
        }
    }

    fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Machine(_) => self.machines.len(),
            Kind::Set(_) => self.sets.len(),
            Kind::Node => self.nodes.len(),
            Kind::Csr => self.csrs.len(),
            Kind::Pool | Kind::PoolMap | Kind::Instances => 0,
        }
    }
}

/// Identifiers that the same machine has in both APIs.
fn twin_keys(machine: &ObservedMachine) -> Vec<String> {
    let api = machine.fact.machine.api;
    if api == MachineApi::Host {
        return Vec::new();
    }
    let id = machine.fact.provider_id.as_ref();
    let id = id.map(|id| format!("id {}", id.to_lowercase()));
    let name = format!("name {}", machine.fact.machine.name);
    [Some(name), id].into_iter().flatten().collect()
}

fn claimed(machine: &ObservedMachine) -> impl Iterator<Item = &str> {
    machine
        .expected
        .as_deref()
        .into_iter()
        .chain(machine.fact.node.as_deref())
}

fn forget(index: &mut BTreeMap<String, BTreeSet<String>>, name: &str, uid: &str) {
    if let Some(uids) = index.get_mut(name) {
        uids.remove(uid);
        if uids.is_empty() {
            index.remove(name);
        }
    }
}
