//! Rotations while a move from WMCO lasts, judged by the simulated WMCO when it comes back.

use super::{
    cluster::KeyText,
    rotate,
    tests::{Fleet, MACHINES, UserData, new, refusal},
};
use dormer_fleet::{
    api::{Meta, Object, kinds},
    wmco::{KEY_ANNOTATION, Options, VERSION, VERSION_ANNOTATION, Wmco, process_key, rules::LOCK},
};
use dormer_profile::userdata::with_other_key;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Where WMCO was.
const OPERATOR: &str = "openshift-windows-machine-config-operator";

/// Gives the Machines Nodes, as WMCO configured them by `key`.
async fn of_wmco(fleet: &Fleet, key: &KeyText) {
    let hash = process_key(key.text()).expect("a hash");
    let machines = fleet.machines().list(&Default::default()).await;
    for machine in machines.expect("listed").items {
        let machine = serde_json::to_value(machine).expect("JSON");
        if machine["metadata"]["labels"]["machine.openshift.io/os-id"] != "Windows" {
            continue;
        }
        let marks = json!({KEY_ANNOTATION: hash, VERSION_ANNOTATION: VERSION,
            "windowsmachineconfig.openshift.io/username": "encrypted"});
        let made = fleet
            .world
            .create(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": machine["metadata"]["name"], "annotations": marks,
                "labels": {"kubernetes.io/os": "windows"}},
            "spec": {"providerID": machine["spec"]["providerID"]},
            "status": {"addresses": machine["status"]["addresses"],
                "conditions": [{"type": "Ready", "status": "True"}]}}));
        made.expect("a Node");
    }
    let runs = |machine: &Arc<Object>| machine.value["status"]["phase"] == "Running";
    let all = || {
        let all = fleet.world.all(&kinds::MACHINE);
        let mut windows = all
            .iter()
            .filter(|m| m.value.label("machine.openshift.io/os-id") == Some("Windows"));
        windows.all(runs)
    };
    fleet.until("Machines run", all).await;
}

/// What a WMCO that comes back does in an hour: Machines that it deletes, and Nodes that it configures again.
async fn comes_back(fleet: &Fleet) -> (u64, usize) {
    let world = &fleet.world;
    let before = world.record.tally().machines_deleted;
    let _wmco = Wmco::start(world, Options::default()).expect("WMCO");
    let mut cordoned = BTreeSet::new();
    let mut poll = tokio::time::interval(Duration::from_secs(5));
    for _ in 0..720 {
        poll.tick().await;
        for node in world.all(&kinds::NODE) {
            if node.value["spec"]["unschedulable"] == true {
                cordoned.insert(node.value.name().to_owned());
            }
        }
    }
    let deleted = world.record.tally().machines_deleted - before;
    (deleted, cordoned.len())
}

/// The user data of the Machines, as dormer's worker has it follow (`src/run/userdata.rs`).
async fn user_data_follows(fleet: &Fleet, old: &KeyText, new: &KeyText) {
    let secrets: Api<Secret> = Api::namespaced(fleet.site.client.clone(), MACHINES);
    let there = secrets.get("windows-user-data").await.expect("the Secret");
    let text = String::from_utf8(there.data.expect("data")["userData"].0.clone()).expect("text");
    let text = with_other_key(&text, &old.public, &new.public).expect("the old key");
    let data = Patch::Merge(json!({"stringData": {"userData": text}}));
    let params = PatchParams::default();
    let written = secrets.patch("windows-user-data", &params, &data).await;
    written.expect("written");
}

/// A fleet in the middle of a move, whose key was rotated. The account of WICD shows where WMCO was.
async fn moved_and_rotated() -> (Fleet, KeyText, KeyText) {
    let fleet = Fleet::of(2, UserData::Others).await;
    let old = fleet.old();
    let new = new();
    of_wmco(&fleet, &old).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": crate::migrate::WICD, "namespace": OPERATOR}});
    fleet.world.create(account).expect("an account");
    let report = fleet.rotated(&new).await;
    let said = report.text();
    let wanted = format!(
        "For the way back to WMCO: Secret {OPERATOR}/cloud-private-key has the new key, and 2 of 2 Nodes got its hash."
    );
    assert!(said.contains(&wanted), "{said}");
    user_data_follows(&fleet, &old, &new).await;
    (fleet, old, new)
}

#[tokio::test(start_paused = true)]
async fn a_wmco_that_comes_back_after_a_rotation_deletes_nothing_and_configures_nothing() {
    let (fleet, _, new) = moved_and_rotated().await;
    let user = "windowsmachineconfig.openshift.io/username";
    for node in fleet.world.all(&kinds::NODE) {
        if node.value.annotation(KEY_ANNOTATION).is_some() {
            assert_eq!(
                node.value.annotation(user),
                None,
                "no key reads it any more"
            );
        }
    }
    // The same command again has nothing to do.
    let again = fleet.rotated(&new).await.text();
    assert!(again.contains("0 of 2 Nodes got its hash"), "{again}");
    assert_eq!(comes_back(&fleet).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wmco_that_comes_back_to_the_hash_of_an_earlier_key_deletes_machines() {
    let (fleet, old, _) = moved_and_rotated().await;
    let stale = json!({"metadata": {"annotations": {KEY_ANNOTATION: process_key(old.text())}}});
    for node in fleet.world.all(&kinds::NODE) {
        if node.value.annotation(KEY_ANNOTATION).is_some() {
            let nodes: Api<Node> = Api::all(fleet.site.client.clone());
            let patch = Patch::Merge(&stale);
            let params = PatchParams::default();
            let done = nodes.patch(node.value.name(), &params, &patch).await;
            done.expect("patched");
        }
    }
    assert!(comes_back(&fleet).await.0 >= 2);
}

/// With dormer's own user data in place of WMCO's.
#[tokio::test(start_paused = true)]
async fn a_wmco_that_comes_back_to_other_user_data_deletes_machines() {
    let (fleet, _, new) = moved_and_rotated().await;
    fleet.write_user_data(&new).await;
    assert!(comes_back(&fleet).await.0 >= 2);
}

#[tokio::test(start_paused = true)]
async fn no_key_is_rotated_beside_a_wmco_that_runs() {
    let fleet = Fleet::of(2, UserData::Others).await;
    let old = fleet.old();
    let new = new();
    of_wmco(&fleet, &old).await;
    let before = fleet.files();
    let _wmco = Wmco::start(&fleet.world, Options::default()).expect("WMCO");
    let lock = || {
        !fleet
            .world
            .all(&kinds::CONFIG_MAP)
            .iter()
            .all(|map| map.value.name() != LOCK)
    };
    fleet.until("it leads", lock).await;
    let said = refusal(rotate(&fleet.site, &new, &[], true).await);
    assert!(
        said.contains(
            "for another key it deletes the Machines of its 2 nodes; nothing was changed"
        ),
        "{said}"
    );
    assert_eq!(fleet.files(), before);
    assert_eq!(fleet.in_secret().await, [old.public]);
}
