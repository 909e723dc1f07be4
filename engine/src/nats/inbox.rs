//! Inbox on NATS: a work queue in memory for messages, and beside it the due timers.

use super::{
    link::Link,
    post::Outgoing,
    pull::{Source, pull_for_ever},
};
use crate::port::{Ack, Delivery, Inbox, StoreError};
use async_nats::{HeaderMap, Subject, jetstream::Message};
use bytes::Bytes;
use dormer_proto::id::RunId;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, mpsc},
    task::JoinHandle,
};

/// Most messages that wait in this process. More stay on the server for other engines.
const WAITING_MAX: usize = 1_024;
/// Time that acknowledging may block the engine in an outage. Unacknowledged messages come again.
const ACK_MAX: Duration = Duration::from_secs(2);
/// Name of the consumer that all engines share.
const CONSUMER: &str = "engines";

/// Inbox of a NATS store.
pub struct NatsInbox {
    link: Arc<Link>,
    trouble: Arc<Notify>,
    out: mpsc::Sender<Message>,
    // Only one caller takes at a time, because the receiver cannot be shared.
    come: AsyncMutex<mpsc::Receiver<Message>>,
    /// Reply subject of each delivery. Lock held for one map operation, never across an await.
    unsettled: Mutex<HashMap<u64, Subject>>,
    token: AtomicU64,
    pulls: OnceLock<[JoinHandle<()>; 2]>,
}

impl NatsInbox {
    pub(super) fn new(link: Arc<Link>, trouble: &Arc<Notify>) -> Self {
        let (out, come) = mpsc::channel(WAITING_MAX);
        Self {
            link,
            trouble: Arc::clone(trouble),
            out,
            come: AsyncMutex::new(come),
            unsettled: Mutex::default(),
            token: AtomicU64::new(0),
            pulls: OnceLock::new(),
        }
    }

    /// Begins to pull. A process that only puts messages or reads history never does: it would withhold messages from
    /// engines.
    fn begin(&self) {
        let names = &self.link.names;
        let inbox_messages = (names.inbox_stream(), names.inbox_messages());
        let timers_due = (names.alarm_stream(), names.all_timers_due());
        self.pulls.get_or_init(|| {
            [inbox_messages, timers_due].map(|(stream, filter)| {
                let source = Source {
                    stream,
                    consumer: CONSUMER,
                    filter,
                };
                let out = self.out.clone();
                let trouble = Arc::clone(&self.trouble);
                tokio::spawn(pull_for_ever(Arc::clone(&self.link), source, out, trouble))
            })
        });
    }

    fn stop(&self) {
        self.pulls
            .get()
            .into_iter()
            .flatten()
            .for_each(JoinHandle::abort);
    }

    fn delivery(&self, message: Message) -> Option<Delivery> {
        let cause = message.info().map_or_else(
            |_| "?".into(),
            |info| format!("{}:{}", info.stream, info.stream_sequence),
        );
        let reply = message.message.reply?;
        let token = self.token.fetch_add(1, Ordering::Relaxed);
        self.unsettled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(token, reply);
        Some(Delivery {
            bytes: message.message.payload.to_vec(),
            token,
            cause,
        })
    }

    /// Stops taking, and returns waiting messages, so that other engines need not wait for the claims to expire.
    pub(super) async fn close(&self) {
        self.stop();
        let mut come = self.come.lock().await;
        come.close();
        let mut acks = Vec::new();
        while let Ok(message) = come.try_recv() {
            acks.extend(
                self.delivery(message)
                    .map(|delivery| (delivery.token, Ack::Again(0))),
            );
        }
        self.acknowledge(acks).await;
        let _ = tokio::time::timeout(ACK_MAX, self.link.client.flush()).await;
    }
}

impl Drop for NatsInbox {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inbox for NatsInbox {
    async fn take(&self, max: usize) -> Result<Vec<Delivery>, StoreError> {
        self.begin();
        let mut come = self.come.lock().await;
        let mut messages = Vec::new();
        loop {
            tokio::select! {
                // An engine must not wait for messages of a store that has broken down.
                () = tokio::time::sleep(Duration::from_secs(1)) => self.link.sound()?,
                count = come.recv_many(&mut messages, max.max(1)) => {
                    if count == 0 {
                        return Err(StoreError::Unavailable("the inbox is closed".into()));
                    }
                    return Ok(messages.into_iter().filter_map(|m| self.delivery(m)).collect());
                }
            }
        }
    }

    async fn put(&self, inbox_messages: Vec<(RunId, Vec<u8>)>) -> Result<(), StoreError> {
        let messages = inbox_messages.into_iter().map(|(run, bytes)| Outgoing {
            subject: self.link.names.inbox(&run),
            headers: HeaderMap::new(),
            body: bytes.into(),
        });
        for result in self.link.post.publish(messages.collect()).await {
            result?;
        }
        Ok(())
    }

    async fn tell(&self, inbox_messages: Vec<(RunId, Vec<u8>)>) -> Result<(), StoreError> {
        for (run, bytes) in inbox_messages {
            let sent = self
                .link
                .client
                .publish(self.link.names.inbox(&run), bytes.into())
                .await;
            sent.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        }
        Ok(())
    }

    async fn acknowledge(&self, acks: Vec<(u64, Ack)>) {
        let replies: Vec<(Subject, Ack)> = {
            let mut unsettled = self
                .unsettled
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let take = |(token, ack)| Some((unsettled.remove(&token)?, ack));
            acks.into_iter().filter_map(take).collect()
        };
        let all = async {
            for (reply, ack) in replies {
                let word = match ack {
                    Ack::Done => Bytes::from_static(b"+ACK"),
                    Ack::Again(0) => Bytes::from_static(b"-NAK"),
                    Ack::Again(ms) => {
                        format!("-NAK {{\"delay\": {}}}", ms.saturating_mul(1_000_000)).into()
                    }
                };
                if self.link.client.publish(reply, word).await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(ACK_MAX, all).await;
    }
}
