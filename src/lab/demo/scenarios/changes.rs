//! Change classes: a kubelet's flag restarts services, another containerd drains, and neither affects more than one
//! node at once.

use super::DemoScenario;
use crate::payload::payload;
use bytes::Bytes;
use dormer_profile::sha256_hex;
use dormer_workers::payload::Payload;
use std::collections::BTreeMap;

/// Layer that changes the kubelet's environment.
const FLAG: &str = "host: {services: {kubelet: {environment: {TEAM: blue}}}}";

/// The first payload under its own version, with another build of containerd.
async fn rebuilt() -> Payload {
    let first = payload(0);
    let mut manifest = first.manifest.clone();
    let mut files = BTreeMap::new();
    for file in &mut manifest.files {
        let mut bytes = Vec::new();
        let mut from = first.open(&file.name).await.expect("a file");
        tokio::io::copy(&mut from, &mut bytes).await.expect("read");
        if file.name == "containerd.exe" {
            bytes.extend_from_slice(b"another build");
            (file.sha256, file.size) = (sha256_hex(&bytes), bytes.len() as u64);
        }
        files.insert(file.name.clone(), Bytes::from(bytes));
    }
    Payload::in_memory(manifest, files)
}

/// Layer that changes the profile, without an effect on the machines of this world.
const ELSEWHERE: &str = "host: {environment: {NEVER: {value: here, when: {platform: [nutanix]}}}}";

/// Effect of an update of dormer: each node's version name changes, and its configuration does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_version_of_the_same_is_compared_and_marked_and_drains_nobody() {
    let mut scenario = DemoScenario::all_joined(3).await;
    let before = scenario.environment.record().tally();
    scenario.environment.lay(ELSEWHERE);
    assert_ne!(
        scenario.environment.version(0),
        scenario.environment.version(1)
    );
    scenario.until_all_serve(1).await;
    let after = scenario.environment.record().tally();
    let disturbed = |tally: &dormer_fleet::world::Tally| {
        [
            tally.pods_evicted,
            tally.pods_deleted,
            tally.machines_deleted,
            tally.kubelet_restarts,
            tally.converges_with_change,
        ]
    };
    assert_eq!(disturbed(&after), disturbed(&before));
    let token = scenario.rollout().await.map(|view| view.token.0);
    assert_eq!(token, Some(0), "nobody had the lease");
    scenario.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flag_of_the_kubelet_rolls_without_a_drain_and_another_containerd_drains() {
    let mut scenario = DemoScenario::all_joined(2).await;
    let before = scenario.environment.record().tally();
    assert_eq!(
        scenario.rollout().await.map(|view| view.token.0),
        Some(0),
        "no lease so far"
    );

    scenario.environment.lay(FLAG);
    scenario.until_all_serve(1).await;
    scenario
        .until_rollout("both had the lease", |view| {
            view.token.0 == 2 && view.slots.is_empty()
        })
        .await;
    let after = scenario.environment.record().tally();
    let moved = |tally: &dormer_fleet::world::Tally| {
        (
            tally.pods_evicted,
            tally.pods_deleted,
            tally.machines_deleted,
        )
    };
    assert_eq!(
        moved(&after),
        moved(&before),
        "no pod and no Machine was touched"
    );
    assert_eq!(
        after.kubelet_restarts - before.kubelet_restarts,
        2,
        "each kubelet once"
    );
    assert!(
        scenario.environment.record().max_unavailable_observed() <= 1,
        "one at a time"
    );

    // The flag stays; containerd is another.
    scenario.environment.catalog().add(rebuilt().await);
    scenario.environment.lay(FLAG);
    scenario.until_all_serve(2).await;
    scenario
        .until_rollout("both had the lease again", |view| {
            view.token.0 == 4 && view.slots.is_empty()
        })
        .await;
    let last = scenario.environment.record().tally();
    assert_eq!(
        last.machines_deleted - after.machines_deleted,
        2,
        "drained, and replaced"
    );
    assert_eq!(
        scenario.environment.record().max_unavailable_observed(),
        1,
        "one at a time"
    );
    scenario.end().await;
}
