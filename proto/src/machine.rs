//! Types of the machine workflow: tasks, outcomes, signals, and facts about a machine.

use crate::{
    checks::{NodeCheck, NodeExpectation},
    defaults::is_false,
    id::{LeaseToken, Seq, Timestamp},
    message::Reporter,
    other_operator::OtherOperator,
    pool::{Desired, PoolSettings},
};
use serde::{Deserialize, Serialize};

/// Most items (differences, blockers) that an outcome lists. The rest is a count.
pub const NAMED_ITEMS_MAX: usize = 16;

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

/// Required content of a CSR. It is compared field by field, never by substring and never by live DNS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CsrExpectation {
    /// The node's name: CN must be `system:node:<this>`.
    pub node_name: String,
    /// Addresses and names of the Machine, as the run knows them. The approver compares them with those of a fresh
    /// read.
    pub sans: Vec<String>,
    /// The Machine's creation: a client CSR is younger.
    pub machine_created: Timestamp,
    /// UID of the Node that the run took for this Machine's, if any.
    pub node_uid: Option<String>,
    /// Provider id of the Machine, which distinguishes its Node from an older Node of the same name.
    pub provider_id: Option<String>,
    /// Machine to read again. `None`: the order comes from an older engine, and nothing is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineRef>,
    /// Whether the run had the host configured, and so given a bootstrap token, within the last hours: a first
    /// certificate is approved only then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub configured: bool,
    /// The lease under which the run tore the host down, if it holds that still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torn_down: Option<LeaseToken>,
    /// Whether the machine has been in service since its bring-up began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// Pool's pattern of Node names, for a Machine that its platform does not name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_names: Option<String>,
}

/// Conditions that a worker checks in the live cluster before it disturbs or deletes something under a lease.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guard {
    /// Pool whose stop is read; `None`: the one pool that there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// For a lease over the limit: how long the Node must not have been Ready when the fence is opened, in milliseconds.
    /// A Node that is Ready again is not taken. `None`: the lease is within the limit, or an older engine does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_ms: Option<u64>,
    /// The Machine is deleted after the drain, and its Node was last seen not Ready: the drain skips a pod that an
    /// unreachable node does not end.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recreate: bool,
    /// A host leaves without a lease, or with one that is over the limit because a person had its Node cordoned: a Node
    /// that is Ready and schedulable is not taken.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unless_serving: bool,
    /// Lease for the tear-down of a host: an order after its end is refused. `None`: no lease is held, or the order
    /// comes from an older engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<LeaseToken>,
    /// A person asks for this machine, whose Node another client had cordoned: the cordon does not refuse the lease.
    #[serde(default, skip_serializing_if = "is_false")]
    pub asked: bool,
    /// The Machine is deleted after the drain: the owner of a hook before the drain waits for the deletion.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deletes: bool,
    /// Another client uncordoned the Node meanwhile: the drain starts over with all pods that are there, and a host whose
    /// Node is Ready is not torn down before, nor its Machine deleted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub anew: bool,
    /// A tear-down under this lease was ordered before: the host may not be whole.
    #[serde(default, skip_serializing_if = "is_false")]
    pub begun: bool,
}

