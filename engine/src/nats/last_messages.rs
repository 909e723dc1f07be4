//! Headers of each subject's last message in one stream, through a consumer that receives only those. A consumer that is
//! kept continues with every later message, so that a reader that polls creates it once.

use super::{connect::ANSWER_MAX, link::Link};
use crate::port::StoreError;
use async_nats::{
    Message,
    jetstream::{
        consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull},
        stream::Stream,
    },
};
use futures::StreamExt;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Most time for one pass over a stream.
const PASS_MAX: Duration = Duration::from_secs(120);
/// Headers in one request.
const PAGE_MAX: usize = 5_000;
/// Most requests for a message that the stream has and the consumer does not deliver.
const EMPTY_MAX: u32 = 4;
/// Pause between them.
const EMPTY_PAUSE: Duration = Duration::from_millis(10);
/// Time without a request after which the server deletes the consumer of a pass.
const PASS_UNUSED_MAX: Duration = Duration::from_secs(30);
/// The same for a consumer that is kept.
const KEPT_UNUSED_MAX: Duration = Duration::from_secs(120);

/// Calls `see` with every last message of the stream, without its body, and its sequence. `all` is every subject: a
/// consumer of last messages must name what it filters.
pub(super) async fn last_headers(
    link: &Link,
    name: &str,
    all: String,
    see: impl FnMut(&Message, u64),
) -> Result<(), StoreError> {
    let late = |_| late(name);
    let pass = async {
        let (reader, stream) = LastHeaders::begin(link, name, all, PASS_UNUSED_MAX, see).await?;
        let _ = stream
            .delete_consumer(&reader.consumer.cached_info().name)
            .await;
        Ok(())
    };
    timeout(PASS_MAX, pass).await.map_err(late)?
}

fn late(name: &str) -> StoreError {
    StoreError::Unavailable(format!("reading heads of {name} took too long"))
}

/// What [`LastHeaders::follow`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Followed {
    /// Everything that came since was seen. The stream then has this many subjects, if nothing came after they were
    /// counted.
    Current(Option<u64>),
    /// The reader may have missed something: read the stream from the beginning.
    Lost,
}

/// Reader of the last messages of one stream. Its consumer delivers the last message of each subject, and then every
/// later one.
pub(super) struct LastHeaders {
    name: String,
    consumer: PullConsumer,
    /// Last sequence that was read.
    last_read: u64,
    /// Number of the last delivery. Without a gap nothing was missed.
    delivered: u64,
    /// Last sequence of the stream that brought nothing however often it was asked for: its message was deleted.
    empty: u64,
}

impl LastHeaders {
    /// Reader of the stream `name` that is kept. It calls `see` with every last message, and its sequence.
    pub(super) async fn kept(
        link: &Link,
        name: &str,
        all: String,
        see: impl FnMut(&Message, u64),
    ) -> Result<Self, StoreError> {
        let begun = Self::begin(link, name, all, KEPT_UNUSED_MAX, see);
        let begun = timeout(PASS_MAX, begun).await;
        begun.map_err(|_| late(name))?.map(|(reader, _)| reader)
    }

