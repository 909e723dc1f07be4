//! Connections under stress: too many, half open, frozen, slow, and with new keys every megabyte.

use crate::{
    bench::{
        SOON, body, dialer, error, error_code, is, key, large, open, open_at, send, short, sshd,
    },
    relay::Relay,
};
use dormer_proto::machine::{HostRef, MachineRef};
use dormer_testkit::{Sshd, await_condition, await_some, started};
use dormer_workers::ssh::{Limits, Pool, Upload};
use futures::future::join_all;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::{io::AsyncReadExt, net::TcpStream};

fn host(address: &str) -> HostRef {
    HostRef {
        machine: MachineRef {
            namespace: "ns".into(),
            name: "a".into(),
            uid: "u".into(),
            ..MachineRef::default()
        },
        address: address.into(),
        user: Sshd::user(),
        pin: None,
        platform: "None".into(),
    }
}

fn logins(server: &Sshd) -> usize {
    server.log().matches("Accepted publickey").count()
}

#[tokio::test]
async fn a_host_at_its_limit_of_pending_logins_is_retried() {
    let server = started!(sshd("MaxStartups 2:100:2\n"));
    let address = ("127.0.0.1", server.port());
    let mut others = Vec::new();
    for _ in 0..2 {
        let mut other = TcpStream::connect(address).await.expect("a connection");
        other.read_u8().await.expect("a greeting");
        others.push(other);
    }
    let refused = error(open_at(server.port(), &server, Limits::default()).await);
    assert_eq!(error_code(refused), ("HandshakeFailed".into(), true));
    drop(others);
    let open = || async {
        open_at(server.port(), &server, Limits::default())
            .await
            .ok()
    };
    let session = await_some("room", SOON, open).await;
    assert_eq!(
        session
            .exec("echo hello", |_| {})
            .await
            .expect("an answer")
            .stdout,
        b"hello\n"
    );
}

#[tokio::test]
async fn twenty_tasks_of_one_host_share_one_connection_under_its_limits() {
    // Room for one login, and for the check whether sshd is up, whose end sshd may not have noticed yet.
    let server = started!(sshd("MaxStartups 2\nMaxSessions 10\n"));
    let pool = Pool::new(dialer(server.port()), key(&server), Limits::default());
    let host = host("127.0.0.1");
    let sessions = join_all((0..20).map(|_| pool.session(&host))).await;
    assert!(sessions.iter().all(Result::is_ok));
    let session = sessions[0].as_ref().expect("a session");
    let outputs = join_all((0..8).map(|_| session.exec("echo hello", |_| {}))).await;
    assert!(
        outputs
            .iter()
            .all(|output| output.as_ref().is_ok_and(|o| o.stdout == b"hello\n"))
    );
    assert_eq!((logins(&server), pool.len()), (1, 1));
}

#[tokio::test]
async fn a_half_open_connection_ends_a_command_and_an_upload() {
    let server = started!(sshd(""));
    for uploads in [false, true] {
        let relay = Relay::before(server.port()).await;
        let session = open_at(relay.port, &server, short())
            .await
            .expect("a session");
        let sftp = session.sftp().await.expect("SFTP");
        let begun = Instant::now();
        let work = async {
            if uploads {
                let path = server.folder().join("half-open");
                send(&sftp, &path, "1", &body(1, 48 << 20)).await
            } else {
                session.exec("cat /dev/zero", |_| {}).await.map(drop)
            }
        };
        let swallow = async {
            await_condition("bytes", SOON, || async {
                begun.elapsed().as_millis() > 100
            })
            .await;
            relay.faults.swallows.store(true, SeqCst);
        };
        let (done, ()) = tokio::join!(work, swallow);
        let error = error(done);
        assert!(begun.elapsed() < SOON && error.breaks(), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("Keepalive timeout") || text.contains("Inactivity"),
            "{text}"
        );
        assert_eq!(error_code(error), ("ConnectionLost".into(), true));
        assert!(session.is_closed());
    }
    assert!(!server.folder().join("half-open").exists());
}

#[tokio::test]
async fn keepalives_hold_a_connection_through_a_long_silence() {
    let server = started!(sshd(""));
    let session = open_at(server.port(), &server, short())
        .await
        .expect("a session");
    // Twenty times the interval, four times what ends a silent connection.
    let output = session
        .exec("sleep 2; echo hello", |_| {})
        .await
        .expect("an answer");
    assert_eq!(output.stdout, b"hello\n");
}

#[tokio::test]
async fn a_frozen_sshd_costs_the_limit_of_a_login() {
    let server = started!(sshd(""));
    server.freeze().expect("a signal");
    let begun = Instant::now();
    let error = error(open_at(server.port(), &server, short()).await);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(error_code(error), ("NoAnswer".into(), true));
    server.thaw().expect("a signal");
    open(&server).await;
}

#[tokio::test]
async fn a_slow_connection_is_not_broken_and_reports_progress() {
    let server = started!(sshd(""));
    let relay = Relay::before(server.port()).await;
    let session = open_at(relay.port, &server, Limits::default())
        .await
        .expect("a session");
    let sftp = session.sftp().await.expect("SFTP");
    let bytes = body(3, 600_000);
    let sha256 = dormer_profile::sha256_hex(&bytes);
    let path = server.folder().join("slow");
    let text = path.display().to_string();
    let part = format!("{text}.part");
    let what = Upload {
        path: &text,
        part: &part,
        size: 600_000,
        sha256: &sha256,
    };
    relay.faults.bytes_a_second.store(200_000, SeqCst);
    let begun = Instant::now();
    let moves = Mutex::new(Vec::new());
    sftp.upload(what, bytes.as_slice(), |more| {
        moves.lock().expect("moves").push(more)
    })
    .await
    .expect("an upload");
    assert!(
        begun.elapsed() > Duration::from_secs(2),
        "the relay is slow"
    );
    let moves = moves.into_inner().expect("moves");
    assert!(
        moves.len() >= 5 && moves.iter().sum::<u64>() == 600_000,
        "{moves:?}"
    );
    assert!(is(&path, &bytes));
}

#[tokio::test]
async fn new_keys_every_megabyte_do_not_disturb_a_long_upload() {
    let server = started!(sshd("LogLevel DEBUG1\nRekeyLimit 1M\n"));
    let session = open(&server).await;
    let sftp = session.sftp().await.expect("SFTP");
    let large = large();
    let mib = if large.is_some() { 512 } else { 24 };
    let bytes = body(4, mib << 20);
    let path = server.folder().join("rekeyed");
    let bytes_seen = AtomicU64::new(0);
    let (sent, output) = tokio::join!(
        send(&sftp, &path, "1", &bytes),
        session.exec("head -c 8M /dev/zero", |count| {
            bytes_seen.fetch_add(count as u64, SeqCst);
        }),
    );
    sent.expect("an upload");
    assert_eq!(output.expect("an answer").status, Some(0));
    assert!(bytes_seen.into_inner() >= 8 << 20);
    assert!(is(&path, &bytes));
    let rekeys = server.log().matches("SSH2_MSG_NEWKEYS received").count();
    assert!(rekeys >= 10, "{rekeys}");
    if let Some(large) = large {
        large.passed(&[
            ("upload", format!("{mib} MiB")),
            ("new keys", rekeys.to_string()),
        ]);
    }
}
