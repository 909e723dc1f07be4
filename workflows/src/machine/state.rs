//! What a machine's run remembers, and the phases that its six states are made of.

use dormer_proto::{
    id::{LeaseToken, Timestamp},
    machine::{
        Blocker, ChangeClass, CsrFact, HostFacts, MachineFact, MachineRef, NodeFact, Section,
        TokenMark,
    },
    message::Failure,
    phase::{Listed, MachinePhase, MachineState},
    pool::{Approval, Desired, PoolSettings, Strategy, payload_of},
    rollout::MemberReport,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Pending CSRs that a run keeps; more than a kubelet ever has at once.
pub const CSRS_MAX: usize = 16;

/// A machine's run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Where it is.
    pub phase: Phase,
    /// Its Machine, as last seen.
    pub machine: Option<MachineFact>,
    /// Its Node, as last seen.
    pub node: Option<NodeFact>,
    /// Its pending CSRs, by UID.
    pub csrs: BTreeMap<String, Csr>,
    /// Its pool's settings.
    pub pool: Option<PoolSettings>,
    /// What was learned on the host.
    pub host: Host,
    /// The version that its node carries; `None`: none, or an unknown one.
    pub version: Option<String>,
    /// What the host is being converged to.
    pub target: Desired,
    /// Its standing with the rollout's lease.
    pub lease: Lease,
    /// The highest token that this run gave back.
    pub closed: LeaseToken,
    /// Whether its node has served: from then on nothing that disturbs it happens without the lease.
    pub served: bool,
    /// Why nothing new is started on it, if so.
    pub halt: Option<Halt>,
    /// What a person asked for, through the lease.
    pub wish: Option<LeasedRequest>,
    /// A person approved the present change.
    pub approved: bool,
    /// Its address changed while it served: what differs for that is mended on it alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
    /// What its rollout was told last.
    #[serde(rename = "told")]
    pub reported: Option<MemberReport>,
    /// The last thing worth telling a person that is not a failure.
    pub note: Option<String>,
}

/// A CSR that names this machine's node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Csr {
    /// The request.
    pub fact: CsrFact,
    /// Whether a worker is at it.
    pub asked: bool,
    /// Why it was not approved.
    pub refused: Option<String>,
}

/// What is known of the Windows host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// What the last probe or plan read.
    pub facts: Option<HostFacts>,
    /// The pinned host key.
    pub pin: Option<String>,
    /// The name that its Node has or will have.
    pub node_name: Option<String>,
    /// Our generation of the host fence; 0: not known yet.
    pub generation: u64,
}

/// Where a run stands with the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Lease {
    /// It has none and wants none.
    #[default]
    None,
    /// It asked for it.
    Wanted,
    /// It has it.
    Held {
        /// The fencing number.
        token: LeaseToken,
        /// It was granted over the limit.
        marked: bool,
    },
}

impl Lease {
    /// The token, when held.
    #[must_use]
    pub fn token(self) -> Option<LeaseToken> {
        if let Self::Held { token, .. } = self {
            Some(token)
        } else {
            None
        }
    }
}

/// Why nothing new is started on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Halt {
    /// A person paused it.
    Paused {
        /// Who, and why.
        by: String,
    },
    /// It keeps out of the rollout until resumed: a person, or the drain policy `abort`, said so.
    Held {
        /// Who, and why.
        by: String,
    },
    /// Its Machine is labelled `windowsmachineconfig.openshift.io/ignore=true`.
    Ignored,
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused { by } => write!(f, "paused by {by}"),
            Self::Held { by } => write!(f, "held by {by}"),
            Self::Ignored => f.write_str(
                "hands off: the Machine is labelled windowsmachineconfig.openshift.io/ignore=true",
            ),
        }
    }
}

/// What a person may ask for through the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeasedRequest {
    /// A new machine in its place.
    Recreate,
    /// Cordoned and drained until resumed.
    Drain,
}

/// How a change is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// Drain, delete the Machine, wait for its replacement.
    Recreate,
    /// Drain, tear the host down, configure it again.
    InPlace,
    /// Configure it again, without a drain.
    Restart,
    /// Drain, and stay so until resumed.
    Drain,
}

/// A change that waits for the lease, or is under way with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// How.
    pub how: How,
    /// What differs, for people.
    pub differs: Vec<String>,
}

/// How a drain goes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Drain {
    /// Pods evicted so far.
    pub evicted: u32,
    /// Pods that remain.
    pub left: u32,
    /// What holds them.
    pub blockers: Vec<Blocker>,
    /// Whether budgets are ignored now.
    pub force: bool,
}

