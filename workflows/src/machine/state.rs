//! State of a machine's run, and what can be derived from it without an input.

use super::{
    change::{ChangeStrategy, is_zero},
    halt::{Halt, Hold},
    issued::KubeletCertificates,
    phase::Phase,
    policy,
};
use dormer_proto::{
    checks::NodeCheck,
    held_by::HeldBy,
    id::{LeaseToken, Timestamp},
    machine::{
        CsrFact, FenceRefusal, ForeignNode, HostFacts, MachineApi, MachineFact, MachineRef,
        NodeFact, Owner, RECREATING,
    },
    message::Failure,
    pool::{Desired, PoolSettings},
    rollout::{MemberReport, NotCompared},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most pending CSRs that a run keeps; a kubelet never has as many at once.
pub const CSRS_MAX: usize = 16;

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
    /// Node of its name, as last observed, that nothing shows to be this Machine's yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unclaimed_node: Option<NodeFact>,
    /// Its pending CSRs, by UID, and those whose approval a worker has not answered yet.
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
    /// The person of [`State::paused`], as in [`Hold::who`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_who: Option<String>,
    /// Person who holds it, and reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// The person of [`State::held`], as in [`Hold::who`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_who: Option<String>,
    /// Whose hold [`State::held`] is. `None`: an older build recorded it, and the text says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<HeldBy>,
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
    /// Whether a worker refused the last change because of a live read, and the token is still open. The change is
    /// considered again after a while, or with the next fact about the pool. If settings that hold nothing come before the
    /// token is closed, this is false again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused_lately: bool,
    /// Whether the pool has ceased to hold grants, or was made again, since the lease was granted. A refusal that comes now
    /// may be older.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allowed_again: bool,
    /// Whether a token that was known to be closed is open again on its objects, as by the restore of an older etcd, and
    /// dormer closes it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restored: bool,
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
    /// Whether a live read found its Node schedulable, and no fact has said so yet: the cordon in the facts is old.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uncordoned: bool,
    /// Whether the cordon of its Node may be dormer's own: of a pass of this removal, or of the change that it ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_cordon: bool,
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
    /// The person, as in [`Hold::who`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
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
    /// The person, as in [`Hold::who`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
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
    /// The Node of another instance that has the name, if that is why. An older worker does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<ForeignNode>,
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
    /// When they were read. `None`: an older build read them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts_at: Option<Timestamp>,
    /// The pinned host key.
    pub pin: Option<String>,
    /// The name that its Node has or will have.
    pub node_name: Option<String>,
    /// Whether its last answer to a drain gave its Node another name. A comparison does not ask for the name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub renamed: bool,
    /// Our generation of the host fence; 0: not known yet.
    pub generation: u64,
    /// Whether dormer's store was restored since its last change: records that were lost may have written a later
    /// generation on the host.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restored: bool,
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
    /// Whether another client uncordoned the Node since its drain under the lease, or it registered anew: pods may have come.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uncordoned: bool,
    /// Whether its kubelet is stopped: it was torn down, and is not set up again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Whether its Node is drained in the middle of a change, and the host may have a part of another version than its Node:
    /// if that drain is undone, the host is compared.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub half_changed: bool,
    /// The lease in the middle of whose change that drain began. `None`: an older build noted none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_changed_under: Option<LeaseToken>,
    /// Whether a first certificate was approved since the last order to configure it: with that its Node can register.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub certified: bool,
    /// Certificates of its kubelet, as far as they were seen issued.
    #[serde(skip_serializing_if = "KubeletCertificates::is_none")]
    pub certificates: KubeletCertificates,
    /// Whether it has a token that ends, or a certificate that was not renewed: it is also compared while
    /// it waits for a change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub renews: bool,
    /// Reboots since the present configuration began.
    #[serde(skip_serializing_if = "Reboots::is_none")]
    pub reboots: Reboots,
}

impl Host {
    /// By how many milliseconds its clock is off, by its last answer, if that is too much for certificates. Positive: it
    /// is ahead of dormer's.
    pub(super) fn wrong_clock_ms(&self) -> Option<i64> {
        let skew = self.facts.as_ref()?.clock_skew_ms;
        (skew.unsigned_abs() > policy::CLOCK_SKEW_MAX).then_some(skew)
    }
}

/// Reboots that one configuration of a host required.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reboots {
    /// Number of reboots so far.
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

/// Request of a person that needs the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeasedRequest {
    /// A new machine replaces it.
    Recreate,
    /// Cordoned and drained until resumed.
    Drain,
}

impl State {
    /// Takes over a machine that an older build marked during a pause: that build noted only at the resume that it serves.
    pub(super) fn take_over_service(&mut self) {
        self.in_service |= self.phase == Phase::Serving && self.version.is_some();
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
    pub(super) fn is_coming_up(&self) -> bool {
        self.first_bring_up() && self.host.configured.is_some()
    }

    /// Whether pods may run on its Node although it has never served: nothing keeps them away from a Node that is Ready.
    /// A step that disturbs them needs the lease.
    pub(super) fn pods_before_service(&self) -> bool {
        let ready = self.node.as_ref().is_some_and(|node| node.ready);
        self.is_coming_up() && ready && self.lease.token().is_none()
    }

    /// Whether it failed before it ever served, and waits for the lease, or has it, to be replaced. Its rollout stays
    /// halted.
    pub(super) fn failed_before_service(&self) -> bool {
        self.first_bring_up() && self.failing.is_some() && self.phase.whole()
    }

    /// Whether its host was torn down under the lease that is held.
    pub(super) fn was_torn_down(&self) -> bool {
        let token = self.lease.token();
        token.is_some() && self.host.torn_down == token
    }

    /// Whether its host was torn down under the lease that is held, and has not passed its checks since: no earlier
    /// configuration is left to go back to, so the change continues to its end.
    #[must_use]
    pub fn is_torn_down(&self) -> bool {
        let stays = self.under_lease != Some(ChangeStrategy::Recreate);
        self.was_torn_down() && stays && !self.phase.step().joined()
    }

    /// Whether it is in a step of a host that is torn down which a worker may have refused: the run then waits, and begins
    /// that step again after a while.
    pub(super) fn may_wait_torn_down(&self) -> bool {
        let step = matches!(self.phase, Phase::Opening(_) | Phase::TearingDown);
        step && self.is_torn_down()
    }

    /// Whether what it failed for may end by itself: a host that did not answer while the lease is held. The step is then
    /// tried again after a while.
    pub(super) fn failure_may_end_by_itself(&self) -> bool {
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

    /// Whether the change that it waits for, or has just begun, is a repair of its absent Node.
    pub(super) fn repairs(&self) -> bool {
        if let Phase::LeaseWait(change) | Phase::Opening(change) = &self.phase {
            return change.repair;
        }
        false
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
}
