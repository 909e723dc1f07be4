//! Messages of the engine: orders and reports, what an inbox holds, and the answers.

use crate::{
    envelope::Message,
    id::{Attempt, Epoch, Incarnation, RunId, Seq, SignalId, Sum, TaskId, Timestamp},
};
use serde::{Deserialize, Serialize};

/// Longest failure message or reason kept, in bytes; longer ones are cut at a character.
pub const REASON_BYTES_MAX: usize = 2_048;

/// A task on its way to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskOrder<T> {
    /// Which task.
    pub task: TaskId,
    /// Which issue of it.
    pub attempt: Attempt,
    /// The store that issued it.
    pub incarnation: Incarnation,
    /// Checksum of the record that issued this attempt; the report echoes it.
    pub issued: Sum,
    /// The episode it belongs to: the seq at which the episode began (0: none). Traces derive their ids from it.
    #[serde(default)]
    pub episode: Seq,
    /// When this attempt was issued.
    pub at: Timestamp,
    /// The worker ends the attempt itself after this long, in milliseconds from its start.
    pub limit_ms: u64,
    /// What to do.
    pub body: T,
}

impl<T> Message for TaskOrder<T> {
    const KIND: &'static str = "order";
}

/// Why an attempt failed, in a form that a person can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A stable word, `PascalCase`: `AuthRejected`, `DiskFull`. Never parsed from text.
    pub code: String,
    /// One sentence for people. At most [`REASON_BYTES_MAX`] bytes.
    pub message: String,
    /// Whether another attempt may help. `false` ends the task at once.
    pub retry: bool,
    /// The worker's wish for the next attempt, in milliseconds; the policy's delay is the lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// The attempt is given back: it lacked something of dormer's own, and neither it nor its time counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncounted: bool,
}

impl Failure {
    /// A failure that another attempt may mend.
    pub fn transient(code: impl Into<String>, message: impl Into<String>) -> Self {
        let code = code.into();
        let message = cut(message.into());
        Self {
            code,
            message,
            retry: true,
            after_ms: None,
            uncounted: false,
        }
    }

    /// A failure that no further attempt will mend.
    pub fn lasting(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            retry: false,
            ..Self::transient(code, message)
        }
    }
}

/// Cuts `text` to [`REASON_BYTES_MAX`] bytes at a character boundary.
#[must_use]
pub fn cut(mut text: String) -> String {
    if text.len() > REASON_BYTES_MAX {
        let end = (0..=REASON_BYTES_MAX)
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// A worker's answer to one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskReport<O> {
    /// Which task.
    pub task: TaskId,
    /// Which issue of it.
    pub attempt: Attempt,
    /// Echo of [`TaskOrder::issued`].
    pub issued: Sum,
    /// Who did it; receipts go there.
    pub worker: String,
    /// What came of it.
    pub result: Result<O, Failure>,
}

/// What the engine tells a worker about a report: stop repeating it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportReceipt {
    /// Which task.
    pub task: TaskId,
    /// Which issue of it.
    pub attempt: Attempt,
    /// Who reported.
    pub worker: String,
    /// What the engine made of it.
    pub fate: ReceiptStatus,
}

impl Message for ReportReceipt {
    const KIND: &'static str = "receipt";
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiptStatus {
    /// It is in the history.
    Taken,
    /// It came late or twice; it changed nothing.
    Late,
    /// It belongs to another incarnation or to a lost tail of the store; it was not applied.
    Unknown,
}

/// "This attempt is still alive": extends the claim and carries progress for people. No input, no record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Which task.
    pub task: TaskId,
    /// Which issue of it.
    pub attempt: Attempt,
    /// Who is at it.
    pub worker: String,
    /// The step that it is in, for people.
    pub step: String,
    /// Done so far, in `unit`s.
    pub done: u64,
    /// Of how much; 0 if unknown.
    pub of: u64,
    /// What `done` counts: `bytes`, `items`.
    pub unit: String,
    /// What dormer itself lacks, for which this attempt and all like it wait: one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

impl Message for Heartbeat {
    const KIND: &'static str = "heartbeat";
}

/// A remote command that an attempt ran, for people: no input, no record, and never a secret. It goes the way of
/// heartbeats, where some are missed; a reader that does not know it passes it by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteCommand {
    /// Of which task.
    pub task: TaskId,
    /// Of which issue of it.
    pub attempt: Attempt,
    /// Who ran it.
    pub worker: String,
    /// Which of the attempt's commands, from 1.
    pub number: u32,
    /// What it is for: `probe`, `apply host`.
    pub name: String,
    /// Its command line, without what may hold secrets.
    pub line: String,
    /// When it began, by the worker's clock.
    pub at: Timestamp,
    /// How long it took.
    pub took_ms: u64,
    /// How it ended: `exit 0`, `cut off`, or why it broke. Empty: it runs, and its end is told under the same number.
    pub ended: String,
    /// The beginning of what the host said.
    pub head: String,
    /// Bytes left out between the beginning and the end.
    pub left_out: u64,
    /// The end of what it said; empty where the beginning is all.
    pub tail: String,
}

