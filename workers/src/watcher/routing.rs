//! Routing of objects to runs: Nodes and CSRs by exact name, machines by their owner.

use super::{
    csr::ObservedCsr,
    objects::{ObservedMachine, ObservedNode, ObservedSet},
    view::View,
};
use dormer_proto::{
    machine::{MachineApi, Owner, same_provider_id},
    rollout::{OwnedMachine, OwnerFact},
};
use std::collections::BTreeMap;

impl View {
    /// The Node of this machine: the one that `nodeRef` names (by its UID, where it has one, or by the providerID), or
    /// the one that it expects and no other has. Never one of another system or of the control plane, whatever names it.
    /// A Node that was deleted and registers again has another UID, which `nodeRef` may never learn: Cluster API's
    /// v1beta1 writes it once (cluster-api v1.10.4, `machine_controller_noderef.go`), the Machine API's nodelink when
    /// readiness changed (machine-api-operator 951196122, `nodelink_controller.go`, `nodeReadinessCache`).
    pub(super) fn node_of(&self, machine: &ObservedMachine) -> Option<&ObservedNode> {
        let uid = &machine.fact.machine.uid;
        let name = match (&machine.fact.node, &machine.expected) {
            (Some(name), _) => name,
            (None, Some(name)) if self.owner_of_node(name) == Some(uid) => name,
            (None, _) => return None,
        };
        let node = self.nodes.get(self.node_names.get(name)?)?;
        let linked = machine.fact.node.as_ref().and(machine.node_uid.as_ref());
        let ids = (&machine.fact.provider_id, &node.fact.provider_id);
        let same_id = matches!(ids, (Some(ours), Some(theirs)) if same_provider_id(ours, theirs));
        let same = same_id || linked.is_none_or(|uid| *uid == node.fact.uid);
        (node.windows_worker && same).then_some(node)
    }

    fn owner_of_node(&self, name: &str) -> Option<&String> {
        let by_ref = self.only(name, |machine| machine.fact.node.as_deref() == Some(name));
        by_ref.or_else(|| {
            self.only(name, |machine| {
                machine.fact.node.is_none() && machine.expected.as_deref() == Some(name)
            })
        })
    }

    /// The only machine to which a request in this node's name is routed: its annotation equals the name. For a node
    /// that others configured, it has no annotation, and its `nodeRef` equals the name.
    pub(super) fn owner_of_csr(&self, name: &str) -> Option<&String> {
        let annotated = self.only(name, |machine| machine.expected.as_deref() == Some(name));
        annotated.or_else(|| {
            self.only(name, |machine| {
                machine.expected.is_none() && machine.fact.node.as_deref() == Some(name)
            })
        })
    }

    /// The machine that claims this name so; of several, the one that is not being deleted. Never one of two.
    fn only(&self, name: &str, so: impl Fn(&ObservedMachine) -> bool) -> Option<&String> {
        let uids = self.claims.get(name)?;
        let all: Vec<_> = uids
            .iter()
            .filter_map(|uid| {
                self.machines
                    .get(uid)
                    .filter(|machine| machine.counts() && so(machine))
                    .map(|m| (uid, m))
            })
            .collect();
        let staying: Vec<_> = all.iter().filter(|(_, m)| !m.fact.deleting).collect();
        match (&all[..], &staying[..]) {
            ([(uid, _)], _) => Some(uid),
            (_, [(uid, _)]) => Some(uid),
            _ => None,
        }
    }

    /// Another machine with the same claim, because of which requests in this node's name are routed to no machine.
    pub(super) fn rival(&self, name: &str, uid: &str) -> Option<&ObservedMachine> {
        if self.owner_of_csr(name).is_some() {
            return None;
        }
        let claims = self.claims.get(name)?.iter();
        let mut others = claims.filter(|other| *other != uid);
        others.find_map(|other| self.machines.get(other).filter(|it| it.counts()))
    }

    /// The requests in the name of this machine's node.
    pub(super) fn csrs_of<'a>(
        &'a self,
        machine: &'a ObservedMachine,
    ) -> impl Iterator<Item = &'a ObservedCsr> {
        let name = machine.expected.as_ref().or(machine.fact.node.as_ref());
        let mine = name.filter(|name| self.owner_of_csr(name) == Some(&machine.fact.machine.uid));
        let uids = mine
            .and_then(|name| self.csr_names.get(name))
            .into_iter()
            .flatten();
        uids.filter_map(|uid| self.csrs.get(uid))
    }

    /// Pending requests that belong to no machine of dormer.
    pub(super) fn foreign_csrs(&self) -> usize {
        let foreign = |csr: &&ObservedCsr| {
            csr.fact.pending
                && csr
                    .node
                    .as_ref()
                    .is_none_or(|name| self.owner_of_csr(name).is_none())
        };
        self.csrs.values().filter(foreign).count()
    }

    /// Its controller. A set makes another Machine in place of one whose labels its selector does not match any more,
    /// although that one still refers to it (docs/field-notes.md, Machines of OpenShift).
    pub(super) fn owner_of<'a>(&self, machine: &'a ObservedMachine) -> Option<&'a Owner> {
        let owner = machine.fact.owner.as_ref()?;
        let set = self.sets.get(&owner.uid);
        let kept = set.is_none_or(|set| set.keeps(&machine.labels));
        kept.then_some(owner)
    }

    /// The MachineSets that own, or will make, our machines; never one of Linux machines.
    pub(super) fn owners(&self) -> Vec<OwnerFact> {
        let mut owned: BTreeMap<&str, Vec<OwnedMachine>> = BTreeMap::new();
        for machine in self.machines.values() {
            if let Some(owner) = self.owner_of(machine) {
                owned.entry(&owner.uid).or_default().push(OwnedMachine {
                    uid: machine.fact.machine.uid.clone(),
                    created: machine.fact.created,
                    deleting: machine.fact.deleting,
                });
            }
        }
        let ours = self
            .sets
            .values()
            .filter(|set| set.windows || owned.contains_key(&*set.uid))
            .filter(|set| self.speaks_for_itself(set));
        ours.map(|set| OwnerFact {
            uid: set.uid.clone(),
            name: set.name.clone(),
            replicas: set.replicas,
            ready: Some(set.ready),
            available: Some(set.available),
            autoscaled: set.autoscaled,
            machines: owned.get(&*set.uid).cloned().unwrap_or_default(),
        })
        .collect()
    }

    /// Whether this set counts: if two APIs show the same set, only the authoritative one does.
    fn speaks_for_itself(&self, set: &ObservedSet) -> bool {
        if set.api == MachineApi::OpenShift {
            return set.speaks.as_deref().is_none_or(|api| api == "MachineAPI");
        }
        let same = |other: &&ObservedSet| {
            let speaks = other.speaks.as_deref();
            other.api == MachineApi::OpenShift
                && other.name == set.name
                && speaks.is_some_and(|api| api != "ClusterAPI")
        };
        !self.sets.values().any(|other| same(&other))
    }

    /// UIDs of the machines that have a Node and may have a run.
    pub(super) fn with_node(&self) -> Vec<String> {
        let has = |machine: &&ObservedMachine| {
            machine.may_start() && (machine.fact.node.is_some() || self.node_of(machine).is_some())
        };
        self.machines
            .values()
            .filter(has)
            .map(|machine| machine.fact.machine.uid.clone())
            .collect()
    }
}
