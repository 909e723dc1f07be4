//! The nodelink controller: finds each Node's Machine, and carries over what the Machine wants on
//! its Node.

use dormer_proto::lock::Locked as _;
use std::{collections::HashMap, sync::Mutex, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{client::Client, run::Reconcile};
use crate::api::{Key, Meta, Refusal, kinds, kinds::Kind, store::Event};

/// The annotation on a Node that names its Machine, `namespace/name`.
pub const MACHINE: &str = "machine.openshift.io/machine";

/// The controller that links Nodes and Machines.
pub struct NodeLink {
    client: Client,
    /// Machines and Nodes by providerID and InternalIP.
    known: Mutex<KnownMachine>,
}

#[derive(Default)]
struct KnownMachine {
    machines: HashMap<String, Key>,
    nodes: HashMap<String, Key>,
    /// Whether each Node was ready when its Machine was linked last, by name. A Node that is deleted stays in it, and
    /// one of the same name that is as ready is not linked (machine-api-operator 951196122,
    /// `pkg/controller/nodelink/nodelink_controller.go`, `nodeReadinessCache`).
    ready: HashMap<String, bool>,
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.and_then(|all| all.iter().find(|it| it["type"] == "Ready"));
    ready.is_some_and(|it| it["status"] == "True")
}

impl NodeLink {
    /// A controller with this view of the cluster.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }
}

/// By what a Machine and its Node are matched: the providerID first, then the InternalIP.
fn marks(value: &Value) -> Vec<String> {
    let provider = value["spec"]["providerID"]
        .as_str()
        .filter(|id| !id.is_empty());
    let addresses = value["status"]["addresses"]
        .as_array()
        .into_iter()
        .flatten();
    let internal = addresses.filter(|a| a["type"] == "InternalIP");
    let internal = internal.filter_map(|a| a["address"].as_str());
    provider
        .into_iter()
        .chain(internal)
        .map(str::to_owned)
        .collect()
}

impl Reconcile for NodeLink {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![&kinds::MACHINE, &kinds::NODE]
    }

    fn keys(&self, kind: &'static Kind, event: &Event) -> Vec<Key> {
        let value = &event.object.value;
        let key = Key::of(value);
        let mut known = self.known.locked();
        let of_machine = kind == &kinds::MACHINE;
        for mark in marks(value) {
            let index = if of_machine {
                &mut known.machines
            } else {
                &mut known.nodes
            };
            if event.deleted {
                if index.get(&mark) == Some(&key) {
                    index.remove(&mark);
                }
            } else {
                index.insert(mark, key.clone());
            }
        }
        if !of_machine {
            let same = |before: &Value| is_ready(before) == is_ready(value);
            let linked = event.before.as_ref().is_some_and(|it| same(&it.value))
                && value.annotation(MACHINE).is_some();
            return if linked && !event.deleted {
                Vec::new()
            } else {
                vec![key]
            };
        }
        if event.deleted {
            return Vec::new();
        }
        marks(value)
            .iter()
            .filter_map(|mark| known.nodes.get(mark))
            .take(1)
            .cloned()
            .collect()
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(self.one(key))
    }
}

impl NodeLink {
    async fn one(&self, key: Key) -> Result<Option<Duration>, Refusal> {
        let Some(node) = self.client.get(&kinds::NODE, &key) else {
            return Ok(None);
        };
        let machine = {
            let known = self.known.locked();
            marks(&node.value)
                .iter()
                .find_map(|mark| known.machines.get(mark).cloned())
        };
        let machine = machine.and_then(|key| self.client.get(&kinds::MACHINE, &key));
        let Some(machine) = machine.filter(|m| !m.value.deleting()) else {
            return Ok(None);
        };
        let machine = &machine.value;
        let node = &node.value;
        let wanted = &machine["spec"]["metadata"];
        let mut annotations = wanted["annotations"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        let name = Key::of(machine).to_string();
        annotations.insert(MACHINE.to_owned(), json!(name));
        let labels = wanted["labels"].as_object().cloned().unwrap_or_default();
        let mut patch = json!({"metadata": {"annotations": annotations, "labels": labels}});
        if let Some(more) = machine["spec"]["taints"].as_array() {
            let mut taints = node["spec"]["taints"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let same = |a: &Value, b: &Value| a["key"] == b["key"] && a["effect"] == b["effect"];
            for taint in more {
                if !taints.iter().any(|t| same(t, taint)) {
                    taints.push(taint.clone());
                }
            }
            patch["spec"] = json!({ "taints": taints });
        }
        self.client.merge(&kinds::NODE, &key, &patch).await?;
        let node_ref = json!({"apiVersion": "v1", "kind": "Node", "name": node.name(),
            "uid": node.uid()});
        let ready = is_ready(node);
        let cached = {
            let known = self.known.locked();
            known.ready.get(node.name()) == Some(&ready)
        };
        if !cached {
            let status = json!({"nodeRef": node_ref, "lastUpdated": self.client.stamp()});
            self.client
                .status(&kinds::MACHINE, &Key::of(machine), status)
                .await?;
            let mut known = self.known.locked();
            known.ready.insert(node.name().to_owned(), ready);
        }
        Ok(None)
    }
}
