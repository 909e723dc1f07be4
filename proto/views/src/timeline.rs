//! A run's life as a tree: episodes, their phases, their tasks, and each task's attempts and waits.

use serde::Serialize;

/// A run's life so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// Oldest first. What lies between two of them belongs to a nameless one, `serving`.
    pub episodes: Vec<Episode>,
}

/// A stretch of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Episode {
    /// What it is for, such as `bring-up`.
    pub kind: String,
    /// The record at which it began.
    pub seq: u64,
    /// Start, in milliseconds by the engine's clock, as all times here.
    pub from: u64,
    /// End. `None`: the episode is under way.
    pub to: Option<u64>,
    /// How it ended; empty while it goes on.
    pub result: String,
    /// Oldest first.
    pub phases: Vec<Phase>,
}

/// A phase that the run was in.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// State that the phase belongs to.
    pub state: String,
    /// Its own name.
    pub phase: String,
    /// Start.
    pub from: u64,
    /// End. `None`: the run is in it.
    pub to: Option<u64>,
    /// Tasks that it asked for, in that order.
    pub tasks: Vec<Task>,
}

/// A task, with everything that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// `SEQ.ORDINAL`: its identity within the run.
    pub id: String,
    /// What it does, such as `probe`.
    pub name: String,
    /// When it was asked for.
    pub from: u64,
    /// End. `None`: it is open.
    pub to: Option<u64>,
    /// In their order.
    pub attempts: Vec<Attempt>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Number, from 1.
    pub attempt: u64,
    /// When it was ordered.
    pub from: u64,
    /// End. `None`: it is under way.
    pub to: Option<u64>,
    /// `succeeded`, `failed`, `given up` (no answer within its limit), `called off`; empty while it goes on.
    pub result: String,
    /// Who reported.
    pub worker: Option<String>,
    /// Why it failed, or what came of it.
    pub detail: Option<String>,
    /// Until when the next one waits, after a failure.
    pub wait: Option<u64>,
}

/// What is said of the time between two episodes.
pub const BETWEEN: &str = "serving";
