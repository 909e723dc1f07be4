//! Options of a worker's connection to a NATS store.

use dormer_nats::{Login, Tls, signing::Keys};
use std::sync::Arc;

/// Where the store is.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `nats://host:port` or `tls://…`; several, separated by commas, for a cluster.
    pub servers: String,
    /// The prefix of subjects and streams; `dormer` by default.
    pub prefix: Option<String>,
    pub login: Login,
    pub tls: Tls,
    /// Keys that sign and verify messages. `None`: they are not signed.
    pub keys: Option<Arc<Keys>>,
}
