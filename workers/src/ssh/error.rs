//! Errors of the connection to a host, in words that a person can act on.

use dormer_proto::message::Failure;
use russh::keys::{HashAlg, PublicKey};
use std::io;

/// Time after which a login is tried again whose key's holder did not sign, in milliseconds.
const SIGNER_AGAIN_MS: u64 = 15_000;

/// Reason for which a host could not be reached or asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    /// The private key cannot be read.
    #[error("the SSH private key cannot be read: {0}")]
    Key(String),
    /// The private key has a passphrase.
    #[error("the SSH private key is encrypted: store it without a passphrase")]
    KeyEncrypted,
    /// The private key is none that we use.
    #[error("the SSH private key is {0}: make another (ssh-keygen -t ed25519, or -t rsa -b 3072)")]
    KeyWeak(String),
    /// What holds the private key does not answer, has no such key, or does not sign with it.
    #[error("{0} {1}")]
    Signer(String, String),
    /// Nothing listens.
    #[error(
        "the SSH port of {0} refuses connections: sshd does not run (yet), or the host is still booting"
    )]
    Refused(String),
    /// No answer at all.
    #[error(
        "no answer from {0}: the host is down, or a firewall drops packets to its SSH port (is the network profile Public?)"
    )]
    NoAnswer(String),
    /// This computer cannot send to the address, for example because it has no route, or a name has no address.
    #[error("{0} cannot be reached from here: {1} (look at route, name and network policy)")]
    Unreachable(String, String),
    /// The connection ended before the login.
    #[error("{0} ends the connection before the login: {1}")]
    Handshake(String, String),
    /// The key is not accepted.
    #[error(
        "{0} does not accept our key for {1}: user data has not run yet, or accounts other than Administrators and \
         SYSTEM can write administrators_authorized_keys"
    )]
    Auth(String, String),
    /// Another host key than the pinned one.
    #[error(
        "{address} shows another host key than the pinned one: {}, not {}; nothing was sent to it",
        fingerprint(shown),
        fingerprint(pinned)
    )]
    HostKey {
        address: String,
        pinned: String,
        /// The key that the host shows.
        shown: String,
    },
    /// A host key that proves nothing.
    #[error(
        "{0} shows a host key that is {1}: delete that key's two files in C:\\ProgramData\\ssh and restart sshd"
    )]
    HostKeyWeak(String, String),
    /// Host and dormer share no algorithm.
    #[error("{0} and dormer have no common {1}: dormer takes ed25519, ECDSA, and RSA with SHA-2")]
    NoCommon(String, String),
    /// No further channel on a connection that is logged in.
    #[error(
        "{0} opens no further session on this connection: MaxSessions in its sshd_config is too low"
    )]
    Sessions(String),
    /// It talks without end.
    #[error("the {1} of {0} has no end: cut after {2} bytes")]
    Endless(String, &'static str, u64),
    /// The connection broke.
    #[error("the connection to {0} broke: {1}")]
    Broken(String, String),
    /// The host does not answer in time.
    #[error("{0} does not answer in time: {1}")]
    Silent(String, String),
    /// SFTP does not answer, or ends at once.
    #[error("SFTP of {0} does not answer as it should: {1}")]
    Sftp(String, String),
    /// There is no SFTP.
    #[error("{0} has no SFTP: its sshd_config lacks the line 'Subsystem sftp sftp-server.exe'")]
    SftpMissing(String),
    /// Something is printed into SFTP's stream.
    #[error(
        "SFTP of {0} begins with the text {1:?}: a profile of its default shell prints text; remove that output"
    )]
    SftpNoise(String, String),
    /// A file cannot be written.
    #[error("{path} cannot be written on {address}: {why}")]
    File {
        /// Address of the host.
        address: String,
        /// Path of the file on the host.
        path: String,
        /// Status of SFTP, in words.
        why: String,
    },
    /// A file cannot be written for lack of room.
    #[error("drive C of {0} seems to be full: {1} cannot be written")]
    Full(String, String),
    /// The data differ from what was announced, and no wrong file was left on the host.
    #[error(
        "dormer's copy of the payload file with SHA-256 {0} is damaged ({1}): copy the payload again"
    )]
    Source(String, String),
}

