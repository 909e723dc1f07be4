//! Typed client and worker of one workflow, for a program that has its store in its own process.
//!
//! `engine/examples/order.rs` is a complete workflow in this way. [`serve`] runs the engine, a [`Client`] starts runs, asks
//! and reads, and a [`Worker`] does the tasks. dormer's own roles talk to the same ports with messages of their own, because
//! they also run in processes apart.

use crate::{
    engine::{self, Options},
    local::{Local, LocalInbox, LocalTasks, deliver_due_timers},
    port::{
        DeadLetters, History, HistoryReader, Inbox, OrderOut, Quarantine, StoreError, SystemClock,
    },
    shard::Counters,
};
use dormer_engine_core::{HistoryEvent, Record, Run, Workflow};
use dormer_proto::{
    envelope,
    id::{Attempt, Epoch, Incarnation, RunId, Seq, TaskId},
    message::{
        Ask, Failure, Inbound, InboxMessage, ObjectRef, Observation, REASON_BYTES_MAX, Request,
        TaskOrder, TaskReport, Version,
    },
};
use std::{future::Future, marker::PhantomData, sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet, time::Instant};

/// Time limit until an engine has stored what a client asks.
pub const TAKEN_WITHIN: Duration = Duration::from_secs(5);
/// Pause between two reads of an awaited run.
const READ_EVERY: Duration = Duration::from_millis(5);
/// Most records read at once in search of a request.
const RECORDS_READ: usize = 64;
/// Time after which a report without a receipt is repeated; it doubles with each repeat.
const REPEAT_AFTER: Duration = Duration::from_secs(3);
/// Longest time between two repeats. Each stays in the inbox until an engine reads it.
const REPEAT_AFTER_MAX: Duration = Duration::from_secs(600);
/// Version of the fact with which a run starts: each run has one.
const FIRST: Version = Version {
    epoch: Epoch(1),
    resource: 1,
};

/// Store with all its ports in this process.
pub trait OwnStore: History + HistoryReader + DeadLetters + Quarantine {}
impl<S: History + HistoryReader + DeadLetters + Quarantine> OwnStore for S {}

/// Error of a client's call. Each message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    #[error("there is no run {0}: start it first")]
    NoRun(RunId),
    /// The run has been started before.
    #[error("the run {0} exists: choose another key, or query it")]
    Exists(RunId),
    /// The run has ended, and takes nothing any more.
    #[error("the run {0} has ended: start another one")]
    Ended(RunId),
    /// That record of the run is not stored.
    #[error("record {1} of {0} is not stored: its history has those that are")]
    NoRecord(RunId, Seq),
    /// No engine stored what was asked in time. It may still be stored later.
    #[error(
        "no engine took it for {run} within {limit} s: is one running?",
        limit = TAKEN_WITHIN.as_secs(),
        run = .0
    )]
    NotTaken(RunId),
    /// The workflow starts no run of this id.
    #[error("the workflow starts no run {0}: is it another workflow's?")]
    Foreign(RunId),
    #[error("the reason has more than {REASON_BYTES_MAX} bytes: shorten it")]
    ReasonTooLong,
    /// A record cannot be read: its run, and why.
    #[error("a record of {0} cannot be read ({1}): use the build that wrote it, or a later one")]
    Unreadable(RunId, String),
    /// The message cannot be written: its run, and why.
    #[error("the message to {0} cannot be written ({1}): mend its type's serialization")]
    Unwritable(RunId, String),
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Runs the engine and the timers of `ports` until `stop` is true. Several workflows need a store each.
///
/// # Errors
/// [`StoreError::Broken`]: the store cannot be trusted. No further decision was made on it.
pub async fn serve<W: Workflow, S: OwnStore>(
    ports: Arc<Local<S>>,
    stop: watch::Receiver<bool>,
) -> Result<Counters, StoreError> {
    let timers = deliver_due_timers(
        Arc::clone(&ports.alarms),
        Arc::clone(&ports.inbox),
        SystemClock,
        ports.store.incarnation(),
    );
    let engine = engine::run::<W, _>(ports, Options::default(), stop);
    tokio::select! {
        result = engine => result,
        () = timers => Ok(Counters::default()),
    }
}

