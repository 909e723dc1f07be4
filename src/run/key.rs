//! What tasks on Windows hosts need: the SSH private key and the host program. The key is in a Secret, which is read after
//! each change, in a file, which is polled, or in an ssh-agent, which is asked at the same interval. During a rotation there
//! is also the previous key, for hosts that refuse the present one.

use crate::config::KeyLocation;
use dormer_proto::{machine::Outcome, message::Failure, work::Order};
use dormer_workers::{
    execute::{Execute, READY_MS_MAX},
    progress::Progress,
    ssh::{HeldKey, Key, SshAgent},
    watcher::SecretChanges,
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

/// Name of the key in its Secret, as in WMCO.
pub const SECRET_KEY: &str = "private-key.pem";
/// Name of the previous key there, during a rotation.
pub const PREVIOUS_KEY: &str = "previous-private-key.pem";
/// Failure code of tasks without a host program.
pub(crate) const NO_PROGRAM: &str = "NoHostProgram";
/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 64 << 10;
/// Failure code of tasks without a usable key.
pub(crate) const NO_KEY: &str = "NoPrivateKey";
/// Most attempts that wait for the key in this process. Further ones wait in the engine.
const HELD_MAX: usize = 64;
/// Delay before the engine issues those again, in milliseconds.
const ELSEWHERE_MS: u64 = 4 * 60_000;
/// Factor by which an unusable key is polled more often, because a person who repairs it waits for the effect.
const SOONER: u32 = 5;
/// Poll interval of a key that is in no watched Secret.
pub(crate) const POLL_EVERY: Duration = Duration::from_secs(15);
/// Longest time between two readings of a watched Secret.
pub(crate) const WATCHED_EVERY: Duration = Duration::from_secs(300);

/// Location of the key, with the means to read it.
#[derive(Clone)]
pub(crate) struct KeySource {
    /// Client of the cluster, for a key in a Secret.
    pub(crate) client: Client,
    /// Namespace of the Secret.
    pub(crate) namespace: String,
    /// File, Secret or agent.
    pub(crate) location: KeyLocation,
    /// Poll interval while nothing is watched.
    pub(crate) poll_every: Duration,
}

/// What is at the key's location.
#[derive(Clone, PartialEq, Eq)]
enum FoundKey {
    /// Texts of the present and the previous key.
    Texts {
        present: String,
        previous: Option<String>,
    },
    /// A key that an agent has.
    Held(HeldKey),
}

impl KeySource {
    /// Location in words.
    fn location_text(&self) -> String {
        match &self.location {
            KeyLocation::File(path) => format!("the file {}", path.display()),
            KeyLocation::Secret(name) => format!("the Secret {}/{name}", self.namespace),
            KeyLocation::Agent { socket, .. } => format!("the SSH agent at {}", socket.display()),
        }
    }

    /// Namespace and name of the Secret with the key; `None`: it is in a file or an agent.
    pub(crate) fn secret(&self) -> Option<(&str, &str)> {
        match &self.location {
            KeyLocation::Secret(name) => Some((self.namespace.as_str(), name.as_str())),
            KeyLocation::File(_) | KeyLocation::Agent { .. } => None,
        }
    }

    /// What is there, or one sentence about what is missing. The sentence never contains a text.
    async fn read(&self) -> Result<FoundKey, String> {
        let location = self.location_text();
        let (present, previous) = match &self.location {
            KeyLocation::Agent { socket, keys } => {
                let agent = Arc::new(SshAgent::at(socket));
                let held = HeldKey::choose(agent, keys).await;
                return held
                    .map(FoundKey::Held)
                    .map_err(|error| format!("there is no SSH private key: {error}"));
            }
            KeyLocation::File(path) => {
                let read = tokio::fs::read(path).await;
                let read = read.map_err(|error| format!("cannot read {location}: {error}"))?;
                (read, None)
            }
            KeyLocation::Secret(name) => {
                let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
                let found = secrets.get_opt(name).await;
                let found = found.map_err(|error| format!("cannot read {location}: {error}"))?;
                let absent = || {
                    format!(
                        "there is no SSH private key: {location} does not exist; create it with: \
                         kubectl -n {} create secret generic {name} \
                         --from-file={SECRET_KEY}=KEYFILE",
                        self.namespace
                    )
                };
                let mut data = found.ok_or_else(absent)?.data.unwrap_or_default();
                let present = data.remove(SECRET_KEY);
                let present = present
                    .ok_or_else(|| format!("{location} has no {SECRET_KEY}: put the key there"))?;
                (present.0, data.remove(PREVIOUS_KEY).map(|it| it.0))
            }
        };
        Ok(FoundKey::Texts {
            present: text_of(present, &location)?,
            previous: previous
                .map(|bytes| text_of(bytes, &format!("{PREVIOUS_KEY} in {location}")))
                .transpose()?,
        })
    }

    /// Key, or one sentence with the problem and its remedy. The sentence never contains the key's text.
    pub(crate) async fn key(&self) -> Result<Key, String> {
        self.parsed(self.read().await)
    }

    /// A previous key that cannot be used is logged: it must not keep the present one from its work.
    fn parsed(&self, found: Result<FoundKey, String>) -> Result<Key, String> {
        let location = self.location_text();
        let (present, previous) = match found? {
            FoundKey::Texts { present, previous } => (present, previous),
            FoundKey::Held(held) => return Ok(held.key),
        };
        let key =
            Key::read(&present).map_err(|error| format!("{error}; the key is in {location}"))?;
        let previous = previous.as_deref().map(Key::read);
        Ok(match previous {
            None => key,
            Some(Ok(previous)) => key.with_previous(previous),
            Some(Err(error)) => {
                tracing::warn!("{PREVIOUS_KEY} in {location} is not used: {error}");
                key
            }
        })
    }
}

fn text_of(bytes: Vec<u8>, location: &str) -> Result<String, String> {
    if bytes.len() > KEY_BYTES_MAX {
        return Err(format!(
            "{location} has {} bytes, but a key has at most {KEY_BYTES_MAX}",
            bytes.len()
        ));
    }
    String::from_utf8(bytes).map_err(|_| format!("{location} is not text: put the key there"))
}

/// Something without which no task can be done on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingPrerequisite {
    /// Code of the failure.
    pub(crate) code: &'static str,
    /// One sentence: the missing prerequisite and its remedy.
    pub(crate) why: String,
}

