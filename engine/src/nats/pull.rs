//! Continuous pull from a work queue, through outages, lost streams and stuck consumers.

use super::link::Link;
use async_nats::jetstream::{
    Message,
    consumer::{AckPolicy, PullConsumer, pull},
};
use futures::StreamExt;
use std::{sync::Arc, time::Duration};
use tokio::sync::{Notify, mpsc};

/// Messages in one request.
const PULL_MAX: usize = 512;
/// Time after which an unacknowledged message is redelivered.
const CLAIM: Duration = Duration::from_secs(10);
/// Heartbeat interval of an idle server. Two misses end the pull.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Time without a message after which the consumer is checked. A stuck consumer is recreated.
const QUIET_MAX: Duration = Duration::from_secs(30);
/// Most unacknowledged messages, over all engines.
const UNSETTLED_MAX: i64 = 20_000;

/// Source of a pull.
pub(super) struct Source {
    pub(super) stream: String,
    pub(super) consumer: &'static str,
    pub(super) filter: String,
}

/// Pulls into `out` until the receiver is dropped. `trouble` is notified when a pull ends, to check whether the
/// stream is still the same.
pub(super) async fn pull_for_ever(
    link: Arc<Link>,
    source: Source,
    out: mpsc::Sender<Message>,
    trouble: Arc<Notify>,
) {
    let mut wait = Duration::from_millis(50);
    while !out.is_closed() {
        match consumer(&link, &source).await {
            Ok(consumer) => {
                if pull(&link, &consumer, &out).await {
                    wait = Duration::from_millis(50);
                }
            }
            Err(why) => tracing::debug!(stream = source.stream, why, "no consumer"),
        }
        trouble.notify_one();
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(2));
    }
}

async fn consumer(link: &Link, source: &Source) -> Result<PullConsumer, String> {
    let config = pull::Config {
        durable_name: Some(source.consumer.to_owned()),
        filter_subject: source.filter.clone(),
        ack_policy: AckPolicy::Explicit,
        ack_wait: CLAIM,
        max_ack_pending: UNSETTLED_MAX,
        ..pull::Config::default()
    };
    link.js
        .create_consumer_on_stream(config, source.stream.as_str())
        .await
        .map_err(|error| error.to_string())
}

/// Runs one pull until it fails. The answer is whether it delivered anything.
async fn pull(link: &Link, consumer: &PullConsumer, out: &mpsc::Sender<Message>) -> bool {
    let pulling = consumer
        .stream()
        .max_messages_per_batch(PULL_MAX)
        .heartbeat(HEARTBEAT)
        .expires(QUIET_MAX)
        .messages()
        .await;
    let Ok(mut messages) = pulling else {
        return false;
    };
    let mut brought = false;
    loop {
        match tokio::time::timeout(QUIET_MAX, messages.next()).await {
            Ok(Some(Ok(message))) => {
                brought = true;
                if out.send(message).await.is_err() {
                    return brought;
                }
            }
            Ok(Some(Err(error))) => {
                tracing::debug!(%error, "a pull ends");
                return brought;
            }
            Ok(None) => return brought,
            Err(_) if stuck(link, consumer).await => return brought,
            Err(_) => {}
        }
    }
}

/// Deletes a consumer that delivers nothing although messages are pending and there is room. The next one is new, and
/// begins with the unacknowledged messages.
async fn stuck(link: &Link, consumer: &PullConsumer) -> bool {
    let Ok(info) = consumer.get_info().await else {
        return true;
    };
    let full = i64::try_from(info.num_ack_pending).is_ok_and(|pending| pending >= UNSETTLED_MAX);
    if info.num_pending == 0 || full {
        return false;
    }
    tracing::warn!(
        consumer = info.name,
        pending = info.num_pending,
        "a consumer is stuck"
    );
    let _ = link
        .js
        .delete_consumer_from_stream(&info.name, &info.stream_name)
        .await;
    true
}
