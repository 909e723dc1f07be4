//! Whom we talk to: the host key is compared, and what is said before the login is counted.

use super::SshError;
use russh::{
    client::{self, DisconnectReason},
    keys::{Algorithm, PublicKeyOrCertificate, ssh_key::public::KeyData},
};
use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

/// Fewer bits of RSA prove nothing any more (NIST SP 800-57).
const RSA_BITS_MIN: u32 = 2048;
/// More than any notice of a login: Windows' sshd shows a file, and people write pages.
const BANNER_BYTES_MAX: usize = 128 << 10;

/// Longest wait for what was said before an end, and for its reason.
const LAST_WORD_MAX: Duration = Duration::from_millis(200);

/// Why we end a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
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
}

/// What a connection has shown so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The host key, as OpenSSH writes public keys, without a comment.
    pub(super) key: String,
    /// Why it ended.
    pub(super) ended: Option<Cut>,
}

/// What both the connection and its user look at.
#[derive(Debug, Clone)]
pub(super) struct Sight {
    address: String,
    seen: Arc<Mutex<Seen>>,
    lives: watch::Receiver<()>,
}

impl Sight {
    pub(super) fn look(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes when the connection has ended.
    async fn gone(&self) {
        let mut lives = self.lives.clone();
        while lives.changed().await.is_ok() {}
    }

    /// Does something on the connection for as long as there is one. Its end is noticed here first, and why it ended is
    /// worth more than what the work makes of it.
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
        let seen = self.look();
        let why = seen.ended.as_ref().map_or(noticed, ToString::to_string);
        Err(SshError::Broken(self.address.clone(), why))
    }
}

/// Stands between a host and us, for as long as the connection lives.
pub(super) struct Guard {
    pin: Option<String>,
    sight: Sight,
    banner: usize,
    _lives: watch::Sender<()>,
}

impl Guard {
    pub(super) fn new(address: &str, pin: Option<&str>) -> (Self, Sight) {
        let (sender, lives) = watch::channel(());
        let sight = Sight {
            address: address.to_owned(),
            seen: Arc::default(),
            lives,
        };
        let pin = pin.map(str::to_owned);
        (
            Self {
                pin,
                sight: sight.clone(),
                banner: 0,
                _lives: sender,
            },
            sight,
        )
    }
}

impl client::Handler for Guard {
    type Error = Cut;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, Cut> {
        // Certificates are not asked for.
        let PublicKeyOrCertificate::PublicKey { key, .. } = key else {
            return Ok(false);
        };
        let text = key.to_openssh().unwrap_or_default();
        // The comment is nobody's identity.
        let text = text.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let fits = self.pin.as_ref().is_none_or(|pin| *pin == text);
        self.sight.look().key = text;
        match weakness(key.key_data()) {
            Some(weakness) => Err(Cut::Weak(weakness)),
            None if fits => Ok(true),
            None => Err(Cut::Key),
        }
    }

    async fn auth_banner(&mut self, banner: &str, _: &mut client::Session) -> Result<(), Cut> {
        self.banner += banner.len();
        if self.banner > BANNER_BYTES_MAX {
            Err(Cut::Banner)
        } else {
            Ok(())
        }
    }

    async fn disconnected(&mut self, reason: DisconnectReason<Cut>) -> Result<(), Cut> {
        if let DisconnectReason::Error(error) = reason {
            self.sight.look().ended = Some(error);
        }
        Ok(())
    }
}

/// What is wrong with a key of this kind, if anything is.
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
pub(super) fn refused(address: &str, cut: Cut, pin: Option<&str>, shown: String) -> SshError {
    let at = address.to_owned();
    match cut {
        Cut::Key => SshError::HostKey {
            address: at,
            pinned: pin.unwrap_or_default().to_owned(),
            shown,
        },
        Cut::Weak(weakness) => SshError::HostKeyWeak(at, weakness),
        Cut::Banner => SshError::Endless(at, "banner", BANNER_BYTES_MAX as u64),
        Cut::Ssh(russh::Error::NoCommonAlgo { kind, theirs, .. }) => {
            let kind = format!("{kind:?} algorithm (it offers {})", theirs.join(", "));
            SshError::NoCommon(at, kind)
        }
        Cut::Ssh(error) => SshError::Handshake(at, error.to_string()),
    }
}
