//! Messages of the engine: orders, reports, inbox messages, and answers.

use crate::{
    code,
    envelope::Message,
    id::{Attempt, Epoch, Incarnation, RunId, Seq, SignalId, Sum, TaskId, Timestamp},
};
use serde::{Deserialize, Serialize};

/// Longest stored failure message or reason, in bytes. Longer ones are cut at a character boundary.
pub const REASON_BYTES_MAX: usize = 2_048;

/// Order: a task for a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskOrder<T> {
    pub task: TaskId,
    /// Which issue of it.
    pub attempt: Attempt,
    /// Store that issued it.
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

/// Names for people: the first `max` of them, and the count of the others (`a, b and 2 more`).
#[must_use]
pub fn listed<T: AsRef<str>>(names: &[T], max: usize) -> String {
    let shown: Vec<&str> = names.iter().take(max).map(AsRef::as_ref).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(max) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Filler words of a message: [`cause`] skips them when it compares.
const FILLERS: &[&str] = &["a", "an", "are", "been", "has", "is", "the", "was"];

/// Cause of a failure for people: the words first, then what was being done (`converging the host`), the code last.
///
/// Stored codes of the host program are words (`access_denied`) and lead its messages, which are often only Windows's own
/// text; a message that begins with the same words stands alone. Codes in `PascalCase` have a message that says all. Each
/// is shown as [`code::shown`] writes it.
#[must_use]
pub fn cause(code: &str, doing: Option<&str>, message: &str) -> String {
    // Windows ends its own sentence before dormer's advice.
    let message = message.trim_end_matches('.').replace(".; ", "; ");
    let message = message.as_str();
    let are_words = code.contains('_') || code.chars().all(char::is_lowercase);
    let lead = if are_words && !repeats(code, message) {
        code::words(code)
    } else {
        String::new()
    };
    let code = code::shown(code);
    match (lead.as_str(), message, doing) {
        ("", "", None) => code,
        ("", "", Some(doing)) => format!("{code}, while {doing}"),
        ("", message, None) => format!("{message} ({code})"),
        // Behind a sentence of advice the step alone would be a part of it.
        ("", message, Some(doing)) => format!("{message} ({code}, while {doing})"),
        (lead, "", None) => format!("{lead} ({code})"),
        (lead, "", Some(doing)) => format!("{lead} while {doing} ({code})"),
        (lead, message, None) => format!("{lead}: {message} ({code})"),
        (lead, message, Some(doing)) => format!("{lead} while {doing}: {message} ({code})"),
    }
}

/// Whether the message begins with the code's words: `AccessDenied`, "Access is denied".
#[must_use]
pub fn repeats(code: &str, message: &str) -> bool {
    let mut said = message
        .split(|it: char| !it.is_alphanumeric())
        .map(str::to_lowercase)
        .filter(|word| !word.is_empty() && !FILLERS.contains(&word.as_str()));
    let words = code::words(code);
    let mut words = words.split(' ').filter(|word| !FILLERS.contains(word));
    words.all(|word| said.next().is_some_and(|it| it == word))
}

/// Failure of an attempt, with a message that a person can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable code in `PascalCase`: `AuthRejected`, `DiskFull`. It is never parsed from text.
    pub code: String,
    /// One sentence for people. At most [`REASON_BYTES_MAX`] bytes.
    pub message: String,
    /// Whether another attempt may help. `false` ends the task at once.
    pub retry: bool,
    /// Delay that the worker requests, in milliseconds. The policy's delay is the lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// Whether the attempt is refunded: it lacked a prerequisite of dormer's own, so neither the attempt nor its time
    /// counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncounted: bool,
    /// End of the log of the service at fault, if the host had one. At most [`REASON_BYTES_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Fingerprint of the host key that the host shows instead of the pinned one: `SHA256:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_key: Option<String>,
}

impl Failure {
    /// Failure that another attempt may overcome.
    pub fn transient(code: impl Into<String>, message: impl Into<String>) -> Self {
        let code = code.into();
        let message = cut(message.into());
        Self {
            code,
            message,
            retry: true,
            after_ms: None,
            uncounted: false,
            log: None,
            shown_key: None,
        }
    }

    /// Failure that no further attempt can overcome.
    pub fn lasting(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            retry: false,
            ..Self::transient(code, message)
        }
    }
}

/// Cuts `text` to [`REASON_BYTES_MAX`] bytes at a character boundary.
#[must_use]
pub fn cut(text: String) -> String {
    cut_to(text, REASON_BYTES_MAX)
}

/// Cuts `text` to `max` bytes at a character boundary.
#[must_use]
pub fn cut_to(mut text: String, max: usize) -> String {
    text.truncate(text.floor_char_boundary(max));
    text
}

