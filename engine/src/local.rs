//! Queues of one process: inbox, orders and alarms in memory, beside a store with the history.
//!
//! Nothing here must survive the process: facts are listed again, reports are repeated until receipted, a request is
//! confirmed only from the history, and orders and alarms follow from it (`outstanding()`).

use crate::port::{
    Ack, Alarms, Clock, Delivery, EndedTask, Inbox, OrderOut, StoreError, SystemClock, TaskQueue,
    earlier,
};
use dormer_nats::history_keys::HistoryKeys;
use dormer_proto::{
    envelope,
    id::{Attempt, Incarnation, RunId, TaskId, Timestamp},
    lock::Locked as _,
    message::{Inbound, InboxMessage, NoSignal, ReportReceipt},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// End of an encoded due timer: the name of [`Inbound::TimerDue`], the last field of the message in the last field of
/// its envelope.
const TIMER_DUE_END: &[u8] = b"\xa4Rang";

/// Whether this may be a due timer. Another message may end like one. The repeat of such a message is as superfluous.
fn is_timer_due(bytes: &[u8]) -> bool {
    bytes.ends_with(TIMER_DUE_END)
}

/// Inbox in memory. The sweep repeats a due timer of a run that cannot take it. A repeat of one that waits is dropped.
#[derive(Debug, Default)]
pub struct LocalInbox {
    inner: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Delivery>,
    taken: HashMap<u64, Delivery>,
    delayed: BTreeMap<(Instant, u64), Delivery>,
    /// Due timers that wait or come again later, with their deliveries, those of dropped repeats included. One that is in
    /// progress may be for an earlier deadline than its repeat.
    due: HashMap<Vec<u8>, u32>,
    last: u64,
}

impl Queue {
    /// Whether these bytes are a due timer that waits already. If not, it is to wait from now on. Either way the one that
    /// waits has at least as many `deliveries`.
    fn is_repeat(&mut self, bytes: &[u8], deliveries: u32) -> bool {
        if !is_timer_due(bytes) {
            return false;
        }
        match self.due.entry(bytes.to_vec()) {
            Entry::Occupied(mut waits) => {
                let most = deliveries.max(*waits.get());
                waits.insert(most);
                true
            }
            Entry::Vacant(free) => {
                free.insert(deliveries);
                false
            }
        }
    }

    fn release_delayed(&mut self, now: Instant) -> Option<Instant> {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                return Some(entry.key().0);
            }
            let delivery = entry.remove();
            self.waiting.push_back(delivery);
        }
        None
    }

    fn pull(&mut self, max: usize) -> Vec<Delivery> {
        let count = self.waiting.len().min(max);
        let mut pulled: Vec<Delivery> = self.waiting.drain(..count).collect();
        for delivery in &mut pulled {
            if is_timer_due(&delivery.bytes)
                && let Some(most) = self.due.remove(&delivery.bytes)
            {
                delivery.deliveries = delivery.deliveries.max(most);
            }
            self.taken.insert(delivery.token, delivery.clone());
        }
        pulled
    }

    fn acknowledge(&mut self, token: u64, ack: Ack, now: Instant) {
        let Some(mut delivery) = self.taken.remove(&token) else {
            return;
        };
        delivery.deliveries = delivery.deliveries.saturating_add(1);
        let repeat = ack != Ack::Done && self.is_repeat(&delivery.bytes, delivery.deliveries);
        match ack {
            Ack::Done => {}
            // Not of those for a newer build: the shard knows each of them, and drops the earlier ones itself.
            Ack::Again(_) if repeat => {}
            Ack::Again(0) => self.waiting.push_back(delivery),
            Ack::Again(ms) | Ack::Newer(ms) => {
                self.delayed
                    .insert((now + Duration::from_millis(ms), token), delivery);
            }
        }
    }
}

impl LocalInbox {
    /// Number of messages that wait, are in progress, or come again later.
    #[must_use]
    pub fn depth(&self) -> usize {
        let inner = self.inner.locked();
        inner.waiting.len() + inner.taken.len() + inner.delayed.len()
    }
}

impl Inbox for LocalInbox {
    async fn take(&self, max: usize) -> Result<Vec<Delivery>, StoreError> {
        loop {
            let arrived = self.arrived.notified();
            let next = {
                let mut inner = self.inner.locked();
                let next = inner.release_delayed(Instant::now());
                let pulled = inner.pull(max);
                if !pulled.is_empty() {
                    return Ok(pulled);
                }
                next
            };
            match next {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, arrived).await;
                }
                None => arrived.await,
            }
        }
    }

    async fn put(&self, messages: Vec<(RunId, Vec<u8>)>) -> Result<(), StoreError> {
        {
            let mut inner = self.inner.locked();
            for (_, bytes) in messages {
                if inner.is_repeat(&bytes, 1) {
                    continue;
                }
                inner.last += 1;
                let token = inner.last;
                inner.waiting.push_back(Delivery {
                    bytes,
                    token,
                    cause: format!("inbox:{token}"),
                    deliveries: 1,
                });
            }
        }
        self.arrived.notify_one();
        Ok(())
    }

    async fn acknowledge(&self, acks: Vec<(u64, Ack)>) {
        let again = {
            let mut inner = self.inner.locked();
            let now = Instant::now();
            let again = acks.iter().any(|(_, ack)| *ack != Ack::Done);
            for (token, ack) in acks {
                inner.acknowledge(token, ack, now);
            }
            again
        };
        if again {
            self.arrived.notify_one();
        }
    }
}

