//! Pull requests to one consumer, for as many messages as there is credit.
//!
//! The client's own stream of messages asks again by itself, and keeps what comes in a buffer where nothing extends its
//! claim. Here each request is for messages that an engine can begin soon, and each message is passed on at once.
//!
//! Each request has a subject of its own for its answers. The servers of a consumer keep them as a set, and a new leader
//! tells each of them that the request is gone. With one for all, the end of one request takes the others out of the set,
//! and the server does not say that they are gone (nats-server 2.12, `server/consumer.go`, `checkPendingRequests`).

use super::{
    credit::CreditPool,
    link::Link,
    silent::Priority,
    unacked::{Key, UnackedMessages},
};
use async_nats::{
    Message as Answer, StatusCode, Subscriber,
    jetstream::{Message, consumer::pull::BatchConfig},
};
use futures::StreamExt;
use std::{collections::VecDeque, sync::Arc, time::Duration};
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
/// Time within which the server confirms the end of requests.
const LAST_MAX: Duration = Duration::from_secs(2);
/// Bytes of one request, if the server allows no larger messages.
const BYTES_MAX: usize = 2 << 20;
/// Bytes that the server counts beside those of the body: subjects and headers.
const AROUND: usize = 64 << 10;
/// What is left of a request that ended, in the server's words.
const LEFT: &str = "Nats-Pending-Messages";
/// End of requests that a consumer's new leader does not have, in the server's words.
const NEW_LEADER: &str = "Leadership Change";
/// End of the requests of a consumer that was deleted, in the server's words.
const DELETED: &str = "Consumer Deleted";

/// What is requested.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) stream: String,
    pub(super) consumer: String,
    /// Group and priority, at a consumer with priorities.
    pub(super) group: Option<(&'static str, Priority)>,
    pub(super) pool: CreditPool,
    /// Most messages in one request, with the largest window of credit.
    pub(super) most: usize,
    /// Time after which a request ends, at least twice the heartbeat's interval.
    pub(super) expires: Duration,
    pub(super) heartbeat: Duration,
}

/// End of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lost {
    /// The consumer may be gone.
    Consumer(String),
    /// The requests are lost. The consumer may be there.
    Requests(String),
    /// No heartbeat came: the requests may be lost, or the server stands still and answers them later.
    Silence,
}

/// Message that came, or that the server has none now.
///
/// # Errors
/// [`Lost`].
pub(super) type NextMessage = Result<Option<(Message, Key)>, Lost>;

/// Open requests. What they have of the credit comes back with them.
pub(super) struct Requests {
    link: Arc<Link>,
    held: Arc<UnackedMessages>,
    wanted: Wanted,
    inbox: String,
    answers: Subscriber,
    open: OpenRequests,
}

/// Messages that are requested and have not come.
#[derive(Debug, Default, PartialEq, Eq)]
struct OpenRequests {
    messages: usize,
    /// Number of the last request.
    last: u64,
    /// Newest requests, each with its messages. The server answers them in turn, so what is left of one is not known.
    newest: VecDeque<(u64, usize)>,
}

impl OpenRequests {
    /// Adds a request. Returns its number.
    fn add(&mut self, messages: usize) -> u64 {
        self.messages += messages;
        self.last += 1;
        self.newest.push_back((self.last, messages));
        self.last
    }

    /// Takes away messages that came, or will not come. Returns how many of them were open.
    fn take(&mut self, messages: usize) -> usize {
        let taken = messages.min(self.messages);
        self.messages -= taken;
        let later = self.newest.iter().map(|(_, messages)| messages).sum();
        let mut later: usize = later;
        while let Some((_, first)) = self.newest.front()
            && later - first >= self.messages
        {
            later -= first;
            self.newest.pop_front();
        }
        taken
    }

    /// Takes away this request and earlier ones: the leader that had them is gone. Returns how many messages will
    /// not come, at least.
    fn take_until(&mut self, number: u64) -> usize {
        let later = self.newest.iter().filter(|(other, _)| *other > number);
        let later: usize = later.map(|(_, messages)| messages).sum();
        self.take(self.messages.saturating_sub(later))
    }
}

impl Requests {
    pub(super) async fn begin(
        link: &Arc<Link>,
        held: &Arc<UnackedMessages>,
        wanted: Wanted,
    ) -> Result<Self, String> {
        let inbox = link.client.new_inbox();
        let answers = link.client.subscribe(format!("{inbox}.*")).await;
        let answers = answers.map_err(|error| error.to_string())?;
        Ok(Self {
            link: Arc::clone(link),
            held: Arc::clone(held),
            wanted,
            inbox,
            answers,
            open: OpenRequests::default(),
        })
    }

    /// Whether more may be requested: half of a request is left.
    pub(super) fn are_few(&self) -> bool {
        let Wanted { pool, most, .. } = self.wanted;
        self.open.messages <= self.held.credit.portion(pool, most) / 2
    }

    /// Credit for one request.
    pub(super) fn credit(&self) -> impl Future<Output = usize> + use<> {
        let held = Arc::clone(&self.held);
        let Wanted { pool, most, .. } = self.wanted;
        async move { held.credit.ask(pool, most).await }
    }

    /// Sends the next requests with this priority. Those that are open keep theirs.
    pub(super) fn ask_with(&mut self, priority: Priority) {
        self.wanted.group = self.wanted.group.map(|(group, _)| (group, priority));
    }

