//! Headers of each subject's last message in one stream, through a consumer that receives only those.

use super::{connect::ANSWER_MAX, link::Link};
use crate::port::StoreError;
use async_nats::{Message, jetstream::consumer};
use futures::StreamExt;
use std::time::Duration;
use tokio::time::timeout;

/// Most time for one pass over a stream.
const PASS_MAX: Duration = Duration::from_secs(120);
/// Headers in one request.
const PAGE_MAX: usize = 5_000;

/// Calls `see` with every last message of the stream, without its body, and its sequence. `all` is every subject: a
/// consumer of last messages must name what it filters.
pub(super) async fn last_headers(
    link: &Link,
    name: &str,
    all: String,
    see: impl FnMut(&Message, u64),
) -> Result<(), StoreError> {
    let late = |_| StoreError::Unavailable(format!("reading heads of {name} took too long"));
    timeout(PASS_MAX, pass(link, name, all, see))
        .await
        .map_err(late)?
}

async fn pass(
    link: &Link,
    name: &str,
    all: String,
    mut see: impl FnMut(&Message, u64),
) -> Result<(), StoreError> {
    let lost = |e: String| StoreError::Unavailable(format!("reading heads of {name}: {e}"));
    let stream = link
        .js
        .get_stream(name)
        .await
        .map_err(|e| lost(e.to_string()))?;
    let end = stream.cached_info().state.last_sequence;
    let config = consumer::pull::Config {
        deliver_policy: consumer::DeliverPolicy::LastPerSubject,
        ack_policy: consumer::AckPolicy::None,
        filter_subject: all,
        headers_only: true,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: Duration::from_secs(30),
        ..consumer::pull::Config::default()
    };
    let consumer = stream
        .create_consumer(config)
        .await
        .map_err(|e| lost(e.to_string()))?;
    let mut pending = consumer.cached_info().num_pending;
    while pending > 0 {
        let page = consumer.fetch().max_messages(PAGE_MAX).messages().await;
        let mut page = page.map_err(|e| lost(e.to_string()))?;
        let before = pending;
        loop {
            // The request has no expiry, so the page of a server that died meanwhile would never end.
            let next = timeout(ANSWER_MAX, page.next()).await;
            let Some(message) = next.map_err(|_| lost("the page broke off".into()))? else {
                break;
            };
            let message = message.map_err(|e| lost(e.to_string()))?;
            let info = message.info().map_err(|e| lost(e.to_string()))?;
            let sequence = info.stream_sequence;
            pending = if sequence >= end { 0 } else { info.pending };
            see(&message.message, sequence);
        }
        if pending == before {
            return Err(lost("the page stayed empty".into()));
        }
    }
    let _ = stream.delete_consumer(&consumer.cached_info().name).await;
    Ok(())
}
