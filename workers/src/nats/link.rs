//! One connection to a NATS store, which outlives outages.

use super::options::{ConnectError, Login, Options};
use crate::port::PortError;
use async_nats::{
    Client, ConnectOptions, ServerAddr,
    jetstream::{self, context::ContextBuilder},
};
use bytes::Bytes;
use dormer_proto::{
    envelope,
    message::{Heartbeat, RemoteCommand},
    subject::Names,
};
use futures::{Stream, StreamExt};
use std::{sync::Arc, time::Duration};

/// How long one answer of the server may take before it counts as none.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(5);

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
        let refused = |why: String| ConnectError {
            servers: options.servers.clone(),
            why,
        };
        let mut servers = Vec::new();
        for server in options
            .servers
            .split(',')
            .filter(|server| !server.trim().is_empty())
        {
            servers.push(
                server
                    .trim()
                    .parse::<ServerAddr>()
                    .map_err(|e| refused(e.to_string()))?,
            );
        }
        let how = settings(options).await.map_err(refused)?;
        let client = how.connect(servers).await.map_err(|error| {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            refused(source.map_or_else(|| error.to_string(), |why| format!("{error} ({why})")))
        })?;
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

async fn settings(options: &Options) -> Result<ConnectOptions, String> {
    let mut how = ConnectOptions::new()
        .name("dormer worker")
        .client_capacity(4_096)
        .request_timeout(Some(ANSWER_MAX))
        // An outage may last as long as it likes.
        .max_reconnects(None)
        .reconnect_delay_callback(|tries| Duration::from_millis((50 << tries.min(6)) as u64));
    how = match &options.login {
        Login::Open => how,
        Login::User { user, password } => how.user_and_password(user.clone(), password.clone()),
        Login::Token(token) => how.token(token.clone()),
        #[cfg(feature = "nats-creds")]
        Login::CredentialsFile(path) => how
            .credentials_file(path)
            .await
            .map_err(|error| error.to_string())?,
    };
    how = how.require_tls(options.tls.required);
    if let Some(ca) = &options.tls.ca {
        how = how.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &options.tls.identity {
        how = how.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(how)
}

pub(super) fn failed(error: impl std::fmt::Display) -> PortError {
    PortError(error.to_string())
}
