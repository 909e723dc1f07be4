//! Cluster API's machine controller (`core/reconcilers/machine`), with the infrastructure provider's part of it.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{CLUSTER, cluster_of, is_old, is_paused, machine_kind, paused_status};
use crate::{
    api::{DeleteOptions, Key, Meta, Object, Refusal, auth, kinds, kinds::Kind, store::Event},
    cluster::{
        client::Client,
        drain::{self, Rules},
        machine,
        run::Reconcile,
    },
    world::{CloudAction, CloudError, HostCloud, HostOrder, Instance, Pace, Platform},
};

/// The finalizer that holds a Machine until its instance is gone (`api/core/v1beta2/machine_types.go`, as the next five).
const FINALIZER: &str = "machine.cluster.x-k8s.io";
/// The annotation that lets the drain be skipped, whatever its value.
pub const NO_DRAIN: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// The label of a control plane's Machine.
const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
/// Annotations that begin so hold the drain.
const PRE_DRAIN: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
/// Annotations that begin so hold the end of the instance.
const PRE_TERMINATE: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
/// The annotation on a Node that names its Machine (`api/core/v1beta2/common_types.go`).
pub const LINK: &str = "cluster.x-k8s.io/machine";
/// On a Node: the labels that its Machine gave it.
const LABELS_FROM: &str = "cluster.x-k8s.io/labels-from-machine";
/// Domains whose labels a Machine gives its Node, with their subdomains but for the first
/// (`util/labels/helpers.go`, `GetManagedLabels`).
const MANAGED: [&str; 3] = [
    "node-role.kubernetes.io",
    "node-restriction.kubernetes.io",
    "node.cluster.x-k8s.io",
];

const CLOUD_LATENCY: Duration = Duration::from_secs(3);
/// The pause between two passes of a drain (`machine_controller.go`, `drainRetryInterval`).
const DRAIN_AGAIN: Duration = Duration::from_secs(20);
/// The pause before what the provider lacks is looked for again (`machine_controller_phases.go`, `externalReadyWait`).
const PROVIDER_AGAIN: Duration = Duration::from_secs(30);

/// The machine controller.
pub struct ClusterMachines {
    /// Its view of the cluster.
    pub client: Client,
    /// Where instances come from.
    pub cloud: Arc<dyn HostCloud>,
    /// How fast the world runs.
    pub pace: Pace,
}

impl Reconcile for ClusterMachines {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![
            &kinds::CLUSTER_MACHINE,
            &kinds::NODE,
            &kinds::CLUSTER_API_CLUSTER,
        ]
    }

    fn keys(&self, kind: &'static Kind, event: &Event) -> Vec<Key> {
        let value = &event.object.value;
        let key = Key::of(value);
        if kind == &kinds::CLUSTER_MACHINE {
            return if event.deleted { Vec::new() } else { vec![key] };
        }
        let concerns = |machine: &&Arc<Object>| match kind == &kinds::NODE {
            true => is_node_of(value, &machine.value),
            false => machine.value["spec"]["clusterName"] == key.name,
        };
        let machines = self.client.all(&kinds::CLUSTER_MACHINE);
        let concerned = machines.iter().filter(concerns);
        concerned.map(|machine| Key::of(&machine.value)).collect()
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let Some(found) = self.client.get(&kinds::CLUSTER_MACHINE, &key) else {
                return Ok(None);
            };
            self.one(&key, &found.value).await
        })
    }
}

impl ClusterMachines {
    async fn one(&self, key: &Key, machine: &Value) -> Result<Option<Duration>, Refusal> {
        if !machine.has_finalizer(FINALIZER) && !machine.deleting() {
            let mut all = machine["metadata"]["finalizers"].as_array().cloned();
            all.get_or_insert_default().push(json!(FINALIZER));
            let patch = json!({"metadata": {"finalizers": all}});
            self.merge(key, machine, &patch).await?;
            return Ok(None);
        }
        let paused = is_paused(&self.client, machine);
        if let Some(status) = paused_status(&self.client, machine, paused) {
            self.status(key, machine, status).await?;
            return Ok(None);
        }
        if paused {
            return Ok(None);
        }
        if machine.deleting() {
            return self.take_away(key, machine).await;
        }
        if text(&machine["spec"]["providerID"]).is_empty() {
            return self.provision(key, machine).await;
        }
        self.keep(key, machine).await
    }

