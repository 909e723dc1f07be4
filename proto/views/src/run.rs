//! Views of runs and their open tasks.

use crate::{moment::Moment, open_enum::OpenEnum};
use dormer_proto::listed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Common status of a run; part of every machine, rollout and run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// Id of the run: WORKFLOW/KEY.
    pub run: String,
    /// Number of its last record.
    pub seq: u64,
    /// Number of the record at which the state was entered; requests name it as `against`.
    pub entered_seq: u64,
    /// Time of its first record.
    pub began: Moment,
    /// Time at which the state was entered.
    pub since: Moment,
    /// Seconds since then, by the server's clock.
    pub since_seconds: u64,
    /// Time at which the run ended.
    pub closed: Option<Moment>,
    /// The latest episode.
    pub episode: Option<EpisodeStatus>,
    /// Quarantine, while engines leave the run alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
}

/// Quarantine of a run that cannot continue: engines leave it alone until it is released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quarantine {
    /// Stable code, such as `RecordRefused`.
    pub code: String,
    /// Cause, in a sentence.
    pub why: String,
    /// Time at which it was quarantined.
    pub since: Moment,
    /// Builds that failed with the run. Another build tries once by itself.
    pub builds: Vec<String>,
}

/// Quarantined run, in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuarantinedRun {
    /// Id of the run: WORKFLOW/KEY.
    pub run: String,
    /// Name for people, where its last record can be read.
    pub name: Option<String>,
    #[serde(flatten)]
    pub quarantine: Quarantine,
}

/// The latest episode of a run, without its phases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EpisodeStatus {
    /// Purpose, such as `bring-up`.
    pub kind: String,
    /// Number of the record at which it began.
    pub seq: u64,
    /// Start.
    pub from: Moment,
    /// End; null while it is under way.
    pub to: Option<Moment>,
    /// How it ended; empty while it is under way.
    pub result: String,
}

/// A run of any workflow, in a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Where it is in its life.
    #[serde(flatten)]
    pub status: RunStatus,
    /// Name of the workflow: machine or rollout.
    pub workflow: String,
    /// Name for people: the Machine's name, or the pool.
    pub name: String,
    /// State, as its workflow names it.
    pub state: String,
    /// The state in the word that people read, where that is another: an Open rollout is Idle, Waiting or Running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_text: Option<String>,
    /// Number of open tasks.
    pub tasks: u64,
    /// Time of its next timer.
    pub deadline: Option<Moment>,
}

impl Run {
    /// State in the word that people read.
    pub fn state_word(&self) -> &str {
        self.state_text.as_deref().unwrap_or(&self.state)
    }
}

listed! {
    /// Whether a worker has a task.
    pub enum TaskPhase {
        /// An attempt was ordered and not reported yet.
        InFlight = "inFlight",
        /// The last attempt failed; the next one is due later.
        Waiting = "waiting",
    }
}

/// An open task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Id of the task: RUN@SEQ.ORDINAL.
    pub task: String,
    /// Id of its run.
    pub run: String,
    /// What it does, such as `probe`.
    pub name: String,
    /// Name of the machine; null for a rollout's task.
    pub machine: Option<String>,
    /// Number of the present attempt, from 1.
    pub attempt: u64,
    /// Most attempts; 65535 means no limit.
    pub attempts_max: u64,
    /// Whether a worker has it.
    pub phase: OpenEnum<TaskPhase>,
    /// Time at which its step fails unless an attempt succeeds; absent where `attemptsMax` ends it earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Moment>,
    /// Time at which the attempt was ordered; null between attempts.
    pub since: Option<Moment>,
    /// Seconds since then, by the server's clock.
    pub since_seconds: Option<u64>,
    /// Time at which the attempt is given up, or the next one is due.
    pub until: Moment,
    /// Why the last attempt failed.
    pub failure: Option<TaskFailure>,
    /// Why the attempt before the present one failed, while the present one runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<TaskFailure>,
    /// Latest heartbeat of the worker, if this process has received one.
    pub heartbeat: Option<Heartbeat>,
}

impl Task {
    /// Failure of its newest attempt that has ended. It is known until an attempt succeeds.
    pub fn newest_failure(&self) -> Option<&TaskFailure> {
        self.failure.as_ref().or(self.last_failure.as_ref())
    }

    /// The most attempts, where there is a limit.
    pub fn limit(&self) -> Option<u64> {
        Some(self.attempts_max).filter(|max| *max < u64::from(u16::MAX))
    }

    /// `SEQ.ORDINAL`: the id within the run.
    pub fn id_in_run(&self) -> &str {
        self.task.rsplit_once('@').map_or(&self.task, |(_, id)| id)
    }
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskFailure {
    /// Stable code, such as `AuthRejected`.
    pub code: String,
    /// What went wrong, in a sentence.
    pub message: String,
    /// End of the log of the service at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// Last heartbeat of an attempt.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// Name of the worker.
    pub worker: String,
    /// Current step.
    pub step: String,
    /// Amount done.
    pub done: u64,
    /// Total amount; 0 means unknown.
    pub of: u64,
    /// Unit of both, such as bytes.
    pub unit: String,
}

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

impl Heartbeat {
    /// `3 of 9 files`, or `30 of 200 MiB`, if the amount is known.
    pub fn amount(&self) -> Option<String> {
        let Self { done, of, unit, .. } = self;
        if unit == "bytes" && *of >= MIB {
            let rounded = |bytes: u64| (bytes + MIB / 2) / MIB;
            return Some(format!("{} of {} MiB", rounded(*done), rounded(*of)));
        }
        (*of > 0).then(|| format!("{done} of {of} {unit}").trim_end().to_owned())
    }
}

/// A remote command of a task, without secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteCommand {
    /// Id of the task: RUN@SEQ.ORDINAL.
    pub task: String,
    /// Number of the attempt, from 1.
    pub attempt: u64,
    /// Name of the worker.
    pub worker: String,
    /// Its number within the attempt, from 1.
    pub number: u64,
    /// Name of the operation.
    pub name: String,
    pub line: String,
    /// Start.
    pub at: Moment,
    /// Milliseconds that it took.
    pub took_ms: u64,
    /// How it ended; empty while it runs.
    pub ended: String,
    /// Beginning of its output.
    pub head: String,
    /// Bytes of output left out between head and tail.
    pub left_out_bytes: u64,
    /// End of its output.
    pub tail: String,
}

/// Message that no engine could read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeadLetter {
    /// Its number.
    pub id: u64,
    /// The run that it was for; null where that cannot be read.
    pub run: Option<String>,
    /// Reason for which it could not be read.
    pub reason: String,
    /// Time at which it was dead-lettered.
    pub at: Moment,
    /// Who sent it.
    pub origin: String,
    /// Its size.
    pub bytes: u64,
    /// Content, as far as the server can read it; only for a request by id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// List, as every list endpoint answers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct List<T> {
    pub items: Vec<T>,
}
