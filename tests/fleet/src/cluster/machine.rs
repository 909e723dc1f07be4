//! The machine controller: makes Machines into computers through the cloud, and drains and takes
//! them away again (docs/field-notes.md, Machines of OpenShift).

use dormer_proto::lock::Locked as _;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{client::Client, drain, run::Reconcile};
use crate::{
    api::{DeleteOptions, Key, Meta, Refusal, auth, kinds, kinds::Kind, store::Event},
    faults::{Fault, Faults},
    world::{CloudAction, CloudError, HostCloud, HostOrder, Instance, Pace, Platform},
};

/// The finalizer that holds a Machine until its instance is gone.
pub const FINALIZER: &str = "machine.machine.openshift.io";
/// The annotation that lets the drain be skipped.
pub const NO_DRAIN: &str = "machine.openshift.io/exclude-node-draining";
/// Marks a Node that has no kubelet behind it: the controllers keep it Ready.
pub const STATIC_NODE: &str = "fleet.dormer.io/static";

const CLOUD_LATENCY: Duration = Duration::from_secs(3);
const LATE_ADDRESS: Duration = Duration::from_secs(300);
const DRAIN_AGAIN: Duration = Duration::from_secs(5);
const QUOTA_AGAIN: Duration = Duration::from_secs(30);
const INSTANCE_POLL: Duration = Duration::from_secs(30);

/// The machine controller.
pub struct Machines {
    /// Its view of the cluster.
    pub client: Client,
    /// Where instances come from.
    pub cloud: Arc<dyn HostCloud>,
    /// What trouble is ordered.
    pub faults: Faults,
    /// How fast the world runs.
    pub pace: Pace,
    /// How many Windows machines the world began with; those after are replacements.
    pub first_machines: u32,
    /// Instances by the Machine's UID.
    pub instances: Mutex<HashMap<String, Instance>>,
}

impl Reconcile for Machines {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![&kinds::MACHINE]
    }

    fn keys(&self, _: &'static Kind, event: &Event) -> Vec<Key> {
        if event.deleted {
            Vec::new()
        } else {
            vec![Key::of(&event.object.value)]
        }
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let Some(machine) = self.client.get(&kinds::MACHINE, &key) else {
                return Ok(None);
            };
            let machine = &machine.value;
            if machine.deleting() {
                return self.take_away(&key, machine).await;
            }
            if !machine.has_finalizer(FINALIZER) {
                let mut all = machine["metadata"]["finalizers"].as_array().cloned();
                all.get_or_insert_default().push(json!(FINALIZER));
                let patch = json!({"metadata": {"finalizers": all}});
                self.client.merge(&kinds::MACHINE, &key, &patch).await?;
                return Ok(None);
            }
            if machine["status"]["phase"] == "Failed" {
                return Ok(None);
            }
            if machine["spec"]["providerID"]
                .as_str()
                .unwrap_or_default()
                .is_empty()
            {
                return self.provision(&key, machine).await;
            }
            self.keep(&key, machine).await
        })
    }
}

/// Whether the cloud had no room for the Machine.
fn could_not_be_created(machine: &Value) -> bool {
    let conditions = machine["status"]["conditions"].as_array();
    let refused = |it: &Value| it["type"] == "MachineCreated" && it["status"] == "False";
    conditions.is_some_and(|all| all.iter().any(refused))
}

impl Machines {
    async fn provision(&self, key: &Key, machine: &Value) -> Result<Option<Duration>, Refusal> {
        if machine["status"]["phase"].is_null() {
            self.status(key, json!({"phase": "Provisioning"})).await?;
            return Ok(None);
        }
        let windows = is_windows(machine);
        if windows {
            let nth = self.faults.enroll(&key.name);
            // "No room for the replacement" is aimed at those that the world did not begin with.
            if nth > self.first_machines && self.faults.ordered(Fault::ReplacementNever) {
                return self.no_room(key, "InstanceLimitExceeded").await;
            }
        }
        self.pace.sleep(CLOUD_LATENCY).await;
        let instance = match self.cloud.provision(self.order(key, machine)).await {
            Ok(instance) => instance,
            Err(CloudError::Quota(why)) => return self.no_room(key, &why).await,
            Err(CloudError::Invalid(why)) => {
                let status = json!({"phase": "Failed", "errorReason": "InvalidConfiguration",
                    "errorMessage": why});
                self.status(key, status).await?;
                return Ok(None);
            }
        };
        // The zone is on the Machine, too (machine-api-operator 951196122, `pkg/controller/machine/controller.go`,
        // `MachineAZLabelName`; machine-api-provider-aws, `setMachineCloudProviderSpecifics`).
        let provider = &machine["spec"]["providerSpec"]["value"];
        let zone = [
            provider.pointer("/placement/availabilityZone"),
            provider.get("zone"),
        ];
        let zone = zone.into_iter().flatten().find_map(Value::as_str);
        let labels = zone.map(|zone| json!({"machine.openshift.io/zone": zone}));
        let id = json!({"metadata": {"labels": labels.unwrap_or_else(|| json!({}))},
            "spec": {"providerID": instance.provider_id}});
        let late = windows && self.faults.strike(Fault::AddressLate, &key.name);
        self.remember(machine.uid(), &instance);
        let patched = self.client.merge(&kinds::MACHINE, key, &id).await;
        if matches!(&patched, Err(refusal) if refusal.code == 404) {
            self.cloud.delete(machine.uid()).await;
            return Ok(None);
        }
        let mut status = json!({"phase": "Provisioned",
            "providerStatus": {"instanceState": "running", "instanceId": instance.provider_id},
            "conditions": [self.condition("InstanceExists", "True"),
                self.condition("MachineCreated", "True"), self.condition("Drainable", "True"),
                self.condition("Terminable", "True")]});
        if !late {
            status["addresses"] = addresses(&instance);
        }
        self.status(key, status).await?;
        if late {
            return self.late_address(key, machine.uid()).await;
        }
        if !windows {
            self.linux_node(machine, &instance).await?;
        }
        Ok(None)
    }

