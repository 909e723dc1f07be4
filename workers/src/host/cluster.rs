//! What tasks on a Windows host need of the cluster: a few reads, and one annotation.

use dormer_profile::cluster_config::ClusterSnapshot;
use dormer_proto::{
    id::{LeaseToken, Timestamp},
    machine::{HostRef, MachineRef},
    message::Failure,
};
use std::future::Future;
use zeroize::Zeroizing;

/// On a Machine and its Node: the host key that was pinned, as OpenSSH writes public keys.
pub const HOST_KEY: &str = "dormer.io/host-key";

/// Data that a kubelet needs to join, read for each use and never kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bootstrap {
    /// The API server's URL as nodes reach it.
    pub api_url: String,
    /// The authority that signed the API server's certificate, as PEM.
    pub api_ca: String,
    /// The authority that signs client certificates (the kubelet's `clientCAFile`), as PEM.
    pub client_ca: String,
    /// Bootstrap token, a secret that is sent only to the host. `None`: each machine has its own token.
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

/// State of a machine in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineInCluster {
    /// The highest lease token on its Machine and Node (0: none).
    pub token: LeaseToken,
    /// Pods on its Node that a drain would move (no DaemonSet's, no mirror pod, none that has ended).
    pub pods: u32,
    /// Subnet that hybrid-overlay assigned; `None` until it does.
    pub subnet: Option<String>,
    /// Its Machine's InternalDNS names, in the object's order.
    pub names: Vec<String>,
    /// The Node's name as noted on its Machine, once it is.
    pub noted: Option<String>,
    /// Whether its kubelet needs no bootstrap token: its Node is Ready, and no fence is open under which the host may
    /// have lost its certificate.
    pub joined: bool,
}

/// Token of the cloud-node-manager on one Node's host.
#[derive(Clone, PartialEq, Eq)]
pub enum CloudToken {
    /// The host has one that lasts.
    Lasts,
    /// It has none, or one that ends soon.
    Due,
    /// A new one, to be noted once the host has it.
    New {
        /// A secret: it goes to the host, and nowhere else.
        token: Zeroizing<String>,
        /// UID of the Node that it is bound to. Another Node of that name needs a token of its own.
        node_uid: String,
        /// When it has to be replaced.
        due: Timestamp,
    },
}

/// The cluster, as tasks on a host need it.
pub trait Cluster: Send + Sync + 'static {
    /// Writes the expected name of the machine's Node (and the pinned host key) on its Machine: certificate requests
    /// are routed by that name. An existing name is kept, unless the platform gives the Machine another one: a host
    /// cannot become another node by claiming its name. Nothing is written if the Machine has both already.
    fn note(
        &self,
        machine: &MachineRef,
        node_name: &str,
        host_key: &str,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Reads the host key that is pinned on the Machine, if there is one.
    ///
    /// # Errors
    /// `MachineGone`, `MachineNotWindows`: there is no such Machine, or it is no Windows machine.
    /// `NotItsAddress`, `NoAddress`: this is not its host's address, or the order
    /// names none. Nothing may be sent there.
    fn pinned(
        &self,
        host: &HostRef,
    ) -> impl Future<Output = Result<Option<String>, Failure>> + Send;
    /// Replaces the host key that is pinned on the Machine by one that a person trusts.
    fn pin(
        &self,
        machine: &MachineRef,
        host_key: &str,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Whether the machine is a BYOH host that is being removed, so that no dormer comes back to it.
    fn leaves(&self, machine: &MachineRef) -> impl Future<Output = Result<bool, Failure>> + Send;
    /// Reads the machine's state from Machine, Node and pods.
    fn machine_in_cluster(
        &self,
        machine: &MachineRef,
        node: Option<&str>,
    ) -> impl Future<Output = Result<MachineInCluster, Failure>> + Send;
    /// Reads the settings that the cluster gives to all of its nodes. An unreadable source is reported as a sentence in
    /// the result.
    fn read_cluster(&self) -> impl Future<Output = ClusterSnapshot> + Send;
    /// Reads the data that a kubelet needs to join.
    fn bootstrap(&self) -> impl Future<Output = Result<Bootstrap, Failure>> + Send;
    /// Bootstrap token of one machine, created if it has none that is still valid. Used where [`Bootstrap::token`] is
    /// `None`.
    fn token(
        &self,
        machine: &MachineRef,
    ) -> impl Future<Output = Result<Zeroizing<String>, Failure>> + Send;
    /// The token with which a Node's cloud-node-manager changes this Node and no other. `renew`: a new one; else only
    /// whether the host needs one.
    fn cloud_token(
        &self,
        node: &str,
        renew: bool,
    ) -> impl Future<Output = Result<CloudToken, Failure>> + Send;
    /// Notes on the Node that its host has a new token, and when that has to be replaced. A host that never got it
    /// must not look as if it had. Nothing is noted on another Node of the same name.
    fn note_cloud_token(
        &self,
        node: &str,
        node_uid: &str,
        due: Timestamp,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}