impl Guard {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Task of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// Log in, pin the host key, read facts; write the expected node name on the Machine.
    Probe {
        /// Where.
        host: HostRef,
    },
    /// Apply one section of the profile on the host. It never reboots the host; it reports that a reboot is needed.
    Converge {
        /// Where.
        host: HostRef,
        /// Which half.
        section: Section,
        /// Desired version.
        desired: Desired,
        /// The generation; the task's own seq completes the host fence.
        generation: u64,
        /// The node's name, once it is known.
        node_name: Option<String>,
    },
    /// Ask the host to reboot, unless its boot identity already differs.
    Reboot {
        /// Where.
        host: HostRef,
        /// The boot that must end.
        boot_id: String,
        /// As in [`Task::Converge`].
        generation: u64,
        /// Lease under which it is done, as in [`Guard::token`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<LeaseToken>,
    },
    /// Compares the host with its desired state. It changes nothing, except the fence's generation when adopting, and what
    /// `renew` says.
    Plan {
        /// Where.
        host: HostRef,
        /// With what.
        desired: Desired,
        /// The node's name, once it is known.
        node_name: Option<String>,
        /// Whether to take a new generation of the host fence (the one found plus one).
        adopt: bool,
        /// The generation, when not adopting.
        generation: u64,
        /// Whether trusted certificates, and tokens that end, are renewed at once, whatever else differs. An older worker
        /// renews nothing.
        #[serde(default, skip_serializing_if = "is_false")]
        renew: bool,
    },
    /// Reverts a profile: stops and deletes services, removes dormer's files (in-place upgrade, removal).
    TearDown {
        /// Where.
        host: HostRef,
        /// As in [`Task::Converge`].
        generation: u64,
        /// Conditions that have to hold before it.
        #[serde(default, skip_serializing_if = "Guard::is_default")]
        guard: Guard,
    },
    /// Read the CSR again, compare it with `expect`, and approve it only if everything matches.
    ApproveCsr {
        /// The CertificateSigningRequest's name.
        csr: String,
        /// Required content.
        expect: CsrExpectation,
    },
    /// Write dormer's version (and the host key's pin) on the Node.
    MarkNode {
        machine: MachineRef,
        /// The Node's name.
        node: String,
        /// The version that it now carries.
        version: String,
        /// The host key pinned for this machine.
        pin: Option<String>,
        /// Checks that the Node has to pass before. A worker of an older build marks it without them. `None`: no
        /// checks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expect: Option<NodeExpectation>,
    },
    /// Write "token N, open" on the Machine, then on the Node; the Node's patch also cordons it.
    OpenFence {
        machine: MachineRef,
        /// The Node, if there is one.
        node: Option<String>,
        token: LeaseToken,
        /// A grant over the limit: refused if the Node read is Ready and schedulable.
        #[serde(rename = "marked")]
        over_limit: bool,
        /// Whether the Node's patch cordons (a `restart` change keeps it schedulable).
        cordon: bool,
        /// Conditions that have to hold before it.
        #[serde(default, skip_serializing_if = "Guard::is_default")]
        guard: Guard,
    },
    /// Write "token N, closed" on each of the same objects; the Node's patch restores the cordon as it was.
    CloseFence {
        machine: MachineRef,
        /// The Node, if there is one.
        node: Option<String>,
        token: LeaseToken,
    },
    /// One short pass of evictions over the node's pods, after reading that the token is open.
    Evict {
        machine: MachineRef,
        node: String,
        token: LeaseToken,
        /// Whether budgets are ignored (one pod per read of the token).
        force: bool,
        /// Conditions that have to hold before it.
        #[serde(default, skip_serializing_if = "Guard::is_default")]
        guard: Guard,
    },
    /// Write a rollback into the pool's status: the payload that replaces the spec's, as a person requested. If `payload`
    /// and `instead` are the same, a rollback is taken away: with a requester in `by`, the one in force; without, one that
    /// another `spec.payload` has ended.
    SetPayload {
        /// Pool whose status is written.
        pool: String,
        /// The payload's version.
        payload: String,
        /// The version that is replaced.
        back_from: String,
        /// Requester and reason, for readers of the status.
        by: String,
        /// The overridden payload as the spec writes it. `None`: an older engine does not send it, and any value is
        /// overridden.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead: Option<String>,
    },
    /// Reads the machine's Node from the API server, independently of the watcher's facts.
    FindNode {
        /// The Machine; the Node in its `nodeRef` is read as well.
        machine: MachineRef,
        /// Names that its Node may have.
        names: Vec<String>,
        /// The Machine's provider id.
        provider_id: Option<String>,
    },
    /// Deletes the Node of a leaving WindowsHost, and releases its object. No controller does that for such a host.
    ForgetHost {
        /// The host's object.
        machine: MachineRef,
        /// Its Node, if there was one.
        node: Option<String>,
        /// Remains on a host that does not answer; `None`: it was torn down, or never configured.
        debt: Option<String>,
    },
    /// DELETE the Machine, with its UID and the resourceVersion of a read that showed the token open.
    DeleteMachine {
        machine: MachineRef,
        token: LeaseToken,
        /// Conditions that have to hold before it.
        #[serde(default, skip_serializing_if = "Guard::is_default")]
        guard: Guard,
    },
}

impl Task {
    /// Host that it works on. `None`: it is a task for the Kubernetes API.
    #[must_use]
    pub const fn host(&self) -> Option<&HostRef> {
        match self {
            Self::Probe { host }
            | Self::Converge { host, .. }
            | Self::Reboot { host, .. }
            | Self::Plan { host, .. }
            | Self::TearDown { host, .. } => Some(host),
            Self::ApproveCsr { .. }
            | Self::MarkNode { .. }
            | Self::OpenFence { .. }
            | Self::CloseFence { .. }
            | Self::Evict { .. }
            | Self::SetPayload { .. }
            | Self::FindNode { .. }
            | Self::ForgetHost { .. }
            | Self::DeleteMachine { .. } => None,
        }
    }

