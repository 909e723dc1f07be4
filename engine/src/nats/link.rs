//! Connection with the operations that all ports share: acknowledged publishing, and batch reads.

use super::{
    connect::ANSWER_MAX,
    publish::{Outgoing, PublishFault, Publisher},
};
use crate::port::StoreError;
use async_nats::{Client, HeaderMap, Message, StatusCode, jetstream};
use bytes::Bytes;
use dormer_nats::signing::{Keys, Refusal, Signed, SignedAt};
use dormer_proto::{address::Origin, id::Incarnation, subject::Names};
use futures::StreamExt;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio::sync::Notify;

/// Connection to one store.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) js: jetstream::Context,
    pub(super) publisher: Publisher,
    pub(super) names: Names,
    pub(super) incarnation: Incarnation,
    pub(super) keys: Option<Arc<Keys>>,
    /// Whether each stream has one copy, so that every read is answered by the leader.
    pub(super) single: AtomicBool,
    /// Wakes the watch over the streams: a read contradicted what was acknowledged.
    pub(super) doubted: Notify,
    /// Highest sequence acknowledged to this process, per history stream.
    pub(super) acknowledged: Vec<AtomicU64>,
    broken: OnceLock<String>,
}

impl Link {
    pub(super) fn new(
        client: Client,
        js: jetstream::Context,
        publisher: Publisher,
        names: Names,
        incarnation: Incarnation,
        keys: Option<Arc<Keys>>,
        single: bool,
    ) -> Self {
        let history_streams = dormer_proto::subject::HISTORY_STREAMS;
        let acknowledged = (0..history_streams).map(|_| AtomicU64::new(0)).collect();
        let broken = OnceLock::new();
        Self {
            client,
            js,
            publisher,
            names,
            incarnation,
            keys,
            single: AtomicBool::new(single),
            doubted: Notify::new(),
            acknowledged,
            broken,
        }
    }

    fn signed<'a>(&self, subject: &'a str, body: &'a [u8]) -> Signed<'a> {
        Signed {
            incarnation: self.incarnation.0,
            subject,
            body,
        }
    }

    /// Headers with the signature of `origin`; none without keys.
    pub(super) fn signature(&self, origin: Origin, subject: &str, body: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.sign(origin, subject, body, &mut headers);
        headers
    }

    /// Adds the signature of `origin`, if there are keys.
    pub(super) fn sign(&self, origin: Origin, subject: &str, body: &[u8], headers: &mut HeaderMap) {
        if let Some(keys) = &self.keys {
            keys.sign(origin.as_str(), self.signed(subject, body), headers);
        }
    }

    /// Compares a message's signature with it, if there are keys. It decodes nothing. The answer is when it was signed.
    pub(super) fn verify(
        &self,
        origin: Origin,
        subject: &str,
        message: (&[u8], Option<&HeaderMap>),
    ) -> Result<Option<SignedAt>, Refusal> {
        let (body, headers) = message;
        self.keys.as_ref().map_or(Ok(None), |keys| {
            keys.verify(&[origin.as_str()], self.signed(subject, body), headers)
        })
    }

    /// Publishes a signed message that no stream acknowledges. A server without the connection loses it.
    pub(super) async fn send(&self, origin: Origin, subject: String, body: Bytes) {
        let headers = self.signature(origin, &subject, &body);
        let _ = self.publish_plain(subject, headers, body).await;
    }

    /// Publishes a message without waiting for an acknowledgement.
    pub(super) async fn publish_plain(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(), async_nats::PublishError> {
        if headers.is_empty() {
            return self.client.publish(subject, body).await;
        }
        self.client
            .publish_with_headers(subject, headers, body)
            .await
    }

    /// Marks the store as broken: it has lost acknowledged records, and no more decisions are made on it.
    pub(super) fn break_down(&self, why: String) {
        tracing::error!(why, "the store cannot be trusted");
        let _ = self.broken.set(why);
    }

    /// Fails if the store is broken.
    pub(super) fn sound(&self) -> Result<(), StoreError> {
        self.broken
            .get()
            .map_or(Ok(()), |why| Err(StoreError::Broken(why.clone())))
    }

    /// Notes an acknowledged sequence of a history stream. If it is at or below `floor`, which was acknowledged
    /// before this publish began, the stream was rewound.
    pub(super) fn acknowledge(&self, index: usize, floor: u64, sequence: u64) {
        if sequence <= floor {
            self.break_down(format!(
                "history stream {index} acknowledged sequence {floor} and now counts from {sequence}"
            ));
        }
        self.acknowledged[index].fetch_max(sequence, Ordering::AcqRel);
    }

    /// Publishes into a stream, and waits for the acknowledgement: the message's sequence.
    pub(super) async fn publish(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<u64, PublishFault> {
        let results = self
            .publisher
            .publish(vec![Outgoing {
                subject,
                headers,
                body,
            }])
            .await;
        results
            .into_iter()
            .next()
            .unwrap_or_else(|| Err(PublishFault::Unknown("no answer".into())))
    }

    /// Batch of direct reads: every message until the server reports the end. The second value says whether the
    /// server's limits truncated the answer.
    pub(super) async fn read(
        &self,
        stream: &str,
        request: serde_json::Value,
    ) -> Result<(Vec<Message>, bool), StoreError> {
        let lost = |why: String| StoreError::Unavailable(format!("reading {stream}: {why}"));
        let inbox = self.client.new_inbox();
        let mut answers = self
            .client
            .subscribe(inbox.clone())
            .await
            .map_err(|e| lost(e.to_string()))?;
        let subject = format!("$JS.API.DIRECT.GET.{stream}");
        let body = Bytes::from(request.to_string());
        self.client
            .publish_with_reply(subject, inbox, body)
            .await
            .map_err(|e| lost(e.to_string()))?;
        let mut messages = Vec::new();
        loop {
            let next = tokio::time::timeout(ANSWER_MAX, answers.next()).await;
            let Ok(Some(message)) = next else {
                return Err(lost("no answer".into()));
            };
            match message.status {
                None => messages.push(message),
                Some(StatusCode::NOT_FOUND) => return Ok((messages, false)),
                // End of batch.
                Some(status) if status.as_u16() == 204 => {
                    let pending = number(&message, "Nats-Num-Pending").unwrap_or(0);
                    return Ok((messages, pending > 0));
                }
                Some(status) => {
                    return Err(lost(format!("{status} {:?}", message.description)));
                }
            }
        }
    }
}

/// Value of a header as a number.
pub(super) fn number(message: &Message, header: &str) -> Option<u64> {
    header_of(message, header)?.parse().ok()
}

/// Value of a header.
pub(super) fn header_of<'a>(message: &'a Message, header: &str) -> Option<&'a str> {
    Some(message.headers.as_ref()?.get(header)?.as_str())
}
