//! Ports of any store behind one type, so that the engine is compiled once and not once for each store.
//!
//! A call costs one allocation for its future. Ports take batches, so that is one for many runs.

use crate::port::{
    Ack, Alarms, Append, AppendError, Clock, DeadLetter, DeadLetters, Delivery, EndedTask, Head,
    History, HistoryReader, Inbox, OrderOut, Ports, Quarantine, QuarantineNote, StoreError, Stored,
    SystemClock, TaskQueue,
};
use crate::{embedded::EmbeddedStore, local::Local, memory::MemoryStore, nats::NatsStore};
use dormer_nats::history_keys::HistoryKeys;
use dormer_proto::{
    id::{Incarnation, Revision, RunId, Seq, Timestamp},
    message::ReportReceipt,
};
use futures::future::BoxFuture;
use std::{sync::Arc, time::Duration};

type PortFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Every method of every port, with boxed futures.
trait DynPorts: Send + Sync + 'static {
    fn keys(&self) -> Option<&HistoryKeys>;
    fn incarnation(&self) -> Incarnation;
    fn exclusive(&self) -> bool;
    fn contradiction(&self, what: String) -> StoreError;
    fn load<'a>(&'a self, runs: &'a [RunId]) -> PortFuture<'a, Vec<Option<Stored>>>;
    fn append(&self, batch: Vec<Append>) -> BoxFuture<'_, Vec<Result<Revision, AppendError>>>;
    fn records<'a>(
        &'a self,
        run: &'a RunId,
        from: Seq,
        limit: usize,
    ) -> PortFuture<'a, Vec<Vec<u8>>>;
    fn heads<'a>(&'a self, after: Option<&'a RunId>, limit: usize) -> PortFuture<'a, Vec<Head>>;
    fn heads_to_sweep<'a>(
        &'a self,
        after: Option<&'a RunId>,
        limit: usize,
    ) -> PortFuture<'a, Vec<Head>>;
    fn forget<'a>(&'a self, run: &'a RunId, revision: Revision) -> PortFuture<'a, ()>;
    fn held_max(&self) -> Option<usize>;
    fn take(&self, max: usize) -> PortFuture<'_, Vec<Delivery>>;
    fn put(&self, messages: Vec<(RunId, Vec<u8>)>) -> PortFuture<'_, ()>;
    fn put_unconfirmed(&self, messages: Vec<(RunId, Vec<u8>)>) -> PortFuture<'_, ()>;
    fn acknowledge(&self, acks: Vec<(u64, Ack)>) -> BoxFuture<'_, ()>;
    fn publish(&self, orders: Vec<OrderOut>) -> PortFuture<'_, ()>;
    fn withdraw(&self, ended: Vec<EndedTask>) -> BoxFuture<'_, ()>;
    fn receipt(&self, receipts: Vec<ReportReceipt>) -> BoxFuture<'_, ()>;
    fn set_alarms(&self, alarms: Vec<(RunId, Option<Timestamp>)>) -> PortFuture<'_, ()>;
    fn put_dead(&self, message: DeadLetter) -> PortFuture<'_, ()>;
    fn list_dead(&self, after: u64, limit: usize) -> PortFuture<'_, Vec<DeadLetter>>;
    fn remove_dead(&self, id: u64) -> PortFuture<'_, ()>;
    fn put_note(&self, note: QuarantineNote) -> PortFuture<'_, u64>;
    fn notes_of<'a>(&'a self, runs: &'a [RunId]) -> PortFuture<'a, Vec<Option<QuarantineNote>>>;
    fn notes(&self) -> PortFuture<'_, Vec<QuarantineNote>>;
    fn remove_note<'a>(&'a self, run: &'a RunId, version: u64) -> PortFuture<'a, ()>;
}