/// Identity of an order.
pub type OrderKey = (TaskId, Attempt);

/// Order queue in memory, for a worker of the same process.
#[derive(Debug, Default)]
pub struct LocalTasks {
    inner: Mutex<Orders>,
    arrived: Notify,
    receipted: Notify,
}

#[derive(Debug, Default)]
struct Orders {
    waiting: VecDeque<OrderOut>,
    /// Orders that wait or are taken. Publishing one of them again changes nothing.
    known: BTreeSet<OrderKey>,
    receipts: HashMap<OrderKey, ReportReceipt>,
}

impl LocalTasks {
    /// Takes at most `max` orders. It waits for the first one.
    pub async fn take(&self, max: usize) -> Vec<OrderOut> {
        loop {
            let arrived = self.arrived.notified();
            {
                let mut inner = self.inner.locked();
                let count = inner.waiting.len().min(max);
                if count > 0 {
                    let taken = inner.waiting.drain(..count).collect();
                    if !inner.waiting.is_empty() {
                        self.arrived.notify_one();
                    }
                    return taken;
                }
            }
            arrived.await;
        }
    }

    /// Returns an order whose worker stops before it reports.
    pub fn give_back(&self, order: OrderOut) {
        self.inner.locked().waiting.push_front(order);
        self.arrived.notify_one();
    }

    /// Waits for the receipt of a report. The caller sets a time limit and repeats its report.
    pub async fn receipt_of(&self, key: &OrderKey) -> ReportReceipt {
        loop {
            let receipted = self.receipted.notified();
            tokio::pin!(receipted);
            receipted.as_mut().enable();
            if let Some(receipt) = self.inner.locked().receipts.remove(key) {
                return receipt;
            }
            receipted.await;
        }
    }

    /// Receipts since the last call, for a worker that handles many orders in one task.
    pub fn receipts(&self) -> Vec<ReportReceipt> {
        self.inner
            .locked()
            .receipts
            .drain()
            .map(|(_, receipt)| receipt)
            .collect()
    }

    /// Number of orders that wait for a worker.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.locked().waiting.len()
    }
}

impl TaskQueue for LocalTasks {
    async fn publish(&self, orders: Vec<OrderOut>) -> Result<(), StoreError> {
        {
            let mut inner = self.inner.locked();
            let superseded = |order: &OrderOut| Some((order.task.clone(), order.superseded()?));
            let old: BTreeSet<OrderKey> = orders.iter().filter_map(superseded).collect();
            if !old.is_empty() {
                let Orders { waiting, known, .. } = &mut *inner;
                waiting.retain(|order| {
                    let key = (order.task.clone(), order.attempt);
                    let stays = !old.contains(&key);
                    if !stays {
                        known.remove(&key);
                    }
                    stays
                });
            }
            for order in orders {
                if inner.known.insert((order.task.clone(), order.attempt)) {
                    inner.waiting.push_back(order);
                }
            }
        }
        self.arrived.notify_one();
        Ok(())
    }

    async fn withdraw(&self, ended: Vec<EndedTask>) {
        let ended: BTreeSet<TaskId> = ended.into_iter().map(|ended| ended.task).collect();
        let mut inner = self.inner.locked();
        let Orders { waiting, known, .. } = &mut *inner;
        waiting.retain(|order| {
            let stays = !ended.contains(&order.task);
            if !stays {
                known.remove(&(order.task.clone(), order.attempt));
            }
            stays
        });
    }

    async fn receipt(&self, receipts: Vec<ReportReceipt>) {
        {
            let mut inner = self.inner.locked();
            for receipt in receipts {
                let key = (receipt.task.clone(), receipt.attempt);
                // A receipt without a waiter (of a late worker's second report) is dropped.
                if inner.known.remove(&key) {
                    inner.receipts.insert(key, receipt);
                }
            }
        }
        self.receipted.notify_waiters();
    }
}

/// Alarms in memory. [`deliver_due_timers`] fires them.
#[derive(Debug, Default)]
pub struct LocalAlarms {
    inner: Mutex<Due>,
    changed: Notify,
}

/// Alarm of an idle run, its only cost in this process: about 130 bytes, with the name stored once.
#[derive(Debug, Default)]
struct Due {
    by_run: HashMap<Arc<str>, Timestamp>,
    by_time: BTreeSet<(Timestamp, Arc<str>)>,
}

impl LocalAlarms {
    /// Number of runs with an alarm.
    #[must_use]
    pub fn set_for(&self) -> usize {
        self.inner.locked().by_run.len()
    }

