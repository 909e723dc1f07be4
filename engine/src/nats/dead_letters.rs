//! Dead letters on NATS: a stream on file. The payload is the message; headers hold the rest.

use super::link::{Link, header_of, number};
use crate::port::{DeadLetter, DeadLetters, StoreError};
use async_nats::{HeaderMap, Message, jetstream::stream::DeleteMessageErrorKind};
use dormer_proto::{
    id::{RunId, Timestamp},
    message::cut,
};
use std::sync::Arc;

const RUN: &str = "Dormer-Run";
const REASON: &str = "Dormer-Reason";
const AT: &str = "Dormer-At";
const ORIGIN: &str = "Dormer-Origin";

/// "no message found" and "sequence not found": which one depends on the message's position in the stream.
const GONE: [u64; 2] = [10_037, 10_043];

/// "message delete failed", with the reason in the text only: the message had been the stream's first.
const DELETE_FAILED: u64 = 10_057;

/// Dead letters of a NATS store.
pub struct NatsDead {
    link: Arc<Link>,
}

impl NatsDead {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }
}

/// A header holds one line.
fn line(text: &str) -> String {
    cut(text.replace(['\r', '\n'], " "))
}

impl DeadLetters for NatsDead {
    async fn put(&self, dead_letter: DeadLetter) -> Result<(), StoreError> {
        let mut headers = HeaderMap::new();
        headers.insert(REASON, line(&dead_letter.reason).as_str());
        headers.insert(ORIGIN, line(&dead_letter.origin).as_str());
        headers.insert(AT, dead_letter.at.0.to_string().as_str());
        let nobody = || RunId::new("unknown", "unknown").ok();
        if let Some(run) = &dead_letter.run {
            headers.insert(RUN, line(run.as_str()).as_str());
        }
        let Some(run) = dead_letter.run.or_else(nobody) else {
            return Ok(());
        };
        self.link
            .publish(
                self.link.names.dead(&run),
                headers,
                dead_letter.bytes.into(),
            )
            .await?;
        Ok(())
    }

    async fn list(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        let stream = self.link.names.dead_stream();
        let mut dead_letters = Vec::new();
        let mut next = after + 1;
        while dead_letters.len() < limit {
            let request = serde_json::json!({
                "next_by_subj": self.link.names.dead_all(),
                "seq": next,
                "batch": limit - dead_letters.len(),
            });
            let (messages, cut) = self.link.read(&stream, request).await?;
            dead_letters.extend(messages.iter().filter_map(dead_letter));
            next = messages
                .last()
                .and_then(|m| number(m, "Nats-Sequence"))
                .map_or(next, |n| n + 1);
            if !cut || messages.is_empty() {
                break;
            }
        }
        Ok(dead_letters)
    }

    async fn remove(&self, id: u64) -> Result<(), StoreError> {
        let lost = |e: String| StoreError::Unavailable(format!("removing dead letter {id}: {e}"));
        let name = self.link.names.dead_stream();
        let stream = self
            .link
            .js
            .get_stream_no_info(&name)
            .await
            .map_err(|e| lost(e.to_string()))?;
        match stream.delete_message(id).await {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                // Another process removed it.
                DeleteMessageErrorKind::JetStream(e)
                    if GONE.contains(&e.error_code().0)
                        || (e.error_code().0 == DELETE_FAILED
                            && e.to_string().contains("no message found")) =>
                {
                    Ok(())
                }
                _ => Err(lost(error.to_string())),
            },
        }
    }
}

fn dead_letter(message: &Message) -> Option<DeadLetter> {
    Some(DeadLetter {
        id: number(message, "Nats-Sequence")?,
        run: header_of(message, RUN).and_then(|run| run.parse().ok()),
        reason: header_of(message, REASON)?.to_owned(),
        at: Timestamp(number(message, AT)?),
        origin: header_of(message, ORIGIN)?.to_owned(),
        bytes: message.payload.to_vec(),
    })
}
