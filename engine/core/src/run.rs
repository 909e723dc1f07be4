//! Run: a workflow's state, and the engine's bookkeeping around it.

use crate::{retry::RetryPolicy, workflow::Workflow};
use dormer_proto::{
    id::{Attempt, Incarnation, RunId, Seq, SignalId, Sum, TaskId, Timestamp},
    message::{Failure, InboxMessage, ObjectRef, Signalled, TaskOrder, Version},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Most open tasks of one run. A further one is exhausted at once, as `TooManyTasks`.
pub const TASKS_MAX: usize = 64;
/// Most signals of one run without a receipt. At the limit the run accepts only answers, signals and, up to twice the
/// limit, due timers.
pub const OUTBOX_MAX: usize = 1_024;
/// Most objects whose version a run remembers. Objects that are gone are dropped first.
pub const FACTS_MAX: usize = 1_024;
/// Most bytes of the request ids that a run remembers; the oldest are forgotten first. A repeat with a known id is confirmed,
/// not executed again. It is enough for 89 requests of the command line, and for 17 with the longest ids: more than people
/// send within the ten minutes for which a request is taken after it was sent. A full rollout's record has little more room.
pub const REQUEST_IDS_BYTES_MAX: usize = 3_500;
/// Bytes that an id costs beside its own.
pub(crate) const REQUEST_ID_OVERHEAD: usize = 3;
/// Most episodes that a run remembers.
pub const EPISODES_MAX: usize = 16;

/// Key of a task within its run: the record that ordered it, and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskKey {
    /// Seq of the record.
    pub seq: Seq,
    /// Index in the record.
    pub ordinal: u16,
}

/// What an open task waits for. A task that has ended is no longer in its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TaskPhase {
    /// An attempt is ordered and not reported yet.
    InFlight {
        /// Time of the order.
        at: Timestamp,
        /// Checksum of the record that issued the attempt. `None`: it is the run's last record.
        issued: Option<Sum>,
    },
    /// The last attempt failed; the next one is due later.
    Waiting {
        /// Time of the next attempt.
        until: Timestamp,
        /// Failure of the last attempt.
        failure: Failure,
    },
}

/// Task that is neither finished nor exhausted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct OpenTask<W: Workflow> {
    pub key: TaskKey,
    /// Content of the task.
    pub body: W::Task,
    pub policy: RetryPolicy,
    /// Time of the first order.
    pub first_at: Timestamp,
    /// Present attempt.
    pub attempt: Attempt,
    #[serde(default)]
    pub episode: Seq,
    pub phase: TaskPhase,
    /// Failure of the previous attempt. The task fails with it if its time runs out during the present attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Failure>,
}

impl<W: Workflow> OpenTask<W> {
    /// Deadline: the engine acts on the task then, unless a report arrives first.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        match &self.phase {
            TaskPhase::InFlight { at, .. } => at
                .plus_ms(
                    self.policy
                        .attempt_ms_max
                        .saturating_add(self.policy.queue_ms_max),
                )
                .min(self.overall()),
            TaskPhase::Waiting { until, .. } => *until,
        }
    }

    /// Limit over all attempts: the task is exhausted then, whatever its attempts do.
    #[must_use]
    pub fn overall(&self) -> Timestamp {
        self.first_at.plus_ms(self.policy.overall_ms_max)
    }

    /// Refunds the attempt that ends at `at`: the policy grows by the attempt, its time and the delay after it, so
    /// that it costs nothing. Its number stays, because the number fences.
    pub(crate) fn give_back(&mut self, at: Timestamp, delay_ms: u64) {
        let TaskPhase::InFlight { at: issued, .. } = &self.phase else {
            return;
        };
        let ms = at.since_ms(*issued).saturating_add(delay_ms);
        self.policy.attempts_max = self.policy.attempts_max.saturating_add(1);
        self.policy.overall_ms_max = self.policy.overall_ms_max.saturating_add(ms);
    }
}

/// Signal without a receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Outgoing<W: Workflow> {
    /// Receiver.
    pub to: RunId,
    pub id: SignalId,
    /// Checksum of the record that sent it. `None`: it is the run's last record.
    pub issued: Option<Sum>,
    /// Content of the signal.
    pub signal: W::Signal,
}

/// Highest signal accepted from one sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenSignal {
    /// Record of the sender.
    pub seq: Seq,
    /// Index among that record's signals.
    pub ordinal: u16,
    /// Last 16 bits of that record's checksum: a rollout keeps thousands of these, and few are ever needed. `None`: an
    /// earlier build accepted the signal.
    #[serde(default, rename = "by", skip_serializing_if = "Option::is_none")]
    pub issued: Option<u16>,
}

impl TakenSignal {
    /// Signal `id` of the record with this checksum.
    #[must_use]
    pub fn of(id: SignalId, issued: Option<Sum>) -> Self {
        let SignalId { seq, ordinal } = id;
        let low = |sum: Sum| u16::try_from(sum.0 & u64::from(u16::MAX)).unwrap_or(0);
        Self {
            seq,
            ordinal,
            issued: issued.map(low),
        }
    }

    /// Whether it may be the signal `id` of the record with this checksum.
    #[must_use]
    pub fn is(&self, id: SignalId, issued: Sum) -> bool {
        let other = Self::of(id, Some(issued));
        self.id() == id && (self.issued.is_none() || self.issued == other.issued)
    }

    #[must_use]
    pub fn id(&self) -> SignalId {
        SignalId {
            seq: self.seq,
            ordinal: self.ordinal,
        }
    }
}

/// Time and record at which a state was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Entered {
    /// Seq of the record. Requests name it as their precondition.
    pub seq: Seq,
    /// Time of the record.
    pub at: Timestamp,
}

