//! Quarantine on NATS: notes in the identity stream, one subject for each run.

use super::{
    link::{Link, number},
    publish::PublishFault,
};
use crate::port::{Quarantine, QuarantineNote, StoreError, note_has_changed};
use async_nats::{HeaderMap, Message, jetstream::stream::LastRawMessageErrorKind};
use dormer_proto::{id::RunId, subject::DEAD_LETTERS_MAX};
use std::sync::Arc;

/// Notes in one read.
const PAGE_MAX: i64 = 1_000;

/// Quarantine of a NATS store.
pub struct NatsQuarantine {
    link: Arc<Link>,
}

impl NatsQuarantine {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// Last message on the subject of a run's note, from the stream's leader: its sequence, and the note if this build
    /// can read it.
    async fn last_of(
        &self,
        run: &RunId,
    ) -> Result<Option<(u64, Option<QuarantineNote>)>, StoreError> {
        let lost = |e: String| StoreError::Unavailable(format!("reading the note of {run}: {e}"));
        let name = self.link.names.meta_stream();
        let stream = self.link.js.get_stream_no_info(&name).await;
        let stream = stream.map_err(|e| lost(e.to_string()))?;
        let subject = self.link.names.quarantine(run);
        match stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => {
                let note = read(&message.payload, message.sequence);
                Ok(Some((message.sequence, note)))
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(lost(error.to_string())),
        }
    }

    async fn note_of(&self, run: &RunId) -> Result<Option<QuarantineNote>, StoreError> {
        Ok(self.last_of(run).await?.and_then(|(_, note)| note))
    }

    /// Writes a note if the last message on its subject has this sequence.
    async fn write(
        &self,
        note: &QuarantineNote,
        last: u64,
    ) -> Result<Result<u64, PublishFault>, StoreError> {
        let subject = self.link.names.quarantine(&note.run);
        let body = serde_json::to_vec(note);
        let body = body.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let mut headers = HeaderMap::new();
        headers.insert(
            "Nats-Expected-Last-Subject-Sequence",
            last.to_string().as_str(),
        );
        Ok(self.link.publish(subject, headers, body.into()).await)
    }
}

fn read(payload: &[u8], version: u64) -> Option<QuarantineNote> {
    let note = serde_json::from_slice::<QuarantineNote>(payload).ok()?;
    Some(QuarantineNote { version, ..note })
}

impl Quarantine for NatsQuarantine {
    async fn put(&self, note: QuarantineNote) -> Result<u64, StoreError> {
        let mut written = self.write(&note, note.version).await?;
        if note.version == 0
            && matches!(written, Err(PublishFault::WrongSequence))
            && let Some((unreadable, None)) = self.last_of(&note.run).await?
        {
            written = self.write(&note, unreadable).await?;
        }
        match written {
            Err(PublishFault::WrongSequence) => Err(note_has_changed(&note.run)),
            written => Ok(written?),
        }
    }

    async fn notes_of(&self, runs: &[RunId]) -> Result<Vec<Option<QuarantineNote>>, StoreError> {
        futures::future::try_join_all(runs.iter().map(|run| self.note_of(run))).await
    }

    async fn notes(&self) -> Result<Vec<QuarantineNote>, StoreError> {
        let stream = self.link.names.meta_stream();
        let mut notes: Vec<QuarantineNote> = Vec::new();
        let mut next = 1;
        while notes.len() < usize::try_from(DEAD_LETTERS_MAX).unwrap_or(usize::MAX) {
            let request = serde_json::json!({
                "next_by_subj": self.link.names.quarantine_all(), "seq": next, "batch": PAGE_MAX,
            });
            let (messages, cut) = self.link.read(&stream, request).await?;
            let sequence = |message: &Message| number(message, "Nats-Sequence");
            let read = |message: &Message| read(&message.payload, sequence(message)?);
            notes.extend(messages.iter().filter_map(read));
            next = messages.last().and_then(sequence).map_or(next, |at| at + 1);
            if !cut || messages.is_empty() {
                break;
            }
        }
        notes.sort_by(|a, b| a.run.cmp(&b.run));
        Ok(notes)
    }

    async fn remove(&self, run: &RunId, version: u64) -> Result<(), StoreError> {
        let lost = |e: String| StoreError::Unavailable(format!("removing the note of {run}: {e}"));
        let name = self.link.names.meta_stream();
        let stream = self.link.js.get_stream_no_info(&name).await;
        let stream = stream.map_err(|e| lost(e.to_string()))?;
        // Up to and including this version, so that a note written meanwhile stays.
        let purge = stream
            .purge()
            .filter(self.link.names.quarantine(run))
            .sequence(version + 1);
        purge.await.map(drop).map_err(|e| lost(e.to_string()))
    }
}
