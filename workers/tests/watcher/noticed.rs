//! Readings of the cluster's settings, and of what else changes the cluster: none without a change, and one soon after it.

use super::{
    actions::{patch, world},
    bench::{Bench, Recorder, config},
};
use dormer_fleet::{
    World,
    api::{Grant, Key, User, kinds},
};
use dormer_profile::cluster_config::ClusterSnapshot;
use dormer_proto::{pool::Desired, rollout, work::Fact};
use dormer_workers::{
    pool::Installed,
    watcher::{Options, SourceState},
};
use http::Request;
use kube::{
    Client,
    client::{Body, ClientBuilder},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::watch;
use tower::util::MapRequestLayer;

/// Parts of the addresses of what is read, and not only watched.
const READ: [&str; 12] = [
    "imagedigestmirrorsets",
    "imagetagmirrorsets",
    "imagecontentsourcepolicies",
    "kubeletconfigs",
    "machineconfigpools",
    "/networks/",
    "/proxies/",
    "/images/",
    "clusterversions",
    "machinehealthchecks",
    "/secrets/",
    "/windowspools/windows",
];
/// Another operator's lock, for which the watcher asks twelve times in a round of repeats.
const LOCK: &str = "windows-machine-config-operator-lock";

/// Versions that depend on nothing, and the readings that came.
struct Readings(watch::Sender<Vec<ClusterSnapshot>>, watch::Sender<u64>);

impl Readings {
    fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::default(), watch::Sender::new(0)))
    }

    /// The last reading, once it is so.
    async fn until(&self, what: &str, so: impl Fn(&ClusterSnapshot) -> bool) {
        let mut readings = self.0.subscribe();
        let last = readings.wait_for(|all| all.last().is_some_and(&so));
        let waited = tokio::time::timeout(Duration::from_secs(30), last).await;
        drop(waited.unwrap_or_else(|_| panic!("never: {what}")));
    }
}

impl Installed for Readings {
    fn desired(&self, _: &str, _: Option<&str>) -> Result<BTreeMap<String, Desired>, String> {
        Ok(BTreeMap::from([("*".to_owned(), Desired::default())]))
    }

    fn read_cluster(&self, snapshot: ClusterSnapshot) -> Vec<String> {
        self.0.send_modify(|all| all.push(snapshot));
        Vec::new()
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.1.subscribe()
    }
}

/// Addresses that a client asked for.
type Asked = Arc<Mutex<Vec<String>>>;

async fn client(world: &World, asked: &Asked) -> Client {
    let asked = Arc::clone(asked);
    let note = move |request: Request<Body>| {
        asked
            .lock()
            .expect("no panic")
            .push(request.uri().to_string());
        request
    };
    let builder = ClientBuilder::try_from(config(world).await).expect("a client");
    builder.with_layer(&MapRequestLayer::new(note)).build()
}

fn count(asked: &Asked, so: impl Fn(&str) -> bool) -> usize {
    let asked = asked.lock().expect("no panic");
    asked.iter().filter(|it| so(it)).count()
}

fn is_reading(address: &str) -> bool {
    READ.iter().any(|it| address.contains(it)) && !address.contains("watch=true")
}

fn options(repeat: u64) -> Options {
    Options {
        repeat: Duration::from_secs(repeat),
        ..Options::default()
    }
}

fn recorder() -> Arc<Recorder> {
    Arc::new(Recorder(watch::Sender::default()))
}

fn mirror_set(name: &str) -> Value {
    json!({"apiVersion": "config.openshift.io/v1", "kind": "ImageDigestMirrorSet", "metadata": {"name": name},
        "spec": {"imageDigestMirrors": [{"source": "quay.io", "mirrors": ["m.example/quay"]}]}})
}

fn mirrors(snapshot: &ClusterSnapshot) -> usize {
    snapshot.mirrors.as_ref().map_or(0, Vec::len)
}

