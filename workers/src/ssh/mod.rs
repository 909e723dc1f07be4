//! SSH and SFTP as OpenSSH for Windows speaks them, with one pool of connections a worker.

mod dial;
mod error;
mod pool;
mod session;
mod sftp;

pub use dial::{BoxIo, Dial, Dialer, Io, TcpDial};
pub use error::SshError;
pub use pool::Pool;
pub use session::{Output, Session};
pub use sftp::{Sftp, Upload};

use russh::keys::{PrivateKey, decode_secret_key};
use std::{sync::Arc, time::Duration};

/// The private key that opens the hosts. It is printed nowhere.
#[derive(Clone)]
pub struct Key(Arc<PrivateKey>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Reads a key in OpenSSH's or PEM's form, without a passphrase.
    ///
    /// # Errors
    /// It is no such key; the text is not repeated in the error.
    pub fn read(pem: &str) -> Result<Self, SshError> {
        decode_secret_key(pem, None)
            .map(|key| Self(Arc::new(key)))
            .map_err(|error| SshError::Key(error.to_string()))
    }
}

/// Limits of one connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the first packet to an open connection.
    pub dial: Duration,
    /// From the open connection to a session that is logged in.
    pub login: Duration,
    /// A connection on which nothing arrives for so long is asked for a sign of life.
    pub keepalive: Duration,
    /// A connection that nobody has used for so long is closed.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(10),
            login: Duration::from_secs(30),
            keepalive: Duration::from_secs(15),
            // Longer than a Node usually takes to appear: one bring-up, one connection.
            idle: Duration::from_secs(600),
        }
    }
}