impl<P: Ports> DynPorts for P {
    fn keys(&self) -> Option<&HistoryKeys> {
        self.history_keys()
    }
    fn incarnation(&self) -> Incarnation {
        self.history().incarnation()
    }
    fn exclusive(&self) -> bool {
        self.history().exclusive()
    }
    fn contradiction(&self, what: String) -> StoreError {
        self.history().contradiction(what)
    }
    fn load<'a>(&'a self, runs: &'a [RunId]) -> PortFuture<'a, Vec<Option<Stored>>> {
        Box::pin(self.history().load(runs))
    }
    fn append(&self, batch: Vec<Append>) -> BoxFuture<'_, Vec<Result<Revision, AppendError>>> {
        Box::pin(self.history().append(batch))
    }
    fn records<'a>(
        &'a self,
        run: &'a RunId,
        from: Seq,
        limit: usize,
    ) -> PortFuture<'a, Vec<Vec<u8>>> {
        Box::pin(self.reader().records(run, from, limit))
    }
    fn heads<'a>(&'a self, after: Option<&'a RunId>, limit: usize) -> PortFuture<'a, Vec<Head>> {
        Box::pin(self.reader().heads(after, limit))
    }
    fn heads_to_sweep<'a>(
        &'a self,
        after: Option<&'a RunId>,
        limit: usize,
    ) -> PortFuture<'a, Vec<Head>> {
        Box::pin(self.reader().heads_to_sweep(after, limit))
    }
    fn forget<'a>(&'a self, run: &'a RunId, revision: Revision) -> PortFuture<'a, ()> {
        Box::pin(self.reader().forget(run, revision))
    }
    fn held_max(&self) -> Option<usize> {
        self.inbox().held_max()
    }
    fn take(&self, max: usize) -> PortFuture<'_, Vec<Delivery>> {
        Box::pin(self.inbox().take(max))
    }
    fn put(&self, messages: Vec<(RunId, Vec<u8>)>) -> PortFuture<'_, ()> {
        Box::pin(self.inbox().put(messages))
    }
    fn put_unconfirmed(&self, messages: Vec<(RunId, Vec<u8>)>) -> PortFuture<'_, ()> {
        Box::pin(self.inbox().put_unconfirmed(messages))
    }
    fn acknowledge(&self, acks: Vec<(u64, Ack)>) -> BoxFuture<'_, ()> {
        Box::pin(self.inbox().acknowledge(acks))
    }
    fn publish(&self, orders: Vec<OrderOut>) -> PortFuture<'_, ()> {
        Box::pin(self.tasks().publish(orders))
    }
    fn withdraw(&self, ended: Vec<EndedTask>) -> BoxFuture<'_, ()> {
        Box::pin(self.tasks().withdraw(ended))
    }
    fn receipt(&self, receipts: Vec<ReportReceipt>) -> BoxFuture<'_, ()> {
        Box::pin(self.tasks().receipt(receipts))
    }
    fn set_alarms(&self, alarms: Vec<(RunId, Option<Timestamp>)>) -> PortFuture<'_, ()> {
        Box::pin(self.alarms().set(alarms))
    }
    fn put_dead(&self, message: DeadLetter) -> PortFuture<'_, ()> {
        Box::pin(self.dead().put(message))
    }
    fn list_dead(&self, after: u64, limit: usize) -> PortFuture<'_, Vec<DeadLetter>> {
        Box::pin(self.dead().list(after, limit))
    }
    fn remove_dead(&self, id: u64) -> PortFuture<'_, ()> {
        Box::pin(self.dead().remove(id))
    }
    fn put_note(&self, note: QuarantineNote) -> PortFuture<'_, u64> {
        Box::pin(self.quarantine().put(note))
    }
    fn notes_of<'a>(&'a self, runs: &'a [RunId]) -> PortFuture<'a, Vec<Option<QuarantineNote>>> {
        Box::pin(self.quarantine().notes_of(runs))
    }
    fn notes(&self) -> PortFuture<'_, Vec<QuarantineNote>> {
        Box::pin(self.quarantine().notes())
    }
    fn remove_note<'a>(&'a self, run: &'a RunId, version: u64) -> PortFuture<'a, ()> {
        Box::pin(self.quarantine().remove(run, version))
    }
}

/// Ports of any store. It implements every port, by dynamic dispatch.
#[derive(Clone)]
pub struct AnyPorts {
    ports: Arc<dyn DynPorts>,
    clock: Arc<dyn Clock>,
}

// None of these is generic over the store, so that this package compiles the stores' futures and its callers do not.
impl AnyPorts {
    #[must_use]
    pub fn nats(store: Arc<NatsStore>) -> Self {
        Self {
            ports: store,
            clock: Arc::new(SystemClock),
        }
    }

    /// Ports of a folder store and its queues.
    #[must_use]
    pub fn embedded<C: Clock + Clone>(local: &Local<EmbeddedStore, C>) -> Self {
        Self {
            ports: embedded(local.at_system_time()),
            clock: Arc::new(local.clock.clone()),
        }
    }