    /// Role that carries it out.
    #[must_use]
    pub fn reporter(&self) -> Reporter {
        match self {
            Self::ApproveCsr { .. } => Reporter::Approver,
            Self::Probe { .. }
            | Self::Converge { .. }
            | Self::Reboot { .. }
            | Self::Plan { .. }
            | Self::TearDown { .. }
            | Self::MarkNode { .. }
            | Self::OpenFence { .. }
            | Self::CloseFence { .. }
            | Self::Evict { .. }
            | Self::SetPayload { .. }
            | Self::FindNode { .. }
            | Self::ForgetHost { .. }
            | Self::DeleteMachine { .. } => Reporter::Worker,
        }
    }

    /// Short stable name, for logs, metrics and people.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Probe { .. } => "probe",
            Self::Converge {
                section: Section::Host,
                ..
            } => "converge-host",
            Self::Converge {
                section: Section::Node,
                ..
            } => "converge-node",
            Self::Reboot { .. } => "reboot",
            Self::Plan { .. } => "plan",
            Self::TearDown { .. } => "tear-down",
            Self::ApproveCsr { .. } => "approve-csr",
            Self::MarkNode { .. } => "mark-node",
            Self::OpenFence { .. } => "open-fence",
            Self::CloseFence { .. } => "close-fence",
            Self::Evict { .. } => "evict",
            Self::DeleteMachine { .. } => "delete-machine",
            Self::SetPayload { .. } => "set-payload",
            Self::FindNode { .. } => "find-node",
            Self::ForgetHost { .. } => "forget-host",
        }
    }
}

/// Facts read from a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostFacts {
    pub os_build: String,
    /// `Windows Server 2022 Datacenter`.
    pub os_name: String,
    /// The present hostname, lower case.
    pub hostname: String,
    /// Boot identity: changes with every boot and only then.
    pub boot_id: String,
    /// The default shell: `cmd`, `powershell`, `pwsh`.
    pub shell: String,
    /// Host clock minus the worker's, in milliseconds.
    pub clock_skew_ms: i64,
    /// The dormer version installed there, if any.
    pub installed: Option<String>,
    /// The host fence found there.
    pub fence: HostFence,
    /// Whether a kubelet service exists (dormer or WMCO configured this host before).
    pub kubelet: bool,
    /// Whether Docker is installed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub docker: bool,
}

/// Pod that blocks a drain, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// `namespace/pod`.
    pub pod: String,
    /// Reason: the budget's name and numbers, a finalizer, a grace period.
    pub why: String,
    /// Names of the disruption budgets that keep it, if they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<String>,
    /// Whether it leaves only once its host is said to be off. An older worker does not send it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub until_off: bool,
}

/// Reason for which a worker did not open a fence, or stopped under an open one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FenceRefusal {
    /// The object already has this token closed, or a greater one.
    Superseded,
    /// The grant was over the limit, and the Node serves.
    NodeServes,
    /// The object with that UID is gone.
    Gone,
    /// The Node is not a Windows node.
    NotWindows,
    /// The Node belongs to the control plane.
    ControlPlane,
    /// The Node of that name is not this Machine's.
    NotItsNode,
    /// The pool is stopped, or there is none.
    Stopped,
    /// The controllers of the Machine are paused, so none would replace it.
    Paused,
    /// A dormer of another namespace has the Machine.
    OtherDormer,
    /// The Machine is labelled to be ignored, or has lost the label that says Windows.
    Ignored,
    /// No controller owns the Machine that would replace it.
    NoOwner,
    /// Another client cordoned the Node, and no person asks for this machine.
    Cordoned,
    /// Another client uncordoned the drained Node of a host that is to be torn down, or of a Machine that is to be deleted,
    /// and it serves.
    Uncordoned,
}