/// Starts, asks and reads runs of the workflow `W`. Clones are cheap.
pub struct Client<W, S> {
    ports: Arc<Local<S>>,
    workflow: PhantomData<fn() -> W>,
}

impl<W, S> Clone for Client<W, S> {
    fn clone(&self) -> Self {
        Self {
            ports: Arc::clone(&self.ports),
            workflow: PhantomData,
        }
    }
}

impl<W: Workflow, S: OwnStore> Client<W, S> {
    /// Client of the store of `ports`.
    #[must_use]
    pub fn new(ports: Arc<Local<S>>) -> Self {
        Self {
            ports,
            workflow: PhantomData,
        }
    }

    /// Starts a run: the workflow gets `Started`, and then observes `fact`. It returns when that is stored. Of two calls at
    /// once both may succeed, and the workflow observes both facts.
    ///
    /// # Errors
    /// [`ClientError::Foreign`], [`ClientError::Exists`], [`ClientError::NotTaken`].
    pub async fn start(&self, run: &RunId, fact: W::Fact) -> Result<Run<W>, ClientError> {
        if W::start(run, false).is_none() {
            return Err(ClientError::Foreign(run.clone()));
        }
        if self.found(run).await?.is_some() {
            return Err(ClientError::Exists(run.clone()));
        }
        let object = ObjectRef {
            cluster: String::new(),
            kind: run.workflow().to_owned(),
            uid: run.key().to_owned(),
        };
        let observation = Observation {
            object,
            version: FIRST,
            fact: Some(fact),
            may_start: true,
        };
        self.put(run, Inbound::Observed(observation)).await?;
        self.until(run, |_| true).await
    }

    /// Sends a signal to a run in a person's or a program's name. It returns when the signal is stored, with the run as
    /// the workflow decided then.
    ///
    /// # Errors
    /// [`ClientError::NoRun`], [`ClientError::Ended`], [`ClientError::NotTaken`], [`ClientError::ReasonTooLong`].
    pub async fn signal(
        &self,
        run: &RunId,
        signal: W::Signal,
        (who, why): (&str, &str),
    ) -> Result<Run<W>, ClientError> {
        self.ask(run, Ask::Signal(signal), (who, why)).await
    }

    /// Goes back to the state of record `to`, and continues from there. Open tasks and timers end.
    ///
    /// # Errors
    /// As [`Client::signal`], and [`ClientError::NoRecord`].
    pub async fn reset(
        &self,
        run: &RunId,
        to: Seq,
        (who, why): (&str, &str),
    ) -> Result<Run<W>, ClientError> {
        let there = self.history(run, to, 1).await?;
        if there.first().is_none_or(|record| record.run.seq != to) {
            return Err(ClientError::NoRecord(run.clone(), to));
        }
        self.ask(run, Ask::Reset { to }, (who, why)).await
    }

    /// The run as it is, read from the store.
    ///
    /// # Errors
    /// [`ClientError::NoRun`], [`ClientError::Unreadable`], [`ClientError::Store`].
    pub async fn query(&self, run: &RunId) -> Result<Run<W>, ClientError> {
        let found = self.found(run).await?;
        found.ok_or_else(|| ClientError::NoRun(run.clone()))
    }

