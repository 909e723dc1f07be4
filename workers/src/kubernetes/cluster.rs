//! Cluster data for tasks on a host: annotations of a Machine, its status, and the credentials of a joining kubelet.

use super::{
    Duty, KubernetesExecutor,
    api::{call, call_if_there, mark_of, patch, what},
    error::NOT_FOUND,
    fence::is_ready,
    guard::leaves_for_good,
    keys,
};
use crate::{
    host::cluster::{Bootstrap, CloudToken, Cluster, MachineInCluster},
    machine_names,
    source::{is_windows, windows_label},
};
use dormer_profile::cluster_config::ClusterSnapshot;
use dormer_proto::{
    id::Timestamp,
    machine::{HostRef, MachineApi, MachineRef},
    message::Failure,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::json;
use std::net::Ipv4Addr;
use zeroize::Zeroizing;

/// Service of the nodes' windows_exporter, in dormer's namespace (`deploy/monitoring/windows-exporter.yaml`).
pub const EXPORTER: &str = "dormer-windows-exporter";
/// The Secret with certificate and key of the nodes' windows_exporter, in dormer's namespace. OpenShift makes it for
/// the Service of `deploy/monitoring/windows-exporter.yaml`.
pub const EXPORTER_TLS: &str = "dormer-windows-exporter-tls";

/// Longest mask of a services' network that has a tenth address.
const SERVICES_PREFIX_MAX: u32 = 28;

/// How kubelets join. Fields that are `None` are read from the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The API server's URL as nodes reach it. `None`: OpenShift's `apiServerInternalURI`.
    pub api_url: Option<String>,
    /// Namespace and name of the Secret with the bootstrap `token` and the `ca.crt`. Kubernetes' own Secrets with
    /// `token-id` and `token-secret` work as well; the authority then comes from the ConfigMap
    /// `kube-system/kube-root-ca.crt`.
    pub bootstrap: (String, String),
    /// Whose token a kubelet asks for its first certificate with.
    pub tokens: Tokens,
    /// Namespace, name and key of the ConfigMap with the authority of client certificates. Without it, that of
    /// `ca.crt` is taken, which is right where one authority does both.
    pub client_ca: (String, String, String),
    /// Network of the Services. `None`: as in OpenShift's network configuration.
    pub service_cidr: Option<String>,
    /// The cluster's domain.
    pub cluster_domain: String,
    /// dormer's own namespace, where the pools' settings are.
    pub namespace: String,
    /// Namespace of OpenShift's Machines; `None`: all.
    pub machines: Option<String>,
    /// Namespace of Cluster API's machines; `None`: all.
    pub cluster_machines: Option<String>,
    /// Namespace of canary pods; `None`: none is made.
    pub canaries: Option<String>,
    /// `HOST:PORT` outside of the cluster to which canary pods have to connect; `None`: that is not checked.
    pub outbound: Option<String>,
}

/// Whose token a kubelet asks for its first certificate with. Except for [`Tokens::Shared`] each machine has one of its
/// own, and the API server's authority comes from `kube-root-ca.crt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// The one token for all machines in the Secret [`Settings::bootstrap`].
    Shared,
    /// A bootstrap token that dormer creates in kube-system.
    Bootstrap,
    /// A token of dormer's account for kubelets, bound to the Secret that hands it over (`account_token.rs`).
    Account,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            api_url: None,
            bootstrap: (
                "openshift-machine-config-operator".into(),
                "node-bootstrapper-token".into(),
            ),
            tokens: Tokens::Shared,
            client_ca: (
                "kube-system".into(),
                "extension-apiserver-authentication".into(),
                "client-ca-file".into(),
            ),
            service_cidr: None,
            cluster_domain: "cluster.local".into(),
            namespace: "dormer".into(),
            machines: Some("openshift-machine-api".into()),
            cluster_machines: Some("openshift-cluster-api".into()),
            canaries: None,
            outbound: None,
        }
    }
}