/// Where a run is. Each of the six states is one or more of these; [`Phase::label`] says which.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum Phase {
    // Provisioned
    /// Waits for an InternalIP.
    #[default]
    Address,
    /// Looks at the host for the first time.
    Probing,
    /// The host refuses our key; user data may not have run yet (field.md §5, 3).
    KeyWait {
        /// Since when.
        since: Timestamp,
    },
    /// The host has a Node already: compares, changes nothing.
    Adopting,

    // Reachable
    /// Waits for the pool to say what the machine should be.
    PoolWait,
    /// Converges the profile's first section.
    ConvergingHost {
        /// Whether the one reboot was had.
        rebooted: bool,
    },
    /// Waits for a boot that is not this one.
    Rebooting {
        /// The boot that must end.
        boot_id: String,
        /// Whether the host was asked.
        asked: bool,
    },

    // Configured
    /// Waits for the Node to appear.
    NodeWait,
    /// Converges the profile's second section.
    ConvergingNode,
    /// Waits for the Node to be Ready.
    ReadyWait,
    /// Waits whether it stays so.
    Soaking,
    /// Writes our version on the Node.
    Marking,

    // Joined
    /// Serves.
    Serving,
    /// Compares the host with what is desired.
    Checking,
    /// Applies a change that disturbs nobody.
    Applying {
        /// Which half.
        section: Section,
    },
    /// A change waits for a person's approval.
    ApprovalWait(Change),
    /// A change is refused: nobody would replace the Machine.
    OwnerWait(Change),
    /// A change waits for the lease.
    LeaseWait(Change),
    /// Changed and healthy: gives the node back.
    Closing,

    // Draining
    /// Writes the open token, and cordons.
    Opening(Change),
    /// Evicts, pass by pass.
    Evicting(Change, Drain),
    /// Drained, as a person asked.
    Drained,
    /// Deletes the Machine.
    Deleting,
    /// Waits for the Machine to be gone.
    Vanishing,
    /// Undoes what a profile did.
    TearingDown,
    /// Gives up: restores the cordon.
    Undoing,
    /// Somebody else deletes the Machine.
    Leaving,

    // Recreated
    /// Torn down; the host is looked at anew.
    Reprobing,
    /// The Machine is gone: closes the token wherever it still stands.
    ClosingGone,
    /// Waits for the replacement to serve.
    ReplacementWait,

    /// A step failed and will not be tried again by itself.
    Failed {
        /// Where to go on.
        from: Box<Phase>,
        /// Why.
        failure: Failure,
    },
    /// Over.
    Gone,
}

impl Phase {
    /// Its name, without what it remembers.
    #[must_use]
    pub fn id(&self) -> MachinePhase {
        match self {
            Self::Address => MachinePhase::AddressWait,
            Self::Probing => MachinePhase::Probing,
            Self::KeyWait { .. } => MachinePhase::KeyWait,
            Self::Adopting => MachinePhase::Adopting,
            Self::PoolWait => MachinePhase::PoolWait,
            Self::ConvergingHost { .. } => MachinePhase::ConvergingHost,
            Self::Rebooting { .. } => MachinePhase::Rebooting,
            Self::NodeWait => MachinePhase::NodeWait,
            Self::ConvergingNode => MachinePhase::ConvergingNode,
            Self::ReadyWait => MachinePhase::ReadyWait,
            Self::Soaking => MachinePhase::Soaking,
            Self::Marking => MachinePhase::Marking,
            Self::Serving => MachinePhase::Serving,
            Self::Checking => MachinePhase::Checking,
            Self::Applying { .. } => MachinePhase::Applying,
            Self::ApprovalWait(_) => MachinePhase::ApprovalWait,
            Self::OwnerWait(_) => MachinePhase::OwnerWait,
            Self::LeaseWait(_) => MachinePhase::LeaseWait,
            Self::Closing => MachinePhase::Closing,
            Self::Opening(_) => MachinePhase::Opening,
            Self::Evicting(..) => MachinePhase::Evicting,
            Self::Drained => MachinePhase::Drained,
            Self::Deleting => MachinePhase::Deleting,
            Self::Vanishing => MachinePhase::Vanishing,
            Self::TearingDown => MachinePhase::TearingDown,
            Self::Undoing => MachinePhase::Undoing,
            Self::Leaving => MachinePhase::Leaving,
            Self::Reprobing => MachinePhase::Reprobing,
            Self::ClosingGone => MachinePhase::ClosingGone,
            Self::ReplacementWait => MachinePhase::ReplacementWait,
            Self::Failed { .. } => MachinePhase::Failed,
            Self::Gone => MachinePhase::Gone,
        }
    }

    /// The state that this is a part of.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.id().state().id()
    }

    /// Its own short name, for people and for the transition table.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.id().text()
    }

    /// Whether the node serves and nothing has begun that disturbs it.
    #[must_use]
    pub fn joined(&self) -> bool {
        self.id().state() == MachineState::Joined
    }

    /// Whether the Machine's end is under way or past: nothing is done on the host any more.
    #[must_use]
    pub fn leaving(&self) -> bool {
        matches!(
            self,
            Self::Vanishing
                | Self::Leaving
                | Self::ClosingGone
                | Self::ReplacementWait
                | Self::Gone
        )
    }
}

/// What a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Timer {
    /// The present step is done once more.
    Again,
    /// The present phase has taken too long.
    Deadline,
    /// The Node has been Ready for long enough.
    Soak,
    /// Time to look for drift.
    Drift,
    /// The drain has taken too long.
    Drain,
}

