//! State of a rollout: its members, slots, gaps, settings and requests.

use super::{
    member::{Flag, Member},
    uid::Uid,
};
use dormer_proto::{
    id::{LeaseToken, Seq, Timestamp},
    phase::RolloutState,
    pool::{MaxUnavailable, PoolEdit, Terms},
    rollout::NotCompared,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Most owners remembered. Members of further owners count as having none, and so leave no gap.
pub const OWNERS_MAX: usize = 1_024;
/// Most departed machines whose repeated signals are recognised; the oldest are forgotten.
pub const DEPARTED_MAX: usize = 256;
/// Most machines over the limit that are remembered by name. Further ones are counted once, without a name.
pub const TURNED_AWAY_MAX: usize = 16;
/// Most versions of payloads whose build is remembered. The oldest versions are forgotten.
pub const BUILDS_MAX: usize = 64;
/// Longest reason or name kept of a person's pause, in bytes.
pub const WHY_BYTES_MAX: usize = 256;

/// State of a rollout's run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// Relevant settings of the pool; `None`: not known yet, so nothing is granted.
    pub settings: Option<Settings>,
    /// A person's pause.
    pub pause: Option<Pause>,
    /// Whether every Machine with a Node of one full list has enrolled. Before that, nothing is granted.
    pub enrolment: Enrolment,
    /// The highest lease token ever granted or found.
    pub token: LeaseToken,
    /// Counter that orders requests, deletions and first services.
    pub tick: u64,
    /// Machines that enrolled, that an owner or a list names, or that are asked to enrol because of their own signal; at
    /// most [`MEMBERS_MAX`](dormer_proto::rollout::MEMBERS_MAX).
    #[serde(with = "pairs")]
    pub members: BTreeMap<Uid, Member>,
    /// Owners, by our own number for them, from 1.
    #[serde(with = "pairs")]
    pub owners: BTreeMap<u16, Owner>,
    /// Slots, oldest first.
    pub slots: Vec<Slot>,
    /// Gaps, oldest first.
    pub gaps: Vec<Gap>,
    /// Machines that left, oldest first; see [`DEPARTED_MAX`].
    pub departed: VecDeque<Uid>,
    /// Machines over the limit on members, at most [`TURNED_AWAY_MAX`] by name.
    pub turned_away: Vec<Uid>,
    /// Desired payload of the pool, and its terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<TargetPayload>,
    /// Builds of payloads (SHA-256 of the manifest), by version: the first that was known; at most [`BUILDS_MAX`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub builds: BTreeMap<String, String>,
    /// Origin of the settings; `None`: the watcher does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Last rollback that a person requested, until the desired payload changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// Troubles that keep hosts from being compared; members refer to them by number, from 1. One without a member has
    /// ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<NotCompared>,
    /// MachineSets in the last full list. `None`: not known; an owner without a fact is then unknown, not gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<Vec<Uid>>,
    /// Whether the timer runs that asks machines which have not enrolled.
    pub asks: bool,
    /// Whether the timer runs that checks unknown owners in the last full list.
    #[serde(rename = "looks")]
    pub owner_check: bool,
}

/// Settings of the pool that a rollout needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Most machines that may be unavailable at once.
    pub max_unavailable: MaxUnavailable,
    /// No new grants.
    pub paused: bool,
    /// Upgrades start when a person approves them.
    pub manual: bool,
    /// Most grants over the limit at once; `None`: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_repairs: Option<u32>,
}

/// Report of the watcher about the pool's object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Source {
    /// Why nothing is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Remedy for `held`, as an imperative sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_cure: Option<String>,
    /// The payload in the words of its spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_payload: Option<String>,
    /// Person who rolled it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden_by: Option<String>,
    /// Whether a worker takes an ended rollback out of the pool's status.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub override_ended: bool,
    /// Generation of the last spec that was read; 0: none was.
    #[serde(default)]
    pub generation: u64,
    /// Last edit of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<PoolEdit>,
    /// Why that spec is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Condition that grants within the limit wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Remedy for `waits`, as an imperative sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_cure: Option<String>,
    /// Another operator that configures hosts: while it runs, nothing is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<String>,
}

/// Desired payload of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TargetPayload {
    /// Its version.
    pub payload: String,
    pub terms: Terms,
}

impl TargetPayload {
    /// Whether a person may roll back from it to the payload `to`.
    ///
    /// # Errors
    /// Why not, in one sentence.
    pub fn goes_back_to(&self, to: &str) -> Result<(), String> {
        let from = &self.payload;
        if !self.terms.may_follow.iter().any(|version| version == to) {
            let known = match self.terms.may_follow.as_slice() {
                [] => "none".to_owned(),
                known => known.join(", "),
            };
            return Err(format!(
                "from {from} it goes back one step, to one of: {known}; not {to}"
            ));
        }
        if !self.terms.installed.iter().any(|version| version == to) {
            return Err(format!("payload {to} is not installed"));
        }
        Ok(())
    }
}