impl Cluster for KubernetesExecutor {
    async fn note(
        &self,
        machine: &MachineRef,
        node_name: &str,
        host_key: &str,
    ) -> Result<(), Failure> {
        let Some(object) = self.machine(machine).await? else {
            let message = format!("the Machine {} with that UID is gone", machine.name);
            return Err(Failure::lasting("MachineGone", message));
        };
        if let Some(refused) = self.of_another_dormer(machine, &object) {
            return Err(refused.failure());
        }
        stays(&object, node_name)?;
        let home = &self.settings.namespace;
        let there =
            |key: &str, value: &str| object.annotations().get(key).is_some_and(|v| v == value);
        if there(keys::NODE_NAME, node_name)
            && there(keys::HOST_KEY, host_key)
            && there(keys::INSTALLATION, home)
        {
            return Ok(());
        }
        let marks = json!({
            keys::NODE_NAME: node_name,
            keys::HOST_KEY: host_key,
            keys::INSTALLATION: home,
        });
        let what = what(machine);
        let change = json!({"metadata": {"annotations": marks}});
        patch(&self.machine_api(machine), &object, &what, change)
            .await
            .map(drop)
    }

    async fn pinned(&self, host: &HostRef) -> Result<Option<String>, Failure> {
        let object = self.machine(&host.machine).await?;
        is_its_host(host, object.as_ref())?;
        let pinned = object.and_then(|object| object.annotations().get(keys::HOST_KEY).cloned());
        Ok(pinned.filter(|key| !key.is_empty()))
    }

    async fn pin(&self, machine: &MachineRef, host_key: &str) -> Result<(), Failure> {
        let Some(object) = self.machine(machine).await? else {
            return Ok(());
        };
        let what = what(machine);
        let change = json!({"metadata": {"annotations": {keys::HOST_KEY: host_key}}});
        patch(&self.machine_api(machine), &object, &what, change)
            .await
            .map(drop)
    }

    async fn leaves(&self, machine: &MachineRef) -> Result<bool, Failure> {
        // Machines of other kinds take their hosts along.
        if machine.api != MachineApi::Host {
            return Ok(false);
        }
        let object = self.machine(machine).await?;
        Ok(object.is_some_and(|object| leaves_for_good(machine, &object)))
    }

    async fn machine_in_cluster(
        &self,
        machine: &MachineRef,
        node: Option<&str>,
    ) -> Result<MachineInCluster, Failure> {
        let object = self.machine(machine).await?;
        let mut marks: Vec<_> = object.iter().filter_map(mark_of).collect();
        let mut in_cluster = MachineInCluster {
            names: object
                .as_ref()
                .map(|it| of_type(it, "InternalDNS"))
                .unwrap_or_default(),
            noted: object
                .as_ref()
                .and_then(|m| m.annotations().get(keys::NODE_NAME).cloned()),
            ..MachineInCluster::default()
        };
        let mut ready = false;
        if let Some(name) = node
            && let Some(found) = self.node(name).await?
        {
            ready = is_ready(&found);
            marks.extend(mark_of(&found));
            in_cluster.subnet = found.annotations().get(keys::SUBNET).cloned();
            in_cluster.pods = u32::try_from(self.movable(name).await?.len()).unwrap_or(u32::MAX);
        }
        in_cluster.token = marks
            .iter()
            .map(|mark| mark.token)
            .max()
            .unwrap_or_default();
        in_cluster.joined = ready && marks.iter().all(|mark| !mark.open);
        Ok(in_cluster)
    }

    async fn read_cluster(&self) -> ClusterSnapshot {
        self.cluster_config.read().await
    }

    async fn bootstrap(&self) -> Result<Bootstrap, Failure> {
        // A worker beside an approver reads no token.
        let own = self.settings.tokens != Tokens::Shared || self.duty == Duty::Worker;
        let (token, api_ca) = if own {
            (None, self.root_ca().await?.ok_or_else(no_root_ca)?)
        } else {
            let (token, api_ca) = self.bootstrap_secret().await?;
            (Some(token), api_ca)
        };
        let (service_cidr, cluster_dns) = services_of(&self.service_cidr().await?)?;
        Ok(Bootstrap {
            api_url: self.api_url().await?,
            client_ca: self.client_ca().await?.unwrap_or_else(|| api_ca.clone()),
            api_ca,
            token,
            exporter_tls: self.exporter_tls().await?,
            cluster_dns,
            cluster_domain: self.settings.cluster_domain.clone(),
            service_cidr,
        })
    }

