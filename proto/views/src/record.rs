//! History of a run for people: records and their events.

use crate::{moment::Moment, open_enum::OpenEnum};
use dormer_proto::{listed, phase::MachinePhase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

listed! {
    /// Kind of an event.
    pub enum EventKind {
        /// The run began.
        Started = "started",
        /// The watcher saw an object, or that it is gone.
        Observed = "observed",
        /// A task succeeded.
        TaskSucceeded = "task-succeeded",
        /// A task failed for good, or its attempts are used up.
        TaskFailed = "task-failed",
        /// A timer was due.
        TimerDue = "timer-due",
        /// Another run sent a signal.
        SignalTaken = "signal-taken",
        /// Another run confirmed a signal of this one.
        SignalReceipted = "signal-receipted",
        /// A signal of this run was refused.
        SignalRefused = "signal-refused",
        /// A person requested an action.
        Requested = "requested",
        /// A person sent the run back to an earlier record.
        Reset = "reset",
    }
}

/// Event of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Of which kind.
    pub kind: OpenEnum<EventKind>,
    /// Name of the task, where it is about one.
    pub task: Option<String>,
    /// Code of the failure, such as `AuthRejected`.
    pub code: Option<String>,
    /// Number of the attempt, from 1.
    pub attempt: Option<u64>,
    /// All of it in a sentence, without a full stop.
    pub text: String,
}

impl Event {
    /// An event that is not about a task.
    pub fn new(kind: EventKind, text: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            task: None,
            code: None,
            attempt: None,
            text: text.into(),
        }
    }
}

/// A record of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its number, from 1.
    pub seq: u64,
    /// Its time, by the engine's clock.
    pub at: Moment,
    /// State of the run after it, as its workflow names it.
    pub state: String,
    /// Phase of a machine after it.
    pub phase: Option<OpenEnum<MachinePhase>>,
    /// The phase in words.
    pub phase_text: Option<String>,
    /// What happened.
    pub events: Vec<Event>,
    /// Names of the tasks that it ordered.
    pub asks: Vec<String>,
    /// Stored envelope of the record in base64; only if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<String>,
}

impl Record {
    /// Phase in words, if it says more than the state.
    pub fn phase_beside_state(&self) -> Option<&str> {
        let text = self.phase_text.as_deref()?;
        (!text.eq_ignore_ascii_case(&self.state)).then_some(text)
    }
}

/// A part of a history, oldest record first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// Id of the run.
    pub run: String,
    /// The items.
    pub items: Vec<Record>,
    /// Number of the first record of the next part; null at the end.
    pub next: Option<u64>,
    /// Schema of the records; only with their envelopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<u64>,
    /// Incarnation of the store; only with the envelopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// Version of the dormer that answers; only with the envelopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}
