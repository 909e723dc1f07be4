//! Inbox on NATS: a work queue in memory for messages, and beside it the due timers.
//!
//! The queue holds one message for each address. What a subject says of its message must be true, because the server's
//! permissions know subjects only.

use super::{
    consumers::delete_shared_consumer,
    credit::{CreditPool, HELD_MAX},
    dead_letters::NatsDead,
    link::Link,
    publish::Outgoing,
    pull::{
        Sink, connections_of, count_connections, run_old_inbox_pull, run_partition_pull,
        run_timer_pull,
    },
    share::{Ranks, YIELD, YieldDeadlines, announce_end, in_reserve, run_partition_share},
    unacked::{Key, UnackedMessages, run_extension},
};
use crate::port::{Ack, Clock, DeadLetter, DeadLetters, Delivery, Inbox, StoreError, SystemClock};
use async_nats::{Subject, jetstream::Message};
use bytes::Bytes;
use dormer_nats::signing::{Refusal, SignedAt};
use dormer_proto::{
    address::{Address, Kind, Origin},
    id::RunId,
    lock::Locked as _,
    subject::{Names, PARTITIONS, partition_of},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, mpsc, watch},
    task::JoinHandle,
    time::Instant,
};

/// Time that acknowledging may block the engine in an outage. Unacknowledged messages come again.
const ACK_MAX: Duration = Duration::from_secs(2);

/// Most notes about refused messages among the dead letters, of one process. All are counted.
const NOTES_MAX: u64 = 100;
/// Time for which a person's request is accepted after it was signed. Its caller has timed out long before.
const REQUEST_AGE_MAX: Duration = Duration::from_secs(600);

/// Message that is not acknowledged.
struct Unacknowledged {
    reply: Subject,
    key: Option<Key>,
    partition: Option<u64>,
}

/// Inbox of a NATS store.
pub struct NatsInbox {
    link: Arc<Link>,
    trouble: Arc<Notify>,
    out: mpsc::Sender<Message>,
    // Only one caller takes at a time, because the receiver cannot be shared.
    come: AsyncMutex<mpsc::Receiver<Message>>,
    /// By the token of each delivery. Lock held for one map operation, never across an await.
    unacknowledged: Mutex<HashMap<u64, Unacknowledged>>,
    held: Arc<UnackedMessages>,
    token: AtomicU64,
    pulls: OnceLock<Vec<JoinHandle<()>>>,
    origin: Origin,
    /// Notes about refused messages that this process may still make, so that a flood does not fill the dead letters.
    notes: AtomicU64,
    /// Number of this process among engines.
    engine: u64,
    share: watch::Sender<Ranks>,
    /// Partitions with messages for a newer build.
    yielded: watch::Sender<YieldDeadlines>,
}

impl NatsInbox {
    pub(super) fn new(link: Arc<Link>, trouble: &Arc<Notify>, origin: Origin) -> Self {
        let (out, come) = mpsc::channel(HELD_MAX);
        Self {
            link,
            trouble: Arc::clone(trouble),
            out,
            come: AsyncMutex::new(come),
            unacknowledged: Mutex::default(),
            held: Arc::default(),
            token: AtomicU64::new(0),
            pulls: OnceLock::new(),
            origin,
            notes: AtomicU64::new(NOTES_MAX),
            engine: rand::random(),
            share: watch::Sender::new(in_reserve(PARTITIONS)),
            yielded: watch::Sender::default(),
        }
    }

    /// Ranks of this engine.
    pub(super) fn share(&self) -> watch::Receiver<Ranks> {
        self.share.subscribe()
    }

