//! Which keys open hosts and prove them, and which do not.

use crate::bench::{HERE, dialer, error, error_code, key, open, sshd};
use dormer_proto::machine::{HostRef, MachineRef};
use dormer_testkit::{KeyKind, SshKey, Sshd, SshdOptions, started, test_dir};
use dormer_workers::ssh::{Key, Limits, Pool, Session, SshError};
use std::process::Command;

pub(crate) const PROMISED: [KeyKind; 6] = [
    KeyKind::Ed25519,
    KeyKind::Ecdsa(256),
    KeyKind::Ecdsa(384),
    KeyKind::Ecdsa(521),
    KeyKind::Rsa(2048),
    KeyKind::Rsa(3072),
];

pub(crate) async fn login(
    server: &Sshd,
    pin: Option<&str>,
    key: &Key,
) -> Result<Session, SshError> {
    let dialer = dialer(server.port());
    Session::open(&dialer, HERE, &Sshd::user(), pin, key, Limits::default()).await
}

#[tokio::test]
async fn every_kind_of_key_that_is_promised_opens_a_host() {
    let folder = test_dir("keys");
    let keys = PROMISED.iter().enumerate().map(|(at, kind)| {
        SshKey::make(folder.path(), &format!("k{at}"), *kind).expect("ssh-keygen makes it")
    });
    let keys: Vec<SshKey> = keys.collect();
    let authorized = keys.iter().map(|key| key.public.clone()).collect();
    let server = started!(Sshd::start(&SshdOptions {
        authorized,
        ..SshdOptions::default()
    }));
    for key in &keys {
        let key = Key::read(&key.private).expect("a key that we take");
        let session = login(&server, None, &key).await.expect("it opens");
        let output = session.exec("echo hello", |_| {}).await.expect("an answer");
        assert_eq!(
            (output.stdout.as_slice(), output.status),
            (&b"hello\n"[..], Some(0))
        );
    }
    // This sshd takes no SHA-1: RSA signed over SHA-2.
    assert_eq!(
        server.log().matches("Accepted publickey").count(),
        keys.len()
    );
}

#[tokio::test]
async fn a_host_is_known_by_the_key_that_was_pinned_whatever_others_it_has() {
    let options = SshdOptions {
        host_keys: PROMISED[..5].to_vec(),
        ..SshdOptions::default()
    };
    let server = started!(Sshd::start(&options));
    for host_key in server.host_keys() {
        let pin = Some(host_key.public.as_str());
        let session = login(&server, pin, &key(&server))
            .await
            .expect("the same host");
        assert_eq!(session.host_key(), host_key.public);
    }
}

#[tokio::test]
async fn a_changed_host_key_is_named_by_both_fingerprints_and_gets_no_login() {
    let mut server = started!(sshd(""));
    let pinned = open(&server).await.host_key().to_owned();
    assert_eq!(server.log().matches("Accepted publickey").count(), 1);
    server
        .restart_with(&SshdOptions::default())
        .expect("it comes up again");
    let error = error(login(&server, Some(&pinned), &key(&server)).await);
    let text = error.to_string();
    let shown = fingerprint(&server.host_keys()[0]);
    assert!(text.contains(&shown), "{text}\nlacks {shown}");
    assert_eq!(text.matches("SHA256:").count(), 2, "{text}");
    assert_eq!(error_code(error), ("HostKeyChanged".into(), false));
    assert_eq!(
        server.log().matches("Accepted publickey").count(),
        1,
        "nobody logged in"
    );
    // Without the pin, the other host gets the login.
    let other = login(&server, None, &key(&server)).await;
    assert_ne!(other.expect("it opens").host_key(), pinned);
    assert_eq!(server.log().matches("Accepted publickey").count(), 2);
}

#[tokio::test]
async fn a_used_address_with_another_key_is_another_machines_alone() {
    let mut server = started!(sshd(""));
    let pool = Pool::new(dialer(server.port()), key(&server), Limits::default());
    let host = |uid: &str, pin: Option<String>| HostRef {
        machine: MachineRef {
            namespace: "ns".into(),
            name: "win".into(),
            uid: uid.into(),
            ..MachineRef::default()
        },
        address: HERE.into(),
        user: Sshd::user(),
        pin,
        platform: "None".into(),
    };
    let pinned = pool
        .session(&host("old", None))
        .await
        .expect("it opens")
        .host_key()
        .to_owned();
    let authorized = vec![server.key().public.clone()];
    let opened_by = server.key().private.clone();
    let options = SshdOptions {
        authorized,
        ..SshdOptions::default()
    };
    server
        .restart_with(&options)
        .expect("it comes up again, with another key");
    let pool = Pool::new(
        dialer(server.port()),
        Key::read(&opened_by).expect("a key"),
        Limits::default(),
    );
    let old = error_code(error(
        pool.session(&host("old", Some(pinned.clone()))).await,
    ));
    assert_eq!(old, ("HostKeyChanged".into(), false));
    let new = pool
        .session(&host("new", None))
        .await
        .expect("a new Machine has no pin");
    assert_ne!(new.host_key(), pinned);
    let again = error_code(error(pool.session(&host("old", Some(pinned))).await));
    assert_eq!(
        again.0, "HostKeyChanged",
        "the new Machine's connection is not the old one's"
    );
}

