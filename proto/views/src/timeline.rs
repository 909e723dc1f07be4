//! A run's life as a tree: episodes, their phases, their tasks, and each task's attempts and waits.

use crate::open_enum::OpenEnum;
use dormer_proto::{
    listed,
    phase::{MachinePhase, MachineState},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A run's life so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// Id of the run.
    pub run: String,
    /// Now, in milliseconds since 1970 by the engine's clock, as all times here.
    pub now: u64,
    /// Oldest first. What lies between two of them belongs to a nameless one, `serving`.
    pub episodes: Vec<Episode>,
}

/// A stretch of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TimelineEpisode")]
pub struct Episode {
    /// Purpose, such as `bring-up`.
    pub kind: String,
    /// The record at which it began.
    pub seq: u64,
    /// Start, in milliseconds by the engine's clock, as all times here.
    pub from: u64,
    /// End. Null while it is under way.
    pub to: Option<u64>,
    /// How it ended; empty while it goes on.
    pub result: String,
    /// Oldest first.
    pub phases: Vec<Phase>,
}

/// A phase that the run was in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TimelinePhase")]
pub struct Phase {
    /// State that the phase belongs to.
    pub state: OpenEnum<MachineState>,
    /// The phase.
    pub phase: OpenEnum<MachinePhase>,
    /// The phase in words.
    pub text: String,
    /// Start.
    pub from: u64,
    /// End; null while the run is in it.
    pub to: Option<u64>,
    /// Tasks that it asked for, in that order.
    pub tasks: Vec<Task>,
}

/// A task, with everything that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TimelineTask")]
pub struct Task {
    /// `SEQ.ORDINAL`: its identity within the run.
    pub id: String,
    /// What it does, such as `probe`.
    pub name: String,
    /// When it was asked for.
    pub from: u64,
    /// End; null while it is open.
    pub to: Option<u64>,
    /// In their order.
    pub attempts: Vec<Attempt>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TimelineAttempt")]
pub struct Attempt {
    /// Number, from 1.
    pub attempt: u64,
    /// When it was ordered.
    pub from: u64,
    /// End; null while it is under way.
    pub to: Option<u64>,
    /// How it ended; null while it is under way.
    pub result: Option<OpenEnum<AttemptResult>>,
    /// Who reported.
    pub worker: Option<String>,
    /// Why it failed, or what came of it.
    pub detail: Option<String>,
    /// Until when the next one waits, after a failure.
    pub wait: Option<u64>,
}

listed! {
    /// How an attempt ended.
    pub enum AttemptResult {
        /// The worker reported success.
        Succeeded = "succeeded",
        /// The worker reported a failure.
        Failed = "failed",
        /// No report came within the attempt's time limit.
        TimedOut = "timed-out",
        /// The run moved on without it.
        Cancelled = "cancelled",
    }
}

impl AttemptResult {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Attempt {
    /// How it ended in words, or that it is under way.
    pub fn result_text(&self) -> &str {
        match &self.result {
            None => "under way",
            Some(OpenEnum::Known(result)) => result.text(),
            Some(OpenEnum::Newer(id)) => id,
        }
    }
}

impl Phase {
    /// The phase in words, with its state where that says more.
    pub fn label(&self) -> String {
        if self.text.eq_ignore_ascii_case(self.state.id()) {
            self.state.id().to_owned()
        } else {
            format!("{}: {}", self.state, self.text)
        }
    }
}

impl Episode {
    /// Every task of it.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.phases.iter().flat_map(|phase| &phase.tasks)
    }

    /// How it ended, in words.
    pub fn ending(&self) -> &str {
        match (self.to, self.result.as_str()) {
            (None, _) => "under way",
            (Some(_), "") => "ended",
            (Some(_), result) => result,
        }
    }
}

/// What is said of the time between two episodes.
pub const BETWEEN: &str = "serving";