    async fn token(&self, machine: &MachineRef) -> Result<Zeroizing<String>, Failure> {
        match (self.duty, self.settings.tokens) {
            (Duty::Worker, _) => self.ask_for_token(machine).await,
            (Duty::Both | Duty::Approver, Tokens::Account) => self.ask_itself(machine).await,
            (Duty::Both | Duty::Approver, _) => self.token_of(machine).await,
        }
    }

    async fn cloud_token(&self, node: &str, renew: bool) -> Result<CloudToken, Failure> {
        self.cloud_token_of(node, renew).await
    }

    async fn note_cloud_token(
        &self,
        node: &str,
        node_uid: &str,
        due: Timestamp,
    ) -> Result<(), Failure> {
        self.note_cloud_token_of(node, node_uid, due).await
    }
}

fn no_root_ca() -> Failure {
    let message = "ConfigMap kube-system/kube-root-ca.crt has no text under ca.crt";
    Failure::transient("BootstrapUnusable", message)
}

impl KubernetesExecutor {
    /// The one token for all machines.
    pub(super) async fn shared_token(&self) -> Result<Zeroizing<String>, Failure> {
        self.bootstrap_fields().await.map(|(token, _)| token)
    }

    /// The one token for all machines, and the authority of the API server.
    async fn bootstrap_secret(&self) -> Result<(Zeroizing<String>, String), Failure> {
        let (token, ca) = self.bootstrap_fields().await?;
        let ca = match ca {
            Some(ca) => Some(ca),
            None => self.root_ca().await?,
        };
        let (namespace, name) = &self.settings.bootstrap;
        let lacks = || {
            let message = format!("Secret {namespace}/{name} has no text under ca.crt");
            Failure::transient("BootstrapUnusable", message)
        };
        Ok((token, ca.ok_or_else(lacks)?))
    }

    async fn bootstrap_fields(&self) -> Result<(Zeroizing<String>, Option<String>), Failure> {
        let (namespace, name) = &self.settings.bootstrap;
        let what = format!("Secret {namespace}/{name}");
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = call("get", &what, api.get(name)).await?;
        let data = secret.data.unwrap_or_default();
        let field = |key: &str| {
            let text = data
                .get(key)
                .and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
            text.filter(|text| !text.is_empty())
        };
        let lacks = |key: &str| {
            Failure::transient(
                "BootstrapUnusable",
                format!("{what} has no text under {key}"),
            )
        };
        // Kubernetes' own bootstrap tokens consist of two halves, and come without the authority.
        let halves = || Some(format!("{}.{}", field("token-id")?, field("token-secret")?));
        let token = field("token")
            .or_else(halves)
            .ok_or_else(|| lacks("token"))?;
        Ok((Zeroizing::new(token), field("ca.crt")))
    }

    async fn exporter_tls(&self) -> Result<Option<(String, Zeroizing<String>)>, Failure> {
        let namespace = &self.settings.namespace;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("Secret {namespace}/{EXPORTER_TLS}");
        let data = call_if_there("get", &what, api.get(EXPORTER_TLS))
            .await?
            .and_then(|it| it.data);
        let Some(data) = data else { return Ok(None) };
        let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
        Ok(text("tls.crt").zip(text("tls.key").map(Zeroizing::new)))
    }

    /// The authority of the API server, as every namespace of a cluster has it.
    async fn root_ca(&self) -> Result<Option<String>, Failure> {
        self.text_of_map("kube-system", "kube-root-ca.crt", "ca.crt")
            .await
    }

