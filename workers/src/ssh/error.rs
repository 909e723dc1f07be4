//! What goes wrong on the way to a host, in words that a person can act on.

use dormer_proto::message::Failure;
use std::io;

/// Why a host could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    /// The private key cannot be read.
    #[error("the SSH private key cannot be read: {0}")]
    Key(String),
    /// Nothing listens.
    #[error(
        "port 22 of {0} refuses connections: sshd does not run (yet), or the host is still booting"
    )]
    Refused(String),
    /// No answer at all.
    #[error(
        "no answer from {0}: the host is down, or a firewall drops packets (port 22, profile Public?)"
    )]
    NoAnswer(String),
    /// The connection ended before the login.
    #[error("{0} ends the connection before the login: {1}")]
    Handshake(String, String),
    /// The key is not accepted.
    #[error(
        "{0} does not accept our key for {1}: user data has not run yet, or administrators_authorized_keys \
         is open to others than Administrators and SYSTEM"
    )]
    Auth(String, String),
    /// Another host key than the pinned one.
    #[error(
        "{address} shows the host key {shown}, not the pinned {pinned}: nothing was sent to it; if the host was \
         reinstalled, recreate the Machine"
    )]
    HostKey {
        /// Where.
        address: String,
        /// What was pinned.
        pinned: String,
        /// What it shows.
        shown: String,
    },
    /// The connection broke.
    #[error("the connection to {0} broke: {1}")]
    Broken(String, String),
    /// The host does not answer in time.
    #[error("{0} does not answer in time: {1}")]
    Silent(String, String),
    /// Something printed into SFTP's stream, or no SFTP there.
    #[error("SFTP of {0} does not answer as it should: {1}; does a shell profile write output?")]
    Sftp(String, String),
    /// A file cannot be written.
    #[error("{path} cannot be written on {address}: {why}")]
    File {
        /// Where.
        address: String,
        /// Which.
        path: String,
        /// Why not.
        why: String,
    },
    /// A file cannot be written for lack of room.
    #[error("{1} cannot be written on {0}: its disk C: is full, by all signs; free space there")]
    Full(String, String),
    /// What was to be sent is not what it should be; nothing wrong was left on the host.
    #[error(
        "the payload file with SHA-256 {0} has another content here ({1}): copy the payload anew"
    )]
    Source(String, String),
}

impl SshError {
    /// An error of the socket.
    pub(super) fn of_dial(address: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused(address.to_owned()),
            io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => {
                Self::NoAnswer(address.to_owned())
            }
            _ => Self::Handshake(address.to_owned(), error.to_string()),
        }
    }

    /// Whether the connection itself is of no more use.
    #[must_use]
    pub fn breaks(&self) -> bool {
        !matches!(self, Self::File { .. } | Self::Full(..) | Self::Source(..))
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Key(_) => "KeyUnreadable",
            Self::Refused(_) => "ConnectRefused",
            Self::NoAnswer(_) => "ConnectTimeout",
            Self::Handshake(..) => "HandshakeFailed",
            Self::Auth(..) => "AuthRejected",
            Self::HostKey { .. } => "HostKeyChanged",
            Self::Broken(..) => "ConnectionLost",
            Self::Silent(..) => "NoAnswer",
            Self::Sftp(..) => "SftpUnusable",
            Self::File { .. } => "UploadFailed",
            Self::Full(..) => "DiskFull",
            Self::Source(..) => "PayloadDamaged",
        }
    }
}

impl From<SshError> for Failure {
    fn from(error: SshError) -> Self {
        let (code, text) = (error.code(), error.to_string());
        match error {
            // What no further attempt will mend. A refused key is the workflow's to judge: it knows since when.
            SshError::Key(_) | SshError::Auth(..) | SshError::HostKey { .. } => {
                Self::lasting(code, text)
            }
            // A full disk is not asked again at full speed (field.md §5, 18).
            SshError::Full(..) => Self { after_ms: Some(60_000), ..Self::transient(code, text) },
            _ => Self::transient(code, text),
        }
    }
}