    async fn begin(
        link: &Link,
        name: &str,
        all: String,
        inactive_threshold: Duration,
        mut see: impl FnMut(&Message, u64),
    ) -> Result<(Self, Stream), StoreError> {
        let lost = |e: String| StoreError::Unavailable(format!("reading heads of {name}: {e}"));
        let stream = link.js.get_stream(name).await;
        let stream = stream.map_err(|e| lost(e.to_string()))?;
        let end = stream.cached_info().state.last_sequence;
        let config = pull::Config {
            deliver_policy: DeliverPolicy::LastPerSubject,
            ack_policy: AckPolicy::None,
            filter_subject: all,
            headers_only: true,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold,
            ..pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await;
        let consumer = consumer.map_err(|e| lost(e.to_string()))?;
        let mut pending = consumer.cached_info().num_pending;
        let mut reader = Self {
            name: name.to_owned(),
            consumer,
            last_read: 0,
            delivered: 0,
            empty: 0,
        };
        while pending > 0 {
            let (count, left) = reader.page(&mut see).await?;
            if count == 0 {
                return Err(lost("the page stayed empty".into()));
            }
            pending = if reader.last_read >= end { 0 } else { left };
        }
        Ok((reader, stream))
    }

    /// Deletes the consumer. Where that fails the server deletes it later, because no request comes any more.
    pub(super) async fn end(self, link: &Link) {
        let deleted = async {
            let stream = link.js.get_stream_no_info(&self.name).await.ok()?;
            let name = &self.consumer.cached_info().name;
            stream.delete_consumer(name).await.ok()
        };
        let _ = timeout(ANSWER_MAX, deleted).await;
    }

    /// Reads what came since, and calls `see` with it.
    pub(super) async fn follow(
        &mut self,
        link: &Link,
        see: impl FnMut(&Message, u64),
    ) -> Result<Followed, StoreError> {
        let name = self.name.clone();
        let followed = timeout(PASS_MAX, self.try_follow(link, see)).await;
        followed.map_err(|_| late(&name))?
    }

    async fn try_follow(
        &mut self,
        link: &Link,
        mut see: impl FnMut(&Message, u64),
    ) -> Result<Followed, StoreError> {
        let name = &self.name;
        let lost = |e: String| StoreError::Unavailable(format!("reading heads of {name}: {e}"));
        let stream = link.js.get_stream(name).await;
        let stream = stream.map_err(|e| lost(e.to_string()))?;
        let state = &stream.cached_info().state;
        let last = state.last_sequence;
        if last < self.last_read {
            return Ok(Followed::Lost);
        }
        // A consumer may learn of a message a moment after the stream has it.
        let mut tries = if last == self.empty { 1 } else { EMPTY_MAX };
        while self.last_read < last {
            match self.page(&mut see).await {
                Err(_) => return Ok(Followed::Lost),
                Ok((1.., _)) => {}
                Ok((0, _)) if tries > 1 => {
                    tries -= 1;
                    sleep(EMPTY_PAUSE).await;
                }
                Ok((0, _)) => {
                    if !self.is_there().await {
                        return Ok(Followed::Lost);
                    }
                    self.empty = last;
                    break;
                }
            }
        }
        let same = self.last_read <= last;
        Ok(Followed::Current(same.then_some(state.subjects_count)))
    }

    /// Whether the server still has the consumer.
    async fn is_there(&self) -> bool {
        let info = timeout(ANSWER_MAX, self.consumer.get_info()).await;
        info.is_ok_and(|info| info.is_ok())
    }

    /// Page of what waits now. Returns its length, and how many wait after it.
    async fn page(
        &mut self,
        see: &mut impl FnMut(&Message, u64),
    ) -> Result<(usize, u64), StoreError> {
        let name = &self.name;
        let lost = |e: String| StoreError::Unavailable(format!("reading heads of {name}: {e}"));
        let request = self.consumer.fetch().max_messages(PAGE_MAX).messages();
        let answer = timeout(ANSWER_MAX, request).await;
        let answer = answer.map_err(|_| lost("no answer".into()))?;
        let mut page = answer.map_err(|e| lost(e.to_string()))?;
        let mut count = 0;
        let mut left = 0;
        loop {
            // The request has no expiry, so the page of a server that died meanwhile would never end.
            let next = timeout(ANSWER_MAX, page.next()).await;
            let Some(message) = next.map_err(|_| lost("the page broke off".into()))? else {
                return Ok((count, left));
            };
            let message = message.map_err(|e| lost(e.to_string()))?;
            let info = message.info().map_err(|e| lost(e.to_string()))?;
            if info.consumer_sequence != self.delivered + 1 {
                return Err(lost("a delivery is missing".into()));
            }
            self.delivered = info.consumer_sequence;
            self.last_read = info.stream_sequence;
            (count, left) = (count + 1, info.pending);
            see(&message.message, info.stream_sequence);
        }
    }
}
