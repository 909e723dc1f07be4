//! One connection to a host: log in, run a command, open SFTP once.

use super::{
    Conversation, Dialer, Key, Limits, PrivateHalf, Sftp, Signer, SshError,
    guard::{CutReason, Guard, SharedState, refused},
};
use bytes::Bytes;
use dormer_profile::frame::OUTPUT_BYTES_MAX;
use dormer_proto::lock::Locked as _;
use futures::{Stream, StreamExt, stream};
use russh::{
    Channel, ChannelMsg, ChannelWriteHalf, Preferred,
    client::{self, AuthResult},
    keys::{Algorithm, HashAlg, PrivateKeyWithHashAlg, agent::AgentIdentity},
};
use std::{
    ops::ControlFlow,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::{Instant, interval, sleep_until, timeout};

/// A connection ends after this many unanswered keepalives: 45 s at 15 s each (tests/SCENARIOS.md, 13).
const KEEPALIVES_MAX: usize = 2;
/// Keepalive intervals without any data after which a connection is ended, before its login as well.
const SILENT_KEEPALIVES: u32 = 5;
/// Polls for a free session of sshd.
const ROOM_POLLS_MAX: usize = 30;
/// Pause between two polls for a free session.
const ROOM_POLL: Duration = Duration::from_millis(100);
/// Longest wait for sshd's word on a subsystem or a command.
const SUBSYSTEM_MAX: Duration = Duration::from_secs(20);
/// Bytes of a command's input that are sent at once: what every sshd takes as one packet.
const INPUT_PIECE: usize = 32 << 10;
/// Silence limit of a command that has none: 30 days.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Output of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Standard output, the last 4 MiB of it.
    pub stdout: Vec<u8>,
    /// Standard error, the last 4 MiB of it.
    pub stderr: Vec<u8>,
    /// The exit status, if one came. A hint, never evidence (docs/field-notes.md, Exit status).
    pub status: Option<u32>,
}

/// What happens while a command runs.
#[derive(Debug)]
pub enum CommandEvent<'a> {
    /// So many bytes of its input were taken.
    InputTaken(usize),
    /// Piece of standard output.
    Stdout(&'a [u8]),
    /// Piece of standard error.
    Stderr(&'a [u8]),
}

/// Command with its standard input and its limit of silence.
#[derive(Debug, Clone)]
pub struct SshCommand<'a> {
    pub line: &'a str,
    /// Its standard input.
    pub input: Bytes,
    /// Longest time without input or output, after which it is ended.
    pub silent_max: Option<Duration>,
}

/// Sends the input piece by piece, and yields the length of each piece that was taken.
fn sent_pieces(writing: ChannelWriteHalf<client::Msg>, input: Bytes) -> impl Stream<Item = usize> {
    stream::unfold(Some((writing, input)), |left| async move {
        let (writing, mut rest) = left?;
        if rest.is_empty() {
            // The end of the input is always sent: Windows' sshd waits for it with some commands.
            let _ = writing.eof().await;
            return None;
        }
        let piece = rest.split_to(rest.len().min(INPUT_PIECE));
        let length = piece.len();
        match writing.data_bytes(piece).await {
            Ok(()) => Some((length, Some((writing, rest)))),
            Err(_) => None,
        }
    })
}

/// A connection that is logged in.
pub struct Session {
    address: String,
    handle: client::Handle<Guard>,
    shared: SharedState,
    host_key: String,
    output_max: u64,
    /// Held while SFTP is opened, so that two tasks do not open it twice.
    sftp: tokio::sync::Mutex<Option<Arc<Sftp>>>,
    used: Mutex<Instant>,
}

