//! Cluster API's controllers in the simulated cluster, without hosts and on a paused clock. What they must do is in
//! kubernetes-sigs/cluster-api ae7ff047d; `tests/fleet/src/cluster/cluster_api` names the files.

use std::{collections::BTreeSet, time::Duration};

use dormer_fleet::{
    World, WorldConfig,
    api::{
        DeleteOptions, Key, Meta, Part, User, WriteOptions, kinds, kinds::Kind, patch::PatchKind,
    },
    cluster::cluster_api::{self, LINK, NO_DRAIN},
    manifest::demo::CLUSTERS,
    world::BareCloud,
};
use serde_json::{Value, json};

async fn world(machines: u32) -> World {
    let config = WorldConfig::plain(machines);
    let made = World::start_with(config, |context, api| BareCloud::new(api, context.pace)).await;
    made.expect("a world")
}

/// Waits until `holds`, for at most an hour of the paused clock.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut poll = tokio::time::interval(Duration::from_millis(500));
    for _ in 0..7_200 {
        poll.tick().await;
        if holds() {
            return;
        }
    }
    panic!("never: {what}");
}

/// Lets the controllers do what they would do in this time.
async fn ten_minutes() {
    let begun = tokio::time::Instant::now();
    until("ten minutes pass", || begun.elapsed().as_secs() >= 600).await;
}

/// Windows Machines, those that go included.
fn windows(world: &World) -> Vec<Value> {
    let machines = world.all(&kinds::CLUSTER_MACHINE);
    let windows = machines
        .iter()
        .filter(|it| cluster_api::is_windows(&it.value));
    windows.map(|it| it.value.clone()).collect()
}

fn running(world: &World) -> usize {
    let machines = windows(world);
    let running = machines
        .iter()
        .filter(|it| it["status"]["phase"] == "Running");
    running.count()
}

fn merge(world: &World, kind: &Kind, key: &Key, patch: &Value) {
    let user = User::admin();
    let options = WriteOptions::default();
    let how = (PatchKind::Merge, patch);
    let patched = world.api.patch(&user, kind, key, Part::Main, how, &options);
    patched.expect("patched");
}

fn delete(world: &World, machine: &Key) {
    let options = DeleteOptions::default();
    let user = User::admin();
    let deleted = world
        .api
        .delete(&user, &kinds::CLUSTER_MACHINE, machine, &options);
    deleted.expect("it is marked");
}

fn is_there(world: &World, machine: &Key) -> bool {
    world.api.get(&kinds::CLUSTER_MACHINE, machine).is_ok()
}

fn evicted(world: &World) -> u64 {
    world.record.tally().pods_evicted
}

