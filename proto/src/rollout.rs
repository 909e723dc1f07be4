//! Types of the rollout workflow: its members' reports, signals, and facts about owners.

use crate::{
    defaults::is_false,
    id::{LeaseToken, Timestamp},
    machine::TokenMark,
    pool::PoolSettings,
};
use serde::{Deserialize, Serialize};

/// Most members of one pool.
pub const MEMBERS_MAX: usize = 5_000;

/// Report of a member to its rollout, sent again whenever a field changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemberReport {
    /// UID of the owner (MachineSet), if any.
    pub owner: Option<String>,
    /// When its Machine was created.
    pub created: Timestamp,
    /// Whether it is in service (`State::in_service`). The name is that of older builds.
    pub had_node: bool,
    /// It has, or had, a Node and is now not Ready, cordoned, Failed, being deleted, torn down, or carries an open token.
    pub unavailable: bool,
    /// It is Joined (and so may end a slot or a gap as a candidate).
    pub joined: bool,
    pub failed: bool,
    /// Its Machine is being deleted.
    pub deleting: bool,
    /// The Machine's deletionTimestamp, if it was seen: a replacement is not older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Timestamp>,
    /// The token found on it, when it was adopted.
    pub token: Option<TokenMark>,
    /// Whether its change is not allowed now (by the payload's terms or the kubelet's age). It is then not granted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub barred: bool,
    /// Whether another client cordoned its Node. It gets no lease until its Node is uncordoned.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cordoned: bool,
    /// Whether its node has not served for the pool's `repairAfter`. It may then be granted over the limit.
    #[serde(default, skip_serializing_if = "is_false")]
    pub repair: bool,
    /// A person asked for the change that it waits for.
    #[serde(default, skip_serializing_if = "is_false", rename = "wished")]
    pub by_request: bool,
    /// Why its host cannot be compared with what is desired. While several hosts say the same, nothing is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<NotCompared>,
}

/// Why a host that has a Node cannot be compared with what is desired.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NotCompared {
    /// Stable code of the failure, such as `AuthRejected`.
    pub code: String,
    /// What went wrong, in a sentence, as the first host of this code said it.
    pub message: String,
    /// Fingerprint of the host key that the host shows instead of the pinned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_key: Option<String>,
}

/// Signal to a rollout, from members and people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Signal {
    /// A member enrols, or something about it changed.
    Member(MemberReport),
    /// A member wants the lease.
    Request {
        /// Its present report.
        report: MemberReport,
    },
    /// A member withdraws its request (which was not granted).
    Withdraw,
    /// The holder has closed the token on every object, and returns the slot.
    Release {
        token: LeaseToken,
        /// Whether its Machine was deleted under the lease: then a replacement ends the slot.
        replaced: bool,
        /// The Machine's deletionTimestamp, if it was seen: a replacement is not older.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deleted: Option<Timestamp>,
    },
    /// A member's Machine is gone, and its run with it.
    Left {
        /// UID of the owner, if any.
        owner: Option<String>,
        /// It had a Node, and another client deleted it: a gap is left.
        gap: bool,
        /// Only the run ends (a person closed it, or it is to be ignored): the Machine is still there.
        #[serde(default)]
        stays: bool,
        /// Its Machine is to be ignored and has never served. It counts as a replacement only after it has served; the
        /// same signal without this field reports that.
        #[serde(default, skip_serializing_if = "is_false")]
        never_served: bool,
        /// The lease that it held, if any.
        token: Option<LeaseToken>,
        /// The Machine's deletionTimestamp, if it was seen: a replacement is not older.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deleted: Option<Timestamp>,
    },
    /// A person: no new grants.
    Pause,
    /// A person: grants again.
    Resume,
    /// A person: roll back one step, to a payload that the present one may follow.
    Rollback {
        /// The version of that payload.
        to: String,
    },
    /// A person: end the rollback that is in force, so that the spec's payload applies again.
    EndRollback,
}

/// Machine in an owner's facts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedMachine {
    pub uid: String,
    /// When it was created.
    pub created: Timestamp,
    /// Whether it has a deletionTimestamp.
    pub deleting: bool,
}

/// A MachineSet with its Machines: whether a replacement will come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerFact {
    pub uid: String,
    pub name: String,
    /// `spec.replicas`.
    pub replicas: u32,
    /// `status.readyReplicas`; `None`: an older watcher does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<u32>,
    /// `status.availableReplicas`, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<u32>,
    /// Whether the cluster autoscaler changes its number of Machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub autoscaled: bool,
    pub machines: Vec<OwnedMachine>,
}

/// Fact for a rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "a message holds one fact, and most are of the largest kind"
)]
pub enum Fact {
    /// The pool's accepted settings.
    Pool(PoolSettings),
    /// An owner of members.
    Owner(OwnerFact),
    /// UIDs of the Machines that have a Node, from one full list: none is granted before all of them enrolled.
    Listed {
        /// The UIDs.
        with_node: Vec<String>,
        /// UIDs of all existing MachineSets; `None`: an older watcher omits them, or could not list them. An owner
        /// without a fact that is not among them is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sets: Option<Vec<String>>,
    },
}