/// A round of repeats is a minute outside of tests.
#[tokio::test]
async fn a_quiet_minute_asks_for_no_setting() {
    let world = world(1, &[]).await;
    let asked = Asked::default();
    let readings = Readings::new();
    let client = client(&world, &asked).await;
    let bench = Bench::of(client, Arc::clone(&readings), options(4), recorder());
    bench
        .until_status("they are watched", |status| {
            status.settings == Some(SourceState::Watched)
        })
        .await;
    let ticks = || count(&asked, |it| it.contains("/leases") && it.contains(LOCK));
    let minute = async || {
        let end = ticks() + 12;
        bench
            .until("a minute", |_| (ticks() >= end).then_some(()))
            .await;
    };
    // What was there when the watches began is read again.
    minute().await;
    let before = count(&asked, is_reading);
    assert!(before > 0, "it reads at all");
    minute().await;
    let news = count(&asked, is_reading) - before;
    let all = asked.lock().expect("no panic").clone();
    assert_eq!(news, 0, "{all:#?}");
    world.create(mirror_set("ours")).expect("made");
    readings.until("the mirror", |it| mirrors(it) == 1).await;
    bench.stop().await;
}

/// Without a change these watchers would read again after most of an hour.
#[tokio::test]
async fn a_change_is_read_at_once() {
    let world = world(1, &[]).await;
    let create = |object: Value| drop(world.create(object).expect("made"));
    let readings = Readings::new();
    let client = client(&world, &Asked::default()).await;
    let bench = Bench::of(client, Arc::clone(&readings), options(600), recorder());
    bench
        .until_status("they are watched", |status| {
            status.settings == Some(SourceState::Watched)
        })
        .await;
    create(mirror_set("ours"));
    readings.until("a mirror", |it| mirrors(it) == 1).await;
    let none = json!({"spec": {"imageDigestMirrors": []}});
    let key = Key::new("", "ours");
    patch(&world, &kinds::IMAGE_DIGEST_MIRROR_SET, &key, none);
    readings.until("no mirror", |it| mirrors(it) == 0).await;

    let layer = |text: &str| json!({"data": {"layer.yaml": format!("host: {{hostname: {text}}}")}});
    let mut map = layer("a");
    map["apiVersion"] = "v1".into();
    map["kind"] = "ConfigMap".into();
    map["metadata"] = json!({"name": "blue", "namespace": "dormer"});
    create(map);
    create(
        json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
        "metadata": {"name": "windows", "namespace": "dormer"}, "spec": {"layers": ["blue"]}}),
    );
    let named = |it: &ClusterSnapshot| it.layers.clone().is_ok_and(|it| it.len() == 1);
    readings.until("the pool names a layer", named).await;
    let first = readings.0.borrow().last().expect("one").layers.clone();
    let key = Key::new("dormer", "blue");
    patch(&world, &kinds::CONFIG_MAP, &key, layer("b"));
    readings
        .until("its text", |it| named(it) && it.layers != first)
        .await;

    let pool = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"}, "spec": {"paused": true}});
    create(pool);
    bench
        .until("upgrades wait for the pool of workers", |state| {
            let facts = state.facts("rollout/windows").into_values();
            let mut waits = facts.filter_map(|fact| match fact {
                Fact::Rollout(rollout::Fact::Pool(settings)) => settings.waits,
                _ => None,
            });
            waits.any(|it| it.contains("is paused")).then_some(())
        })
        .await;
    bench.stop().await;
}

/// As after an update of dormer without one of its rules.
#[tokio::test]
async fn a_setting_that_may_not_be_watched_is_read_often() {
    let world = world(1, &[]).await;
    let tokens = world.api.tokens();
    let watches = Grant::of("watch", "imagedigestmirrorsets");
    tokens.forbid(&User::admin().name, vec![watches]);
    let readings = Readings::new();
    let client = client(&world, &Asked::default()).await;
    let bench = Bench::of(client, Arc::clone(&readings), options(6), recorder());
    let status = bench
        .until_status("it is known", |status| status.settings.is_some())
        .await;
    let Some(SourceState::Forbidden(why)) = status.settings else {
        panic!("{status:?}");
    };
    let wanted = "dormer may not watch imagedigestmirrorsets.config.openshift.io";
    assert!(why.starts_with(wanted), "{why}");
    world.create(mirror_set("ours")).expect("made");
    readings.until("the mirror", |it| mirrors(it) == 1).await;
    bench.stop().await;
}
