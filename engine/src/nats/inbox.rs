//! The inbox: a work queue in memory for letters, and beside it the rings of alarms.

use super::{
    link::Link,
    post::Outgoing,
    pull::{Source, pull_for_ever},
};
use crate::port::{Delivery, Inbox, Settle, StoreError};
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

/// Letters that wait in this process; more stay in the server, for other engines.
const WAITING_MAX: usize = 1_024;
/// How long settling may hold up the engine in an outage: what is not settled comes again.
const SETTLE_MAX: Duration = Duration::from_secs(2);
/// The name under which the engines share a queue.
const CONSUMER: &str = "engines";

/// The inbox of a NATS store.
pub struct NatsInbox {
    link: Arc<Link>,
    trouble: Arc<Notify>,
    out: mpsc::Sender<Message>,
    // One taker at a time: the receiver cannot be shared.
    come: AsyncMutex<mpsc::Receiver<Message>>,
    /// Where each delivery is settled. A lock: held for a map operation, never across an await.
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

    /// Begins to pull. A process that only puts letters or reads history never does, or it would hold back letters
    /// that an engine waits for.
    fn begin(&self) {
        let names = &self.link.names;
        let letters = (names.inbox_stream(), names.inbox_letters());
        let rings = (names.alarm_stream(), names.ring_all());
        self.pulls.get_or_init(|| {
            [letters, rings].map(|(stream, filter)| {
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

    /// Stops taking, and gives back what waits here so that other engines need not wait for the claim to lapse.
    pub(super) async fn close(&self) {
        self.stop();
        let mut come = self.come.lock().await;
        come.close();
        let mut fates = Vec::new();
        while let Ok(message) = come.try_recv() {
            fates.extend(
                self.delivery(message)
                    .map(|delivery| (delivery.token, Settle::Again(0))),
            );
        }
        self.settle(fates).await;
        let _ = tokio::time::timeout(SETTLE_MAX, self.link.client.flush()).await;
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
                // A store that breaks down must not leave its engine waiting for letters.
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

    async fn put(&self, letters: Vec<(RunId, Vec<u8>)>) -> Result<(), StoreError> {
        let messages = letters.into_iter().map(|(run, bytes)| Outgoing {
            subject: self.link.names.inbox(&run),
            headers: HeaderMap::new(),
            body: bytes.into(),
        });
        for result in self.link.post.publish(messages.collect()).await {
            result?;
        }
        Ok(())
    }

    async fn tell(&self, letters: Vec<(RunId, Vec<u8>)>) -> Result<(), StoreError> {
        for (run, bytes) in letters {
            let sent = self
                .link
                .client
                .publish(self.link.names.inbox(&run), bytes.into())
                .await;
            sent.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        }
        Ok(())
    }

    async fn settle(&self, fates: Vec<(u64, Settle)>) {
        let replies: Vec<(Subject, Settle)> = {
            let mut unsettled = self
                .unsettled
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let take = |(token, fate)| Some((unsettled.remove(&token)?, fate));
            fates.into_iter().filter_map(take).collect()
        };
        let all = async {
            for (reply, fate) in replies {
                let word = match fate {
                    Settle::Done => Bytes::from_static(b"+ACK"),
                    Settle::Again(0) => Bytes::from_static(b"-NAK"),
                    Settle::Again(ms) => {
                        format!("-NAK {{\"delay\": {}}}", ms.saturating_mul(1_000_000)).into()
                    }
                };
                if self.link.client.publish(reply, word).await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(SETTLE_MAX, all).await;
    }
}
