//! The simulated cluster without hosts: sets, machines, drains and budgets, on a paused clock.

use std::time::Duration;

use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{DeleteOptions, Key, Meta, Part, User, WriteOptions, kinds, patch::PatchKind},
    world::{BareCloud, Happened},
};
use serde_json::json;

async fn world(config: WorldConfig) -> World {
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

fn windows(world: &World) -> Vec<String> {
    let machines = world.all(&kinds::MACHINE);
    let machines = machines
        .iter()
        .filter(|m| m.value["status"]["phase"] == "Running");
    let os = "machine.openshift.io/os-id";
    let windows = machines.filter(|m| m.value.label(os) == Some("Windows") && !m.value.deleting());
    windows.map(|m| m.value.name().to_owned()).collect()
}

fn set(world: &World) -> Key {
    let sets = world.all(&kinds::MACHINE_SET);
    let windows = sets.iter().find(|s| s.value.name().contains("windows"));
    Key::of(&windows.expect("a Windows set").value)
}

fn scale(world: &World, replicas: u32) {
    let patch = json!({"spec": {"replicas": replicas}});
    let user = User::admin();
    let key = set(world);
    let patched = world.api.patch(
        &user,
        &kinds::MACHINE_SET,
        &key,
        Part::Main,
        (PatchKind::Merge, &patch),
        &WriteOptions::default(),
    );
    patched.expect("it scales");
}

fn ready_pods(world: &World) -> usize {
    world
        .all(&kinds::POD)
        .iter()
        .filter(|p| p.value.is("Ready"))
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_world_comes_up_and_scales() {
    let world = world(WorldConfig::in_memory(5)).await;
    until("five run", || windows(&world).len() == 5).await;
    until("their pods run", || ready_pods(&world) == 5).await;
    let nodes = world.all(&kinds::NODE);
    assert_eq!(
        nodes.len(),
        5 + 3 + 1,
        "with the control plane and the infra node"
    );
    let labelled = nodes
        .iter()
        .filter(|n| n.value.label("node-role.kubernetes.io/worker").is_some());
    assert_eq!(labelled.count(), 5 + 1);
    scale(&world, 12);
    until("twelve run", || windows(&world).len() == 12).await;
    scale(&world, 2);
    until("two are left", || world.all(&kinds::NODE).len() == 2 + 4).await;
    until("the status agrees", || {
        let found = world
            .api
            .get(&kinds::MACHINE_SET, &set(&world))
            .expect("the set");
        found.value["status"]["readyReplicas"] == 2
    })
    .await;
    assert!(
        world.record.max_unavailable_observed() <= 2,
        "a smaller set is no outage"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_machine_is_drained_and_replaced_at_once() {
    let world = world(WorldConfig::in_memory(3)).await;
    until("three run", || {
        windows(&world).len() == 3 && ready_pods(&world) == 3
    })
    .await;
    let name = windows(&world)[0].clone();
    let key = Key::new("openshift-machine-api", name.clone());
    let user = User::new("alice", []);
    let options = DeleteOptions::default();
    world
        .api
        .delete(&user, &kinds::MACHINE, &key, &options)
        .expect("it is marked");
    until("a fourth is made while the first drains", || {
        let machines = world.all(&kinds::MACHINE);
        machines
            .iter()
            .filter(|m| m.value.name().contains("windows"))
            .count()
            == 4
    })
    .await;
    until("three run again", || windows(&world).len() == 3).await;
    until("the first is gone", || {
        world.api.get(&kinds::MACHINE, &key).is_err()
    })
    .await;
    until("all pods run", || ready_pods(&world) == 3).await;
    assert!(world.api.get(&kinds::NODE, &Key::new("", name)).is_err());
    let by_alice = world
        .record
        .any(|h| matches!(h, Happened::MachineDeleted { by, .. } if by == "alice"));
    assert!(by_alice);
    assert_eq!(world.record.max_unavailable_observed(), 1);
    until("its place is taken", || world.record.unavailable_now() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_pre_drain_hook_holds_and_a_budget_refuses() {
    let world = world(WorldConfig::in_memory(2)).await;
    until("two run", || {
        windows(&world).len() == 2 && ready_pods(&world) == 2
    })
    .await;
    let budget = Key::new("default", "win-webserver");
    until("the budget allows one", || {
        let budget = world.api.get(&kinds::PDB, &budget).expect("the budget");
        budget.value["status"]["disruptionsAllowed"] == 1
    })
    .await;
    let pods = world.all(&kinds::POD);
    let first = Key::of(&pods[0].value);
    let second = Key::of(&pods[1].value);
    world
        .api
        .evict(&User::admin(), &first, &json!({}))
        .expect("one may go");
    let refused = world
        .api
        .evict(&User::admin(), &second, &json!({}))
        .expect_err("not two");
    assert_eq!((refused.code, refused.reason), (429, "TooManyRequests"));
    assert_eq!(refused.details["causes"][0]["reason"], "DisruptionBudget");
    until("it is replaced", || ready_pods(&world) == 2).await;

    let machine = Key::new("openshift-machine-api", windows(&world)[0].clone());
    let hook =
        json!({"spec": {"lifecycleHooks": {"preDrain": [{"name": "d", "owner": "dormer"}]}}});
    let patch = |p: &serde_json::Value| {
        let user = User::admin();
        let how = (PatchKind::Merge, p);
        let options = WriteOptions::default();
        world
            .api
            .patch(&user, &kinds::MACHINE, &machine, Part::Main, how, &options)
    };
    patch(&hook).expect("a hook");
    let options = DeleteOptions::default();
    world
        .api
        .delete(&User::admin(), &kinds::MACHINE, &machine, &options)
        .expect("it is marked");
    until("the replacement runs", || windows(&world).len() == 2).await;
    let node = Key::new("", machine.name.clone());
    let held = world
        .api
        .get(&kinds::NODE, &node)
        .expect("the node still serves");
    assert!(held.value["spec"]["unschedulable"].is_null());
    patch(&json!({"spec": {"lifecycleHooks": {"preDrain": null}}})).expect("no hook");
    until("the node goes", || {
        world.api.get(&kinds::NODE, &node).is_err()
    })
    .await;
    assert_eq!(
        world.record.max_unavailable_observed(),
        0,
        "a surge costs nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_unknown_after_forty_seconds() {
    let world = world(WorldConfig::in_memory(1)).await;
    until("one runs", || windows(&world).len() == 1).await;
    let machine = Key::new("openshift-machine-api", windows(&world)[0].clone());
    let found = world
        .api
        .get(&kinds::MACHINE, &machine)
        .expect("the machine");
    let off = dormer_fleet::world::CloudAction::PowerOff;
    world.cloud.perform(found.value.uid(), off).await;
    let started = tokio::time::Instant::now();
    until("it is unknown", || {
        let node = world
            .api
            .get(&kinds::NODE, &Key::new("", machine.name.clone()));
        node.is_ok_and(|n| {
            n.value
                .condition("Ready")
                .is_some_and(|c| c["status"] == "Unknown")
        })
    })
    .await;
    let silent = started.elapsed().as_secs();
    assert!((30..=46).contains(&silent), "after {silent} s");
    assert_eq!(world.record.max_unavailable_observed(), 1);
}

#[tokio::test(start_paused = true)]
async fn faults_strike_whom_the_seed_chooses() {
    let faults = vec!["address-late=2".to_owned(), "budget-never".to_owned()];
    let config = WorldConfig {
        faults,
        pace: Pace::LIFE,
        ..WorldConfig::in_memory(6)
    };
    let world = world(config).await;
    until("all six run", || windows(&world).len() == 6).await;
    let struck = world.faults.struck();
    let late = struck
        .iter()
        .filter(|(f, _, _)| f.name() == "address-late")
        .count();
    assert_eq!(late, 2);
    let moved = world.all(&kinds::MACHINE);
    let moved = moved.iter().filter(|m| {
        let addresses = m.value["status"]["addresses"].as_array();
        let mut all = addresses.into_iter().flatten();
        all.any(|a| {
            a["address"]
                .as_str()
                .is_some_and(|a| a.starts_with("10.1."))
        })
    });
    assert_eq!(moved.count(), 2);
    until("a budget that never allows", || {
        let guard = world.all(&kinds::PDB);
        guard.iter().any(|b| {
            b.value.name().starts_with("budget-never") && b.value["status"]["desiredHealthy"] == 1
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn machines_that_others_delete_are_replaced() {
    let faults = [
        "same-name-new-uid@1",
        "deleted-while-configuring@2",
        "watch-gone@3",
    ];
    let faults = faults.map(str::to_owned).to_vec();
    let world = world(WorldConfig {
        faults,
        ..WorldConfig::in_memory(4)
    })
    .await;
    until("all struck", || world.faults.struck().len() == 3).await;
    until("three were deleted", || {
        world.record.tally().machines_deleted >= 3
    })
    .await;
    until("four run", || windows(&world).len() == 4).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_others_meddle_with() {
    let faults = [
        "uncordoned",
        "two-budgets",
        "finalizer-holds",
        "volume-attached",
    ];
    let faults = faults.map(str::to_owned).to_vec();
    let world = world(WorldConfig {
        faults,
        ..WorldConfig::in_memory(1)
    })
    .await;
    until("it runs", || windows(&world).len() == 1).await;
    let only = windows(&world)[0].clone();
    let guarded = Key::new("default", format!("two-budgets-{only}"));
    until("its pod runs", || {
        world
            .api
            .get(&kinds::POD, &guarded)
            .is_ok_and(|p| p.value.is("Ready"))
    })
    .await;
    let refused = world
        .api
        .evict(&User::admin(), &guarded, &json!({}))
        .expect_err("two budgets");
    assert_eq!(refused.code, 500);
    let cordon = json!({"spec": {"unschedulable": true}});
    let user = User::admin();
    let node = Key::new("", only);
    let how = (PatchKind::Merge, &cordon);
    let options = WriteOptions::default();
    world
        .api
        .patch(&user, &kinds::NODE, &node, Part::Main, how, &options)
        .expect("a cordon");
    until("a person uncordons", || {
        let node = world.api.get(&kinds::NODE, &node).expect("the node");
        node.value["spec"]["unschedulable"].is_null()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_machines_are_no_burden() {
    let world = world(WorldConfig::in_memory(1_000)).await;
    let began = std::time::Instant::now();
    let mut poll = tokio::time::interval(Duration::from_secs(10));
    while windows(&world).len() < 1_000 || ready_pods(&world) < 1_000 {
        poll.tick().await;
        let simulated = world.clock.elapsed();
        assert!(simulated < Duration::from_secs(600), "after {simulated:?}");
    }
    eprintln!(
        "1,000 machines: {:?} in {:?}",
        world.clock.elapsed(),
        began.elapsed()
    );
}
