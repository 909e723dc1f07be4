//! Outcomes of a machine's tasks, with the facts of its host, blockers of its drain, and refusals of its fence.

#[cfg(doc)]
use super::task::Task;
use super::{
    refs::{ChangeClass, HostFence, Section},
    sentence::ForeignNode,
};
use crate::{checks::NodeCheck, defaults::is_false, id::LeaseToken};
use serde::{Deserialize, Serialize};

/// Most items (differences, blockers) that an outcome lists. The rest is a count.
pub const NAMED_ITEMS_MAX: usize = 16;

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
    /// Finalizers of a deleted pod, which keep it. An older worker does not send them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
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
        /// The Node of another instance that has the name, if that is why. An older worker does not send it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        foreign: Option<ForeignNode>,
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
