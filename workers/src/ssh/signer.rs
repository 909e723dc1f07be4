//! Private keys that this process does not have: their holder signs logins with them. The first holder is an ssh-agent,
//! over the socket by which programs of OpenSSH reach it (draft-ietf-sshm-ssh-agent).

use super::{Key, SshError, guard::weakness};
use futures::future::BoxFuture;
use russh::keys::{
    self, HashAlg, PublicKey,
    agent::{AgentIdentity, client::AgentClient},
};
use std::{fmt::Write as _, future::Future, io, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    net::UnixStream,
    sync::Semaphore,
    time::{Instant, timeout_at},
};

/// Longest wait for one answer of an agent. It is shorter than a login may take (`Limits::login`), so that an agent that
/// waits for a person is named, and not the host.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Most calls of an agent at once. It signs one after the other, and a hardware key signs a few in a second: what waits here
/// and gives up costs it no signature.
const AT_ONCE: usize = 8;
/// Most keys that an error lists.
const LISTED_MAX: usize = 8;

/// Holder of private keys. It signs logins, and hands no private key out.
///
/// # Contract
/// Each call ends within the time of a login. An error is [`SshError::Signer`], and names the holder. Calls may come at the
/// same time.
pub trait Signer: Send + Sync + 'static {
    /// Where the keys are, in words: "the SSH agent at /run/agent".
    fn name(&self) -> String;

    /// Public halves of its keys, in its order.
    fn keys(&self) -> BoxFuture<'_, Result<Vec<PublicKey>, SshError>>;

    /// `login`, and after it the signature of `key` over it (RFC 4252 §7). `hash` is given for RSA keys only.
    fn sign<'a>(
        &'a self,
        key: &'a PublicKey,
        hash: Option<HashAlg>,
        login: Vec<u8>,
    ) -> BoxFuture<'a, Result<Vec<u8>, SshError>>;
}

/// A key in a [`Signer`], and what its choice leaves to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldKey {
    pub key: Key,
    /// Why the previous key is not used although one is named, in one sentence.
    pub without_previous: Option<String>,
}

impl HeldKey {
    /// Chooses a key of `signer` by the fingerprints `wanted` (`SHA256:…`): the present one first, then the one of before
    /// a rotation. Without any the signer must have exactly one key that is of use.
    ///
    /// # Errors
    /// It does not answer; or it has no such key, or several and none is named.
    pub async fn choose(signer: Arc<dyn Signer>, wanted: &[String]) -> Result<Self, SshError> {
        let held = signer.keys().await?;
        let trouble = |why| SshError::Signer(signer.name(), why);
        let present = match wanted.first() {
            Some(wanted) => named(&held, wanted),
            None => only(&held),
        };
        let key = Key::held(present.map_err(trouble)?, Arc::clone(&signer));
        Ok(match wanted.get(1).map(|wanted| named(&held, wanted)) {
            None => Self {
                key,
                without_previous: None,
            },
            Some(Ok(previous)) => Self {
                key: key.with_previous(Key::held(previous, signer)),
                without_previous: None,
            },
            Some(Err(why)) => Self {
                key,
                without_previous: Some(format!("{} {why}", signer.name())),
            },
        })
    }
}

/// Fingerprint of a key, as `ssh-add -l` prints it.
fn print(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

fn listed(held: &[PublicKey]) -> String {
    let mut text = String::new();
    for key in held.iter().take(LISTED_MAX) {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a text does not fail.
        let _ = write!(text, "{comma}{} ({})", print(key), key.algorithm());
    }
    match held.len().saturating_sub(LISTED_MAX) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// The key with this fingerprint.
fn named(held: &[PublicKey], wanted: &str) -> Result<PublicKey, String> {
    let found = held.iter().find(|key| print(key) == wanted);
    let Some(key) = found else {
        return Err(match held {
            [] => format!("does not hold the key {wanted}: it shows none. {NONE}"),
            held => format!("does not hold the key {wanted}; it has {}", listed(held)),
        });
    };
    match weakness(key.key_data()) {
        None => Ok(key.clone()),
        Some(weakness) => Err(format!(
            "has the key {wanted}, but it is {weakness}: {KINDS}"
        )),
    }
}

/// The only key that is of use.
fn only(held: &[PublicKey]) -> Result<PublicKey, String> {
    let mut fit = held.iter().filter(|key| weakness(key.key_data()).is_none());
    match (fit.next(), fit.next()) {
        (Some(key), None) => Ok(key.clone()),
        (Some(_), Some(_)) => Err(format!(
            "holds several keys: name the one of the Windows hosts with --ssh-agent-key. It has {}",
            listed(held)
        )),
        (None, _) if held.is_empty() => Err(format!("shows no key. {NONE}")),
        (None, _) => Err(format!(
            "holds no key that dormer uses: {KINDS}. It has {}",
            listed(held)
        )),
    }
}

/// What a person does about an agent that shows no key.
const NONE: &str = "Add the key with ssh-add; a locked agent shows no key before ssh-add -X";
/// Kinds of keys that log in.
const KINDS: &str = "dormer uses ed25519, ECDSA, and RSA of at least 2048 bits";

/// An ssh-agent behind a socket. Each call has a connection of its own.
#[derive(Debug)]
pub struct SshAgent {
    socket: PathBuf,
    answer_max: Duration,
    /// Permits of calls.
    room: Semaphore,
}

impl SshAgent {
    /// The agent that listens at `socket`. It is first called when a key is chosen.
    #[must_use]
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            answer_max: ANSWER_MAX,
            room: Semaphore::new(AT_ONCE),
        }
    }

    /// The same with another limit for one answer.
    #[must_use]
    pub fn answering_within(self, answer_max: Duration) -> Self {
        Self { answer_max, ..self }
    }

    fn trouble(&self, why: impl Into<String>) -> SshError {
        SshError::Signer(self.name(), why.into())
    }

    async fn connect(&self) -> Result<AgentClient<UnixStream>, SshError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| {
            self.trouble(match error.kind() {
                io::ErrorKind::NotFound => "does not run: there is no such socket".to_owned(),
                io::ErrorKind::ConnectionRefused => {
                    "does not run: nothing listens at its socket".to_owned()
                }
                _ => format!("cannot be reached: {error}"),
            })
        })?;
        Ok(AgentClient::connect(stream))
    }

    async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, SshError>>,
    ) -> Result<T, SshError> {
        let late = || {
            let seconds = self.answer_max.as_secs_f32();
            Err(self.trouble(format!("does not answer within {seconds} s")))
        };
        let until = Instant::now() + self.answer_max;
        let room = timeout_at(until, self.room.acquire()).await;
        // What gives up asks nothing any more.
        if room.is_err() || Instant::now() >= until {
            return late();
        }
        timeout_at(until, answer).await.unwrap_or_else(|_| late())
    }

    fn misspoken(&self, error: &keys::Error) -> SshError {
        self.trouble(format!("does not answer as an SSH agent does: {error}"))
    }
}

