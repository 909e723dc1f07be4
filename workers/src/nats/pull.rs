//! Pulls of orders: only while there are free slots. Waiting orders keep their claims.

use super::link::{NatsLink, failed};
use crate::port::PortError;
use async_nats::jetstream::{
    AckKind, Message,
    consumer::{AckPolicy, PullConsumer, pull},
};
use dormer_proto::{lock::Locked as _, subject::workers_consumer};
use futures::StreamExt;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

/// Time without heartbeat after which a claim lapses and its order is delivered again. Heartbeats come several
/// times as often.
pub const CLAIM: Duration = Duration::from_secs(10);
/// Most orders requested at once. Orders beyond the free slots would wait here, although other workers are free.
const PULL_MAX: usize = 32;
/// Duration of one request for orders at the server.
const PULL_FOR: Duration = Duration::from_secs(5);
/// Requests without an answer after which the consumer is checked: one that does not deliver pending orders is created
/// again.
const EMPTY_MAX: u32 = 6;
/// Orders delivered and not yet done, over all workers.
const UNACKNOWLEDGED_MAX: i64 = 20_000;
/// Longest pause after a pull that failed.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Orders as they came.
pub(super) struct Pulled(pub(super) Vec<Message>);

/// The pulls of one worker.
pub(super) struct Pulls {
    shared: Arc<Shared>,
    /// Ends with this.
    _pulling: JoinSet<()>,
}

struct Shared {
    /// A lock: held for a few queue operations, never across an await.
    here: Mutex<VecDeque<Message>>,
    come: Notify,
    /// Orders that there is room for.
    wanted: watch::Sender<usize>,
}

impl Shared {
    fn here(&self) -> MutexGuard<'_, VecDeque<Message>> {
        self.here.locked()
    }
}

impl Pulls {
    pub(super) fn start(link: &Arc<NatsLink>, classes: &[&str]) -> Self {
        let shared = Arc::new(Shared {
            here: Mutex::default(),
            come: Notify::new(),
            wanted: watch::Sender::new(0),
        });
        let mut pulling = JoinSet::new();
        for class in classes {
            pulling.spawn(run_pull(
                Arc::clone(link),
                (*class).to_owned(),
                Arc::clone(&shared),
            ));
        }
        pulling.spawn(run_upkeep(Arc::clone(&shared)));
        Self {
            shared,
            _pulling: pulling,
        }
    }

    /// Waits for orders and takes at most `limit`. Safe to cancel: fetched orders stay in the buffer.
    pub(super) async fn take(&self, limit: usize) -> Pulled {
        loop {
            let come = self.shared.come.notified();
            {
                let mut here = self.shared.here();
                let count = here.len().min(limit);
                if count > 0 {
                    self.shared.wanted.send_replace(0);
                    return Pulled(here.drain(..count).collect());
                }
            }
            self.shared
                .wanted
                .send_if_modified(|wanted| std::mem::replace(wanted, limit) != limit);
            come.await;
        }
    }
}

/// Keeps the claims of what waits here.
async fn run_upkeep(shared: Arc<Shared>) {
    loop {
        sleep(CLAIM / 3).await;
        let waiting: Vec<Message> = shared.here().iter().cloned().collect();
        for message in waiting {
            let _ = message.ack_with(AckKind::Progress).await;
        }
    }
}

async fn run_pull(link: Arc<NatsLink>, class: String, shared: Arc<Shared>) {
    let mut pause = Duration::from_millis(50);
    loop {
        match consumer(&link, &class).await {
            Ok(consumer) => {
                pause = Duration::from_millis(50);
                if let Err(error) = pull(&link, &consumer, &shared).await {
                    tracing::debug!(class, %error, "a pull ends");
                }
            }
            Err(error) => tracing::debug!(class, %error, "no orders can be had yet"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn consumer(link: &NatsLink, class: &str) -> Result<PullConsumer, PortError> {
    let config = pull::Config {
        durable_name: Some(workers_consumer(class)),
        filter_subject: link.names.orders(class),
        ack_policy: AckPolicy::Explicit,
        ack_wait: CLAIM,
        max_ack_pending: UNACKNOWLEDGED_MAX,
        ..pull::Config::default()
    };
    let made = link
        .js
        .create_consumer_on_stream(config, link.names.task_stream())
        .await;
    made.map_err(failed)
}

/// Requests orders repeatedly while there are free slots, until the consumer fails.
async fn pull(link: &NatsLink, consumer: &PullConsumer, shared: &Shared) -> Result<(), PortError> {
    let mut wanted = shared.wanted.subscribe();
    let mut empty = 0;
    loop {
        let room = *wanted
            .wait_for(|wanted| *wanted > 0)
            .await
            .map_err(failed)?;
        let asked = consumer
            .batch()
            .max_messages(room.min(PULL_MAX))
            .expires(PULL_FOR);
        let mut orders = asked.messages().await.map_err(failed)?;
        empty += 1;
        // The client's own timer ends the batch when the server forgets to.
        while let Ok(Some(order)) = timeout(PULL_FOR * 2, orders.next()).await {
            empty = 0;
            shared.here().push_back(order.map_err(failed)?);
            shared.come.notify_one();
        }
        if empty >= EMPTY_MAX {
            empty = 0;
            check(link, consumer).await?;
        }
    }
}

/// Deletes a consumer that delivers nothing although there are orders and free slots. The next one is created again and
/// begins with the first unacknowledged order.
async fn check(link: &NatsLink, consumer: &PullConsumer) -> Result<(), PortError> {
    let info = consumer.get_info().await.map_err(failed)?;
    let full =
        i64::try_from(info.num_ack_pending).is_ok_and(|pending| pending >= UNACKNOWLEDGED_MAX);
    if info.num_pending == 0 || full {
        return Ok(());
    }
    tracing::warn!(
        consumer = info.name,
        pending = info.num_pending,
        "a consumer is stuck"
    );
    let deleted = link
        .js
        .delete_consumer_from_stream(&info.name, &info.stream_name)
        .await;
    Err(PortError(match deleted {
        Ok(_) => "the consumer was stuck".into(),
        Err(error) => format!("the consumer {} is stuck: {error}", info.name),
    }))
}