/// As `ssh-keygen` prints it.
pub(crate) fn fingerprint(key: &SshKey) -> String {
    let output = Command::new("ssh-keygen")
        .arg("-lf")
        .arg(&key.path)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(' ').nth(1).expect("a fingerprint").to_owned()
}

#[test]
fn a_private_key_that_is_of_no_use_says_why() {
    let folder = test_dir("keys");
    let code = |text: &str| error_code(error(Key::read(text)));
    let weak = SshKey::make(folder.path(), "weak", KeyKind::Rsa(1024))
        .expect("ssh-keygen makes 1024 bits: the least that it takes");
    assert_eq!(code(&weak.private), ("KeyTooWeak".into(), false));
    // OpenSSH 10 makes no DSA key any more.
    if let Ok(old) = SshKey::make(folder.path(), "old", KeyKind::Dsa) {
        assert!(["KeyTooWeak", "KeyUnreadable"].contains(&code(&old.private).0.as_str()));
    }
    for (at, (kind, form)) in LOCKED.iter().enumerate() {
        let locked = SshKey::make(folder.path(), &format!("locked-{at}"), *kind).expect("a key");
        let changed = Command::new("ssh-keygen")
            .args(["-q", "-p", "-P", "", "-N", "a passphrase", "-m", form, "-f"])
            .arg(&locked.path)
            .status();
        assert!(changed.expect("it runs").success());
        let text = std::fs::read_to_string(&locked.path).expect("a file");
        assert_eq!(
            code(&text),
            ("KeyEncrypted".into(), false),
            "{kind:?} {form}"
        );
    }
    let sound = SshKey::make(folder.path(), "sound", KeyKind::Ed25519).expect("a key");
    let half = &sound.private[..sound.private.len() / 2];
    for text in [
        "",
        "no key at all",
        &sound.public,
        half,
        &format!("{half}\0"),
    ] {
        let error = error(Key::read(text));
        assert!(!error.to_string().contains(half), "the key is not repeated");
        assert_eq!(
            error_code(error),
            ("KeyUnreadable".into(), false),
            "{text:?}"
        );
    }
}

/// Forms in which ssh-keygen writes a key with a passphrase.
const LOCKED: [(KeyKind, &str); 5] = [
    (KeyKind::Ed25519, "RFC4716"),
    (KeyKind::Rsa(2048), "RFC4716"),
    (KeyKind::Rsa(2048), "PEM"),
    (KeyKind::Rsa(2048), "PKCS8"),
    (KeyKind::Ecdsa(256), "PKCS8"),
];

/// What a host shows or asks for, and what is said of it.
type Row = (&'static [KeyKind], &'static str, &'static str);

#[tokio::test]
async fn what_proves_nothing_any_more_is_refused_by_name() {
    let table: &[Row] = &[
        (
            &[KeyKind::Rsa(1024)],
            "RequiredRSASize 1024\n",
            "HostKeyTooWeak",
        ),
        (
            &[KeyKind::Dsa],
            "HostKeyAlgorithms ssh-dss\n",
            "NoCommonAlgorithm",
        ),
        (
            &[KeyKind::Rsa(2048)],
            "HostKeyAlgorithms ssh-rsa\n",
            "NoCommonAlgorithm",
        ),
        (
            &[KeyKind::Ed25519],
            "Ciphers aes128-cbc\n",
            "NoCommonAlgorithm",
        ),
        (
            &[KeyKind::Ed25519],
            "KexAlgorithms diffie-hellman-group1-sha1\n",
            "NoCommonAlgorithm",
        ),
    ];
    let folder = test_dir("keys");
    for (at, (kinds, config, code)) in table.iter().enumerate() {
        if SshKey::make(folder.path(), &format!("try-{at}"), kinds[0]).is_err() {
            println!("{kinds:?} cannot be made here");
            continue;
        }
        let options = SshdOptions {
            host_keys: kinds.to_vec(),
            config: (*config).to_owned(),
            ..SshdOptions::default()
        };
        let server = started!(Sshd::start(&options));
        let error = error(login(&server, None, &key(&server)).await);
        assert_eq!(
            error_code(error),
            ((*code).into(), false),
            "{kinds:?} {config}"
        );
    }
}

#[tokio::test]
async fn no_key_of_ours_signs_over_sha_1() {
    let folder = test_dir("keys");
    let rsa = SshKey::make(folder.path(), "rsa", KeyKind::Rsa(2048)).expect("a key");
    let server = started!(Sshd::start(&SshdOptions {
        authorized: vec![rsa.public.clone()],
        config: "PubkeyAcceptedAlgorithms ssh-rsa\n".into(),
        ..SshdOptions::default()
    }));
    let key = Key::read(&rsa.private).expect("a key");
    assert_eq!(
        error_code(error(login(&server, None, &key).await)),
        ("AuthRejected".into(), false)
    );
}
