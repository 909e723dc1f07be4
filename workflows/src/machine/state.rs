//! What a machine's run remembers, and what follows from that without anything having happened.

use super::{phase::Phase, policy};
use dormer_proto::{
    id::{LeaseToken, Timestamp},
    machine::{
        Blocker, ChangeClass, CsrFact, HostFacts, MachineFact, MachineRef, NodeFact, Owner,
        TokenMark,
    },
    pool::{Approval, Desired, PoolSettings, Strategy, payload_of},
    rollout::{MemberReport, NotCompared},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Pending CSRs that a run keeps; more than a kubelet ever has at once.
pub const CSRS_MAX: usize = 16;

/// Kinds of controllers that make another Machine in the place of one that is deleted.
const RECREATING: [&str; 2] = ["MachineSet", "ControlPlaneMachineSet"];

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
    /// Whether the machine is in service: its Node has served, or was there already when the run began. It stays so
    /// while it is upgraded or fails, until its Node proves to serve nobody. Ask what follows from it by name:
    /// [`State::protected`], [`State::counts`], [`State::first_bring_up`].
    #[serde(rename = "served")]
    pub in_service: bool,
    /// The strongest of [`State::halts`], for builds that know one halt only; such a build's own is taken over
    /// ([`State::take_over_halt`]).
    pub halt: Option<Halt>,
    /// Who paused it, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Who holds it, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// What a person asked for, through the lease.
    pub wish: Option<LeasedRequest>,
    /// A person approved a change: the one to [`State::approved_for`].
    pub approved: bool,
    /// The version that was desired when a person approved the change to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_for: Option<String>,
    /// How the change is carried out that the lease is held for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_lease: Option<How>,
    /// Its address changed while it served: what differs for that is mended on it alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
    /// What its rollout was told last.
    #[serde(rename = "told")]
    pub reported: Option<MemberReport>,
    /// Since when its Node has not been Ready, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<Down>,
    /// Why its host could not be compared the last time, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<NotCompared>,
    /// The last thing worth telling a person that is not a failure.
    pub note: Option<String>,
}

/// A Node that is not Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// When that was first seen, by the engine's clock.
    pub since: Timestamp,
    /// Whether it has lasted long enough for a repair over the rollout's limit.
    pub long: bool,
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
    /// Hash of what was expected of it when it was last looked at: one that was refused is looked at again when more is
    /// known.
    #[serde(default)]
    pub expected: u64,
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
    /// When it was last ordered to be configured, or found to be, for a bring-up: it has a bootstrap token since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured: Option<Timestamp>,
    /// The lease under which it was last torn down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn_down: Option<LeaseToken>,
    /// Whether a first certificate was approved since it was last ordered to be configured: its Node is born then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub certified: bool,
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
    /// Its Node is gone, and nothing else need differ: it is set up again, so that its kubelet registers anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repair: bool,
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