impl Session {
    /// Connects and logs in.
    ///
    /// # Errors
    ///
    /// [`SshError`]: the connection or the login failed.
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
        let (guard, shared) = Guard::new(address, pin);
        let config = client::Config {
            keepalive_interval: Some(limits.keepalive),
            keepalive_max: KEEPALIVES_MAX,
            // Ends a host that sends nothing before the login, when no keepalive is sent.
            inactivity_timeout: Some(limits.keepalive * SILENT_KEEPALIVES),
            nodelay: true,
            preferred: preferred(pin),
            ..client::Config::default()
        };
        let login = async {
            let mut handle = client::connect_stream(Arc::new(config), io, guard).await?;
            let result = authenticate(&mut handle, user, key).await?;
            Ok::<_, CutReason>((handle, result))
        };
        let login = timeout(limits.login, login).await;
        let ended = |cut| refused(address, cut, pin, shared.lock().key.clone());
        let (handle, result) = match login {
            Err(_) => {
                let said = "the login took too long".to_owned();
                return Err(SshError::Silent(address.to_owned(), said));
            }
            Ok(Err(cut)) => {
                let first = shared.lock().ended.take();
                return Err(ended(first.unwrap_or(cut)));
            }
            Ok(Ok(done)) => done,
        };
        let host_key = shared.lock().key.clone();
        match result {
            AuthResult::Success => Ok(Self {
                address: address.to_owned(),
                handle,
                host_key,
                shared,
                output_max: limits.output,
                sftp: tokio::sync::Mutex::default(),
                used: Mutex::new(Instant::now()),
            }),
            // sshd always names the next methods; russh reports none if the connection ends.
            AuthResult::Failure {
                remaining_methods, ..
            } if remaining_methods.is_empty() => {
                let cut = shared.lock().ended.take();
                Err(cut.map_or_else(
                    || {
                        let said = "it was cut during the login".to_owned();
                        SshError::Handshake(address.to_owned(), said)
                    },
                    ended,
                ))
            }
            AuthResult::Failure { .. } => Err(SshError::Auth(address.to_owned(), user.to_owned())),
        }
    }

    /// The host key that was shown, as OpenSSH writes public keys, without a comment.
    #[must_use]
    pub fn host_key(&self) -> &str {
        &self.host_key
    }

    /// What the server calls itself, as `SSH-2.0-OpenSSH_for_Windows_9.5`.
    #[must_use]
    pub fn server(&self) -> String {
        self.shared.lock().server.clone()
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Idle time.
    pub(super) fn idle_for(&self) -> Duration {
        self.used.locked().elapsed()
    }

    fn touch(&self) {
        *self.used.locked() = Instant::now();
    }

    fn broken(&self, error: impl std::fmt::Display) -> SshError {
        SshError::Broken(self.address.clone(), error.to_string())
    }

    /// Runs a command to its end; `on_bytes` is called with each piece of output.
    ///
    /// # Errors
    /// The connection broke: the command may still be running on the host. Or it talks without end.
    pub async fn exec(&self, line: &str, on_bytes: impl Fn(usize)) -> Result<Output, SshError> {
        let command = SshCommand {
            line,
            input: Bytes::new(),
            silent_max: None,
        };
        let on_event = |event: CommandEvent<'_>| {
            if let CommandEvent::Stdout(bytes) | CommandEvent::Stderr(bytes) = event {
                on_bytes(bytes.len());
            }
            ControlFlow::Continue(())
        };
        self.exec_with(command, on_event).await
    }

    /// Runs a command to its end, with data for its standard input. Input and output are transferred at the same time,
    /// so neither side blocks. `on_event` receives each piece of output, and may end the command with a reason. Refused
    /// input alone is no error: the output before the end counts.
    ///
    /// # Errors
    ///
    /// As [`Session::exec`]; or the command was silent for too long, or `on_event` ended it.
    pub async fn exec_with(
        &self,
        command: SshCommand<'_>,
        on_event: impl FnMut(CommandEvent<'_>) -> ControlFlow<String>,
    ) -> Result<Output, SshError> {
        self.shared.whole(self.run(command, on_event)).await
    }

    async fn run(
        &self,
        command: SshCommand<'_>,
        mut on_event: impl FnMut(CommandEvent<'_>) -> ControlFlow<String>,
    ) -> Result<Output, SshError> {
        self.touch();
        let channel = self.channel().await?;
        channel
            .exec(true, command.line)
            .await
            .map_err(|error| self.broken(error))?;
        let (mut reading, writing) = channel.split();
        let mut pieces = pin!(sent_pieces(writing, command.input).fuse());
        let mut written = false;
        let mut output = Output::default();
        let mut ended = false;
        let mut said = 0;
        let silent_max = command.silent_max.unwrap_or(FOR_EVER);
        let mut moved = Instant::now();
        loop {
            let continues = tokio::select! {
                message = reading.wait() => match message {
                    None => break,
                    Some(ChannelMsg::Data { data }) => {
                        let continues = on_event(CommandEvent::Stdout(&data));
                        said += keep(&mut output.stdout, &data);
                        continues
                    }
                    Some(ChannelMsg::ExtendedData { data, .. }) => {
                        let continues = on_event(CommandEvent::Stderr(&data));
                        said += keep(&mut output.stderr, &data);
                        continues
                    }
                    Some(ChannelMsg::ExitStatus { exit_status }) => {
                        output.status = Some(exit_status);
                        ControlFlow::Continue(())
                    }
                    Some(ChannelMsg::Close | ChannelMsg::Eof) => {
                        ended = true;
                        ControlFlow::Continue(())
                    }
                    Some(ChannelMsg::Failure) => {
                        return Err(self.broken("sshd refuses to run commands"));
                    }
                    Some(_) => ControlFlow::Continue(()),
                },
                piece = pieces.next(), if !written => match piece {
                    Some(length) => on_event(CommandEvent::InputTaken(length)),
                    None => {
                        written = true;
                        ControlFlow::Continue(())
                    }
                },
                () = sleep_until(moved + silent_max) => {
                    let said = format!("a command said nothing for {} s", silent_max.as_secs());
                    return Err(SshError::Silent(self.address.clone(), said));
                }
            };
            moved = Instant::now();
            // A long command keeps its connection in the pool.
            self.touch();
            if let ControlFlow::Break(why) = continues {
                return Err(SshError::Silent(self.address.clone(), why));
            }
            if said > self.output_max {
                let address = self.address.clone();
                return Err(SshError::Endless(address, "output", self.output_max));
            }
        }
        self.touch();
        if ended || output.status.is_some() {
            cut(&mut output.stdout);
            cut(&mut output.stderr);
            Ok(output)
        } else {
            Err(self.broken("it ended in the middle of a command"))
        }
    }

    /// Starts a command that answers each line of its input with one line.
    ///
    /// # Errors
    /// The connection broke, or sshd refuses to run commands.
    pub async fn converse(&self, line: &str) -> Result<Conversation, SshError> {
        self.shared.whole(self.start(line)).await
    }

    async fn start(&self, line: &str) -> Result<Conversation, SshError> {
        self.touch();
        let mut channel = self.channel().await?;
        let asked = channel.exec(true, line).await;
        asked.map_err(|error| self.broken(error))?;
        match timeout(SUBSYSTEM_MAX, accepted(&mut channel)).await {
            Ok(Some(true)) => Ok(Conversation::over(channel, &self.address, self.output_max)),
            Ok(Some(false)) => Err(self.broken("sshd refuses to run commands")),
            Ok(None) => Err(self.broken("it ended when a command was to be started")),
            Err(_) => {
                let said = "whether it runs a command".to_owned();
                Err(SshError::Silent(self.address.clone(), said))
            }
        }
    }

    async fn try_channel(&self) -> Result<Channel<client::Msg>, SshError> {
        self.handle
            .channel_open_session()
            .await
            .map_err(|error| match error {
                russh::Error::ChannelOpenFailure(_) => SshError::Sessions(self.address.clone()),
                error => self.broken(error),
            })
    }

    /// A new channel. If sshd has no room, the unused SFTP session is ended. A session that has just ended still counts
    /// for a moment.
    async fn channel(&self) -> Result<Channel<client::Msg>, SshError> {
        let mut ticks = interval(ROOM_POLL);
        for _ in 0..ROOM_POLLS_MAX {
            ticks.tick().await;
            match self.try_channel().await {
                Err(SshError::Sessions(_)) => self.end_sftp(),
                other => return other,
            }
        }
        self.try_channel().await
    }

    /// Ends the SFTP session unless it is used or being opened.
    fn end_sftp(&self) {
        if let Ok(mut slot) = self.sftp.try_lock()
            && slot
                .as_ref()
                .is_some_and(|sftp| Arc::strong_count(sftp) == 1)
        {
            *slot = None;
        }
    }

    /// The connection's one SFTP session.
    ///
    /// # Errors
    /// SFTP does not answer as it should, or is not there.
    pub async fn sftp(&self) -> Result<Arc<Sftp>, SshError> {
        self.touch();
        let mut slot = self.sftp.lock().await;
        if let Some(sftp) = slot.as_ref() {
            return Ok(Arc::clone(sftp));
        }
        let sftp = Arc::new(self.shared.whole(self.open_sftp()).await?);
        Ok(Arc::clone(slot.insert(sftp)))
    }

    async fn open_sftp(&self) -> Result<Sftp, SshError> {
        let mut channel = self.channel().await?;
        channel
            .request_subsystem(true, "sftp")
            .await
            .map_err(|error| self.broken(error))?;
        match timeout(SUBSYSTEM_MAX, accepted(&mut channel)).await {
            Ok(Some(true)) => {
                Sftp::open(channel.into_stream(), &self.address, self.shared.clone()).await
            }
            Ok(Some(false)) => Err(SshError::SftpMissing(self.address.clone())),
            Ok(None) => Err(self.broken("it ended when SFTP was asked for")),
            Err(_) => {
                let said = "whether it has SFTP".to_owned();
                Err(SshError::Silent(self.address.clone(), said))
            }
        }
    }
}

/// Whether sshd starts what was asked for; `None`: the channel ended.
async fn accepted(channel: &mut Channel<client::Msg>) -> Option<bool> {
    loop {
        match channel.wait().await? {
            ChannelMsg::Success => return Some(true),
            ChannelMsg::Failure => return Some(false),
            ChannelMsg::Close => return None,
            _ => {}
        }
    }
}

/// Tries the key and, where the host refuses it, the previous one on the same connection.
async fn authenticate(
    handle: &mut client::Handle<Guard>,
    user: &str,
    key: &Key,
) -> Result<AuthResult, CutReason> {
    let result = key.log_in(handle, user).await?;
    match (&result, &key.previous) {
        (
            AuthResult::Failure {
                remaining_methods, ..
            },
            Some(previous),
        ) if !remaining_methods.is_empty() => previous.log_in(handle, user).await,
        _ => Ok(result),
    }
}

impl Key {
    async fn log_in(
        &self,
        handle: &mut client::Handle<Guard>,
        user: &str,
    ) -> Result<AuthResult, CutReason> {
        let hash = self.hash(handle).await?;
        match &self.private {
            PrivateHalf::Here { private, .. } => {
                let signing = PrivateKeyWithHashAlg::new(Arc::clone(private), hash);
                Ok(handle.authenticate_publickey(user, signing).await?)
            }
            PrivateHalf::Held(signer) => {
                let mut signing = SignedBy(signer.as_ref());
                let public = self.public.clone();
                handle
                    .authenticate_publickey_with(user, public, hash, &mut signing)
                    .await
            }
        }
    }

    /// The hash of a signature. SHA-1 is excluded: sshd 7.7 and later supports SHA-2.
    async fn hash(&self, handle: &client::Handle<Guard>) -> Result<Option<HashAlg>, CutReason> {
        if !self.public.algorithm().is_rsa() {
            return Ok(None);
        }
        let named = handle.best_supported_rsa_hash().await?.flatten();
        Ok(Some(named.unwrap_or(HashAlg::Sha256)))
    }
}

/// A signer, in the form in which russh asks it.
struct SignedBy<'a>(&'a dyn Signer);

