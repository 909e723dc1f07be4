//! Deployments, ReplicaSets and DaemonSets: enough of them that an evicted pod comes back
//! elsewhere.

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{client::Client, run::Reconcile, scheduler};
use crate::{
    api::{DeleteOptions, Key, ListQuery, Meta, Refusal, kinds, kinds::Kind, store::Event},
    faults::splitmix,
};

/// Makes each Deployment's one ReplicaSet.
pub struct Deployments {
    /// Its view of the cluster.
    pub client: Client,
}

impl Reconcile for Deployments {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![&kinds::DEPLOYMENT, &kinds::REPLICA_SET]
    }

    fn keys(&self, kind: &'static Kind, event: &Event) -> Vec<Key> {
        let value = &event.object.value;
        if kind == &kinds::DEPLOYMENT {
            vec![Key::of(value)]
        } else {
            owner(value, "Deployment")
        }
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let Some(deployment) = self.client.get(&kinds::DEPLOYMENT, &key) else {
                return Ok(None);
            };
            let deployment = &deployment.value;
            let name = format!("{}-{}", key.name, template_hash(deployment));
            let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
            let mut sets = self.client.within(&kinds::REPLICA_SET, &key.namespace);
            sets.retain(|s| {
                s.value
                    .controller()
                    .is_some_and(|(_, uid)| uid == deployment.uid())
            });
            for set in &sets {
                let want = if set.value.name() == name {
                    replicas
                } else {
                    0
                };
                if set.value["spec"]["replicas"] != want {
                    let scale = json!({"spec": {"replicas": want}});
                    self.client
                        .merge(&kinds::REPLICA_SET, &Key::of(&set.value), &scale)
                        .await?;
                }
            }
            let Some(set) = sets.iter().find(|s| s.value.name() == name) else {
                let set = replica_set(deployment, &name, replicas);
                self.client
                    .create(&kinds::REPLICA_SET, &key.namespace, set)
                    .await?;
                return Ok(None);
            };
            let number = |field: &str| set.value["status"][field].as_u64().unwrap_or(0);
            let status = json!({"replicas": number("replicas"),
                "updatedReplicas": number("replicas"), "readyReplicas": number("readyReplicas"),
                "availableReplicas": number("readyReplicas"),
                "observedGeneration": deployment["metadata"]["generation"]});
            self.client.status(&kinds::DEPLOYMENT, &key, status).await?;
            Ok(None)
        })
    }
}

/// Makes the pods of ReplicaSets and StatefulSets.
pub struct ReplicaSets {
    /// Its view of the cluster.
    pub client: Client,
    /// Which of the two.
    pub kind: &'static Kind,
}

impl Reconcile for ReplicaSets {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![self.kind, &kinds::POD]
    }

    fn keys(&self, kind: &'static Kind, event: &Event) -> Vec<Key> {
        let value = &event.object.value;
        if kind == self.kind {
            vec![Key::of(value)]
        } else {
            owner(value, self.kind.kind)
        }
    }

    fn gather(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let Some(set) = self.client.get(self.kind, &key) else {
                return Ok(None);
            };
            let set = &set.value;
            let mut pods = self.client.within(&kinds::POD, &key.namespace);
            pods.retain(|p| {
                p.value
                    .controller()
                    .is_some_and(|(_, uid)| uid == set.uid())
            });
            let want = usize::try_from(set["spec"]["replicas"].as_u64().unwrap_or(1)).unwrap_or(0);
            if self.kind == &kinds::STATEFUL_SET {
                self.stateful(&key, set, want, &pods).await?;
            } else {
                let mut active = pods.clone();
                active.retain(|p| !p.value.deleting() && !finished(&p.value));
                for _ in active.len()..want {
                    let pod = pod_of(self.kind, set, None);
                    self.client.create(&kinds::POD, &key.namespace, pod).await?;
                }
                active.sort_by_key(|p| p.value.is("Ready"));
                for pod in active.iter().take(active.len().saturating_sub(want)) {
                    let options = DeleteOptions::default();
                    self.client
                        .delete(&kinds::POD, &Key::of(&pod.value), &options)
                        .await?;
                }
            }
            let alive = pods
                .iter()
                .filter(|p| !p.value.deleting() && !finished(&p.value));
            let ready = alive.clone().filter(|p| p.value.is("Ready")).count();
            let status = json!({"replicas": alive.count().max(want), "readyReplicas": ready,
                "availableReplicas": ready,
                "observedGeneration": set["metadata"]["generation"]});
            self.client.status(self.kind, &key, status).await?;
            Ok(None)
        })
    }
}

