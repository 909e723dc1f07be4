//! State of a machine's run, and what can be derived from it without an input.

use super::{
    change::{ChangeStrategy, is_zero},
    issued::KubeletCertificates,
    phase::Phase,
    policy,
};
use dormer_proto::{
    checks::NodeCheck,
    id::{LeaseToken, Timestamp},
    machine::{
        ChangeClass, CsrFact, FenceRefusal, HostFacts, MachineApi, MachineFact, MachineRef,
        NodeFact, Owner, RECREATING, TokenMark,
    },
    message::Failure,
    pool::{Approval, Desired, PoolSettings, Strategy, payload_of},
    rollout::{MemberReport, NotCompared},
};
use dormer_support::Refusal;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Most pending CSRs that a run keeps; a kubelet never has as many at once.
pub const CSRS_MAX: usize = 16;

/// What differs where a person asked for a change.
pub const ASKED: &str = "a person asked for it";

/// State of a machine's run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    pub phase: Phase,
    /// When it entered its phase. `None`: an older build wrote that record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_since: Option<Timestamp>,
    /// When its present halts began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted_since: Option<Timestamp>,
    /// Its Machine, as last observed.
    pub machine: Option<MachineFact>,
    /// Its Node, as last observed.
    pub node: Option<NodeFact>,
    /// Its pending CSRs, by UID.
    pub csrs: BTreeMap<String, Csr>,
    /// Its pool's settings.
    pub pool: Option<PoolSettings>,
    /// Facts about the host.
    pub host: Host,
    /// Version of its node; `None`: none, or an unknown one.
    pub version: Option<String>,
    /// Version in progress on the host.
    pub target: Desired,
    /// Its relation to the rollout's lease.
    pub lease: Lease,
    /// Highest token that this run returned.
    pub closed: LeaseToken,
    /// Whether the machine is in service: its Node has served, or existed when the run began. Upgrades and failures do
    /// not change that; only a proof that the Node has no workload does. Use the derived
    /// [`State::protected`], [`State::counts`], [`State::first_bring_up`].
    #[serde(rename = "served")]
    pub in_service: bool,
    /// Strongest of [`State::halts`], for builds that know only one halt; this build takes theirs over
    /// (`State::take_over_halt`).
    pub halt: Option<Halt>,
    /// Person who paused it, and reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Person who holds it, and reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Whether [`State::held`] is dormer's own, for a pause, a label, a cordon or a lost owner. It ends by itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held_for_pause: bool,
    /// Why a worker refused, if [`State::held`] is dormer's own for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_why: Option<FenceRefusal>,
    /// When [`State::held`] began. `None`: an older build wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Timestamp>,
    /// Further holds, beside [`State::held`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_held: Vec<Hold>,
    /// Holds that [`State::leased_request`] has set aside. They are in force again when that request has ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<Hold>,
    /// When [`State::paused`] began. `None`: an older build wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<Timestamp>,
    /// Request of a person that needs the lease.
    #[serde(rename = "wish")]
    pub leased_request: Option<LeasedRequest>,
    /// More about [`State::leased_request`].
    #[serde(skip_serializing_if = "RequestProgress::is_none")]
    #[serde(rename = "wished")]
    pub request_progress: RequestProgress,
    /// A person approved a change: the one to [`State::approved_for`].
    pub approved: bool,
    /// The version that was desired when a person approved the change to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_for: Option<String>,
    /// Method of the change that the lease is held for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_lease: Option<ChangeStrategy>,
    /// Whether its address changed while it served: the difference is repaired on this machine alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
    /// Last report to its rollout.
    #[serde(rename = "told")]
    pub reported: Option<MemberReport>,
    /// Start of the time without a Ready Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<Down>,
    /// Why the last comparison of its host failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<NotCompared>,
    /// Progress of the removal of a BYOH host.
    #[serde(skip_serializing_if = "Removal::is_none")]
    pub removal: Removal,
    /// Results of the last checks of its Node, before it counted as joined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<NodeCheck>,
    /// Time of the first check of its Node in the present phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked_since: Option<Timestamp>,
    /// Failure of the step that is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried: Option<Retried>,
    /// Why its Machine was deleted, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced_for: Option<String>,
    /// Step that failed, and how often a person has retried it since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<Failing>,
    /// Whether its Machine is gone. If a run has ended and this is false, a person closed it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub machine_gone: bool,
    /// Last note for people that is not a failure.
    pub note: Option<String>,
}

