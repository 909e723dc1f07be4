//! Fixture: a running watcher on the real cluster, and a record of its facts.

use super::{
    accounts::home,
    ask::{Ask, Kubelet},
    cluster::{MACHINE, NODE, PATIENCE, Site, WINDOWS_POOL},
};
use dormer_proto::{
    id::{Epoch, Incarnation},
    machine,
    message::{Inbound, Observation},
    pool::Desired,
    rollout,
    work::{Fact, FactMessage},
};
use dormer_testkit::Speaker;
use dormer_workers::{
    kubernetes::keys,
    pool::Installed,
    port::{EpochStart, Facts, PortError},
    watcher::{self, Options, SourceState, Status},
};
use kube::Client;
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// All published facts in order, and the last epoch.
#[derive(Debug, Default, Clone)]
pub(crate) struct PublishedMessages {
    pub(crate) messages: Vec<(String, Observation<Fact>)>,
    pub(crate) epoch: u64,
}

impl PublishedMessages {
    /// UIDs of the existing Machines, by the last fact about each.
    pub(crate) fn machines(&self) -> Vec<String> {
        let mut last = BTreeMap::new();
        for (run, observation) in &self.messages {
            if observation.object.kind == "Machine" && run.starts_with("machine/") {
                last.insert(observation.object.uid.clone(), observation.fact.is_some());
            }
        }
        last.into_iter()
            .filter_map(|(uid, present)| present.then_some(uid))
            .collect()
    }

    /// Whether a machine's run received something.
    pub(crate) fn machine(&self, uid: &str, so: impl Fn(&machine::Fact) -> bool) -> bool {
        let run = format!("machine/{uid}");
        self.messages.iter().any(|(to, observation)| {
            *to == run && matches!(&observation.fact, Some(Fact::Machine(fact)) if so(fact))
        })
    }

    /// Whether the rollout received something.
    fn rollout(&self, so: impl Fn(&rollout::Fact) -> bool) -> bool {
        let is = |observation: &Observation<Fact>| matches!(&observation.fact, Some(Fact::Rollout(f)) if so(f));
        self.messages.iter().any(|(_, observation)| is(observation))
    }
}

/// Where facts go in these tests.
pub(crate) struct Recorder(pub(crate) watch::Sender<PublishedMessages>);

impl Facts for Recorder {
    async fn begin(&self) -> Result<EpochStart, PortError> {
        self.0.send_modify(|published| published.epoch += 1);
        let published = self.0.borrow();
        let incarnation = Incarnation(7);
        let epoch = Epoch(published.epoch);
        Ok(EpochStart {
            incarnation,
            epoch,
            live: published.machines(),
        })
    }

    async fn publish(&self, messages: Vec<FactMessage>) -> Result<(), PortError> {
        self.0.send_modify(|published| {
            for message in messages {
                let Inbound::Observed(observation) = message.body else {
                    continue;
                };
                published
                    .messages
                    .push((message.run.as_str().to_owned(), observation));
            }
        });
        Ok(())
    }
}

/// One payload for every build.
struct Catalog(watch::Sender<u64>);

