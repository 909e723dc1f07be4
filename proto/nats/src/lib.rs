//! Connections to NATS as engine and workers make them: login, TLS, and what an outage does.

use async_nats::{Client, ConnectOptions, ServerAddr};
use std::{path::PathBuf, time::Duration};

/// How long one answer of the server may take before it counts as none.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Who we are to the server.
#[derive(Clone, Default)]
pub enum Login {
    /// Nobody in particular, or whoever the URL names.
    #[default]
    Open,
    /// A user with a password.
    User {
        /// The user's name.
        user: String,
        /// The password.
        password: String,
    },
    /// Whoever has the token.
    Token(String),
    /// A credentials file (`.creds`: a JWT and its key).
    #[cfg(feature = "nats-creds")]
    CredentialsFile(PathBuf),
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Secrets do not belong in logs.
        f.write_str(match self {
            Self::Open => "Open",
            Self::User { .. } => "User",
            Self::Token(_) => "Token",
            #[cfg(feature = "nats-creds")]
            Self::CredentialsFile(_) => "CredentialsFile",
        })
    }
}

/// TLS files, PEM.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Authorities to trust beside the system's.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key, where the server wants one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Refuse a server without TLS.
    pub required: bool,
}

/// There is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot connect to {servers}: {why}")]
pub struct ConnectError {
    /// Where.
    pub servers: String,
    /// What the client says.
    pub why: String,
}

/// Settings of a connection under `name`, with room for `capacity` messages on their way out. A connection that is
/// lost is sought again without an end.
pub fn settings(name: &str, capacity: usize) -> ConnectOptions {
    ConnectOptions::new()
        .name(name)
        .client_capacity(capacity)
        .request_timeout(Some(ANSWER_MAX))
        // An outage may last as long as it likes.
        .max_reconnects(None)
        .reconnect_delay_callback(|tries| Duration::from_millis((50 << tries.min(6)) as u64))
}

/// Connects to one of `servers`, which commas separate.
///
/// # Errors
/// [`ConnectError`]: no server answers, or it refuses us.
pub async fn connect(
    mut settings: ConnectOptions,
    servers: &str,
    login: &Login,
    tls: &Tls,
) -> Result<Client, ConnectError> {
    let refused = |why: String| ConnectError {
        servers: servers.to_owned(),
        why,
    };
    let mut addresses = Vec::new();
    for server in servers
        .split(',')
        .filter(|server| !server.trim().is_empty())
    {
        addresses.push(
            server
                .trim()
                .parse::<ServerAddr>()
                .map_err(|e| refused(e.to_string()))?,
        );
    }
    settings = match login {
        Login::Open => settings,
        Login::User { user, password } => {
            settings.user_and_password(user.clone(), password.clone())
        }
        Login::Token(token) => settings.token(token.clone()),
        #[cfg(feature = "nats-creds")]
        Login::CredentialsFile(path) => settings
            .credentials_file(path)
            .await
            .map_err(|e| refused(e.to_string()))?,
    };
    settings = settings.require_tls(tls.required);
    if let Some(ca) = &tls.ca {
        settings = settings.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &tls.identity {
        settings = settings.add_client_certificate(certificate.clone(), key.clone());
    }
    settings.connect(addresses).await.map_err(|error| {
        // The kind alone says "authorization violation"; the source says which file or name was wrong.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        refused(source.map_or_else(|| error.to_string(), |source| format!("{error} ({source})")))
    })
}
