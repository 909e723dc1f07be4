//! Stream of changes: the last state of each run, for external readers.
//!
//! Every message replaces a known one on condition. Of several writers with the same change one succeeds, and none
//! overwrites a message that it has not seen. The caller decides the content, and ensures that it never goes back.

use super::{
    last_messages::last_headers,
    link::{Link, number},
    publish::{Outgoing, PublishFault},
    streams::ensure,
};
use crate::port::StoreError;
use async_nats::{HeaderMap, Message, jetstream::stream::LastRawMessageErrorKind};
use bytes::Bytes;
use dormer_proto::{
    id::{RunId, Seq, Sum},
    subject::{CHANGES_BYTES_MAX, FORGOTTEN_FOR_S, Names, SEQ_HEADER, SUM_HEADER},
};
use std::{collections::BTreeMap, sync::Arc};

/// Stream of changes of a NATS store.
#[derive(Clone)]
pub struct NatsChanges {
    link: Arc<Link>,
    replicas: Option<usize>,
}

/// Record whose state is published. `None`: the run is forgotten.
pub type Mark = Option<(Seq, Sum)>;

/// Message of one run in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedState {
    /// Sequence of the message.
    pub sequence: u64,
    /// Record whose state it has.
    pub mark: Mark,
}

/// What the stream of changes holds, as read at the start of a publisher.
#[derive(Debug, Clone, Default)]
pub struct StreamContents {
    /// Messages by run.
    pub runs: BTreeMap<RunId, PublishedState>,
    /// Whether the stream is so full that states were or soon will be discarded.
    pub full: bool,
}

/// State to publish, with the message that it replaces.
#[derive(Debug, Clone)]
pub struct StateUpdate {
    pub run: RunId,
    /// Record whose state it has.
    pub mark: Mark,
    /// State as JSON.
    pub body: Bytes,
    /// Sequence of the message that it replaces; 0 if none.
    pub replaces: u64,
}

/// Error of publishing a change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Another process published meanwhile: read its message and decide again.
    #[error("another process was first")]
    Conflict,
    /// The stream will never accept it.
    #[error("the stream of changes refuses it: {0}")]
    Refused(String),
    /// It may or may not be published.
    #[error("the stream of changes does not answer: {0}")]
    Unknown(String),
}

impl NatsChanges {
    pub(super) fn new(link: Arc<Link>, replicas: Option<usize>) -> Self {
        Self { link, replicas }
    }

    /// Reads the content of the stream. A missing stream is created again.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]; also if the stream has wrong settings.
    pub async fn contents(&self) -> Result<StreamContents, StoreError> {
        let names = &self.link.names;
        let name = self.link.names.changes_stream();
        for spec in names.streams().iter().filter(|spec| spec.name == name) {
            let made = ensure(&self.link.js, spec, self.replicas, None).await;
            made.map_err(|e| StoreError::Unavailable(e.to_string()))?;
        }
        let mut runs = BTreeMap::new();
        let add = |message: &Message, sequence: u64| {
            if let Some(run) = Names::run_of(message.subject.as_str()) {
                runs.insert(run, published(message, sequence));
            }
        };
        last_headers(&self.link, &name, names.changes_all(), add).await?;
        let bytes = self.state(&name).await?.bytes;
        // A tenth is reserved for growing states.
        let full = bytes > u64::try_from(CHANGES_BYTES_MAX / 10 * 9).unwrap_or(u64::MAX);
        Ok(StreamContents { runs, full })
    }

    async fn state(&self, name: &str) -> Result<async_nats::jetstream::stream::State, StoreError> {
        let lost = |e: String| StoreError::Unavailable(format!("reading {name}: {e}"));
        let stream = self
            .link
            .js
            .get_stream(name)
            .await
            .map_err(|e| lost(e.to_string()))?;
        Ok(stream.cached_info().state.clone())
    }

    /// Number of runs in the stream, and its last sequence. From these a caller detects that the stream was emptied
    /// or lost.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]; also if there is no stream.
    pub async fn extent(&self) -> Result<(u64, u64), StoreError> {
        let state = self.state(&self.link.names.changes_stream()).await?;
        Ok((state.subjects_count, state.last_sequence))
    }

    /// Message of one run on the stream's leader.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn one(&self, run: &RunId) -> Result<Option<PublishedState>, StoreError> {
        let name = self.link.names.changes_stream();
        let lost = |e: String| StoreError::Unavailable(format!("reading {name}: {e}"));
        let stream = self
            .link
            .js
            .get_stream_no_info(&name)
            .await
            .map_err(|e| lost(e.to_string()))?;
        match stream
            .get_last_raw_message_by_subject(&self.link.names.change(run))
            .await
        {
            Ok(message) => {
                let word = |name: &str| message.headers.get(name)?.as_str().parse().ok();
                let mark = word(SEQ_HEADER).zip(word(SUM_HEADER));
                let mark = mark.map(|(seq, sum)| (Seq(seq), Sum(sum)));
                Ok(Some(PublishedState {
                    sequence: message.sequence,
                    mark,
                }))
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(lost(error.to_string())),
        }
    }

    /// Publishes all updates, each on condition. Returns each message's sequence.
    pub async fn publish(&self, update: Vec<StateUpdate>) -> Vec<Result<u64, PublishError>> {
        let messages = update.into_iter().map(|update| Outgoing {
            subject: self.link.names.change(&update.run),
            headers: headers(&update),
            body: update.body,
        });
        let results = self.link.publisher.publish(messages.collect()).await;
        results
            .into_iter()
            .map(|result| result.map_err(PublishError::from))
            .collect()
    }
}

impl From<PublishFault> for PublishError {
    fn from(fault: PublishFault) -> Self {
        match fault {
            PublishFault::WrongSequence => Self::Conflict,
            PublishFault::Refused(why) => Self::Refused(why),
            PublishFault::SubjectFull => Self::Refused("the stream is full".into()),
            PublishFault::Unknown(why) => Self::Unknown(why),
        }
    }
}

fn headers(update: &StateUpdate) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        "Nats-Expected-Last-Subject-Sequence",
        update.replaces.to_string().as_str(),
    );
    match update.mark {
        Some((seq, sum)) => {
            headers.insert(SEQ_HEADER, seq.to_string().as_str());
            headers.insert(SUM_HEADER, sum.to_string().as_str());
        }
        None => headers.insert("Nats-TTL", format!("{FORGOTTEN_FOR_S}s").as_str()),
    }
    headers
}

fn published(message: &Message, sequence: u64) -> PublishedState {
    let mark = number(message, SEQ_HEADER).zip(number(message, SUM_HEADER));
    PublishedState {
        sequence,
        mark: mark.map(|(seq, sum)| (Seq(seq), Sum(sum))),
    }
}
