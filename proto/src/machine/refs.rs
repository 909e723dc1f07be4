//! What tasks and facts name: machines, hosts, the halves of a profile, classes of changes, lease tokens.

use crate::id::{LeaseToken, Seq};
use serde::{Deserialize, Serialize};

/// API that keeps a machine's object.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum MachineApi {
    /// OpenShift's Machine API.
    #[default]
    OpenShift,
    /// Cluster API in its version v1beta1.
    ClusterV1Beta1,
    /// Cluster API in its version v1beta2.
    ClusterV1Beta2,
    /// dormer's own: hosts that no controller makes.
    Host,
}

impl MachineApi {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::OpenShift,
        Self::ClusterV1Beta1,
        Self::ClusterV1Beta2,
        Self::Host,
    ];

    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::OpenShift => "machine.openshift.io",
            Self::ClusterV1Beta1 | Self::ClusterV1Beta2 => "cluster.x-k8s.io",
            Self::Host => "dormer.io",
        }
    }

    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::ClusterV1Beta2 => "v1beta2",
            Self::OpenShift | Self::ClusterV1Beta1 | Self::Host => "v1beta1",
        }
    }

    /// The kind of its machines.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Host => "WindowsHost",
            Self::OpenShift | Self::ClusterV1Beta1 | Self::ClusterV1Beta2 => "Machine",
        }
    }

    /// Whether it is Cluster API, in either version.
    #[must_use]
    pub fn is_cluster(self) -> bool {
        matches!(self, Self::ClusterV1Beta1 | Self::ClusterV1Beta2)
    }

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Machine object of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineRef {
    pub namespace: String,
    /// Its name: for display and API paths, never an identity.
    pub name: String,
    /// Its UID, the identity.
    pub uid: String,
    /// The API that keeps it.
    #[serde(default, skip_serializing_if = "MachineApi::is_default")]
    pub api: MachineApi,
}

/// Windows host of a machine, as SSH reaches it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostRef {
    /// The Machine that it belongs to.
    pub machine: MachineRef,
    /// Its InternalIP (IPv4).
    pub address: String,
    /// The user to log in as: `Administrator`, on Azure `capi` (docs/field-notes.md, Logins and host keys).
    pub user: String,
    /// Pinned host key (OpenSSH public key text), or the fingerprint `SHA256:…` that a person trusts. `None`: the key
    /// in the Machine's annotation, else trust on first use, for this Machine UID.
    pub pin: Option<String>,
    /// The platform, for hostname rules: `AWS`, `Azure`, `VSphere`, `None`, …
    #[serde(default)]
    pub platform: String,
}

/// Host fence: orders the writers on one Windows host. The host refuses a smaller one; an equal one is a repeat. It
/// is never the lease token, so that a teardown is older than the converge after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct HostFence {
    /// Generation, raised by one at each adoption.
    pub generation: u64,
    /// The seq of the task.
    pub seq: Seq,
}

/// The two halves of a profile: before and after the host has a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Section {
    /// What can be rendered before the Node exists.
    Host,
    /// What needs the node's name or subnet.
    Node,
}

/// Class of a change: its impact. A change has the highest class among the items that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ChangeClass {
    /// In place, without the lease.
    Live,
    /// Through the rollout, no drain.
    Restart,
    /// Through the rollout, with a drain.
    Drain,
    /// A new machine.
    Replace,
}

/// Lease token on a Machine or Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TokenMark {
    pub token: LeaseToken,
    /// Whether it is open: destructive steps may be in progress.
    pub open: bool,
}
