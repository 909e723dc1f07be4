//! What a host says: much, binary, before the login, in SFTP's place, or nothing at all.

use crate::bench::{MemoryGrowth, body, error, error_code, is, large, open, open_at, send, sshd};
use dormer_profile::frame::OUTPUT_BYTES_MAX;
use dormer_testkit::{Sshd, SshdOptions, started};
use dormer_workers::ssh::Limits;
use std::{fs, time::Instant};

#[tokio::test]
async fn binary_output_comes_as_it_is_and_both_streams_apart() {
    let server = started!(sshd(""));
    let path = server.folder().join("binary");
    let bytes = body(1, 1_000_003);
    fs::write(&path, &bytes).expect("a file");
    let line = format!("cat {0}; cat {0} >&2; exit 7", path.display());
    let output = open(&server)
        .await
        .exec(&line, |_| {})
        .await
        .expect("an answer");
    assert!(output.stdout == bytes && output.stderr == bytes);
    assert_eq!(output.status, Some(7));
}

#[tokio::test]
async fn huge_output_is_read_to_its_end_of_which_the_end_is_kept() {
    let server = started!(sshd(""));
    let large = large();
    let mib = if large.is_some() { 1024 } else { 64 };
    let limits = Limits {
        output: 2 << 30,
        ..Limits::default()
    };
    let session = open_at(server.port(), &server, limits)
        .await
        .expect("a session");
    let growth = MemoryGrowth::begin().await;
    let bytes_seen = std::sync::atomic::AtomicUsize::new(0);
    let line = format!("head -c {mib}M /dev/zero; echo the end");
    let output = session.exec(&line, |count| {
        bytes_seen.fetch_add(count, std::sync::atomic::Ordering::SeqCst);
    });
    let output = output.await.expect("an answer");
    assert_eq!(output.stdout.len(), OUTPUT_BYTES_MAX);
    assert!(output.stdout.ends_with(b"\0the end\n"));
    assert_eq!(bytes_seen.into_inner(), (mib << 20) + 8);
    let grown = growth.mib();
    assert!(
        grown < 256,
        "{grown} MiB more memory for {mib} MiB of output"
    );
    if let Some(large) = large {
        large.passed(&[
            ("output", format!("{mib} MiB")),
            ("more memory", format!("{grown} MiB")),
        ]);
    }
}

#[tokio::test]
async fn output_without_end_is_cut() {
    let server = started!(sshd(""));
    let limits = Limits {
        output: 8 << 20,
        ..Limits::default()
    };
    let session = open_at(server.port(), &server, limits)
        .await
        .expect("a session");
    let error = error(session.exec("yes", |_| {}).await);
    assert!(error.breaks());
    assert_eq!(error_code(error), ("OutputEndless".into(), false));
}

#[tokio::test]
async fn a_banner_before_the_login_is_no_hindrance() {
    let folder = dormer_testkit::test_dir("banner");
    let banner = folder.path().join("banner");
    fs::write(
        &banner,
        "Authorised use only. Nur für Befugte.\r\n".repeat(2_000),
    )
    .expect("a file");
    let server = started!(sshd(&format!(
        "Banner {}\nPrintMotd yes\n",
        banner.display()
    )));
    let output = open(&server)
        .await
        .exec("echo hello", |_| {})
        .await
        .expect("an answer");
    assert_eq!(output.stdout, b"hello\n");
}

#[tokio::test]
async fn a_host_without_sftp_is_named_at_once_and_still_runs_commands() {
    let server = started!(Sshd::start(&SshdOptions {
        sftp: false,
        ..SshdOptions::default()
    }));
    let session = open(&server).await;
    let begun = Instant::now();
    let error = error(session.sftp().await);
    assert!(begun.elapsed().as_secs() < 5);
    assert!(error.to_string().contains("Subsystem sftp sftp-server.exe") && !error.breaks());
    assert_eq!(error_code(error), ("SftpMissing".into(), false));
    let output = session.exec("echo hello", |_| {}).await.expect("an answer");
    assert_eq!(output.stdout, b"hello\n");
}

#[tokio::test]
async fn what_comes_instead_of_sftp_is_quoted() {
    let table = [
        // A shell profile that greets, as Windows' sshd starts SFTP by the default shell.
        (
            "echo Loading personal and system profiles took 840ms.; cat",
            "Loading personal",
            false,
        ),
        ("printf x; cat", "\"x\"", false),
        ("exit 0", "it ends without a word", true),
        ("exec no-such-program", "it ends without a word", true),
    ];
    for (script, said, retry) in table {
        let config = format!("Subsystem sftp {script}\n");
        let options = SshdOptions {
            config,
            sftp: false,
            ..SshdOptions::default()
        };
        let server = started!(Sshd::start(&options));
        let error = error(open(&server).await.sftp().await);
        let text = error.to_string();
        assert!(text.contains(said), "{script}: {text}");
        assert_eq!(
            error_code(error),
            ("SftpUnusable".into(), retry),
            "{script}"
        );
    }
}

#[tokio::test]
async fn one_session_a_connection_is_enough_and_none_is_named() {
    let server = started!(sshd("MaxSessions 1\n"));
    let session = open(&server).await;
    for round in 0..3 {
        let path = server.folder().join(format!("file-{round}"));
        let bytes = body(round, 100_000);
        let sftp = session.sftp().await.expect("SFTP");
        send(&sftp, &path, "1", &bytes).await.expect("an upload");
        assert!(is(&path, &bytes));
        drop(sftp);
        let output = session
            .exec("echo hello", |_| {})
            .await
            .expect("SFTP makes room");
        assert_eq!(output.stdout, b"hello\n");
    }

    let server = started!(sshd("MaxSessions 0\n"));
    let session = open(&server).await;
    let error = error(session.exec("echo hello", |_| {}).await);
    assert_eq!(error_code(error), ("SessionRefused".into(), true));
}
