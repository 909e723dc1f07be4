//! sshd of a host: logins, and requests of a session (docs/field-notes.md, Logins and host keys).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use russh::server::{self, Auth, ChannelOpenHandle, Msg, PublicKeyOffer, VerifiedPublicKey};
use russh::{Channel, ChannelId, MethodKind, MethodSet, SshId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::computer::{Host, HostPhase, SshSession, lock};
use super::link::{Link, Wire};
use crate::faults::Fault;
use crate::net::Io;
use crate::world::Happened;

/// Connections that may be without authentication at one time (`MaxStartups 10:30:100`, its first number).
const STARTUPS_MAX: usize = 10;
/// Sessions of one connection (`MaxSessions`).
const SESSIONS_MAX: usize = 10;
/// Attempts to authenticate (`MaxAuthTries`).
const AUTH_TRIES_MAX: usize = 6;
/// Time to authenticate (`LoginGraceTime`).
const LOGIN_GRACE: Duration = Duration::from_secs(120);

impl Host {
    /// Takes a connection to port 22 as the host's present phase demands. A host that drops packets holds it and
    /// never answers; one that refuses closes it.
    pub fn serve(&self, io: impl Io) {
        let Some(host) = self.me.upgrade() else {
            return;
        };
        match self.phase() {
            HostPhase::Off | HostPhase::Dropping => hold(&host, io),
            HostPhase::Refusing => drop(io),
            HostPhase::Resetting => {
                self.spawn_powered(
                    async move { reset_in_kex(io, host.image.release.banner()).await },
                );
            }
            HostPhase::AuthFailing | HostPhase::Up => self.accept(io),
        }
    }

    fn accept(&self, io: impl Io) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut sessions = lock(&self.sessions);
        let waiting = sessions
            .iter()
            .filter(|(_, session)| !session.authenticated)
            .count();
        if waiting >= STARTUPS_MAX || self.strike(Fault::MaxStartups) {
            return;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let link = Link::default();
        sessions.push((
            number,
            SshSession {
                link: link.clone(),
                authenticated: false,
            },
        ));
        drop(sessions);
        lock(&self.counts).connections += 1;
        let Some(host) = self.me.upgrade() else {
            return;
        };
        tokio::spawn(async move {
            host.run_session(number, link, io).await;
            lock(&host.sessions).retain(|(other, _)| *other != number);
        });
    }

    async fn run_session(self: &Arc<Self>, number: u64, link: Link, io: impl Io) {
        if self.state().boots > 0 && self.counts().logins > 0 && self.strike(Fault::HostKeyChanged)
        {
            self.change_host_keys();
        }
        let door = Door {
            host: self.clone(),
            number,
            link: link.clone(),
            channels: HashMap::new(),
        };
        let config = Arc::new(self.ssh_config());
        let wire = Wire::new(io, link.clone());
        let grace = {
            let host = self.clone();
            let link = link.clone();
            async move {
                host.sleep(LOGIN_GRACE).await;
                let sessions = lock(&host.sessions);
                if sessions
                    .iter()
                    .any(|(n, session)| *n == number && !session.authenticated)
                {
                    link.cut();
                }
            }
        };
        let session = async {
            if let Ok(running) = server::run_stream(config, wire, door).await {
                let _ = running.await;
            }
        };
        tokio::pin!(session, grace);
        let done = tokio::select! {
            () = &mut session => true,
            () = &mut grace => false,
            () = link.when_cut() => true,
        };
        if !done {
            tokio::select! {
                () = session => {}
                () = link.when_cut() => {}
            }
        }
    }

    fn ssh_config(&self) -> server::Config {
        let mut methods = MethodSet::empty();
        methods.push(MethodKind::PublicKey);
        server::Config {
            server_id: SshId::Standard(Cow::Borrowed(self.image.release.banner())),
            methods,
            auth_rejection_time: Duration::ZERO,
            auth_rejection_time_initial: Some(Duration::ZERO),
            keys: lock(&self.keys).clone(),
            limits: russh::Limits {
                rekey_time_limit: Duration::from_secs(30 * 24 * 3_600),
                ..russh::Limits::default()
            },
            max_auth_attempts: AUTH_TRIES_MAX,
            inactivity_timeout: None,
            keepalive_interval: None,
            nodelay: true,
            ..server::Config::default()
        }
    }

    /// Cuts every connection, as a network that is bound anew does; sshd itself lives on.
    pub(super) fn cut_connections(&self) {
        for (_, session) in lock(&self.sessions).iter() {
            session.link.cut();
        }
    }
}

/// Holds an unanswered connection, as long as a client may wait.
fn hold(host: &Arc<Host>, io: impl Io) {
    let pace = host.context.pace;
    tokio::spawn(async move {
        pace.sleep(Duration::from_secs(600)).await;
        drop(io);
    });
}

async fn reset_in_kex(mut io: impl Io, banner: &'static str) {
    let _ = io.write_all(format!("{banner}\r\n").as_bytes()).await;
    let mut buffer = [0; 64];
    let _ = io.read(&mut buffer).await;
}

/// One connection's side of sshd.
struct Door {
    host: Arc<Host>,
    number: u64,
    link: Link,
    channels: HashMap<ChannelId, Option<Channel<Msg>>>,
}

impl Door {
    fn admits(&self, user: &str, key: &russh::keys::PublicKey) -> bool {
        let known = self.host.lets_in(key);
        let user_known = user.eq_ignore_ascii_case(&self.host.image.user);
        known && user_known && self.host.phase() == HostPhase::Up
    }
}

impl server::Handler for Door {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        Ok(if self.admits(user, offer.public_key) {
            Auth::Accept
        } else {
            Auth::reject()
        })
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Self::Error> {
        if !self.admits(user, key.public_key) {
            return Ok(Auth::reject());
        }
        let mut sessions = lock(&self.host.sessions);
        if let Some((_, session)) = sessions.iter_mut().find(|(n, _)| *n == self.number) {
            session.authenticated = true;
        }
        drop(sessions);
        lock(&self.host.counts).logins += 1;
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut server::Session,
    ) -> Result<(), Self::Error> {
        if self.channels.len() < SESSIONS_MAX {
            self.channels.insert(channel.id(), Some(channel));
            reply.accept().await;
        }
        Ok(())
    }

    async fn channel_close(
        &mut self,
        channel: ChannelId,
        _session: &mut server::Session,
    ) -> Result<(), Self::Error> {
        self.channels.remove(&channel);
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut server::Session,
    ) -> Result<(), Self::Error> {
        let command = String::from_utf8_lossy(data).into_owned();
        // What comes in on it belongs to the command.
        let input = self.channels.get_mut(&channel).and_then(Option::take);
        let started = self.host.exec(
            command,
            session.handle(),
            (channel, input),
            self.link.clone(),
        );
        if started {
            session.channel_success(channel)
        } else {
            session.channel_failure(channel)
        }
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut server::Session,
    ) -> Result<(), Self::Error> {
        let stream = self.channels.get_mut(&channel).and_then(Option::take);
        match stream {
            Some(_) if name == "sftp" && self.host.strike(Fault::SftpMissing) => {
                session.channel_failure(channel)
            }
            Some(stream) if name == "sftp" => {
                let host = self.host.clone();
                let link = self.link.clone();
                let machine = host.uid().to_owned();
                lock(&host.counts).sftp_sessions += 1;
                host.context.record.push(Happened::SftpSession { machine });
                let work = super::sftp::run(host.clone(), stream.into_stream(), link);
                host.spawn_powered(work);
                session.channel_success(channel)
            }
            _ => session.channel_failure(channel),
        }
    }
}
