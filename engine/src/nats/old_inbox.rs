//! Inbox stream of builds before the partitions: engines read it while it exists, and delete it when it is unused.
//!
//! Workers, watchers and engines of those builds write to it, side by side with newer ones. A message that such a server
//! has acknowledged may not be lost, so it is deleted in two steps. First it is *closed*: its subjects go, and a late
//! message is refused ("no responders"), which its sender sees and repeats. What came before that is in the stream by
//! then. After a grace it is deleted, if it is still empty. An engine of such a build waits for messages without end,
//! and engines of this build do not: while anybody waits, the stream is open. An engine of such a build that finds it
//! missing creates it again.

use super::{link::Link, streams::find};
use crate::port::StoreError;
use async_nats::jetstream::stream::Info;
use dormer_proto::id::Timestamp;

/// Time without a message after which an empty old inbox is closed, in milliseconds.
const QUIET_MS: u64 = 24 * 3_600_000;
/// Time from closing to deletion, in milliseconds: longer than a publish is under way, and short, because an engine of
/// an earlier build that begins meanwhile refuses the closed stream.
const GRACE_MS: u64 = 10 * 60_000;
/// Name of its consumer, which engines of all builds share.
const CONSUMER: &str = "engines";
/// Key in the stream's metadata: when it was closed, in milliseconds.
const CLOSED: &str = "dormer-closed";

/// Whether there is an old inbox.
pub(super) async fn exists(link: &Link) -> Result<bool, StoreError> {
    let found = find(&link.js, &link.names.old_inbox_stream()).await;
    found
        .map(|info| info.is_some())
        .map_err(|e| StoreError::Unavailable(e.to_string()))
}

/// What an old inbox is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InboxUse {
    /// No consumer waits for a message, and only the marker is left, which is never consumed.
    Idle,
    /// Messages wait, or are being processed.
    Messages,
    /// An engine of an earlier build waits for messages.
    Awaited,
}

/// Closes and deletes an unused old inbox, a step at each call. Returns whether there is none.
pub(super) async fn retire(link: &Link, now: Timestamp) -> Result<bool, StoreError> {
    let failed = |e: String| StoreError::Unavailable(format!("examining the old inbox: {e}"));
    let name = link.names.old_inbox_stream();
    let found = find(&link.js, &name).await;
    let Some(info) = found.map_err(|e| failed(e.to_string()))? else {
        return Ok(true);
    };
    let used = used(link, &info).await.map_err(failed)?;
    let closed = info.config.metadata.get(CLOSED);
    let Some(closed) = closed.and_then(|at| at.parse().ok()).map(Timestamp) else {
        let newest = info.state.last_timestamp.max(info.created).unix_timestamp();
        let newest = Timestamp(u64::try_from(newest).unwrap_or(0).saturating_mul(1_000));
        if used == InboxUse::Idle && now.since_ms(newest) >= QUIET_MS {
            close(link, &info, now).await.map_err(failed)?;
        }
        return Ok(false);
    };
    match used {
        InboxUse::Idle if now.since_ms(closed) >= GRACE_MS => {}
        InboxUse::Awaited => {
            open(link, &info).await.map_err(failed)?;
            return Ok(false);
        }
        _ => return Ok(false),
    }
    let deleted = link.js.delete_stream(&name).await;
    deleted.map_err(|e| failed(e.to_string()))?;
    tracing::info!(name, "the inbox of earlier builds was empty and is deleted");
    Ok(true)
}

async fn used(link: &Link, info: &Info) -> Result<InboxUse, String> {
    let stream = link.js.get_stream_no_info(&info.config.name).await;
    let stream = stream.map_err(|e| e.to_string())?;
    // Without its consumer it is unread.
    let Ok(consumer) = stream.consumer_info(CONSUMER).await else {
        return Ok(InboxUse::Messages);
    };
    Ok(if consumer.num_waiting > 0 {
        InboxUse::Awaited
    } else if consumer.num_pending > 0 || consumer.num_ack_pending > 0 || info.state.messages > 1 {
        InboxUse::Messages
    } else {
        InboxUse::Idle
    })
}

async fn close(link: &Link, info: &Info, now: Timestamp) -> Result<(), String> {
    let mut config = info.config.clone();
    config.subjects = vec![link.names.old_inbox_marker()];
    config.metadata.insert(CLOSED.to_owned(), now.0.to_string());
    update(link, config).await?;
    tracing::info!(
        name = info.config.name,
        "the inbox of earlier builds is closed: who still sends to it gets an error"
    );
    Ok(())
}

async fn open(link: &Link, info: &Info) -> Result<(), String> {
    let mut config = info.config.clone();
    config.subjects = vec![link.names.old_inbox_all()];
    config.metadata.remove(CLOSED);
    update(link, config).await?;
    tracing::warn!(
        name = info.config.name,
        "an engine of an earlier build is at work: its inbox is open again"
    );
    Ok(())
}

async fn update(link: &Link, config: async_nats::jetstream::stream::Config) -> Result<(), String> {
    let updated = link.js.update_stream(config).await;
    updated.map(drop).map_err(|e| e.to_string())
}
