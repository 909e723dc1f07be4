//! A cloud without computers: its instances are Nodes that come up, heartbeat and go silent, with
//! no host to log in to. For tests of the cluster itself.

use dormer_proto::lock::Locked as _;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{CloudAction, CloudError, HostCloud, HostOrder, Instance, Pace};
use crate::{
    api::ApiServer,
    api::{Key, User, kinds},
    cluster::client::Client,
};

const BOOT: Duration = Duration::from_secs(60);
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The cloud without computers.
pub struct BareCloud {
    client: Client,
    pace: Pace,
    instances: Mutex<HashMap<String, (Instance, CancellationToken)>>,
}

impl BareCloud {
    /// A cloud whose Nodes appear in this server.
    pub fn new(server: &ApiServer, pace: Pace) -> Arc<Self> {
        let client = Client::new(server, User::controller("bare-cloud"));
        Arc::new(Self {
            client,
            pace,
            instances: Mutex::default(),
        })
    }

    fn instances(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<String, (Instance, CancellationToken)>> {
        self.instances.locked()
    }

    fn make(&self, order: &HostOrder) -> Instance {
        let mut all = self.instances();
        if let Some((instance, _)) = all.get(&order.uid) {
            return instance.clone();
        }
        let n = all.len() + 1;
        let address = |kind: &str, address: String| (kind.to_owned(), address);
        let instance = Instance {
            provider_id: format!("bare:///{}", order.uid),
            addresses: vec![
                address("InternalIP", format!("10.0.{}.{}", n / 250, n % 250 + 1)),
                address("Hostname", order.name.clone()),
            ],
        };
        let power = CancellationToken::new();
        all.insert(order.uid.clone(), (instance.clone(), power.clone()));
        if order.windows {
            let life = live(
                self.client.clone(),
                self.pace,
                order.name.clone(),
                instance.clone(),
            );
            tokio::spawn(async move {
                tokio::select! {
                    () = life => {}
                    () = power.cancelled() => {}
                }
            });
        }
        instance
    }
}

impl HostCloud for BareCloud {
    fn provision(&self, order: HostOrder) -> BoxFuture<'_, Result<Instance, CloudError>> {
        Box::pin(async move { Ok(self.make(&order)) })
    }

    fn delete<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some((_, power)) = self.instances().remove(uid) {
                power.cancel();
            }
        })
    }

    fn perform<'a>(&'a self, uid: &'a str, action: CloudAction) -> BoxFuture<'a, Option<Instance>> {
        Box::pin(async move {
            let mut all = self.instances();
            let (instance, power) = all.get_mut(uid)?;
            match action {
                CloudAction::PowerOff => power.cancel(),
                CloudAction::ChangeAddress => {
                    for (kind, address) in &mut instance.addresses {
                        if kind == "InternalIP" {
                            *address = address.replacen("10.0.", "10.1.", 1);
                        }
                    }
                }
                CloudAction::PowerOn | CloudAction::Read => {}
            }
            Some(instance.clone())
        })
    }
}

async fn live(client: Client, pace: Pace, name: String, instance: Instance) {
    pace.sleep(BOOT).await;
    let node = node(&client, &name, &instance);
    // A Node that is there already is this one's from before.
    let _ = client.create(&kinds::NODE, "", node.clone()).await;
    let key = Key::new("", name.clone());
    let _ = client
        .status(&kinds::NODE, &key, node["status"].clone())
        .await;
    let lease = json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}});
    let _ = client.create(&kinds::LEASE, "kube-node-lease", lease).await;
    let key = Key::new("kube-node-lease", name);
    for beat in 0u64.. {
        pace.sleep(HEARTBEAT).await;
        let renew = json!({"spec": {"renewTime": client.server().clock().stamp_micro(),
            "leaseTransitions": beat}});
        let _ = client.merge(&kinds::LEASE, &key, &renew).await;
    }
}

fn node(client: &Client, name: &str, instance: &Instance) -> Value {
    let one = |(kind, address): &(String, String)| json!({"type": kind, "address": address});
    let addresses: Vec<Value> = instance.addresses.iter().map(one).collect();
    let stamp = client.stamp();
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows",
            "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
            "node.openshift.io/os_id": "Windows"}},
        "spec": {"providerID": instance.provider_id,
            "taints": [{"key": "os", "value": "Windows", "effect": "NoSchedule"}]},
        "status": {"addresses": addresses, "conditions": [{"type": "Ready", "status": "True",
            "reason": "KubeletReady", "lastHeartbeatTime": stamp, "lastTransitionTime": stamp}],
            "nodeInfo": {"kubeletVersion": "v1.33.0"}},
    })
}