impl Installed for Catalog {
    fn desired(
        &self,
        profile: &str,
        payload: Option<&str>,
    ) -> Result<BTreeMap<String, Desired>, String> {
        match payload {
            Some(other) => Err(format!("there is no payload {other}")),
            None => {
                let desired = Desired {
                    version: format!("{profile}-1"),
                    payload: "1".into(),
                };
                Ok(BTreeMap::from([("*".to_owned(), desired)]))
            }
        }
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// A watcher at work. Dropping it ends it.
pub(crate) struct Watching {
    pub(crate) published: Arc<Recorder>,
    pub(crate) status: watch::Receiver<Status>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watching {
    /// A watcher of the test's Machines, on a new record.
    pub(crate) fn start(site: &Site, client: Client) -> Self {
        Self::with(
            client,
            options(site),
            Arc::new(Recorder(watch::Sender::default())),
        )
    }

    /// A watcher as wished, on a record that may be shared.
    pub(crate) fn with(client: Client, options: Options, published: Arc<Recorder>) -> Self {
        let (sender, status) = watch::channel(Status::default());
        let stop = CancellationToken::new();
        let catalog = Arc::new(Catalog(watch::Sender::new(0)));
        let work = watcher::run(
            client,
            published.clone(),
            catalog,
            options,
            sender,
            stop.clone(),
        );
        let task = tokio::spawn(async move { work.await.expect("the options are good") });
        Self {
            published,
            status,
            stop,
            task,
        }
    }

    /// Waits until the facts satisfy the condition; returns the trouble that the watcher reports meanwhile.
    pub(crate) async fn until(
        &self,
        what: &str,
        mut so: impl FnMut(&PublishedMessages) -> bool,
    ) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let mut published = self.published.0.subscribe();
        let mut status = self.status.clone();
        tokio::select! {
            result = timeout_at(deadline, published.wait_for(|published| so(published))) => {
                let never = || format!("never: {what}; {:?}", self.status.borrow());
                result.map_err(|_| never()).map(|result| drop(result.expect("it goes on")))
            }
            seen = status.wait_for(|status| trouble(status).is_some()) => {
                Err(trouble(&seen.expect("it goes on")).unwrap_or_default())
            }
        }
    }

    /// Waits until the facts satisfy the condition, regardless of trouble meanwhile.
    pub(crate) async fn until_published(
        &self,
        what: &str,
        so: impl FnMut(&PublishedMessages) -> bool,
    ) {
        let deadline = Instant::now() + PATIENCE;
        let mut published = self.published.0.subscribe();
        let result = timeout_at(deadline, published.wait_for(so)).await;
        let never = |_| panic!("never: {what}; {:?}", self.status.borrow());
        drop(result.unwrap_or_else(never).expect("it goes on"));
    }

    /// Waits until the watcher's own standing is so.
    pub(crate) async fn until_status(&self, what: &str, so: impl FnMut(&Status) -> bool) -> Status {
        let deadline = Instant::now() + PATIENCE;
        let mut status = self.status.clone();
        let result = timeout_at(deadline, status.wait_for(so)).await;
        result
            .unwrap_or_else(|_| panic!("never: {what}"))
            .expect("it goes on")
            .clone()
    }

    /// Ends it as a signal would.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.task).await.expect("it ends well");
    }
}

/// What went wrong last, or which source of machines is forbidden.
fn trouble(status: &Status) -> Option<String> {
    let forbidden = status
        .sources
        .iter()
        .find_map(|source| match &source.state {
            SourceState::Forbidden(why) => Some(why.clone()),
            SourceState::Watched | SourceState::Absent => None,
        });
    status.error.clone().or(forbidden)
}

/// The options of a watcher of the test's Machines.
pub(crate) fn options(site: &Site) -> Options {
    Options {
        machines: Some(site.machines.clone()),
        namespace: home(site),
        ..Options::default()
    }
}

/// Changes one thing of every kind that is watched, after the list, and waits until each is reported. The number is new
/// with each call. What the API server forbids comes back as the watcher says it.
pub(crate) async fn everything_is_observed(
    site: &Site,
    client: Client,
    token: &Speaker,
    number: u32,
) -> Result<(), String> {
    let mark = &format!("w{number}");
    let watching = Watching::start(site, client);
    watching
        .until("a list", |published| published.rollout(|_| true))
        .await?;
    let machine = site.joined(mark).await;
    watching
        .until("the Machine", |published| {
            published.machines().contains(&machine.uid)
        })
        .await?;
    let node = json!({"metadata": {"annotations": {keys::VERSION: mark}}});
    site.world.patch(NODE, "", &machine.name, node).await;
    let so = |fact: &machine::Fact| matches!(fact, machine::Fact::Node(node) if node.version.as_deref() == Some(mark));
    watching
        .until("the Node", |published| published.machine(&machine.uid, so))
        .await?;
    let name = json!({"metadata": {"annotations": {keys::NODE_NAME: machine.name}}});
    site.world
        .patch(MACHINE, &machine.namespace, &machine.name, name)
        .await;
    let ask = Ask::client(&machine.name);
    Kubelet::new(site)
        .ask(token, &machine.name, ask)
        .await
        .expect("it may ask");
    let so =
        |fact: &machine::Fact| matches!(fact, machine::Fact::Csr(csr) if csr.name == machine.name);
    watching
        .until("the request", |published| {
            published.machine(&machine.uid, so)
        })
        .await?;
    let host = host_of(site, mark).await;
    watching
        .until("the BYOH host", |published| {
            published.machines().contains(&host)
        })
        .await?;
    let set = set_of(site, mark).await;
    let so = |fact: &rollout::Fact| matches!(fact, rollout::Fact::Owner(owner) if owner.uid == set);
    watching
        .until("the set", |published| published.rollout(so))
        .await?;
    let soak = 100 + u64::from(number);
    settings(site, json!({"soak": format!("{soak}s")})).await;
    let so = |fact: &rollout::Fact| matches!(fact, rollout::Fact::Pool(pool) if pool.soak_ms == soak * 1_000);
    watching
        .until("the settings", |published| published.rollout(so))
        .await?;
    watching.stop().await;
    Ok(())
}

/// A WindowsHost at an address that no host has (RFC 5737); its UID.
async fn host_of(site: &Site, mark: &str) -> String {
    let made = site.world.create(json!({
        "apiVersion": "dormer.io/v1beta1", "kind": "WindowsHost",
        "metadata": {"name": mark, "namespace": home(site)},
        "spec": {"address": "192.0.2.1"},
    }));
    made.await["metadata"]["uid"]
        .as_str()
        .expect("a UID")
        .into()
}

/// A MachineSet of Windows machines without any; its UID.
async fn set_of(site: &Site, mark: &str) -> String {
    let labels = json!({keys::OS_ID: "Windows", "set": mark});
    let made = site.world.create(json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet",
        "metadata": {"name": mark, "namespace": site.machines},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"set": mark}},
            "template": {"metadata": {"labels": labels}, "spec": {"providerSpec": {}}}},
    }));
    made.await["metadata"]["uid"]
        .as_str()
        .expect("a UID")
        .into()
}

/// Changes the spec of the test's pool, which is made with it.
pub(crate) async fn settings(site: &Site, spec: serde_json::Value) {
    const NAME: &str = "windows";
    let home = home(site);
    if site.world.get(WINDOWS_POOL, &home, NAME).await.is_some() {
        return site
            .world
            .patch(WINDOWS_POOL, &home, NAME, json!({"spec": spec}))
            .await;
    }
    let metadata = json!({"name": NAME, "namespace": home});
    site.world
        .create(
            json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
            "metadata": metadata, "spec": spec}),
        )
        .await;
}