    /// A Machine is Pending until it has an instance: the phase Provisioning is one of Machines whose user data a
    /// bootstrap provider makes (`machine_controller_status.go`, `setMachinePhaseAndLastUpdated`, and
    /// `machine_controller_phases.go`, `reconcileBootstrap`).
    async fn provision(&self, key: &Key, machine: &Value) -> Result<Option<Duration>, Refusal> {
        if machine["status"]["phase"].is_null() {
            self.status(key, machine, json!({"phase": "Pending"}))
                .await?;
            return Ok(None);
        }
        let Some(order) = self.order(key, machine) else {
            return Ok(Some(PROVIDER_AGAIN));
        };
        let windows = order.windows;
        self.pace.sleep(CLOUD_LATENCY).await;
        let instance = match self.cloud.provision(order).await {
            Ok(instance) => instance,
            Err(CloudError::Quota(_) | CloudError::Invalid(_)) => return Ok(Some(PROVIDER_AGAIN)),
        };
        let id = json!({"spec": {"providerID": instance.provider_id}});
        match self.merge(key, machine, &id).await {
            Err(refusal) if refusal.code == 404 => {
                self.cloud.delete(machine.uid()).await;
                return Ok(None);
            }
            made => made?,
        }
        let mut status = provisioned(machine);
        status["phase"] = json!("Provisioned");
        status["addresses"] = machine::addresses(&instance);
        self.status(key, machine, status).await?;
        if !windows {
            self.linux_node(machine, &instance).await?;
        }
        Ok(None)
    }

    /// What the infrastructure provider orders; `None`: there is no user data yet. All providers read the key `value` of
    /// the Secret that `spec.bootstrap.dataSecretName` names (cluster-api-provider-aws, `pkg/cloud/scope/machine.go`,
    /// `GetRawBootstrapData`).
    fn order(&self, key: &Key, machine: &Value) -> Option<HostOrder> {
        let secret = machine["spec"]["bootstrap"]["dataSecretName"].as_str()?;
        let secret = Key::new(&key.namespace, secret);
        let secret = self.client.get(&kinds::SECRET, &secret)?;
        let user_data = auth::secret_text(&secret.value, "value")?;
        let platform = match machine["spec"]["infrastructureRef"]["kind"].as_str() {
            Some("AWSMachine") => Platform::Aws,
            Some("AzureMachine") => Platform::Azure,
            Some("VSphereMachine") => Platform::VSphere,
            _ => Platform::Other,
        };
        Some(HostOrder {
            uid: machine.uid().to_owned(),
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            platform,
            windows: is_windows(machine),
            user_data: user_data.into_bytes(),
            image: String::new(),
        })
    }

    /// Links the Node with the Machine's providerID (`machine_controller_noderef.go`, `reconcileNode`). Once the Machine
    /// names a Node, it names no other.
    async fn keep(&self, key: &Key, machine: &Value) -> Result<Option<Duration>, Refusal> {
        let Some(instance) = self.cloud.perform(machine.uid(), CloudAction::Read).await else {
            return Ok(None);
        };
        let mut status = json!({});
        let addresses = machine::addresses(&instance);
        if machine["status"]["addresses"] != addresses {
            status["addresses"] = addresses;
        }
        if let Some(node) = self.node_of(machine) {
            self.link(machine, &node.value).await?;
            if machine["status"]["nodeRef"].is_null() {
                status["nodeRef"] = node_ref(machine, &node.value);
                status["phase"] = json!("Running");
            }
        }
        if status != json!({}) {
            self.status(key, machine, status).await?;
        }
        Ok(None)
    }

    fn node_of(&self, machine: &Value) -> Option<Arc<Object>> {
        let nodes = self.client.all(&kinds::NODE);
        nodes
            .into_iter()
            .find(|node| is_node_of(&node.value, machine))
    }