impl SshError {
    /// An error of the socket.
    pub(super) fn of_dial(address: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused(address.to_owned()),
            io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => Self::NoAnswer(address.to_owned()),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => {
                Self::Handshake(address.to_owned(), error.to_string())
            }
            _ => Self::Unreachable(address.to_owned(), error.to_string()),
        }
    }

    /// Whether the connection itself is of no more use.
    #[must_use]
    pub fn breaks(&self) -> bool {
        !matches!(
            self,
            Self::File { .. } | Self::Full(..) | Self::Source(..) | Self::SftpMissing(_)
        )
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Key(_) => "KeyUnreadable",
            Self::KeyEncrypted => "KeyEncrypted",
            Self::KeyWeak(_) => "KeyTooWeak",
            Self::Signer(..) => "SshAgentUnusable",
            Self::Refused(_) => "ConnectRefused",
            Self::NoAnswer(_) | Self::Unreachable(..) => "ConnectTimeout",
            Self::Handshake(..) => "HandshakeFailed",
            Self::Auth(..) => "AuthRejected",
            Self::HostKey { .. } => "HostKeyChanged",
            Self::HostKeyWeak(..) => "HostKeyTooWeak",
            Self::NoCommon(..) => "NoCommonAlgorithm",
            Self::Sessions(_) => "SessionRefused",
            Self::Endless(..) => "OutputEndless",
            Self::Broken(..) => "ConnectionLost",
            Self::Silent(..) => "NoAnswer",
            Self::Sftp(..) | Self::SftpNoise(..) => "SftpUnusable",
            Self::SftpMissing(_) => "SftpMissing",
            Self::File { .. } => "UploadFailed",
            Self::Full(..) => "DiskFull",
            Self::Source(..) => "PayloadDamaged",
        }
    }
}

impl SshError {
    /// Fingerprint of the key that a host shows instead of the pinned one, as `dormer trust-host-key` takes it.
    fn shown_key(&self) -> Option<String> {
        let Self::HostKey { shown, .. } = self else {
            return None;
        };
        let key = PublicKey::from_openssh(shown).ok()?;
        Some(key.fingerprint(HashAlg::Sha256).to_string())
    }
}

impl From<SshError> for Failure {
    fn from(error: SshError) -> Self {
        let code = error.code();
        let text = error.to_string();
        let shown_key = error.shown_key();
        match error {
            // Errors that no further attempt can resolve. The workflow judges a refused key, since it knows the age of
            // the host.
            SshError::Key(_)
            | SshError::KeyEncrypted
            | SshError::KeyWeak(_)
            | SshError::Auth(..)
            | SshError::HostKeyWeak(..)
            | SshError::NoCommon(..)
            | SshError::Endless(..)
            | SshError::SftpMissing(_)
            | SshError::SftpNoise(..) => Self::lasting(code, text),
            SshError::HostKey { .. } => Self {
                shown_key,
                ..Self::lasting(code, text)
            },
            // The host did nothing wrong, so that its attempts do not count. A person mends the holder of the key.
            SshError::Signer(..) => Self {
                after_ms: Some(SIGNER_AGAIN_MS),
                uncounted: true,
                ..Self::transient(code, text)
            },
            // A host with a full disk is retried slowly (scenario 18).
            SshError::Full(..) => Self {
                after_ms: Some(60_000),
                ..Self::transient(code, text)
            },
            _ => Self::transient(code, text),
        }
    }
}

/// Whether a pin is of this public key: the key itself, or its fingerprint.
#[must_use]
pub(super) fn pins(pin: &str, public: &str) -> bool {
    pin == public || (is_fingerprint(pin) && fingerprint(public).split(' ').nth(1) == Some(pin))
}

/// Whether a pin is a fingerprint that a person compared, and no key that was seen.
#[must_use]
pub fn is_fingerprint(pin: &str) -> bool {
    pin.starts_with("SHA256:")
}

/// A public key in the form that people compare (`ssh-ed25519 SHA256:…`). Other text is returned unchanged.
#[must_use]
pub fn fingerprint(public: &str) -> String {
    let Ok(key) = PublicKey::from_openssh(public) else {
        return public.to_owned();
    };
    let kind = public.split(' ').next().unwrap_or_default();
    format!("{kind} {}", key.fingerprint(HashAlg::Sha256))
}
