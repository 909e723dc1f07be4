//! Ports of the engine: the interfaces to its environment, each with a contract that one conformance suite checks.
//!
//! Bytes cross the ports, not decoded messages. Only the shard decodes messages and records, so an adapter can
//! neither misread nor rewrite them. All ports take batches, so that one sync to disk serves many runs.

use dormer_engine_core::unfenced::{Fence, enforced};
use dormer_nats::history_keys::HistoryKeys;
use dormer_proto::{
    id::{Attempt, Incarnation, Revision, RunId, Seq, TaskId, Timestamp},
    message::ReportReceipt,
};
use std::future::Future;

/// Why a store gave no answer, by what its caller must do: try again, or stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It does not answer now. Try again later.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// It has lost acknowledged records, or is damaged. The engine stops and logs the reason.
    #[error("the store cannot be trusted: {0}")]
    Broken(String),
}

/// Error of an append. The variants are the cases that the shard treats differently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The run has another last revision: another engine was first, or this one was and never got the answer.
    #[error("the run has moved on")]
    Conflict,
    /// No answer. The record may or may not be stored.
    #[error("no answer to the append: {0}")]
    Unknown(String),
    /// The store will never accept the record (too large). The run stays unchanged.
    #[error("the store refuses the record: {0}")]
    Refused(String),
}

/// Last record of a run, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Envelope of the record.
    pub bytes: Vec<u8>,
    /// Revision of the record.
    pub revision: Revision,
}

/// Precondition of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The run has no record.
    Nothing,
    /// The run's last record has this revision.
    At(Revision),
    /// No precondition. Only test builds without the fence use it.
    #[cfg(feature = "unfenced")]
    Anything,
}

/// Record to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Run of the record.
    pub run: RunId,
    /// Precondition.
    pub expected: Expected,
    /// Envelope of the record.
    pub bytes: Vec<u8>,
    /// Seq of the record, for readers that do not open the envelope.
    pub seq: Seq,
    /// Earliest deadline of the run, for the sweep.
    pub deadline: Option<Timestamp>,
    /// End of the run, if it has ended, for the deletion after 30 days.
    pub closed: Option<Timestamp>,
    /// Whether at most the alarm is outstanding. Carrying out outstanding work then need not open the record.
    pub quiet: bool,
}

/// History: the records of every run, the only source of truth.
///
/// # Contract
/// - `append` succeeds for at most one writer per expected revision. The others get [`AppendError::Conflict`].
/// - A `load` that starts after a successful append sees it, from any process (it asks the store's leader).
/// - Answers come in the order of the requests, one for each.
/// - An acknowledged append survives what the adapter's setting promises (SIGKILL; power loss when synced).
/// - A batch holds at most one record per run; its records are independent: each is stored or refused by itself.
pub trait History: Send + Sync + 'static {
    /// Identity of the store.
    fn incarnation(&self) -> Incarnation;
    /// Whether only this process can write, so that its memory equals the stored state.
    fn exclusive(&self) -> bool;
    /// Error for a read that contradicts an earlier answer to this process: the store has lost records, or the answer
    /// is an old one.
    fn contradiction(&self, what: String) -> StoreError {
        StoreError::Broken(what)
    }
    /// Loads the last record of each run.
    fn load(
        &self,
        runs: &[RunId],
    ) -> impl Future<Output = Result<Vec<Option<Stored>>, StoreError>> + Send;
    /// Appends each record if its precondition holds.
    fn append(
        &self,
        batch: Vec<Append>,
    ) -> impl Future<Output = Vec<Result<Revision, AppendError>>> + Send;
}

/// Head of a run: the data that is readable without opening its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub run: RunId,
    /// Revision of its last record.
    pub revision: Revision,
    /// Seq of its last record.
    pub seq: Seq,
    /// Earliest deadline.
    pub deadline: Option<Timestamp>,
    /// End of the run.
    pub closed: Option<Timestamp>,
    /// Whether at most the alarm is outstanding. `false` if unknown.
    pub quiet: bool,
}