/// Progress of the removal of a BYOH host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Removal {
    /// How often the step that failed last has failed.
    pub failed: u8,
    /// Failures of each step since its last success, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, u8>,
    /// Number of failed rounds, after each of which the lease was returned.
    #[serde(skip_serializing_if = "is_zero")]
    pub rounds: u8,
    /// Time since which the API server reports that the Node is not this host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlinked: Option<Timestamp>,
    /// Why the Node is left as it is, although the host is torn down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_left: Option<String>,
    /// Whether a person had its Node cordoned when the lease was granted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
}

impl Removal {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Failure after which the machine continues, until the step that failed has succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retried {
    /// When it continued.
    pub at: Timestamp,
    /// Person who asked for that, and reason. `None`: another address, boot or version was a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Phase that failed.
    pub failed: String,
    /// Why.
    pub failure: Failure,
    /// Phase that it continues in.
    pub phase: String,
}

/// Step that has failed and has not succeeded since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    pub phase: String,
    /// When it failed first.
    pub first: Timestamp,
    /// How often a person retried it since.
    pub retries: u32,
}

/// When a person's request came, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestProgress {
    /// Person who asked, and reason. `None`: an older build took the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Whether another client's cordon was there already: the request overrides that one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub over_cordon: bool,
    /// Whether the change under the lease fulfils it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
}

impl RequestProgress {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A Node that is not Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// First observation of that, by the engine's clock.
    pub since: Timestamp,
    /// Whether it has lasted long enough for a repair over the rollout's limit.
    pub long: bool,
}

/// A CSR that names this machine's node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Csr {
    /// The request.
    pub fact: CsrFact,
    /// Whether a worker handles it.
    pub asked: bool,
    /// Why it was not approved.
    pub refused: Option<String>,
    /// Hash of the expectation at the last check: a refused request is checked again when the expectation changes.
    #[serde(default)]
    pub expected: u64,
}

/// Knowledge about the Windows host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Facts of the last probe or plan.
    pub facts: Option<HostFacts>,
    /// The pinned host key.
    pub pin: Option<String>,
    /// The name that its Node has or will have.
    pub node_name: Option<String>,
    /// Our generation of the host fence; 0: not known yet.
    pub generation: u64,
    /// Last order to configure it, or discovery that it is configured, in a bring-up: since then it has a bootstrap
    /// token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured: Option<Timestamp>,
    /// The lease under which it was last torn down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn_down: Option<LeaseToken>,
    /// The lease under which its last tear-down was ordered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tearing: Option<LeaseToken>,
    /// Whether another client uncordoned the Node since that order, or since the drain before the Machine's deletion.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uncordoned: bool,
    /// Whether a first certificate was approved since the last order to configure it: with that its Node can register.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub certified: bool,
    /// Certificates of its kubelet, as far as they were seen issued.
    #[serde(skip_serializing_if = "KubeletCertificates::is_none")]
    pub certificates: KubeletCertificates,
    /// Whether it has a token that ends, or a certificate that was not renewed: it is compared now and then also while it
    /// waits for a change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub renews: bool,
    /// Reboots since the present configuration began.
    #[serde(skip_serializing_if = "Reboots::is_none")]
    pub reboots: Reboots,
}

/// Reboots that one configuration of a host required.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reboots {
    /// How many.
    pub count: u8,
    /// Reasons of the last one, in the host's words.
    pub owed: Vec<String>,
}

impl Reboots {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Relation of a run to the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Lease {
    /// It has none and wants none.
    #[default]
    None,
    /// The machine has requested it.
    Wanted,
    Held {
        /// The fencing number.
        token: LeaseToken,
        /// It was granted over the limit.
        #[serde(rename = "marked")]
        over_limit: bool,
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

/// Hold of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Person and reason: `ann: a new disk`.
    pub by: String,
    /// When it began. `None`: an older build recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Why a worker refused, if dormer itself holds the machine for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<FenceRefusal>,
}

impl Hold {
    /// The person, without the reason.
    pub(super) fn person(&self) -> &str {
        person(&self.by)
    }
}

/// The person of `PERSON: REASON`.
pub(super) fn person(by: &str) -> &str {
    by.split_once(": ").map_or(by, |(who, _)| who)
}

/// Reason that nothing new starts on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Halt {
    /// A person paused it.
    Paused {
        /// Who, and why.
        by: String,
    },
    /// It stays out of the rollout until resumed, by a person's order or the drain policy `abort`.
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
            Self::Ignored => {
                f.write_str("the Machine is labelled windowsmachineconfig.openshift.io/ignore=true")
            }
        }
    }
}