impl ReplicaSets {
    /// A StatefulSet's pod comes back under its name, and only once the old one is gone.
    async fn stateful(
        &self,
        key: &Key,
        set: &Value,
        want: usize,
        pods: &[std::sync::Arc<crate::api::Object>],
    ) -> Result<(), Refusal> {
        for ordinal in 0..want {
            let name = format!("{}-{ordinal}", key.name);
            if !pods.iter().any(|p| p.value.name() == name) {
                let pod = pod_of(self.kind, set, Some(&name));
                self.client.create(&kinds::POD, &key.namespace, pod).await?;
            }
        }
        Ok(())
    }
}

/// Makes one pod per fitting node.
pub struct DaemonSets {
    /// Its view of the cluster.
    pub client: Client,
}

impl Reconcile for DaemonSets {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![&kinds::DAEMON_SET, &kinds::NODE, &kinds::POD]
    }

    fn keys(&self, kind: &'static Kind, event: &Event) -> Vec<Key> {
        let value = &event.object.value;
        if kind == &kinds::DAEMON_SET {
            return vec![Key::of(value)];
        }
        if kind == &kinds::POD {
            return if event.deleted {
                owner(value, "DaemonSet")
            } else {
                Vec::new()
            };
        }
        if event.before.is_some() && !event.deleted {
            return Vec::new();
        }
        self.client
            .all(&kinds::DAEMON_SET)
            .iter()
            .map(|d| Key::of(&d.value))
            .collect()
    }

    fn gather(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let Some(set) = self.client.get(&kinds::DAEMON_SET, &key) else {
                return Ok(None);
            };
            let set = &set.value;
            let mut pods = self.client.within(&kinds::POD, &key.namespace);
            pods.retain(|p| {
                p.value
                    .controller()
                    .is_some_and(|(_, uid)| uid == set.uid())
            });
            let on = |p: &Value| {
                p["spec"]["nodeName"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            let have: std::collections::HashSet<String> =
                pods.iter().map(|p| on(&p.value)).collect();
            let mut wanted = 0;
            for node in self.client.all(&kinds::NODE) {
                let mut pod = pod_of(&kinds::DAEMON_SET, set, None);
                if !scheduler::fits(&pod, &node.value, true) {
                    continue;
                }
                wanted += 1;
                if !have.contains(node.value.name()) {
                    pod["spec"]["nodeName"] = json!(node.value.name());
                    self.client.create(&kinds::POD, &key.namespace, pod).await?;
                }
            }
            let status = json!({"desiredNumberScheduled": wanted,
                "currentNumberScheduled": wanted, "numberReady": pods.len(),
                "observedGeneration": set["metadata"]["generation"]});
            self.client.status(&kinds::DAEMON_SET, &key, status).await?;
            Ok(None)
        })
    }
}

fn finished(pod: &Value) -> bool {
    matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    )
}

fn owner(value: &Value, kind: &str) -> Vec<Key> {
    let owners = value["metadata"]["ownerReferences"].as_array();
    let owner = owners.into_iter().flatten().find(|o| o["kind"] == kind);
    let name = owner.and_then(|o| o["name"].as_str());
    name.map(|name| Key::new(value.namespace(), name))
        .into_iter()
        .collect()
}

fn template_hash(deployment: &Value) -> String {
    let text = deployment["spec"]["template"].to_string();
    let hash = text.bytes().fold(0u64, |h, b| splitmix(h ^ u64::from(b)));
    format!("{:010x}", hash >> 24)
}

fn replica_set(deployment: &Value, name: &str, replicas: u64) -> Value {
    let spec = &deployment["spec"];
    json!({
        "metadata": {"name": name, "labels": spec["template"]["metadata"]["labels"],
            "ownerReferences": [owner_reference(&kinds::DEPLOYMENT, deployment)]},
        "spec": {"replicas": replicas, "selector": spec["selector"],
            "template": spec["template"]},
    })
}

fn owner_reference(kind: &Kind, owner: &Value) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.kind, "name": owner.name(),
        "uid": owner.uid(), "controller": true, "blockOwnerDeletion": true})
}

