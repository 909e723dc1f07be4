//! How a NATS store is reached, from a worker's side.

use dormer_nats::{Login, Tls};

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
