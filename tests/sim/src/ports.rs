//! The ports over the simulated world. Every call yields once before it acts, so that an engine can die there.

use crate::world::{OTHER_ROLE, RecordEntry, World, fault};
use dormer_engine::port::{
    Ack, Alarms, Append, AppendError, Clock, DeadLetter, DeadLetters, Delivery, EndedTask, Head,
    History, HistoryReader, Inbox, OrderOut, Ports, Quarantine, QuarantineNote, StoreError, Stored,
    TaskQueue, earlier, note_has_changed,
};
use dormer_proto::{
    id::{Incarnation, Revision, RunId, Seq, Timestamp},
    message::ReportReceipt,
};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

/// Heads in one page: fewer than there are runs, so that the sweep turns pages.
const PAGE_MAX: usize = 3;

/// The one object behind every port, in the hands of one engine.
#[derive(Clone)]
pub(crate) struct Sim {
    world: Arc<Mutex<World>>,
    engine: usize,
}

struct Yield(bool);

impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Sim {
    pub(crate) fn new(world: World) -> Self {
        Self {
            world: Arc::new(Mutex::new(world)),
            engine: 0,
        }
    }

    /// The same world, for one of the engines.
    pub(crate) fn of(&self, engine: usize) -> Self {
        Self {
            engine,
            ..self.clone()
        }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Yields, at times often; then the store answers, or not.
    async fn reach(&self) -> Result<(), StoreError> {
        Yield(false).await;
        while self.world().strikes(fault::REFUSE, 50) {
            Yield(false).await;
        }
        if self.world().strikes(fault::REFUSE, 5) {
            return Err(StoreError::Unavailable("simulated".to_owned()));
        }
        Ok(())
    }
}

impl History for Sim {
    fn incarnation(&self) -> Incarnation {
        self.world().incarnation
    }
    fn exclusive(&self) -> bool {
        self.world().exclusive
    }
    /// As the adapter of NATS: whether the store went back is found out before an engine ends.
    fn contradiction(&self, what: String) -> StoreError {
        if self.world().went_back() {
            StoreError::Broken(what)
        } else {
            StoreError::Unavailable(what)
        }
    }
    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Stored>>, StoreError> {
        self.reach().await?;
        let stored = {
            let mut world = self.world();
            let stale = !world.exclusive && world.strikes(fault::STALE, 3);
            world.were_read(self.engine, runs, stale);
            let found = |run: &RunId| {
                let of_run = world.entries.iter().rev().filter(|it| it.run == *run);
                of_run
                    .skip(usize::from(stale))
                    .map(RecordEntry::stored)
                    .next()
            };
            runs.iter().map(found).collect()
        };
        // The answer is on its way while others append.
        Yield(false).await;
        Ok(stored)
    }
    async fn append(&self, batch: Vec<Append>) -> Vec<Result<Revision, AppendError>> {
        Yield(false).await;
        let mut results = Vec::new();
        {
            let mut world = self.world();
            for append in batch {
                if world.strikes(fault::UNKNOWN, 4) {
                    results.push(Err(AppendError::Unknown("not stored".to_owned())));
                    continue;
                }
                if world.strikes(fault::TOO_LARGE, 5) {
                    results.push(Err(AppendError::Refused("too large".to_owned())));
                    continue;
                }
                if !world.exclusive && world.strikes(fault::LANDS_LATE, 3) {
                    world.appends.push(append);
                    results.push(Err(AppendError::Unknown("it lands later".to_owned())));
                    continue;
                }
                let revision = match world.append(append.clone()) {
                    Ok(revision) => {
                        world.check_append(self.engine, &append);
                        revision
                    }
                    Err(error) => {
                        results.push(Err(error));
                        continue;
                    }
                };
                let silent = world.strikes(fault::UNKNOWN, 4);
                if !silent {
                    world.was_acknowledged(self.engine, &append, revision);
                }
                let unknown = || AppendError::Unknown("stored all the same".to_owned());
                results.push(if silent { Err(unknown()) } else { Ok(revision) });
            }
        }
        Yield(false).await;
        results
    }
}

impl HistoryReader for Sim {
    async fn records(
        &self,
        run: &RunId,
        from: Seq,
        max: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.reach().await?;
        let world = self.world();
        let wanted = world
            .entries
            .iter()
            .filter(|e| e.run == *run && e.record.run.seq >= from);
        Ok(wanted.take(max).map(|entry| entry.bytes.clone()).collect())
    }
    async fn heads(&self, after: Option<&RunId>, max: usize) -> Result<Vec<Head>, StoreError> {
        self.reach().await?;
        let page = self.world().heads(after, max.min(PAGE_MAX));
        // The page is on its way while others append.
        Yield(false).await;
        Ok(page)
    }
    async fn forget(&self, run: &RunId, revision: Revision) -> Result<(), StoreError> {
        self.reach().await?;
        self.world().forget(run, revision);
        Ok(())
    }
}

impl Inbox for Sim {
    async fn take(&self, max: usize) -> Result<Vec<Delivery>, StoreError> {
        Ok(self.world().take(max))
    }
    async fn put(&self, messages: Vec<(RunId, Vec<u8>)>) -> Result<(), StoreError> {
        self.reach().await?;
        let mut world = self.world();
        for (_, bytes) in messages {
            world.check_message(&bytes);
            world.put(bytes);
        }
        Ok(())
    }
    async fn acknowledge(&self, acks: Vec<(u64, Ack)>) {
        Yield(false).await;
        let mut world = self.world();
        for (token, ack) in acks {
            world.acknowledge(token, ack);
        }
    }
}

impl TaskQueue for Sim {
    async fn publish(&self, orders: Vec<OrderOut>) -> Result<(), StoreError> {
        self.reach().await?;
        let mut world = self.world();
        for order in orders {
            world.check_order(&order);
            // A worker may be working on it.
            if let Some(old) = order.superseded()
                && world.chance.percent(50)
            {
                world.orders.remove(&(order.task.clone(), old));
            }
            world
                .orders
                .entry((order.task.clone(), order.attempt))
                .or_insert(order);
        }
        Ok(())
    }
    async fn withdraw(&self, ended: Vec<EndedTask>) {
        if self.reach().await.is_err() {
            return;
        }
        let mut world = self.world();
        for EndedTask { task, .. } in ended {
            world.check_ended(&task);
            // A worker may be working on it.
            if world.chance.percent(50) {
                world.orders.retain(|(of, _), _| *of != task);
            }
        }
    }
    async fn receipt(&self, receipts: Vec<ReportReceipt>) {
        Yield(false).await;
        let mut world = self.world();
        for receipt in receipts {
            world.check_receipt(&receipt);
            // Another role has no order to acknowledge.
            if !receipt.worker.starts_with(OTHER_ROLE) && !world.strikes(fault::LOSE, 10) {
                world.orders.remove(&(receipt.task, receipt.attempt));
            }
        }
    }
}

/// As on NATS: of two times the earlier stays and is then the last engine's, which alone can clear it.
impl Alarms for Sim {
    async fn set(&self, alarms: Vec<(RunId, Option<Timestamp>)>) -> Result<(), StoreError> {
        self.reach().await?;
        let mut world = self.world();
        for (run, at) in alarms {
            let set = world.alarms.get(&run).copied();
            match at {
                Some(at) => {
                    let at = earlier(set.map(|(set, _)| set), at);
                    world.check_set(&run, set.map(|(set, _)| set), at);
                    world.alarm_was_set(self.engine, &run);
                    world.alarms.insert(run, (at, Some(self.engine)));
                }
                None if set.is_some_and(|(_, by)| by == Some(self.engine)) => {
                    world.alarms.remove(&run);
                }
                None => {}
            }
        }
        Ok(())
    }
}

impl DeadLetters for Sim {
    async fn put(&self, message: DeadLetter) -> Result<(), StoreError> {
        Yield(false).await;
        self.world()
            .violated(format!("a healthy message died: {}", message.reason));
        Ok(())
    }
    async fn list(&self, _: u64, _: usize) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(Vec::new())
    }
    async fn remove(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Quarantine for Sim {
    async fn put(&self, mut note: QuarantineNote) -> Result<u64, StoreError> {
        self.reach().await?;
        let mut world = self.world();
        let there = world.notes.get(&note.run).map_or(0, |note| note.version);
        if there != note.version {
            return Err(note_has_changed(&note.run));
        }
        world.notes_last += 1;
        let version = world.notes_last;
        note.version = version;
        world.check_note(self.engine, &note);
        world.notes.insert(note.run.clone(), note);
        Ok(version)
    }
    async fn notes_of(&self, runs: &[RunId]) -> Result<Vec<Option<QuarantineNote>>, StoreError> {
        self.reach().await?;
        let notes = {
            let mut world = self.world();
            let note = |run: &RunId| world.notes.get(run).cloned();
            let notes: Vec<_> = runs.iter().map(note).collect();
            // An engine that finds the run quarantined may continue from what is there, once it is released.
            let engine = self.engine;
            let holds = |note: &QuarantineNote| note.missed.is_none();
            let noted = |run: &RunId| world.notes.get(run).is_some_and(holds);
            let held: Vec<_> = runs.iter().filter(|run| noted(run)).cloned().collect();
            for run in held {
                world.acknowledged.remove(&(engine, run));
            }
            notes
        };
        // The answer is on its way while people release.
        Yield(false).await;
        Ok(notes)
    }
    async fn notes(&self) -> Result<Vec<QuarantineNote>, StoreError> {
        self.reach().await?;
        let mut world = self.world();
        let notes: Vec<_> = world.notes.values().cloned().collect();
        world.were_noted(self.engine, &notes);
        Ok(notes)
    }
    async fn remove(&self, run: &RunId, version: u64) -> Result<(), StoreError> {
        self.reach().await?;
        let mut world = self.world();
        let there = world.notes.get(run).map(|note| note.version);
        if there == Some(version) {
            world.notes.remove(run);
        }
        Ok(())
    }
}

impl Clock for Sim {
    fn now(&self) -> Timestamp {
        self.world().now_of(self.engine)
    }
}

impl Ports for Sim {
    type History = Self;
    type Reader = Self;
    type Inbox = Self;
    type Tasks = Self;
    type Alarms = Self;
    type Dead = Self;
    type Quarantine = Self;
    type Clock = Self;
    fn history(&self) -> &Self {
        self
    }
    fn reader(&self) -> &Self {
        self
    }
    fn inbox(&self) -> &Self {
        self
    }
    fn tasks(&self) -> &Self {
        self
    }
    fn alarms(&self) -> &Self {
        self
    }
    fn dead(&self) -> &Self {
        self
    }
    fn quarantine(&self) -> &Self {
        self
    }
    fn clock(&self) -> &Self {
        self
    }
}