fn pod_of(kind: &Kind, set: &Value, name: Option<&str>) -> Value {
    let template = &set["spec"]["template"];
    let mut meta = json!({"labels": template["metadata"]["labels"],
        "annotations": template["metadata"]["annotations"],
        "ownerReferences": [owner_reference(kind, set)]});
    match name {
        Some(name) => meta["name"] = json!(name),
        None => meta["generateName"] = json!(format!("{}-", set.name())),
    }
    json!({"metadata": meta, "spec": template["spec"]})
}

/// Keeps budgets' status: how many pods are healthy, and how many may go.
pub struct Budgets {
    /// Its view of the cluster.
    pub client: Client,
}

impl Reconcile for Budgets {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![&kinds::PDB, &kinds::POD]
    }

    fn keys(&self, kind: &'static Kind, event: &Event) -> Vec<Key> {
        let value = &event.object.value;
        if kind == &kinds::PDB {
            return vec![Key::of(value)];
        }
        let budgets = self.client.within(&kinds::PDB, value.namespace());
        budgets
            .iter()
            .filter(|b| selects(&b.value, value))
            .map(|b| Key::of(&b.value))
            .collect()
    }

    fn gather(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let Some(budget) = self.client.get(&kinds::PDB, &key) else {
                return Ok(None);
            };
            let budget = &budget.value;
            let labels = crate::api::selector::Labels::of(&budget["spec"]["selector"]);
            let query = ListQuery {
                namespace: Some(key.namespace.clone()),
                labels,
                ..ListQuery::default()
            };
            let mut pods = self.client.list(&kinds::POD, &query);
            pods.retain(|p| !finished(&p.value));
            let gone = &budget["status"]["disruptedPods"];
            let healthy = |p: &Value| p.is("Ready") && !p.deleting() && gone[p.name()].is_null();
            let current = pods.iter().filter(|p| healthy(&p.value)).count();
            let expected = self.expected(&pods);
            let desired = desired(budget, expected);
            let mut disrupted = gone.as_object().cloned().unwrap_or_default();
            disrupted.retain(|name, _| {
                pods.iter()
                    .any(|p| p.value.name() == name && !p.value.deleting())
            });
            let mut patch = json!({"currentHealthy": current, "desiredHealthy": desired,
                "expectedPods": expected, "disruptionsAllowed": current.saturating_sub(desired),
                "observedGeneration": budget["metadata"]["generation"]});
            for name in gone.as_object().into_iter().flatten().map(|(name, _)| name) {
                if !disrupted.contains_key(name) {
                    patch["disruptedPods"][name] = Value::Null;
                }
            }
            self.client.status(&kinds::PDB, &key, patch).await?;
            Ok(None)
        })
    }
}

impl Budgets {
    /// How many pods there should be: what their controllers want.
    fn expected(&self, pods: &[std::sync::Arc<crate::api::Object>]) -> usize {
        let mut owners = std::collections::BTreeMap::new();
        let mut bare = 0;
        for pod in pods {
            match pod.value.controller() {
                Some((kind, uid)) => {
                    let name = owner(&pod.value, kind).into_iter().next();
                    owners.insert(uid.to_owned(), (kind.to_owned(), name));
                }
                None => bare += 1,
            }
        }
        let wants = |(kind, key): &(String, Option<Key>)| {
            let kind = [&kinds::REPLICA_SET, &kinds::STATEFUL_SET]
                .into_iter()
                .find(|k| k.kind == kind)?;
            let set = self.client.get(kind, key.as_ref()?)?;
            set.value["spec"]["replicas"]
                .as_u64()
                .and_then(|n| usize::try_from(n).ok())
        };
        bare + owners.values().filter_map(wants).sum::<usize>()
    }
}

fn selects(budget: &Value, pod: &Value) -> bool {
    let selector = &budget["spec"]["selector"];
    !selector.is_null() && crate::api::selector::Labels::of(selector).matches(pod)
}

/// How many pods must stay: `minAvailable`, or all but `maxUnavailable`; percentages round up.
fn desired(budget: &Value, expected: usize) -> usize {
    let number = |v: &Value| -> Option<usize> {
        match v {
            Value::Number(n) => usize::try_from(n.as_u64()?).ok(),
            Value::String(s) => {
                let percent: usize = s.strip_suffix('%')?.parse().ok()?;
                Some((expected * percent).div_ceil(100))
            }
            _ => None,
        }
    };
    let spec = &budget["spec"];
    match (
        number(&spec["minAvailable"]),
        number(&spec["maxUnavailable"]),
    ) {
        (Some(min), _) => min,
        (None, Some(max)) => expected.saturating_sub(max),
        (None, None) => expected.saturating_sub(1),
    }
}