    /// Begins to pull. A process that only puts messages or reads history never does: it would withhold messages from
    /// engines.
    fn begin(&self) {
        self.pulls.get_or_init(|| {
            let link = Arc::clone(&self.link);
            let (counted, connections) = watch::channel(connections_of(&link));
            let sink = Sink {
                link: Arc::clone(&link),
                out: self.out.clone(),
                held: Arc::clone(&self.held),
                trouble: Arc::clone(&self.trouble),
                connections,
            };
            let share = self.share.clone();
            let yielded = self.yielded.subscribe();
            let mut pulls = vec![
                tokio::spawn(count_connections(Arc::clone(&link), counted)),
                tokio::spawn(run_timer_pull(sink.clone())),
                tokio::spawn(run_old_inbox_pull(sink.clone())),
                tokio::spawn(run_partition_share(
                    Arc::clone(&link),
                    self.engine,
                    share,
                    yielded,
                )),
                tokio::spawn(run_extension(Arc::clone(&link), Arc::clone(&self.held))),
                tokio::spawn(async move { delete_shared_consumer(&link).await }),
            ];
            pulls.extend((0..PARTITIONS).map(|partition| {
                let share = self.share.subscribe();
                tokio::spawn(run_partition_pull(sink.clone(), partition, share))
            }));
            pulls
        });
    }

    /// Run of a due timer that goes into the inbox. Either another engine reads the run's partition first, and has the run
    /// in memory. Or no credit is left for the run, and its timer would delay those of others.
    fn to_pass_on(&self, message: &Message) -> Option<RunId> {
        let rings = self.link.names.all_timers_due();
        let run = Names::run_of(&message.subject).filter(|_| is_of(&rings, &message.subject))?;
        let partition = partition_of(&run);
        let at = usize::try_from(partition).ok()?;
        let of_another = matches!(self.share.borrow().get(at), Some(None));
        let waits = || {
            self.held
                .credit
                .is_used_up(CreditPool::Partition(partition))
        };
        (of_another || waits()).then_some(run)
    }

    /// Puts due timers into the inbox that this engine cannot take now. Returns the other messages, and those that
    /// could not be passed on.
    async fn pass_on(&self, messages: Vec<Message>) -> Vec<Message> {
        let mut own = Vec::with_capacity(messages.len());
        let mut others = Vec::new();
        let mut passed = Vec::new();
        for message in messages {
            let run = self.to_pass_on(&message);
            let address = run.and_then(|run| {
                let address = Address::read(&message.payload)?;
                (address.run == run && address.kind == Kind::Timer).then_some(address)
            });
            let Some(address) = address else {
                own.push(message);
                continue;
            };
            let subject = self.link.names.message(Origin::Engine, &address);
            passed.push(Outgoing {
                headers: self
                    .link
                    .signature(Origin::Engine, &subject, &message.payload),
                subject,
                body: message.payload.clone(),
            });
            others.push(message);
        }
        if others.is_empty() {
            return own;
        }
        let results = self.link.publisher.publish(passed).await;
        for (message, result) in others.into_iter().zip(results) {
            match (result, message.reply.clone()) {
                (Ok(_), Some(reply)) => {
                    Key::of(&message).inspect(|key| self.held.remove(*key));
                    let done = Bytes::from_static(b"+ACK");
                    let _ = self.link.client.publish(reply, done).await;
                }
                _ => own.push(message),
            }
        }
        own
    }

    fn stop(&self) {
        self.pulls
            .get()
            .into_iter()
            .flatten()
            .for_each(JoinHandle::abort);
    }

    fn delivery(&self, message: Message) -> Option<Delivery> {
        let cause = stored_at(&message);
        let deliveries = message.info().map_or(1, |info| info.delivered);
        let unacknowledged = Unacknowledged {
            key: Key::of(&message),
            partition: self.partition(&message),
            reply: message.message.reply?,
        };
        let token = self.token.fetch_add(1, Ordering::Relaxed);
        self.unacknowledged.locked().insert(token, unacknowledged);
        Some(Delivery {
            bytes: message.message.payload.to_vec(),
            token,
            cause,
            deliveries: u32::try_from(deliveries).unwrap_or(u32::MAX),
        })
    }

    /// Partition of a message or of a due timer.
    fn partition(&self, message: &Message) -> Option<u64> {
        let names = &self.link.names;
        let run = match names.address_of(&message.subject) {
            Some((_, address)) => address.run,
            None => Names::run_of(&message.subject)?,
        };
        Some(partition_of(&run))
    }

