//! SSH and SFTP in the dialect of OpenSSH for Windows, with one pool of connections for each worker.

mod conversation;
mod dial;
mod error;
mod guard;
pub mod key_file;
mod peek;
mod pool;
pub mod rotation;
mod session;
mod sftp;
mod signer;

pub use conversation::Conversation;
pub use dial::{BoxIo, Dial, Dialer, Io, TcpDial};
pub use error::{SshError, fingerprint, is_fingerprint};
pub use pool::Pool;
pub use session::{CommandEvent, Output, Session, SshCommand};
pub use sftp::{FILES_AT_ONCE, Sftp, Upload, at_once};
pub use signer::{HeldKey, Signer, SshAgent};

use russh::keys::{self, PrivateKey, PublicKey, decode_secret_key};
use std::{sync::Arc, time::Duration};
use zeroize::Zeroizing;

/// How an encrypted key in PKCS #8's form begins (RFC 7468 §11).
const PKCS8_ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";

/// The private key that opens the hosts. It is printed nowhere. Two are equal if their public halves are, and those of their
/// previous keys.
#[derive(Clone)]
pub struct Key {
    public: PublicKey,
    private: PrivateHalf,
    /// Key of before a rotation, for hosts that refuse this one.
    previous: Option<Arc<Self>>,
}

/// Who signs with the private half.
#[derive(Clone)]
enum PrivateHalf {
    /// This process, which has it.
    Here {
        private: Arc<PrivateKey>,
        text: Arc<Zeroizing<String>>,
    },
    /// A holder outside of this process.
    Held(Arc<dyn Signer>),
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.public.key_data() == other.public.key_data() && self.previous == other.previous
    }
}

impl Eq for Key {}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.previous {
            None => "Key",
            Some(_) => "Key, with a previous one",
        })
    }
}

impl Key {
    /// Reads a key in OpenSSH's or PEM's form, without a passphrase: ed25519, ECDSA, or RSA of at least 2048 bits.
    ///
    /// # Errors
    /// It is no such key; the text is not repeated in the error.
    pub fn read(pem: &str) -> Result<Self, SshError> {
        let key = decode_secret_key(pem, None).map_err(|error| match error {
            keys::Error::KeyIsEncrypted => SshError::KeyEncrypted,
            // russh reports an encrypted PKCS #8 without its passphrase as unreadable.
            _ if pem.contains(PKCS8_ENCRYPTED) => SshError::KeyEncrypted,
            error => SshError::Key(error.to_string()),
        })?;
        match guard::weakness(key.public_key().key_data()) {
            Some(weakness) => Err(SshError::KeyWeak(weakness)),
            None => Ok(Self {
                public: key.public_key().clone(),
                private: PrivateHalf::Here {
                    private: Arc::new(key),
                    text: Arc::new(pem.to_owned().into()),
                },
                previous: None,
            }),
        }
    }

    /// A key whose private half `signer` has.
    fn held(public: PublicKey, signer: Arc<dyn Signer>) -> Self {
        Self {
            public,
            private: PrivateHalf::Held(signer),
            previous: None,
        }
    }

    /// This key, and the one of before a rotation: a login tries `previous` where the host refuses this one.
    #[must_use]
    pub fn with_previous(self, previous: Self) -> Self {
        Self {
            previous: Some(Arc::new(previous)),
            ..self
        }
    }

    /// The key of before a rotation.
    #[must_use]
    pub fn previous(&self) -> Option<&Self> {
        self.previous.as_deref()
    }

    /// Its text and the previous key's, as far as they are in this process, for those who take them out of what hosts
    /// say.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let keys = std::iter::once(self).chain(self.previous.as_deref());
        keys.filter_map(|key| match &key.private {
            PrivateHalf::Here { text, .. } => Some(text.as_str()),
            PrivateHalf::Held(_) => None,
        })
    }

    /// Its public half, as `authorized_keys` has it, without a comment.
    ///
    /// # Errors
    /// The public half cannot be encoded.
    pub fn public_line(&self) -> Result<String, SshError> {
        let mut public = self.public.clone();
        public.set_comment("");
        public
            .to_openssh()
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
    /// Silence after which a keepalive is sent.
    pub keepalive: Duration,
    /// Idle time after which a connection is closed.
    pub idle: Duration,
    /// Most output bytes of one command. A command with more is faulty, and is cut.
    pub output: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(10),
            login: Duration::from_secs(30),
            keepalive: Duration::from_secs(15),
            // Longer than a Node usually takes to appear: one bring-up, one connection.
            idle: Duration::from_secs(600),
            // A thousand times the size of a usual answer.
            output: 256 << 20,
        }
    }
}