impl Message for RemoteCommand {
    const KIND: &'static str = "remote-command";
}

/// One object of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Which cluster; empty is the one that dormer runs for.
    #[serde(default)]
    pub cluster: String,
    /// Its kind: `Machine`, `Node`, `CertificateSigningRequest`.
    pub kind: String,
    /// Its UID.
    pub uid: String,
}

/// How new an observation is. Within an epoch the larger resourceVersion wins; across epochs the larger epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Version {
    /// Drawn from our store before the list that this observation follows.
    pub epoch: Epoch,
    /// The object's resourceVersion; for an object that is gone, the list's.
    pub resource: u64,
}

/// A fact about the world. Level-triggered: it says how things are, not what happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation<F> {
    /// Of what.
    pub object: ObjectRef,
    /// How new.
    pub version: Version,
    /// How it is; `None` when the object is gone.
    pub fact: Option<F>,
    /// Whether a run may begin because of it: the object stands in the watcher's present view.
    pub may_start: bool,
}

/// A person's wish, or a program's in a person's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request<S> {
    /// Chosen by the asker; a repeat with the same id is confirmed, not repeated.
    pub id: String,
    /// Who asked.
    pub who: String,
    /// Why, in their words. At most [`REASON_BYTES_MAX`] bytes.
    pub why: String,
    /// The seq at which the state it was made against was entered; 0: whatever the state is.
    pub against: Seq,
    /// What is asked.
    pub ask: Ask<S>,
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Ask<S> {
    /// Something that the workflow understands.
    Signal(S),
    /// Go back to the record `to` and go on from there.
    Reset {
        /// A record that is still kept.
        to: Seq,
    },
}

/// A signal from one run to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Signalled<S> {
    /// The sender.
    pub from: RunId,
    /// Which of its signals.
    pub id: SignalId,
    /// Checksum of the record that sent it; the answer echoes it.
    pub issued: Sum,
    /// What it says.
    pub signal: S,
}

/// The receiver's answer to a signal, addressed to its sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalAnswer {
    /// The receiver, whose answer this is.
    pub from: RunId,
    /// Which signal.
    pub id: SignalId,
    /// Echo of [`Signalled::issued`].
    pub issued: Sum,
    /// `None`: a receipt, the signal is in the receiver's history. `Some`: refused, and why.
    pub refused: Option<Refusal>,
}

/// Why a signal found no taker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// There is no such run (any more).
    Unknown,
    /// The run has ended.
    Closed,
}

/// What an inbox may hold for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Inbound<F, O, S> {
    /// A fact about the world.
    Observed(Observation<F>),
    /// A worker's report.
    Reported(TaskReport<O>),
    /// An alarm: some deadline of the run may be due. Early, twice and never are allowed.
    #[serde(rename = "Rang")]
    TimerDue,
    /// Another run's signal.
    Signalled(Signalled<S>),
    /// The answer to a signal of ours.
    Answered(SignalAnswer),
    /// A person's request.
    Requested(Request<S>),
}

/// A message in the inbox. Neither its order nor its being the only one is promised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InboxMessage<F, O, S> {
    /// Whom it is for.
    pub run: RunId,
    /// The store it belongs to. `None`: it does not depend on one (a person's request).
    pub incarnation: Option<Incarnation>,
    /// What it says.
    pub body: Inbound<F, O, S>,
}

impl<F, O, S> Message for InboxMessage<F, O, S> {
    const KIND: &'static str = "letter";
}

/// The signal type of those who send none, such as workers: no value of it exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoSignal {}
