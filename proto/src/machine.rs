//! The machine workflow's words: what a worker may be asked, what it may answer, and the facts about a machine.

use crate::{
    id::{LeaseToken, Seq, Timestamp},
    pool::{Desired, PoolSettings},
};
use serde::{Deserialize, Serialize};

/// Most items (differences, blockers) that an outcome names; the rest is a count.
pub const NAMED_ITEMS_MAX: usize = 16;

/// The Machine object that a task is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name: for display and for API paths, never an identity.
    pub name: String,
    /// Its UID: the identity.
    pub uid: String,
}

/// The Windows host behind a machine, as SSH reaches it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostRef {
    /// The Machine that it belongs to.
    pub machine: MachineRef,
    /// Its InternalIP (IPv4).
    pub address: String,
    /// The user to log in as: `Administrator`, on Azure `capi` (docs/field-notes.md, Logins and host keys).
    pub user: String,
    /// The pinned host key (OpenSSH public key text), or the fingerprint `SHA256:…` of one that a person trusts. `None`:
    /// what the Machine's annotation says, else trust on first use, for this Machine UID.
    pub pin: Option<String>,
    /// The platform, for hostname rules: `AWS`, `Azure`, `VSphere`, `None`, …
    #[serde(default)]
    pub platform: String,
}

/// Orders writers on one Windows host: a smaller one is refused there, an equal one is a repeat.
/// Never the lease token, so that a teardown is older than the converge that came after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct HostFence {
    /// Raised by one at each adoption.
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

/// How deep a change cuts. A change takes the highest class among the items that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ChangeClass {
    /// In place, no lease.
    Live,
    /// Through the rollout, no drain.
    Restart,
    /// Through the rollout, with a drain.
    Drain,
    /// A new machine.
    Replace,
}

/// A lease token as found on a Machine or Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TokenMark {
    /// Which token.
    pub token: LeaseToken,
    /// Whether it is open: destructive steps may be going on.
    pub open: bool,
}

/// What a CSR must say to be approved; compared field by field, never by substring, never by live DNS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CsrExpectation {
    /// The node's name: CN must be `system:node:<this>`.
    pub node_name: String,
    /// The Machine's addresses and names, as the run knows them. Who approves compares with those of a fresh read.
    pub sans: Vec<String>,
    /// The Machine's creation: a client CSR is younger.
    pub machine_created: Timestamp,
    /// UID of the Node that the run took for this Machine's, if any.
    pub node_uid: Option<String>,
    /// The Machine's provider id, to tell an old Node of the same name from ours.
    pub provider_id: Option<String>,
    /// The Machine, which is read afresh. `None`: an older engine asks, and nothing is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineRef>,
    /// Whether the run had the host configured, and so given a bootstrap token, within the last hours: only then is a first
    /// certificate due.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub configured: bool,
    /// The lease under which the run tore the host down, if it holds that still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torn_down: Option<LeaseToken>,
    /// Whether the machine has been in service since its bring-up began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// The pool's pattern of Node names, for a Machine whose platform gives it none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_names: Option<String>,
}