    async fn no_room(&self, key: &Key, why: &str) -> Result<Option<Duration>, Refusal> {
        let status = json!({"phase": "Provisioning", "conditions": [{"type": "MachineCreated",
            "status": "False", "reason": "MachineCreationFailed", "severity": "Warning",
            "message": why, "lastTransitionTime": self.client.stamp()}]});
        self.status(key, status).await?;
        Ok(Some(QUOTA_AGAIN))
    }

    /// No address for five minutes, then one, then another (scenario 45).
    async fn late_address(&self, key: &Key, uid: &str) -> Result<Option<Duration>, Refusal> {
        self.pace.sleep(LATE_ADDRESS).await;
        if let Some(first) = self.instance(uid) {
            self.status(key, json!({"addresses": addresses(&first)}))
                .await?;
        }
        self.pace.sleep(LATE_ADDRESS / 5).await;
        if let Some(second) = self.cloud.perform(uid, CloudAction::ChangeAddress).await {
            self.remember(uid, &second);
            self.replace_addresses(key, &second).await?;
        }
        Ok(None)
    }

    async fn replace_addresses(&self, key: &Key, now: &Instance) -> Result<(), Refusal> {
        let patch = json!({"addresses": addresses(now)});
        // A list with keys is merged; what is not there any more must go by name.
        let old = self.client.get(&kinds::MACHINE, key);
        let old = old.and_then(|m| m.value["status"]["addresses"].as_array().cloned());
        let gone = |a: &Value| !now.addresses.iter().any(|(kind, _)| a["type"] == *kind);
        let gone = old.into_iter().flatten().filter(gone);
        let mut patch = patch;
        for address in gone {
            if let Some(list) = patch["addresses"].as_array_mut() {
                list.push(json!({"type": address["type"], "$patch": "delete"}));
            }
        }
        self.status(key, patch).await
    }

    /// A machine with an instance: phase Running once it has a node, Failed once the instance
    /// vanished.
    async fn keep(&self, key: &Key, machine: &Value) -> Result<Option<Duration>, Refusal> {
        let uid = machine.uid();
        let running = machine["status"]["nodeRef"]["name"].is_string();
        if running && self.faults.strike(Fault::InstanceVanishes, &key.name) {
            self.cloud.delete(uid).await;
        }
        let Some(instance) = self.cloud.perform(uid, CloudAction::Read).await else {
            let status = json!({"phase": "Failed", "errorReason": "UpdateError",
                "errorMessage": "Can't find created instance."});
            self.status(key, status).await?;
            return Ok(None);
        };
        let phase = if running { "Running" } else { "Provisioned" };
        if machine["status"]["phase"] != phase {
            let mut status = json!({ "phase": phase });
            if !running && machine["status"]["addresses"].is_null() {
                status["addresses"] = addresses(&instance);
            }
            self.status(key, status).await?;
        } else if self.instance(uid).is_some_and(|known| known != instance) {
            self.remember(uid, &instance);
            self.replace_addresses(key, &instance).await?;
        }
        self.remember(uid, &instance);
        if self.faults.ordered(Fault::InstanceVanishes) {
            return Ok(Some(INSTANCE_POLL));
        }
        Ok(None)
    }

