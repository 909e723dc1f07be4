//! How a NATS store is reached, from a worker's side.

use std::path::PathBuf;

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

/// Where the store is.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `nats://host:port` or `tls://…`; several, separated by commas, for a cluster.
    pub servers: String,
    /// The prefix of subjects and streams; `dormer` by default.
    pub prefix: Option<String>,
    /// Who we are.
    pub login: Login,
    /// TLS.
    pub tls: Tls,
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