/// History for readers: the sweep, people, `dump`.
///
/// # Contract
/// - `records` returns stored records of `run` with seq ≥ `from`, ascending, at most `limit`.
/// - `heads` pages through every run in a fixed order. A run that exists throughout occurs exactly once.
/// - `heads_to_sweep` does the same with the runs that this process sweeps. Of several processes one sweeps a run, within a
///   few seconds also after one of them died. For a moment two may.
/// - `forget` deletes every record of a run if its revision is still the given one.
pub trait HistoryReader: Send + Sync + 'static {
    /// Envelopes of one run's records.
    fn records(
        &self,
        run: &RunId,
        from: Seq,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Vec<u8>>, StoreError>> + Send;
    /// Heads of runs after `after`.
    fn heads(
        &self,
        after: Option<&RunId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Head>, StoreError>> + Send;
    /// Heads of runs after `after` that this process sweeps.
    fn heads_to_sweep(
        &self,
        after: Option<&RunId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Head>, StoreError>> + Send {
        self.heads(after, limit)
    }
    /// Deletes a closed run.
    fn forget(
        &self,
        run: &RunId,
        revision: Revision,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Delivered message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Envelope of the message.
    pub bytes: Vec<u8>,
    /// Token with which it is acknowledged.
    pub token: u64,
    /// Name in records, for people and trace links.
    pub cause: String,
    /// How often it was delivered, this time included.
    pub deliveries: u32,
}

/// Acknowledgement of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// Done: forget the message.
    Done,
    /// Deliver it again after this many milliseconds.
    Again(u64),
    /// The same, and to an engine of another build if one reads this inbox: this build cannot read the message or its
    /// run.
    Newer(u64),
}

/// Inbox: messages to runs.
///
/// # Contract
/// - A message is delivered at least once, unless the adapter's rebuildable store is lost. It is redelivered until it
///   is acknowledged as done. Neither order nor once is promised.
/// - A message may replace an earlier one with the same [`Address`](dormer_proto::address::Address), also if that one is
///   newer: its sender repeats it.
/// - `take` waits for at least one message, and returns at most `max`.
pub trait Inbox: Send + Sync + 'static {
    /// Most messages that are delivered and not acknowledged, so that a shard has room for all of them. `None`: as many as
    /// are taken.
    fn held_max(&self) -> Option<usize> {
        None
    }
    /// Takes waiting messages.
    fn take(&self, max: usize) -> impl Future<Output = Result<Vec<Delivery>, StoreError>> + Send;
    /// Puts messages, each with its run.
    fn put(
        &self,
        messages: Vec<(RunId, Vec<u8>)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
    /// Puts messages without waiting for the store's acknowledgement. It is for senders that repeat each message
    /// until its receipt, as workers do; a lost message is repeated.
    fn put_unconfirmed(
        &self,
        messages: Vec<(RunId, Vec<u8>)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.put(messages)
    }
    /// Acknowledges deliveries by their tokens. A loss is harmless: the message comes again.
    fn acknowledge(&self, acks: Vec<(u64, Ack)>) -> impl Future<Output = ()> + Send;
}

/// Order to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderOut {
    pub task: TaskId,
    /// Attempt. Task and attempt identify the order.
    pub attempt: Attempt,
    /// Name of the queue.
    pub class: &'static str,
    /// Envelope of the order.
    pub bytes: Vec<u8>,
}

impl OrderOut {
    /// Attempt whose order this one supersedes.
    #[must_use]
    pub fn superseded(&self) -> Option<Attempt> {
        (self.attempt.0 > 1).then(|| Attempt(self.attempt.0 - 1))
    }
}

/// Task that ended without a report: its orders have no reader.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedTask {
    pub task: TaskId,
    /// Name of the queue.
    pub class: &'static str,
}

/// Task queue: orders to workers.
///
/// # Contract
/// - An order stays until its worker acknowledges it after the report's receipt. An expired claim is redelivered.
/// - Publishing the same task and attempt again while the first order exists creates no second order.
/// - Publishing an attempt takes away the order of the attempt before it if no worker has taken it. After a failure it may
///   stay: its report is late.
/// - `withdraw` takes away every order of these tasks that no worker has taken. After a failure, or when the engine stops
///   between its append and this call, one stays until a worker takes it: its report is late.
/// - Receipts may be lost: workers repeat reports until one comes.
pub trait TaskQueue: Send + Sync + 'static {
    /// Publishes orders.
    ///
    /// # Errors
    /// Errors of the store. Any of the orders may be published then.
    fn publish(&self, orders: Vec<OrderOut>)
    -> impl Future<Output = Result<(), StoreError>> + Send;
    /// Takes away the orders of ended tasks.
    fn withdraw(&self, ended: Vec<EndedTask>) -> impl Future<Output = ()> + Send;
    /// Sends receipts of reports to workers.
    fn receipt(&self, receipts: Vec<ReportReceipt>) -> impl Future<Output = ()> + Send;
}

