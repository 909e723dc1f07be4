//! What tasks on a Windows host need of the cluster: a few reads, and one annotation.

use dormer_profile::cluster_config::ClusterSnapshot;
use dormer_proto::{id::LeaseToken, machine::MachineRef, message::Failure};
use std::future::Future;
use zeroize::Zeroizing;

/// On a Machine and its Node: the host key that was pinned, as OpenSSH writes public keys.
pub const HOST_KEY: &str = "dormer.io/host-key";

/// What a kubelet needs to join, read when it is needed and never kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bootstrap {
    /// The API server's URL as nodes reach it.
    pub api_url: String,
    /// The authority that signed the API server's certificate, as PEM.
    pub api_ca: String,
    /// The authority that signs client certificates (the kubelet's `clientCAFile`), as PEM.
    pub client_ca: String,
    /// The bootstrap token. A secret: it goes to the host, and nowhere else. `None`: each machine has one of its own.
    pub token: Option<Zeroizing<String>>,
    /// Certificate and key (PEM) for the node's windows_exporter, where the cluster has some; the key is a secret.
    pub exporter_tls: Option<(String, Zeroizing<String>)>,
    /// The cluster's DNS service.
    pub cluster_dns: String,
    /// The cluster's domain: `cluster.local`.
    pub cluster_domain: String,
    /// The services' network: `172.30.0.0/16`.
    pub service_cidr: String,
}

/// How a machine stands in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineInCluster {
    /// The highest lease token on its Machine and Node (0: none).
    pub token: LeaseToken,
    /// Pods on its Node that a drain would move (no DaemonSet's, no mirror pod, none that has ended).
    pub pods: u32,
    /// The subnet that hybrid-overlay was given, once it is.
    pub subnet: Option<String>,
    /// Its Machine's InternalDNS names, in the object's order.
    pub names: Vec<String>,
    /// The Node's name as noted on its Machine, once it is.
    pub noted: Option<String>,
    /// Whether its kubelet needs no bootstrap token: its Node is Ready, and no fence is open under which the host may
    /// have lost its certificate.
    pub joined: bool,
}

/// The cluster, as tasks on a host need it.
pub trait Cluster: Send + Sync + 'static {
    /// Writes the name that the machine's Node will have on its Machine (and the pinned host key): CSRs are routed
    /// by it. No write if it stands there already. A name that stands there stays, unless its platform gives the Machine
    /// another one: a host does not become another node by saying so.
    fn note(
        &self,
        machine: &MachineRef,
        node_name: &str,
        host_key: &str,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Reads the host key that is pinned on the Machine, if there is one.
    fn pinned(
        &self,
        machine: &MachineRef,
    ) -> impl Future<Output = Result<Option<String>, Failure>> + Send;
    /// Pins this host key on the Machine in place of the one that is there: a person trusts it.
    fn pin(
        &self,
        machine: &MachineRef,
        host_key: &str,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Reads how the machine stands, from Machine, Node and pods.
    fn machine_in_cluster(
        &self,
        machine: &MachineRef,
        node: Option<&str>,
    ) -> impl Future<Output = Result<MachineInCluster, Failure>> + Send;
    /// Looks at what the cluster says about all of its nodes. What cannot be read is a sentence in it.
    fn read_cluster(&self) -> impl Future<Output = ClusterSnapshot> + Send;
    /// Reads what a kubelet needs to join.
    fn bootstrap(&self) -> impl Future<Output = Result<Bootstrap, Failure>> + Send;
    /// The bootstrap token of one machine, made if it has none that lasts. Asked for where [`Bootstrap::token`] is
    /// `None`.
    fn token(
        &self,
        machine: &MachineRef,
    ) -> impl Future<Output = Result<Zeroizing<String>, Failure>> + Send;
}