    async fn client_ca(&self) -> Result<Option<String>, Failure> {
        let (namespace, name, key) = &self.settings.client_ca;
        self.text_of_map(namespace, name, key).await
    }

    async fn text_of_map(
        &self,
        namespace: &str,
        name: &str,
        key: &str,
    ) -> Result<Option<String>, Failure> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("ConfigMap {namespace}/{name}");
        let map = call_if_there("get", &what, api.get(name)).await?;
        Ok(map
            .and_then(|map| map.data)
            .and_then(|data| data.get(key).cloned()))
    }

    async fn api_url(&self) -> Result<String, Failure> {
        if let Some(url) = &self.settings.api_url {
            return Ok(url.clone());
        }
        let found = self
            .openshift("config.openshift.io", "Infrastructure")
            .await?;
        let status = found.as_ref().map(|found| &found.data["status"]);
        let url = status.and_then(|status| status["apiServerInternalURI"].as_str());
        url.map(str::to_owned).ok_or_else(|| {
            let message = "the cluster does not say how nodes reach its API server \
                           (infrastructures.config.openshift.io/cluster): give --api-url";
            Failure::transient("BootstrapUnusable", message)
        })
    }

    async fn service_cidr(&self) -> Result<String, Failure> {
        if let Some(cidr) = &self.settings.service_cidr {
            return Ok(cidr.clone());
        }
        let found = self.openshift("config.openshift.io", "Network").await?;
        let named = |part: &str| {
            let networks = found.as_ref()?.data[part]["serviceNetwork"].as_array()?;
            let networks: Vec<&str> = networks.iter().filter_map(|it| it.as_str()).collect();
            (!networks.is_empty()).then(|| networks.join(","))
        };
        named("status").or_else(|| named("spec")).ok_or_else(|| {
            let message = "the cluster does not say what its services' network is \
                           (networks.config.openshift.io/cluster): give --service-cidr";
            Failure::transient("BootstrapUnusable", message)
        })
    }

    async fn openshift(&self, group: &str, kind: &str) -> Result<Option<DynamicObject>, Failure> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let what = format!("{}.{group}/cluster", resource.plural);
        match call_if_there("get", &what, api.get("cluster")).await {
            // Plain Kubernetes serves nothing of this kind; the settings then have to say it.
            Err(failure) if failure.code == NOT_FOUND => Ok(None),
            found => found,
        }
    }
}

/// Whether the Node's name is what the first probe noted, or the platform gave the Machine another one since.
fn stays(machine: &DynamicObject, node_name: &str) -> Result<(), Failure> {
    let Some(noted) = machine.annotations().get(keys::NODE_NAME) else {
        return Ok(());
    };
    let names = machine_names::names(machine);
    let given = |name: &str| names.contains(&machine_names::dns(name));
    if noted == node_name || (given(node_name) && !given(noted)) {
        return Ok(());
    }
    let message = format!(
        "the host's Node was to be named {noted}, and now it says {node_name}: give it its name back, or recreate the \
         Machine"
    );
    Err(Failure::lasting("NameChanged", message))
}

/// Whether the host of an order is that of the live Machine, and a Windows host. An order may be older than the Machine's
/// present address (a renewed lease of DHCP), or forged, and its documents hold secrets. With the address's fact the run orders
/// anew. The key for Windows hosts is offered to no other Machine.
fn is_its_host(host: &HostRef, machine: Option<&DynamicObject>) -> Result<(), Failure> {
    let HostRef {
        machine: MachineRef { name, .. },
        address,
        ..
    } = host;
    let Some(machine) = machine else {
        let message = format!(
            "the order names the host {address} of the Machine {name}, and there is no Machine with that name and UID: \
             nothing was sent to it"
        );
        return Err(Failure::transient("MachineGone", message));
    };
    if !is_windows(host.machine.api, &machine.metadata) {
        let message = format!(
            "the order names the host {address}, and its Machine {name} has no label {}: nothing was sent to it",
            windows_label(host.machine.api)
        );
        return Err(Failure::transient("MachineNotWindows", message));
    }
    let known = of_type(machine, "InternalIP");
    if known.contains(address) {
        return Ok(());
    }
    let has = match known.as_slice() {
        [] => "no address".to_owned(),
        known => known.join(", "),
    };
    let message = format!(
        "the order names the host {address}, and the Machine {name} has {has}: nothing was sent to it"
    );
    // A guest agent that restarts reports no address for a while: then an order names none. It names no other host.
    let code = match address.is_empty() {
        true => "NoAddress",
        false => "NotItsAddress",
    };
    Err(Failure::transient(code, message))
}