impl FenceRefusal {
    /// Code of the failure of a task that is refused for this, by which people and tools know its cure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotWindows => "NodeNotWindows",
            Self::ControlPlane => "NodeIsControlPlane",
            Self::OtherDormer => "OtherDormer",
            Self::Stopped => "PoolStopped",
            Self::Paused => "MachinePaused",
            Self::Superseded => "LeaseEnded",
            Self::Ignored => "MachineIgnored",
            Self::NoOwner => "MachineWithoutOwner",
            Self::Cordoned => "NodeCordoned",
            Self::Uncordoned => "NodeUncordoned",
            Self::NodeServes => "NodeServes",
            Self::Gone => "MachineGone",
            Self::NotItsNode => "NotItsNode",
        }
    }
}

/// Kinds of controllers that replace a deleted Machine. Others own Machines and replace none.
pub const RECREATING: [&str; 2] = ["MachineSet", "ControlPlaneMachineSet"];

/// Outcome of a task. The variant names the task, so that an answer to another task cannot be mistaken for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// To [`Task::Probe`].
    Probed {
        facts: HostFacts,
        /// The key that the host showed.
        host_key: String,
        /// The name that its Node will have; written on the Machine.
        node_name: String,
    },
    /// To [`Task::Converge`].
    Converged {
        /// Which half.
        section: Section,
        /// Items that had to be changed.
        changed: u32,
        /// Whether a reboot is needed before the rest can be done.
        reboot: bool,
        /// The boot identity seen.
        boot_id: String,
        /// Reasons of the reboot (`feature:Containers`), sorted, at most [`NAMED_ITEMS_MAX`] and then a count. Empty:
        /// none, or an older worker does not report them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        owed: Vec<String>,
    },
    /// To [`Task::Reboot`]: requested, or found to have happened.
    RebootAsked,
    /// To [`Task::Plan`].
    Planned {
        /// The class of what differs; `None`: nothing does.
        class: Option<ChangeClass>,
        /// What differs, at most [`NAMED_ITEMS_MAX`].
        differs: Vec<String>,
        facts: HostFacts,
        /// The key that the host showed.
        host_key: String,
        /// The generation now in force on the host.
        generation: u64,
        /// The highest lease token found on Machine and Node (0: none).
        token: LeaseToken,
        /// Pods on the node that a drain would move.
        pods: u32,
        /// Whether a trusted certificate, or a token that ends, is among what differs and was not renewed. Engines of
        /// earlier builds apply everything then.
        #[serde(default, skip_serializing_if = "is_false")]
        certificates: bool,
        /// Whether the host has a token that ends. An older worker does not say it.
        #[serde(default, skip_serializing_if = "is_false")]
        renews: bool,
    },
    /// To [`Task::TearDown`].
    TornDown,
    /// To [`Task::ApproveCsr`]: approved, by dormer or by another approver.
    CsrApproved { csr: String },
    /// To [`Task::ApproveCsr`]: it does not match. It stays pending, with an Event about the reason.
    CsrRefused {
        csr: String,
        /// The field that does not match, in one sentence.
        why: String,
    },
    /// To [`Task::MarkNode`] without an expectation.
    NodeMarked,
    /// To [`Task::MarkNode`] with an expectation: it is marked if no check failed.
    NodeChecked {
        /// Every check, with its result.
        checks: Vec<NodeCheck>,
    },
    /// To [`Task::OpenFence`].
    FenceOpened {
        /// Whether another client had cordoned the Node before.
        was_cordoned: bool,
    },
    /// To [`Task::OpenFence`], and to [`Task::Evict`], [`Task::DeleteMachine`] or [`Task::TearDown`] under an open fence:
    /// nothing was done.
    FenceRefused {
        why: FenceRefusal,
        /// Finding for people; empty if `why` is sufficient.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        said: String,
    },
    /// To [`Task::CloseFence`]: closed on each object, and the Machine stays.
    FenceClosed,
    /// To [`Task::Evict`].
    Evicted {
        /// Pods evicted in this pass.
        evicted: u32,
        /// Pods that remain and must go.
        left: u32,
        /// Their blockers, at most [`NAMED_ITEMS_MAX`].
        blockers: Vec<Blocker>,
        /// Pods that remain and are not waited for, at most [`NAMED_ITEMS_MAX`]: they came after the drain began, or their
        /// node is unreachable and their time to end is over.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<Blocker>,
    },
    /// To [`Task::SetPayload`]: it is written into the pool's status.
    PayloadSet,
    /// To [`Task::FindNode`]: it exists.
    NodeFound {
        /// Name of the Node, which need not be the Machine's.
        name: String,
    },
    /// To [`Task::FindNode`]: the API server has no Node of this name, and none of this provider id.
    NodeAbsent,
    /// To [`Task::ForgetHost`]: its Node is deleted, and nothing holds its object any more.
    HostForgotten,
    /// To [`Task::Evict`] or [`Task::DeleteMachine`]: the token read was not open; nothing was done.
    FenceClosedMeanwhile,
    /// To [`Task::DeleteMachine`], or to [`Task::CloseFence`] after closing: the object is being deleted, or its UID is
    /// gone.
    MachineDeleted,
}

