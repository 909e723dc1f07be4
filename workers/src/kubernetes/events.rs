//! Kubernetes Events in dormer's name, as `kubectl describe` shows them.

use dormer_proto::message::cut_to;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for the write of an Event: it must not delay the work that it reports.
pub const EVENT_MAX: Duration = Duration::from_secs(5);
/// Longest note of an Event, in bytes; the API server refuses more.
pub const NOTE_BYTES_MAX: usize = 1_000;

/// Writes Events (`events.k8s.io/v1`). The same one again within some minutes raises a count. Clones share that count.
#[derive(Clone)]
pub struct Events(Recorder);

impl Events {
    /// Events with the source `controller`.
    #[must_use]
    pub fn new(client: Client, controller: &str) -> Self {
        Self(Recorder::new(client, Reporter::from(controller)))
    }

    /// Writes a warning about an object. `reason` and `action` are stable words in `PascalCase`.
    pub async fn warn(&self, about: ObjectReference, reason: &str, action: &str, note: String) {
        self.write(EventType::Warning, about, reason, action, note)
            .await;
    }

    /// Writes a normal Event about a finished action on an object.
    pub async fn report(&self, about: ObjectReference, reason: &str, action: &str, note: String) {
        self.write(EventType::Normal, about, reason, action, note)
            .await;
    }

    /// Logs an Event that cannot be written; the work continues.
    async fn write(
        &self,
        type_: EventType,
        about: ObjectReference,
        reason: &str,
        action: &str,
        note: String,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(cut_to(note, NOTE_BYTES_MAX)),
            action: action.to_owned(),
            secondary: None,
        };
        match timeout(EVENT_MAX, self.0.publish(&event, &about)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(reason, %error, "an Event was not written"),
            Err(_) => tracing::warn!(reason, "an Event was not written: no answer in 5 s"),
        }
    }
}
