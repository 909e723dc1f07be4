//! The private key for Windows hosts: read from its file or Secret, and looked at again while dormer runs.

use crate::config::Key as Place;
use dormer_proto::{machine::Outcome, message::Failure, work::Order};
use dormer_workers::{execute::Execute, progress::Progress, ssh::Key};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinHandle, time::sleep};

/// The key's name in its Secret, as WMCO has it (wmco.md §2.3).
const SECRET_KEY: &str = "private-key.pem";
/// Longest key that is read, in bytes.
const KEY_BYTES_MAX: usize = 64 << 10;
/// How often the key is looked at again.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Where the key is, with what is needed to read it.
#[derive(Clone)]
pub(crate) struct Source {
    /// The cluster, where the key is in a Secret.
    pub(crate) client: Client,
    /// The Secret's namespace.
    pub(crate) namespace: String,
    /// Which file or Secret.
    pub(crate) place: Place,
    /// How often it is looked at again.
    pub(crate) look_every: Duration,
}

impl Source {
    /// The key's text, or one sentence about what is missing. The text is never part of that sentence.
    pub(crate) async fn read(&self) -> Result<String, String> {
        let (place, bytes) = match &self.place {
            Place::File(path) => {
                let place = format!("the file {}", path.display());
                let read = tokio::fs::read(path).await;
                let bytes = read.map_err(|error| format!("cannot read {place}: {error}"))?;
                (place, bytes)
            }
            Place::Secret(name) => {
                let place = format!("the Secret {}/{name}", self.namespace);
                let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
                let found = secrets.get_opt(name).await;
                let found = found.map_err(|error| format!("cannot read {place}: {error}"))?;
                let data = found.ok_or(format!("there is no {place}"))?.data.unwrap_or_default();
                let bytes = data.into_iter().find(|(key, _)| key == SECRET_KEY);
                (place.clone(), bytes.ok_or(format!("{place} has no {SECRET_KEY}"))?.1.0)
            }
        };
        if bytes.len() > KEY_BYTES_MAX {
            return Err(format!("{place} has {} bytes; at most {KEY_BYTES_MAX}", bytes.len()));
        }
        String::from_utf8(bytes).map_err(|_| format!("{place} is no text"))
    }
}

/// Hands that are made from the key, and made anew when it changes. Without a key their tasks fail, and say why.
pub(crate) struct Keyed<H> {
    hands: watch::Receiver<Result<Arc<H>, String>>,
    following: JoinHandle<()>,
}

impl<H> Drop for Keyed<H> {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl<H: Execute> Keyed<H> {
    /// Hands made by `make` from the key at `source`. A key that is not there yet is waited for.
    pub(crate) async fn follow(
        source: Source,
        make: impl Fn(Key) -> H + Send + Sync + 'static,
    ) -> Self {
        let mut known = source.read().await;
        let (tell, hands) = watch::channel(made(&known, &make));
        let following = tokio::spawn(async move {
            loop {
                sleep(source.look_every).await;
                let now = source.read().await;
                // A key that cannot be read for a while is still the key.
                if now == known || (now.is_err() && known.is_ok()) {
                    continue;
                }
                known = now;
                tracing::info!("the private key has changed");
                let _ = tell.send_replace(made(&known, &make));
            }
        });
        Self { hands, following }
    }
}

fn made<H>(text: &Result<String, String>, make: &impl Fn(Key) -> H) -> Result<Arc<H>, String> {
    let key = text.clone().and_then(|text| Key::read(&text).map_err(|error| error.to_string()));
    if let Err(why) = &key {
        tracing::warn!(why, "no private key for Windows hosts");
    }
    key.map(|key| Arc::new(make(key)))
}

impl<H: Execute> Execute for Keyed<H> {
    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        let hands = self.hands.borrow().clone();
        match hands {
            Ok(hands) => hands.execute(order, progress).await,
            Err(why) => Err(Failure::transient("NoPrivateKey", why)),
        }
    }
}

#[cfg(all(test, feature = "demo"))]
pub(crate) mod tests {
    use super::*;
    use dormer_fleet::{World, WorldConfig};
    use dormer_proto::{
        id::{Attempt, Incarnation, Seq, Sum, TaskId, Timestamp},
        machine::{HostRef, Task},
        work::machine_run,
    };
    use std::time::Duration;

    /// Hands that do nothing, but exist.
    struct Idle;

    impl Execute for Idle {
        async fn execute(&self, _: &Order, _: &Progress) -> Result<Outcome, Failure> {
            Ok(Outcome::RebootAsked)
        }
    }

    fn order() -> Order {
        Order {
            task: TaskId { run: machine_run("u").expect("a run"), seq: Seq(1), ordinal: 0 },
            attempt: Attempt(1),
            incarnation: Incarnation(1),
            issued: Sum(1),
            episode: Seq(1),
            at: Timestamp(0),
            limit_ms: 1_000,
            body: Task::Probe { host: HostRef::default() },
        }
    }

    /// A world without machines, and a way to it.
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
        let source = |name: &str| Source {
            client: client.clone(),
            namespace: namespace.clone(),
            place: Place::Secret(name.into()),
            look_every: LOOK_EVERY,
        };
        let keyed = Keyed::follow(source("cloud-private-key"), |_| Idle).await;
        keyed.execute(&order(), &Progress::default()).await.expect("hands with a key");
        let keyed = Keyed::follow(source("no-such-key"), |_| Idle).await;
        let failure = keyed.execute(&order(), &Progress::default()).await.expect_err("no key");
        assert_eq!((failure.code.as_str(), failure.retry), ("NoPrivateKey", true));
        assert!(failure.message.contains("no-such-key"), "{failure:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_key_that_comes_later_is_taken_and_none_is_ever_shown() {
        let (world, client) = world().await;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("key");
        std::fs::write(&file, "this is no key").expect("written");
        let source = Source {
            client,
            namespace: String::new(),
            place: Place::File(file.clone()),
            look_every: Duration::from_millis(20),
        };
        let keyed = Keyed::follow(source, |_| Idle).await;
        let failure = keyed.execute(&order(), &Progress::default()).await.expect_err("no key");
        assert!(!failure.message.contains("this is no key"), "{failure:?}");
        std::fs::write(&file, &world.ssh_key.private_pem).expect("written");
        let mut hands = keyed.hands.clone();
        let come = hands.wait_for(|hands| hands.is_ok());
        tokio::time::timeout(Duration::from_secs(90), come).await.expect("in time").expect("hands");
        keyed.execute(&order(), &Progress::default()).await.expect("hands with a key");
    }
}