/// Request of a person that needs the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeasedRequest {
    /// A new machine replaces it.
    Recreate,
    /// Cordoned and drained until resumed.
    Drain,
}

impl State {
    /// Whether its Machine has the label `ignore=true`. Only the Machine decides that.
    #[must_use]
    pub fn ignored(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.ignored)
    }

    /// Reasons that nothing new starts on it, the strongest first. Each ends separately: the label by its removal, a
    /// pause and a hold by a person's resume.
    #[must_use]
    pub fn halts(&self) -> Vec<Halt> {
        let halts = self.halts_since().into_iter();
        halts.map(|(halt, _)| halt).collect()
    }

    /// When the step failed first that a person has retried since.
    #[must_use]
    pub fn failing_since(&self) -> Option<Timestamp> {
        let failing = self.failing.as_ref().filter(|it| it.retries > 0)?;
        Some(failing.first)
    }

    /// [`State::halts`], and when each of them began, if that is known.
    #[must_use]
    pub fn halts_since(&self) -> Vec<(Halt, Option<Timestamp>)> {
        // As an older build has it.
        let older = match &self.halt {
            Some(Halt::Paused { by }) => Some(by),
            Some(Halt::Held { .. } | Halt::Ignored) | None => None,
        };
        let paused = self.paused.as_ref().or(older);
        let ignored = self.ignored().then_some((Halt::Ignored, None));
        let paused = paused.map(|by| (Halt::Paused { by: by.clone() }, self.paused_since));
        let held = self.holds().into_iter();
        let held = held.map(|hold| (Halt::Held { by: hold.by }, hold.at));
        let mut halts: Vec<_> = ignored.into_iter().chain(paused).chain(held).collect();
        if let Some((_, since)) = halts.first_mut() {
            *since = since.or(self.halted_since);
        }
        halts
    }

    /// Converts the halt of a build that stores only one.
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

    /// Whether the rollout counts it: as available or not while it exists, as a gap after another client deletes it.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.in_service
    }

    /// Whether a person asked for the replacement of a machine that has no Node yet and holds no lease.
    pub(super) fn replaces_before_it_serves(&self) -> bool {
        self.leased_request == Some(LeasedRequest::Recreate)
            && !self.own_host()
            && self.node_name().is_none()
            && self.lease.token().is_none()
    }

    /// Whether it comes up for the first time: with any payload that fits, and with a kubelet's first certificate.
    #[must_use]
    pub fn first_bring_up(&self) -> bool {
        !self.in_service
    }

    /// Whether dormer has begun to configure its host, and it has not served since: its Node is no other's, and has still
    /// to pass its checks.
    pub(super) fn comes_up(&self) -> bool {
        self.first_bring_up() && self.host.configured.is_some()
    }

    /// Whether pods may run on its Node although it has never served: nothing keeps them away from a Node that is Ready.
    /// A step that disturbs them needs the lease.
    pub(super) fn pods_before_service(&self) -> bool {
        let ready = self.node.as_ref().is_some_and(|node| node.ready);
        self.comes_up() && ready && self.lease.token().is_none()
    }

    /// Whether it failed before it ever served, and waits for the lease, or has it, to be replaced: that mends nothing
    /// of what halted its rollout.
    fn failed_before_service(&self) -> bool {
        self.first_bring_up() && self.failing.is_some() && self.phase.whole()
    }

    /// Whether what it failed for may end by itself: a host that did not answer while the lease is held. The step is then
    /// tried again after a while.
    pub(super) fn fails_for_a_while(&self) -> bool {
        let Some((from, failure)) = self.phase.failed() else {
            return false;
        };
        let held = self.lease.token().is_some() && policy::is_unanswered(&failure.code);
        *from != Phase::Leaving && held
    }

    /// Machine that tasks are about. Empty before the first fact, when no task is issued.
    #[must_use]
    pub fn machine_ref(&self) -> MachineRef {
        self.machine
            .as_ref()
            .map(|machine| machine.machine.clone())
            .unwrap_or_default()
    }

    /// Why the Machine API gave the machine up, if it did. Another machine may have its address by now.
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

    /// Desired version; `None` while its pool or its Windows build is unknown.
    #[must_use]
    pub fn desired(&self) -> Option<&Desired> {
        let build = self
            .host
            .facts
            .as_ref()
            .map_or("", |facts| facts.os_build.as_str());
        self.pool.as_ref()?.desired_for(build)
    }

    /// Whether its node has another version than the desired one.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.desired()
            .is_some_and(|desired| Some(&desired.version) != self.version.as_ref())
    }

    /// Whether another version is desired by now than the one in progress on the host.
    pub(super) fn retargeted(&self) -> bool {
        let desired = self.desired();
        desired.is_some_and(|desired| desired.version != self.target.version)
    }

    /// Why it cannot become a node of its pool: its Windows, its platform, or a payload that is for others. `None`: it
    /// may, or nothing is known of its host or its pool yet. A node that has served is left as it is.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        let facts = self.host.facts.as_ref().filter(|_| self.first_bring_up())?;
        let build = facts.os_build.as_str();
        let of_host = Refusal::of_host(build, &facts.os_name);
        let pool = || self.pool.as_ref().filter(|pool| !pool.desired.is_empty());
        of_host.or_else(|| match self.desired() {
            Some(desired) => {
                let terms = pool()?.terms.get(&desired.payload)?;
                if let Some(why) = terms.refused_builds.get(build) {
                    return Some(Refusal::Setting {
                        build: build.to_owned(),
                        why: why.clone(),
                    });
                }
                let platform = &self.machine.as_ref()?.platform;
                Refusal::of_platform(platform, &desired.payload, &terms.platforms)
            }
            None => {
                let builds = pool()?.desired.keys().cloned().collect();
                let payload = &pool()?.desired.values().next()?.payload;
                Some(Refusal::of_payload(payload, build, builds))
            }
        })
    }

    /// Why the desired version is not allowed now: an upgrade needs an edge between the payloads, and a kubelet that
    /// fits the API servers. A fresh node, or one of unknown version, needs no edge.
    #[must_use]
    pub fn bar(&self) -> Option<String> {
        if let Some(refusal) = self.refusal() {
            return Some(refusal.to_string());
        }
        let pool = self.pool.as_ref()?;
        let desired = self.desired()?;
        let terms = pool.terms.get(&desired.payload)?;
        let build = self.host.facts.as_ref().map(|facts| &facts.os_build);
        let refused = build.and_then(|build| terms.refused_builds.get(build));
        if let Some(why) = refused.or(terms.skew.as_ref()) {
            return Some(why.clone());
        }
        let from = payload_of(self.version.as_deref()?)?;
        let fresh = self.first_bring_up() || self.leased_request == Some(LeasedRequest::Recreate);
        if fresh {
            None
        } else {
            terms.bars(&desired.payload, from)
        }
    }

    /// Whether a change that it needs is barred. A drain installs nothing, and the present version is always allowed.
    #[must_use]
    pub fn barred(&self) -> Option<String> {
        let changes = self.leased_request != Some(LeasedRequest::Drain)
            && (self.differs() || self.leased_request.is_some());
        let absent = self
            .pool
            .as_ref()
            .filter(|pool| pool.absent && self.counts());
        match absent {
            // A Node is restored with the version that the host has.
            _ if !changes || self.repairs() => None,
            Some(pool) => Some(
                pool.held
                    .clone()
                    .unwrap_or_else(|| "there is no pool".into()),
            ),
            None => self.bar(),
        }
    }

    /// Whether the pool's pause delays changes that do not disturb pods. A comparison renews trusted certificates and
    /// tokens that end also then.
    #[must_use]
    pub(super) fn live_held(&self) -> bool {
        let pool = self.pool.as_ref();
        pool.is_some_and(|pool| pool.paused && pool.holds_live)
    }

    /// Another operator that configures hosts: its name and namespace. While it runs, dormer does nothing on this host.
    #[must_use]
    pub fn neighbour(&self) -> Option<&str> {
        self.machine.as_ref()?.neighbour.runs()
    }

    /// Whether dormer ignores the host now, because another operator has it. Returning the lease and leaving
    /// continue.
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

    /// Method for a change of `class`, by the pool's strategy and a person's request.
    #[must_use]
    pub fn how(&self, class: ChangeClass) -> ChangeStrategy {
        let own = self.own_host();
        let in_place = self
            .pool
            .as_ref()
            .is_some_and(|pool| pool.strategy == Strategy::InPlace);
        match (self.leased_request, class) {
            // No controller recreates such a host.
            (Some(LeasedRequest::Recreate), _) if own => ChangeStrategy::InPlace,
            (None, ChangeClass::Drain | ChangeClass::Replace) if own => ChangeStrategy::InPlace,
            (Some(LeasedRequest::Recreate), _) => ChangeStrategy::Recreate,
            (Some(LeasedRequest::Drain), _) => ChangeStrategy::Drain,
            (None, ChangeClass::Live | ChangeClass::Restart) => ChangeStrategy::Restart,
            (None, ChangeClass::Drain) if in_place => ChangeStrategy::InPlace,
            (None, ChangeClass::Drain | ChangeClass::Replace) => ChangeStrategy::Recreate,
        }
    }

    /// Why a change of this kind skips the drain, if it does: an annotation on the Machine, named by its key. It concerns
    /// only Machines that are deleted, not hosts that stay, nor a drain that a person requests.
    #[must_use]
    pub fn drain_skipped(&self, how: ChangeStrategy) -> Option<String> {
        let machine = self.machine.as_ref();
        let machine = machine.filter(|it| it.exclude_drain && how == ChangeStrategy::Recreate)?;
        Some(match machine.drain_excluded_by.as_slice() {
            [] => "an annotation exclude-node-draining is set on the Machine".to_owned(),
            [key] => format!("the annotation {key} is set on the Machine"),
            keys => format!(
                "the annotations {} are set on the Machine",
                keys.join(" and ")
            ),
        })
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
        manual && !approved && self.leased_request.is_none()
    }

    /// Whether the change under the lease began before its approval was required. It continues.
    #[must_use]
    pub fn began_before_approval(&self) -> bool {
        let changes = matches!(
            self.under_lease,
            Some(ChangeStrategy::Recreate | ChangeStrategy::InPlace | ChangeStrategy::Restart)
        );
        // Restoring a Node needs no approval, and a change that is given up needs none any more.
        let ends = matches!(self.phase, Phase::Undoing | Phase::Closing);
        let goes_on = self.lease.token().is_some() && self.differs() && !ends;
        changes && goes_on && self.needs_approval() && !self.approved
    }

    /// Clears the approval after the change is done or given up: the next change needs another one.
    pub(super) fn approval_is_spent(&mut self) {
        (self.approved, self.approved_for) = (false, None);
    }

    /// Its owner, if that replaces deleted Machines. Some controllers own Machines and replace none.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        let owner = self.machine.as_ref()?.owner.as_ref();
        owner.filter(|owner| RECREATING.contains(&owner.kind.as_str()))
    }

    /// Whether it is a BYOH host: no controller creates, drains or deletes it.
    #[must_use]
    pub fn own_host(&self) -> bool {
        let machine = self.machine.as_ref();
        machine.is_some_and(|machine| machine.machine.api == MachineApi::Host)
    }

    /// Whether it is a BYOH host that has served, whose entry is gone, and whose removal waits for the lease.
    /// Until then it serves as before.
    #[must_use]
    pub fn removal_waits(&self) -> bool {
        let deleting = self
            .machine
            .as_ref()
            .is_some_and(|machine| machine.deleting);
        let asks = self.phase == Phase::Leaving && self.lease.token().is_none();
        self.own_host() && deleting && self.in_service && asks
    }

    /// Whether its removal was given up and holds no lease. The host goes for good, so the rollout waits for no node:
    /// it does not count against the limit, and gets the lease last.
    fn removal_rests(&self) -> bool {
        let asks = self.phase == Phase::Leaving || self.phase.removal_failed();
        self.own_host() && self.removal.rounds > 0 && asks && self.lease.token().is_none()
    }

    /// Whether the change that it waits for, or has just begun, is a repair of its absent Node.
    fn repairs(&self) -> bool {
        if let Phase::LeaseWait(change) | Phase::Opening(change) = &self.phase {
            return change.repair;
        }
        false
    }

    /// Highest token on its Machine and Node that an earlier store wrote.
    #[must_use]
    pub fn found_token(&self) -> Option<TokenMark> {
        let machine = self.machine.as_ref().and_then(|machine| machine.token);
        let node = self.node.as_ref().and_then(|node| node.token);
        // dormer writes each token first on the Machine. A host may write annotations of its own Node.
        let node = node.filter(|node| machine.is_some_and(|it| node.token <= it.token));
        let highest = machine.max(node)?;
        let earlier = highest.token > self.closed && highest.token.is_plausible(self.closed);
        (earlier && self.lease.token().is_none()).then_some(highest)
    }

    /// Why a token on its Machine or Node is not dormer's, if one is not.
    pub(super) fn forged_token(&self) -> Option<String> {
        let machine = self.machine.as_ref()?;
        let node = self.node.as_ref();
        let ours = self.closed.max(self.lease.token().unwrap_or_default());
        let on_machine = machine.token.map(|mark| mark.token).unwrap_or_default();
        let on_node = node
            .and_then(|node| node.token)
            .map(|mark| mark.token)
            .unwrap_or_default();
        let found = match node {
            _ if !on_machine.is_plausible(ours) => {
                format!(
                    "{on_machine} in the annotation dormer.io/fence of the Machine {}",
                    machine.machine.name
                )
            }
            Some(node) if on_node > ours.max(on_machine) => {
                format!(
                    "{on_node} in the annotation dormer.io/fence of the Node {}",
                    node.name
                )
            }
            Some(_) | None => return None,
        };
        Some(format!(
            "dormer did not write token {found}, and does not heed it: find out who did"
        ))
    }

    /// Token of an open fence from an earlier store: an upgrade that the earlier store began.
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

    /// Whether another client keeps its Node cordoned. A cordon under a token, of this or an earlier store, is
    /// dormer's. A person who requests a recreation or drain of this machine overrides the cordon that was there.
    #[must_use]
    pub fn cordoned_by_others(&self) -> bool {
        let asked = self.asked_over_cordon() || self.removal_waits();
        self.counts() && self.is_cordoned_by_others() && !asked
    }

    /// Whether a person's request overrides the cordon of its Node.
    #[must_use]
    pub fn asked_over_cordon(&self) -> bool {
        // An older build kept no note of the cordon: then every request overrode it.
        self.leased_request.is_some()
            && (self.request_progress.over_cordon || self.request_progress.at.is_none())
    }

    /// Whether its Node is cordoned, and no token says that dormer did it.
    pub(super) fn is_cordoned_by_others(&self) -> bool {
        let cordoned = self.node.as_ref().is_some_and(|node| node.cordoned);
        cordoned && self.lease.token().is_none() && self.stray_token().is_none()
    }

    /// Updates whether its Node is Ready; an absent Node is not.
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

    /// Report to its rollout.
    #[must_use]
    pub fn report(&self) -> MemberReport {
        let Some(machine) = &self.machine else {
            return MemberReport::default();
        };
        let failed = matches!(self.phase, Phase::Failed { .. }) || self.failed_before_service();
        let stray = self.stray_token();
        let rests = self.removal_rests();
        let waits = self.removal_waits() || rests;
        let leaves = machine.deleting && !waits;
        let away = !rests && (!self.node_serves() || failed || leaves || stray.is_some());
        // A person cordoned the Node and removes the host: it may be granted over the limit.
        let out = waits && !rests && self.node.as_ref().is_some_and(|node| node.cordoned);
        MemberReport {
            owner: self.owner().map(|owner| owner.uid.clone()),
            created: machine.created,
            had_node: self.counts(),
            unavailable: self.counts() && away,
            joined: self.counts() && self.phase.joined(),
            failed,
            deleting: leaves,
            deleted: machine.deleted.filter(|_| leaves),
            token: self.found_token(),
            barred: self.counts() && self.barred().is_some() && !waits,
            cordoned: self.cordoned_by_others() && !rests,
            repair: self.counts() && !rests && (out || self.down.is_some_and(|down| down.long)),
            by_request: self.leased_request.is_some() || waits,
            not_compared: self.reports_not_compared().cloned(),
        }
    }

    /// Why its host cannot be compared, for its rollout. A host that does not answer while its Node is not Ready is
    /// simply down, which is not reported.
    fn reports_not_compared(&self) -> Option<&NotCompared> {
        let ready = self.node.as_ref().is_some_and(|node| node.ready);
        let down = |it: &&NotCompared| !ready && policy::is_unanswered(&it.code);
        self.not_compared
            .as_ref()
            .filter(|it| self.counts() && !down(it))
    }
}