async fn all_run(world: &World, machines: usize) {
    until("all run with a pod each", || {
        let pods = world.all(&kinds::POD);
        let ready = pods.iter().filter(|it| it.value.is("Ready")).count();
        running(world) == machines && ready == machines
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_names_its_node_by_the_name_alone_and_gives_it_labels_of_three_domains() {
    let world = world(1).await;
    all_run(&world, 1).await;
    let machine = windows(&world).remove(0);
    let name = machine["status"]["nodeRef"]["name"].as_str();
    assert_eq!(
        machine["status"]["nodeRef"],
        json!({"name": name}),
        "{machine}"
    );
    let key = Key::new("", name.expect("a name"));
    let node = world.api.get(&kinds::NODE, &key).expect("its Node");
    let node = &node.value;
    assert_eq!(node.annotation(LINK), Some(machine.name()));
    assert_eq!(
        node.annotation("cluster.x-k8s.io/cluster-namespace"),
        Some(CLUSTERS)
    );
    assert_eq!(node.label("node.cluster.x-k8s.io/pool"), Some("windows"));
    assert_eq!(node.label("cluster.x-k8s.io/cluster-name"), None);
    // A label that the Machine loses, its Node loses.
    let lost = json!({"metadata": {"labels": {"node.cluster.x-k8s.io/pool": null}}});
    merge(&world, &kinds::CLUSTER_MACHINE, &Key::of(&machine), &lost);
    until("the Node has lost it, too", || {
        let node = world.api.get(&kinds::NODE, &key).expect("its Node");
        node.value.label("node.cluster.x-k8s.io/pool").is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_machine_counts_until_it_is_gone_and_is_drained_unless_it_says_otherwise() {
    let world = world(2).await;
    all_run(&world, 2).await;
    let names: Vec<Key> = windows(&world).iter().map(Key::of).collect();
    let mut seen = BTreeSet::new();
    delete(&world, &names[0]);
    until("it is gone", || {
        seen.insert(windows(&world).len());
        !is_there(&world, &names[0])
    })
    .await;
    assert_eq!(seen.last(), Some(&2), "none is made beside it: {seen:?}");
    assert!(evicted(&world) >= 1, "drained");
    assert!(
        world
            .api
            .get(&kinds::NODE, &Key::new("", &names[0].name))
            .is_err()
    );
    all_run(&world, 2).await;
    let before = evicted(&world);
    let skip = json!({"metadata": {"annotations": {NO_DRAIN: ""}}});
    merge(&world, &kinds::CLUSTER_MACHINE, &names[1], &skip);
    delete(&world, &names[1]);
    until("it is gone", || !is_there(&world, &names[1])).await;
    assert_eq!(evicted(&world), before, "not drained");
    all_run(&world, 2).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_and_pauses_hold_a_deletion() {
    let world = world(1).await;
    all_run(&world, 1).await;
    let machine = Key::of(&windows(&world)[0]);
    let cluster = Key::new(CLUSTERS, "blue");
    let hook = |stage: &str| format!("{stage}.delete.hook.machine.cluster.x-k8s.io/ours");
    let hooks =
        json!({"metadata": {"annotations": {hook("pre-drain"): "", hook("pre-terminate"): ""}}});
    merge(&world, &kinds::CLUSTER_MACHINE, &machine, &hooks);
    let pause = |paused: bool| json!({"spec": {"paused": paused}});
    merge(&world, &kinds::CLUSTER_API_CLUSTER, &cluster, &pause(true));
    delete(&world, &machine);
    let state = || {
        let found = world.api.get(&kinds::CLUSTER_MACHINE, &machine);
        found.expect("it is held").value.clone()
    };
    until("it says that it is paused", || state().is("Paused")).await;
    ten_minutes().await;
    assert_eq!(state()["status"]["phase"], "Running");
    merge(&world, &kinds::CLUSTER_API_CLUSTER, &cluster, &pause(false));
    until("it goes", || state()["status"]["phase"] == "Deleting").await;
    ten_minutes().await;
    assert_eq!(evicted(&world), 0, "held before the drain");
    let drained = json!({"metadata": {"annotations": {hook("pre-drain"): null}}});
    merge(&world, &kinds::CLUSTER_MACHINE, &machine, &drained);
    until("it is drained", || evicted(&world) == 1).await;
    ten_minutes().await;
    let node = Key::new("", &machine.name);
    assert!(
        world.api.get(&kinds::NODE, &node).is_ok(),
        "held before its end"
    );
    let over = json!({"metadata": {"annotations": {hook("pre-terminate"): null}}});
    merge(&world, &kinds::CLUSTER_MACHINE, &machine, &over);
    until("it is gone", || !is_there(&world, &machine)).await;
}

/// Nothing converts between the versions here, so that each object keeps the fields of the version it was made in.
#[tokio::test(start_paused = true)]
async fn a_set_of_v1beta1_makes_machines_with_that_versions_fields() {
    let world = world(0).await;
    let found = world.all(&kinds::CLUSTER_MACHINE_SET);
    let mut set = found[0].value.clone();
    set["apiVersion"] = json!("cluster.x-k8s.io/v1beta1");
    set["metadata"] = json!({"name": "old", "namespace": CLUSTERS});
    set["spec"]["replicas"] = json!(3);
    set["spec"]["deletePolicy"] = json!("Newest");
    set["spec"]["selector"] = json!({"matchLabels": {"cluster.x-k8s.io/set-name": "old"}});
    world.create(set).expect("a set");
    until("three run", || running(&world) == 3).await;
    let all = windows(&world);
    for machine in &all {
        assert_eq!(machine["apiVersion"], "cluster.x-k8s.io/v1beta1");
        assert_eq!(machine["status"]["nodeRef"]["kind"], "Node", "{machine}");
        assert_eq!(machine["status"]["infrastructureReady"], true);
    }
    // The one that is marked goes first.
    let marked = Key::of(&all[1]);
    let mark = json!({"metadata": {"annotations": {cluster_api::DELETE_FIRST: ""}}});
    merge(&world, &kinds::CLUSTER_MACHINE_V1BETA1, &marked, &mark);
    let smaller = json!({"spec": {"replicas": 2}});
    let old = Key::new(CLUSTERS, "old");
    merge(&world, &kinds::CLUSTER_MACHINE_SET_V1BETA1, &old, &smaller);
    until("it is gone", || !is_there(&world, &marked)).await;
    until("two run", || {
        running(&world) == 2 && windows(&world).len() == 2
    })
    .await;
}