/// Executor built from the key, and rebuilt when the key changes. Without the key or another prerequisite its tasks
/// wait, and report the reason.
pub(crate) struct Keyed<H> {
    executor: watch::Receiver<Result<Arc<H>, MissingPrerequisite>>,
    following: JoinHandle<()>,
    /// Permits of attempts that wait here.
    held: Semaphore,
}

impl<H> Drop for Keyed<H> {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl<H: Execute> Keyed<H> {
    /// Executor that `make` builds from the key at `source`. It waits until the key exists. Waiting attempts take at
    /// most half of the worker's `slots`.
    pub(crate) async fn follow(
        source: KeySource,
        slots: usize,
        make: impl Fn(Key) -> Result<H, MissingPrerequisite> + Send + Sync + 'static,
    ) -> Self {
        let mut known = source.read().await;
        let (tell, executor) = watch::channel(made(&source, &known, &make));
        let following = tokio::spawn(async move {
            let secret = source.secret();
            let mut changes = secret.map(|secret| SecretChanges::of(&source.client, &[secret]));
            // Whether the last read failed.
            let mut failed = false;
            loop {
                let missing_prerequisite = tell.borrow().is_err();
                let sooner = if missing_prerequisite { SOONER } else { 1 };
                let often = source.poll_every / sooner;
                match &mut changes {
                    Some(changes) if missing_prerequisite || failed => {
                        changes.wait(often, often).await;
                    }
                    Some(changes) => changes.wait(often, WATCHED_EVERY).await,
                    None => sleep(often).await,
                }
                let now = source.read().await;
                // A read error does not discard the last key. Without its agent a key signs nothing, but one late answer
                // is no agent that is gone.
                let again = std::mem::replace(&mut failed, now.is_err());
                let kept = match known {
                    Ok(FoundKey::Texts { .. }) => now.is_err(),
                    Ok(FoundKey::Held(_)) => now.is_err() && !again,
                    Err(_) => false,
                };
                if now == known || kept {
                    continue;
                }
                if now.is_ok() {
                    tracing::info!("the private key has changed");
                }
                known = now;
                let _ = tell.send_replace(made(&source, &known, &make));
            }
        });
        Self {
            executor,
            following,
            held: Semaphore::new(HELD_MAX.min(slots / 2)),
        }
    }

    /// Calls `report` with the missing prerequisite, now and after each change, while this executor exists.
    pub(crate) fn reporting(
        &self,
        report: impl Fn(Option<String>) + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let mut executor = self.executor.clone();
        Box::pin(async move {
            loop {
                let missing = executor.borrow_and_update().as_ref().err().cloned();
                report(missing.map(|missing| missing.why));
                if executor.changed().await.is_err() {
                    return;
                }
            }
        })
    }