    /// Ports of a store in memory and its queues.
    #[must_use]
    pub fn memory<C: Clock + Clone>(local: &Local<MemoryStore, C>) -> Self {
        Self {
            ports: memory(local.at_system_time()),
            clock: Arc::new(local.clock.clone()),
        }
    }
}

fn embedded(local: Local<EmbeddedStore>) -> Arc<dyn DynPorts> {
    Arc::new(local)
}

fn memory(local: Local<MemoryStore>) -> Arc<dyn DynPorts> {
    Arc::new(local)
}

impl std::fmt::Debug for AnyPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnyPorts").finish_non_exhaustive()
    }
}

impl Ports for AnyPorts {
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
    fn history_keys(&self) -> Option<&HistoryKeys> {
        self.ports.keys()
    }
}

impl History for AnyPorts {
    fn incarnation(&self) -> Incarnation {
        self.ports.incarnation()
    }
    fn exclusive(&self) -> bool {
        self.ports.exclusive()
    }
    fn contradiction(&self, what: String) -> StoreError {
        self.ports.contradiction(what)
    }
    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Stored>>, StoreError> {
        self.ports.load(runs).await
    }
    async fn append(&self, batch: Vec<Append>) -> Vec<Result<Revision, AppendError>> {
        self.ports.append(batch).await
    }
}

impl HistoryReader for AnyPorts {
    async fn records(
        &self,
        run: &RunId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.ports.records(run, from, limit).await
    }
    async fn heads(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.ports.heads(after, limit).await
    }
    async fn heads_to_sweep(
        &self,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<Head>, StoreError> {
        self.ports.heads_to_sweep(after, limit).await
    }
    async fn forget(&self, run: &RunId, revision: Revision) -> Result<(), StoreError> {
        self.ports.forget(run, revision).await
    }
}

impl Inbox for AnyPorts {
    fn held_max(&self) -> Option<usize> {
        self.ports.held_max()
    }
    async fn take(&self, max: usize) -> Result<Vec<Delivery>, StoreError> {
        self.ports.take(max).await
    }
    async fn put(&self, messages: Vec<(RunId, Vec<u8>)>) -> Result<(), StoreError> {
        self.ports.put(messages).await
    }
    async fn put_unconfirmed(&self, messages: Vec<(RunId, Vec<u8>)>) -> Result<(), StoreError> {
        self.ports.put_unconfirmed(messages).await
    }
    async fn acknowledge(&self, acks: Vec<(u64, Ack)>) {
        self.ports.acknowledge(acks).await;
    }
}

impl TaskQueue for AnyPorts {
    async fn publish(&self, orders: Vec<OrderOut>) -> Result<(), StoreError> {
        self.ports.publish(orders).await
    }
    async fn withdraw(&self, ended: Vec<EndedTask>) {
        self.ports.withdraw(ended).await;
    }
    async fn receipt(&self, receipts: Vec<ReportReceipt>) {
        self.ports.receipt(receipts).await;
    }
}

impl Alarms for AnyPorts {
    async fn set(&self, alarms: Vec<(RunId, Option<Timestamp>)>) -> Result<(), StoreError> {
        self.ports.set_alarms(alarms).await
    }
}

impl DeadLetters for AnyPorts {
    async fn put(&self, message: DeadLetter) -> Result<(), StoreError> {
        self.ports.put_dead(message).await
    }
    async fn list(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.ports.list_dead(after, limit).await
    }
    async fn remove(&self, id: u64) -> Result<(), StoreError> {
        self.ports.remove_dead(id).await
    }
}

impl Quarantine for AnyPorts {
    async fn put(&self, note: QuarantineNote) -> Result<u64, StoreError> {
        self.ports.put_note(note).await
    }
    async fn notes_of(&self, runs: &[RunId]) -> Result<Vec<Option<QuarantineNote>>, StoreError> {
        self.ports.notes_of(runs).await
    }
    async fn notes(&self) -> Result<Vec<QuarantineNote>, StoreError> {
        self.ports.notes().await
    }
    async fn remove(&self, run: &RunId, version: u64) -> Result<(), StoreError> {
        self.ports.remove_note(run, version).await
    }
}

impl Clock for AnyPorts {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }
    fn wait(&self, ms: u64) -> Duration {
        self.clock.wait(ms)
    }
}
