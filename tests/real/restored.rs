//! Watcher on an etcd that was restored to an earlier revision, and on compacted history.

use super::{
    cluster::{MACHINE, NODE, PATIENCE, Site, fragile_plane},
    watcher::{ready, turn},
    watching::{PublishedMessages, Watching, options},
};
use dormer_engine_core::{Run, Transition};
use dormer_proto::{
    id::{Incarnation, Timestamp},
    machine::{Fact, MachineRef},
    message::{Inbound, InboxMessage},
    work::machine_run,
};
use dormer_testkit::ControlPlane;
use dormer_workflows::Dormer;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

macro_rules! fragile {
    () => {
        match fragile_plane() {
            Ok(plane) => plane,
            Err(skipped) => dormer_testkit::skip!(skipped),
        }
    };
}

/// A Machine goes, finalizer and all.
async fn goes(site: &Site, machine: &MachineRef) {
    let free = json!({"metadata": {"finalizers": null}});
    site.world
        .patch(MACHINE, &machine.namespace, &machine.name, free)
        .await;
    site.world
        .delete(MACHINE, &machine.namespace, &machine.name)
        .await;
}

/// Version of a Node in the last fact about it.
fn version(published: &PublishedMessages, machine: &MachineRef) -> Option<String> {
    let run = format!("machine/{}", machine.uid);
    let nodes = published.messages.iter().rev().filter(|(to, _)| *to == run);
    nodes
        .filter_map(|(_, seen)| seen.fact.as_ref())
        .find_map(|fact| match fact {
            dormer_proto::work::Fact::Machine(Fact::Node(node)) => Some(node.version.clone()),
            _ => None,
        })?
}

/// Whether the run of a machine is open, after everything that was published of it, as the engine takes it.
fn is_open(published: &PublishedMessages, machine: &MachineRef) -> bool {
    let id = machine_run(&machine.uid).expect("a run's id");
    let ours = Incarnation(1);
    let mut run: Option<Run<Dormer>> = None;
    for (at, (to, seen)) in published.messages.iter().enumerate() {
        if *to != id.to_string() {
            continue;
        }
        let at = Timestamp(at as u64);
        let message = InboxMessage {
            run: id.clone(),
            incarnation: None,
            body: Inbound::Observed(seen.clone()),
        };
        let transition = match run.take() {
            Some(run) => Ok(Transition::of(run, at)),
            None => Transition::begin(at, ours, &message),
        };
        let Ok(mut transition) = transition else {
            continue;
        };
        transition.offer(ours, message, None);
        run = Some(match transition.is_empty() {
            true => transition.abandon(),
            false => transition.finish("test", Vec::new()).expect("events").0.run,
        });
    }
    run.is_some_and(|run| run.closed.is_none())
}

async fn mark(site: &Site, machine: &MachineRef, version: &str) {
    let change = json!({"metadata": {"annotations": {"dormer.io/version": version}}});
    site.world.patch(NODE, "", &machine.name, change).await;
}

/// Blocks a thread, as the servers' ends and starts do.
async fn blocking(what: impl FnOnce(&ControlPlane) + Send + 'static, plane: &'static ControlPlane) {
    tokio::task::spawn_blocking(move || what(plane))
        .await
        .expect("it is done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_was_restored_to_an_earlier_revision_is_believed() {
    let plane = fragile!();
    let _turn = turn().await;
    let site = Site::new(plane, "restored").await;
    let client = ready(&site).await;
    let stays = site.joined("win-1").await;
    let comes_back = site.joined("win-2").await;
    mark(&site, &stays, "before").await;
    blocking(ControlPlane::back_up, plane).await;

    let watching = Watching::start(&site, client);
    let before =
        |published: &PublishedMessages| version(published, &stays).as_deref() == Some("before");
    watching
        .until_published("the beginning", |published| {
            published.machines().len() == 2 && before(published)
        })
        .await;
    goes(&site, &comes_back).await;
    let lost = site.joined("win-3").await;
    mark(&site, &stays, "after").await;
    let mut later = vec![stays.uid.clone(), lost.uid.clone()];
    later.sort();
    let after =
        |published: &PublishedMessages| version(published, &stays).as_deref() == Some("after");
    watching
        .until_published("what came after", |published| {
            published.machines() == later && after(published) && !is_open(published, &comes_back)
        })
        .await;

    blocking(ControlPlane::restore, plane).await;
    let mut earlier = vec![stays.uid.clone(), comes_back.uid.clone()];
    earlier.sort();
    let all = |published: &PublishedMessages| {
        let open = is_open(published, &stays) && is_open(published, &comes_back);
        published.machines() == earlier && before(published) && open
    };
    watching
        .until_published("the past is the present", all)
        .await;
    watching
        .until_status("all is well", |status| status.error.is_none())
        .await;
    // The revisions are lower than the ones reported before, and present changes are still reported.
    mark(&site, &stays, "again").await;
    goes(&site, &comes_back).await;
    watching
        .until_published("what happens now", |published| {
            version(published, &stays).as_deref() == Some("again")
                && published.machines() == [&*stays.uid]
        })
        .await;
    watching.stop().await;
}

/// Creates and deletes Machines without a watch: five minutes of a busy cluster.
const CAME_AND_WENT: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_compacted_in_a_watch_or_in_a_long_absence_is_not_missed() {
    let plane = fragile!();
    let _turn = turn().await;
    let site = Site::new(plane, "compact").await;
    let client = ready(&site).await;
    let first = site.joined("win-1").await;
    let second = site.joined("win-2").await;
    let watching = Watching::start(&site, client.clone());
    watching
        .until_published("both", |published| published.machines().len() == 2)
        .await;

    // During a watch: the watch continues, without another list.
    let epoch = watching.published.0.borrow().epoch;
    mark(&site, &first, "1").await;
    blocking(ControlPlane::compact, plane).await;
    mark(&site, &first, "2").await;
    let two = |published: &PublishedMessages| version(published, &first).as_deref() == Some("2");
    watching.until_published("what follows", two).await;
    assert_eq!(
        watching.published.0.borrow().epoch,
        epoch,
        "the watch went on"
    );

    // An absence: much happens, and its history is gone before anybody can ask for it.
    let record = watching.published.clone();
    watching.stop().await;
    for n in 0..CAME_AND_WENT {
        let machine = site.machine(&format!("short-{n}")).await;
        mark(&site, &first, &format!("{n}")).await;
        goes(&site, &machine).await;
    }
    goes(&site, &second).await;
    let third = site.joined("win-3").await;
    blocking(ControlPlane::compact, plane).await;
    blocking(ControlPlane::restart_api, plane).await;
    let messages = record.0.borrow().messages.len();
    let began = Instant::now();
    let watching = Watching::with(client, options(&site), record);
    let mut now = vec![first.uid.clone(), third.uid.clone()];
    now.sort();
    let last = (CAME_AND_WENT - 1).to_string();
    watching
        .until_published("how it stands", |published| {
            published.machines() == now && version(published, &first).as_deref() == Some(&last)
        })
        .await;
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    let published = watching.published.0.borrow().messages.len() - messages;
    assert!(
        published < CAME_AND_WENT,
        "{published} letters: what came and went is nobody's business"
    );
    // It continues from there, with bookmarks and without another list.
    let epoch = watching.published.0.borrow().epoch;
    mark(&site, &third, "new").await;
    let new = |published: &PublishedMessages| version(published, &third).as_deref() == Some("new");
    watching.until_published("what is new", new).await;
    assert_eq!(watching.published.0.borrow().epoch, epoch);
    assert!(began.elapsed() < Duration::from_secs(60));
    watching.stop().await;
}