/// Alarms: one per run, for its earliest deadline. It fires as a message in the inbox.
///
/// # Contract
/// - It fires at its time or soon after. It may fire early or twice. It never fires if its store is lost.
/// - Of two times the earlier one stays ([`earlier`]), whichever process sets the later one. So a reader of an older
///   record, or an engine that was slow, postpones nothing.
/// - Clearing removes what the same process set last, and may fail to do so: the alarm then fires without effect.
pub trait Alarms: Send + Sync + 'static {
    /// Sets or clears alarms.
    fn set(
        &self,
        alarms: Vec<(RunId, Option<Timestamp>)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Time that stays if an alarm is set to `set` and `at` is requested.
#[must_use]
pub fn earlier(set: Option<Timestamp>, at: Timestamp) -> Timestamp {
    set.filter(|_| enforced(Fence::EarlierAlarm))
        .map_or(at, |set| set.min(at))
}

/// Dead letter: a message that cannot be processed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DeadLetter {
    /// Id that the store assigns; 0 until it is stored.
    pub id: u64,
    /// Run that it was for, if that is readable.
    pub run: Option<RunId>,
    pub reason: String,
    /// Time at which it was dead-lettered, by the engine's clock.
    pub at: Timestamp,
    /// Origin: the inbox's name of the message.
    pub origin: String,
    /// Envelope of the message.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// Dead letters: messages that no build could read.
///
/// # Contract
/// A dead letter stays until it is removed. `list` returns them ascending by id.
pub trait DeadLetters: Send + Sync + 'static {
    /// Adds one.
    fn put(&self, message: DeadLetter) -> impl Future<Output = Result<(), StoreError>> + Send;
    /// Dead letters after `after`, at most `limit`.
    fn list(
        &self,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<DeadLetter>, StoreError>> + Send;
    /// Removes one. Requeueing first puts its bytes into the inbox.
    fn remove(&self, id: u64) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Record that a store acknowledged, and did not have when it was read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MissedRecord {
    pub revision: Revision,
    pub seq: Seq,
}

/// Note about a quarantined run: one that engines leave alone, because its next record can be neither decided nor
/// stored, or its last one cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QuarantineNote {
    pub run: RunId,
    /// Stable code in `PascalCase`.
    pub code: String,
    /// Cause, in a sentence.
    pub why: String,
    /// Time of the note.
    pub at: Timestamp,
    /// Builds that failed with the run, oldest first. Another build tries once by itself.
    #[serde(default)]
    pub builds: Vec<String>,
    /// Time of the release. An engine removes a released note once what was outstanding has been carried out again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<Timestamp>,
    /// Last record of a run that is only in doubt. Engines do not leave it alone yet, and report nothing: the answer may
    /// have been a deposed leader's. The note is for an engine that begins meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<MissedRecord>,
    /// Version of the note, which the store assigns. In a note for `put`: that of the note that it replaces, or 0.
    #[serde(default)]
    pub version: u64,
}

/// Error of a `put` over a note that another engine has written or removed meanwhile.
#[must_use]
pub fn note_has_changed(run: &RunId) -> StoreError {
    StoreError::Unavailable(format!("the note of {run} has changed meanwhile"))
}

impl QuarantineNote {
    /// Whether an engine of `build` leaves the run alone.
    #[must_use]
    pub fn holds(&self, build: &str) -> bool {
        self.released.is_none()
            && self.missed.is_none()
            && self.builds.iter().any(|tried| tried == build)
    }
}

/// Quarantine: notes about runs that engines leave alone. A note lies beside the history and changes none of it.
///
/// # Contract
/// - A run has at most one note. `put` replaces the one of the given version, or writes the first one (version 0). A note
///   that another engine wrote meanwhile stays, and `put` returns [`StoreError::Unavailable`].
/// - What this build cannot read counts as no note.
/// - A `notes_of` that starts after a successful `put` sees it, from any process.
/// - `remove` removes a note if its version is still the given one.
pub trait Quarantine: Send + Sync + 'static {
    /// Writes a note. Returns its new version.
    fn put(&self, note: QuarantineNote) -> impl Future<Output = Result<u64, StoreError>> + Send;
    /// Notes of these runs, one answer for each.
    fn notes_of(
        &self,
        runs: &[RunId],
    ) -> impl Future<Output = Result<Vec<Option<QuarantineNote>>, StoreError>> + Send;
    /// Every note, ordered by run.
    fn notes(&self) -> impl Future<Output = Result<Vec<QuarantineNote>, StoreError>> + Send;
    /// Removes a note.
    fn remove(
        &self,
        run: &RunId,
        version: u64,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Source of time of an engine. Decisions never read it: a record carries the time at which it was decided.
pub trait Clock: Send + Sync + 'static {
    /// Present time.
    fn now(&self) -> Timestamp;

    /// Real time in which `ms` milliseconds of this clock pass. It is shorter for a clock that runs faster than real
    /// time (in a simulated world).
    fn wait(&self, ms: u64) -> std::time::Duration {
        std::time::Duration::from_millis(ms)
    }
}

/// Clock of this host, in milliseconds since 1970. It may jump when the host's time is set.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp(since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// All ports as one type parameter.
pub trait Ports: Send + Sync + 'static {
    type History: History;
    type Reader: HistoryReader;
    type Inbox: Inbox;
    type Tasks: TaskQueue;
    type Alarms: Alarms;
    type Dead: DeadLetters;
    type Quarantine: Quarantine;
    type Clock: Clock;
    fn history(&self) -> &Self::History;
    /// The history, for readers.
    fn reader(&self) -> &Self::Reader;
    fn inbox(&self) -> &Self::Inbox;
    /// The task queue.
    fn tasks(&self) -> &Self::Tasks;
    fn alarms(&self) -> &Self::Alarms;
    /// The dead letters.
    fn dead(&self) -> &Self::Dead;
    fn quarantine(&self) -> &Self::Quarantine;
    fn clock(&self) -> &Self::Clock;
    /// Keys of the history. `None`: records have no MACs, and none is asked for.
    fn history_keys(&self) -> Option<&HistoryKeys> {
        None
    }
}
