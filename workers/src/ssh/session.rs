//! One connection to a host: log in, run a command, open SFTP once.

use super::{Dialer, Key, Limits, Sftp, SshError};
use dormer_profile::frame::OUTPUT_BYTES_MAX;
use russh::{
    ChannelMsg, Preferred,
    client::{self, AuthResult},
    keys::{Algorithm, PrivateKeyWithHashAlg, PublicKeyOrCertificate},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout},
};

/// Keepalives without an answer that end a connection: with 15 s between them, after 45 s (field.md §5, 13).
const KEEPALIVES_MAX: usize = 2;
/// Keepalive intervals in which nothing at all arrives that end a connection, before its login too.
const SILENT_KEEPALIVES: u32 = 5;

/// What a command said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Standard output, cut at a limit.
    pub stdout: Vec<u8>,
    /// Standard error, cut at a limit.
    pub stderr: Vec<u8>,
    /// The exit status, if one came. A hint, never evidence (design.md §4).
    pub status: Option<u32>,
}

/// A connection that is logged in.
pub struct Session {
    address: String,
    handle: client::Handle<Guard>,
    host_key: String,
    sftp: OnceCell<Sftp>,
    used: Mutex<Instant>,
}

/// Compares the host key.
struct Guard {
    pin: Option<String>,
    shown: Arc<Mutex<String>>,
}

impl client::Handler for Guard {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        key: &PublicKeyOrCertificate,
    ) -> Result<bool, russh::Error> {
        let text = match key {
            PublicKeyOrCertificate::PublicKey { key, .. } => key.to_openssh().unwrap_or_default(),
            PublicKeyOrCertificate::Certificate(certificate) => {
                certificate.to_openssh().unwrap_or_default()
            }
        };
        // The comment is nobody's identity.
        let text = text.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let fits = self.pin.as_ref().is_none_or(|pin| *pin == text);
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = text;
        Ok(fits)
    }
}

impl Session {
    /// Connects and logs in.
    ///
    /// # Errors
    /// [`SshError`]: what stands in the way.
    pub async fn open(
        dialer: &Dialer,
        address: &str,
        user: &str,
        pin: Option<&str>,
        key: &Key,
        limits: Limits,
    ) -> Result<Self, SshError> {
        let dialled = timeout(limits.dial, dialer.dial(address)).await;
        let io = dialled
            .map_err(|_| SshError::NoAnswer(address.to_owned()))?
            .map_err(|error| SshError::of_dial(address, &error))?;
        let shown = Arc::new(Mutex::new(String::new()));
        let guard = Guard { pin: pin.map(str::to_owned), shown: Arc::clone(&shown) };
        let config = client::Config {
            keepalive_interval: Some(limits.keepalive),
            keepalive_max: KEEPALIVES_MAX,
            // What ends a host that says nothing before the login, when no keepalive is sent.
            inactivity_timeout: Some(limits.keepalive * SILENT_KEEPALIVES),
            nodelay: true,
            preferred: preferred(pin),
            ..client::Config::default()
        };
        let login = async {
            let mut handle = client::connect_stream(Arc::new(config), io, guard).await?;
            let hash = handle.best_supported_rsa_hash().await?.flatten();
            let key = PrivateKeyWithHashAlg::new(Arc::clone(&key.0), hash);
            let result = handle.authenticate_publickey(user, key).await?;
            Ok::<_, russh::Error>((handle, result))
        };
        let shown = || shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let login = timeout(limits.login, login).await;
        let (handle, result) = match login {
            Err(_) => {
                let said = "the login took too long".to_owned();
                return Err(SshError::Silent(address.to_owned(), said));
            }
            Ok(Err(russh::Error::UnknownKey)) => {
                let (pinned, shown) = (pin.unwrap_or_default().to_owned(), shown());
                return Err(SshError::HostKey { address: address.to_owned(), pinned, shown });
            }
            Ok(Err(error)) => {
                return Err(SshError::Handshake(address.to_owned(), error.to_string()));
            }
            Ok(Ok(done)) => done,
        };
        match result {
            AuthResult::Success => Ok(Self {
                address: address.to_owned(),
                handle,
                host_key: shown(),
                sftp: OnceCell::new(),
                used: Mutex::new(Instant::now()),
            }),
            // sshd always names what may be tried next; russh says so little when the connection ends.
            AuthResult::Failure { remaining_methods, .. } if remaining_methods.is_empty() => {
                let said = "it was cut during the login".to_owned();
                Err(SshError::Handshake(address.to_owned(), said))
            }
            AuthResult::Failure { .. } => Err(SshError::Auth(address.to_owned(), user.to_owned())),
        }
    }