/// A Machine's addresses or names of that type.
fn of_type(machine: &DynamicObject, wanted: &str) -> Vec<String> {
    let addresses = machine.data["status"]["addresses"].as_array();
    let addresses = addresses.into_iter().flatten();
    addresses
        .filter(|one| one["type"] == wanted)
        .filter_map(|one| one["address"].as_str().map(str::to_owned))
        .collect()
}

/// The services' network, and the cluster's DNS: its tenth address, by OpenShift's custom. Of the two networks of a dual stack,
/// with a comma between them, the first: in it the cluster's DNS has its address (cluster-dns-operator,
/// `pkg/operator/controller/controller_dns_service.go`).
fn services_of(cidrs: &str) -> Result<(String, String), Failure> {
    let cidr = cidrs.split(',').next().unwrap_or_default().trim();
    if cidr.contains(':') {
        let message = format!(
            "{cidrs} begins with no IPv4 network, in which the cluster's DNS would have an address for Windows nodes"
        );
        return Err(Failure::lasting("BootstrapUnusable", message));
    }
    let refuse = |why: &str| Failure::lasting("BootstrapUnusable", format!("{cidr} {why}"));
    let (base, prefix) = cidr
        .split_once('/')
        .ok_or_else(|| refuse("is no IPv4 network: it has no mask, as in 172.30.0.0/16"))?;
    let base: Ipv4Addr = base.parse().map_err(|_| refuse("is no IPv4 network"))?;
    let prefix: u32 = match prefix.parse() {
        Ok(prefix) if (1..=32).contains(&prefix) => prefix,
        _ => return Err(refuse("is no IPv4 network")),
    };
    if prefix > SERVICES_PREFIX_MAX {
        return Err(refuse(
            "has no tenth address, which the cluster's DNS would have",
        ));
    }
    let network = u32::from(base) & (u32::MAX << (32 - prefix));
    let dns = Ipv4Addr::from(network + 10);
    Ok((
        format!("{}/{prefix}", Ipv4Addr::from(network)),
        dns.to_string(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dns_is_the_tenth_of_the_network_that_an_address_lies_in() {
        let table = [
            ("172.30.0.0/16", Some(("172.30.0.0/16", "172.30.0.10"))),
            ("10.0.128.8/24", Some(("10.0.128.0/24", "10.0.128.10"))),
            ("10.96.0.0/12", Some(("10.96.0.0/12", "10.96.0.10"))),
            ("10.0.0.16/28", Some(("10.0.0.16/28", "10.0.0.26"))),
            (
                "255.255.255.255/28",
                Some(("255.255.255.240/28", "255.255.255.250")),
            ),
            ("10.0.0.0/29", None),
            ("10.0.0.1/32", None),
            ("10.0.0.0", None),
            ("10.0.0.0/", None),
            ("10.0.0.0/0", None),
            ("10.0.0.0/33", None),
            ("fd00::/112", None),
            ("fd02::/112,172.30.0.0/16", None),
            (
                "10.96.0.0/12, fd02::/112",
                Some(("10.96.0.0/12", "10.96.0.10")),
            ),
            (
                " 10.96.0.0/12 ,fd02::/112",
                Some(("10.96.0.0/12", "10.96.0.10")),
            ),
        ];
        for (cidr, wanted) in table {
            let found = services_of(cidr);
            let found = found
                .as_ref()
                .ok()
                .map(|(network, dns)| (&network[..], &dns[..]));
            assert_eq!(found, wanted, "{cidr}");
        }
    }
}
