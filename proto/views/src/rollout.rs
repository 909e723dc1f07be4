//! Views of a pool's rollout and settings, for API, console and commands.

use crate::{moment::Moment, open_enum::OpenEnum, run::RunStatus};
use dormer_proto::{
    listed,
    phase::{RolloutState, Unavailable},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pool's rollout as the API shows it: its counts, its limits, and who holds the lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    pub pool: String,
    pub state: OpenEnum<RolloutState>,
    /// Machines enrolled.
    pub members: u64,
    /// Machines that are Joined.
    pub joined: u64,
    /// Machines that are Failed.
    pub failed: u64,
    /// Machines that count as unavailable.
    pub unavailable: u64,
    /// Limit of unavailable machines; null while the pool's settings are unknown.
    pub max_unavailable: Option<u64>,
    /// Whether each machine's upgrade waits for a person's approval.
    pub manual_approval: bool,
    /// The highest lease token ever granted or found.
    pub token: u64,
    /// Unavailable machines, each once.
    pub away: Vec<Away>,
    /// Machines that wait for the lease, first to last.
    pub queue: Vec<Waiting>,
    /// Holders of the lease, oldest first.
    pub slots: Vec<Slot>,
    /// Machines that another client deleted and that are not replaced yet, oldest first.
    pub gaps: Vec<Gap>,
    /// Names of Machines with a Node that have not enrolled yet.
    pub awaited: Vec<String>,
    /// Names of Machines beyond the limit of members, at most 16. They never get the lease.
    pub turned_away: Vec<String>,
    /// Person who stopped new grants, with the reason.
    pub paused: Option<String>,
    /// Whether `waitingFor` is the end of that pause.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_resume: bool,
    /// Reason for which no lease is granted: there is no pool, or it forbids grants.
    #[serde(default)]
    pub held: Option<String>,
    /// Remedy for `held`: an imperative sentence, with the commands that execute it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_cure: Option<String>,
    /// Remedy for another change of the cluster that grants wait for, such as its upgrade: an imperative sentence, with its
    /// commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_cure: Option<String>,
    /// Last edit of the pool's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<PoolEdit>,
    /// Reason for which the pool's present settings are refused. The ones before them hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Failure that stops new grants.
    pub halted: Option<String>,
    /// Payload that its machines should carry.
    pub payload: Option<String>,
    /// Last rollback that a person requested, and its progress.
    pub rollback: Option<String>,
    /// Rollback that is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden: Option<Overridden>,
    /// MachineSets that its Machines come from.
    pub machine_sets: Vec<MachineSet>,
    /// What the next grant waits for; null if no machine waits, or if the next decision grants.
    pub waiting_for: Option<String>,
    /// Usual duration of a turn with the lease, in seconds: the median of those that have ended, or before that the sum of
    /// its steps' last durations. Absent while no machine waits for the lease or holds it, and while a step is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typical_turn_seconds: Option<u64>,
    /// Whether that is only expected: no turn has ended yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub typical_turn_expected: bool,
    /// Whether a slot or a gap waits for a MachineSet to want as many Machines as before; a resume ends that wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub eroded: bool,
    /// Where it is in its life.
    #[serde(flatten)]
    pub status: RunStatus,
}

/// Last edit of a pool's spec, as the API server notes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolEdit {
    /// Program that made it, such as `kubectl-edit`. The API server's audit names the person.
    pub program: String,
    /// When, by the API server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    /// Fields that this program has set last.
    pub fields: Vec<String>,
}

/// Rollback that is in force: its payload replaces the spec's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overridden {
    /// `spec.payload`. Another value ends the rollback, as `dormer rollback --pool POOL --end` does.
    pub spec_payload: String,
    /// Person who asked for it, and reason.
    pub by: String,
}

impl Overridden {
    /// The payload that the spec asks for, in words: its version, or the newest one that is installed.
    pub fn forward(&self) -> String {
        match self.spec_payload.as_str() {
            "installed" => "the newest installed payload (spec.payload: installed)".to_owned(),
            version => format!("{version} (spec.payload)"),
        }
    }
}

/// Multiple of the usual duration at which a turn counts as late.
pub const LATE: u64 = 3;

/// A machine that counts as unavailable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Away {
    /// UID of the Machine.
    pub uid: String,
    /// Its name; the UID where that is not known.
    pub name: String,
    /// Why it counts.
    pub why: OpenEnum<Unavailable>,
}

/// A machine that waits for the lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// UID of the Machine.
    pub uid: String,
    /// Its name; the UID where that is not known.
    pub name: String,
    /// Position in the queue, from 1.
    pub position: u64,
    /// Whether it is already unavailable, and may therefore be granted the lease over the limit.
    pub away: bool,
}

