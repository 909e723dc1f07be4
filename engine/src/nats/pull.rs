//! Continuous pull from work queues, through outages, lost streams and stuck consumers.

use super::{
    connect::ANSWER_MAX,
    consumers::{
        CONSUMER, FRUITLESS_MAX, KeptConsumer, PullEnd, is_changed, make_consumer, shared, stuck,
    },
    credit::CreditPool,
    link::Link,
    old_inbox,
    requests::{Lost, Requests, TIMERS_EXPIRE, Wanted},
    share::{Rank, Ranks},
    silent::PARTITION_EXPIRES,
    unacked::{Key, UnackedMessages},
};
use async_nats::jetstream::{
    Message,
    consumer::{PriorityPolicy, PullConsumer, pull},
};
use futures::StreamExt;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, timeout},
};

/// Most messages in one request for due timers, or from the old inbox.
const PULL_MAX: usize = 256;
/// Most messages in one request for a partition. Each partition has a request open, and half of another.
const PARTITION_PULL_MAX: usize = 16;
/// Heartbeat interval of an idle server. Two misses end the pull. For 64 partitions it costs a server 0.3 % of a core, as
/// much as heartbeats every ten seconds do.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Time without a message after which the consumer is checked. A stuck consumer is recreated.
const QUIET_MAX: Duration = Duration::from_secs(60);
/// Most unacknowledged messages of one partition.
const PARTITION_UNACKED_MAX: i64 = 1_000;
/// Time without engines after which the server deletes the consumer of a partition: a build that has one consumer for
/// all of them can then begin. The messages stay.
const UNUSED_MAX: Duration = Duration::from_secs(300);
/// Name of the one priority group of a consumer.
const GROUP: &str = "engines";

/// Interval at which an engine looks for an inbox of earlier builds.
const OLD_AGAIN: Duration = Duration::from_secs(60);
/// Interval at which it asks for their messages. It does not wait on the server: who waits there is an earlier build.
const OLD_ASK_EVERY: Duration = Duration::from_millis(500);
/// Interval at which the client's count of connections is read.
const CONNECTIONS_EVERY: Duration = Duration::from_millis(250);

/// Where pulled messages go.
#[derive(Clone)]
pub(super) struct Sink {
    pub(super) link: Arc<Link>,
    pub(super) out: mpsc::Sender<Message>,
    pub(super) held: Arc<UnackedMessages>,
    /// Notified when a pull ends, to check whether the stream is still the same.
    pub(super) trouble: Arc<Notify>,
    /// Number of connections so far: requests of an earlier one are gone.
    pub(super) connections: watch::Receiver<u64>,
}

impl Sink {
    /// Passes a message on, unless a shard has it already. It does not wait: there is room for all that credit allows.
    /// `false`: the receiver is gone.
    async fn pass(&self, message: Message, key: Key, pool: CreditPool) -> bool {
        let Some(reply) = message.reply.clone() else {
            return true;
        };
        if !self.held.add(key, reply, pool, message.length) {
            tracing::debug!(subject = %message.subject, "a repeat of a held message");
            return true;
        }
        self.out.send(message).await.is_ok()
    }

    async fn requests(&self, wanted: Wanted) -> Result<Requests, String> {
        Requests::begin(&self.link, &self.held, wanted).await
    }
}

/// Number of connections that the client has had.
pub(super) fn connections_of(link: &Link) -> u64 {
    link.client.statistics().connects.load(Ordering::Relaxed)
}

/// Counts connections until cancelled.
pub(super) async fn count_connections(link: Arc<Link>, connections: watch::Sender<u64>) {
    loop {
        let now = connections_of(&link);
        connections.send_if_modified(|before| std::mem::replace(before, now) != now);
        tokio::time::sleep(CONNECTIONS_EVERY).await;
    }
}

/// Pause after a pull that ended. It grows while pulls bring nothing.
struct Pause(Duration);

impl Pause {
    const LEAST: Duration = Duration::from_millis(50);

    async fn after(&mut self, brought: bool) {
        if brought {
            self.0 = Self::LEAST;
        }
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(Duration::from_secs(2));
    }
}

