//! Fences on real Machines and Nodes, by the worker's account.

use super::{
    accounts::worker,
    cluster::{MACHINE, NODE, Site, close, delete, open, plane, run},
};
use dormer_proto::{
    id::LeaseToken,
    machine::{FenceRefusal, MachineRef, Outcome, Task},
};
use serde_json::json;

const OPENED: Outcome = Outcome::FenceOpened {
    was_cordoned: false,
};

fn refused(why: FenceRefusal) -> Outcome {
    Outcome::FenceRefused { why }
}

#[tokio::test]
async fn a_fence_opens_cordons_closes_and_never_opens_again() {
    let site = Site::new(plane!(), "fence").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    for _ in 0..2 {
        assert_eq!(
            run(&executor, open(m, 5)).await,
            Ok(OPENED),
            "the first, and a repeat"
        );
        assert_eq!(site.marks(m).await, [Some((5, true)); 2]);
        assert!(site.cordoned(m).await);
    }
    for _ in 0..2 {
        assert_eq!(run(&executor, close(m, 5)).await, Ok(Outcome::FenceClosed));
        assert_eq!(site.marks(m).await, [Some((5, false)); 2]);
        assert!(!site.cordoned(m).await);
    }
    assert_eq!(
        run(&executor, open(m, 5)).await,
        Ok(refused(FenceRefusal::Superseded))
    );
    assert_eq!(run(&executor, open(m, 6)).await, Ok(OPENED));
    assert_eq!(run(&executor, close(m, 5)).await, Ok(Outcome::FenceClosed));
    assert_eq!(
        site.marks(m).await,
        [Some((6, true)); 2],
        "an old close leaves a newer lease alone"
    );
}

#[tokio::test]
async fn a_persons_cordon_outlives_the_fence() {
    let site = Site::new(plane!(), "cordon").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    site.world
        .patch(NODE, "", &m.name, json!({"spec": {"unschedulable": true}}))
        .await;
    for _ in 0..2 {
        let found = Ok(Outcome::FenceOpened { was_cordoned: true });
        assert_eq!(run(&executor, open(m, 1)).await, found);
    }
    assert_eq!(run(&executor, close(m, 1)).await, Ok(Outcome::FenceClosed));
    assert!(site.cordoned(m).await);
}

#[tokio::test]
async fn a_machine_is_deleted_under_its_open_token_alone() {
    let site = Site::new(plane!(), "delete").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    let closed = Ok(Outcome::FenceClosedMeanwhile);
    assert_eq!(run(&executor, delete(m, 1)).await, closed, "never opened");
    assert_eq!(run(&executor, open(m, 1)).await, Ok(OPENED));
    assert_eq!(run(&executor, delete(m, 2)).await, closed, "another token");
    assert_eq!(run(&executor, close(m, 1)).await, Ok(Outcome::FenceClosed));
    assert_eq!(run(&executor, delete(m, 1)).await, closed);
    assert_eq!(run(&executor, open(m, 2)).await, Ok(OPENED));
    let deleted = Ok(Outcome::MachineDeleted);
    for what in ["it goes", "a repeat"] {
        assert_eq!(run(&executor, delete(m, 2)).await, deleted, "{what}");
    }
    assert!(site.machine_now(m).await["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(
        run(&executor, close(m, 2)).await,
        deleted,
        "the slot waits for its replacement"
    );
    let free = json!({"metadata": {"finalizers": null}});
    site.world.patch(MACHINE, &m.namespace, &m.name, free).await;
    assert!(site.machine_now(m).await.is_null());
    assert_eq!(run(&executor, delete(m, 2)).await, deleted);
    assert_eq!(
        run(&executor, open(m, 2)).await,
        Ok(refused(FenceRefusal::Gone))
    );
}

#[tokio::test]
async fn another_machine_of_that_name_is_left_alone() {
    let site = Site::new(plane!(), "namesake").await;
    let executor = worker(&site).await;
    let m = site.joined("win-1").await;
    let uid = "00000000-0000-0000-0000-000000000000".to_owned();
    let old = MachineRef { uid, ..m.clone() };
    assert_eq!(
        run(&executor, open(&old, 1)).await,
        Ok(refused(FenceRefusal::Gone))
    );
    assert_eq!(
        run(&executor, delete(&old, 1)).await,
        Ok(Outcome::MachineDeleted)
    );
    assert_eq!(site.marks(&m).await, [None, None]);
    assert!(site.machine_now(&m).await["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test]
async fn a_node_is_marked_and_one_that_is_gone_is_named() {
    let site = Site::new(plane!(), "mark").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    let mark = |node: &str| Task::MarkNode {
        machine: m.clone(),
        node: node.into(),
        version: "v1".into(),
        pin: Some("ssh-ed25519 AAAA".into()),
    };
    assert_eq!(run(&executor, mark(&m.name)).await, Ok(Outcome::NodeMarked));
    let annotations = &site.node_now(m).await["metadata"]["annotations"];
    assert_eq!(annotations[dormer_workers::kubernetes::keys::VERSION], "v1");
    let failure = run(&executor, mark("mark-none"))
        .await
        .expect_err("there is no such Node");
    assert!(failure.retry && failure.code == "NodeGone", "{failure:?}");
}

#[tokio::test]
async fn a_fence_without_a_node_is_kept_on_the_machine() {
    let site = Site::new(plane!(), "alone").await;
    let executor = worker(&site).await;
    let m = &site.machine("win-1").await;
    let token = LeaseToken(1);
    let task = Task::OpenFence {
        machine: m.clone(),
        node: None,
        token,
        marked: false,
        cordon: true,
    };
    assert_eq!(run(&executor, task).await, Ok(OPENED));
    assert_eq!(site.marks(m).await, [Some((1, true)), None]);
    assert_eq!(
        run(&executor, open(m, 2)).await,
        Ok(OPENED),
        "a Node that is gone needs no fence"
    );
}