/// The end of `text`, of at most [`REASON_BYTES_MAX`] bytes, from a character boundary.
#[must_use]
pub fn cut_start(mut text: String) -> String {
    let from = text.len().saturating_sub(REASON_BYTES_MAX);
    text.drain(..text.ceil_char_boundary(from));
    text
}

/// Report: a worker's answer to one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskReport<O> {
    pub task: TaskId,
    /// Which issue of it.
    pub attempt: Attempt,
    /// Echo of [`TaskOrder::issued`].
    pub issued: Sum,
    /// Who did it; receipts go there.
    pub worker: String,
    /// Role of who did it. A report counts only from the role whose task it was.
    #[serde(default, skip_serializing_if = "Reporter::is_default")]
    pub by: Reporter,
    /// Outcome of the task, or why the attempt failed.
    pub result: Result<O, Failure>,
}

/// Role that carries out a task and reports on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Reporter {
    /// A worker. Older builds had no other.
    #[default]
    Worker,
    /// An approver, which approves certificates.
    Approver,
}

impl Reporter {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Receipt of a report, after which the worker stops repeating it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportReceipt {
    pub task: TaskId,
    /// Which issue of it.
    pub attempt: Attempt,
    /// Who reported.
    pub worker: String,
    pub fate: ReceiptStatus,
}

impl Message for ReportReceipt {
    const KIND: &'static str = "receipt";
}

/// Status of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiptStatus {
    /// It is in the history.
    Taken,
    /// It arrived late or twice, and changed nothing.
    Late,
    /// It belongs to another incarnation or to a lost tail of the store; it was not applied.
    Unknown,
}

/// Heartbeat of an attempt: extends the claim, and carries progress for people. It is no input of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
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
    /// Prerequisite of dormer's own that this attempt and others wait for: one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

impl Message for Heartbeat {
    const KIND: &'static str = "heartbeat";
}

/// Remote command of an attempt, for people. It is no input of a run, and never contains a secret. It is sent like
/// heartbeats, of which some may be lost. A reader that does not know it ignores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteCommand {
    pub task: TaskId,
    /// Its attempt of that task.
    pub attempt: Attempt,
    /// Who ran it.
    pub worker: String,
    /// Which of the attempt's commands, from 1.
    pub number: u32,
    /// Purpose: `probe`, `apply host`.
    pub name: String,
    /// Its command line, without what may hold secrets.
    pub line: String,
    /// When it began, by the worker's clock.
    pub at: Timestamp,
    /// How long it took.
    pub took_ms: u64,
    /// Result: `exit 0`, `cut off`, or an error. Empty: it is running, and its end is sent under the same number.
    pub ended: String,
    /// Beginning of the output.
    pub head: String,
    /// Bytes left out between the beginning and the end.
    pub left_out: u64,
    /// End of the output; empty if the beginning is complete.
    pub tail: String,
}

impl Message for RemoteCommand {
    const KIND: &'static str = "remote-command";
}

/// Values for rendering nodes, without secrets. A worker publishes what it reads of the cluster, for consoles, which may not
/// read that. It is no input of a run. It is sent like heartbeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSettings {
    /// The API server's URL as nodes reach it.
    pub api_url: String,
    /// Address of the cluster's DNS service.
    pub cluster_dns: String,
    /// The cluster's domain: `cluster.local`.
    pub cluster_domain: String,
    /// Network of the services: `172.30.0.0/16`.
    pub service_cidr: String,
    /// Whether the nodes' exporters have a certificate.
    pub exporter: bool,
    /// Settings of the cluster for its nodes, as JSON.
    pub cluster: String,
}

impl Message for NodeSettings {
    const KIND: &'static str = "node-settings";
}

/// Object of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Which cluster; empty is the one that dormer runs for.
    #[serde(default)]
    pub cluster: String,
    /// Its kind: `Machine`, `Node`, `CertificateSigningRequest`.
    pub kind: String,
    pub uid: String,
}

/// Version of an observation. Within an epoch the larger resourceVersion wins; across epochs the larger epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Version {
    /// Epoch, allocated from the store before the list that this observation follows.
    pub epoch: Epoch,
    /// The object's resourceVersion; for an object that is gone, the list's.
    pub resource: u64,
}

/// Observation of an object. It is level-triggered: it carries the present state, not what happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation<F> {
    pub object: ObjectRef,
    pub version: Version,
    /// Fact. `None`: the object is gone.
    pub fact: Option<F>,
    /// Whether it may start a run: the object is in the watcher's present view.
    pub may_start: bool,
}

