//! Combined types of dormer's workflows, for one engine, one inbox and one store.

use crate::{
    id::{IdError, RunId},
    machine,
    message::{InboxMessage, NoSignal, TaskOrder, TaskReport},
    rollout,
};
use serde::{Deserialize, Serialize};

/// The machine workflow's name: its runs are `machine/<UID of the Machine>`.
pub const MACHINE: &str = "machine";
/// The rollout workflow's name: its runs are `rollout/<pool>`.
pub const ROLLOUT: &str = "rollout";

/// Schema number of these types in every envelope. Raise it when an older build could not read a newer one's, or
/// would lose a part of them by reading and rewriting them. Version 0.1 has 1. `tests/stores/types.txt` lists what the number
/// stands for.
pub const SCHEMA: u16 = 2;

/// Fact for any run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    /// For a machine's run.
    Machine(machine::Fact),
    /// For a pool's rollout.
    Rollout(rollout::Fact),
}

/// Signal for any run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Signal {
    /// For a machine's run.
    Machine(machine::Signal),
    /// For a pool's rollout.
    Rollout(rollout::Signal),
}

/// Order of dormer's workflows. Rollouts use the same task type: they order `SetPayload`.
pub type Order = TaskOrder<machine::Task>;
/// Report on an [`Order`].
pub type Report = TaskReport<machine::Outcome>;
/// Message of the watcher, without reports and signals.
pub type FactMessage = InboxMessage<Fact, NoSignal, NoSignal>;
/// Message of a worker: a report.
pub type ReportMessage = InboxMessage<Fact, machine::Outcome, NoSignal>;
/// Message of a person, or of a program in a person's name.
pub type RequestMessage = InboxMessage<Fact, machine::Outcome, Signal>;

/// The run of the Machine with this UID.
///
/// # Errors
/// The UID is empty or too long: it is not a Kubernetes UID.
pub fn machine_run(uid: &str) -> Result<RunId, IdError> {
    RunId::new(MACHINE, uid)
}

/// The rollout of the pool with this name.
///
/// # Errors
/// The name is empty or too long.
pub fn rollout_run(pool: &str) -> Result<RunId, IdError> {
    RunId::new(ROLLOUT, pool)
}
