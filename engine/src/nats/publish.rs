//! Acknowledged publishing: many messages at once, and one subscription for all answers.
//!
//! The client library's own method costs a random name, a timer and a wake-up for each message. Here a round of
//! messages is awaited as one, and reply subjects are reused, because the server caches the last ones it looked up.

use super::connect::ANSWER_MAX;
use crate::port::StoreError;
use async_nats::{Client, HeaderMap, Message, PublishErrorKind, StatusCode, Subscriber};
use bytes::Bytes;
use dormer_proto::lock::Locked as _;
use futures::StreamExt;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::{sync::Notify, task::JoinHandle};

/// Most messages in flight per caller.
pub(super) const PUBLISHES_MAX: usize = 512;
/// Answers read at once.
const ANSWERS_MAX: usize = 256;
/// Bits of a token's slot. The bits above count how often an answer in this slot was given up.
const SLOT_BITS: u32 = 24;

/// "wrong last sequence", and the same during another publish to the subject in a cluster.
const WRONG_SEQUENCE: [u64; 2] = [10_071, 10_164];
/// "message not stored", with the reason in the text only.
const STORE_FAILED: u64 = 10_077;
/// "message size exceeds maximum allowed".
const MESSAGE_TOO_LARGE: u64 = 10_054;

/// Why the server, or the way to it, took no message.
#[derive(Debug)]
pub(super) enum PublishFault {
    /// The subject has another last sequence.
    WrongSequence,
    /// The subject already holds the stream's maximum.
    SubjectFull,
    /// The server will never store the message.
    Refused(String),
    /// No answer, or a temporary fault: the message may or may not be stored.
    Unknown(String),
}

impl From<PublishFault> for StoreError {
    fn from(fault: PublishFault) -> Self {
        Self::Unavailable(format!("{fault:?}"))
    }
}

impl PublishFault {
    /// Fault for a server's error.
    fn of(code: u64, text: String) -> Self {
        match code {
            _ if WRONG_SEQUENCE.contains(&code) => Self::WrongSequence,
            MESSAGE_TOO_LARGE => Self::Refused(text),
            STORE_FAILED if text.contains("per subject") => Self::SubjectFull,
            _ => Self::Unknown(text),
        }
    }
}

/// Message to publish into a stream. A copy shares the body.
#[derive(Clone)]
pub(super) struct Outgoing {
    pub(super) subject: String,
    /// Headers. `None` costs the server less than an empty map.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Publisher into streams, over one connection.
pub(super) struct Publisher {
    client: Client,
    /// Prefix of reply subjects; the token follows.
    inbox: String,
    table: Arc<ReplyTable>,
    reading: JoinHandle<()>,
}

/// Waiters by token. Lock held for a few index operations, never across an await.
#[derive(Default)]
struct ReplyTable(Mutex<ReplySlots>);

#[derive(Default)]
struct ReplySlots {
    /// Awaited token and its waiter, by slot.
    awaited: Vec<Option<(u64, Arc<Round>, usize)>>,
    /// Free tokens.
    free: Vec<u64>,
}

/// Round of messages that are awaited together.
struct Round {
    answers: Mutex<Answers>,
    done: Notify,
}

struct Answers {
    results: Vec<Option<Result<u64, PublishFault>>>,
    missing: usize,
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Publisher {
    /// Subscribes to answers. `no_stream` is notified when no stream accepts a message.
    pub(super) async fn open(
        client: Client,
        no_stream: Arc<Notify>,
    ) -> Result<Self, async_nats::SubscribeError> {
        let inbox = format!("{}.", client.new_inbox());
        let answers = client.subscribe(format!("{inbox}*")).await?;
        let table = Arc::new(ReplyTable::default());
        let reading = tokio::spawn(run_reader(
            answers,
            inbox.len(),
            Arc::clone(&table),
            no_stream,
        ));
        Ok(Self {
            client,
            inbox,
            table,
            reading,
        })
    }

    /// Publishes into streams, and waits for every acknowledgement: each message's sequence, in order.
    pub(super) async fn publish(&self, messages: Vec<Outgoing>) -> Vec<Result<u64, PublishFault>> {
        let mut results = Vec::with_capacity(messages.len());
        let mut messages = messages.into_iter();
        loop {
            let round: Vec<Outgoing> = messages.by_ref().take(PUBLISHES_MAX).collect();
            if round.is_empty() {
                return results;
            }
            results.extend(self.publish_round(round).await);
        }
    }

    async fn publish_round(&self, messages: Vec<Outgoing>) -> Vec<Result<u64, PublishFault>> {
        let waiting = PendingAnswer::begin(&self.table, messages.len());
        let sending = async {
            for (at, message) in messages.into_iter().enumerate() {
                let reply = format!("{}{}", self.inbox, waiting.tokens[at]);
                if let Err(fault) = self.send(message, reply).await {
                    waiting.fail(at, fault);
                }
            }
            waiting.round.done().await;
        };
        let _ = tokio::time::timeout(ANSWER_MAX, sending).await;
        waiting.end()
    }

    async fn send(&self, message: Outgoing, reply: String) -> Result<(), PublishFault> {
        let Outgoing {
            subject,
            headers,
            body,
        } = message;
        let sent = if headers.is_empty() {
            self.client.publish_with_reply(subject, reply, body).await
        } else {
            self.client
                .publish_with_reply_and_headers(subject, reply, headers, body)
                .await
        };
        sent.map_err(|error| match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => PublishFault::Refused(error.to_string()),
            _ => PublishFault::Unknown(error.to_string()),
        })
    }
}

/// Round in flight. A caller that gives up drops it, and its tokens are never awaited again.
struct PendingAnswer<'a> {
    table: &'a ReplyTable,
    round: Arc<Round>,
    tokens: Vec<u64>,
}

