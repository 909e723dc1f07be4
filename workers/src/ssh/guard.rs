//! SSH handshake policy: host-key pinning, and a limit on what a host may send before the login.

use super::{SshError, error::pins};
use dormer_proto::lock::Locked as _;
use russh::{
    client::{self, DisconnectReason},
    keys::{Algorithm, PublicKeyOrCertificate, ssh_key::public::KeyData},
};
use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

/// Smallest RSA key that is trusted, in bits (NIST SP 800-57).
const RSA_BITS_MIN: u32 = 2048;
/// Longest banner of a login, in bytes. Windows' sshd sends a file, which may have pages.
const BANNER_BYTES_MAX: usize = 128 << 10;

/// Longest wait for pending data before the end of a connection, and for its reason.
const LAST_WORD_MAX: Duration = Duration::from_millis(200);

/// Why we end a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum CutReason {
    /// SSH itself.
    #[error(transparent)]
    Ssh(#[from] russh::Error),
    /// Another host key than the pinned one.
    #[error("another host key")]
    Key,
    /// A host key that proves nothing.
    #[error("its host key is {0}")]
    Weak(String),
    /// A banner without end.
    #[error("its banner has no end")]
    Banner,
    /// What has the private key does not sign.
    #[error(transparent)]
    Signer(SshError),
}

impl From<russh::SendError> for CutReason {
    fn from(_: russh::SendError) -> Self {
        Self::Ssh(russh::Error::SendError)
    }
}

/// Observations of a connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    /// The host key, as OpenSSH writes public keys, without a comment.
    pub(super) key: String,
    /// What the server calls itself, as `SSH-2.0-OpenSSH_for_Windows_9.5`.
    pub(super) server: String,
    /// Why it ended.
    pub(super) ended: Option<CutReason>,
}

/// State that the connection and its user share.
#[derive(Debug, Clone)]
pub(super) struct SharedState {
    address: String,
    state: Arc<Mutex<ConnectionState>>,
    lives: watch::Receiver<()>,
}

impl SharedState {
    pub(super) fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.locked()
    }

    /// Comes when the connection has ended.
    async fn gone(&self) {
        let mut lives = self.lives.clone();
        while lives.changed().await.is_ok() {}
    }

    /// Runs `work` while the connection lives. The end of the connection is noticed here first, and its reason replaces
    /// the error of `work`.
    pub(super) async fn whole<T>(
        &self,
        work: impl Future<Output = Result<T, SshError>>,
    ) -> Result<T, SshError> {
        let mut work = pin!(work);
        let done = tokio::select! {
            biased;
            done = &mut work => done,
            () = self.gone() => {
                // What came before the end is still to be read.
                let last = timeout(LAST_WORD_MAX, work).await;
                last.unwrap_or_else(|_| Err(SshError::Broken(String::new(), "it was cut".into())))
            }
        };
        let noticed = match done {
            Err(SshError::Broken(_, noticed)) => noticed,
            done => return done,
        };
        let _ = timeout(LAST_WORD_MAX, self.gone()).await;
        let state = self.lock();
        let why = state.ended.as_ref().map_or(noticed, ToString::to_string);
        Err(SshError::Broken(self.address.clone(), why))
    }
}

/// Handler of the connection's events during its lifetime.
pub(super) struct Guard {
    pin: Option<String>,
    shared: SharedState,
    banner: usize,
    _lives: watch::Sender<()>,
}

impl Guard {
    pub(super) fn new(address: &str, pin: Option<&str>) -> (Self, SharedState) {
        let (sender, lives) = watch::channel(());
        let shared = SharedState {
            address: address.to_owned(),
            state: Arc::default(),
            lives,
        };
        let pin = pin.map(str::to_owned);
        (
            Self {
                pin,
                shared: shared.clone(),
                banner: 0,
                _lives: sender,
            },
            shared,
        )
    }
}

impl client::Handler for Guard {
    type Error = CutReason;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, CutReason> {
        // Host certificates are not requested.
        let PublicKeyOrCertificate::PublicKey { key, .. } = key else {
            return Ok(false);
        };
        let text = key.to_openssh().unwrap_or_default();
        // The comment does not belong to the key's identity.
        let text = text.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let fits = self.pin.as_ref().is_none_or(|pin| pins(pin, &text));
        self.shared.lock().key = text;
        match weakness(key.key_data()) {
            Some(weakness) => Err(CutReason::Weak(weakness)),
            None if fits => Ok(true),
            None => Err(CutReason::Key),
        }
    }

    async fn kex_done(
        &mut self,
        _: Option<&[u8]>,
        _: &russh::Names,
        session: &mut client::Session,
    ) -> Result<(), CutReason> {
        let server = String::from_utf8_lossy(session.remote_sshid());
        self.shared.lock().server = server.into_owned();
        Ok(())
    }

    async fn auth_banner(
        &mut self,
        banner: &str,
        _: &mut client::Session,
    ) -> Result<(), CutReason> {
        self.banner += banner.len();
        if self.banner > BANNER_BYTES_MAX {
            Err(CutReason::Banner)
        } else {
            Ok(())
        }
    }

    async fn disconnected(&mut self, reason: DisconnectReason<CutReason>) -> Result<(), CutReason> {
        if let DisconnectReason::Error(error) = reason {
            self.shared.lock().ended = Some(error);
        }
        Ok(())
    }
}

/// Weakness of a key of this kind, if it has one.
pub(super) fn weakness(key: &KeyData) -> Option<String> {
    match key {
        KeyData::Rsa(rsa) if rsa.key_size() < RSA_BITS_MIN => {
            Some(format!("RSA of only {} bits", rsa.key_size()))
        }
        KeyData::Rsa(_) => None,
        other => match other.algorithm() {
            Algorithm::Ed25519 | Algorithm::Ecdsa { .. } => None,
            kind => Some(format!("of the kind {}", kind.as_str())),
        },
    }
}

/// What ended a connection before or in its login.
pub(super) fn refused(address: &str, cut: CutReason, pin: Option<&str>, shown: String) -> SshError {
    let at = address.to_owned();
    match cut {
        CutReason::Key => SshError::HostKey {
            address: at,
            pinned: pin.unwrap_or_default().to_owned(),
            shown,
        },
        CutReason::Weak(weakness) => SshError::HostKeyWeak(at, weakness),
        CutReason::Banner => SshError::Endless(at, "banner", BANNER_BYTES_MAX as u64),
        CutReason::Signer(error) => error,
        CutReason::Ssh(russh::Error::NoCommonAlgo { kind, theirs, .. }) => {
            let kind = format!("{kind:?} algorithm (it offers {})", theirs.join(", "));
            SshError::NoCommon(at, kind)
        }
        CutReason::Ssh(error) => SshError::Handshake(at, error.to_string()),
    }
}