/// Rollback that a person requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollback {
    /// The payload that is left.
    pub from: String,
    /// The payload that is wanted again.
    pub to: String,
    /// Who, and why.
    pub by: String,
    /// Time of the request.
    pub at: Timestamp,
    /// Progress.
    pub step: RollbackStep,
    /// Payload in the words of the spec, which it overrides. A change of the spec ends the rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
}

/// Progress of a rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RollbackStep {
    /// It is written into the pool's status.
    Writing,
    /// The status has it; the watcher reports it.
    Written,
    /// It was refused, with the reason.
    Refused(String),
    /// It is taken out of the pool's status, as this person requested.
    Ending(String),
    /// The status no longer has it, as this person requested; the watcher still reports it.
    Ended(String),
    /// It could not be taken out of the status, with the reason: it is in force.
    NotEnded(String),
}

/// Pause of new grants by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Name of the person.
    pub who: String,
    /// Reason in the person's words; may be empty.
    pub why: String,
    /// Time of the request.
    pub at: Timestamp,
}

/// Whether the pool is known well enough to grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Enrolment {
    /// No full list has come.
    #[default]
    Unlisted,
    /// One has come, and some of its Machines are awaited.
    Listed,
    /// All of one list enrolled.
    Complete,
}

/// A MachineSet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Owner {
    pub uid: Uid,
    /// Its name; empty: only members spoke of it.
    pub name: String,
    /// Desired number of Machines.
    pub wants: Wants,
    /// Number of this set's Machines that did not fit into `members`.
    pub unnamed: u32,
    /// `status.replicas`, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<u32>,
    /// `status.readyReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<u32>,
    /// Whether the cluster autoscaler changes the desired number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub autoscaled: bool,
    /// `status.availableReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<u32>,
}

/// Number of Machines that an owner wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Wants {
    /// No fact has come.
    #[default]
    Unknown,
    /// `spec.replicas`.
    Replicas(u32),
    /// It is gone: it wants none.
    Gone,
}

/// A lease that was granted and has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Its fencing number.
    pub token: LeaseToken,
    /// The holder.
    pub uid: Uid,
    /// Its owner's number; 0: none.
    pub owner: u16,
    /// It was granted over the limit.
    #[serde(rename = "marked")]
    pub over_limit: bool,
    /// The holder carried an open token of an earlier store: it finishes before any other.
    pub first: bool,
    /// The record that granted it.
    pub seq: Seq,
    /// Time of the request.
    pub at: Timestamp,
    /// Known data of its Machine's deletion.
    pub loss: Option<Loss>,
    /// The holder is gone and gave the slot back: a replacement ends it.
    pub vacant: bool,
}

/// Gap after another client deleted a member. It counts like a slot without a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Who is missing.
    pub uid: Uid,
    /// Its owner's number.
    pub owner: u16,
    /// The record that noticed.
    pub seq: Seq,
    /// Time of the request.
    pub at: Timestamp,
    /// Known data of the deletion.
    pub loss: Loss,
}

/// A Machine's deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Tick of the first report: a machine that served before cannot be the replacement.
    pub tick: u64,
    /// Its deletionTimestamp, by the API server's clock, in whole seconds.
    pub deleted: Option<Timestamp>,
    /// Number of Machines that its owner wanted before it wanted fewer; `None`: it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u32>,
    /// Whether a replacement was deleted before it served.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unserved: bool,
}

impl Loss {
    /// A deletion that was reported first at `tick`.
    pub(super) fn at(tick: u64, deleted: Option<Timestamp>) -> Self {
        Self {
            tick,
            deleted,
            wanted: None,
            unserved: false,
        }
    }
}

impl State {
    /// Whether leases are granted, and if not, why.
    #[must_use]
    pub fn label(&self) -> RolloutState {
        if self.paused() {
            RolloutState::Paused
        } else if self.enrolment != Enrolment::Complete || self.settings.is_none() {
            RolloutState::Enrolling
        } else if self.halted() {
            RolloutState::Halted
        } else {
            RolloutState::Open
        }
    }

    /// Whether failures, or trouble that several hosts share, stop new grants until a person mends it.
    #[must_use]
    pub fn halted(&self) -> bool {
        !self.failures().is_empty() || self.finding().is_some()
    }

    /// How many members there are.
    #[must_use]
    pub fn enrolled(&self) -> usize {
        self.members
            .values()
            .filter(|member| member.is(Flag::Enrolled))
            .count()
    }

