//! Watcher after cut connections: where it continues, and how often it asks while the API server is away.

use super::{
    accounts::{apply, ours},
    cluster::{Kind, MACHINE, NODE, PATIENCE, Site, fragile_plane},
    watcher::turn,
    watching::{PublishedMessages, Recorder, Watching, options},
    wire::Wire,
};
use dormer_proto::machine::MachineRef;
use dormer_testkit::{ControlPlane, tier};
use dormer_workers::watcher::Options;
use kube::Client;
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

const CONFIG_MAP: Kind = ("", "v1", "ConfigMap");
/// A watch's length in these tests, in seconds. Its bookmark comes two seconds before the end.
const WATCH: u32 = 12;

macro_rules! fragile {
    () => {
        match fragile_plane() {
            Ok(plane) => plane,
            Err(skipped) => dormer_testkit::skip!(skipped),
        }
    };
}

/// The watcher's account over a wire.
async fn over(wire: &Wire, site: &Site, seconds: u32) -> Client {
    apply(site, |_, _| true).await;
    wire.client(site, &ours(site, "dormer-watcher").await, seconds)
        .await
}

/// A watcher that lists once and then only watches, as far as it is left in peace.
fn patient(site: &Site, client: Client) -> Watching {
    let hour = Duration::from_secs(3_600);
    let options = Options {
        relist: hour,
        repeat: hour,
        ..options(site)
    };
    Watching::with(
        client,
        options,
        Arc::new(Recorder(watch::Sender::default())),
    )
}

/// Makes many changes to a kind without a watch.
async fn churn(site: &Site) {
    let name = format!("churn-{}", site.name);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": site.name}, "data": {"n": "0"}});
    site.world.create(map).await;
    for n in 1..30 {
        site.world
            .patch(
                CONFIG_MAP,
                site.name,
                &name,
                json!({"data": {"n": n.to_string()}}),
            )
            .await;
    }
}

async fn goes(site: &Site, machine: &MachineRef) {
    let free = json!({"metadata": {"finalizers": null}});
    site.world
        .patch(MACHINE, &machine.namespace, &machine.name, free)
        .await;
    site.world
        .delete(MACHINE, &machine.namespace, &machine.name)
        .await;
}

async fn blocking(what: impl FnOnce(&ControlPlane) + Send + 'static, plane: &'static ControlPlane) {
    tokio::task::spawn_blocking(move || what(plane))
        .await
        .expect("it is done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_bookmark_and_a_cut_a_quiet_watch_goes_on_from_the_bookmark() {
    let plane = fragile!();
    let _turn = turn().await;
    let site = Site::new(plane, "bookmark").await;
    let wire = Wire::new(&site).await;
    let client = over(&wire, &site, WATCH).await;
    let stays = site.joined("win-1").await;
    let goes_away = site.joined("win-2").await;
    let watching = patient(&site, client);
    watching
        .until_published("both", |published| published.machines().len() == 2)
        .await;

    // From here on Machines are quiet, everything else is not, and then all that came before is forgotten.
    let free = json!({"metadata": {"finalizers": null}});
    site.world
        .patch(MACHINE, &goes_away.namespace, &goes_away.name, free)
        .await;
    let last = site.machine_now(&goes_away).await["metadata"]["resourceVersion"].clone();
    let last: u64 = last.as_str().expect("a version").parse().expect("a number");
    churn(&site).await;
    blocking(ControlPlane::compact, plane).await;
    let of_machines = |asked: &super::wire::Asked| asked.path.ends_with("/machines");
    let mut marks = wire.marks();
    let marked = timeout(
        PATIENCE,
        marks.wait_for(|marks| marks.get("Machine") > Some(&last)),
    );
    let mark = marked
        .await
        .expect("a bookmark in time")
        .expect("the wire stands")["Machine"];

    // Changes during a silent connection are reported once there is a new connection.
    wire.hold();
    let before = wire.asked().len();
    site.world
        .delete(MACHINE, &goes_away.namespace, &goes_away.name)
        .await;
    wire.cut();
    watching
        .until_published("one is left", |published| {
            published.machines() == [stays.uid.clone()]
        })
        .await;
    let mut earlier = wire.asked();
    let asked = earlier.split_off(before);
    let watches = |asked: &[super::wire::Asked]| {
        let ours = asked.iter().filter(|asked| of_machines(asked));
        ours.filter_map(|asked| asked.watch()).collect::<Vec<u64>>()
    };
    // The watch ends by itself two seconds after the bookmark. On a slow machine the next one may have been asked for
    // before the connection fell silent, and reach the server after the cut.
    let again = watches(&asked);
    let on_its_way = watches(&earlier).last().copied();
    assert!(
        again.first().copied().or(on_its_way) >= Some(mark),
        "from {again:?} or {on_its_way:?}, the bookmark was {mark}"
    );
    assert_eq!(
        asked.iter().filter(|asked| asked.list()).count(),
        0,
        "nothing is listed: {asked:?}"
    );
    assert_eq!(watching.published.0.borrow().epoch, 1);
    // Each kind is asked for a few times in these seconds, and only the cut and the end of a watch are reasons to ask.
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for asked in &asked {
        *times.entry(&asked.path).or_default() += 1;
    }
    assert!(times.values().all(|times| *times <= 5), "{times:?}");
    watching.stop().await;
}

/// Connections that a watcher may try in such a time: its rounds come after 0.2 s, then after twice the time and at
/// last every 30 s, and few connections belong to a round.
fn tries_max(absence: Duration) -> usize {
    8 * (8 + usize::try_from(absence.as_secs() / 30).expect("a small number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_api_server_is_away_nothing_is_invented_and_little_is_asked() {
    let plane = fragile!();
    let _turn = turn().await;
    let site = Site::new(plane, "absent").await;
    let wire = Wire::new(&site).await;
    let client = over(&wire, &site, 240).await;
    let first = site.joined("win-1").await;
    let second = site.joined("win-2").await;
    let watching = patient(&site, client);
    watching
        .until_published("both", |published| published.machines().len() == 2)
        .await;

    blocking(ControlPlane::kill_api, plane).await;
    watching
        .until_status("it is away", |status| status.error.is_some())
        .await;
    let messages = watching.published.0.borrow().messages.len();
    let tries = wire.connections();
    let mut published = watching.published.0.subscribe();
    // Five minutes in the long tier.
    let part = tier::long("api-absence");
    let away = Duration::from_secs(if part.is_some() { 300 } else { 6 });
    let more = published.wait_for(|published| published.messages.len() > messages);
    assert!(
        timeout(away, more).await.is_err(),
        "something is told of a cluster that nobody sees"
    );
    let tries = wire.connections() - tries;
    assert!(
        (1..=tries_max(away)).contains(&tries),
        "{tries} connections in {away:?}"
    );

    blocking(ControlPlane::restart_api, plane).await;
    goes(&site, &first).await;
    site.world
        .patch(
            NODE,
            "",
            &second.name,
            json!({"metadata": {"annotations": {"dormer.io/version": "later"}}}),
        )
        .await;
    let later = |published: &PublishedMessages| {
        published.machines() == [second.uid.clone()]
            && published.machine(&second.uid, |fact| {
                matches!(fact, dormer_proto::machine::Fact::Node(n) if n.version.as_deref() == Some("later"))
            })
    };
    watching.until_published("what happened since", later).await;
    watching
        .until_status("all is well", |status| status.error.is_none())
        .await;
    watching.stop().await;
    if let Some(part) = part {
        part.passed(&[("absence", format!("{} s", away.as_secs()))]);
    }
}