/// What a worker may be asked for a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// Log in, pin the host key, read facts; write the expected node name on the Machine.
    Probe {
        /// Where.
        host: HostRef,
    },
    /// Make one section of the profile true on the host. Never reboots; asks for it.
    Converge {
        /// Where.
        host: HostRef,
        /// Which half.
        section: Section,
        /// To what.
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
    },
    /// Compare the host with what is desired; change nothing but, when adopting, the fence's generation.
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
    },
    /// Undo what a profile did: stop and delete services, remove our files (in-place upgrade, removal).
    TearDown {
        /// Where.
        host: HostRef,
        /// As in [`Task::Converge`].
        generation: u64,
    },
    /// Read the CSR afresh, compare it with `expect`, and approve it only if everything fits.
    ApproveCsr {
        /// The CertificateSigningRequest's name.
        csr: String,
        /// What it must say.
        expect: CsrExpectation,
    },
    /// Write our version (and the host key's pin) on the Node.
    MarkNode {
        /// The Machine.
        machine: MachineRef,
        /// The Node's name.
        node: String,
        /// The version that it now carries.
        version: String,
        /// The host key pinned for this machine.
        pin: Option<String>,
    },
    /// Write "token N, open" on the Machine, then on the Node; the Node's patch also cordons it.
    OpenFence {
        /// The Machine.
        machine: MachineRef,
        /// The Node, if there is one.
        node: Option<String>,
        /// The lease.
        token: LeaseToken,
        /// A grant over the limit: refused if the Node read is Ready and schedulable.
        marked: bool,
        /// Whether the Node's patch cordons (a `restart` change keeps it schedulable).
        cordon: bool,
    },
    /// Write "token N, closed" on each of the same objects; the Node's patch restores the cordon as it was.
    CloseFence {
        /// The Machine.
        machine: MachineRef,
        /// The Node, if there is one.
        node: Option<String>,
        /// The lease.
        token: LeaseToken,
    },
    /// One short pass of evictions over the node's pods, after reading that the token is open.
    Evict {
        /// The Machine.
        machine: MachineRef,
        /// The Node.
        node: String,
        /// The lease.
        token: LeaseToken,
        /// Whether budgets are ignored (one pod per read of the token).
        force: bool,
    },
    /// Write on the pool's status which payload holds in place of its spec's: a step back that a person asked for.
    SetPayload {
        /// The pool.
        pool: String,
        /// The payload's version.
        payload: String,
        /// The version that is left.
        back_from: String,
        /// Who asked, and why, for whoever reads the status.
        by: String,
        /// The payload in the words of the spec, which is overridden; `None`: an older engine does not say, and
        /// whatever stands there is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead: Option<String>,
    },
    /// DELETE the Machine, with its UID and the resourceVersion of a read that showed the token open.
    DeleteMachine {
        /// The Machine.
        machine: MachineRef,
        /// The lease.
        token: LeaseToken,
    },
}

impl Task {
    /// A short stable name, for logs, metrics and people.
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
        }
    }
}

/// Facts read from a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostFacts {
    /// `10.0.20348`.
    pub os_build: String,
    /// `Windows Server 2022 Datacenter`.
    pub os_name: String,
    /// The present hostname, lower case.
    pub hostname: String,
    /// Boot identity: changes with every boot and only then.
    pub boot_id: String,
    /// The default shell: `cmd`, `powershell`, `pwsh`.
    pub shell: String,
    /// Host clock minus ours, in milliseconds.
    pub clock_skew_ms: i64,
    /// The dormer version installed there, if any.
    pub installed: Option<String>,
    /// The host fence found there.
    pub fence: HostFence,
    /// Whether a kubelet service exists (someone, we or WMCO, configured this host before).
    pub kubelet: bool,
}

/// Something that keeps a drain from ending, named for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// `namespace/pod`.
    pub pod: String,
    /// Why: the budget's name and numbers, a finalizer, a grace period.
    pub why: String,
}

/// Why a worker would not open a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FenceRefusal {
    /// This token, or a greater one, is there already and closed or greater.
    Superseded,
    /// The grant was over the limit, and the Node serves.
    NodeServes,
    /// The object with that UID is gone.
    Gone,
}

/// What a worker may answer. The variant names the task, so that an answer to another task cannot pass for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// To [`Task::Probe`].
    Probed {
        /// What was read.
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
    },
    /// To [`Task::Reboot`]: asked for, or found to have happened.
    RebootAsked,
    /// To [`Task::Plan`].
    Planned {
        /// The class of what differs; `None`: nothing does.
        class: Option<ChangeClass>,
        /// What differs, at most [`NAMED_ITEMS_MAX`].
        differs: Vec<String>,
        /// What was read.
        facts: HostFacts,
        /// The key that the host showed.
        host_key: String,
        /// The generation now in force on the host.
        generation: u64,
        /// The highest lease token found on Machine and Node (0: none).
        token: LeaseToken,
        /// Pods on the node that a drain would move.
        pods: u32,
    },
    /// To [`Task::TearDown`].
    TornDown,
    /// To [`Task::ApproveCsr`]: approved, by us or already by somebody else.
    CsrApproved {
        /// Which.
        csr: String,
    },
    /// To [`Task::ApproveCsr`]: it does not fit; left pending, and said so in an Event.
    CsrRefused {
        /// Which.
        csr: String,
        /// The field that does not fit, in one sentence.
        why: String,
    },
    /// To [`Task::MarkNode`].
    NodeMarked,
    /// To [`Task::OpenFence`].
    FenceOpened {
        /// Whether the Node was cordoned before, by somebody else.
        was_cordoned: bool,
    },
    /// To [`Task::OpenFence`].
    FenceRefused {
        /// Why.
        why: FenceRefusal,
    },
    /// To [`Task::CloseFence`]: closed on each object, and the Machine stays.
    FenceClosed,
    /// To [`Task::Evict`].
    Evicted {
        /// Pods evicted in this pass.
        evicted: u32,
        /// Pods that remain and must go.
        left: u32,
        /// What holds them, at most [`NAMED_ITEMS_MAX`].
        blockers: Vec<Blocker>,
    },
    /// To [`Task::SetPayload`]: it stands in the pool's status.
    PayloadSet,
    /// To [`Task::Evict`] or [`Task::DeleteMachine`]: the token read was not open; nothing was done.
    FenceClosedMeanwhile,
    /// To [`Task::DeleteMachine`], or to [`Task::CloseFence`] after closing: deletion is under way, or the UID is gone.
    MachineDeleted,
}