/// Signer of a kubelet's certificate as a client.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of a kubelet's certificate as a server.
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// Whether two provider ids name the same computer. Azure and vSphere write one id in several cases: Azure's cloud
/// provider writes the resource group's name in lower case (kubernetes-sigs/cloud-provider-azure,
/// `ConvertResourceGroupNameToLower`), and vSphere's compares UUIDs in lower case (kubernetes/cloud-provider-vsphere,
/// `GetUUIDFromProviderID`). Everywhere else the case counts.
#[must_use]
pub fn same_provider_id(one: &str, other: &str) -> bool {
    let anycase = |id: &str| {
        let scheme = id.split_once("://").map_or("", |(scheme, _)| scheme);
        ["azure", "vsphere"]
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known))
    };
    if anycase(one) && anycase(other) {
        one.trim().eq_ignore_ascii_case(other.trim())
    } else {
        one == other
    }
}

/// A Machine's owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// `MachineSet`.
    pub kind: String,
    /// Name of the owner in the Machine's namespace.
    pub name: String,
    pub uid: String,
}

/// Unhealthy condition of an object, without its times: a new time alone is no news.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConditionFact {
    /// Its type.
    pub kind: String,
    /// `False`, `Unknown`, or `True` if that is the unhealthy value.
    pub status: String,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// A field of a Machine that the template of its MachineSet has otherwise. A MachineSet changes no Machine that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateDifference {
    /// Path of the field, such as `spec.providerSpec.value.ami.id`; or a difference as Cluster API words it.
    pub field: String,
    /// Value of the Machine, as JSON; `None`: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Value of the template, as JSON; `None`: it has none. A difference in words has neither value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// Facts about a Machine object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineFact {
    /// Namespace, name and UID.
    pub machine: MachineRef,
    /// When it was created.
    pub created: Timestamp,
    /// `status.phase`. Unknown phases cause no action.
    pub phase: Option<String>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// InternalIPs (IPv4), in the object's order.
    pub addresses: Vec<String>,
    /// Hostname and InternalDNS addresses.
    pub names: Vec<String>,
    /// Other addresses: ExternalIPs, InternalIPs of IPv6, ExternalDNS names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached_by: Vec<String>,
    /// `status.nodeRef.name`.
    pub node: Option<String>,
    /// Whether the cluster has no Node of that name, where `nodeRef` has no UID (Cluster API's v1beta2).
    #[serde(default, skip_serializing_if = "is_false")]
    pub node_absent: bool,
    /// Whether it has a deletionTimestamp.
    pub deleting: bool,
    /// That deletionTimestamp: the API server's clock, in whole seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Timestamp>,
    /// Its controller.
    pub owner: Option<Owner>,
    /// `errorReason: errorMessage`.
    pub error: Option<String>,
    /// Its unhealthy conditions, and its provider's: a cloud's refusal is often only there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionFact>,
    /// Whether `windowsmachineconfig.openshift.io/ignore=true` is set: dormer must not touch the machine.
    pub ignored: bool,
    /// `exclude-node-draining` is set: `machine.openshift.io/` or `machine.cluster.x-k8s.io/`.
    pub exclude_drain: bool,
    /// The annotations that say so; empty in records of earlier builds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drain_excluded_by: Vec<String>,
    /// The platform of its providerSpec: `AWS`, `Azure`, …
    pub platform: String,
    /// The zone of its cloud, as its machine API calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// User for the login, if the object names one; else the platform's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Fields that its MachineSet's template has otherwise: it was made from an earlier template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub template: Vec<TemplateDifference>,
    /// dormer's fence annotation.
    pub token: Option<TokenMark>,
    /// Another operator that configures hosts, in the whole cluster: while it runs, nothing is done on this one.
    #[serde(default, skip_serializing_if = "OtherOperator::is_unread")]
    pub neighbour: OtherOperator,
}

