//! Servers of our own that mean harm: each ends in a typed error, in time, and in bounded memory.

use crate::bench::{HERE, MemoryGrowth, body, dialer, error, error_code, short};
use dormer_testkit::{KeyKind, SshKey, test_dir};
use dormer_workers::ssh::{Key, Limits, Session, SshError};
use russh::{
    Channel, ChannelId,
    keys::decode_secret_key,
    server::{self, Auth, ChannelOpenHandle, Msg, VerifiedPublicKey},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::interval,
};

/// What a server does once its first bytes are out.
#[derive(Debug, Clone)]
enum Then {
    /// Ends the connection.
    Close,
    /// Says nothing more.
    Hold,
    /// Says this, again and again.
    Repeat(Vec<u8>),
    /// Says one byte of this every tenth of a second, again and again.
    Drip(&'static [u8]),
}

/// A server that speaks no SSH. It ends with the handle's abort.
async fn liar(first: Vec<u8>, then: Then) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind((HERE, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(lie(stream, first.clone(), then.clone()));
        }
    });
    (port, task)
}

async fn lie(mut stream: TcpStream, first: Vec<u8>, then: Then) {
    if stream.write_all(&first).await.is_err() {
        return;
    }
    match then {
        Then::Close => {}
        Then::Hold => while stream.read_u8().await.is_ok() {},
        Then::Repeat(bytes) => while stream.write_all(&bytes).await.is_ok() {},
        Then::Drip(bytes) => {
            let mut pace = interval(Duration::from_millis(100));
            for byte in bytes.iter().cycle() {
                pace.tick().await;
                if stream.write_u8(*byte).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn our_key() -> Key {
    let folder = test_dir("hostile");
    let key = SshKey::make(folder.path(), "key", KeyKind::Ed25519).expect("a key");
    Key::read(&key.private).expect("a key")
}

async fn meet(port: u16, key: &Key, limits: Limits) -> Result<Session, SshError> {
    Session::open(&dialer(port), HERE, "capi", None, key, limits).await
}

/// A packet before any key: length, padding's length, payload, padding.
fn packet(payload: &[u8]) -> Vec<u8> {
    let padding = 8 + (8 - (5 + payload.len()) % 8) % 8;
    let length = u32::try_from(1 + payload.len() + padding).expect("a small packet");
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.push(u8::try_from(padding).expect("a small padding"));
    bytes.extend(payload);
    bytes.resize(bytes.len() + padding, 0);
    bytes
}

fn after_version(bytes: &[u8]) -> Vec<u8> {
    [b"SSH-2.0-OpenSSH_for_Windows_9.5\r\n", bytes].concat()
}

fn lies() -> Vec<(&'static str, Vec<u8>, Then)> {
    let http = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec();
    let noise = body(1, 100_000);
    let ignored = packet(&[&[2, 0, 0, 16, 0][..], &[7; 4096]].concat());
    let kexinit = [&[20][..], &body(2, 900)].concat();
    let lists_too_long = [&[20][..], &[0; 16], &[255; 4], b"curve25519-sha256"].concat();
    vec![
        ("a web server", http, Then::Close),
        ("noise", noise.clone(), Then::Close),
        ("noise without end", vec![], Then::Repeat(noise.clone())),
        ("a line without end", vec![], Then::Repeat(vec![b'x'; 4096])),
        (
            "lines without end",
            vec![],
            Then::Repeat(b"welcome\r\n".repeat(500)),
        ),
        (
            "a line that drips",
            vec![],
            Then::Drip(b"welcome to this host "),
        ),
        ("nothing", vec![], Then::Hold),
        ("an end at once", vec![], Then::Close),
        ("SSH 1", b"SSH-1.5-1.2.27\n".to_vec(), Then::Hold),
        ("a version alone", after_version(b""), Then::Hold),
        ("a version and an end", after_version(b""), Then::Close),
        ("a length of 4 GiB", after_version(&[255; 64]), Then::Hold),
        ("a length of nothing", after_version(&[0; 64]), Then::Hold),
        (
            "a length of 1 GiB, and the bytes",
            after_version(&[64, 0, 0, 0]),
            Then::Repeat(noise),
        ),
        (
            "half a packet",
            after_version(&[0, 0, 2, 0, 4, 20, 1]),
            Then::Hold,
        ),
        (
            "half a packet and an end",
            after_version(&[0, 0, 2, 0, 4, 20, 1]),
            Then::Close,
        ),
        (
            "a padding beyond the packet",
            after_version(&[0, 0, 0, 12, 255]),
            Then::Repeat(vec![0]),
        ),
        (
            "a key exchange of noise",
            after_version(&packet(&kexinit)),
            Then::Hold,
        ),
        (
            "a list of 4 GiB",
            after_version(&packet(&lists_too_long)),
            Then::Hold,
        ),
        (
            "a message from later on",
            after_version(&packet(&[94, 0, 0, 0, 0])),
            Then::Hold,
        ),
        ("an empty message", after_version(&packet(&[])), Then::Hold),
        (
            "ignored messages without end",
            after_version(b""),
            Then::Repeat(ignored),
        ),
    ]
}

#[tokio::test]
async fn what_speaks_no_ssh_ends_in_time_and_in_bounded_memory() {
    let key = our_key();
    for (name, first, then) in lies() {
        let (port, server) = liar(first, then).await;
        let begun = Instant::now();
        let growth = MemoryGrowth::begin().await;
        let error = error(meet(port, &key, short()).await);
        let took = begun.elapsed();
        let grown = growth.mib();
        println!("{name}: {took:?}, {grown} MiB");
        let (code, retry) = error_code(error);
        assert!(
            ["HandshakeFailed", "NoAnswer"].contains(&code.as_str()) && retry,
            "{name}: {code}"
        );
        assert!(took < Duration::from_secs(15), "{name}: {took:?}");
        assert!(grown < 256, "{name}: {grown} MiB");
        server.abort();
    }
}

/// What a server that does speak SSH does wrong.
#[derive(Debug, Clone, Default)]
struct Wrong {
    /// Shown before the login.
    banner: Option<String>,
    /// Said when SFTP begins.
    sftp: Vec<u8>,
    /// Said when a command runs, again and again.
    output: Vec<u8>,
    /// Whether a command ends without a word of how.
    drops: bool,
    /// Whether the login is cut.
    cuts: bool,
}

impl server::Handler for Wrong {
    type Error = russh::Error;

    async fn authentication_banner(&mut self) -> Result<Option<String>, Self::Error> {
        Ok(self.banner.clone())
    }

    async fn auth_publickey(
        &mut self,
        _: &str,
        _: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Self::Error> {
        if self.cuts {
            Err(russh::Error::Disconnect)
        } else {
            Ok(Auth::Accept)
        }
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut server::Session,
    ) -> Result<(), Self::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        session: &mut server::Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)?;
        if self.sftp.is_empty() {
            Ok(())
        } else {
            session.data(channel, self.sftp.clone())
        }
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _: &[u8],
        session: &mut server::Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)?;
        if self.drops {
            return Err(russh::Error::Disconnect);
        }
        let handle = session.handle();
        let bytes = self.output.clone();
        tokio::spawn(async move { while handle.data(channel, bytes.clone()).await.is_ok() {} });
        Ok(())
    }
}

async fn mad(wrong: Wrong) -> (u16, JoinHandle<()>) {
    let folder = test_dir("mad");
    let key = SshKey::make(folder.path(), "key", KeyKind::Ed25519).expect("a key");
    let keys = vec![decode_secret_key(&key.private, None).expect("a key")];
    let config = Arc::new(server::Config {
        keys,
        ..server::Config::default()
    });
    let listener = TcpListener::bind((HERE, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let config = Arc::clone(&config);
            let wrong = wrong.clone();
            tokio::spawn(async move {
                if let Ok(session) = server::run_stream(config, stream, wrong).await {
                    let _ = session.await;
                }
            });
        }
    });
    (port, task)
}

#[tokio::test]
async fn a_banner_of_the_login_without_end_is_cut() {
    let key = our_key();
    let (port, _server) = mad(Wrong {
        banner: Some("b".repeat(200_000)),
        ..Wrong::default()
    })
    .await;
    let error = error(meet(port, &key, Limits::default()).await);
    assert_eq!(error_code(error), ("OutputEndless".into(), false));
    let (port, _server) = mad(Wrong {
        banner: Some("b".repeat(60_000)),
        ..Wrong::default()
    })
    .await;
    meet(port, &key, Limits::default())
        .await
        .expect("a long one is read");
}

#[tokio::test]
async fn a_login_that_is_cut_is_no_refused_key() {
    let (port, _server) = mad(Wrong {
        cuts: true,
        ..Wrong::default()
    })
    .await;
    let error = error(meet(port, &our_key(), Limits::default()).await);
    assert_eq!(error_code(error), ("HandshakeFailed".into(), true));
}

#[tokio::test]
async fn output_without_end_is_cut_and_a_cut_command_is_no_answer() {
    let key = our_key();
    let (port, _server) = mad(Wrong {
        output: body(3, 30_000),
        ..Wrong::default()
    })
    .await;
    let limits = Limits {
        output: 32 << 20,
        ..Limits::default()
    };
    let session = meet(port, &key, limits).await.expect("a session");
    let growth = MemoryGrowth::begin().await;
    let endless = error(session.exec("anything", |_| {}).await);
    assert_eq!(error_code(endless), ("OutputEndless".into(), false));
    let grown = growth.mib();
    assert!(grown < 256, "{grown} MiB, the server's own included");

    let (port, _server) = mad(Wrong {
        drops: true,
        ..Wrong::default()
    })
    .await;
    let session = meet(port, &key, Limits::default())
        .await
        .expect("a session");
    let dropped = error(session.exec("anything", |_| {}).await);
    assert_eq!(error_code(dropped), ("ConnectionLost".into(), true));
}

#[tokio::test]
async fn sftp_that_lies_is_named() {
    let key = our_key();
    let version = [0, 0, 0, 5, 2, 0, 0, 0, 3];
    // What comes in SFTP's place, and whether the session is opened before it is noticed.
    let table: [(&str, Vec<u8>, bool); 6] = [
        ("a length of 4 GiB", vec![255; 64], false),
        ("a length of nothing", vec![0; 64], false),
        ("noise", body(4, 100_000), false),
        (
            "an answer to nothing",
            vec![0, 0, 0, 5, 101, 0, 0, 0, 9],
            false,
        ),
        (
            "a version and a length of 4 GiB",
            [&version[..], &[255; 64]].concat(),
            true,
        ),
        ("two versions", [version, version].concat(), true),
    ];
    for (name, sftp, opens) in table {
        let (port, _server) = mad(Wrong {
            sftp,
            ..Wrong::default()
        })
        .await;
        let session = meet(port, &key, Limits::default())
            .await
            .expect("a session");
        let begun = Instant::now();
        let opened = session.sftp().await;
        println!(
            "{name}: {:?}, {:?}",
            opened.as_ref().map(drop),
            begun.elapsed()
        );
        let error = match opened {
            Ok(sftp) if opens => error(sftp.size("C:/k/kubelet.exe").await),
            other => error(other),
        };
        let code = error_code(error).0;
        assert!(
            ["SftpUnusable", "ConnectionLost"].contains(&code.as_str()),
            "{name}: {code}"
        );
        assert!(begun.elapsed() < Duration::from_secs(5), "{name}");
    }
}
