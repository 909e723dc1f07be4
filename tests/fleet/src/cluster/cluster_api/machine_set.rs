//! Cluster API's MachineSets (`core/reconcilers/machineset`): a Machine that is being deleted counts until it is gone, so
//! its replacement is made afterwards.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{CLUSTER, is_old, is_paused, machine_kind, set_kind};
use crate::{
    api::{
        DeleteOptions, Key, ListQuery, Meta, Object, Refusal, kinds, kinds::Kind, selector::Labels,
        store::Event,
    },
    cluster::{client::Client, run::Reconcile},
};

/// Marks a Machine that should go first when its set shrinks, whatever its value.
pub const DELETE_FIRST: &str = "cluster.x-k8s.io/delete-machine";
/// The label of a Machine that names its set.
const SET: &str = "cluster.x-k8s.io/set-name";

/// The controller of MachineSets.
pub struct ClusterMachineSets {
    /// Its view of the cluster.
    pub client: Client,
}

impl Reconcile for ClusterMachineSets {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![
            &kinds::CLUSTER_MACHINE_SET,
            &kinds::CLUSTER_MACHINE,
            &kinds::NODE,
        ]
    }

    fn keys(&self, kind: &'static Kind, event: &Event) -> Vec<Key> {
        let value = &event.object.value;
        if kind == &kinds::CLUSTER_MACHINE_SET {
            return vec![Key::of(value)];
        }
        let of_machine = |machine: &Value| {
            let owners = machine["metadata"]["ownerReferences"].as_array()?;
            let owner = owners.iter().find(|it| it["kind"] == "MachineSet")?;
            Some(Key::new(machine.namespace(), owner["name"].as_str()?))
        };
        if kind == &kinds::CLUSTER_MACHINE {
            return of_machine(value).into_iter().collect();
        }
        let ready = |object: &Arc<Object>| object.value.is("Ready");
        if event.before.as_ref().map(ready) == Some(ready(&event.object)) {
            return Vec::new();
        }
        let machines = self.client.all(&kinds::CLUSTER_MACHINE);
        let named = |it: &&Arc<Object>| it.value["status"]["nodeRef"]["name"] == value.name();
        let machine = machines.iter().find(named);
        machine
            .and_then(|it| of_machine(&it.value))
            .into_iter()
            .collect()
    }

    fn gather(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let Some(set) = self.client.get(&kinds::CLUSTER_MACHINE_SET, &key) else {
                return Ok(None);
            };
            let set = &set.value;
            if !set.deleting() && !is_paused(&self.client, set) {
                self.one(&key, set).await?;
            }
            Ok(None)
        })
    }
}

impl ClusterMachineSets {
    async fn one(&self, key: &Key, set: &Value) -> Result<(), Refusal> {
        let mut machines = self.machines(key, set).await?;
        let want = set["spec"]["replicas"].as_u64().unwrap_or(1);
        let want = usize::try_from(want).unwrap_or(usize::MAX);
        let creates = set.annotation("cluster.x-k8s.io/disable-machine-create") != Some("true");
        for _ in (machines.len()..want).take_while(|_| creates) {
            let kind = machine_kind(set);
            let made = self.client.create(kind, &key.namespace, machine_of(set));
            machines.push(made.await?);
        }
        let surplus = machines.len().saturating_sub(want);
        let newest = order_of(set) == "Newest";
        machines.sort_by_cached_key(|it| (Reverse(priority(&it.value)), age(&it.value, newest)));
        let go: Vec<_> = machines.iter().take(surplus).collect();
        for machine in go.into_iter().filter(|it| !it.value.deleting()) {
            let key = Key::of(&machine.value);
            let options = DeleteOptions::default();
            let kind = machine_kind(set);
            self.client.delete(kind, &key, &options).await?;
        }
        self.write_status(key, set, &machines).await
    }