/// Facts about a Node object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeFact {
    /// Name of the Node, which need not be the Machine's.
    pub name: String,
    pub uid: String,
    /// Condition Ready is True.
    pub ready: bool,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// `status.nodeInfo.kubeletVersion`.
    pub kubelet_version: String,
    /// dormer's version annotation.
    pub version: Option<String>,
    /// WMCO's version annotation: read, but never taken for dormer's.
    pub wmco_version: Option<String>,
    /// dormer's fence annotation.
    pub token: Option<TokenMark>,
    /// Subnet of the hybrid overlay.
    pub subnet: Option<String>,
    /// Who cordoned it, while it is cordoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned_by: Option<CordonedBy>,
}

/// Who cordoned a Node, by the API server's managed fields. They name programs, not persons.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CordonedBy {
    /// The program, such as `kubectl-cordon`.
    pub program: String,
    /// When, by the API server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A pending CSR that names this machine's node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CsrFact {
    /// Name of the request, such as `csr-x7k2p`: the API server makes it.
    pub name: String,
    /// `spec.signerName`.
    pub signer: String,
    /// Whether it is undecided: neither approved, denied nor failed.
    pub pending: bool,
    /// Validity of the certificate, once it is issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<Validity>,
}

/// When a certificate is valid, by its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// From then on.
    pub from: Timestamp,
    /// Until then.
    pub until: Timestamp,
}

impl Validity {
    /// Time at which a kubelet is late: it renews at 70 to 90 of 100 parts of the validity (client-go,
    /// `util/certificate/certificate_manager.go`, `jitteryDuration`), so it has failed for 5 parts and more.
    #[must_use]
    pub fn late_from(self) -> Timestamp {
        let Timestamp(until) = self.until;
        Timestamp(until - until.saturating_sub(self.from.0) / 20)
    }
}

/// Fact for a machine's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    Machine(MachineFact),
    Node(NodeFact),
    /// A CSR that names its node.
    Csr(CsrFact),
    /// Its pool's accepted settings.
    Pool(PoolSettings),
}

/// Signal to a machine's run, from people or its rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Signal {
    /// Continue from the failed step.
    Retry,
    /// Start nothing new on this machine.
    Pause,
    /// End a pause or hold.
    Resume,
    /// Stay as it is, out of the rollout, until resumed.
    Hold,
    /// Cordon and drain, and stay so until resumed (through the lease).
    Drain,
    /// Replace this machine now (through the lease).
    Recreate,
    /// Approve the upgrade of this machine (manual approval).
    Approve,
    /// Abort the current upgrade: undo the cordon, release the lease.
    Abort,
    /// Close this run, and leave the machine alone.
    Remove,
    /// Trust the host with this key, whatever key was pinned: it was reinstalled on purpose.
    TrustHostKey {
        /// `SHA256:…`, as `ssh-keygen -l` prints it.
        fingerprint: String,
    },
    /// From the rollout: the lease is granted.
    Granted {
        /// Fencing token.
        token: LeaseToken,
        /// Whether it was granted over the limit, because this member is itself unavailable.
        #[serde(rename = "marked")]
        over_limit: bool,
    },
    /// From the rollout: the member is unknown; enrol again.
    Enrol,
    /// From the rollout, to a machine that was deleted under its lease: the slot has ended.
    Replaced {
        /// UID of the Machine that replaces it; `None`: none will come.
        by: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_id_is_compared_as_its_platform_writes_it() {
        let azure = "azure:///subscriptions/S-1/resourceGroups/My-RG/providers/Microsoft.Compute/virtualMachines/win-a";
        let same = [
            (azure, azure.to_lowercase()),
            (
                "vsphere://4237ABCD-71f9-43a3-a770-56803bcd7baa",
                "vsphere://4237abcd-71f9-43a3-a770-56803bcd7baa".to_owned(),
            ),
            ("aws:///eu-1a/i-0abc", "aws:///eu-1a/i-0abc".to_owned()),
        ];
        for (one, other) in same {
            assert!(same_provider_id(one, &other), "{one}");
        }
        let different = [
            ("aws:///eu-1a/i-0abc", "aws:///eu-1a/I-0ABC"),
            ("gce://p/zone/win-a", "gce://p/zone/WIN-A"),
            ("vsphere://4237abcd", "vsphere://4237abce"),
            ("azure:///a", "vsphere:///a"),
            ("win-a", "WIN-A"),
        ];
        for (one, other) in different {
            assert!(!same_provider_id(one, other), "{one}");
        }
    }
}
