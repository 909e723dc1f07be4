//! How a NATS store is reached, and what may keep it from being opened.

use dormer_nats::{ConnectError, Login, Tls};
use dormer_proto::subject::SERVER_OLDEST;

/// What must hold of history that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// It survives power loss: the server must sync every write (`sync_interval: always`).
    #[default]
    Always,
    /// A person accepts that the newest history may be lost when all replicas stop.
    LazyAccepted,
}

/// What is known of the server's syncing. A client is not told; a monitoring page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    /// Every write is synced before it is acknowledged.
    Always,
    /// Writes are synced now and then.
    Lazy,
    /// Nobody would tell.
    Unknown,
}

/// Where the store is and what it must be.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `nats://host:port` or `tls://…`; several, separated by commas, for a cluster.
    pub servers: String,
    /// The prefix of subjects and streams; `dormer` by default.
    pub prefix: Option<String>,
    /// Copies of each stream; by default 3 in a cluster and 1 on a single server.
    pub replicas: Option<usize>,
    /// What must hold of acknowledged history.
    pub sync: Sync,
    /// The server's monitoring page (`http://host:8222`), which tells how it syncs.
    pub monitor: Option<String>,
    /// Who we are.
    pub login: Login,
    /// TLS.
    pub tls: Tls,
}

/// Why a store was not opened. Each says what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No connection.
    #[error("cannot connect to {servers}: {why}")]
    Connect {
        /// Where.
        servers: String,
        /// What the client says.
        why: String,
    },
    /// The server is too old.
    #[error(
        "nats-server {found} is too old: it must be {}.{}.{} or newer; upgrade it",
        SERVER_OLDEST.0, SERVER_OLDEST.1, SERVER_OLDEST.2
    )]
    TooOld {
        /// What the server says it is.
        found: String,
    },
    /// JetStream is off.
    #[error(
        "JetStream is not enabled ({why}): add `jetstream {{ store_dir: … }}` to the server's configuration, and enable it for this account"
    )]
    NoJetStream {
        /// What the server says.
        why: String,
    },
    /// The server syncs lazily.
    #[error(
        "the server does not sync each write, so acknowledged history may be lost: set `jetstream {{ sync_interval: always }}` in its configuration, or start dormer accepting lazy sync"
    )]
    LazySync,
    /// A stream is not as it must be.
    #[error(
        "stream {stream} has {found}, and must have {wanted}: change it, or choose another prefix"
    )]
    Stream {
        /// Which.
        stream: String,
        /// What it has.
        found: String,
        /// What it must have.
        wanted: String,
    },
    /// Part of the store is missing, or it is another kind of store.
    #[error("{0}")]
    Identity(String),
    /// The server did not answer, or refused.
    #[error("{doing} failed: {why}")]
    Server {
        /// What was tried.
        doing: String,
        /// What came of it.
        why: String,
    },
}

impl From<ConnectError> for OpenError {
    fn from(error: ConnectError) -> Self {
        let ConnectError { servers, why } = error;
        Self::Connect { servers, why }
    }
}

impl OpenError {
    pub(super) fn server(doing: impl Into<String>, why: impl ToString) -> Self {
        Self::Server {
            doing: doing.into(),
            why: why.to_string(),
        }
    }
}
