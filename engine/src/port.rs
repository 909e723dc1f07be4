//! The ports: what the engine needs of the world, each with a contract that one conformance suite checks.
//!
//! Bytes cross the ports, not words: what a message or a record says is the shard's business, so that an adapter can
//! neither misread nor rewrite it. All of them take batches, so that one sync to disk serves many runs.

use dormer_engine_core::unfenced::{Fence, enforced};
use dormer_proto::{
    id::{Attempt, Incarnation, Revision, RunId, Seq, TaskId, Timestamp},
    message::ReportReceipt,
};
use std::future::Future;

/// Why a store did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It may answer later: try again.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// It is behind what it acknowledged, or damaged. The engine stops and says so.
    #[error("the store cannot be trusted: {0}")]
    Broken(String),
}

/// Why a record was not appended; only what the shard treats differently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The run's last revision is another one: somebody else was first (or we were, and never heard).
    #[error("the run has moved on")]
    Conflict,
    /// No answer. The record may or may not be stored.
    #[error("no answer to the append: {0}")]
    Unknown(String),
    /// It will never be stored (too large). The run stays as it was.
    #[error("the store refuses the record: {0}")]
    Refused(String),
}

/// A run's last record, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The record's envelope.
    pub bytes: Vec<u8>,
    /// Its revision.
    pub revision: Revision,
}

/// What an append expects of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// It has no record.
    Nothing,
    /// Its last record has this revision.
    At(Revision),
    /// Anything: the fence is away. Test builds alone.
    #[cfg(feature = "unfenced")]
    Anything,
}

/// One record to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Whose.
    pub run: RunId,
    /// On top of what.
    pub expected: Expected,
    /// The record's envelope.
    pub bytes: Vec<u8>,
    /// The record's seq: for readers that do not open the envelope.
    pub seq: Seq,
    /// The run's earliest deadline: what the sweep looks at.
    pub deadline: Option<Timestamp>,
    /// When the run ended, if it has: what the deletion after 30 days looks at.
    pub closed: Option<Timestamp>,
    /// Nothing is outstanding but, perhaps, its alarm: whoever carries out everything outstanding need not open it.
    pub quiet: bool,
}

/// The only truth: the records of every run.
///
/// # Contract
/// - `append` succeeds for at most one writer per expected revision, and says [`AppendError::Conflict`] to the others.
/// - A `load` that starts after a successful append sees it, whoever appended (it asks the store's leader).
/// - Answers come in the order of the questions, one for each.
/// - An append that was acknowledged survives whatever the adapter's setting promises (SIGKILL; power loss when synced).
/// - A batch holds at most one record per run; its records are independent: each is stored or refused by itself.
pub trait History: Send + Sync + 'static {
    /// Which store this is.
    fn incarnation(&self) -> Incarnation;
    /// Whether this process alone can write it, so that what it has in memory is what is stored.
    fn exclusive(&self) -> bool;
    /// The last record of each run.
    fn load(
        &self,
        runs: &[RunId],
    ) -> impl Future<Output = Result<Vec<Option<Stored>>, StoreError>> + Send;
    /// Appends each record if its expectation holds.
    fn append(
        &self,
        batch: Vec<Append>,
    ) -> impl Future<Output = Vec<Result<Revision, AppendError>>> + Send;
}

/// What is known of a run without opening its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Which run.
    pub run: RunId,
    /// Revision of its last record.
    pub revision: Revision,
    /// Its seq.
    pub seq: Seq,
    /// Its earliest deadline.
    pub deadline: Option<Timestamp>,
    /// When it ended.
    pub closed: Option<Timestamp>,
    /// Nothing is outstanding but, perhaps, its alarm. False where that is not known.
    pub quiet: bool,
}

/// For those who read: the sweep, people, `dump`.
///
/// # Contract
/// - `records` answers kept records of `run` with seq ≥ `from`, ascending, at most `limit`.
/// - `heads` pages through every run in a fixed order; a run that exists throughout is seen exactly once.
/// - `forget` deletes every record of a run if its revision is still the given one.
pub trait HistoryReader: Send + Sync + 'static {
    /// Records of one run.
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
    /// Deletes a closed run.
    fn forget(
        &self,
        run: &RunId,
        revision: Revision,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A message as the inbox delivers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The message's envelope.
    pub bytes: Vec<u8>,
    /// What the adapter needs in order to acknowledge it.
    pub token: u64,
    /// A name for it in records, for people and trace links.
    pub cause: String,
}

/// What becomes of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// Forget it.
    Done,
    /// Deliver it again, not before so many milliseconds.
    Again(u64),
}

