//! A file is on the host whole and right, or not at all, however often the connection is cut.

use crate::{
    bench::{SOON, body, dialer, error, error_code, is, key, open, send, sshd},
    relay::Relay,
};
use dormer_proto::machine::{HostRef, MachineRef};
use dormer_testkit::{Sshd, await_condition, started};
use dormer_workers::ssh::{FILES_AT_ONCE, Limits, Pool, SshError, Upload, at_once};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

/// Bytes that pass before each cut: in the login, at the first write, in the middle, at the end.
const CUTS: [u64; 8] = [
    700, 3_000, 100_000, 1_000_000, 5_000_000, 9_000_000, 250_000, 12_000_000,
];

/// Files of several sizes, the empty one among them.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let sizes = [
        3 << 20,
        1,
        0,
        (2 << 20) + 7,
        128 << 10,
        700_001,
        4 << 20,
        5 << 20,
    ];
    let files = sizes.iter().enumerate();
    files
        .map(|(at, size)| {
            (
                folder.join(format!("file-{at}")),
                body(at as u64 + 9, *size),
            )
        })
        .collect()
}

#[tokio::test]
async fn an_upload_that_is_cut_again_and_again_ends_whole_and_is_never_half_there() {
    let server = started!(sshd(""));
    let relay = Relay::before(server.port()).await;
    let pool = Pool::new(dialer(relay.port), key(&server), Limits::default());
    let machine = MachineRef {
        namespace: "ns".into(),
        name: "a".into(),
        uid: "u".into(),
        ..MachineRef::default()
    };
    let address = "127.0.0.1".to_owned();
    let user = Sshd::user();
    let host = HostRef {
        machine,
        address,
        user,
        pin: None,
        platform: "None".into(),
    };
    let files = files(server.folder());
    let mut attempt = 0;
    loop {
        attempt += 1;
        if let Some(bytes) = CUTS.get(attempt - 1) {
            relay.faults.bytes_until_cut.store(*bytes, SeqCst);
        }
        let sent = attempt_at(&pool, &host, &files, attempt).await;
        for (path, bytes) in &files {
            assert!(
                !path.exists() || is(path, bytes),
                "{} is half there",
                path.display()
            );
        }
        match sent {
            Ok(()) => break,
            Err(error) => {
                assert!(error.breaks(), "{error}");
                assert!(error_code(error).1, "it is tried again");
                pool.drop_session(&host);
            }
        }
    }
    let cuts = relay.faults.cuts.load(SeqCst);
    assert!(cuts >= 5, "{cuts} cuts in {attempt} attempts");
    assert!(files.iter().all(|(path, bytes)| is(path, bytes)));
}

/// One attempt as the executor makes it: what is there is left alone, the rest is sent by parts of its own.
async fn attempt_at(
    pool: &Pool,
    host: &HostRef,
    files: &[(PathBuf, Vec<u8>)],
    attempt: usize,
) -> Result<(), SshError> {
    let session = pool.session(host).await?;
    let sftp = session.sftp().await?;
    let sftp = &sftp;
    let mark = attempt.to_string();
    let mut works = Vec::new();
    for (path, bytes) in files {
        let mark = &mark;
        works.push(async move {
            let there = sftp.size(&path.display().to_string()).await?;
            if there == Some(bytes.len() as u64) {
                Ok(())
            } else {
                send(sftp, path, mark, bytes).await
            }
        });
    }
    at_once(FILES_AT_ONCE, works).await
}

#[tokio::test]
async fn sshd_killed_in_the_middle_leaves_no_file_under_its_name() {
    let server = started!(sshd(""));
    let session = open(&server).await;
    let sftp = session.sftp().await.expect("SFTP");
    let path = server.folder().join("killed");
    let bytes = body(5, 64 << 20);
    let text = path.display().to_string();
    let sha256 = dormer_profile::sha256_hex(&bytes);
    let part = format!("{text}.1.part");
    let what = Upload {
        path: &text,
        part: &part,
        size: 64 << 20,
        sha256: &sha256,
    };
    let moved = AtomicU64::new(0);
    let sent = sftp.upload(what, bytes.as_slice(), |more| {
        moved.fetch_add(more, SeqCst);
    });
    let kill = async {
        await_condition("a part", SOON, || async { moved.load(SeqCst) > 4 << 20 }).await;
        server.kill_connections().expect("signals");
    };
    let (sent, ()) = tokio::join!(sent, kill);
    assert_eq!(error_code(error(sent)), ("ConnectionLost".into(), true));
    assert!(!path.exists() && fs::metadata(&part).is_ok_and(|part| part.len() > 0));

    let session = open(&server).await;
    let sftp = session.sftp().await.expect("SFTP");
    send(&sftp, &path, "2", &bytes)
        .await
        .expect("the next attempt");
    assert!(is(&path, &bytes));
}

#[tokio::test]
async fn two_workers_that_send_one_file_end_with_that_file() {
    let server = started!(sshd(""));
    let one = open(&server).await;
    let other = open(&server).await;
    let one = one.sftp().await.expect("SFTP");
    let other = other.sftp().await.expect("SFTP");
    let path = server.folder().join("both");
    let bytes = body(6, 9 << 20);
    let (first, second) = tokio::join!(
        send(&one, &path, "1", &bytes),
        send(&other, &path, "2", &bytes)
    );
    first.and(second).expect("both are content");
    assert!(is(&path, &bytes));
    let names = fs::read_dir(server.folder()).expect("a folder").flatten();
    let parts = names.filter(|entry| entry.file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(parts.count(), 0, "no part is left");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_or_is_damaged_here_ends_alone() {
    let server = started!(sshd(""));
    let session = open(&server).await;
    let sftp = session.sftp().await.expect("SFTP");
    let nowhere = server.folder().join("no such folder").join("file");
    let error_of = error_code(error(send(&sftp, &nowhere, "1", b"bytes").await));
    assert_eq!(error_of, ("UploadFailed".into(), true));

    let path = server.folder().join("damaged");
    let text = path.display().to_string();
    let bytes = body(7, 300_000);
    let part = format!("{text}.1.part");
    let what = Upload {
        path: &text,
        part: &part,
        size: 300_000,
        sha256: &"0".repeat(64),
    };
    let damaged = error(sftp.upload(what, bytes.as_slice(), |_| {}).await);
    assert!(!damaged.breaks());
    assert_eq!(error_code(damaged).0, "PayloadDamaged");
    let short = error(sftp.upload(what, &bytes[..1000], |_| {}).await);
    assert_eq!(error_code(short).0, "PayloadDamaged");
    assert!(!path.exists() && !Path::new(&part).exists());
    let other = server.folder().join("other");
    send(&sftp, &other, "1", &bytes)
        .await
        .expect("the session goes on");
    assert!(is(&other, &bytes));
}