    /// Waits for a key, and reports the missing prerequisite meanwhile.
    async fn come(&self, progress: &Progress) {
        let mut executor = self.executor.clone();
        loop {
            match executor.borrow_and_update().as_ref() {
                Ok(_) => return,
                Err(missing) => progress.waits_for(&missing.why),
            }
            if executor.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn made<H>(
    source: &KeySource,
    found: &Result<FoundKey, String>,
    make: &impl Fn(Key) -> Result<H, MissingPrerequisite>,
) -> Result<Arc<H>, MissingPrerequisite> {
    if let Ok(FoundKey::Held(held)) = found
        && let Some(why) = &held.without_previous
    {
        tracing::warn!("the previous key is not used: {why}");
    }
    let key = source.parsed(found.clone());
    let key = key.map_err(|why| MissingPrerequisite { code: NO_KEY, why });
    let made = key.and_then(make);
    if let Err(MissingPrerequisite { why, .. }) = &made {
        tracing::warn!(why, "every machine waits for what its host needs");
    }
    made.map(Arc::new)
}

/// Failure of an attempt that lacks something: the order is returned.
pub(crate) fn missing_prerequisite(
    MissingPrerequisite { code, why }: MissingPrerequisite,
    after_ms: u64,
) -> Failure {
    let failure = Failure::transient(code, why);
    Failure {
        after_ms: Some(after_ms),
        uncounted: true,
        ..failure
    }
}

impl<H: Execute> Execute for Keyed<H> {
    async fn ready(
        &self,
        order: &Order,
        progress: &Progress,
        time_factor: f64,
    ) -> Result<(), Failure> {
        let executor = self.executor.borrow().clone();
        match (executor, self.held.try_acquire()) {
            (Ok(executor), _) => executor.ready(order, progress, time_factor).await,
            (Err(missing), Err(_)) => Err(missing_prerequisite(missing, ELSEWHERE_MS)),
            (Err(missing), Ok(_held)) => {
                let max = Duration::from_millis(READY_MS_MAX).div_f64(time_factor.max(0.001));
                let come = timeout(max, self.come(progress)).await;
                let still = || self.executor.borrow().as_ref().err().cloned();
                come.map_err(|_| missing_prerequisite(still().unwrap_or(missing), 0))
            }
        }
    }

    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        let executor = self.executor.borrow().clone();
        match executor {
            Ok(executor) => executor.execute(order, progress).await,
            Err(missing) => Err(missing_prerequisite(missing, 0)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use dormer_fleet::{World, WorldConfig};
    use dormer_proto::{
        id::{Attempt, Incarnation, Seq, Sum, TaskId, Timestamp},
        machine::{HostRef, Task},
        work::machine_run,
    };
    use kube::api::{Patch, PatchParams};
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::UnixListener,
    };

    const HOME: &str = "openshift-windows-machine-config-operator";

    /// Executor that does nothing.
    pub(crate) struct Idle;

    impl Execute for Idle {
        async fn execute(&self, _: &Order, _: &Progress) -> Result<Outcome, Failure> {
            Ok(Outcome::RebootAsked)
        }
    }

    pub(crate) fn order() -> Order {
        Order {
            task: TaskId {
                run: machine_run("u").expect("a run"),
                seq: Seq(1),
                ordinal: 0,
            },
            attempt: Attempt(1),
            incarnation: Incarnation(1),
            issued: Sum(1),
            episode: Seq(1),
            at: Timestamp(0),
            limit_ms: 1_000,
            body: Task::Probe {
                host: HostRef::default(),
            },
        }
    }

    /// Simulated world without machines, and a client for it.
    pub(crate) async fn world() -> (World, Client) {
        let world = World::start(WorldConfig::on_loopback(0, dormer_fleet::Pace::LIFE)).await;
        let world = world.expect("a world");
        let file = serde_json::from_value(world.kubeconfig()).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await;
        let client = Client::try_from(config.expect("a configuration")).expect("a client");
        (world, client)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_key_is_found_in_its_secret_or_named_as_missing() {
        let (_world, client) = world().await;
        let namespace = "openshift-windows-machine-config-operator".to_owned();
        let source = |name: &str| KeySource {
            client: client.clone(),
            namespace: namespace.clone(),
            location: KeyLocation::Secret(name.into()),
            poll_every: POLL_EVERY,
        };
        let keyed = Keyed::follow(source("cloud-private-key"), 8, |_| Ok(Idle)).await;
        keyed
            .execute(&order(), &Progress::default())
            .await
            .expect("an executor with a key");
        let keyed = Keyed::follow(source("no-such-key"), 8, |_| Ok(Idle)).await;
        let failure = keyed
            .execute(&order(), &Progress::default())
            .await
            .expect_err("no key");
        assert_eq!(
            (failure.code.as_str(), failure.retry),
            ("NoPrivateKey", true)
        );
        assert!(failure.message.contains("no-such-key"), "{failure:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_change_of_the_keys_secret_is_noticed_and_not_polled_for() {
        let (world, client) = world().await;
        let source = KeySource {
            client: client.clone(),
            namespace: HOME.into(),
            location: KeyLocation::Secret("cloud-private-key".into()),
            poll_every: Duration::from_secs(3_600),
        };
        let keyed = Keyed::follow(source, 8, |_| Ok(Idle)).await;
        let mut executor = keyed.executor.clone();
        assert!(executor.borrow_and_update().is_ok(), "it has the key");
        let secrets: Api<Secret> = Api::namespaced(client, HOME);
        let data = serde_json::json!({"stringData": {PREVIOUS_KEY: world.ssh_key.private_pem}});
        let params = PatchParams::default();
        let change = Patch::Merge(data);
        let patched = secrets.patch("cloud-private-key", &params, &change).await;
        patched.expect("patched");
        let noticed = tokio::time::timeout(Duration::from_secs(60), executor.changed()).await;
        let noticed = noticed.expect("in time");
        noticed.expect("the source of keys lives");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_previous_key_of_a_rotation_is_read_with_the_present_one() {
        let (world, client) = world().await;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), HOME);
        let source = KeySource {
            client,
            namespace: HOME.into(),
            location: KeyLocation::Secret("cloud-private-key".into()),
            poll_every: POLL_EVERY,
        };
        let pem = world.ssh_key.private_pem.as_str();
        let beside = async |text: &str| {
            let data = serde_json::json!({"stringData": {PREVIOUS_KEY: text}});
            let params = PatchParams::default();
            let change = Patch::Merge(data);
            let patched = secrets.patch("cloud-private-key", &params, &change).await;
            patched.expect("patched");
            source.key().await.expect("a key")
        };
        let shown = |key: Key| format!("{key:?}");
        assert_eq!(shown(source.key().await.expect("a key")), "Key");
        assert_eq!(shown(beside(pem).await), "Key, with a previous one");
        assert_eq!(
            shown(beside("no key at all").await),
            "Key",
            "the present one counts"
        );
    }

    /// An agent's list of one key (RFC 9987, SSH_AGENT_IDENTITIES_ANSWER).
    fn one_identity() -> Vec<u8> {
        let text = |bytes: &[u8]| {
            let length = u32::try_from(bytes.len()).expect("a short text");
            [&length.to_be_bytes(), bytes].concat()
        };
        let blob = [text(b"ssh-ed25519"), text(&[7; 32])].concat();
        let answer = [
            vec![12],
            1_u32.to_be_bytes().to_vec(),
            text(&blob),
            text(b""),
        ];
        text(&answer.concat())
    }

    /// Under load an agent may be late once: every task on a host would wait for it, and every session be lost.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_late_answer_of_the_agent_keeps_its_key_and_a_second_one_does_not() {
        let (_world, client) = world().await;
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("agent");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let agent = tokio::spawn(async move {
            for answers in [true, false, true, false, false] {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                count.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 5];
                stream.read_exact(&mut request).await.expect("a request");
                if answers {
                    let written = stream.write_all(&one_identity()).await;
                    written.expect("written");
                }
            }
            listener
        });
        let source = KeySource {
            client,
            namespace: String::new(),
            location: KeyLocation::Agent {
                socket,
                keys: Vec::new(),
            },
            poll_every: Duration::from_millis(20),
        };
        let keyed = Keyed::follow(source, 8, |_| Ok(Idle)).await;
        let mut executor = keyed.executor.clone();
        assert!(executor.borrow_and_update().is_ok(), "it has the key");
        let gone = executor.wait_for(|executor| executor.is_err());
        let gone = tokio::time::timeout(Duration::from_secs(90), gone).await;
        let gone = gone.expect("in time").expect("the source of keys lives");
        let code = gone.as_ref().map(drop).expect_err("no key").code;
        assert_eq!((code, asked.load(Ordering::SeqCst)), (NO_KEY, 5));
        drop(agent);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_key_that_comes_later_is_taken_and_none_is_ever_shown() {
        let (world, client) = world().await;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("key");
        std::fs::write(&file, "this is no key").expect("written");
        let source = KeySource {
            client,
            namespace: String::new(),
            location: KeyLocation::File(file.clone()),
            poll_every: Duration::from_millis(20),
        };
        let keyed = Keyed::follow(source, 8, |_| Ok(Idle)).await;
        let failure = keyed
            .execute(&order(), &Progress::default())
            .await
            .expect_err("no key");
        assert!(!failure.message.contains("this is no key"), "{failure:?}");
        std::fs::write(&file, &world.ssh_key.private_pem).expect("written");
        let mut executor = keyed.executor.clone();
        let come = executor.wait_for(|executor| executor.is_ok());
        tokio::time::timeout(Duration::from_secs(90), come)
            .await
            .expect("in time")
            .expect("the source of keys lives");
        keyed
            .execute(&order(), &Progress::default())
            .await
            .expect("an executor with a key");
    }
}
