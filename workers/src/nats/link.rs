//! One connection to a NATS store, which outlives outages.

use super::options::Options;
use crate::port::PortError;
use async_nats::{
    Client,
    jetstream::{self, context::ContextBuilder},
};
use bytes::Bytes;
pub(super) use dormer_nats::ANSWER_MAX;
use dormer_nats::{ConnectError, connect, settings};
use dormer_proto::{
    envelope,
    message::{Heartbeat, RemoteCommand},
    subject::Names,
};
use futures::{Stream, StreamExt};
use std::sync::Arc;

/// A connection to one store.
#[derive(Clone)]
pub struct NatsLink {
    pub(super) client: Client,
    pub(super) js: jetstream::Context,
    pub(super) names: Names,
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
        Ok(Arc::new(Self { client, js, names }))
    }

    /// Publishes into a stream; answers the message's sequence once the server has it.
    pub(super) async fn publish(&self, subject: String, body: Bytes) -> Result<u64, PortError> {
        let sent = self.js.publish(subject, body).await.map_err(failed)?;
        Ok(sent.await.map_err(failed)?.sequence)
    }

    /// Every worker's heartbeats and remote commands, for those who show them. Some may be missed.
    ///
    /// # Errors
    /// The connection has ended for good.
    pub async fn heartbeats(&self) -> Result<impl Stream<Item = Sign> + Send + use<>, PortError> {
        let beats = self
            .client
            .subscribe(self.names.heartbeats())
            .await
            .map_err(failed)?;
        Ok(beats.filter_map(async |message| Sign::read(&message.payload)))
    }
}

/// What a worker shows to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// An attempt is alive.
    Beat(Heartbeat),
    /// It ran a command.
    Ran(RemoteCommand),
}

impl Sign {
    /// `None`: something that only a newer build knows.
    fn read(bytes: &[u8]) -> Option<Self> {
        let beat = envelope::decode::<Heartbeat>(bytes, 0).map(|(beat, _)| Self::Beat(beat));
        let ran = || envelope::decode::<RemoteCommand>(bytes, 0).map(|(ran, _)| Self::Ran(ran));
        beat.or_else(|_| ran()).ok()
    }
}

pub(super) fn failed(error: impl std::fmt::Display) -> PortError {
    PortError(error.to_string())
}