    /// Leaves partitions to engines of other builds for a while.
    fn yields(&self, partitions: Vec<u64>) {
        if partitions.is_empty() {
            return;
        }
        let now = Instant::now();
        self.yielded.send_if_modified(|yielded| {
            let until = partitions.into_iter().map(|partition| {
                let before = yielded.insert(partition, now + YIELD);
                before.is_none_or(|before| before <= now)
            });
            // All of them: no short cut.
            until.fold(false, |any, new| any | new)
        });
    }

    /// Message that this process sends. Requests come from its console, in whatever process that is.
    fn outgoing(&self, run: &RunId, bytes: Vec<u8>) -> Result<Outgoing, StoreError> {
        let address = Address::of_bytes(run, &bytes);
        let keys = self.link.keys.as_ref();
        let console = keys.is_none_or(|keys| keys.signs_as(Origin::Console.as_str()));
        let origin = match (self.origin, address.kind) {
            (Origin::Engine, Kind::Request) if console => Origin::Console,
            (origin, _) => origin,
        };
        if keys.is_some() && !origin.may_sign(address.kind) {
            return Err(StoreError::Unavailable(format!(
                "no engine takes a {} that a {} signed: its own sender must send it again",
                address.kind.as_str(),
                origin.as_str()
            )));
        }
        let subject = self.link.names.message(origin, &address);
        Ok(Outgoing {
            headers: self.link.signature(origin, &subject, &bytes),
            subject,
            body: bytes.into(),
        })
    }