impl State {
    /// Whether its Machine is labelled to be left alone. That follows from the Machine, whatever else is said.
    #[must_use]
    pub fn ignored(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.ignored)
    }

    /// Why nothing new is started on it, the strongest reason first. Each ends by itself: the label by its removal, a
    /// pause and a hold by a person's resume.
    #[must_use]
    pub fn halts(&self) -> Vec<Halt> {
        // As an older build has them.
        let (paused, held) = match &self.halt {
            Some(Halt::Paused { by }) => (self.paused.as_ref().or(Some(by)), self.held.as_ref()),
            Some(Halt::Held { by }) => (self.paused.as_ref(), self.held.as_ref().or(Some(by))),
            Some(Halt::Ignored) | None => (self.paused.as_ref(), self.held.as_ref()),
        };
        let ignored = self.ignored().then_some(Halt::Ignored);
        let paused = paused.map(|by| Halt::Paused { by: by.clone() });
        let held = held.map(|by| Halt::Held { by: by.clone() });
        [ignored, paused, held].into_iter().flatten().collect()
    }

    /// Takes over what a build that knows one halt only has left.
    pub(super) fn take_over_halt(&mut self) {
        match self.halt.take() {
            Some(Halt::Paused { by }) if self.paused.is_none() => self.paused = Some(by),
            Some(Halt::Held { by }) if self.held.is_none() => self.held = Some(by),
            Some(Halt::Paused { .. } | Halt::Held { .. } | Halt::Ignored) | None => {}
        }
    }

    /// Whether disturbing its node has to wait for the lease: pods may run there, and the lease is not held.
    #[must_use]
    pub fn protected(&self) -> bool {
        self.in_service && self.node.is_some() && self.lease.token().is_none()
    }

    /// Whether the rollout counts it: as available or not while it is there, as a gap when somebody deletes it.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.in_service
    }

    /// Whether it comes up for the first time: with any payload that fits, and with a kubelet's first certificate.
    #[must_use]
    pub fn first_bring_up(&self) -> bool {
        !self.in_service
    }

    /// The Machine that tasks are about. Empty before the first fact, when no task is asked.
    #[must_use]
    pub fn machine_ref(&self) -> MachineRef {
        self.machine
            .as_ref()
            .map(|machine| machine.machine.clone())
            .unwrap_or_default()
    }

    /// Why the Machine API gave the machine up, if it did: its address may be another one's by now.
    #[must_use]
    pub fn given_up(&self) -> Option<String> {
        let machine = self.machine.as_ref()?;
        let failed = machine.phase.as_deref() == Some("Failed");
        failed.then(|| {
            let error = machine.error.clone();
            error.unwrap_or_else(|| "no reason given".into())
        })
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
        let fresh = self.first_bring_up() || self.wish == Some(LeasedRequest::Recreate);
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
        let absent = self
            .pool
            .as_ref()
            .filter(|pool| pool.absent && self.counts());
        match absent {
            // A Node is brought back with what the host carries.
            _ if !changes || self.repairs() => None,
            Some(pool) => Some(
                pool.held
                    .clone()
                    .unwrap_or_else(|| "there is no pool".into()),
            ),
            None => self.bar(),
        }
    }

    /// Another operator that configures hosts: which one and where. While it runs, nothing is done on this one.
    #[must_use]
    pub fn neighbour(&self) -> Option<&str> {
        self.machine.as_ref()?.neighbour.runs()
    }

    /// Whether the host is left alone now, because another operator has it. What gives the lease back goes on, and what
    /// leaves is left to leave.
    #[must_use]
    pub fn left_alone(&self) -> bool {
        let row = self.phase.row();
        self.neighbour().is_some() && !row.even_paused && !row.leaves
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
        let desired = self.desired().map(|desired| &desired.version);
        let approved = self.approved && desired.is_some() && self.approved_for.as_ref() == desired;
        manual && !approved && self.wish.is_none()
    }

    /// What a person approved is done, or given up: the next change needs another word.
    pub(super) fn approval_is_spent(&mut self) {
        (self.approved, self.approved_for) = (false, None);
    }

    /// Its owner, if that makes another Machine in its place. Other controllers own Machines and make none.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        let owner = self.machine.as_ref()?.owner.as_ref();
        owner.filter(|owner| RECREATING.contains(&owner.kind.as_str()))
    }

    /// Whether what it waits for, or has just begun, is to bring its Node back.
    fn repairs(&self) -> bool {
        match &self.phase {
            Phase::LeaseWait(change) | Phase::Opening(change) => change.repair,
            _ => false,
        }
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

    /// Whether somebody else keeps its Node cordoned. A cordon under a token, ours or an earlier store's, is no person's;
    /// and who asks for this very machine to be recreated or drained has decided about it.
    #[must_use]
    pub fn cordoned_by_others(&self) -> bool {
        let cordoned = self.node.as_ref().is_some_and(|node| node.cordoned);
        let under_a_token = self.lease.token().is_some() || self.stray_token().is_some();
        self.counts() && cordoned && !under_a_token && self.wish.is_none()
    }

    /// Takes in whether its Node is Ready now; a Node that is gone is not.
    pub(super) fn node_is(&mut self, ready: bool, now: Timestamp) {
        if ready {
            self.down = None;
        } else {
            self.down.get_or_insert(Down {
                since: now,
                long: false,
            });
        }
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
            owner: self.owner().map(|owner| owner.uid.clone()),
            created: machine.created,
            had_node: self.counts(),
            unavailable: self.counts() && away,
            joined: self.counts() && self.phase.joined(),
            failed,
            deleting: machine.deleting,
            deleted: machine.deleted,
            token: self.found_token(),
            barred: self.counts() && self.barred().is_some(),
            cordoned: self.cordoned_by_others(),
            repair: self.counts() && self.down.is_some_and(|down| down.long),
            wished: self.wish.is_some(),
            not_compared: self.reports_not_compared().cloned(),
        }
    }

    /// Why its host cannot be compared, as its rollout hears it. That a host whose Node is not Ready does not answer is
    /// no news: it is down.
    fn reports_not_compared(&self) -> Option<&NotCompared> {
        let ready = self.node.as_ref().is_some_and(|node| node.ready);
        let down = |it: &&NotCompared| !ready && policy::is_unanswered(&it.code);
        self.not_compared
            .as_ref()
            .filter(|it| self.counts() && !down(it))
    }
}