/// Pulls due timers until the receiver is dropped.
pub(super) async fn run_timer_pull(sink: Sink) {
    let names = &sink.link.names;
    let stream = names.alarm_stream();
    let mut kept = KeptConsumer::new(&stream, shared(names.all_timers_due()));
    let mut pause = Pause(Pause::LEAST);
    while !sink.out.is_closed() {
        let mut end = PullEnd::default();
        if let Some(consumer) = kept.get(&sink.link).await {
            let wanted = Wanted {
                stream: stream.clone(),
                consumer: CONSUMER.to_owned(),
                group: None,
                pool: CreditPool::Shared,
                most: PULL_MAX,
                expires: TIMERS_EXPIRE,
                heartbeat: HEARTBEAT,
            };
            if let Ok(requests) = sink.requests(wanted).await {
                end = pull(&sink, consumer, requests, CreditPool::Shared, None).await;
            }
        }
        kept.ended(end).await;
        sink.trouble.notify_one();
        pause.after(end.brought).await;
    }
}

/// Pulls one partition of the inbox while this engine has a rank for it, until the receiver is dropped.
pub(super) async fn run_partition_pull(
    sink: Sink,
    partition: u64,
    mut share: watch::Receiver<Ranks>,
) {
    let stream = sink.link.names.inbox_stream();
    let name = format!("{CONSUMER}-{partition}");
    let config = pull::Config {
        durable_name: Some(name.clone()),
        filter_subject: sink.link.names.inbox_partition(partition),
        max_ack_pending: PARTITION_UNACKED_MAX,
        inactive_threshold: UNUSED_MAX,
        priority_policy: PriorityPolicy::Prioritized,
        priority_groups: vec![GROUP.to_owned()],
        ..shared(String::new())
    };
    let pool = CreditPool::Partition(partition);
    let mut pause = Pause(Pause::LEAST);
    let mut kept = KeptConsumer::new(&stream, config);
    while !sink.out.is_closed() {
        let Some(rank) = rank_of(&mut share, partition) else {
            if share.changed().await.is_err() {
                return;
            }
            continue;
        };
        let mut end = PullEnd::default();
        if let Some(consumer) = kept.get(&sink.link).await {
            let wanted = Wanted {
                stream: stream.clone(),
                consumer: name.clone(),
                group: Some((GROUP, rank.priority())),
                pool,
                most: PARTITION_PULL_MAX,
                expires: PARTITION_EXPIRES,
                heartbeat: HEARTBEAT,
            };
            if let Ok(requests) = sink.requests(wanted).await {
                let own = Some((partition, rank, &mut share));
                end = pull(&sink, consumer, requests, pool, own).await;
            }
        }
        kept.ended(end).await;
        if !end.for_rank {
            sink.trouble.notify_one();
            pause.after(end.brought).await;
        }
    }
}

fn rank_of(share: &mut watch::Receiver<Ranks>, partition: u64) -> Option<Rank> {
    let at = usize::try_from(partition).unwrap_or(usize::MAX);
    share.borrow_and_update().get(at).copied().flatten()
}

/// Takes messages out of the inbox of earlier builds while there is one, until the receiver is dropped.
pub(super) async fn run_old_inbox_pull(sink: Sink) {
    let names = &sink.link.names;
    let config = shared(names.old_inbox_messages());
    let stream = names.old_inbox_stream();
    while !sink.out.is_closed() {
        if !matches!(old_inbox::exists(&sink.link).await, Ok(true)) {
            tokio::time::sleep(OLD_AGAIN).await;
            continue;
        }
        if let Ok(consumer) = make_consumer(&sink.link, &stream, config.clone()).await {
            while ask(&sink, &consumer).await {
                tokio::time::sleep(OLD_ASK_EVERY).await;
            }
        }
        tokio::time::sleep(OLD_ASK_EVERY).await;
    }
}

/// Takes what is there now. `false`: the server did not answer.
async fn ask(sink: &Sink, consumer: &PullConsumer) -> bool {
    loop {
        let credit = sink.held.credit.ask(CreditPool::Shared, PULL_MAX).await;
        let (came, answered) = fetch(sink, consumer, credit).await;
        sink.held
            .credit
            .give_back(CreditPool::Shared, credit - came);
        if !answered || came == 0 {
            return answered;
        }
    }
}