    async fn take_away(&self, key: &Key, machine: &Value) -> Result<Option<Duration>, Refusal> {
        if machine["status"]["phase"] != "Deleting" {
            if could_not_be_created(machine) {
                // Who takes such a Machine away wants another one, and has made room for it.
                self.faults.lift(Fault::ReplacementNever);
            }
            self.status(key, json!({"phase": "Deleting"})).await?;
        }
        let hooks = |stage: &str| {
            machine["spec"]["lifecycleHooks"][stage]
                .as_array()
                .is_some_and(|h| !h.is_empty())
        };
        let node = machine["status"]["nodeRef"]["name"]
            .as_str()
            .unwrap_or_default();
        let node = Key::new("", node);
        if !machine.is("Drained") {
            if hooks("preDrain") {
                return Ok(None);
            }
            let skip = machine.annotation(NO_DRAIN).is_some();
            let exists = self.client.get(&kinds::NODE, &node);
            if let Some(node) = exists.filter(|_| !skip)
                && !drain::pass(&self.client, &node.value, drain::Rules::MachineApi).await?
            {
                return Ok(Some(DRAIN_AGAIN));
            }
            let mut drained = self.condition("Drained", "True");
            drained["message"] = json!(if skip {
                "Node drain skipped"
            } else {
                "Drained"
            });
            self.status(key, json!({ "conditions": [drained] })).await?;
            return Ok(None);
        }
        if hooks("preTerminate") {
            return Ok(None);
        }
        self.pace.sleep(CLOUD_LATENCY).await;
        self.cloud.delete(machine.uid()).await;
        self.client
            .delete(&kinds::NODE, &node, &DeleteOptions::default())
            .await?;
        self.instances.locked().remove(machine.uid());
        let Some(now) = self.client.get(&kinds::MACHINE, key) else {
            return Ok(None);
        };
        let finalizers = now.value["metadata"]["finalizers"].as_array().cloned();
        let mut finalizers = finalizers.unwrap_or_default();
        finalizers.retain(|f| f != FINALIZER);
        let patch = json!({"metadata": {"uid": machine.uid(), "finalizers": finalizers}});
        self.client.merge(&kinds::MACHINE, key, &patch).await?;
        Ok(None)
    }

    fn order(&self, key: &Key, machine: &Value) -> HostOrder {
        let provider = &machine["spec"]["providerSpec"]["value"];
        let text = |pointer: &str| provider.pointer(pointer).and_then(Value::as_str);
        let platform = match provider["kind"].as_str() {
            Some("AWSMachineProviderConfig") => Platform::Aws,
            Some("AzureMachineProviderSpec") => Platform::Azure,
            Some("VSphereMachineProviderSpec") => Platform::VSphere,
            _ => Platform::Other,
        };
        let secret = text("/userDataSecret/name").unwrap_or_default();
        let secret = self
            .client
            .get(&kinds::SECRET, &Key::new(&key.namespace, secret));
        let user_data = secret.and_then(|s| auth::secret_text(&s.value, "userData"));
        HostOrder {
            uid: machine.uid().to_owned(),
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            platform,
            windows: is_windows(machine),
            user_data: user_data.unwrap_or_default().into_bytes(),
            image: text("/ami/id")
                .or(text("/image/sku"))
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// A Linux machine has no simulated host: its Node is simply there.
    async fn linux_node(&self, machine: &Value, instance: &Instance) -> Result<(), Refusal> {
        let labels =
            &machine["metadata"]["labels"]["machine.openshift.io/cluster-api-machine-role"];
        let role = labels.as_str().unwrap_or("worker");
        let node = static_node(&self.client, machine.name(), role, instance);
        match self.client.create(&kinds::NODE, "", node).await {
            Err(refusal) if refusal.code != 409 => Err(refusal),
            _ => Ok(()),
        }
    }

    fn condition(&self, kind: &str, status: &str) -> Value {
        json!({"type": kind, "status": status, "lastTransitionTime": self.client.stamp()})
    }

    async fn status(&self, key: &Key, mut status: Value) -> Result<(), Refusal> {
        status["lastUpdated"] = json!(self.client.stamp());
        self.client
            .status(&kinds::MACHINE, key, status)
            .await
            .map(drop)
    }

    fn remember(&self, uid: &str, instance: &Instance) {
        let mut known = self.instances.locked();
        known.insert(uid.to_owned(), instance.clone());
    }

    fn instance(&self, uid: &str) -> Option<Instance> {
        self.instances.locked().get(uid).cloned()
    }
}

/// Whether a Machine is a Windows machine.
pub fn is_windows(machine: &Value) -> bool {
    machine.label("machine.openshift.io/os-id") == Some("Windows")
}

/// `status.addresses` of an instance.
pub(super) fn addresses(instance: &Instance) -> Value {
    let one = |(kind, address): &(String, String)| json!({"type": kind, "address": address});
    instance.addresses.iter().map(one).collect()
}

/// The Node of a Linux machine: no kubelet is behind it.
pub(super) fn static_node(client: &Client, name: &str, role: &str, instance: &Instance) -> Value {
    let stamp = client.stamp();
    json!({
        "metadata": {"name": name, "annotations": {STATIC_NODE: "true"},
            "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name, format!("node-role.kubernetes.io/{role}"): ""}},
        "spec": {"providerID": instance.provider_id},
        "status": {"addresses": addresses(instance),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": stamp, "lastTransitionTime": stamp}],
            "nodeInfo": {"kubeletVersion": "v1.33.0", "osImage": "Red Hat Enterprise Linux CoreOS",
                "kernelVersion": "5.14.0", "containerRuntimeVersion": "cri-o://1.33.0"}},
    })
}
