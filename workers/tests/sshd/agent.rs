//! Keys in a real ssh-agent: which of them open a host, and how an agent is named that does not sign.

use crate::{
    bench::{error, error_code},
    keys::{PROMISED, fingerprint, login},
};
use dormer_testkit::{KeyKind, SshAgent, SshKey, Sshd, SshdOptions, TempDir, started, test_dir};
use dormer_workers::ssh::{HeldKey, Key, SshAgent as Agent, SshError};
use std::{ffi::OsStr, path::Path, sync::Arc, time::Duration};

/// What a failed login means to the engine: nothing was the host's fault, and it is tried again.
const UNUSABLE: &str = "SshAgentUnusable";

/// A host, and an agent with keys that open it.
struct Site {
    server: Sshd,
    agent: SshAgent,
    keys: Vec<SshKey>,
    _folder: TempDir,
}

impl Site {
    /// The agent has the keys of `kinds`, and no file has them any more.
    fn start(kinds: &[KeyKind]) -> Option<Self> {
        let folder = test_dir("agent-keys");
        let keys = kinds.iter().enumerate().map(|(at, kind)| {
            SshKey::make(folder.path(), &format!("k{at}"), *kind).expect("ssh-keygen makes it")
        });
        let keys: Vec<SshKey> = keys.collect();
        let authorized = keys.iter().map(|key| key.public.clone()).collect();
        let server = Sshd::start(&SshdOptions {
            authorized,
            ..SshdOptions::default()
        });
        let (server, agent) = both(server, SshAgent::start())?;
        for key in &keys {
            agent.ssh_add(&[&key.path]).expect("added");
            std::fs::remove_file(&key.path).expect("removed");
        }
        Some(Self {
            server,
            agent,
            keys,
            _folder: folder,
        })
    }

    fn prints(&self) -> Vec<String> {
        let print = |key: &SshKey| {
            let public = SshKey {
                path: key.path.with_added_extension("pub"),
                ..key.clone()
            };
            fingerprint(&public)
        };
        self.keys.iter().map(print).collect()
    }

    async fn opens(&self, key: &Key) {
        let session = login(&self.server, None, key).await.expect("it opens");
        let output = session.exec("echo hello", |_| {}).await.expect("an answer");
        assert_eq!(output.stdout, b"hello\n");
    }
}

fn both(
    server: dormer_testkit::Start<Sshd>,
    agent: dormer_testkit::Start<SshAgent>,
) -> Option<(Sshd, SshAgent)> {
    use dormer_testkit::Start::{Skipped, Started};
    match (server, agent) {
        (Started(server), Started(agent)) => Some((server, agent)),
        (Skipped(skipped), _) | (_, Skipped(skipped)) => {
            skipped.announce("sshd::agent");
            None
        }
    }
}

/// The key that a running dormer takes.
async fn chosen(agent: &SshAgent, wanted: &[String]) -> Result<Key, SshError> {
    let agent = Arc::new(Agent::at(agent.socket()));
    Ok(HeldKey::choose(agent, wanted).await?.key)
}

#[tokio::test]
async fn every_kind_of_key_in_an_agent_opens_a_host_and_is_in_no_file() {
    let Some(site) = Site::start(&PROMISED) else {
        return;
    };
    for (key, print) in site.keys.iter().zip(site.prints()) {
        let held = chosen(&site.agent, &[print]).await.expect("a key");
        assert_eq!(held.public_line().expect("a line"), key.public);
        assert_eq!(format!("{held:?}"), "Key");
        site.opens(&held).await;
    }
    // This sshd takes no SHA-1: RSA signed over SHA-2.
    let accepted = site.server.log().matches("Accepted publickey").count();
    assert_eq!(accepted, PROMISED.len());
}

#[tokio::test]
async fn the_only_key_needs_no_name_and_the_one_before_opens_what_refuses_it() {
    let Some(site) = Site::start(&[KeyKind::Ed25519]) else {
        return;
    };
    let only = chosen(&site.agent, &[]).await.expect("a key");
    site.opens(&only).await;

    let folder = test_dir("agent-keys");
    let new = SshKey::make(folder.path(), "new", KeyKind::Ecdsa(256)).expect("made");
    site.agent.ssh_add(&[&new.path]).expect("added");
    let several = error(chosen(&site.agent, &[]).await).to_string();
    let prints = [fingerprint(&new), site.prints().remove(0)];
    for print in &prints {
        assert!(several.contains(print), "{several}");
    }
    assert!(several.contains("--ssh-agent-key"), "{several}");

    // The host refuses the new key, as one that was away during a rotation.
    let alone = chosen(&site.agent, &prints[..1]).await.expect("a key");
    let refused = error(login(&site.server, None, &alone).await);
    assert_eq!(error_code(refused).0, "AuthRejected");
    let pair = chosen(&site.agent, &prints).await.expect("keys");
    site.opens(&pair).await;
    assert_ne!(pair, alone);

    // Without the one before dormer continues with the new one, and says so.
    let gone = ["-d".as_ref(), public_file(&site.keys[0]).as_os_str()].map(OsStr::to_owned);
    site.agent.ssh_add(&gone).expect("removed");
    let agent = Arc::new(Agent::at(site.agent.socket()));
    let held = HeldKey::choose(agent, &prints).await.expect("a key");
    assert_eq!(held.key, alone);
    let why = held.without_previous.expect("a sentence");
    assert!(why.contains(&prints[1]), "{why}");
}

