//! Writes into the world's record what changes in the API mean for the nodes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{cluster_api, machine::STATIC_NODE, nodelink};
use crate::{
    api::{
        Key, Meta, kinds,
        store::{Event, Observer, Tx},
    },
    world::{Happened, Record, Unavailable},
};

/// An observer of the store that keeps the record.
pub fn observer(record: Record) -> Observer {
    Box::new(move |tx, store, event| match store {
        "nodes" => node(&record, tx, event),
        "machines.machine.openshift.io" | "machines.cluster.x-k8s.io" => {
            machine(&record, tx, event);
        }
        "machinesets.machine.openshift.io" | "machinesets.cluster.x-k8s.io" => {
            machine_set(&record, event);
        }
        "pods" => pod(&record, tx, event),
        _ => {}
    })
}

fn node(record: &Record, tx: &Tx<'_>, event: &Event) {
    let node = &event.object.value;
    // Linux nodes, which are never upgraded.
    if node.annotation(STATIC_NODE).is_some() {
        return record.linux_node(node.name(), !event.deleted && node.is("Ready"));
    }
    if event.deleted {
        return record.node_deleted(node.name(), Some(tx.by));
    }
    let before = event.before.as_ref().map(|b| &b.value);
    // Before its new state is recorded: what counts is whether it served until now.
    if fenced(node) && before.is_some_and(|before| !fenced(before)) {
        record.node_fenced(node.name());
    }
    let says = |n: &Value| {
        (
            n.is("Ready"),
            n["spec"]["unschedulable"] == true,
            machine_of(n).is_some(),
        )
    };
    let unfenced = !fenced(node) && before.is_some_and(fenced);
    if before.map(says) == Some(says(node)) {
        if unfenced {
            record.node_unfenced(node.name());
        }
        return;
    }
    let mut reasons = BTreeSet::new();
    if !node.is("Ready") {
        reasons.insert(Unavailable::NotReady);
    }
    if node["spec"]["unschedulable"] == true {
        reasons.insert(Unavailable::Cordoned);
    }
    let machine = machine_of(node).and_then(|(store, key)| tx.get(store, &key));
    let set = machine.and_then(|m| m.value.controller().map(|(_, uid)| uid.to_owned()));
    record.node_state(node.name(), set.as_deref(), reasons, Some(tx.by));
    if !fenced(node) {
        record.node_unfenced(node.name());
    }
}

/// Where the Machine is that a Node names.
fn machine_of(node: &Value) -> Option<(&'static str, Key)> {
    if let Some((namespace, name)) = node
        .annotation(nodelink::MACHINE)
        .and_then(|it| it.split_once('/'))
    {
        return Some((kinds::MACHINE.store, Key::new(namespace, name)));
    }
    let namespace = node.annotation("cluster.x-k8s.io/cluster-namespace")?;
    let name = node.annotation(cluster_api::LINK)?;
    Some((kinds::CLUSTER_MACHINE.store, Key::new(namespace, name)))
}

/// Whether the Node carries an open lease token (docs/decisions/0004-fences.md).
pub(super) fn fenced(node: &Value) -> bool {
    let fence = node.annotation("dormer.io/fence");
    fence.is_some_and(|text| text.ends_with(" open"))
}

fn machine(record: &Record, tx: &Tx<'_>, event: &Event) {
    let machine = &event.object.value;
    if let Some(node) = machine["status"]["nodeRef"]["name"].as_str() {
        record.node_of(machine.uid(), node);
    }
    let was_going = event.before.as_ref().is_some_and(|b| b.value.deleting());
    let going = event.deleted || machine.deleting();
    if going && !was_going {
        record.push(Happened::MachineDeleted {
            name: Key::of(machine).to_string(),
            machine: machine.uid().to_owned(),
            by: tx.by.to_owned(),
        });
    }
}

fn machine_set(record: &Record, event: &Event) {
    let set = &event.object.value;
    let replicas = set["spec"]["replicas"]
        .as_u64()
        .and_then(|n| usize::try_from(n).ok());
    let replicas = if event.deleted { None } else { replicas };
    record.set_size(set.uid(), replicas);
}

fn pod(record: &Record, tx: &Tx<'_>, event: &Event) {
    // An eviction records itself; here: who else deletes a pod that runs.
    let pod = &event.object.value;
    let was_going = event.before.as_ref().is_some_and(|b| b.value.deleting());
    let cluster = tx.by.starts_with("system:serviceaccount:kube-system:");
    if event.deleted && !was_going && !cluster {
        let by = tx.by.to_owned();
        record.push(Happened::PodDeleted {
            pod: Key::of(pod).to_string(),
            by,
        });
    }
}
