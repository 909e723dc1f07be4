//! One connection to a NATS store, which outlives outages.

use super::options::Options;
use crate::port::PortError;
use async_nats::{
    Client, HeaderMap,
    jetstream::{self, context::ContextBuilder},
};
use bytes::Bytes;
pub(super) use dormer_nats::ANSWER_MAX;
use dormer_nats::{
    ConnectError, connect, settings,
    signing::{Keys, Refusal, Signed, SignedAt},
};
use dormer_proto::{
    address::Origin,
    envelope,
    id::Incarnation,
    lock::Locked as _,
    message::{Heartbeat, NodeSettings, RemoteCommand},
    subject::{HISTORY_STREAMS, Identity, META_IDENTITY, Names},
};
use futures::{Stream, StreamExt};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

/// Greatest age of published settings for nodes.
const SETTINGS_AGE_MAX: Duration = Duration::from_secs(300);
/// Least time between two reads of the store's incarnation.
pub(super) const INCARNATION_EVERY: Duration = Duration::from_secs(1);

/// A connection to one store.
pub struct NatsLink {
    pub(super) client: Client,
    pub(super) js: jetstream::Context,
    pub(super) names: Names,
    keys: Option<Arc<Keys>>,
    /// Incarnation of the store. Lock held for a copy, never across an await.
    incarnation: Mutex<KnownIncarnation>,
    /// Lock held during a read of the incarnation. Other readers wait for it: without it a good signature is wrong.
    reading: tokio::sync::Mutex<()>,
}

/// Known incarnation of the store.
#[derive(Default)]
struct KnownIncarnation {
    value: Option<Incarnation>,
    /// Time of the last read.
    asked: Option<Instant>,
    /// Last time that it was read.
    read: Option<Instant>,
}

impl NatsLink {
    /// Connects. A connection that is lost later is sought again without an end.
    ///
    /// # Errors
    /// [`ConnectError`]: no server answers, or it refuses us.
    pub async fn connect(options: &Options) -> Result<Arc<Self>, ConnectError> {
        let settings = settings("dormer worker", 4_096);
        let client = connect(settings, &options.servers, &options.login, &options.tls).await?;
        let js = ContextBuilder::new()
            .timeout(ANSWER_MAX)
            .build(client.clone());
        let names = options
            .prefix
            .as_deref()
            .map_or_else(Names::default, Names::with_prefix);
        Ok(Arc::new(Self {
            client,
            js,
            names,
            keys: options.keys.clone(),
            incarnation: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }))
    }

    /// Publishes into a stream; answers the message's sequence once the server has it.
    pub(super) async fn publish(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<u64, PortError> {
        let sent = if headers.is_empty() {
            self.js.publish(subject, body).await
        } else {
            self.js.publish_with_headers(subject, headers, body).await
        };
        Ok(sent.map_err(failed)?.await.map_err(failed)?.sequence)
    }

    /// Publishes a signed message that no stream acknowledges.
    pub(super) async fn send(
        &self,
        origin: Origin,
        incarnation: Incarnation,
        subject: String,
        body: Bytes,
    ) -> Result<(), PortError> {
        let headers = self.signature(origin, incarnation, &subject, &body);
        let sent = if headers.is_empty() {
            self.client.publish(subject, body).await
        } else {
            self.client
                .publish_with_headers(subject, headers, body)
                .await
        };
        sent.map_err(failed)
    }

    /// Headers with the signature of `origin`; none without keys.
    pub(super) fn signature(
        &self,
        origin: Origin,
        incarnation: Incarnation,
        subject: &str,
        body: &[u8],
    ) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(keys) = &self.keys {
            let signed = Signed {
                incarnation: incarnation.0,
                subject,
                body,
            };
            keys.sign(origin.as_str(), signed, &mut headers);
        }
        headers
    }

    /// Compares a message's signature with it, if there are keys. It decodes nothing. The message may belong to a store
    /// that was created since the last read, so a wrong signature is compared again with the store's present
    /// incarnation. Returns the time of the signature.
    pub(super) async fn verify(
        &self,
        origins: &[Origin],
        subject: &str,
        body: &[u8],
        headers: Option<&HeaderMap>,
    ) -> Result<Option<SignedAt>, Refusal> {
        let roles: Vec<&str> = origins.iter().map(|origin| origin.as_str()).collect();
        let Some(keys) = &self.keys else {
            return Ok(None);
        };
        let examine = |incarnation: Option<Incarnation>| {
            let signed = Signed {
                incarnation: incarnation.unwrap_or_default().0,
                subject,
                body,
            };
            keys.examine(&roles, signed, headers)
        };
        let known = self.known();
        let mut result = examine(known);
        if result == Err(Refusal::WrongSignature) {
            let now = self.refreshed().await;
            if now != known {
                result = examine(now);
            }
        }
        if let Err(refusal) = result {
            keys.refused(refusal, subject);
        }
        result
    }