impl russh::Signer for SignedBy<'_> {
    type Error = CutReason;

    async fn auth_sign(
        &mut self,
        key: &AgentIdentity,
        hash: Option<HashAlg>,
        login: Vec<u8>,
    ) -> Result<Vec<u8>, CutReason> {
        let signed = self.0.sign(&key.public_key(), hash, login).await;
        signed.map_err(CutReason::Signer)
    }
}

/// Order of host key algorithms, the pinned kind first. A host has keys of several kinds, and shows the pinned one only
/// if it is requested first. So another default of ours, or an added key, does not count as a changed key.
fn preferred(pin: Option<&str>) -> Preferred {
    let mut order = Preferred::DEFAULT.key.into_owned();
    // Its signature is made over SHA-1.
    order.retain(|algorithm| !matches!(algorithm, Algorithm::Rsa { hash: None }));
    let kind = pin
        .and_then(|pin| pin.split(' ').next())
        .unwrap_or_default();
    let fits = |algorithm: &Algorithm| match algorithm {
        Algorithm::Rsa { .. } => kind == "ssh-rsa",
        other => other.as_str() == kind,
    };
    // The sort is stable: equal entries keep their order.
    order.sort_by_key(|algorithm| !fits(algorithm));
    Preferred {
        key: order.into(),
        ..Preferred::DEFAULT
    }
}

/// Keeps the end of the output, which contains the answer.
fn keep(buffer: &mut Vec<u8>, data: &[u8]) -> u64 {
    buffer.extend_from_slice(data);
    // Twice the limit, so that bytes are moved once each and not with every piece.
    if buffer.len() >= 2 * OUTPUT_BYTES_MAX {
        cut(buffer);
    }
    data.len() as u64
}

/// Leaves no more than the last bytes that are read.
fn cut(buffer: &mut Vec<u8>) {
    buffer.drain(..buffer.len().saturating_sub(OUTPUT_BYTES_MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_the_pinned_key_is_asked_for_first() {
        let first = |pin| {
            preferred(pin)
                .key
                .first()
                .map(|key| key.as_str().to_owned())
        };
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
        assert_eq!(
            preferred(Some("ssh-rsa AAAA")).key.len(),
            preferred(None).key.len()
        );
        let sha_1 = |algorithm: &Algorithm| algorithm.as_str() == "ssh-rsa";
        assert!(!preferred(None).key.iter().any(sha_1));
    }
}
