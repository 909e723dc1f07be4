//! MachineSets, as OpenShift's Machine API has them: a Machine that is being deleted does not
//! count, so its replacement is made at once (docs/field-notes.md, Machines of OpenShift).

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{client::Client, run::Reconcile};
use crate::api::{DeleteOptions, Key, Meta, Object, Refusal, kinds, kinds::Kind, store::Event};

/// Marks a Machine that should go first when its set shrinks.
pub const DELETE_FIRST: &str = "machine.openshift.io/delete-machine";
const DELETE_FIRST_OLD: &str = "machine.openshift.io/cluster-api-delete-machine";

/// The controller of MachineSets.
pub struct MachineSets {
    /// Its view of the cluster.
    pub client: Client,
}

impl Reconcile for MachineSets {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![&kinds::MACHINE_SET, &kinds::MACHINE, &kinds::NODE]
    }

    fn keys(&self, kind: &'static Kind, event: &Event) -> Vec<Key> {
        let value = &event.object.value;
        if kind == &kinds::MACHINE_SET {
            return vec![Key::of(value)];
        }
        if kind == &kinds::MACHINE {
            return owner_set(value).into_iter().collect();
        }
        let ready = |o: &Arc<Object>| o.value.is("Ready");
        if event.before.as_ref().map(ready) == Some(ready(&event.object)) {
            return Vec::new();
        }
        let machine = value
            .annotation(super::nodelink::MACHINE)
            .and_then(|m| m.split_once('/'));
        let machine =
            machine.and_then(|(ns, n)| self.client.get(&kinds::MACHINE, &Key::new(ns, n)));
        machine
            .and_then(|m| owner_set(&m.value))
            .into_iter()
            .collect()
    }

    fn gather(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(self.one(key))
    }
}

fn owner_set(machine: &Value) -> Option<Key> {
    let owners = machine["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|o| o["kind"] == "MachineSet")?;
    Some(Key::new(machine.namespace(), owner["name"].as_str()?))
}

impl MachineSets {
    async fn one(&self, key: Key) -> Result<Option<Duration>, Refusal> {
        let Some(set) = self.client.get(&kinds::MACHINE_SET, &key) else {
            return Ok(None);
        };
        let set = &set.value;
        if set.deleting() {
            return Ok(None);
        }
        let mut machines = self.client.within(&kinds::MACHINE, &key.namespace);
        machines.retain(|m| {
            m.value
                .controller()
                .is_some_and(|(_, uid)| uid == set.uid())
        });
        machines.retain(|m| !m.value.deleting());
        let want = usize::try_from(set["spec"]["replicas"].as_u64().unwrap_or(1)).unwrap_or(0);
        for _ in machines.len()..want {
            let made = self
                .client
                .create(&kinds::MACHINE, &key.namespace, machine_of(set))
                .await?;
            machines.push(made);
        }
        let surplus = machines.len().saturating_sub(want);
        if surplus > 0 {
            let policy = set["spec"]["deletePolicy"]
                .as_str()
                .unwrap_or("Random")
                .to_owned();
            machines
                .sort_by_cached_key(|m| (std::cmp::Reverse(priority(&m.value)), created(&m.value)));
            if policy == "Newest" {
                machines.sort_by_cached_key(|m| {
                    std::cmp::Reverse((priority(&m.value), created(&m.value)))
                });
            }
            for machine in machines.drain(..surplus) {
                let key = Key::of(&machine.value);
                self.client
                    .delete(&kinds::MACHINE, &key, &DeleteOptions::default())
                    .await?;
            }
        }
        self.write_status(&key, set, &machines).await?;
        Ok(None)
    }

    async fn write_status(
        &self,
        key: &Key,
        set: &Value,
        machines: &[Arc<Object>],
    ) -> Result<(), Refusal> {
        let node = |m: &Arc<Object>| {
            let name = m.value["status"]["nodeRef"]["name"].as_str()?;
            self.client.get(&kinds::NODE, &Key::new("", name))
        };
        let ready = machines
            .iter()
            .filter_map(node)
            .filter(|n| n.value.is("Ready"))
            .count();
        let status = json!({
            "replicas": machines.len(), "fullyLabeledReplicas": machines.len(),
            "readyReplicas": ready, "availableReplicas": ready,
            "observedGeneration": set["metadata"]["generation"],
        });
        self.client
            .status(&kinds::MACHINE_SET, key, status)
            .await
            .map(drop)
    }
}

/// The age's order: by the time of making, then by name.
fn created(machine: &Value) -> (String, String) {
    let made = machine["metadata"]["creationTimestamp"]
        .as_str()
        .unwrap_or_default();
    (made.to_owned(), machine.name().to_owned())
}

/// Order in which a smaller set deletes Machines: marked ones, failed ones, those without a node.
fn priority(machine: &Value) -> u8 {
    let mark = |name| machine.annotation(name).is_some_and(|v| !v.is_empty());
    if mark(DELETE_FIRST) || mark(DELETE_FIRST_OLD) {
        100
    } else if machine["status"]["phase"] == "Failed" || machine["status"]["errorReason"].is_string()
    {
        60
    } else if machine["status"]["nodeRef"].is_null() {
        40
    } else {
        20
    }
}

fn machine_of(set: &Value) -> Value {
    let template = &set["spec"]["template"];
    let mut spec = template["spec"].clone();
    if spec.is_null() {
        spec = json!({});
    }
    json!({
        "metadata": {
            "generateName": format!("{}-", set.name()),
            "labels": template["metadata"]["labels"],
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [{"apiVersion": kinds::MACHINE_SET.api_version(),
                "kind": "MachineSet", "name": set.name(), "uid": set.uid(),
                "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": spec,
    })
}