    /// Records of a run from `from` on, oldest first, at most `limit`. Each has its events, and the run after them.
    ///
    /// # Errors
    /// As [`Client::query`], but a run that does not exist has none.
    pub async fn history(
        &self,
        run: &RunId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Record<W>>, ClientError> {
        let records = self.ports.store.records(run, from, limit).await?;
        records.iter().map(|bytes| record(run, bytes)).collect()
    }

    /// Waits until the run is so, without a time limit.
    ///
    /// # Errors
    /// As [`Client::query`].
    pub async fn wait(
        &self,
        run: &RunId,
        so: impl Fn(&Run<W>) -> bool,
    ) -> Result<Run<W>, ClientError> {
        loop {
            let now = self.query(run).await?;
            if so(&now) {
                return Ok(now);
            }
            tokio::time::sleep(READ_EVERY).await;
        }
    }

    async fn ask(
        &self,
        run: &RunId,
        ask: Ask<W::Signal>,
        (who, why): (&str, &str),
    ) -> Result<Run<W>, ClientError> {
        if why.len() > REASON_BYTES_MAX {
            return Err(ClientError::ReasonTooLong);
        }
        let before = self.query(run).await?;
        let reset = matches!(ask, Ask::Reset { .. });
        let ended = |now: &Run<W>| now.closed.is_some() && !(reset && W::resets_ended(&now.state));
        if ended(&before) {
            return Err(ClientError::Ended(run.clone()));
        }
        let id = format!("client-{:016x}", rand::random::<u64>());
        let request = Request {
            id: id.clone(),
            who: who.to_owned(),
            why: why.to_owned(),
            against: Seq(0),
            ask,
        };
        self.put(run, Inbound::Requested(request)).await?;
        // A run knows its last requests by their ids; its records have them all.
        let mut from = before.seq.next();
        let late = Instant::now() + TAKEN_WITHIN;
        loop {
            let records = self.history(run, from, RECORDS_READ).await?;
            let last = records.last().map(|record| record.run.clone());
            let taken = records.into_iter().find(|record| takes(record, &id));
            if let Some(record) = taken {
                return Ok(record.run);
            }
            if let Some(last) = last {
                if ended(&last) {
                    return Err(ClientError::Ended(run.clone()));
                }
                from = last.seq.next();
            } else if Instant::now() > late {
                return Err(ClientError::NotTaken(run.clone()));
            } else {
                tokio::time::sleep(READ_EVERY).await;
            }
        }
    }

    async fn put(
        &self,
        run: &RunId,
        body: Inbound<W::Fact, W::Outcome, W::Signal>,
    ) -> Result<(), ClientError> {
        let message = InboxMessage {
            run: run.clone(),
            incarnation: Some(self.ports.store.incarnation()),
            body,
        };
        let unwritable = |error| ClientError::Unwritable(run.clone(), format!("{error}"));
        let (bytes, _) = envelope::encode(&message, W::SCHEMA).map_err(unwritable)?;
        Ok(self.ports.inbox.put(vec![(run.clone(), bytes)]).await?)
    }

    async fn until(
        &self,
        run: &RunId,
        so: impl Fn(&Run<W>) -> bool,
    ) -> Result<Run<W>, ClientError> {
        let late = Instant::now() + TAKEN_WITHIN;
        loop {
            if let Some(now) = self.found(run).await?.filter(|now| so(now)) {
                return Ok(now);
            }
            if Instant::now() > late {
                return Err(ClientError::NotTaken(run.clone()));
            }
            tokio::time::sleep(READ_EVERY).await;
        }
    }

    async fn found(&self, run: &RunId) -> Result<Option<Run<W>>, ClientError> {
        let stored = self.ports.store.load(std::slice::from_ref(run)).await?;
        let last = stored.into_iter().flatten().next();
        last.map(|last| record(run, &last.bytes).map(|record| record.run))
            .transpose()
    }
}

fn record<W: Workflow>(run: &RunId, bytes: &[u8]) -> Result<Record<W>, ClientError> {
    let decoded = envelope::decode::<Record<W>>(bytes, W::SCHEMA);
    let unreadable = |error| ClientError::Unreadable(run.clone(), format!("{error}"));
    decoded.map(|(record, _)| record).map_err(unreadable)
}

/// Whether the record took the request with this id.
fn takes<W: Workflow>(record: &Record<W>, request: &str) -> bool {
    record.events.iter().any(|event| match event {
        HistoryEvent::Requested { id, .. } | HistoryEvent::Reset { id, .. } => id == request,
        _ => false,
    })
}

/// Attempt of a task, as a worker gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Job<T> {
    pub task: T,
    /// Its id. It is the same in every attempt: give it to the called service as the idempotency key. A task that is ordered
    /// anew after a reset has another one; where that may not happen twice, take the run's id.
    pub id: TaskId,
    /// Number of the attempt, from 1.
    pub attempt: Attempt,
    /// Time limit of the attempt.
    pub limit: Duration,
}

/// Worker of the workflow `W`. An attempt may be made again although an earlier one had an effect, because its worker died
/// before it reported: what a job does outside must bear a repeat.
pub struct Worker<W> {
    name: String,
    tasks: Arc<LocalTasks>,
    inbox: Arc<LocalInbox>,
    workflow: PhantomData<fn() -> W>,
}

