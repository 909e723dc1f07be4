//! The seam between the machine controller and the hosts: what a cloud does for a Machine.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Pace, Record, WorldClock};
use crate::{faults::Faults, net::Dialer};

/// What the machine controller orders from the cloud: one computer for one Machine.
#[derive(Debug, Clone)]
pub struct HostOrder {
    /// `metadata.uid` of the Machine; the key for everything that follows.
    pub uid: String,
    /// `metadata.name` of the Machine. Also what faults are aimed at.
    pub name: String,
    /// `metadata.namespace` of the Machine.
    pub namespace: String,
    /// The cloud the Machine's `providerSpec` names.
    pub platform: Platform,
    /// Whether Windows or Linux; a Linux order gets addresses and a plain Node, no SSH.
    pub windows: bool,
    /// Bytes of the user-data secret that the Machine names; empty if there is none.
    pub user_data: Vec<u8>,
    /// The image the Machine asks for, as its `providerSpec` spells it (an AMI, an SKU).
    pub image: String,
}

/// The clouds that the manifests know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// `AWSMachineProviderConfig`.
    Aws,
    /// `AzureMachineProviderSpec`.
    Azure,
    /// `VSphereMachineProviderSpec`.
    VSphere,
    /// None: a BYOH host, which has no ID at a provider.
    Own,
    /// Anything else.
    Other,
}

/// A computer that the cloud made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// What becomes `spec.providerID`, e.g. `aws:///us-east-1a/i-0123`. The host's kubelet puts
    /// the same into its Node. Empty for a BYOH host.
    pub provider_id: String,
    /// What becomes `status.addresses`: pairs of type (`InternalIP`, `Hostname`, `InternalDNS`)
    /// and address. At least one `InternalIP`, an IPv4 address.
    pub addresses: Vec<(String, String)>,
}

/// Why the cloud did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// There is no room: the controller tries again later.
    #[error("quota exceeded: {0}")]
    Quota(String),
    /// The order can never be filled: the Machine goes to phase Failed.
    #[error("invalid configuration: {0}")]
    Invalid(String),
}

/// The cloud: makes computers and takes them away. The hosts implement it.
///
/// # Contract
/// Every call may be repeated. `provision` answers as soon as the instance exists (it boots
/// afterwards, on the world's pace) and gives the same answer for the same uid. `delete` returns
/// once the instance is gone, also if there never was one; the host's kubelet is silent from its
/// beginning.
pub trait HostCloud: Send + Sync + 'static {
    /// Makes the instance and starts its boot.
    fn provision(&self, order: HostOrder) -> BoxFuture<'_, Result<Instance, CloudError>>;
    /// Takes the instance away.
    fn delete<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, ()>;
    /// Something else happens to the instance. Unknown uids are ignored.
    fn perform<'a>(&'a self, uid: &'a str, action: CloudAction) -> BoxFuture<'a, Option<Instance>>;
}

/// What can happen to an instance between its making and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudAction {
    /// The power goes; processes and connections are lost, the disk stays.
    PowerOff,
    /// The power comes back, or the instance is reset.
    PowerOn,
    /// The instance gets another InternalIP (scenario 45). Answers the new addresses.
    ChangeAddress,
    /// What is known of it: `None` when the instance vanished out of band.
    Read,
}

/// What the world lends to its hosts.
#[derive(Clone)]
pub struct HostContext {
    /// How fast the world runs.
    pub pace: Pace,
    /// What time it is.
    pub clock: WorldClock,
    /// What trouble is ordered.
    pub faults: Faults,
    /// Where what truly happens is written down.
    pub record: Record,
    /// How a kubelet reaches the API server; the authority comes from its kubeconfig.
    pub api_dialer: Dialer,
    /// `https://host:port` of the API server.
    pub api_url: Arc<str>,
    /// The cluster's CA as PEM, to compare with what a kubeconfig brings.
    pub ca_pem: Arc<str>,
    /// Chance is drawn from here: the same seed gives the same world.
    pub seed: u64,
}