/// Request of a person, or of a program in a person's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request<S> {
    /// Id chosen by the requester. A repeat with the same id is confirmed, not executed again.
    pub id: String,
    /// Name of the requester.
    pub who: String,
    /// Reason in their words. At most [`REASON_BYTES_MAX`] bytes.
    pub why: String,
    /// Precondition: the seq at which the present state was entered; 0: any state.
    pub against: Seq,
    /// Requested action.
    pub ask: Ask<S>,
}

/// Action of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Ask<S> {
    /// A signal to the workflow.
    Signal(S),
    /// Reset to the record `to`, and continue from there.
    Reset {
        /// A record that is still stored.
        to: Seq,
    },
}

/// Signal from one run to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Signalled<S> {
    /// The sender.
    pub from: RunId,
    pub id: SignalId,
    /// Checksum of the record that sent it; the answer echoes it.
    pub issued: Sum,
    /// Content.
    pub signal: S,
}

/// Answer of the receiver to a signal's sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalAnswer {
    /// The receiver, whose answer this is.
    pub from: RunId,
    pub id: SignalId,
    /// Echo of [`Signalled::issued`].
    pub issued: Sum,
    /// `None`: a receipt; the signal is in the receiver's history. `Some`: refused, with the reason.
    pub refused: Option<Refusal>,
    /// Highest signal that the receiver accepted from this sender, if it did not take this one: its id was used before,
    /// by a record that the sender lost. Absent otherwise. A build that does not know it takes the answer as a receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<SignalId>,
}

/// Reason for which a signal was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The run does not exist (any more).
    Unknown,
    /// The run has ended.
    Closed,
}

/// Content of an inbox message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Inbound<F, O, S> {
    /// A fact about the world.
    Observed(Observation<F>),
    /// A worker's report.
    Reported(TaskReport<O>),
    /// An alarm: a deadline of the run may be due. It may come early, twice or never.
    #[serde(rename = "Rang")]
    TimerDue,
    /// Another run's signal.
    Signalled(Signalled<S>),
    /// The answer to a signal of this run.
    Answered(SignalAnswer),
    /// A person's request.
    Requested(Request<S>),
}

/// Inbox message. Neither order nor uniqueness is promised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InboxMessage<F, O, S> {
    pub run: RunId,
    /// Store that it belongs to. `None`: it does not depend on one (a person's request).
    pub incarnation: Option<Incarnation>,
    /// Content.
    pub body: Inbound<F, O, S>,
}

impl<F, O, S> Message for InboxMessage<F, O, S> {
    const KIND: &'static str = "letter";
}

/// Signal type of senders without signals, such as workers: it has no value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoSignal {}

#[cfg(test)]
mod tests {
    use super::{cause, listed};

    #[test]
    fn of_many_names_the_first_ones_are_listed_and_the_others_counted() {
        let all = ["a", "b", "c", "d", "e"];
        assert_eq!(listed(&all[..0], 3), "");
        assert_eq!(listed(&all[..3], 3), "a, b, c");
        assert_eq!(listed(&all, 3), "a, b, c and 2 more");
    }

    #[test]
    fn a_cause_leads_with_its_words_and_says_them_once() {
        let doing = Some("converging the host");
        for (code, doing, message, expected) in [
            (
                "access_denied",
                doing,
                "No right.",
                "access denied while converging the host: No right (AccessDenied)",
            ),
            (
                "access_denied",
                None,
                "Access is denied.",
                "Access is denied (AccessDenied)",
            ),
            (
                "access_denied",
                doing,
                "Access is denied.",
                "Access is denied (AccessDenied, while converging the host)",
            ),
            (
                "access_denied",
                doing,
                "Access denied (5) while opening C:\\k. The user must be an administrator.",
                "Access denied (5) while opening C:\\k. The user must be an administrator (AccessDenied, while converging the host)",
            ),
            (
                "ProgramBlockedByAppLocker",
                Some("probing"),
                "This program is blocked by group policy. For more information, contact your system administrator.; \
                 AppLocker blocks it (1260): allow its hash.",
                "This program is blocked by group policy. For more information, contact your system administrator; \
                 AppLocker blocks it (1260): allow its hash (ProgramBlockedByAppLocker, while probing)",
            ),
            ("disk_full", None, "", "disk full (DiskFull)"),
            (
                "disk_full",
                doing,
                "",
                "disk full while converging the host (DiskFull)",
            ),
            (
                "ConnectRefused",
                Some("probing"),
                "10.0.0.9 refuses port 22",
                "10.0.0.9 refuses port 22 (ConnectRefused, while probing)",
            ),
            ("NoAnswer", None, "", "NoAnswer"),
            ("NoAnswer", Some("probing"), "", "NoAnswer, while probing"),
        ] {
            assert_eq!(cause(code, doing, message), expected);
        }
    }
}