/// A Machine's owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// `MachineSet`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A condition of an object that is not as it should be. Its times are left out: they would make news of no change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConditionFact {
    /// Its type.
    pub kind: String,
    /// `False`, `Unknown`, or `True` where that is what should not be.
    pub status: String,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// What is known of a Machine object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineFact {
    /// Namespace, name and UID.
    pub machine: MachineRef,
    /// When it was created.
    pub created: Timestamp,
    /// `status.phase`; unknown words are not actionable.
    pub phase: Option<String>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// InternalIPs (IPv4), in the object's order.
    pub addresses: Vec<String>,
    /// Hostname and InternalDNS addresses.
    pub names: Vec<String>,
    /// By what else it is reached: ExternalIPs, InternalIPs of IPv6, ExternalDNS addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached_by: Vec<String>,
    /// `status.nodeRef.name`.
    pub node: Option<String>,
    /// Whether it has a deletionTimestamp.
    pub deleting: bool,
    /// That deletionTimestamp: the API server's clock, in whole seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Timestamp>,
    /// Its controller.
    pub owner: Option<Owner>,
    /// `errorReason: errorMessage`.
    pub error: Option<String>,
    /// Its conditions that are not as they should be, and its provider's: what a cloud refuses often stands only there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionFact>,
    /// `windowsmachineconfig.openshift.io/ignore=true`: hands off.
    pub ignored: bool,
    /// `machine.openshift.io/exclude-node-draining` is set.
    pub exclude_drain: bool,
    /// The platform of its providerSpec: `AWS`, `Azure`, …
    pub platform: String,
    /// Our fence annotation.
    pub token: Option<TokenMark>,
}

/// What is known of a Node object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeFact {
    /// Its name.
    pub name: String,
    /// Its UID.
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
    /// Our version annotation.
    pub version: Option<String>,
    /// WMCO's version annotation: read, never trusted as ours.
    pub wmco_version: Option<String>,
    /// Our fence annotation.
    pub token: Option<TokenMark>,
    /// The subnet that hybrid-overlay was given.
    pub subnet: Option<String>,
}

/// A pending CSR that names this machine's node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CsrFact {
    /// Its name.
    pub name: String,
    /// `spec.signerName`.
    pub signer: String,
    /// Neither approved, denied nor failed yet.
    pub pending: bool,
}

/// A fact that a machine's run may be told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    /// Its Machine.
    Machine(MachineFact),
    /// Its Node.
    Node(NodeFact),
    /// A CSR that names its node.
    Csr(CsrFact),
    /// Its pool's accepted settings.
    Pool(PoolSettings),
}

/// What a machine's run may be told by people, or by its rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Signal {
    /// Go on from the failed step.
    Retry,
    /// Start nothing new on this machine.
    Pause,
    /// End of a pause or hold.
    Resume,
    /// Stay as it is, out of the rollout, until resumed.
    Hold,
    /// Cordon and drain, and stay so until resumed (through the lease).
    Drain,
    /// Replace this machine now (through the lease).
    Recreate,
    /// Upgrade this machine, though approval is manual.
    Approve,
    /// Give up the upgrade that is going on: undo the cordon, release the lease.
    Abort,
    /// Close this run and touch the machine no more.
    Remove,
    /// The host with this key is this machine's, whatever was pinned: it was rightfully installed anew.
    TrustHostKey {
        /// `SHA256:…`, as `ssh-keygen -l` prints it.
        fingerprint: String,
    },
    /// From the rollout: the lease is yours.
    Granted {
        /// Its fencing number.
        token: LeaseToken,
        /// Over the limit, since this member is itself unavailable.
        marked: bool,
    },
    /// From the rollout: it does not know you; enrol again.
    Enrol,
    /// From the rollout, to a machine that was deleted under its lease: the slot has ended.
    Replaced {
        /// UID of the Machine that serves in its place; `None`: none will come.
        by: Option<String>,
    },
}