    /// Why a message may not be taken: its subject says something else, or its origin may not send it. What this build
    /// cannot read is left to the shard.
    fn forged(&self, message: &Message) -> Option<&'static str> {
        let subject = message.subject.as_str();
        if !is_of(&self.link.names.inbox_all(), subject) {
            return None;
        }
        let Some((origin, expected)) = self.link.names.address_of(subject) else {
            return Some("its subject names no origin, kind or partition of this build");
        };
        if !origin.may_send(expected.kind) {
            return Some("its origin may not send this kind");
        }
        let read = Address::read(&message.payload)?;
        (read != expected).then_some("its subject names another message")
    }

    /// Messages that the role of their subject signed. The others are refused, and nothing decodes them.
    async fn signed(&self, messages: Vec<Message>) -> Vec<Message> {
        let Some(keys) = &self.link.keys else {
            return messages;
        };
        let mut signed = Vec::with_capacity(messages.len());
        for message in messages {
            let names = &self.link.names;
            let subject = message.subject.as_str();
            let origin = match names.address_of(subject) {
                Some((origin, address)) => origin.may_sign(address.kind).then_some(origin),
                None => Some(Origin::Engine),
            };
            let content = (message.payload.as_ref(), message.headers.as_ref());
            let result = match origin {
                Some(origin) => self.link.verify(origin, subject, content).and_then(|at| {
                    // Others are stopped by the fences when they come again: by version, attempt, or number. A run
                    // remembers the ids of its last requests only.
                    let limited = origin == Origin::Console;
                    let fresh = match at.filter(|_| limited) {
                        Some(at) => at.within(REQUEST_AGE_MAX, SignedAt::now()),
                        None => Ok(()),
                    };
                    fresh.inspect_err(|refusal| keys.refused(*refusal, subject))
                }),
                None => {
                    keys.refused(Refusal::WrongRole, subject);
                    Err(Refusal::WrongRole)
                }
            };
            match result {
                Ok(()) => signed.push(message),
                Err(refusal) => self.refuse(&message, &refusal.to_string()).await,
            }
        }
        signed
    }

    /// Puts a note about a refused message among the dead letters. The message itself is not in it, so that no command puts
    /// it back. Nothing waits for the note: while its stream has no leader, engines continue.
    fn note(&self, message: &Message, why: &str) {
        let noted = self
            .notes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        if noted.is_err() {
            return;
        }
        let subject = message.subject.as_str();
        let run = match self.link.names.address_of(subject) {
            Some((_, address)) => Some(address.run),
            None => Names::run_of(subject),
        };
        let letter = DeadLetter {
            id: 0,
            run,
            reason: format!(
                "a message of {} bytes on {subject} was refused: {why}",
                message.payload.len()
            ),
            at: SystemClock.now(),
            origin: stored_at(message),
            bytes: Vec::new(),
        };
        // It is counted and logged in any case.
        let dead = NatsDead::new(Arc::clone(&self.link));
        tokio::spawn(async move {
            if let Err(error) = dead.put(letter).await {
                tracing::debug!(%error, "no note about a refused message");
            }
        });
    }

    /// Refuses a message for good. Senders of this build repeat theirs under the right subject.
    async fn refuse(&self, message: &Message, why: &str) {
        self.note(message, why);
        if let Some(reply) = message.reply.clone() {
            Key::of(message).inspect(|key| self.held.remove_refused(*key));
            let _ = self
                .link
                .client
                .publish(reply, Bytes::from_static(b"+TERM"))
                .await;
        }
    }

    /// Stops taking, and returns waiting messages, so that other engines need not wait for the claims to expire.
    pub(super) async fn close(&self) {
        if self.pulls.get().is_some() {
            announce_end(&self.link, self.engine).await;
        }
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
    fn held_max(&self) -> Option<usize> {
        Some(HELD_MAX)
    }

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
                    let signed = self.signed(std::mem::take(&mut messages)).await;
                    let own = self.pass_on(signed).await;
                    let mut deliveries = Vec::with_capacity(own.len());
                    for message in own {
                        match self.forged(&message) {
                            Some(why) => {
                                match &self.link.keys {
                                    Some(keys) => {
                                        keys.refused(Refusal::WrongSubject, message.subject.as_str());
                                    }
                                    None => {
                                        tracing::error!(subject = %message.subject, why, "a message is refused");
                                    }
                                }
                                self.refuse(&message, why).await;
                            }
                            None => deliveries.extend(self.delivery(message)),
                        }
                    }
                    if !deliveries.is_empty() {
                        return Ok(deliveries);
                    }
                }
            }
        }
    }

    async fn put(&self, inbox_messages: Vec<(RunId, Vec<u8>)>) -> Result<(), StoreError> {
        let mut messages = Vec::with_capacity(inbox_messages.len());
        for (run, bytes) in inbox_messages {
            messages.push(self.outgoing(&run, bytes)?);
        }
        for result in self.link.publisher.publish(messages).await {
            result?;
        }
        Ok(())
    }

    async fn put_unconfirmed(
        &self,
        inbox_messages: Vec<(RunId, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        for (run, bytes) in inbox_messages {
            let Outgoing {
                subject,
                headers,
                body,
            } = self.outgoing(&run, bytes)?;
            let sent = self.link.publish_plain(subject, headers, body).await;
            sent.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        }
        Ok(())
    }

    async fn acknowledge(&self, acks: Vec<(u64, Ack)>) {
        let replies: Vec<(Unacknowledged, Ack)> = {
            let mut unacknowledged = self.unacknowledged.locked();
            let take = |(token, ack)| Some((unacknowledged.remove(&token)?, ack));
            acks.into_iter().filter_map(take).collect()
        };
        let newer = replies
            .iter()
            .filter_map(|(unacknowledged, ack)| match ack {
                Ack::Newer(_) => unacknowledged.partition,
                Ack::Done | Ack::Again(_) => None,
            });
        self.yields(newer.collect());
        let keys = replies
            .iter()
            .filter_map(|(unacknowledged, _)| unacknowledged.key);
        keys.for_each(|key| self.held.remove(key));
        let all = async {
            for (Unacknowledged { reply, .. }, ack) in replies {
                let word = match ack {
                    Ack::Done => Bytes::from_static(b"+ACK"),
                    Ack::Again(0) => Bytes::from_static(b"-NAK"),
                    Ack::Again(ms) | Ack::Newer(ms) => {
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

/// Stream and sequence of a message.
fn stored_at(message: &Message) -> String {
    message.info().map_or_else(
        |_| "?".into(),
        |info| format!("{}:{}", info.stream, info.stream_sequence),
    )
}

/// Whether a subject lies below `all`, which ends with `>`.
fn is_of(all: &str, subject: &str) -> bool {
    all.strip_suffix('>')
        .is_some_and(|prefix| subject.starts_with(prefix))
}
