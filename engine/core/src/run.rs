//! A run: a workflow's state, and the engine's book-keeping around it.

use crate::{retry::RetryPolicy, workflow::Workflow};
use dormer_proto::{
    id::{Attempt, Incarnation, RunId, Seq, SignalId, Sum, TaskId, Timestamp},
    message::{Failure, InboxMessage, ObjectRef, Signalled, TaskOrder, Version},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Tasks under way at once in one run. One more is exhausted at once, as `TooManyTasks`.
pub const TASKS_MAX: usize = 64;
/// Signals waiting for receipts in one run. While it is full the run takes nothing but answers.
pub const OUTBOX_MAX: usize = 1_024;
/// Objects whose version a run remembers; objects that are gone make room first.
pub const FACTS_MAX: usize = 1_024;
/// Request ids that a run remembers, so that a repeat is confirmed rather than repeated.
pub const REQUESTS_MAX: usize = 16;
/// Episodes that a run remembers.
pub const EPISODES_MAX: usize = 16;

/// A task within its run: the record that asked, and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskKey {
    /// The record.
    pub seq: Seq,
    /// The place.
    pub ordinal: u16,
}

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TaskPhase {
    /// Ordered and not answered.
    InFlight {
        /// When.
        at: Timestamp,
        /// Checksum of the record that issued the attempt; `None`: the run's last record did.
        issued: Option<Sum>,
    },
    /// The last attempt failed; the next one is due later.
    Waiting {
        /// When.
        until: Timestamp,
        /// Why it failed.
        failure: Failure,
    },
}

/// A task asked for and not yet finished or exhausted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct OpenTask<W: Workflow> {
    /// Which.
    pub key: TaskKey,
    /// What.
    pub body: W::Task,
    /// How often and for how long.
    pub policy: RetryPolicy,
    /// When the first attempt was issued.
    pub first_at: Timestamp,
    /// The present attempt.
    pub attempt: Attempt,
    /// The episode that it belongs to.
    #[serde(default)]
    pub episode: Seq,
    /// Where it stands.
    pub phase: TaskPhase,
}

impl<W: Workflow> OpenTask<W> {
    /// When something has to happen to it, if nothing else does.
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

    /// When it is exhausted, come what may.
    #[must_use]
    pub fn overall(&self) -> Timestamp {
        self.first_at.plus_ms(self.policy.overall_ms_max)
    }

    /// Gives the attempt back that ends at `at`, with the time it took and the delay after it: the policy grows by
    /// them. Its number stays, since it fences.
    pub(crate) fn give_back(&mut self, at: Timestamp, delay_ms: u64) {
        let TaskPhase::InFlight { at: issued, .. } = &self.phase else {
            return;
        };
        let ms = at.since_ms(*issued).saturating_add(delay_ms);
        self.policy.attempts_max = self.policy.attempts_max.saturating_add(1);
        self.policy.overall_ms_max = self.policy.overall_ms_max.saturating_add(ms);
    }
}

/// A signal that has no receipt yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Outgoing<W: Workflow> {
    /// To whom.
    pub to: RunId,
    /// Which.
    pub id: SignalId,
    /// Checksum of the record that sent it; `None`: the run's last record did.
    pub issued: Option<Sum>,
    /// What it says.
    pub signal: W::Signal,
}

/// When a state was entered, and at which record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Entered {
    /// The record: requests name it, to say which state they were made against.
    pub seq: Seq,
    /// The time.
    pub at: Timestamp,
}

/// What is remembered of an observed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactMark {
    /// How new.
    pub version: Version,
    /// Hash of the fact; 0: gone.
    pub digest: u64,
}

/// A stretch of a run's life, for people: a bring-up, an upgrade, a removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Episode {
    /// What kind.
    pub kind: String,
    /// The record at which it began: its identity within the run.
    pub seq: Seq,
    /// When.
    pub from: Timestamp,
    /// When it ended; `None`: it goes on.
    pub to: Option<Timestamp>,
    /// How; empty while it goes on.
    #[serde(default)]
    pub result: String,
}

/// One durable instance of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Run<W: Workflow> {
    /// Its id.
    pub id: RunId,
    /// The seq of its last record.
    pub seq: Seq,
    /// When it began.
    pub began: Timestamp,
    /// The workflow's state.
    pub state: W::State,
    /// When that state was entered.
    pub entered: Entered,
    /// Tasks asked for, oldest first.
    #[serde(default = "Vec::new")]
    pub tasks: Vec<OpenTask<W>>,
    /// What it waits for.
    #[serde(default = "BTreeMap::new")]
    pub timers: BTreeMap<W::Timer, Timestamp>,
    /// Signals without receipt, oldest first.
    #[serde(default = "Vec::new")]
    pub outbox: Vec<Outgoing<W>>,
    /// The highest signal taken from each sender.
    #[serde(default)]
    pub taken: BTreeMap<RunId, SignalId>,
    /// Ids of the last requests taken.
    #[serde(default)]
    pub requests: VecDeque<String>,
    /// What is remembered of each observed object.
    #[serde(default, with = "pairs")]
    pub facts: BTreeMap<ObjectRef, FactMark>,
    /// The last episodes, oldest first.
    #[serde(default)]
    pub episodes: VecDeque<Episode>,
    /// When it ended, if it has.
    #[serde(default)]
    pub closed: Option<Timestamp>,
    /// Checksum of its last record; not part of the record itself.
    #[serde(skip)]
    pub sum: Sum,
}

impl<W: Workflow> Run<W> {
    /// The earliest moment at which something has to happen by itself.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let timers = self.timers.values().copied();
        timers
            .chain(self.tasks.iter().map(OpenTask::deadline))
            .min()
    }

    /// Whether nothing is outstanding but, perhaps, its alarm: no task in flight, no signal without receipt.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let in_flight = |task: &OpenTask<W>| matches!(task.phase, TaskPhase::InFlight { .. });
        self.outbox.is_empty() && !self.tasks.iter().any(in_flight)
    }

    /// The id of one of its tasks.
    #[must_use]
    pub fn task_id(&self, key: TaskKey) -> TaskId {
        TaskId {
            run: self.id.clone(),
            seq: key.seq,
            ordinal: key.ordinal,
        }
    }

    /// The task `key`, if it is still open.
    #[must_use]
    pub fn task(&self, key: TaskKey) -> Option<&OpenTask<W>> {
        self.tasks.iter().find(|task| task.key == key)
    }

    /// The order for a task in flight.
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

    /// The signals that are under way: the oldest to each receiver; the next goes out after its receipt.
    pub fn in_flight(&self) -> impl Iterator<Item = &Outgoing<W>> {
        self.outbox.iter().enumerate().filter_map(|(at, signal)| {
            let first = self.outbox[..at]
                .iter()
                .all(|earlier| earlier.to != signal.to);
            first.then_some(signal)
        })
    }

    /// The message that carries one of its signals.
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

    /// The episode that is going on.
    #[must_use]
    pub fn episode(&self) -> Option<&Episode> {
        self.episodes.back().filter(|episode| episode.to.is_none())
    }

    /// The record that holds this run was stored with checksum `sum`.
    pub fn sealed(&mut self, sum: Sum) {
        self.sum = sum;
    }
}

/// Maps whose keys are structs, as lists of pairs: MessagePack readers in other languages want text keys.
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
