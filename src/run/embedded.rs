//! Worker ports over the queues of this process: orders, reports and facts without a server.

use dormer_api::live::Live;
use dormer_engine::{
    any::AnyPorts,
    embedded::EmbeddedStore,
    local::{Local, LocalInbox, LocalTasks},
    memory::MemoryStore,
    port::{Clock, DeadLetters, History, HistoryReader, Inbox, OrderOut, Quarantine, StoreError},
};
use dormer_proto::{
    id::{Epoch, Incarnation, RunId},
    message::{Heartbeat, RemoteCommand},
    work::{FactMessage, MACHINE, Report},
};
use dormer_workers::{
    message_bytes,
    port::{Claimed, EpochStart, Facts, Orders, PortError},
};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Time after which a report without a receipt is repeated.
const REPEAT_AFTER: Duration = Duration::from_secs(3);
/// Runs of one read when live machines are collected.
const HEADS_PAGE: usize = 2_000;
/// Most messages that wait in memory. Beyond it the watcher waits.
const MESSAGES_MAX: usize = 50_000;
/// Poll interval of a full inbox.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// Store that one process owns, with a counter of epochs.
pub trait OwnStore: History + HistoryReader + DeadLetters + Quarantine {
    /// Allocates the next epoch. Epochs only grow.
    fn draw_epoch(&self) -> impl Future<Output = Result<Epoch, StoreError>> + Send;
    /// Ports of the store and its queues, behind one type.
    fn any<C: Clock + Clone>(ports: &Local<Self, C>) -> AnyPorts
    where
        Self: Sized;
}

impl OwnStore for EmbeddedStore {
    async fn draw_epoch(&self) -> Result<Epoch, StoreError> {
        self.next_epoch().await
    }

    fn any<C: Clock + Clone>(ports: &Local<Self, C>) -> AnyPorts {
        AnyPorts::embedded(ports)
    }
}

impl OwnStore for MemoryStore {
    async fn draw_epoch(&self) -> Result<Epoch, StoreError> {
        Ok(self.next_epoch())
    }

    fn any<C: Clock + Clone>(ports: &Local<Self, C>) -> AnyPorts {
        AnyPorts::memory(ports)
    }
}

fn failed(error: impl std::fmt::Display) -> PortError {
    PortError(error.to_string())
}

/// Orders within this process.
pub struct LocalOrders {
    tasks: Arc<LocalTasks>,
    inbox: Arc<LocalInbox>,
    live: Arc<Live>,
}

impl LocalOrders {
    /// Takes orders from `tasks`, puts reports into `inbox` and heartbeats into `live`.
    pub fn new(tasks: Arc<LocalTasks>, inbox: Arc<LocalInbox>, live: Arc<Live>) -> Self {
        Self { tasks, inbox, live }
    }

    fn claim(&self, out: OrderOut) -> Option<Claimed<LocalClaim>> {
        match message_bytes::order(&out.bytes) {
            Ok(order) => {
                let incarnation = order.incarnation;
                let claim = LocalClaim {
                    out: Some(out),
                    incarnation,
                    tasks: Arc::clone(&self.tasks),
                    ended: AtomicBool::new(false),
                };
                Some(Claimed { claim, order })
            }
            Err(error) => {
                // This process wrote the order itself. The attempt's deadline ends it.
                tracing::error!(task = %out.task, %error, "an order cannot be read");
                None
            }
        }
    }
}

/// Claim on one order. If it is dropped before the task ends, the order returns to the queue.
pub struct LocalClaim {
    out: Option<OrderOut>,
    incarnation: Incarnation,
    tasks: Arc<LocalTasks>,
    ended: AtomicBool,
}

impl Drop for LocalClaim {
    fn drop(&mut self) {
        if let Some(out) = self.out.take()
            && !self.ended.load(Ordering::Acquire)
        {
            self.tasks.give_back(out);
        }
    }
}

impl Orders for LocalOrders {
    type Claim = LocalClaim;

    async fn take(&self, limit: usize) -> Result<Vec<Claimed<LocalClaim>>, PortError> {
        loop {
            let taken = self.tasks.take(limit.max(1)).await;
            let claimed: Vec<_> = taken
                .into_iter()
                .filter_map(|out| self.claim(out))
                .collect();
            if !claimed.is_empty() {
                return Ok(claimed);
            }
        }
    }

    async fn heartbeat(&self, _claim: &LocalClaim, heartbeat: Heartbeat) -> Result<(), PortError> {
        self.live.beat(heartbeat);
        Ok(())
    }

    async fn show(&self, command: RemoteCommand) {
        self.live.ran(command);
    }

    async fn report(&self, claim: &LocalClaim, report: Report) -> Result<(), PortError> {
        let run = report.task.run.clone();
        let key = (report.task.clone(), report.attempt);
        let bytes = message_bytes::report(report, claim.incarnation).map_err(failed)?;
        loop {
            self.inbox
                .put(vec![(run.clone(), bytes.clone())])
                .await
                .map_err(failed)?;
            let receipt = tokio::time::timeout(REPEAT_AFTER, self.tasks.receipt_of(&key)).await;
            if let Ok(receipt) = receipt {
                tracing::debug!(fate = ?receipt.fate, "the engine receipted the report");
                claim.ended.store(true, Ordering::Release);
                self.live.ended(&key.0);
                return Ok(());
            }
        }
    }
}

/// Facts within this process.
pub struct LocalFacts<S> {
    store: Arc<S>,
    inbox: Arc<LocalInbox>,
}

impl<S: OwnStore> LocalFacts<S> {
    /// Puts facts into `inbox`; reads epochs and live machines from `store`.
    pub fn new(store: Arc<S>, inbox: Arc<LocalInbox>) -> Self {
        Self { store, inbox }
    }
}

/// UIDs of the machines whose runs have not ended.
pub async fn live_machines<R: HistoryReader>(reader: &R) -> Result<Vec<String>, StoreError> {
    let mut live = Vec::new();
    let mut after: Option<RunId> = None;
    loop {
        let heads = reader.heads(after.as_ref(), HEADS_PAGE).await?;
        let Some(last) = heads.last() else {
            return Ok(live);
        };
        after = Some(last.run.clone());
        let open = heads.iter().filter(|head| head.closed.is_none());
        let ours = open.filter(|head| head.run.workflow() == MACHINE);
        live.extend(ours.map(|head| head.run.key().to_owned()));
    }
}

impl<S: OwnStore> Facts for LocalFacts<S> {
    async fn begin(&self) -> Result<EpochStart, PortError> {
        let epoch = self.store.draw_epoch().await.map_err(failed)?;
        let live = live_machines(self.store.as_ref()).await.map_err(failed)?;
        Ok(EpochStart {
            incarnation: self.store.incarnation(),
            epoch,
            live,
        })
    }

    async fn publish(&self, messages: Vec<FactMessage>) -> Result<(), PortError> {
        while self.inbox.depth() > MESSAGES_MAX {
            tokio::time::sleep(FULL_PAUSE).await;
        }
        let mut encoded = Vec::with_capacity(messages.len());
        for one in messages {
            match message_bytes::fact(&one) {
                Ok(bytes) => encoded.push((one.run, bytes)),
                Err(error) => tracing::error!(run = %one.run, %error, "a fact cannot be written"),
            }
        }
        self.inbox.put(encoded).await.map_err(failed)
    }
}
