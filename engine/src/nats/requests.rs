//! Pull requests to one consumer, for as many messages as there is credit.
//!
//! The client's own stream of messages asks again by itself, and keeps what comes in a buffer where nothing extends its
//! claim. Here each request is for messages that an engine can begin soon, and each message is passed on at once.

use super::{
    credit::Source,
    link::Link,
    unacked::{Key, UnackedMessages},
};
use async_nats::{
    Message as Answer, StatusCode, Subscriber,
    jetstream::{Message, consumer::pull::BatchConfig},
};
use futures::{FutureExt, StreamExt};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// Prefix of the server's API.
const API: &str = "$JS.API";
/// Time after which a request for due timers ends. A frozen engine's open request is served in turn with the others' until
/// then, so it lasts hardly longer than the other engines need to notice a silent one ([`super::share`], 3.5 s). Priorities as
/// those of partitions could pass over the request only from then on. They would save half a second, and cost the
/// timers of every build that knows none: the server refuses its requests at a consumer with priorities (nats-server 2.12,
/// `server/consumer.go`, `processNextMsgRequest`: "Priority Group missing"), and a work queue takes no second consumer for
/// the same subjects.
pub(super) const TIMERS_EXPIRE: Duration = Duration::from_secs(4);
/// Time after which a request for a partition's messages ends. A frozen engine's is passed over: see [`super::share`].
pub(super) const PARTITION_EXPIRES: Duration = Duration::from_secs(120);
/// Bytes of one request, if the server allows no larger messages.
const BYTES_MAX: usize = 2 << 20;
/// Bytes that the server counts beside those of the body: subjects and headers.
const AROUND: usize = 64 << 10;
/// What is left of a request that ended, in the server's words.
const LEFT: &str = "Nats-Pending-Messages";

/// What is requested.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) stream: String,
    pub(super) consumer: String,
    /// Group and priority, at a consumer with priorities.
    pub(super) group: Option<(&'static str, usize)>,
    pub(super) source: Source,
    /// Most messages in one request, with the largest window of credit.
    pub(super) most: usize,
    /// Time after which a request ends, at least twice the heartbeat's interval.
    pub(super) expires: Duration,
    pub(super) heartbeat: Duration,
}

/// Message that came, or that the server has none now.
///
/// # Errors
/// The requests are lost, or the consumer is.
pub(super) type NextMessage = Result<Option<(Message, Key)>, String>;

/// Open requests. What they have of the credit comes back with them.
pub(super) struct Requests {
    link: Arc<Link>,
    held: Arc<UnackedMessages>,
    wanted: Wanted,
    inbox: String,
    answers: Subscriber,
    /// Messages that are requested and have not come.
    open: usize,
}

impl Requests {
    pub(super) async fn begin(
        link: &Arc<Link>,
        held: &Arc<UnackedMessages>,
        wanted: Wanted,
    ) -> Result<Self, String> {
        let inbox = link.client.new_inbox();
        let answers = link.client.subscribe(inbox.clone()).await;
        let answers = answers.map_err(|error| error.to_string())?;
        Ok(Self {
            link: Arc::clone(link),
            held: Arc::clone(held),
            wanted,
            inbox,
            answers,
            open: 0,
        })
    }

    /// Whether more may be requested: half of a request is left.
    pub(super) fn are_few(&self) -> bool {
        let Wanted { source, most, .. } = self.wanted;
        self.open <= self.held.credit.portion(source, most) / 2
    }

    /// Credit for one request.
    pub(super) fn credit(&self) -> impl Future<Output = usize> + use<> {
        let held = Arc::clone(&self.held);
        let Wanted { source, most, .. } = self.wanted;
        async move { held.credit.ask(source, most).await }
    }

    /// Sends a request for messages for which credit was taken.
    pub(super) async fn send(&mut self, messages: usize) {
        self.open += messages;
        let Wanted {
            stream,
            consumer,
            group,
            expires,
            heartbeat,
            ..
        } = &self.wanted;
        let largest = self.link.client.max_payload() + AROUND;
        let request = BatchConfig {
            batch: messages,
            expires: Some(*expires),
            max_bytes: largest.max(BYTES_MAX),
            idle_heartbeat: *heartbeat,
            group: group.map(|(group, _)| group.to_owned()),
            priority: group.map(|(_, priority)| priority),
            ..BatchConfig::default()
        };
        let body = serde_json::to_vec(&request).unwrap_or_default();
        let subject = format!("{API}.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        // A request that is lost brings no heartbeat.
        let client = &self.link.client;
        let _ = client
            .publish_with_reply(subject, self.inbox.clone(), body.into())
            .await;
    }

    /// Waits for what comes next. Nothing is lost if it is cancelled.
    pub(super) async fn next(&mut self) -> NextMessage {
        // Without a request nothing can come. Two heartbeats may be late.
        let silence = match self.open {
            0 => Duration::MAX,
            _ => self.wanted.heartbeat * 2 + Duration::from_secs(1),
        };
        match timeout(silence, self.answers.next()).await {
            Ok(Some(answer)) => self.read(answer),
            Ok(None) => Err("the connection is closed".into()),
            Err(_) => Err("no heartbeat".into()),
        }
    }

    /// What has come already.
    pub(super) fn now(&mut self) -> Option<(Message, Key)> {
        while let Some(Some(answer)) = self.answers.next().now_or_never() {
            if let Ok(Some(came)) = self.read(answer) {
                return Some(came);
            }
        }
        None
    }

    /// Requests that a server of an earlier connection had are gone.
    pub(super) fn forget(&mut self) {
        self.ended(self.open);
    }

    fn ended(&mut self, messages: usize) {
        let messages = messages.min(self.open);
        self.open -= messages;
        self.held.credit.give_back(self.wanted.source, messages);
    }

    fn read(&mut self, answer: Answer) -> NextMessage {
        match answer.status {
            None | Some(StatusCode::OK) => {
                let context = self.link.js.clone();
                let message = Message {
                    message: answer,
                    context,
                };
                let Some(key) = Key::of(&message) else {
                    return Ok(None);
                };
                match self.open.checked_sub(1) {
                    Some(less) => self.open = less,
                    // It came for a request that is forgotten.
                    None => self.held.credit.owe(self.wanted.source),
                }
                Ok(Some((message, key)))
            }
            Some(StatusCode::IDLE_HEARTBEAT) => Ok(None),
            Some(status) => {
                let text = answer.description.as_deref().unwrap_or_default();
                let left = answer.headers.as_ref().and_then(|it| it.get(LEFT));
                let left = left.and_then(|left| left.as_str().parse().ok());
                match left {
                    // One request ended: at its time, or because the next message is larger than its rest.
                    Some(left) if goes_on(status, text) => {
                        self.ended(left);
                        Ok(None)
                    }
                    _ => Err(format!("{status} {text}")),
                }
            }
        }
    }
}

/// Whether the consumer answers others' requests after this answer to one.
fn goes_on(status: StatusCode, text: &str) -> bool {
    status == StatusCode::TIMEOUT
        || status == StatusCode::REQUEST_TERMINATED
            && matches!(text, "Message Size Exceeds MaxBytes" | "Batch Completed")
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.forget();
    }
}
