//! The scheduler, and what kubelets do to pods: they run as status only, on Ready nodes.

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{client::Client, run::Reconcile};
use crate::api::{DeleteOptions, Key, Meta, Refusal, kinds, kinds::Kind, store::Event};

const RETRY_EVERY: Duration = Duration::from_secs(5);
/// Pods that one node can have, as the kubelets' configuration says.
const PODS_PER_NODE_MAX: usize = 250;
const STARTS_IN: Duration = Duration::from_secs(2);
const STOPS_IN: Duration = Duration::from_secs(1);
/// How long a pod stays on a node that does not report (`tolerationSeconds`' default).
const TOLERATED: Duration = Duration::from_secs(300);

/// Gives pods a node, starts them there and ends them there.
pub struct Pods {
    /// Its view of the cluster.
    pub client: Client,
    /// How fast the world runs.
    pub pace: crate::world::Pace,
}

impl Reconcile for Pods {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![&kinds::POD, &kinds::NODE]
    }

    fn keys(&self, kind: &'static Kind, event: &Event) -> Vec<Key> {
        let value = &event.object.value;
        if kind == &kinds::POD {
            return if event.deleted {
                Vec::new()
            } else {
                vec![Key::of(value)]
            };
        }
        let serves = |v: &Value| v.is("Ready") && v["spec"]["unschedulable"] != true;
        let was = event.before.as_ref().is_some_and(|b| serves(&b.value));
        let is = !event.deleted && serves(value);
        if was == is && !event.deleted {
            return Vec::new();
        }
        let mut pods = self.client.pods_on(value.name());
        if is {
            pods.extend(self.client.pods_on("").into_iter().take(PODS_PER_NODE_MAX));
        }
        pods.iter().map(|p| Key::of(&p.value)).collect()
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let Some(pod) = self.client.get(&kinds::POD, &key) else {
                return Ok(None);
            };
            let pod = &pod.value;
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            if node.is_empty() {
                return self.schedule(&key, pod).await;
            }
            let Some(node) = self.client.get(&kinds::NODE, &Key::new("", node)) else {
                // The pods of a node that is no more are collected.
                self.pace.sleep(STOPS_IN).await;
                self.client
                    .delete(&kinds::POD, &key, &DeleteOptions::now())
                    .await?;
                return Ok(None);
            };
            if !node.value.is("Ready") {
                return self.on_silent_node(&key, pod, &node.value).await;
            }
            if pod.deleting() {
                self.pace.sleep(STOPS_IN).await;
                let uid = Some(pod.uid().to_owned());
                let options = DeleteOptions {
                    uid,
                    ..DeleteOptions::now()
                };
                return self
                    .client
                    .delete(&kinds::POD, &key, &options)
                    .await
                    .map(|()| None);
            }
            if !pod.is("Ready") {
                self.pace.sleep(STARTS_IN).await;
                let now = self.client.get(&kinds::POD, &key);
                // Its kubelet says that it cannot start; that kubelet starts it when it can.
                if !now.is_some_and(|pod| waits(&pod.value)) {
                    self.start(&key, &node.value).await?;
                }
            }
            Ok(None)
        })
    }
}

impl Pods {
    async fn schedule(&self, key: &Key, pod: &Value) -> Result<Option<Duration>, Refusal> {
        if pod.deleting() {
            return Ok(None);
        }
        let Some(pod) = self.of_its_class(pod) else {
            return Ok(Some(RETRY_EVERY * 12));
        };
        let pod = &pod;
        let nodes = self.client.all(&kinds::NODE);
        let mut least = None;
        for node in &nodes {
            let count = self.client.count_on(node.value.name());
            let better = least.as_ref().is_none_or(|(fewest, _)| count < *fewest);
            if better && count < PODS_PER_NODE_MAX && fits(pod, &node.value, false) {
                least = Some((count, node));
            }
            if matches!(least, Some((0, _))) {
                break;
            }
        }
        let Some((_, node)) = least else {
            return Ok(Some(RETRY_EVERY * 12));
        };
        let bind = json!({"spec": {"nodeName": node.value.name()}});
        self.client.merge(&kinds::POD, key, &bind).await?;
        Ok(None)
    }

