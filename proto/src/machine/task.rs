//! Tasks of a machine, and the conditions under which a worker carries them out.

use super::refs::{HostRef, MachineRef, Section};
use crate::{
    checks::NodeExpectation,
    defaults::is_false,
    id::{LeaseToken, Timestamp},
    message::Reporter,
    pool::Desired,
};
use serde::{Deserialize, Serialize};

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
    /// For a pass that ignores budgets: how long the drain must have lasted by the API server's clock, in milliseconds.
    /// `None`: an older engine does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
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
    /// equals `instead`, the task removes a rollback. `by` set: the one in force, as that person asked. `by` empty: one
    /// that a change of `spec.payload` has ended.
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