fn public_file(key: &SshKey) -> std::path::PathBuf {
    key.path.with_added_extension("pub")
}

/// What is said of an agent that has no key to choose.
async fn says(agent: &Path, wanted: &[&str]) -> String {
    said_by(Agent::at(agent), wanted).await
}

async fn said_by(agent: Agent, wanted: &[&str]) -> String {
    let wanted: Vec<String> = wanted.iter().map(|it| (*it).to_owned()).collect();
    let error = match HeldKey::choose(Arc::new(agent), &wanted).await {
        Ok(held) => panic!("{held:?}"),
        Err(error) => error,
    };
    let text = error.to_string();
    assert_eq!(error_code(error), (UNUSABLE.into(), true));
    text
}

#[tokio::test]
async fn an_agent_without_a_key_to_choose_is_named_with_what_to_do() {
    let mut agent = started!(SshAgent::start());
    let socket = agent.socket();
    let name = format!("the SSH agent at {}", socket.display());
    let folder = test_dir("agent-keys");
    let key = SshKey::make(folder.path(), "key", KeyKind::Ed25519).expect("made");
    let weak = SshKey::make(folder.path(), "weak", KeyKind::Rsa(1024)).expect("made");

    let empty = says(&socket, &[]).await;
    assert!(
        empty.starts_with(&name) && empty.contains("shows no key"),
        "{empty}"
    );
    let absent = says(&socket, &["SHA256:absent"]).await;
    assert!(
        absent.contains("does not hold the key SHA256:absent"),
        "{absent}"
    );
    agent.ssh_add(&[&weak.path]).expect("added");
    let unused = says(&socket, &[]).await;
    assert!(unused.contains("holds no key that dormer uses"), "{unused}");
    let too_weak = says(&socket, &[&fingerprint(&weak)]).await;
    assert!(too_weak.contains("RSA of only 1024 bits"), "{too_weak}");

    agent.ssh_add(&[&key.path]).expect("added");
    chosen(&agent, &[]).await.expect("the one that is of use");
    agent.ssh_add(&["-x"]).expect("locked");
    let locked = says(&socket, &[&fingerprint(&key)]).await;
    assert!(locked.contains("ssh-add -X"), "{locked}");
    agent.ssh_add(&["-X"]).expect("unlocked");
    chosen(&agent, &[]).await.expect("unlocked");

    agent.freeze().expect("it stands still");
    let quick = Agent::at(&socket).answering_within(Duration::from_millis(500));
    let silent = said_by(quick, &[]).await;
    assert!(silent.contains("does not answer within 0.5 s"), "{silent}");
    agent.thaw().expect("it goes on");
    agent.kill();
    let dead = says(&socket, &[]).await;
    assert!(dead.contains("nothing listens at its socket"), "{dead}");
    std::fs::remove_file(&socket).expect("removed");
    let gone = says(&socket, &[]).await;
    assert!(gone.contains("there is no such socket"), "{gone}");
}

#[tokio::test]
async fn an_agent_that_does_not_sign_is_not_taken_for_a_host_that_refuses() {
    let Some(mut site) = Site::start(&[]) else {
        return;
    };
    // A key that asks a person each time, and no person is there.
    let asking = ["-q", "-c"].map(std::ffi::OsString::from).to_vec();
    let file = site.server.key().path.clone();
    let asking: Vec<_> = asking.into_iter().chain([file.clone().into()]).collect();
    site.agent.ssh_add(&asking).expect("added");
    let key = chosen(&site.agent, &[]).await.expect("a key");
    let unsigned = error(login(&site.server, None, &key).await);
    let text = unsigned.to_string();
    assert!(
        text.contains("does not sign with the key SHA256:"),
        "{text}"
    );
    assert!(text.contains("ssh-add -c"), "{text}");
    let failure = dormer_proto::message::Failure::from(unsigned);
    assert_eq!((failure.code.as_str(), failure.retry), (UNUSABLE, true));
    assert!(failure.uncounted, "no machine fails by it: {failure:?}");

    site.agent.ssh_add(&["-D"]).expect("emptied");
    let emptied = error(login(&site.server, None, &key).await);
    assert_eq!(error_code(emptied), (UNUSABLE.into(), true));

    let agent = Agent::at(site.agent.socket()).answering_within(Duration::from_secs(3));
    site.agent.ssh_add(&[&file]).expect("added");
    let key = HeldKey::choose(Arc::new(agent), &[])
        .await
        .expect("a key")
        .key;
    site.agent.freeze().expect("it stands still");
    let silent = error(login(&site.server, None, &key).await);
    assert!(
        silent.to_string().contains("does not answer within"),
        "{silent}"
    );
    site.agent.thaw().expect("it goes on");
    assert!(!site.server.log().contains("Accepted publickey"));

    // The same key opens the host once the agent has it again.
    site.agent.restart().expect("it comes up");
    site.agent.ssh_add(&[&file]).expect("added");
    site.opens(&key).await;
}
