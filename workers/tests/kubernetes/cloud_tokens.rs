//! The note of a cloud-node-manager's token on its Node.

use super::bench::Bench;
use dormer_proto::{id::Timestamp, machine::MachineRef};
use dormer_workers::{
    host::cluster::{CloudToken, Cluster},
    kubernetes::keys,
};
use serde_json::json;

/// The year 2100.
const DUE: Timestamp = Timestamp(4_102_444_800_000);

fn noted(bench: &Bench, m: &MachineRef) -> Option<String> {
    let node = bench.node(m);
    node["metadata"]["annotations"][keys::CLOUD_TOKEN_DUE]
        .as_str()
        .map(str::to_owned)
}

fn uid(bench: &Bench, m: &MachineRef) -> String {
    let node = bench.node(m);
    node["metadata"]["uid"].as_str().expect("a UID").to_owned()
}

/// A host was made anew while its token was under way: the next Node of that name has no token yet.
#[tokio::test]
async fn the_note_of_a_token_reaches_the_node_that_it_is_bound_to_and_no_other() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let worker = &bench.executor;
    let earlier = uid(&bench, m);

    let mut next = bench.node(m);
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        next["metadata"][field] = json!(null);
    }
    bench.delete_node(m);
    bench.world.create(next).expect("the next Node");
    assert_ne!(uid(&bench, m), earlier);

    let said = worker.note_cloud_token(&m.name, &earlier, DUE).await;
    assert_eq!(said, Ok(()), "the token has ended with its Node");
    assert_eq!(noted(&bench, m), None);
    let asked = worker.cloud_token(&m.name, false).await;
    assert!(matches!(asked, Ok(CloudToken::Due)));

    let own = uid(&bench, m);
    let said = worker.note_cloud_token(&m.name, &own, DUE).await;
    assert_eq!(said, Ok(()));
    assert_eq!(noted(&bench, m).as_deref(), Some("2100-01-01T00:00:00Z"));
    let asked = worker.cloud_token(&m.name, false).await;
    assert!(matches!(asked, Ok(CloudToken::Lasts)));
}

/// The Node is made anew between the worker's read and its write.
#[tokio::test]
async fn a_node_that_is_made_anew_before_the_write_gets_no_note() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines()[0].clone();
    let earlier = uid(&bench, &m);
    let meanwhile = bench.clone();
    let of = m.clone();
    bench.gate.before(1, move || {
        let mut next = meanwhile.node(&of);
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            next["metadata"][field] = json!(null);
        }
        meanwhile.delete_node(&of);
        meanwhile.world.create(next).expect("the next Node");
    });
    let said = bench
        .executor
        .note_cloud_token(&m.name, &earlier, DUE)
        .await;
    assert!(bench.gate.passed().1);
    assert_eq!(said.expect_err("another Node").code, "Conflict");
    assert_eq!(noted(&bench, &m), None);
}