    /// The Machines that its selector matches and no other controller has; one without a controller is adopted
    /// (`machineset_controller.go`, `getAndAdoptMachinesForMachineSet`).
    async fn machines(&self, key: &Key, set: &Value) -> Result<Vec<Arc<Object>>, Refusal> {
        let query = ListQuery {
            namespace: Some(key.namespace.clone()),
            labels: Labels::of(&set["spec"]["selector"]),
            ..ListQuery::default()
        };
        let mut machines = self.client.list(&kinds::CLUSTER_MACHINE, &query);
        machines.retain(|it| {
            let controller = it.value.controller();
            controller.is_none_or(|(_, uid)| uid == set.uid())
        });
        for machine in &machines {
            if machine.value.controller().is_none() {
                let adopted = json!({"metadata": {"ownerReferences": [owner(set)]}});
                let key = Key::of(&machine.value);
                self.client.merge(machine_kind(set), &key, &adopted).await?;
            }
        }
        Ok(machines)
    }

    async fn write_status(
        &self,
        key: &Key,
        set: &Value,
        machines: &[Arc<Object>],
    ) -> Result<(), Refusal> {
        let node = |it: &Arc<Object>| {
            let name = it.value["status"]["nodeRef"]["name"].as_str()?;
            self.client.get(&kinds::NODE, &Key::new("", name))
        };
        let nodes = machines.iter().filter_map(node);
        let ready = nodes.filter(|node| node.value.is("Ready")).count();
        let mut status = json!({"replicas": machines.len(), "readyReplicas": ready,
            "availableReplicas": ready, "observedGeneration": set["metadata"]["generation"]});
        let all = match is_old(set) {
            true => "fullyLabeledReplicas",
            false => "upToDateReplicas",
        };
        status[all] = json!(machines.len());
        self.client
            .status(set_kind(set), key, status)
            .await
            .map(drop)
    }
}

/// `spec.deletion.order`, in v1beta1 `spec.deletePolicy`.
fn order_of(set: &Value) -> &str {
    let spec = &set["spec"];
    let order = match is_old(set) {
        true => &spec["deletePolicy"],
        false => &spec["deletion"]["order"],
    };
    order.as_str().unwrap_or("Random")
}

/// Which Machines a smaller set counts as gone first: those that go, marked ones, those without a healthy node
/// (`machineset_deletion_order.go`).
fn priority(machine: &Value) -> u8 {
    let unhealthy = machine["status"]["nodeRef"].is_null()
        || machine
            .condition("NodeHealthy")
            .is_some_and(|it| it["status"] == "False");
    if machine.deleting() {
        100
    } else if machine.annotation(DELETE_FIRST).is_some() {
        80
    } else if unhealthy {
        50
    } else {
        20
    }
}

/// Orders Machines of one priority: the newest first, or by their names alone.
fn age(machine: &Value, newest: bool) -> (Reverse<String>, String) {
    let made = text(&machine["metadata"]["creationTimestamp"]);
    let made = if newest { made } else { String::new() };
    (Reverse(made), machine.name().to_owned())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn owner(set: &Value) -> Value {
    json!({"apiVersion": set["apiVersion"], "kind": "MachineSet", "name": set.name(),
        "uid": set.uid(), "controller": true, "blockOwnerDeletion": true})
}

/// A new Machine (`machineset_controller.go`, `computeDesiredMachine`). Its infrastructure object has the template's kind
/// without `Template`, and the Machine's name.
fn machine_of(set: &Value) -> Value {
    let template = &set["spec"]["template"];
    let mut labels = template["metadata"]["labels"].clone();
    labels[SET] = json!(set.name());
    labels[CLUSTER] = set["spec"]["clusterName"].clone();
    let mut spec = template["spec"].clone();
    spec["clusterName"] = set["spec"]["clusterName"].clone();
    let kind = text(&spec["infrastructureRef"]["kind"]);
    if let Some(kind) = kind.strip_suffix("Template") {
        spec["infrastructureRef"]["kind"] = json!(kind);
    }
    json!({
        "metadata": {
            "generateName": format!("{}-", set.name()),
            "labels": labels,
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [owner(set)],
        },
        "spec": spec,
    })
}