impl<W: Workflow> Worker<W> {
    /// Worker called `name`, as the history names it, with the orders of `ports`.
    #[must_use]
    pub fn new<S>(name: &str, ports: &Local<S>) -> Self {
        Self {
            name: name.to_owned(),
            tasks: Arc::clone(&ports.tasks),
            inbox: Arc::clone(&ports.inbox),
            workflow: PhantomData,
        }
    }

    /// Does jobs, at most `jobs_max` at once, until it is dropped. `work` is called with each attempt; its `match` over the
    /// tasks is their registration, so that the compiler finds one without code. An attempt that takes longer than its
    /// limit ends, and counts as failed. One whose worker is dropped returns to the queue; one
    /// that panics is done again when its limit is over.
    pub async fn run<F, R>(self, jobs_max: usize, work: F)
    where
        F: Fn(Job<W::Task>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<W::Outcome, Failure>> + Send + 'static,
    {
        let work = Arc::new(work);
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() >= jobs_max.max(1) {
                let _ = under_way.join_next().await;
            }
            for out in self.tasks.take(jobs_max.max(1) - under_way.len()).await {
                let mut claim = Claim {
                    out: Some(out),
                    tasks: Arc::clone(&self.tasks),
                };
                let Some(out) = &claim.out else { continue };
                let order = match envelope::decode::<TaskOrder<W::Task>>(&out.bytes, W::SCHEMA) {
                    Ok((order, _)) => order,
                    Err(error) => {
                        // The attempt's deadline ends it.
                        tracing::error!(task = %out.task, %error, "an order cannot be read");
                        claim.end();
                        continue;
                    }
                };
                let job = Job {
                    task: order.body.clone(),
                    id: order.task.clone(),
                    attempt: order.attempt,
                    limit: Duration::from_millis(order.limit_ms),
                };
                let limit = job.limit;
                let work = Arc::clone(&work);
                let inbox = Arc::clone(&self.inbox);
                let name = self.name.clone();
                under_way.spawn(async move {
                    let done = tokio::time::timeout(limit, async { work(job).await });
                    let result = done.await.unwrap_or_else(|_| {
                        let why = format!("it took longer than {} ms", limit.as_millis());
                        Err(Failure::transient("TimedOut", why))
                    });
                    report::<W>(order, result, name, (&claim.tasks, &inbox)).await;
                    claim.end();
                });
            }
        }
    }
}

/// An order under way. If its worker is dropped before it has reported, the order returns to the queue; after a panic it
/// does not, so that the next attempt has its delay.
struct Claim {
    out: Option<OrderOut>,
    tasks: Arc<LocalTasks>,
}

impl Claim {
    fn end(&mut self) {
        self.out = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(out) = self.out.take()
            && !std::thread::panicking()
        {
            self.tasks.give_back(out);
        }
    }
}

/// Reports until the engine has a receipt for it.
async fn report<W: Workflow>(
    order: TaskOrder<W::Task>,
    result: Result<W::Outcome, Failure>,
    worker: String,
    (tasks, inbox): (&LocalTasks, &LocalInbox),
) {
    let incarnation: Incarnation = order.incarnation;
    let run = order.task.run.clone();
    let key = (order.task.clone(), order.attempt);
    let report = TaskReport {
        by: W::reporter(&order.body),
        task: order.task,
        attempt: order.attempt,
        issued: order.issued,
        worker,
        result,
    };
    let message: InboxMessage<W::Fact, W::Outcome, W::Signal> = InboxMessage {
        run: run.clone(),
        incarnation: Some(incarnation),
        body: Inbound::Reported(report),
    };
    let bytes = match envelope::encode(&message, W::SCHEMA) {
        Ok((bytes, _)) => bytes,
        Err(error) => return tracing::error!(%run, %error, "a report cannot be written"),
    };
    let mut pause = REPEAT_AFTER;
    loop {
        // The inbox in memory always takes a message.
        let _ = inbox.put(vec![(run.clone(), bytes.clone())]).await;
        let receipt = tasks.receipt_of(&key);
        if tokio::time::timeout(pause, receipt).await.is_ok() {
            return;
        }
        pause = (pause * 2).min(REPEAT_AFTER_MAX);
    }
}