/// A lease that is held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// Fencing token.
    pub token: u64,
    /// UID of the holder's Machine.
    pub holder: String,
    /// Its name; the UID where that is not known.
    pub name: String,
    /// Whether it was granted over the limit.
    pub marked: bool,
    /// Number of the record that granted it.
    pub seq: u64,
    /// When it was granted.
    pub since: Moment,
    /// What the slot waits for, once the holder's Machine is gone.
    pub waits_for: Option<String>,
    /// Names of the machines that may come in the holder's place, once its Machine is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<String>,
    /// Whether the holder's Machine is gone and has returned the lease: the slot stays taken until the machine in its place
    /// serves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vacant: bool,
    /// How a person stopped the holder, which keeps the lease until it is resumed: `drained by ann (a new kernel)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

impl Rollout {
    /// Direction of a rollback that is in force, and how it ends: `rolling back to 11.0.0, and spec.payload is 11.1.0`.
    pub fn direction(&self) -> Option<String> {
        let back = self.overridden.as_ref()?;
        let forward = back.forward();
        let by = &back.by;
        let to = self.payload.as_deref().unwrap_or("another payload");
        let how = match self.slots.is_empty() && self.queue.is_empty() {
            true => "rolled back",
            false => "rolling back",
        };
        Some(format!(
            "{how} to {to} instead of {forward}, asked for by {by}; to go forward again: dormer \
             rollback --pool {} --end",
            self.pool
        ))
    }

    /// Machines that take the places of `maxUnavailable`: who holds a lease, whose slot waits for the machine in its place,
    /// and who is out of service without a lease, each of those with its cause.
    pub fn unavailable_machines(&self) -> Vec<String> {
        let slots = self.slots.iter().map(|slot| match slot.vacant {
            true => format!("{} (gone)", slot.name),
            false => slot.name.clone(),
        });
        let has_slot = |uid: &str| self.slots.iter().any(|slot| slot.holder == uid);
        let away = self.away.iter().filter(|it| !has_slot(&it.uid));
        let away = away.map(|it| {
            let why = it.why.id();
            format!("{} ({why})", it.name)
        });
        slots.chain(away).collect()
    }

    /// Slots whose machines hold the lease. The machine of another slot is gone.
    pub fn holders(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !slot.vacant)
    }

    /// Holder that a person stopped, if no turn continues and no place is left: nothing is granted until the machine is resumed.
    pub fn stopped_by(&self) -> Option<&Slot> {
        let full = self
            .max_unavailable
            .is_none_or(|max| self.unavailable >= max);
        let mut slots = self.slots.iter();
        let all = slots.all(|slot| slot.stopped.is_some());
        self.slots.first().filter(|_| full && all)
    }
}

/// A machine that another client deleted and that is not replaced yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// UID of the Machine.
    pub uid: String,
    /// Its name; the UID where that is not known.
    pub name: String,
    /// Name of its MachineSet; empty where that is not known.
    pub owner: String,
    /// Number of the record that noticed.
    pub seq: u64,
    /// When that was.
    pub since: Moment,
    /// What it waits for.
    pub waits_for: String,
}

/// A MachineSet in numbers; a null is not known yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineSet {
    pub name: String,
    /// `spec.replicas`.
    pub replicas: u64,
    pub machines: Option<u64>,
    /// `status.readyReplicas`.
    pub ready: Option<u64>,
    /// `status.availableReplicas`.
    pub available: Option<u64>,
}

impl MachineSet {
    /// Whether one of its numbers is below the desired one.
    pub fn falls_short(&self) -> bool {
        let numbers = [self.machines, self.ready, self.available];
        numbers
            .iter()
            .flatten()
            .any(|number| *number != self.replicas)
    }
}

listed! {
    /// Approval of upgrades.
    pub enum ApprovalMode {
        /// A person, machine by machine.
        Manual = "manual",
        /// No approval is needed.
        Automatic = "automatic",
    }
}

/// A pool's settings, as its rollout knows them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// Its name.
    pub pool: String,
    /// How many machines may be unavailable; null while the settings are not known.
    pub max_unavailable: Option<u64>,
    /// Approval of upgrades.
    pub approval: OpenEnum<ApprovalMode>,
    /// Who stopped new grants, and why.
    pub paused: Option<String>,
    /// Payload that its machines should carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Versions that a rollback may go back to: the payload may follow them, and they are installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rollback_to: Vec<String>,
    /// Rollback that is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden: Option<Overridden>,
    /// Why the pool's last edit is refused, or why no lease is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Machines enrolled.
    pub members: u64,
}