impl Signer for SshAgent {
    fn name(&self) -> String {
        format!("the SSH agent at {}", self.socket.display())
    }

    fn keys(&self) -> BoxFuture<'_, Result<Vec<PublicKey>, SshError>> {
        Box::pin(self.within(async {
            let held = self.connect().await?.request_identities().await;
            let held = held.map_err(|error| self.misspoken(&error))?;
            let keys = held.into_iter().filter_map(|identity| match identity {
                AgentIdentity::PublicKey { key, .. } => Some(key),
                // The key of a certificate is an identity of its own.
                AgentIdentity::Certificate { .. } => None,
            });
            Ok(keys.collect())
        }))
    }

    fn sign<'a>(
        &'a self,
        key: &'a PublicKey,
        hash: Option<HashAlg>,
        login: Vec<u8>,
    ) -> BoxFuture<'a, Result<Vec<u8>, SshError>> {
        Box::pin(self.within(async move {
            let identity = AgentIdentity::from(key.clone());
            let signed = self
                .connect()
                .await?
                .sign_request(&identity, hash, login)
                .await;
            signed.map_err(|error| match error {
                keys::Error::AgentFailure => self.trouble(format!(
                    "does not sign with the key {}: it may not hold it any more (ssh-add -l), be locked (ssh-add -X), \
                     or ask a person each time (a key of ssh-add -c)",
                    print(key)
                )),
                error => self.misspoken(&error),
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    const ED25519: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB+ZCNGvFodBFWl6Hk/Lqt30NxpDrFoLFS0EkY0WKARy";
    const OTHER: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEr9JtD6o+XCc7Ppv4LpOFlsd7quaCzfyd2V+ys4h3FC";
    /// A key of a security key (FIDO), which asks for a touch each time.
    const TOUCHED: &str = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIB+ZCNGvFodBFWl6Hk/Lqt30NxpDrFoLFS0EkY0WKARyAAAABHNzaDo=";

    fn key(text: &str) -> PublicKey {
        PublicKey::from_openssh(text).expect("a key")
    }

    #[test]
    fn the_only_key_is_taken_and_one_of_several_by_its_fingerprint() {
        let both = [key(ED25519), key(OTHER)];
        let touched = [key(TOUCHED)];
        assert_eq!(only(&both[..1]), Ok(key(ED25519)));
        assert_eq!(only(&[key(TOUCHED), key(OTHER)]), Ok(key(OTHER)));
        assert_eq!(named(&both, &print(&both[1])), Ok(key(OTHER)));
        let why = |result: Result<PublicKey, String>| result.expect_err("none");
        let several = why(only(&both));
        for known in &both {
            assert!(several.contains(&print(known)), "{several}");
        }
        assert!(several.contains("--ssh-agent-key"), "{several}");
        assert!(why(only(&[])).contains("ssh-add -X"));
        assert!(why(only(&touched)).contains("sk-ssh-ed25519"));
        let absent = why(named(&both, "SHA256:absent"));
        assert!(absent.contains("SHA256:absent") && absent.contains(&print(&both[0])));
        assert!(why(named(&[], "SHA256:absent")).contains("ssh-add -X"));
        assert!(why(named(&touched, &print(&touched[0]))).contains("of the kind sk-ssh-ed25519"));
    }

    /// An agent that answers nothing: who gives up before its turn has asked it nothing.
    #[tokio::test]
    async fn an_agent_is_asked_for_a_few_signatures_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("agent");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let agent = SshAgent::at(&socket).answering_within(Duration::from_secs(1));
        let public = key(ED25519);
        let asked = (0..5 * AT_ONCE).map(|_| agent.sign(&public, None, b"login".to_vec()));
        let mut connections = Vec::new();
        let accepting = async {
            loop {
                connections.push(listener.accept().await.expect("a connection"));
            }
        };
        tokio::select! {
            (signed, _, _) = futures::future::select_all(asked) => {
                let why = signed.expect_err("it answers nothing").to_string();
                assert!(why.contains("does not answer within 1 s"), "{why}");
            }
            () = accepting => {}
        }
        assert_eq!(connections.len(), AT_ONCE);
    }

    #[test]
    fn a_list_of_many_keys_is_cut() {
        let many = vec![key(ED25519); LISTED_MAX + 3];
        let text = listed(&many);
        assert_eq!(text.matches("SHA256:").count(), LISTED_MAX);
        assert!(text.ends_with(" and 3 more"), "{text}");
    }
}