impl State {
    /// The Machine that tasks are about. Empty before the first fact, when no task is asked.
    #[must_use]
    pub fn machine_ref(&self) -> MachineRef {
        self.machine
            .as_ref()
            .map(|machine| machine.machine.clone())
            .unwrap_or_default()
    }

    /// Its first InternalIP.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.machine.as_ref()?.addresses.first().map(String::as_str)
    }

    /// What the machine should be; `None` while its pool or its Windows build is unknown.
    #[must_use]
    pub fn desired(&self) -> Option<&Desired> {
        let build = self
            .host
            .facts
            .as_ref()
            .map_or("", |facts| facts.os_build.as_str());
        self.pool.as_ref()?.desired_for(build)
    }

    /// Whether its node carries another version than it should.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.desired()
            .is_some_and(|desired| Some(&desired.version) != self.version.as_ref())
    }

    /// Why what it should become is not allowed now: a payload comes along its edges only, and its kubelet has to fit
    /// the API servers. A fresh node takes any payload that fits; so does one whose version nobody knows.
    #[must_use]
    pub fn bar(&self) -> Option<String> {
        let pool = self.pool.as_ref()?;
        let desired = self.desired()?;
        let terms = pool.terms.get(&desired.payload)?;
        if let Some(why) = &terms.skew {
            return Some(why.clone());
        }
        let from = payload_of(self.version.as_deref()?)?;
        let fresh = !self.served || self.wish == Some(LeasedRequest::Recreate);
        if fresh {
            None
        } else {
            terms.bars(&desired.payload, from)
        }
    }

    /// Whether a change that it needs is barred. A drain changes nothing on it, and nor does what it carries already.
    #[must_use]
    pub fn barred(&self) -> Option<String> {
        let changes =
            self.wish != Some(LeasedRequest::Drain) && (self.differs() || self.wish.is_some());
        let absent = self.pool.as_ref().filter(|pool| pool.absent && self.served);
        match absent {
            _ if !changes => None,
            Some(pool) => Some(
                pool.held
                    .clone()
                    .unwrap_or_else(|| "there is no pool".into()),
            ),
            None => self.bar(),
        }
    }

    /// The name of its Node, if it has one.
    #[must_use]
    pub fn node_name(&self) -> Option<String> {
        let named = self
            .machine
            .as_ref()
            .and_then(|machine| machine.node.clone());
        self.node.as_ref().map(|node| node.name.clone()).or(named)
    }

    /// How a change of `class` is carried out, by the pool's strategy and a person's wish.
    #[must_use]
    pub fn how(&self, class: ChangeClass) -> How {
        let in_place = self
            .pool
            .as_ref()
            .is_some_and(|pool| pool.strategy == Strategy::InPlace);
        match (self.wish, class) {
            (Some(LeasedRequest::Recreate), _) => How::Recreate,
            (Some(LeasedRequest::Drain), _) => How::Drain,
            (None, ChangeClass::Live | ChangeClass::Restart) => How::Restart,
            (None, ChangeClass::Drain) if in_place => How::InPlace,
            (None, ChangeClass::Drain | ChangeClass::Replace) => How::Recreate,
        }
    }

    /// Whether a change waits for a person's approval.
    #[must_use]
    pub fn needs_approval(&self) -> bool {
        let manual = self
            .pool
            .as_ref()
            .is_some_and(|pool| pool.approval == Approval::Manual);
        manual && !self.approved && self.wish.is_none()
    }

    /// The highest token on its Machine and Node that is none of this run's: an earlier store's.
    #[must_use]
    pub fn found_token(&self) -> Option<TokenMark> {
        let machine = self.machine.as_ref().and_then(|machine| machine.token);
        let node = self.node.as_ref().and_then(|node| node.token);
        let highest = machine.max(node)?;
        (highest.token > self.closed && self.lease.token().is_none()).then_some(highest)
    }

    /// Such a token that stands open: an upgrade that an earlier store began.
    #[must_use]
    pub fn stray_token(&self) -> Option<TokenMark> {
        self.found_token().filter(|mark| mark.open)
    }

    /// Whether its node serves: Ready and schedulable.
    #[must_use]
    pub fn node_serves(&self) -> bool {
        self.node
            .as_ref()
            .is_some_and(|node| node.ready && !node.cordoned)
    }

    /// What its rollout has to know.
    #[must_use]
    pub fn report(&self) -> MemberReport {
        let Some(machine) = &self.machine else {
            return MemberReport::default();
        };
        let failed = matches!(self.phase, Phase::Failed { .. });
        let stray = self.stray_token();
        let away = !self.node_serves() || failed || machine.deleting || stray.is_some();
        MemberReport {
            owner: machine.owner.as_ref().map(|owner| owner.uid.clone()),
            created: machine.created,
            had_node: self.served,
            unavailable: self.served && away,
            joined: self.served && self.phase.joined(),
            failed,
            deleting: machine.deleting,
            deleted: machine.deleted,
            token: self.found_token(),
            barred: self.served && self.barred().is_some(),
        }
    }
}