/// Messages to runs.
///
/// # Contract
/// - A message that was put is delivered at least once, unless the adapter's rebuildable store is lost; it comes again
///   until it is acknowledged as done. Neither order nor once is promised.
/// - `take` waits until there is at least one, and answers at most `max`.
pub trait Inbox: Send + Sync + 'static {
    /// Takes what has come.
    fn take(&self, max: usize) -> impl Future<Output = Result<Vec<Delivery>, StoreError>> + Send;
    /// Puts messages, each with the run it is for.
    fn put(
        &self,
        messages: Vec<(RunId, Vec<u8>)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
    /// Puts messages without waiting for the store's word: for a sender that repeats each until its receipt comes, as
    /// workers do. One may be lost, and its sender repeats it.
    fn tell(
        &self,
        messages: Vec<(RunId, Vec<u8>)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.put(messages)
    }
    /// Acknowledges deliveries by their tokens. A loss is harmless: the message comes again.
    fn acknowledge(&self, acks: Vec<(u64, Ack)>) -> impl Future<Output = ()> + Send;
}

/// An order on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderOut {
    /// Which task.
    pub task: TaskId,
    /// Which attempt: with the task, the order's identity.
    pub attempt: Attempt,
    /// Which queue.
    pub class: &'static str,
    /// The order's envelope.
    pub bytes: Vec<u8>,
}

/// Orders to workers.
///
/// # Contract
/// - An order stays until its worker says that the report was receipted; a claim that lapses is delivered again.
/// - The same task and attempt published while the first still stands is one order.
/// - Receipts may be lost: workers repeat reports until one comes.
pub trait TaskQueue: Send + Sync + 'static {
    /// Publishes orders.
    fn publish(&self, orders: Vec<OrderOut>)
    -> impl Future<Output = Result<(), StoreError>> + Send;
    /// Tells workers what became of their reports.
    fn receipt(&self, receipts: Vec<ReportReceipt>) -> impl Future<Output = ()> + Send;
}

/// One alarm per run, for its earliest deadline. It rings by a message in the inbox.
///
/// # Contract
/// - It rings at the time that was set or soon after; perhaps early, perhaps twice; never, if its store is lost.
/// - Of two times the earlier stays ([`earlier`]), whoever sets the later one, from whatever process: a reader of an
///   older record, or an engine that was slow, postpones nothing.
/// - Clearing takes away what the same process set last, and may leave even that: it then rings in vain.
pub trait Alarms: Send + Sync + 'static {
    /// Sets or clears alarms.
    fn set(
        &self,
        alarms: Vec<(RunId, Option<Timestamp>)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Of the time that an alarm is set to and another one: the one that stays.
#[must_use]
pub fn earlier(set: Option<Timestamp>, at: Timestamp) -> Timestamp {
    set.filter(|_| enforced(Fence::EarlierAlarm))
        .map_or(at, |set| set.min(at))
}

/// A message that cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DeadLetter {
    /// Its place among the dead letters; the store's, 0 until it is stored.
    pub id: u64,
    /// Whom it was for, if that could be read.
    pub run: Option<RunId>,
    /// Why it is here.
    pub reason: String,
    /// Since when.
    pub at: Timestamp,
    /// Where it came from: the inbox's name for it.
    pub origin: String,
    /// The message's envelope.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// Messages that should have been understood and could not be.
///
/// # Contract
/// A dead letter that was put stays until it is removed; `list` answers ascending by id.
pub trait DeadLetters: Send + Sync + 'static {
    /// Puts one.
    fn put(&self, message: DeadLetter) -> impl Future<Output = Result<(), StoreError>> + Send;
    /// Those after `after`, at most `limit`.
    fn list(
        &self,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<DeadLetter>, StoreError>> + Send;
    /// Removes one; requeueing puts its bytes into the inbox first.
    fn remove(&self, id: u64) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The time of day.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;

    /// How long to wait, on this machine, until `ms` milliseconds of this clock have passed. A clock that runs
    /// faster than life (a simulated world's) says less.
    fn wait(&self, ms: u64) -> std::time::Duration {
        std::time::Duration::from_millis(ms)
    }
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp(since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// The outside world as one type parameter instead of one per port.
pub trait Ports: Send + Sync + 'static {
    /// Its history.
    type History: History;
    /// Its history, for readers.
    type Reader: HistoryReader;
    /// Its inbox.
    type Inbox: Inbox;
    /// Its task queue.
    type Tasks: TaskQueue;
    /// Its alarms.
    type Alarms: Alarms;
    /// Its dead letters.
    type Dead: DeadLetters;
    /// Its clock.
    type Clock: Clock;
    /// The history.
    fn history(&self) -> &Self::History;
    /// The history, for readers.
    fn reader(&self) -> &Self::Reader;
    /// The inbox.
    fn inbox(&self) -> &Self::Inbox;
    /// The task queue.
    fn tasks(&self) -> &Self::Tasks;
    /// The alarms.
    fn alarms(&self) -> &Self::Alarms;
    /// The dead letters.
    fn dead(&self) -> &Self::Dead;
    /// The clock.
    fn clock(&self) -> &Self::Clock;
}
