//! Fixture: a running watcher on a simulated world, and a record of its facts.

use dormer_fleet::World;
use dormer_proto::{
    id::{Epoch, Incarnation},
    message::{Inbound, ObjectRef, Observation, Version},
    pool::Desired,
    work::{Fact, FactMessage},
};
use dormer_workers::{
    pool::Installed,
    port::{EpochStart, Facts, PortError},
    watcher::{self, Options, Status},
};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// What runs would know, by the fences of the engine: a newer epoch wins, within one the larger resourceVersion.
#[derive(Debug, Default, Clone)]
pub(crate) struct KnownFacts {
    pub(crate) runs: BTreeMap<String, BTreeMap<ObjectRef, (Version, Option<Fact>)>>,
    /// Every message, in order.
    pub(crate) messages: Vec<(String, Observation<Fact>)>,
    /// The last epoch begun.
    pub(crate) epoch: u64,
    /// How often publishing is to fail from now on.
    pub(crate) fail: u32,
}

impl KnownFacts {
    /// UIDs of the machines that have a run.
    pub(crate) fn machines(&self) -> Vec<String> {
        let runs = self
            .runs
            .iter()
            .filter(|(run, _)| run.starts_with("machine/"));
        let open = runs.filter(|(run, about)| {
            let uid = run.trim_start_matches("machine/");
            about
                .iter()
                .any(|(o, (_, fact))| o.kind == "Machine" && o.uid == uid && fact.is_some())
        });
        open.map(|(run, _)| run.trim_start_matches("machine/").to_owned())
            .collect()
    }

    /// What a run knows now.
    pub(crate) fn facts(&self, run: &str) -> BTreeMap<ObjectRef, Fact> {
        let about = self.runs.get(run).cloned().unwrap_or_default();
        about
            .into_iter()
            .filter_map(|(object, (_, fact))| Some((object, fact?)))
            .collect()
    }

    fn take(&mut self, message: FactMessage) {
        let Inbound::Observed(state) = message.body else {
            panic!("the watcher only observes")
        };
        let run = message.run.as_str().to_owned();
        self.messages.push((run.clone(), state.clone()));
        let begins = state.may_start && state.fact.is_some();
        if !begins && !self.runs.contains_key(&run) {
            return;
        }
        let about = self.runs.entry(run).or_default();
        let newer = about
            .get(&state.object)
            .is_some_and(|(version, _)| *version > state.version);
        if !newer {
            about.insert(state.object, (state.version, state.fact));
        }
    }
}

/// The run of a machine.
pub(crate) fn run_of(uid: &str) -> String {
    format!("machine/{uid}")
}

/// Where facts go in tests.
pub(crate) struct Recorder(pub(crate) watch::Sender<KnownFacts>);

impl Facts for Recorder {
    async fn begin(&self) -> Result<EpochStart, PortError> {
        self.0.send_modify(|known| known.epoch += 1);
        let known = self.0.borrow();
        let incarnation = Incarnation(7);
        let epoch = Epoch(known.epoch);
        Ok(EpochStart {
            incarnation,
            epoch,
            live: known.machines(),
        })
    }

    async fn publish(&self, messages: Vec<FactMessage>) -> Result<(), PortError> {
        let mut failed = false;
        self.0.send_modify(|known| {
            failed = known.fail > 0;
            known.fail = known.fail.saturating_sub(1);
            if !failed {
                messages.into_iter().for_each(|message| known.take(message));
            }
        });
        if failed {
            Err(PortError("it is away".into()))
        } else {
            Ok(())
        }
    }
}

/// One payload, which can be replaced.
pub(crate) struct Pool(Mutex<String>, watch::Sender<u64>);

impl Pool {
    /// With the payload `p1`.
    pub(crate) fn newest() -> Arc<Self> {
        Arc::new(Self(Mutex::new("p1".into()), watch::Sender::new(0)))
    }

    /// Installs another one.
    pub(crate) fn install(&self, payload: &str) {
        *self.0.lock().expect("unpoisoned") = payload.to_owned();
        self.1.send_modify(|n| *n += 1);
    }
}

impl Installed for Pool {
    fn desired(
        &self,
        profile: &str,
        payload: Option<&str>,
    ) -> Result<BTreeMap<String, Desired>, String> {
        let newest = self.0.lock().expect("unpoisoned").clone();
        if let Some(other) = payload.filter(|payload| *payload != newest) {
            return Err(format!("there is no payload {other}"));
        }
        let version = format!("{profile}-{newest}");
        Ok(BTreeMap::from([(
            "*".to_owned(),
            Desired {
                version,
                payload: newest,
            },
        )]))
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.1.subscribe()
    }
}

/// A client of the world's API server, as its administrator.
pub(crate) async fn client(world: &World) -> Client {
    Client::try_from(config(world).await).expect("a client")
}

/// Its configuration.
pub(crate) async fn config(world: &World) -> Config {
    let parsed = Kubeconfig::from_yaml(&world.kubeconfig().to_string()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(parsed, &options)
        .await
        .expect("a config");
    config.default_retry = false;
    config
}

/// A watcher at work.
pub(crate) struct Bench {
    /// What runs know.
    pub(crate) known: Arc<Recorder>,
    /// How the watcher fares.
    pub(crate) status: watch::Receiver<Status>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Bench {
    /// A watcher with a repeat every six seconds.
    pub(crate) async fn start(world: &World, pool: Arc<Pool>) -> Self {
        let options = Options {
            repeat: Duration::from_secs(6),
            ..Options::default()
        };
        Self::with(
            world,
            pool,
            options,
            Arc::new(Recorder(watch::Sender::default())),
        )
        .await
    }

    /// A watcher as wished, on a record that may be shared.
    pub(crate) async fn with(
        world: &World,
        pool: Arc<Pool>,
        options: Options,
        known: Arc<Recorder>,
    ) -> Self {
        Self::of(client(world).await, pool, options, known)
    }

    /// A watcher with this client and these versions.
    pub(crate) fn of(
        client: Client,
        pool: Arc<impl Installed>,
        options: Options,
        known: Arc<Recorder>,
    ) -> Self {
        let stop = CancellationToken::new();
        let (sender, status) = watch::channel(Status::default());
        let work = watcher::run(client, known.clone(), pool, options, sender, stop.clone());
        let task = tokio::spawn(async move { work.await.expect("the options are good") });
        Self {
            known,
            status,
            stop,
            task,
        }
    }

    /// Waits until what is known answers, for at most half a minute.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut read: impl FnMut(&KnownFacts) -> Option<T>,
    ) -> T {
        let mut known = self.known.0.subscribe();
        let begun = Instant::now();
        loop {
            if let Some(answer) = read(&known.borrow_and_update()) {
                return answer;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "never: {what}; status {:?}",
                self.status.borrow()
            );
            // A condition may also be about the world, which sends no notice when it changes.
            let _ = tokio::time::timeout(Duration::from_millis(100), known.changed()).await;
        }
    }

    /// Waits until the watcher's status is so.
    pub(crate) async fn until_status(&self, what: &str, so: impl FnMut(&Status) -> bool) -> Status {
        let mut status = self.status.clone();
        let waited = tokio::time::timeout(Duration::from_secs(30), status.wait_for(so)).await;
        waited
            .unwrap_or_else(|_| panic!("never: {what}"))
            .expect("it goes on")
            .clone()
    }

    /// Ends it as SIGKILL would.
    pub(crate) async fn abort(self) {
        self.task.abort();
        assert!(self.task.await.is_err_and(|error| error.is_cancelled()));
    }

    /// Ends it as a signal would.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("it ends well");
    }
}
