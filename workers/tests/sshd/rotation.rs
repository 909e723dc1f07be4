//! Rotation of the key on one host, by OpenSSH's own sshd and SFTP: every step is proven by its logins.

use crate::bench::{HERE, dialer, key, sshd};
use dormer_testkit::{KeyKind, SshKey, Sshd, started};
use dormer_workers::ssh::{
    Key, Limits, Session, SshError,
    key_file::STAYS_OUT,
    rotation::{KeyStep, RotationError, RotationLogin},
};
use std::{fs, os::unix::fs::PermissionsExt};

struct Bench {
    server: Sshd,
    dialer: dormer_workers::ssh::Dialer,
    file: String,
    user: String,
    pin: String,
    old: Key,
}

impl Bench {
    fn new(server: Sshd) -> Self {
        Self {
            dialer: dialer(server.port()),
            file: server
                .folder()
                .join("authorized_keys")
                .display()
                .to_string(),
            user: Sshd::user(),
            pin: server.host_keys()[0].public.clone(),
            old: key(&server),
            server,
        }
    }

    fn login(&self) -> RotationLogin<'_> {
        RotationLogin {
            dialer: &self.dialer,
            limits: Limits::default(),
            address: HERE,
            user: &self.user,
            pin: &self.pin,
            file: &self.file,
        }
    }

    fn made(&self, name: &str, kind: KeyKind) -> Key {
        let made = SshKey::make(self.server.folder(), name, kind).expect("ssh-keygen makes it");
        Key::read(&made.private).expect("a key")
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).expect("the file")
    }

    async fn lets_in(&self, key: &Key) -> bool {
        let login = self.login();
        let pin = Some(login.pin);
        let opened =
            Session::open(login.dialer, HERE, login.user, pin, key, Limits::default()).await;
        match opened {
            Ok(_) => true,
            Err(SshError::Auth(..)) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_key_is_added_beside_the_old_one_and_the_old_one_is_taken_away_in_place() {
    let bench = Bench::new(started!(sshd("")));
    let before = bench.text();
    // The rights and the file itself stay: a file that is put in its place would have others.
    let rights = || {
        fs::metadata(&bench.file)
            .expect("it is there")
            .permissions()
    };
    fs::set_permissions(&bench.file, fs::Permissions::from_mode(0o600)).expect("set");
    let old = &bench.old;
    let new = bench.made("new", KeyKind::Ed25519);
    let login = bench.login();

    assert_eq!(login.add_key(old, &new).await, Ok(KeyStep::Done));
    let line = format!("{} rotated-by-dormer\n", new.public_line().expect("a line"));
    assert_eq!(bench.text(), format!("{before}{line}"));
    assert_eq!(login.add_key(old, &new).await, Ok(KeyStep::Already));
    assert!(bench.lets_in(old).await && bench.lets_in(&new).await);

    let refused = login.remove_key(old, &new, false).await;
    assert_eq!(refused, Err(RotationError::ComesBack(HERE.to_owned())));
    assert!(bench.lets_in(old).await, "nothing was done");
    fs::write(&bench.file, format!("{STAYS_OUT}\n{}", bench.text())).expect("written");
    fs::set_permissions(&bench.file, fs::Permissions::from_mode(0o600)).expect("set");
    assert_eq!(login.remove_key(old, &new, false).await, Ok(KeyStep::Done));
    assert_eq!(
        bench.text(),
        format!("{STAYS_OUT}\n#{}{line}", &before[1..])
    );
    assert!(!bench.lets_in(old).await && bench.lets_in(&new).await);
    assert_eq!(
        login.remove_key(old, &new, false).await,
        Ok(KeyStep::Already)
    );
    assert_eq!(rights().mode() & 0o777, 0o600);

    // The pair of a rotation opens a host that has either of them.
    let both = || {
        bench
            .made("later", KeyKind::Rsa(2048))
            .with_previous(new.clone())
    };
    assert!(bench.lets_in(&both()).await, "by the previous key");
}

#[tokio::test]
async fn a_key_that_sshd_does_not_take_leaves_the_file_as_it_was() {
    let bench = Bench::new(started!(sshd("PubkeyAcceptedAlgorithms ssh-ed25519\n")));
    let before = bench.text();
    let new = bench.made("new", KeyKind::Ecdsa(256));
    let refused = bench.login().add_key(&bench.old, &new).await;
    let refused = refused.expect_err("no such key");
    assert!(
        matches!(refused, RotationError::NotAccepted { .. }),
        "{refused:?}"
    );
    assert_eq!(bench.text(), before);
    assert!(bench.lets_in(&bench.old).await);
}

#[tokio::test]
async fn a_key_that_another_file_permits_as_well_is_named() {
    let bench = Bench::new(started!(sshd("")));
    let new = bench.made("new", KeyKind::Ed25519);
    let elsewhere = bench.server.folder().join("others").display().to_string();
    fs::write(&elsewhere, format!("{STAYS_OUT}\n")).expect("written");
    let login = RotationLogin {
        file: &elsewhere,
        ..bench.login()
    };
    // sshd does not read that file, so the proof fails.
    let added = login.add_key(&bench.old, &new).await;
    assert!(
        matches!(added, Err(RotationError::NotAccepted { .. })),
        "{added:?}"
    );
    assert_eq!(
        fs::read_to_string(&elsewhere).expect("there"),
        format!("{STAYS_OUT}\n")
    );
    bench
        .login()
        .add_key(&bench.old, &new)
        .await
        .expect("added");
    let removed = login.remove_key(&bench.old, &new, false).await;
    assert_eq!(
        removed,
        Err(RotationError::StillAccepted(
            HERE.to_owned(),
            elsewhere.clone()
        ))
    );
}
