//! Watcher on the real API server, with its own account: its facts, its recovery after a gap, and its election.

use super::{
    accounts::{apply, home, ours},
    ask::bootstrap_token,
    cluster::{CRD, MACHINE, NODE, Site, fragile_plane, plane},
    watching::{Recorder, Watching, everything_is_observed, options, settings},
};
use dormer_workers::watcher::{Election, Options};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::sync::{Mutex, MutexGuard, watch};

/// Who may break the fragile control plane: one test at a time.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// A client of the watcher's account, with the rules as they are shipped.
pub(crate) async fn ready(site: &Site) -> kube::Client {
    apply(site, |_, _| true).await;
    site.client(&ours(site, "dormer-watcher").await).await
}

#[tokio::test]
async fn every_kind_is_listed_watched_and_published() {
    let site = Site::new(plane!(), "watch").await;
    let client = ready(&site).await;
    let token = bootstrap_token(&site, "watch0").await;
    everything_is_observed(&site, client, &token, 1)
        .await
        .expect("all is seen");
}

#[tokio::test]
async fn a_deletion_is_published_at_once_and_one_during_a_gap_by_the_next_list() {
    let site = Site::new(plane!(), "gap").await;
    let client = ready(&site).await;
    let first = site.joined("win-1").await;
    let second = site.joined("win-2").await;
    let watching = Watching::start(&site, client.clone());
    let both = |published: &super::watching::PublishedMessages| published.machines().len() == 2;
    watching.until("both", both).await.expect("both are told");
    let free = json!({"metadata": {"finalizers": null}});
    site.world
        .patch(MACHINE, &first.namespace, &first.name, free.clone())
        .await;
    site.world
        .delete(MACHINE, &first.namespace, &first.name)
        .await;
    let one = watching.until("one is left", |published| {
        published.machines() == [second.uid.clone()]
    });
    one.await.expect("it is told");
    assert_eq!(watching.published.0.borrow().epoch, 1, "a watch told it");
    let record = watching.published.clone();
    watching.stop().await;
    site.world
        .patch(MACHINE, &second.namespace, &second.name, free)
        .await;
    site.world
        .delete(MACHINE, &second.namespace, &second.name)
        .await;
    let watching = Watching::with(client, options(&site), record);
    watching
        .until("none is left", |published| published.machines().is_empty())
        .await
        .expect("it is told");
    watching.stop().await;
}

#[tokio::test]
async fn a_bad_setting_is_answered_by_an_event_and_a_good_one_is_taken() {
    let site = Site::new(plane!(), "settings").await;
    let client = ready(&site).await;
    settings(&site, json!({"payload": "9.9.9"})).await;
    let watching = Watching::start(&site, client);
    let status = watching
        .until_status("it is refused", |s| s.pool_refused.is_some())
        .await;
    assert!(
        status
            .pool_refused
            .expect("refused")
            .starts_with("spec.payload: there is no payload")
    );
    assert_eq!(bad_settings(&site).await.len(), 1);
    settings(&site, json!({"payload": "installed"})).await;
    watching
        .until_status("it is taken", |s| {
            s.pool_refused.is_none() && s.listed.is_some()
        })
        .await;
    watching.stop().await;
}

/// The Events about bad settings.
pub(crate) async fn bad_settings(site: &Site) -> Vec<Value> {
    let events = site
        .world
        .list(("events.k8s.io", "v1", "Event"), &home(site))
        .await;
    events
        .into_iter()
        .filter(|event| event["reason"] == "BadPoolSetting")
        .collect()
}

/// The options of one of several watchers.
pub(crate) fn candidate(site: &Site, identity: &str) -> Options {
    let election = Election {
        identity: identity.into(),
        duration: Duration::from_secs(3),
    };
    Options {
        election: Some(election),
        ..options(site)
    }
}

#[tokio::test]
async fn one_of_two_watchers_is_elected_and_the_other_takes_over() {
    let site = Site::new(plane!(), "election").await;
    let client = ready(&site).await;
    let record = Arc::new(Recorder(watch::Sender::default()));
    let first = Watching::with(client.clone(), candidate(&site, "a"), record.clone());
    first
        .until_status("a is elected", |status| {
            status.elected && status.listed.is_some()
        })
        .await;
    let second = Watching::with(client, candidate(&site, "b"), record);
    let status = second
        .until_status("b knows", |status| status.holder.is_some())
        .await;
    assert_eq!(
        (status.elected, status.holder.as_deref()),
        (false, Some("a"))
    );
    first.stop().await;
    second
        .until_status("b is elected", |s| s.elected && s.listed.is_some())
        .await;
    second.stop().await;
}

/// This test kills its API server, so it has one of its own.
#[tokio::test]
async fn an_api_server_that_was_away_forgets_old_watches_and_nothing_is_missed() {
    let plane = match fragile_plane() {
        Ok(plane) => plane,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let _turn = turn().await;
    let site = Site::new(plane, "away").await;
    let client = ready(&site).await;
    let first = site.joined("win-1").await;
    let second = site.joined("win-2").await;
    let watching = Watching::start(&site, client);
    watching
        .until("both", |published| published.machines().len() == 2)
        .await
        .expect("both are told");
    let old = site
        .world
        .get(CRD, "", "machines.machine.openshift.io")
        .await;
    let old = old.expect("it is there")["metadata"]["resourceVersion"].clone();
    plane.kill_api();
    let status = watching
        .until_status("it is away", |status| status.error.is_some())
        .await;
    assert!(
        status.error.expect("an error").contains("cannot"),
        "in a sentence"
    );
    plane.restart_api();
    let free = json!({"metadata": {"finalizers": null}});
    site.world
        .patch(MACHINE, &first.namespace, &first.name, free)
        .await;
    site.world
        .delete(MACHINE, &first.namespace, &first.name)
        .await;
    let mark = json!({"metadata": {"annotations": {"dormer.io/version": "after"}}});
    site.world.patch(NODE, "", &second.name, mark).await;
    // Watches may restart before one of them learns that it fell behind: only the end counts.
    let all = watching.until_published("both changes", |published| {
        let after = |fact: &dormer_proto::machine::Fact| {
            matches!(fact, dormer_proto::machine::Fact::Node(n) if n.version.as_deref() == Some("after"))
        };
        published.machines() == [second.uid.clone()] && published.machine(&second.uid, after)
    });
    all.await;
    watching
        .until_status("all is well", |status| status.error.is_none())
        .await;
    assert!(watching.published.0.borrow().epoch > 1, "it listed again");
    watching.stop().await;
    expires(&site, old.as_str().expect("a version")).await;
}

/// A watch from before the API server's start is answered as kube sees it: an error in the stream, with the code 410.
async fn expires(site: &Site, from: &str) {
    let machines = GroupVersionKind::gvk("machine.openshift.io", "v1beta1", "Machine");
    let resource = ApiResource::from_gvk(&machines);
    let api: Api<DynamicObject> = Api::all_with(site.world.admin.clone(), &resource);
    let stream = api.watch(&WatchParams::default(), from).await;
    let said = match stream {
        Err(kube::Error::Api(status)) => status,
        Err(other) => panic!("no answer: {other}"),
        Ok(stream) => {
            let first = futures::TryStreamExt::try_next(&mut pin!(stream)).await;
            let Ok(Some(WatchEvent::Error(status))) = first else {
                panic!("{first:?}")
            };
            status
        }
    };
    assert_eq!(
        (said.code, said.reason.as_str()),
        (410, "Expired"),
        "{said:?}"
    );
}