    /// Compares the age of an order with what its limit allows.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: it is too old. It is counted and logged.
    pub(super) fn fresh(
        &self,
        at: Option<SignedAt>,
        age: Duration,
        subject: &str,
    ) -> Result<(), Refusal> {
        let (Some(at), Some(keys)) = (at, &self.keys) else {
            return Ok(());
        };
        at.within(age, SignedAt::now())
            .inspect_err(|refusal| keys.refused(*refusal, subject))
    }

    /// Incarnation of the store, if it was read before.
    fn known(&self) -> Option<Incarnation> {
        self.incarnation.locked().value
    }

    /// Time since the store's incarnation was read. `None`: it never was.
    pub(super) fn incarnation_age(&self) -> Option<Duration> {
        let known = self.incarnation.locked();
        known.read.map(|at| at.elapsed())
    }

    /// Incarnation of the store, read once in a while only: anyone can send wrong signatures.
    async fn refreshed(&self) -> Option<Incarnation> {
        let _reading = self.reading.lock().await;
        {
            let mut known = self.incarnation.locked();
            let now = Instant::now();
            let asked = known.asked.replace(now);
            // Until it is known, each message asks: an engine makes a store and sends the first order at once.
            let known_lately = known.value.is_some()
                && asked.is_some_and(|at| now.duration_since(at) < INCARNATION_EVERY);
            if known_lately {
                known.asked = asked;
                return known.value;
            }
        }
        if let Err(error) = self.incarnation().await {
            tracing::debug!(%error, "the store's incarnation is unknown");
        }
        self.known()
    }

    /// Incarnation of the store: the known one, else read now.
    pub(super) async fn present(&self) -> Option<Incarnation> {
        match self.known() {
            Some(known) => Some(known),
            None => self.refreshed().await,
        }
    }

    /// Reads the incarnation of the store.
    pub(super) async fn incarnation(&self) -> Result<Incarnation, PortError> {
        let stream = self
            .js
            .get_stream_no_info(self.names.meta_stream())
            .await
            .map_err(failed)?;
        let found = stream
            .get_last_raw_message_by_subject(&self.names.meta(META_IDENTITY))
            .await;
        let found = found.map_err(|error| {
            PortError(format!(
                "no store is here yet ({error}): an engine makes it"
            ))
        })?;
        let identity: Identity = serde_json::from_slice(&found.payload).map_err(failed)?;
        if identity.history_streams != HISTORY_STREAMS {
            return Err(PortError(format!(
                "the store has {} history streams; this build reads {HISTORY_STREAMS}",
                identity.history_streams
            )));
        }
        let mut known = self.incarnation.locked();
        known.value = Some(identity.incarnation);
        known.read = Some(Instant::now());
        Ok(identity.incarnation)
    }

    /// Every worker's and approver's heartbeats and remote commands, and workers' settings for nodes. Some may be missed.
    ///
    /// # Errors
    /// The connection has ended for good.
    pub async fn heartbeats(
        self: &Arc<Self>,
    ) -> Result<impl Stream<Item = WorkerEvent> + Send + use<>, PortError> {
        let beats = self
            .client
            .subscribe(self.names.heartbeats())
            .await
            .map_err(failed)?;
        let link = Arc::clone(self);
        Ok(beats.filter_map(move |message| {
            let link = Arc::clone(&link);
            async move {
                let headers = message.headers.as_ref();
                let verify = |origins: &'static [Origin]| {
                    link.verify(origins, &message.subject, &message.payload, headers)
                };
                verify(&[Origin::Worker, Origin::Approver]).await.ok()?;
                let event = WorkerEvent::read(&message.payload)?;
                if matches!(event, WorkerEvent::Settings(_)) {
                    // An approver does not configure nodes, and an earlier message may be outdated.
                    let at = verify(&[Origin::Worker]).await.ok()?;
                    link.fresh(at, SETTINGS_AGE_MAX, &message.subject).ok()?;
                }
                Some(event)
            }
        }))
    }
}

/// Message that a worker publishes for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerEvent {
    /// An attempt is alive.
    Heartbeat(Heartbeat),
    Ran(RemoteCommand),
    /// Values for rendering nodes.
    Settings(NodeSettings),
}

impl WorkerEvent {
    /// `None`: a message that only a newer build knows.
    fn read(bytes: &[u8]) -> Option<Self> {
        let beat = envelope::decode::<Heartbeat>(bytes, 0).map(|(beat, _)| Self::Heartbeat(beat));
        let ran = || envelope::decode::<RemoteCommand>(bytes, 0).map(|(ran, _)| Self::Ran(ran));
        let settings =
            || envelope::decode::<NodeSettings>(bytes, 0).map(|(it, _)| Self::Settings(it));
        beat.or_else(|_| ran()).or_else(|_| settings()).ok()
    }
}

pub(super) fn failed(error: impl std::fmt::Display) -> PortError {
    PortError(error.to_string())
}
