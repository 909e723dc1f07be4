//! Cluster API's controllers for Machines and MachineSets, of either version of its API. An object that was written in
//! v1beta1 gets the fields of v1beta1. The infrastructure provider is the world's cloud: it has no objects of its own here,
//! and the kind that `infrastructureRef` names says which cloud it is.
//!
//! Rules: kubernetes-sigs/cluster-api ae7ff047d; each function names its file.

mod machine;
mod machine_set;

pub use machine::{ClusterMachines, LINK, NO_DRAIN, is_windows};
pub use machine_set::{ClusterMachineSets, DELETE_FIRST};

use serde_json::{Value, json};

use super::client::Client;
use crate::api::{Key, Meta, kinds, kinds::Kind};

/// The label of each object of a Cluster.
pub const CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
/// Pauses the controllers for an object, whatever its value.
const PAUSED: &str = "cluster.x-k8s.io/paused";

/// Whether an object is of v1beta1.
fn is_old(object: &Value) -> bool {
    object["apiVersion"] == "cluster.x-k8s.io/v1beta1"
}

/// The kind of a Machine in its version.
fn machine_kind(machine: &Value) -> &'static Kind {
    match is_old(machine) {
        true => &kinds::CLUSTER_MACHINE_V1BETA1,
        false => &kinds::CLUSTER_MACHINE,
    }
}

/// The kind of a MachineSet in its version.
fn set_kind(set: &Value) -> &'static Kind {
    match is_old(set) {
        true => &kinds::CLUSTER_MACHINE_SET_V1BETA1,
        false => &kinds::CLUSTER_MACHINE_SET,
    }
}

/// The Cluster of a Machine or a MachineSet.
fn cluster_of(client: &Client, object: &Value) -> Option<Value> {
    let name = object["spec"]["clusterName"].as_str()?;
    let key = Key::new(object.namespace(), name);
    let found = client.get(&kinds::CLUSTER_API_CLUSTER, &key)?;
    Some(found.value.clone())
}

/// Whether the controllers leave an object alone (`util/annotations/helpers.go`, `IsPaused`).
fn is_paused(client: &Client, object: &Value) -> bool {
    let cluster = cluster_of(client, object);
    let of_cluster = cluster.is_some_and(|it| it["spec"]["paused"] == true);
    of_cluster || object.annotation(PAUSED).is_some()
}

/// The condition of a pause (`util/paused/paused.go`, `EnsurePausedCondition`): v1beta1 keeps such conditions in
/// `status.v1beta2`.
fn paused_status(client: &Client, object: &Value, paused: bool) -> Option<Value> {
    let wanted = if paused { "True" } else { "False" };
    let conditions = match is_old(object) {
        true => &object["status"]["v1beta2"]["conditions"],
        false => &object["status"]["conditions"],
    };
    let mut there = conditions.as_array().into_iter().flatten();
    let there = there.find(|it| it["type"] == "Paused");
    if there.is_some_and(|it| it["status"] == wanted) || (there.is_none() && !paused) {
        return None;
    }
    let condition = json!({"type": "Paused", "status": wanted,
        "reason": if paused { "Paused" } else { "NotPaused" }, "lastTransitionTime": client.stamp()});
    Some(match is_old(object) {
        true => json!({"v1beta2": {"conditions": [condition]}}),
        false => json!({"conditions": [condition]}),
    })
}