    /// Annotations and labels of a Node that are its Machine's (`machine_controller_noderef.go`, `patchNode`). Labels that
    /// the Machine gave it before and lost are taken away.
    async fn link(&self, machine: &Value, node: &Value) -> Result<(), Refusal> {
        let labels = machine["metadata"]["labels"].as_object();
        let mut labels: Map<String, Value> = labels
            .into_iter()
            .flatten()
            .filter(|(key, _)| is_managed(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let named: Vec<&str> = labels.keys().map(String::as_str).collect();
        let mut annotations = json!({
            CLUSTER: machine["spec"]["clusterName"],
            "cluster.x-k8s.io/cluster-namespace": machine.namespace(),
            LINK: machine.name(),
            LABELS_FROM: named.join(","),
            "cluster.x-k8s.io/annotations-from-machine": "",
        });
        let owners = machine["metadata"]["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten();
        if let Some(owner) = owners.find(|it| it["controller"] == true) {
            annotations["cluster.x-k8s.io/owner-kind"] = owner["kind"].clone();
            annotations["cluster.x-k8s.io/owner-name"] = owner["name"].clone();
        }
        let before = node.annotation(LABELS_FROM).unwrap_or_default();
        for lost in before.split(',').filter(|key| !key.is_empty()) {
            labels.entry(lost).or_insert(Value::Null);
        }
        let there = |part: &str, wanted: &Map<String, Value>| {
            let now = &node["metadata"][part];
            wanted.iter().all(|(key, value)| now[key] == *value)
        };
        let wanted = annotations.as_object().cloned().unwrap_or_default();
        if there("annotations", &wanted) && there("labels", &labels) {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": wanted, "labels": labels}});
        let node = Key::of(node);
        let patched = self.client.merge(&kinds::NODE, &node, &patch);
        patched.await.map(drop)
    }

    /// `machine_controller.go`, `reconcileDelete`. Without a Node that may be deleted nothing is drained and no hook before
    /// the drain counts.
    async fn take_away(&self, key: &Key, machine: &Value) -> Result<Option<Duration>, Refusal> {
        if machine["status"]["phase"] != "Deleting" {
            self.status(key, machine, json!({"phase": "Deleting"}))
                .await?;
            return Ok(None);
        }
        let named = text(&machine["status"]["nodeRef"]["name"]);
        let node = match self.client.get(&kinds::NODE, &Key::new("", named)) {
            None if named.is_empty() => self.node_of(machine),
            found => found,
        };
        let node = node.filter(|_| self.may_delete_nodes_of(machine));
        if let Some(node) = &node {
            if is_held(machine, PRE_DRAIN) {
                return Ok(None);
            }
            let waits_for_end =
                !machine["status"]["deletion"]["waitForPreTerminateHookStartTime"].is_null();
            let drains = machine.annotation(NO_DRAIN).is_none() && !waits_for_end;
            if drains && !drain::pass(&self.client, &node.value, Rules::ClusterApi).await? {
                return Ok(Some(DRAIN_AGAIN));
            }
        }
        if is_held(machine, PRE_TERMINATE) {
            let since =
                json!({"deletion": {"waitForPreTerminateHookStartTime": self.client.stamp()}});
            self.status(key, machine, since).await?;
            return Ok(None);
        }
        self.pace.sleep(CLOUD_LATENCY).await;
        self.cloud.delete(machine.uid()).await;
        if let Some(node) = node {
            let options = DeleteOptions::default();
            let node = Key::of(&node.value);
            self.client.delete(&kinds::NODE, &node, &options).await?;
        }
        let Some(now) = self.client.get(&kinds::CLUSTER_MACHINE, key) else {
            return Ok(None);
        };
        let finalizers = now.value["metadata"]["finalizers"].as_array().cloned();
        let mut finalizers = finalizers.unwrap_or_default();
        finalizers.retain(|it| it != FINALIZER);
        let patch = json!({"metadata": {"uid": machine.uid(), "finalizers": finalizers}});
        self.merge(key, machine, &patch).await?;
        Ok(None)
    }

    /// Whether Nodes of this Machine's Cluster are drained and deleted: not while the Cluster goes, nor where no Machine of
    /// the control plane is left (`machine_controller.go`, `isDeleteNodeAllowed`).
    fn may_delete_nodes_of(&self, machine: &Value) -> bool {
        let cluster = cluster_of(&self.client, machine);
        let machines = self
            .client
            .within(&kinds::CLUSTER_MACHINE, machine.namespace());
        let controls = |it: &Arc<Object>| {
            let same = it.value["spec"]["clusterName"] == machine["spec"]["clusterName"];
            same && it.value.label(CONTROL_PLANE).is_some() && !it.value.deleting()
        };
        cluster.is_some_and(|it| !it.deleting()) && machines.iter().any(controls)
    }

    /// A Linux machine has no simulated host: its Node is simply there.
    async fn linux_node(&self, machine: &Value, instance: &Instance) -> Result<(), Refusal> {
        let role = match machine.label(CONTROL_PLANE) {
            Some(_) => "control-plane",
            None => "worker",
        };
        let node = machine::static_node(&self.client, machine.name(), role, instance);
        match self.client.create(&kinds::NODE, "", node).await {
            Err(refusal) if refusal.code != 409 => Err(refusal),
            _ => Ok(()),
        }
    }

    async fn merge(&self, key: &Key, machine: &Value, patch: &Value) -> Result<(), Refusal> {
        let kind = machine_kind(machine);
        self.client.merge(kind, key, patch).await.map(drop)
    }

    async fn status(&self, key: &Key, machine: &Value, mut status: Value) -> Result<(), Refusal> {
        if status.get("phase").is_some() {
            status["lastUpdated"] = json!(self.client.stamp());
        }
        let kind = machine_kind(machine);
        self.client.status(kind, key, status).await.map(drop)
    }
}

/// Whether a Machine, or a template, says Windows. Cluster API has no field for it: these are the labels that dormer reads.
pub fn is_windows(machine: &Value) -> bool {
    machine::is_windows(machine) || machine.label("kubernetes.io/os") == Some("windows")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is_node_of(node: &Value, machine: &Value) -> bool {
    let id = text(&machine["spec"]["providerID"]);
    !id.is_empty() && node["spec"]["providerID"] == id
}

fn is_held(machine: &Value, hooks: &str) -> bool {
    let annotations = machine["metadata"]["annotations"].as_object();
    annotations.is_some_and(|all| all.keys().any(|key| key.starts_with(hooks)))
}

fn is_managed(label: &str) -> bool {
    let domain = label.split('/').next().unwrap_or_default();
    let within = |of: &str| {
        domain
            .strip_suffix(of)
            .is_some_and(|rest| rest.ends_with('.'))
    };
    MANAGED.contains(&domain) || MANAGED[1..].iter().any(|of| within(of))
}

/// The name alone in v1beta2; v1beta1 has kind and version beside it, and no UID since v1.11
/// (`api/core/v1beta1/conversion.go`).
fn node_ref(machine: &Value, node: &Value) -> Value {
    match is_old(machine) {
        true => json!({"apiVersion": "v1", "kind": "Node", "name": node.name()}),
        false => json!({"name": node.name()}),
    }
}

/// How each version says that the instance is there.
fn provisioned(machine: &Value) -> Value {
    match is_old(machine) {
        true => json!({"infrastructureReady": true}),
        false => json!({"initialization": {"infrastructureProvisioned": true}}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_three_domains_are_a_nodes() {
        for managed in [
            "node-role.kubernetes.io/worker",
            "node-restriction.kubernetes.io/team",
            "team.node-restriction.kubernetes.io/a",
            "node.cluster.x-k8s.io/pool",
            "a.b.node.cluster.x-k8s.io/pool",
        ] {
            assert!(is_managed(managed), "{managed}");
        }
        for not in [
            "a.node-role.kubernetes.io/worker",
            "anode.cluster.x-k8s.io/pool",
            "cluster.x-k8s.io/pool",
            "kubernetes.io/os",
            "team",
        ] {
            assert!(!is_managed(not), "{not}");
        }
    }
}