/// Fetches at most `most` messages. Returns how many came, and whether the server answered to the end.
async fn fetch(sink: &Sink, consumer: &PullConsumer, most: usize) -> (usize, bool) {
    let asked = consumer.fetch().max_messages(most).messages();
    let Ok(Ok(mut messages)) = timeout(ANSWER_MAX, asked).await else {
        return (0, false);
    };
    let mut came = 0;
    while came < most {
        match timeout(ANSWER_MAX, messages.next()).await {
            Ok(Some(Ok(message))) => {
                let Some(key) = Key::of(&message) else {
                    continue;
                };
                came += 1;
                if !sink.pass(message, key, CreditPool::Shared).await {
                    return (came, false);
                }
            }
            Ok(None) => break,
            Ok(Some(Err(_))) | Err(_) => return (came, false),
        }
    }
    (came, true)
}

/// The engine's new rank for a partition, when it changes.
///
/// # Errors
/// The share ends.
async fn changed(
    own: &mut Option<(u64, Rank, &mut watch::Receiver<Ranks>)>,
) -> Result<Option<Rank>, watch::error::RecvError> {
    let Some((partition, rank, share)) = own else {
        return std::future::pending().await;
    };
    loop {
        share.changed().await?;
        let now = rank_of(share, *partition);
        if now != Some(*rank) {
            return Ok(now);
        }
    }
}

/// Runs one pull until it fails, or until this engine's rank changes.
async fn pull(
    sink: &Sink,
    consumer: &PullConsumer,
    mut requests: Requests,
    pool: CreditPool,
    mut own: Option<(u64, Rank, &mut watch::Receiver<Ranks>)>,
) -> PullEnd {
    let mut end = PullEnd::default();
    let mut connections = sink.connections.clone();
    connections.mark_unchanged();
    let mut quiet_since = Instant::now();
    let mut silences = 0;
    loop {
        // One engine of those that read a partition examines its consumer.
        let examines = !matches!(own, Some((_, Rank::Second, _)));
        let few = requests.are_few();
        let credit = requests.credit();
        let came = tokio::select! {
            biased;
            came = requests.next() => came,
            now = changed(&mut own) => {
                // It continues to read, or begins to. Its open requests keep their priority until they end. If others'
                // are served before them now, it asks for the same again.
                if let (Some((_, rank, _)), Ok(Some(Rank::First(priority)))) = (&mut own, &now) {
                    if rank.priority() > *priority {
                        requests.forget();
                    }
                    *rank = Rank::First(*priority);
                    requests.ask_with(*priority);
                    continue;
                }
                // What the server has sent already is this engine's.
                end.for_rank = now.is_ok();
                requests.end().await;
                while let Some((message, key)) = requests.last().await {
                    end.brought = true;
                    if !sink.pass(message, key, pool).await {
                        break;
                    }
                }
                return end;
            }
            Ok(()) = connections.changed() => {
                requests.forget();
                continue;
            }
            messages = credit, if few => {
                requests.send(messages).await;
                continue;
            }
        };
        match came {
            Ok(Some((message, key))) => {
                end.brought = true;
                silences = 0;
                quiet_since = Instant::now();
                if !sink.pass(message, key, pool).await {
                    return end;
                }
            }
            Err(Lost::Silence) => {
                // It waits where it is for what a server that stands still sends later.
                requests.forget();
                sink.trouble.notify_one();
                silences += 1;
                if examines && silences >= FRUITLESS_MAX {
                    silences = 0;
                    end.without_consumer = is_changed(consumer).await;
                    if end.without_consumer {
                        return end;
                    }
                }
            }
            Err(lost) => {
                tracing::debug!(?lost, "a pull ends");
                end.without_consumer = matches!(lost, Lost::Consumer(_));
                return end;
            }
            Ok(None) if examines && quiet_since.elapsed() >= QUIET_MAX => {
                quiet_since = Instant::now();
                end.without_consumer = stuck(&sink.link, consumer).await;
                if end.without_consumer {
                    return end;
                }
            }
            Ok(None) => silences = 0,
        }
    }
}
