//! Options of a NATS store, and errors of opening it.

use dormer_nats::{ConnectError, Login, Tls, history_keys::HistoryKeys, signing::Keys};
use dormer_proto::{address::Origin, subject::SERVER_OLDEST};
use std::sync::Arc;

/// Required durability of acknowledged history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// It survives power loss: the server must sync every write (`sync_interval: always`).
    #[default]
    PowerLossSafe,
    /// A person accepts that the newest history may be lost when all replicas stop.
    LazyAccepted,
}

/// Known syncing of the server. Clients cannot query it; the monitoring page shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerSync {
    /// Every write is synced before it is acknowledged.
    EveryWrite,
    /// Writes are synced at intervals.
    AtIntervals,
    Unknown,
}

/// Address and requirements of the store.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `nats://host:port` or `tls://…`; several, separated by commas, for a cluster.
    pub servers: String,
    /// Prefix of subjects and streams; `dormer` by default.
    pub prefix: Option<String>,
    /// Copies of each stream; by default 3 in a cluster and 1 on a single server.
    pub replicas: Option<usize>,
    /// Required durability of acknowledged history.
    pub durability: Durability,
    /// Monitoring page of the server (`http://host:8222`), which shows how it syncs.
    pub monitor: Option<String>,
    pub login: Login,
    pub tls: Tls,
    /// Role in whose name messages are sent.
    pub origin: Origin,
    /// Keys that sign and verify messages. `None`: they are not signed.
    pub keys: Option<Arc<Keys>>,
    /// Keys of the history. `None`: records have no MACs.
    pub history_keys: Option<Arc<HistoryKeys>>,
}

/// Error of opening a store. Each message says what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No connection.
    #[error("cannot connect to {servers}: {why}")]
    Connect {
        servers: String,
        /// Error of the client.
        why: String,
        /// Whether another try would end in the same way.
        lasting: bool,
    },
    /// The server is too old.
    #[error(
        "nats-server {found} is too old: it must be {}.{}.{} or newer; upgrade it",
        SERVER_OLDEST.0, SERVER_OLDEST.1, SERVER_OLDEST.2
    )]
    TooOld {
        /// Version that the server reports.
        found: String,
    },
    /// JetStream is off.
    #[error(
        "JetStream is not enabled ({why}): add `jetstream {{ store_dir: … }}` to the server's configuration, and enable it for this account"
    )]
    NoJetStream {
        /// Error of the server.
        why: String,
    },
    /// The server does not sync each write.
    #[error(
        "the server does not sync each write, so acknowledged history may be lost: set `jetstream \
         {{ sync_interval: always }}` in its configuration, or start dormer with --nats-accept-lazy-sync"
    )]
    LazySync,
    /// A stream has wrong settings.
    #[error(
        "stream {stream} has {found}, but must have {wanted}: change it, or choose another prefix"
    )]
    Stream {
        /// Name of the stream.
        stream: String,
        /// Present setting.
        found: String,
        /// Required setting.
        wanted: String,
    },
    /// There is no store yet, and this process may not make one.
    #[error("no engine has made the store yet: start `dormer run --role engine` on these servers")]
    NoStore,
    /// Part of the store is missing, or it is another kind of store.
    #[error("{0}")]
    Identity(String),
    /// The server did not answer, or refused the request.
    #[error("{doing} failed: {why}")]
    Server {
        /// Attempted operation.
        doing: String,
        why: String,
    },
}

impl From<ConnectError> for OpenError {
    fn from(error: ConnectError) -> Self {
        let ConnectError {
            servers,
            why,
            lasting,
        } = error;
        Self::Connect {
            servers,
            why,
            lasting,
        }
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