    /// Sends a request for messages for which credit was taken.
    pub(super) async fn send(&mut self, messages: usize) {
        let reply = format!("{}.{}", self.inbox, self.open.add(messages));
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
            priority: group.map(|(_, priority)| usize::from(priority)),
            ..BatchConfig::default()
        };
        let body = serde_json::to_vec(&request).unwrap_or_default();
        let subject = format!("{API}.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        // A request that is lost brings no heartbeat.
        let client = &self.link.client;
        let _ = client.publish_with_reply(subject, reply, body.into()).await;
    }

    /// Waits for what comes next. Nothing is lost if it is cancelled.
    pub(super) async fn next(&mut self) -> NextMessage {
        // Without a request nothing can come. Two heartbeats may be late.
        let silence = match self.open.messages {
            0 => Duration::MAX,
            _ => self.wanted.heartbeat * 2 + Duration::from_secs(1),
        };
        match timeout(silence, self.answers.next()).await {
            Ok(Some(answer)) => self.read(answer),
            Ok(None) => Err(Lost::Requests("the connection is closed".into())),
            Err(_) => Err(Lost::Silence),
        }
    }

    /// Ends them: the server learns that their answers have no receiver. What this server has sent until then still comes.
    /// In a cluster a message of a leader on another server may come after that, when nothing subscribes any more: it is
    /// redelivered after its claim.
    pub(super) async fn end(&mut self) {
        // Without a connection nothing comes.
        let _ = self.answers.drain().await;
    }

    /// What still comes of this server after their end. Without it such a message would come to an engine only after its
    /// claim.
    pub(super) async fn last(&mut self) -> Option<(Message, Key)> {
        while let Ok(Some(answer)) = timeout(LAST_MAX, self.answers.next()).await {
            if let Ok(Some(came)) = self.read(answer) {
                return Some(came);
            }
        }
        None
    }

    /// Takes the open requests for gone. Messages that still come of them are passed on.
    pub(super) fn forget(&mut self) {
        self.ended(self.open.messages);
    }

    fn ended(&mut self, messages: usize) {
        let messages = self.open.take(messages);
        self.held.credit.give_back(self.wanted.pool, messages);
    }

    /// The consumer has a new leader, which does not have the request of this answer.
    fn is_gone(&mut self, answer: &Answer) {
        let number = answer.subject.rsplit('.').next();
        let number = number.and_then(|number| number.parse().ok());
        let messages = self.open.take_until(number.unwrap_or(0));
        self.held.credit.give_back(self.wanted.pool, messages);
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
                if self.open.take(1) == 0 {
                    // It came for a request that is forgotten.
                    self.held.credit.owe(self.wanted.pool);
                }
                Ok(Some((message, key)))
            }
            Some(StatusCode::IDLE_HEARTBEAT) => Ok(None),
            Some(status) => {
                let text = answer.description.as_deref().unwrap_or_default();
                let left = answer.headers.as_ref().and_then(|it| it.get(LEFT));
                let left = left.and_then(|left| left.as_str().parse().ok());
                match left {
                    _ if status == StatusCode::REQUEST_TERMINATED && text == NEW_LEADER => {
                        self.is_gone(&answer);
                        Ok(None)
                    }
                    // One request ended: at its time, or because the next message is larger than its rest.
                    Some(left) if goes_on(status, text) => {
                        self.ended(left);
                        Ok(None)
                    }
                    _ => Err(lost(status, text)),
                }
            }
        }
    }
}

/// End of requests by this answer to one. Without a consumer, and without its leader, there is no answer.
fn lost(status: StatusCode, text: &str) -> Lost {
    let why = format!("{status} {text}");
    match status {
        StatusCode::NOT_FOUND | StatusCode::NO_RESPONDERS => Lost::Consumer(why),
        StatusCode::REQUEST_TERMINATED if text == DELETED => Lost::Consumer(why),
        _ => Lost::Requests(why),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gone_leader_had_is_not_open_and_what_its_successor_has_is() {
        let mut open = OpenRequests::default();
        assert_eq!((open.add(16), open.add(8)), (1, 2));
        assert_eq!(open.take(10), 10);
        // The result covers every request that is gone.
        assert_eq!((open.take_until(2), open.take_until(1)), (14, 0));
        assert_eq!(open.add(16), 3);
        assert_eq!(open.take_until(2), 0);
        assert_eq!(open.take(1), 1);
        assert_eq!(open.add(12), 4);
        assert_eq!((open.take_until(3), open.messages), (15, 12));
    }

    #[test]
    fn a_consumer_is_created_again_only_where_it_may_be_gone() {
        let gone = |status, text| matches!(lost(status, text), Lost::Consumer(_));
        assert!(gone(StatusCode::NO_RESPONDERS, ""));
        assert!(gone(StatusCode::NOT_FOUND, "No Messages"));
        assert!(gone(StatusCode::REQUEST_TERMINATED, "Consumer Deleted"));
        assert!(!gone(StatusCode::REQUEST_TERMINATED, "Exceeded MaxWaiting"));
    }

    #[test]
    fn requests_whose_messages_have_come_are_forgotten() {
        let mut open = OpenRequests::default();
        for _ in 0..1_000 {
            open.add(16);
            assert_eq!(open.take(16), 16);
        }
        assert_eq!(open.newest, []);
        open.add(16);
        for _ in 0..1_000 {
            open.add(8);
            assert_eq!(open.take(8), 8);
        }
        // Sixteen are left of the last two, or of the first one.
        assert!(open.newest.len() <= 2, "{open:?}");
        assert_eq!((open.take(99), open.take(1)), (16, 0));
    }
}