    /// The host key that was shown, as OpenSSH writes public keys, without a comment.
    #[must_use]
    pub fn host_key(&self) -> &str {
        &self.host_key
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// How long nobody has used it.
    pub(super) fn idle_for(&self) -> Duration {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn broken(&self, error: impl std::fmt::Display) -> SshError {
        SshError::Broken(self.address.clone(), error.to_string())
    }

    /// Runs a command to its end; `heard` is called with each piece of output.
    ///
    /// # Errors
    /// The connection broke: the command may still be running on the host.
    pub async fn exec(&self, line: &str, heard: impl Fn(usize)) -> Result<Output, SshError> {
        self.touch();
        let mut channel =
            self.handle.channel_open_session().await.map_err(|error| self.broken(error))?;
        channel.exec(true, line).await.map_err(|error| self.broken(error))?;
        // Windows' sshd waits for the end of the input of some commands.
        channel.eof().await.map_err(|error| self.broken(error))?;
        let (mut output, mut ended) = (Output::default(), false);
        while let Some(message) = channel.wait().await {
            match message {
                ChannelMsg::Data { data } => keep(&mut output.stdout, &data, &heard),
                ChannelMsg::ExtendedData { data, .. } => keep(&mut output.stderr, &data, &heard),
                ChannelMsg::ExitStatus { exit_status } => output.status = Some(exit_status),
                ChannelMsg::Close | ChannelMsg::Eof => ended = true,
                ChannelMsg::Failure => return Err(self.broken("sshd refuses to run commands")),
                _ => {}
            }
        }
        self.touch();
        if ended || output.status.is_some() {
            Ok(output)
        } else {
            Err(self.broken("it ended in the middle of a command"))
        }
    }

    /// The connection's one SFTP session.
    ///
    /// # Errors
    /// SFTP does not answer as it should.
    pub async fn sftp(&self) -> Result<&Sftp, SshError> {
        self.touch();
        self.sftp.get_or_try_init(|| self.open_sftp()).await
    }

    async fn open_sftp(&self) -> Result<Sftp, SshError> {
        let channel =
            self.handle.channel_open_session().await.map_err(|error| self.broken(error))?;
        channel.request_subsystem(true, "sftp").await.map_err(|error| self.broken(error))?;
        Sftp::open(channel.into_stream(), &self.address).await
    }
}

/// A host has several keys. It shows the one of the kind that was pinned if it is asked for that kind first: another
/// default of ours, or a kind that it was given since, is no changed key.
fn preferred(pin: Option<&str>) -> Preferred {
    let mut order = Preferred::DEFAULT.key.into_owned();
    let kind = pin.and_then(|pin| pin.split(' ').next()).unwrap_or_default();
    let fits = |algorithm: &Algorithm| match algorithm {
        Algorithm::Rsa { .. } => kind == "ssh-rsa",
        other => other.as_str() == kind,
    };
    // Stable: among those that fit, and among the others, the order stays.
    order.sort_by_key(|algorithm| !fits(algorithm));
    Preferred { key: order.into(), ..Preferred::DEFAULT }
}

fn keep(buffer: &mut Vec<u8>, data: &[u8], heard: &impl Fn(usize)) {
    let room = OUTPUT_BYTES_MAX.saturating_sub(buffer.len());
    buffer.extend_from_slice(&data[..data.len().min(room)]);
    heard(data.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_the_pinned_key_is_asked_for_first() {
        let first = |pin| preferred(pin).key.first().map(|key| key.as_str().to_owned());
        assert_eq!(first(None).as_deref(), Some("ssh-ed25519"));
        let table = [
            ("ssh-ed25519 AAAA", "ssh-ed25519"),
            ("ecdsa-sha2-nistp384 AAAA", "ecdsa-sha2-nistp384"),
            ("ssh-rsa AAAA", "rsa-sha2-512"),
            ("nonsense", "ssh-ed25519"),
        ];
        for (pin, kind) in table {
            assert_eq!(first(Some(pin)).as_deref(), Some(kind), "{pin}");
        }
        assert_eq!(preferred(Some("ssh-rsa AAAA")).key.len(), Preferred::DEFAULT.key.len());
    }
}