/// Remembered version of an observed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactMark {
    /// Version of the observation.
    pub version: Version,
    /// Hash of the fact; [`FactMark::GONE`] if the object is gone.
    pub digest: u64,
}

impl FactMark {
    /// Digest of an object that is gone. No fact hashes to it.
    pub const GONE: u64 = 0;

    /// Whether the object is gone.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.digest == Self::GONE
    }
}

/// Episode of a run, for people: a bring-up, an upgrade, a removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Episode {
    pub kind: String,
    /// First record, which identifies it within the run.
    pub seq: Seq,
    /// Start time.
    pub from: Timestamp,
    /// End time. `None`: the episode is open.
    pub to: Option<Timestamp>,
    /// Result; empty while the episode is open.
    #[serde(default)]
    pub result: String,
}

/// Durable instance of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Run<W: Workflow> {
    pub id: RunId,
    /// Seq of its last record.
    pub seq: Seq,
    /// Time of its first record.
    pub began: Timestamp,
    pub state: W::State,
    /// Entry of that state.
    pub entered: Entered,
    /// Open tasks, oldest first.
    #[serde(default = "Vec::new")]
    pub tasks: Vec<OpenTask<W>>,
    /// Running timers with their deadlines.
    #[serde(default = "BTreeMap::new")]
    pub timers: BTreeMap<W::Timer, Timestamp>,
    /// Signals without a receipt, oldest first.
    #[serde(default = "Vec::new")]
    pub outbox: Vec<Outgoing<W>>,
    /// Highest signal accepted from each sender.
    #[serde(default)]
    pub taken: BTreeMap<RunId, TakenSignal>,
    /// Last seq in the ids of its signals, if a receiver made it number them above its own records: that receiver has
    /// signals of records that this run has lost. Otherwise 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub numbered: Seq,
    /// Ids of the last accepted requests, oldest first.
    #[serde(default)]
    pub requests: VecDeque<String>,
    /// Version of each observed object.
    #[serde(default, with = "pairs")]
    pub facts: BTreeMap<ObjectRef, FactMark>,
    /// Last episodes, oldest first.
    #[serde(default)]
    pub episodes: VecDeque<Episode>,
    /// Time of its end, if it has ended.
    #[serde(default)]
    pub closed: Option<Timestamp>,
    /// Checksum of its last record; not part of the record itself.
    #[serde(skip)]
    pub sum: Sum,
}

impl<W: Workflow> Run<W> {
    /// Earliest deadline of all tasks and timers.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let timers = self.timers.values().copied();
        timers
            .chain(self.tasks.iter().map(OpenTask::deadline))
            .min()
    }

    /// Whether nothing but the alarm is outstanding: no task in flight, no signal without a receipt.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let in_flight = |task: &OpenTask<W>| matches!(task.phase, TaskPhase::InFlight { .. });
        self.outbox.is_empty() && !self.tasks.iter().any(in_flight)
    }

    /// Id of one of its tasks.
    #[must_use]
    pub fn task_id(&self, key: TaskKey) -> TaskId {
        TaskId {
            run: self.id.clone(),
            seq: key.seq,
            ordinal: key.ordinal,
        }
    }

    /// Task `key`, if it is still open.
    #[must_use]
    pub fn task(&self, key: TaskKey) -> Option<&OpenTask<W>> {
        self.tasks.iter().find(|task| task.key == key)
    }

    /// Order of a task in flight.
    #[must_use]
    pub fn order(&self, key: TaskKey, incarnation: Incarnation) -> Option<TaskOrder<W::Task>> {
        let task = self.task(key)?;
        let TaskPhase::InFlight { at, issued } = &task.phase else {
            return None;
        };
        Some(TaskOrder {
            task: self.task_id(key),
            attempt: task.attempt,
            incarnation,
            issued: issued.unwrap_or(self.sum),
            episode: task.episode,
            at: *at,
            limit_ms: task.policy.attempt_ms_max,
            body: task.body.clone(),
        })
    }

    /// Signals in flight: the oldest to each receiver. The next one is sent after its receipt.
    pub fn in_flight(&self) -> impl Iterator<Item = &Outgoing<W>> {
        self.outbox.iter().enumerate().filter_map(|(at, signal)| {
            let first = self.outbox[..at]
                .iter()
                .all(|earlier| earlier.to != signal.to);
            first.then_some(signal)
        })
    }

    /// Message that carries one of its signals.
    #[must_use]
    pub fn message<F, O>(
        &self,
        signal: &Outgoing<W>,
        incarnation: Incarnation,
    ) -> InboxMessage<F, O, W::Signal> {
        InboxMessage {
            run: signal.to.clone(),
            incarnation: Some(incarnation),
            body: dormer_proto::message::Inbound::Signalled(Signalled {
                from: self.id.clone(),
                id: signal.id,
                issued: signal.issued.unwrap_or(self.sum),
                signal: signal.signal.clone(),
            }),
        }
    }

    /// Open episode.
    #[must_use]
    pub fn episode(&self) -> Option<&Episode> {
        self.episodes.back().filter(|episode| episode.to.is_none())
    }

    /// Notes that the record of this run was stored with the checksum `sum`.
    pub fn set_sum(&mut self, sum: Sum) {
        self.sum = sum;
    }
}

fn is_zero(seq: &Seq) -> bool {
    *seq == Seq(0)
}

/// Maps with struct keys as lists of pairs: MessagePack readers in other languages need text keys.
mod pairs {
    use super::{BTreeMap, FactMark, ObjectRef};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<ObjectRef, FactMark>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<ObjectRef, FactMark>, D::Error> {
        Ok(Vec::<(ObjectRef, FactMark)>::deserialize(from)?
            .into_iter()
            .collect())
    }
}