    /// Number of unavailable machines: slots, gaps, and members that do not serve. Each machine counts once.
    #[must_use]
    pub fn unavailable(&self) -> usize {
        let apart =
            |uid: &Uid| self.slot_of(uid).is_none() && self.gaps.iter().all(|gap| gap.uid != *uid);
        let away = self
            .members
            .iter()
            .filter(|(uid, m)| m.unavailable() && apart(uid))
            .count();
        self.slots.len() + self.gaps.len() + away
    }

    /// Number of machines of which `maxUnavailable` is a share: members that serve or have served, and those that wait
    /// for a replacement. A Machine that never came up takes no pods, so it allows no other one to be unavailable.
    fn served(&self) -> usize {
        let vacant = self.slots.iter().filter(|slot| slot.vacant);
        let missing: Vec<&Uid> = vacant
            .map(|slot| &slot.uid)
            .chain(self.gaps.iter().map(|gap| &gap.uid))
            .collect();
        let serves = |uid: &Uid, member: &Member| {
            member.is(Flag::Enrolled) && member.is(Flag::HadNode) && !missing.contains(&uid)
        };
        let members = self.members.iter().filter(|(uid, m)| serves(uid, m));
        members.count() + missing.len()
    }

    /// Most machines that may be unavailable; `None` before the settings are known.
    #[must_use]
    pub fn limit(&self) -> Option<usize> {
        self.settings
            .map(|settings| settings.max_unavailable.of(self.served()))
    }

    /// Whether a person or the settings stopped new grants.
    #[must_use]
    pub fn paused(&self) -> bool {
        let settings = self.settings.is_some_and(|settings| settings.paused);
        self.pause.is_some() || settings || self.neighbour().is_some()
    }

    /// Another operator that configures hosts: its name and namespace.
    #[must_use]
    pub fn neighbour(&self) -> Option<&str> {
        self.source.as_ref()?.neighbour.as_deref()
    }

    /// Other operation that changes the cluster, because of which all grants but repairs wait.
    #[must_use]
    pub fn waits_for_cluster(&self) -> Option<&str> {
        self.source.as_ref()?.waits.as_deref()
    }

    /// Why nothing is granted, regardless of the other settings.
    #[must_use]
    pub fn held(&self) -> Option<&str> {
        let held = || self.source.as_ref()?.held.as_deref();
        self.neighbour().or_else(held)
    }

    /// Remedy for [`State::held`]. `None`: the reason itself names it, or nothing is held.
    #[must_use]
    pub fn held_cure(&self) -> Option<&str> {
        let own = self.neighbour().is_none();
        own.then(|| self.source.as_ref()?.held_cure.as_deref())?
    }

    /// Rollback, or end of one, that the pool's settings do not show yet. Until then no lease is granted for the payload
    /// that is being left.
    #[must_use]
    pub fn rollback_not_in_settings(&self) -> Option<String> {
        let rollback = self.rollback.as_ref().filter(|it| it.instead.is_some())?;
        let to = &rollback.to;
        match rollback.step {
            RollbackStep::Refused(_) => None,
            RollbackStep::Ending(_) | RollbackStep::Ended(_) => {
                Some(format!("the end of the rollback to {to}"))
            }
            RollbackStep::Writing | RollbackStep::Written | RollbackStep::NotEnded(_) => {
                let there = |wanted: &TargetPayload| wanted.payload == *to;
                let shown = self.payload.as_ref().is_some_and(there);
                (!shown).then(|| format!("the rollback to {to}"))
            }
        }
    }

    /// Rollback that replaces the spec's payload, or will as soon as a worker has written it. One that the pool's status
    /// alone has is as old as `now`. `None`: there is none, or its end is requested.
    #[must_use]
    pub fn rollback_in_force(&self, now: Timestamp) -> Option<Rollback> {
        let source = self.source.as_ref()?;
        let written = source.spec_payload.as_ref()?;
        let ours = self.rollback.as_ref();
        let ours = ours.filter(|it| it.instead.as_ref() == Some(written));
        match ours.map(|it| &it.step) {
            Some(RollbackStep::Ending(_)) => return None,
            Some(RollbackStep::Writing | RollbackStep::Written | RollbackStep::NotEnded(_)) => {
                return ours.cloned();
            }
            // An older worker leaves it in the status: the end can be requested again.
            Some(RollbackStep::Refused(_) | RollbackStep::Ended(_)) | None => {}
        }
        Some(Rollback {
            from: written.clone(),
            to: self.payload.as_ref()?.payload.clone(),
            by: source.overridden_by.clone()?,
            at: now,
            step: RollbackStep::Written,
            instead: Some(written.clone()),
        })
    }

    /// The slot that the Machine `uid` holds, or held until it was deleted.
    #[must_use]
    pub fn slot_of(&self, uid: &Uid) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.uid == *uid)
    }
}

/// Maps with keys other than text, stored as lists of pairs: JSON and readers in other languages need text keys.
mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
    use std::collections::BTreeMap;

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, K, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: DeserializeOwned + Ord,
        V: DeserializeOwned,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}