impl<'a> PendingAnswer<'a> {
    fn begin(table: &'a ReplyTable, count: usize) -> Self {
        let answers = Answers {
            results: (0..count).map(|_| None).collect(),
            missing: count,
        };
        let round = Arc::new(Round {
            answers: Mutex::new(answers),
            done: Notify::new(),
        });
        let mut slots = table.lock();
        let tokens = (0..count).map(|at| slots.wait(&round, at)).collect();
        drop(slots);
        Self {
            table,
            round,
            tokens,
        }
    }
}

impl PendingAnswer<'_> {
    /// Notes a message that could not be sent.
    fn fail(&self, at: usize, fault: PublishFault) {
        self.table.lock().give_up(self.tokens[at]);
        self.round.answered(at, Err(fault));
    }

    /// Result of each message. A missing answer counts as none.
    fn end(&self) -> Vec<Result<u64, PublishFault>> {
        let mut slots = self.table.lock();
        let mut answers = self.round.lock();
        answers.missing = 0;
        let results = std::mem::take(&mut answers.results).into_iter().enumerate();
        let ended = results.map(|(at, result)| {
            result.unwrap_or_else(|| {
                slots.give_up(self.tokens[at]);
                Err(PublishFault::Unknown("no answer".into()))
            })
        });
        ended.collect()
    }
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl ReplyTable {
    fn lock(&self) -> MutexGuard<'_, ReplySlots> {
        // A panic elsewhere cannot have left a half-done operation.
        self.0.locked()
    }
}

fn slot_of(token: u64) -> usize {
    usize::try_from(token & ((1 << SLOT_BITS) - 1)).unwrap_or(usize::MAX)
}

impl ReplySlots {
    /// Allocates a token for one answer.
    fn wait(&mut self, round: &Arc<Round>, at: usize) -> u64 {
        let token = self.free.pop().unwrap_or_else(|| {
            self.awaited.push(None);
            self.awaited.len() as u64 - 1
        });
        self.awaited[slot_of(token)] = Some((token, Arc::clone(round), at));
        token
    }

    /// Waiter of the answer with this token.
    fn take(&mut self, token: u64) -> Option<(Arc<Round>, usize)> {
        let slot = self.awaited.get_mut(slot_of(token))?;
        let (_, round, at) = slot.take_if(|(awaited, ..)| *awaited == token)?;
        self.free.push(token);
        Some((round, at))
    }

    /// Retires a token: its answer may still arrive, and must not be taken for another's.
    fn give_up(&mut self, token: u64) {
        let Some(slot) = self.awaited.get_mut(slot_of(token)) else {
            return;
        };
        if slot.take_if(|(awaited, ..)| *awaited == token).is_some() {
            self.free.push(token.wrapping_add(1 << SLOT_BITS));
        }
    }
}

impl Round {
    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.locked()
    }

    fn answered(&self, at: usize, result: Result<u64, PublishFault>) {
        let mut answers = self.lock();
        if answers.results[at].replace(result).is_none() {
            answers.missing -= 1;
        }
        if answers.missing == 0 {
            self.done.notify_one();
        }
    }

    async fn done(&self) {
        while self.lock().missing > 0 {
            self.done.notified().await;
        }
    }
}

/// Passes each answer to its waiter.
async fn run_reader(
    answers: Subscriber,
    prefix: usize,
    table: Arc<ReplyTable>,
    no_stream: Arc<Notify>,
) {
    let mut answers = answers.ready_chunks(ANSWERS_MAX);
    while let Some(messages) = answers.next().await {
        let mut slots = table.lock();
        for message in messages {
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                no_stream.notify_one();
            }
            let token = message
                .subject
                .as_str()
                .get(prefix..)
                .and_then(|text| text.parse().ok());
            if let Some((round, at)) = token.and_then(|token| slots.take(token)) {
                round.answered(at, read(&message));
            }
        }
    }
}

/// Relevant fields of the server's answer.
#[derive(serde::Deserialize)]
struct Answer {
    #[serde(default)]
    seq: u64,
    error: Option<AnswerError>,
}

#[derive(serde::Deserialize)]
struct AnswerError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

fn read(message: &Message) -> Result<u64, PublishFault> {
    if message.status == Some(StatusCode::NO_RESPONDERS) {
        return Err(PublishFault::Unknown(
            "no stream accepts the subject".into(),
        ));
    }
    match serde_json::from_slice::<Answer>(&message.payload) {
        Ok(Answer {
            error: Some(error), ..
        }) => Err(PublishFault::of(error.err_code, error.description)),
        Ok(Answer { seq, .. }) if seq > 0 => Ok(seq),
        Ok(_) => Err(PublishFault::Unknown("an answer without a sequence".into())),
        Err(error) => Err(PublishFault::Unknown(format!(
            "an answer that cannot be read: {error}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_given_up_is_nobody_elses() {
        let table = ReplyTable::default();
        let first = PendingAnswer::begin(&table, 2);
        assert_eq!(first.tokens, [0, 1]);
        let (round, at) = table.lock().take(1).expect("awaited");
        round.answered(at, Ok(7));
        let gone = first.tokens[0];
        drop((round, first));
        let second = PendingAnswer::begin(&table, 2);
        assert!(!second.tokens.contains(&gone), "{:?}", second.tokens);
        assert!(table.lock().take(gone).is_none(), "it comes late");
        for token in second.tokens.clone() {
            let (round, at) = table.lock().take(token).expect("awaited");
            round.answered(at, Ok(token));
        }
        let results: Vec<u64> = second.end().into_iter().map(|r| r.expect("ok")).collect();
        assert_eq!(results, second.tokens);
        drop(second);
        assert_eq!(table.lock().awaited.len(), 2, "places are used again");
    }
}