    fn due(&self, now: Timestamp) -> (Vec<RunId>, Option<Timestamp>) {
        let mut inner = self.inner.locked();
        let mut due = Vec::new();
        while let Some((at, run)) = inner.by_time.first().cloned() {
            if at > now {
                return (due, Some(at));
            }
            inner.by_time.pop_first();
            inner.by_run.remove(&run);
            due.extend(run.parse::<RunId>().ok());
        }
        (due, None)
    }
}

impl Alarms for LocalAlarms {
    async fn set(&self, alarms: Vec<(RunId, Option<Timestamp>)>) -> Result<(), StoreError> {
        {
            let mut inner = self.inner.locked();
            for (run, at) in alarms {
                let old = inner.by_run.remove_entry(run.as_str());
                let set = old.as_ref().map(|(_, old)| *old);
                let name = old.map(|(name, old)| {
                    inner.by_time.remove(&(old, Arc::clone(&name)));
                    name
                });
                if let Some(at) = at {
                    // The run's shard and the pass at the start may set it at once, one of them from an older record.
                    // An alarm that fires early is set again.
                    let at = earlier(set, at);
                    let name = name.unwrap_or_else(|| Arc::from(run.as_str()));
                    inner.by_run.insert(Arc::clone(&name), at);
                    inner.by_time.insert((at, name));
                }
            }
        }
        self.changed.notify_one();
        Ok(())
    }
}

/// Message of a due timer.
#[must_use]
pub fn timer_due(run: &RunId, incarnation: Incarnation) -> Option<Vec<u8>> {
    let body: Inbound<(), (), NoSignal> = Inbound::TimerDue;
    let message = InboxMessage {
        run: run.clone(),
        incarnation: Some(incarnation),
        body,
    };
    envelope::encode(&message, 0).ok().map(|(bytes, _)| bytes)
}

/// Fires alarms as they come due by `clock`, until dropped.
pub async fn deliver_due_timers<C: Clock>(
    alarms: Arc<LocalAlarms>,
    inbox: Arc<LocalInbox>,
    clock: C,
    incarnation: Incarnation,
) {
    loop {
        let changed = alarms.changed.notified();
        let now = clock.now();
        let (due, next) = alarms.due(now);
        let messages = due
            .into_iter()
            .filter_map(|run| Some((run.clone(), timer_due(&run, incarnation)?)));
        let messages: Vec<_> = messages.collect();
        if !messages.is_empty() {
            // The in-memory inbox always accepts messages.
            let _ = inbox.put(messages).await;
        }
        match next {
            Some(at) => {
                let wait = clock.wait(at.since_ms(now)).max(Duration::from_millis(1));
                let _ = tokio::time::timeout(wait, changed).await;
            }
            None => changed.await,
        }
    }
}

/// Store with its queues, all in this process.
pub struct Local<S, C = SystemClock> {
    /// History and dead letters.
    pub store: Arc<S>,
    /// Messages.
    pub inbox: Arc<LocalInbox>,
    /// Orders.
    pub tasks: Arc<LocalTasks>,
    pub alarms: Arc<LocalAlarms>,
    /// The time.
    pub clock: C,
    pub history_keys: Option<Arc<HistoryKeys>>,
}

impl<S, C: Clock> Local<S, C> {
    /// Creates the queues for `store`.
    pub fn new(store: Arc<S>, clock: C) -> Self {
        Self {
            store,
            inbox: Arc::default(),
            tasks: Arc::default(),
            alarms: Arc::default(),
            clock,
            history_keys: None,
        }
    }

    /// The same with keys of the history.
    #[must_use]
    pub fn keyed_by(self, history_keys: Option<Arc<HistoryKeys>>) -> Self {
        Self {
            history_keys,
            ..self
        }
    }
}

impl<S, C> Local<S, C> {
    /// The same store and queues, with the system's clock.
    pub(crate) fn at_system_time(&self) -> Local<S> {
        Local {
            store: Arc::clone(&self.store),
            inbox: Arc::clone(&self.inbox),
            tasks: Arc::clone(&self.tasks),
            alarms: Arc::clone(&self.alarms),
            clock: SystemClock,
            history_keys: self.history_keys.clone(),
        }
    }
}

impl<S, C> crate::port::Ports for Local<S, C>
where
    S: crate::port::History
        + crate::port::HistoryReader
        + crate::port::DeadLetters
        + crate::port::Quarantine,
    C: Clock,
{
    type History = S;
    type Reader = S;
    type Inbox = LocalInbox;
    type Tasks = LocalTasks;
    type Alarms = LocalAlarms;
    type Dead = S;
    type Quarantine = S;
    type Clock = C;

    fn history(&self) -> &S {
        &self.store
    }
    fn reader(&self) -> &S {
        &self.store
    }
    fn inbox(&self) -> &LocalInbox {
        &self.inbox
    }
    fn tasks(&self) -> &LocalTasks {
        &self.tasks
    }
    fn alarms(&self) -> &LocalAlarms {
        &self.alarms
    }
    fn dead(&self) -> &S {
        &self.store
    }
    fn quarantine(&self) -> &S {
        &self.store
    }
    fn clock(&self) -> &C {
        &self.clock
    }
    fn history_keys(&self) -> Option<&HistoryKeys> {
        self.history_keys.as_deref()
    }
}
