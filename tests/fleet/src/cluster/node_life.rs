//! The node lifecycle controller: a node that is silent for 40 s is not Ready any more.

use dormer_proto::lock::Locked as _;
use std::{collections::HashMap, sync::Mutex, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{client::Client, machine::STATIC_NODE, run::Reconcile};
use crate::{
    api::{Key, Meta, Refusal, kinds, kinds::Kind, store::Event},
    world::Pace,
};

/// How long a node may be silent (node-monitor-grace-period).
pub const GRACE: Duration = Duration::from_secs(40);
/// In a world that runs much faster than life, a silence shorter than this, in real time, is a busy computer's and not
/// a node's.
const GRACE_LEAST: Duration = Duration::from_secs(3);
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The node lifecycle controller.
pub struct NodeLife {
    client: Client,
    pace: Pace,
    last_heartbeat: Mutex<HashMap<String, Instant>>,
}

impl NodeLife {
    /// A controller with this view of the cluster.
    pub fn new(client: Client, pace: Pace) -> Self {
        Self {
            client,
            pace,
            last_heartbeat: Mutex::default(),
        }
    }
}

impl Reconcile for NodeLife {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![&kinds::LEASE, &kinds::NODE]
    }

    fn keys(&self, kind: &'static Kind, event: &Event) -> Vec<Key> {
        let value = &event.object.value;
        if kind == &kinds::LEASE && value.namespace() != "kube-node-lease" {
            return Vec::new();
        }
        let mut last_heartbeat = self.last_heartbeat.locked();
        let name = value.name().to_owned();
        if kind == &kinds::NODE {
            if event.deleted {
                last_heartbeat.remove(&name);
                return Vec::new();
            }
            // Only what a kubelet writes is a heartbeat: a status that says Ready.
            let ready = |v: &Value| v.condition("Ready").cloned();
            let was = event.before.as_ref().and_then(|b| ready(&b.value));
            let is = ready(value);
            if was == is || is.is_some_and(|c| c["status"] == "Unknown") {
                return if event.before.is_none() {
                    vec![Key::new("", name)]
                } else {
                    Vec::new()
                };
            }
        }
        let first = last_heartbeat
            .insert(name.clone(), Instant::now())
            .is_none();
        let node = kind == &kinds::NODE;
        // Otherwise the node is looked at when its present grace ends.
        if first || node {
            vec![Key::new("", name)]
        } else {
            Vec::new()
        }
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let Some(node) = self.client.get(&kinds::NODE, &key) else {
                return Ok(None);
            };
            let node = &node.value;
            if node.annotation(STATIC_NODE).is_some() {
                return Ok(None);
            }
            let last_heartbeat = {
                let mut last_heartbeat = self.last_heartbeat.locked();
                *last_heartbeat
                    .entry(key.name.clone())
                    .or_insert_with(Instant::now)
            };
            let silent = self.pace.simulated(last_heartbeat.elapsed());
            let grace = GRACE.max(self.pace.simulated(GRACE_LEAST));
            if silent < grace {
                self.untaint(&key, node).await?;
                return Ok(Some(grace - silent + Duration::from_millis(10)));
            }
            if node
                .condition("Ready")
                .is_none_or(|c| c["status"] != "Unknown")
            {
                self.lost(&key, node).await?;
            }
            // Silence is looked at again, so that its end is seen even without a new status.
            Ok(Some(GRACE / 8))
        })
    }
}

impl NodeLife {
    async fn lost(&self, key: &Key, node: &Value) -> Result<(), Refusal> {
        let stamp = self.client.stamp();
        let ready = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastTransitionTime": stamp});
        self.client
            .status(&kinds::NODE, key, json!({ "conditions": [ready] }))
            .await?;
        let mut taints = taints(node);
        if !taints.iter().any(|t| t["key"] == UNREACHABLE) {
            for effect in ["NoSchedule", "NoExecute"] {
                taints.push(json!({"key": UNREACHABLE, "effect": effect, "timeAdded": stamp}));
            }
            let patch = json!({"spec": {"taints": taints}});
            self.client.merge(&kinds::NODE, key, &patch).await?;
        }
        Ok(())
    }

    async fn untaint(&self, key: &Key, node: &Value) -> Result<(), Refusal> {
        let mut left = taints(node);
        left.retain(|t| t["key"] != UNREACHABLE);
        if node.is("Ready") && left.len() < taints(node).len() {
            let patch = json!({"spec": {"taints": left}});
            self.client.merge(&kinds::NODE, key, &patch).await?;
        }
        Ok(())
    }
}

fn taints(node: &Value) -> Vec<Value> {
    node["spec"]["taints"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}