    /// The pod with what its RuntimeClass adds to selector and tolerations; none while there is no such class. (The real
    /// API server does that when a pod is made, and refuses it without the class.)
    fn of_its_class(&self, pod: &Value) -> Option<Value> {
        let mut pod = pod.clone();
        let Some(name) = pod["spec"]["runtimeClassName"].as_str() else {
            return Some(pod);
        };
        let class = self
            .client
            .get(&kinds::RUNTIME_CLASS, &Key::new("", name))?;
        let scheduling = &class.value["scheduling"];
        for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
            pod["spec"]["nodeSelector"][key] = value.clone();
        }
        let mut tolerations = pod["spec"]["tolerations"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        tolerations.extend(
            scheduling["tolerations"]
                .as_array()
                .cloned()
                .unwrap_or_default(),
        );
        pod["spec"]["tolerations"] = json!(tolerations);
        Some(pod)
    }

    async fn start(&self, key: &Key, node: &Value) -> Result<(), Refusal> {
        let stamp = self.client.stamp();
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True",
            "lastTransitionTime": stamp})
        };
        let host = node["status"]["addresses"]
            .as_array()
            .and_then(|a| a.first().cloned());
        let status = json!({"phase": "Running", "startTime": stamp,
            "hostIP": host.map(|h| h["address"].clone()),
            "conditions": [condition("PodScheduled"), condition("Initialized"),
                condition("ContainersReady"), condition("Ready")]});
        self.client.status(&kinds::POD, key, status).await.map(drop)
    }

    /// On a node that does not report, a pod is not ready, and deleted after five minutes unless
    /// its tolerations say otherwise; it goes when the node does.
    async fn on_silent_node(
        &self,
        key: &Key,
        pod: &Value,
        node: &Value,
    ) -> Result<Option<Duration>, Refusal> {
        if pod.is("Ready") {
            let not = json!({"conditions": [{"type": "Ready", "status": "False",
                "lastTransitionTime": self.client.stamp()}]});
            self.client.status(&kinds::POD, key, not).await?;
        }
        let daemon = pod
            .controller()
            .is_some_and(|(kind, _)| kind == "DaemonSet");
        if pod.deleting() || daemon {
            return Ok(None);
        }
        let since = node
            .condition("Ready")
            .and_then(|c| c["lastTransitionTime"].as_str());
        let since = since.and_then(|s| s.parse::<jiff::Timestamp>().ok());
        let silent = since.map(|since| self.client.server().clock().since(since));
        let silent = silent.unwrap_or_default();
        let left = TOLERATED.saturating_sub(self.pace.simulated(silent));
        if left.is_zero() {
            self.client
                .delete(&kinds::POD, key, &DeleteOptions::default())
                .await?;
            return Ok(None);
        }
        Ok(Some(left))
    }
}

/// Whether a pod may run on a node: selector, taints and tolerations, and unless it is a
/// DaemonSet's, that the node is Ready and not cordoned.
pub fn fits(pod: &Value, node: &Value, daemon: bool) -> bool {
    let serves = node.is("Ready") && node["spec"]["unschedulable"] != true && !node.deleting();
    let selector = pod["spec"]["nodeSelector"]
        .as_object()
        .into_iter()
        .flatten();
    let os = |key: &str| match key {
        "beta.kubernetes.io/os" => "kubernetes.io/os".to_owned(),
        other => other.to_owned(),
    };
    let selected = selector.clone().all(|(key, value)| {
        node["metadata"]["labels"][key] == *value || node["metadata"]["labels"][os(key)] == *value
    });
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut hard = taints.filter(|t| t["effect"] != "PreferNoSchedule");
    let tolerations: Vec<&Value> = pod["spec"]["tolerations"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let tolerated = hard.all(|taint| {
        let own = taint["key"]
            .as_str()
            .is_some_and(|k| k.starts_with("node.kubernetes.io/"));
        (daemon && own) || tolerations.iter().any(|t| tolerates(t, taint))
    });
    (daemon || serves) && selected && tolerated
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let text = |v: &Value, f: &str| v[f].as_str().unwrap_or_default().to_owned();
    // The guide's own manifest spells the field "Effect".
    let effect = text(toleration, "effect");
    let effect_fits = effect.is_empty() || effect == text(taint, "effect");
    let key = text(toleration, "key");
    if text(toleration, "operator") == "Exists" {
        return effect_fits && (key.is_empty() || key == text(taint, "key"));
    }
    let value_fits = text(toleration, "value") == text(taint, "value");
    effect_fits && key == text(taint, "key") && value_fits
}

/// Whether a kubelet says of a container why it waits.
fn waits(pod: &Value) -> bool {
    let containers = pod["status"]["containerStatuses"].as_array();
    let waiting = |container: &Value| container["state"]["waiting"].is_object();
    containers.is_some_and(|all| all.iter().any(waiting))
}
