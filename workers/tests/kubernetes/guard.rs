//! Live checks just before a write or a disturbance: the owner of the Node, its readiness, and the pool's stop.

use super::bench::{Bench, executor, patch_part, run};
use dormer_fleet::api::{DeleteOptions, Key, Meta, Part, User, kinds, kinds::Kind};
use dormer_proto::{
    id::{Attempt, Incarnation, LeaseToken, RunId, Seq, Sum, TaskId, Timestamp},
    machine::{Blocker, FenceRefusal, Guard, HostRef, MachineApi, MachineRef, Outcome, Task},
    message::Failure,
    work::Order,
};
use dormer_workers::{
    execute::Execute,
    host::cluster::Cluster,
    kubernetes::{Settings, keys},
};
use jiff::SignedDuration;
use serde_json::{Value, json};

const TOKEN: LeaseToken = LeaseToken(1);
/// How long a Node has not to be Ready in these tests.
const DOWN_MS: u64 = 600_000;

fn within_the_limit() -> Guard {
    Guard::default()
}

fn over_the_limit() -> Guard {
    Guard {
        down_ms: Some(DOWN_MS),
        ..Guard::default()
    }
}

fn open(machine: &MachineRef, guard: Guard) -> Task {
    Task::OpenFence {
        machine: machine.clone(),
        node: Some(machine.name.clone()),
        token: TOKEN,
        over_limit: guard.down_ms.is_some(),
        cordon: true,
        guard,
    }
}

fn evict(machine: &MachineRef, guard: Guard, force: bool) -> Task {
    Task::Evict {
        machine: machine.clone(),
        node: machine.name.clone(),
        token: TOKEN,
        force,
        guard,
    }
}

fn delete(machine: &MachineRef, guard: Guard) -> Task {
    Task::DeleteMachine {
        machine: machine.clone(),
        token: TOKEN,
        guard,
    }
}

fn mark(machine: &MachineRef) -> Task {
    Task::MarkNode {
        machine: machine.clone(),
        node: machine.name.clone(),
        version: "v2".into(),
        pin: None,
        expect: None,
    }
}

fn close(machine: &MachineRef) -> Task {
    Task::CloseFence {
        machine: machine.clone(),
        node: Some(machine.name.clone()),
        token: TOKEN,
    }
}

/// What the cluster says before the host is torn down, at this attempt.
async fn before_tear_down(
    bench: &Bench,
    machine: &MachineRef,
    guard: Guard,
    attempt: u64,
) -> Result<Option<Outcome>, Failure> {
    let host = HostRef {
        machine: machine.clone(),
        ..HostRef::default()
    };
    let body = Task::TearDown {
        host,
        generation: 1,
        guard,
    };
    bench.executor.refuses(&order(machine, attempt, body)).await
}

/// What the cluster says before the host is rebooted under this lease.
async fn before_reboot(
    bench: &Bench,
    machine: &MachineRef,
    token: Option<LeaseToken>,
) -> Result<Option<Outcome>, Failure> {
    let host = HostRef {
        machine: machine.clone(),
        ..HostRef::default()
    };
    let body = Task::Reboot {
        host,
        boot_id: "1".into(),
        generation: 1,
        token,
    };
    bench.executor.refuses(&order(machine, 1, body)).await
}

fn order(machine: &MachineRef, attempt: u64, body: Task) -> Order {
    Order {
        task: TaskId {
            run: RunId::new("machine", &machine.uid).expect("an id"),
            seq: Seq(1),
            ordinal: 0,
        },
        attempt: Attempt(attempt),
        incarnation: Incarnation(1),
        issued: Sum(1),
        episode: Seq(0),
        at: Timestamp(0),
        limit_ms: 60_000,
        body,
    }
}

/// Why it was refused; the text is not empty.
fn why(outcome: Result<Outcome, Failure>) -> FenceRefusal {
    match outcome {
        Ok(Outcome::FenceRefused { why, said }) => {
            assert!(!said.is_empty(), "{why:?}");
            why
        }
        other => panic!("not refused: {other:?}"),
    }
}

fn label(key: &str, value: &str) -> Value {
    json!({"metadata": {"labels": {key: value}}})
}

/// Another Machine's Node is tried on the real API server, where no controller mends the `nodeRef`
/// (`tests/real/fence.rs`).
#[tokio::test]
async fn a_node_of_another_system_or_of_the_control_plane_is_left_alone() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    bench.pod(&m, "a", json!({}));
    let machine = Key::new(m.namespace.as_str(), m.name.as_str());
    type Change<'a> = Box<dyn Fn() + 'a>;
    let table: [(FenceRefusal, &str, Change<'_>, Change<'_>); 2] = [
        (
            FenceRefusal::NotWindows,
            "NodeNotWindows",
            Box::new(|| bench.patch_node(&m, label("kubernetes.io/os", "linux"))),
            Box::new(|| bench.patch_node(&m, label("kubernetes.io/os", "windows"))),
        ),
        (
            FenceRefusal::ControlPlane,
            "NodeIsControlPlane",
            Box::new(|| bench.patch_node(&m, label("node-role.kubernetes.io/control-plane", ""))),
            Box::new(|| {
                let none = json!({"node-role.kubernetes.io/control-plane": null});
                bench.patch_node(&m, json!({"metadata": {"labels": none}}));
            }),
        ),
    ];
    for (refusal, code, spoil, mend) in &table {
        spoil();
        let outcome = bench.run(open(&m, within_the_limit())).await;
        assert_eq!(why(outcome), *refusal);
        assert_eq!(
            bench.marks(&m),
            [None, None],
            "{refusal:?}: nothing is written"
        );
        assert!(!bench.cordoned(&m), "{refusal:?}");
        let failure = bench.run(mark(&m)).await.expect_err("it is not marked");
        assert_eq!(failure.code, *code);
        assert!(failure.message.contains(&m.name), "{failure:?}");
        assert_eq!(bench.run(close(&m)).await, Ok(Outcome::FenceClosed));
        assert_eq!(bench.marks(&m)[1], None, "{refusal:?}: nor by a close");
        let unmarked = json!({"metadata": {"annotations": {"dormer.io/fence": null}}});
        bench.patch_object(&kinds::MACHINE, &machine, unmarked);
        mend();
    }
    // The same in the middle of a drain, under an open token.
    bench
        .run(open(&m, within_the_limit()))
        .await
        .expect("it opens");
    for (refusal, _, spoil, mend) in &table {
        spoil();
        for force in [false, true] {
            let outcome = bench.run(evict(&m, within_the_limit(), force)).await;
            assert_eq!(why(outcome), *refusal);
        }
        let outcome = bench.run(delete(&m, within_the_limit())).await;
        assert_eq!(why(outcome), *refusal);
        let refused = before_tear_down(&bench, &m, within_the_limit(), 1).await;
        assert_eq!(why(refused.map(|it| it.expect("refused"))), *refusal);
        mend();
    }
    assert_eq!(bench.remaining_pods(), ["a"]);
    assert!(!bench.machine(&m).deleting());
    // What dormer itself opened is still closed.
    bench.patch_node(&m, label("kubernetes.io/os", "linux"));
    assert_eq!(bench.run(close(&m)).await, Ok(Outcome::FenceClosed));
    assert_eq!(bench.marks(&m), [Some((1, false)); 2]);
    assert!(!bench.cordoned(&m));
}

#[tokio::test]
async fn over_the_limit_a_node_must_have_been_down_for_long_by_the_api_servers_clock() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let clock = bench.world.api.clock();
    let ago = |seconds: i64| {
        let then = clock.now() - SignedDuration::from_secs(seconds);
        then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    };
    bench.node_says_ready_since(&m, "Unknown", &ago(540));
    let failure = bench.run(open(&m, over_the_limit())).await;
    let failure = failure.expect_err("it was not down for long enough");
    assert!(
        failure.retry && failure.code == "NodeDownTooShort",
        "{failure:?}"
    );
    let wait = failure.after_ms.expect("a time");
    assert!((1..=60_000).contains(&wait), "{wait}");
    assert_eq!(bench.marks(&m), [None, None]);
    bench.node_says_ready_since(&m, "False", &ago(601));
    let opened = bench.run(open(&m, over_the_limit())).await;
    assert_eq!(
        opened,
        Ok(Outcome::FenceOpened {
            was_cordoned: false
        })
    );
    // Not Ready in another way: it never came back, and the open fence stays usable.
    bench.node_says_ready_since(&m, "Unknown", &ago(0));
    let again = bench.run(open(&m, over_the_limit())).await;
    assert_eq!(
        again,
        Ok(Outcome::FenceOpened {
            was_cordoned: false
        })
    );
}

#[tokio::test]
async fn over_the_limit_a_node_that_is_ready_again_is_not_taken() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    bench.pod(&m, "a", json!({}));
    bench.node_says_ready(&m, "Unknown");
    let at_once = Guard {
        down_ms: Some(0),
        ..Guard::default()
    };
    bench.run(open(&m, at_once)).await.expect("it opens");
    assert_eq!(
        before_tear_down(&bench, &m, over_the_limit(), 1).await,
        Ok(None),
        "it may be torn down"
    );
    bench.node_says_ready(&m, "True");
    for force in [false, true] {
        let outcome = bench.run(evict(&m, over_the_limit(), force)).await;
        assert_eq!(why(outcome), FenceRefusal::NodeServes);
    }
    let outcome = bench.run(delete(&m, over_the_limit())).await;
    assert_eq!(why(outcome), FenceRefusal::NodeServes);
    for attempt in [1, 2] {
        let refused = before_tear_down(&bench, &m, over_the_limit(), attempt).await;
        let outcome = refused.map(|it| it.expect("refused"));
        assert_eq!(why(outcome), FenceRefusal::NodeServes);
    }
    let outcome = bench.run(open(&m, over_the_limit())).await;
    assert_eq!(why(outcome), FenceRefusal::NodeServes);
    assert_eq!(bench.remaining_pods(), ["a"]);
    assert!(!bench.machine(&m).deleting());
    // Within the limit a Ready node is what a lease is for.
    let outcome = bench.run(evict(&m, within_the_limit(), false)).await;
    assert!(
        matches!(outcome, Ok(Outcome::Evicted { evicted: 1, .. })),
        "{outcome:?}"
    );
}

/// Pods may have come since the drain, and the Machine API would kill them.
#[tokio::test]
async fn a_machine_whose_node_was_uncordoned_is_not_deleted() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let cordon = |on: Option<bool>| bench.patch_node(&m, json!({"spec": {"unschedulable": on}}));
    bench
        .run(open(&m, within_the_limit()))
        .await
        .expect("it opens");
    cordon(None);
    let outcome = bench.run(delete(&m, within_the_limit())).await;
    assert_eq!(why(outcome), FenceRefusal::Uncordoned);
    // Cordoned again: the pods of the meantime are still there.
    cordon(Some(true));
    let anew = Guard {
        anew: true,
        ..within_the_limit()
    };
    let outcome = bench.run(delete(&m, anew.clone())).await;
    assert_eq!(why(outcome), FenceRefusal::Uncordoned);
    assert!(!bench.machine(&m).deleting());
    // No pod runs on a silent Node.
    bench.node_says_ready(&m, "Unknown");
    cordon(None);
    let outcome = bench.run(delete(&m, anew)).await;
    assert_eq!(outcome, Ok(Outcome::MachineDeleted));
}

/// An admin needs the capacity, or a retry comes days later: pods run on the Node that was drained.
#[tokio::test]
async fn a_host_whose_node_was_uncordoned_is_not_torn_down() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let guard = || Guard {
        token: Some(TOKEN),
        ..Guard::default()
    };
    let key = Key::new(m.namespace.as_str(), m.name.as_str());
    let before = async |attempt| {
        // The first attempt finds that nothing has begun.
        if attempt == 1 {
            let none = json!({"metadata": {"annotations": {keys::TEARING: null}}});
            bench.patch_object(&kinds::MACHINE, &key, none);
        }
        before_tear_down(&bench, &m, guard(), attempt).await
    };
    let cordon = |on: Option<bool>| bench.patch_node(&m, json!({"spec": {"unschedulable": on}}));
    bench.run(open(&m, guard())).await.expect("it opens");
    assert_eq!(before(1).await, Ok(None));
    cordon(None);
    let Ok(Some(Outcome::FenceRefused { why: refusal, said })) = before(1).await else {
        panic!("refused");
    };
    assert_eq!(refusal, FenceRefusal::Uncordoned);
    assert!(said.contains("uncordoned"), "{said}");
    // The host may be half torn down, and its Node not yet known as silent: it waits for that.
    let waits = before(2).await.expect_err("it waits");
    assert!(waits.retry && waits.code == "NodeUncordoned", "{waits:?}");
    let begun = Guard {
        begun: true,
        ..guard()
    };
    let waits = before_tear_down(&bench, &m, begun, 1).await;
    assert_eq!(waits.expect_err("it waits").code, "NodeUncordoned");
    // An admin deleted the Node in mid-drain, and its kubelet registered again: nothing of dormer's is on the new one.
    let marks = bench.node(&m)["metadata"]["annotations"].clone();
    let bare = json!({keys::FENCE: null, keys::WAS_CORDONED: null});
    bench.patch_node(&m, json!({"metadata": {"annotations": bare}}));
    let refused = before(1).await.map(|it| it.expect("refused"));
    assert_eq!(why(refused), FenceRefusal::Uncordoned);
    bench.patch_node(&m, json!({"metadata": {"annotations": marks}}));
    bench.node_says_ready(&m, "Unknown");
    assert_eq!(before(2).await, Ok(None), "no pod comes to a silent node");
    // The restore of an older etcd has taken dormer's marks, or a person has, from both objects.
    bench.node_says_ready(&m, "True");
    let annotate_both = |marks: &Value| {
        let change = json!({"metadata": {"annotations": marks}});
        bench.patch_node(&m, change.clone());
        bench.patch_object(&kinds::MACHINE, &key, change);
    };
    annotate_both(&bare);
    let refused = before(1).await.map(|it| it.expect("refused"));
    assert_eq!(why(refused), FenceRefusal::Uncordoned);
    let waits = before(2).await.expect_err("it waits");
    assert_eq!(waits.code, "NodeUncordoned");
    annotate_both(&json!({keys::FENCE: "1 open", keys::WAS_CORDONED: "false"}));
    // Cordoned anew, with the note of the first drain's newest pod.
    cordon(Some(true));
    let newest = json!({"metadata": {"annotations": {keys::NEWEST_POD: "2026-01-01T00:00:00Z"}}});
    let noted = || bench.node(&m)["metadata"]["annotations"][keys::NEWEST_POD].is_string();
    bench.patch_node(&m, newest);
    bench.run(open(&m, guard())).await.expect("a repeat");
    assert!(noted(), "the drain goes on");
    let anew = Guard {
        anew: true,
        ..guard()
    };
    bench.run(open(&m, anew)).await.expect("it opens");
    assert!(!noted(), "all pods are its own again");
}

/// Its first attempt failed at the login: nothing on the host is touched, and pods come.
#[tokio::test]
async fn a_host_that_a_person_labelled_and_uncordoned_is_not_torn_down() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let key = Key::new(m.namespace.as_str(), m.name.as_str());
    let guard = || Guard {
        token: Some(TOKEN),
        ..Guard::default()
    };
    let before = async || before_tear_down(&bench, &m, guard(), 2).await;
    let mine = json!({"metadata": {"labels": {keys::IGNORE: "true"}}});
    let not_windows = json!({"metadata": {"labels": {keys::IGNORE: null, keys::OS_ID: null}}});
    bench.run(open(&m, guard())).await.expect("it opens");
    for label in [mine, not_windows] {
        bench.patch_object(&kinds::MACHINE, &key, label.clone());
        bench.patch_node(&m, json!({"spec": {"unschedulable": true}}));
        assert_eq!(
            before().await,
            Ok(None),
            "it may be half torn down: {label}"
        );
        bench.patch_node(&m, json!({"spec": {"unschedulable": null}}));
        let waits = before().await.expect_err("it waits");
        assert!(
            waits.retry && waits.code == "NodeUncordoned",
            "{label}: {waits:?}"
        );
        bench.edit_pool(json!({"stop": true}));
        let waits = before().await.expect_err("it waits");
        assert_eq!(waits.code, "PoolStopped", "{label}");
        bench.edit_pool(json!({"stop": false}));
    }
}

/// What an earlier order for the same tear-down began is not given back half done.
#[tokio::test]
async fn a_tear_down_that_was_begun_by_another_order_is_finished() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let guard = |begun| Guard {
        token: Some(TOKEN),
        begun,
        ..Guard::default()
    };
    bench.run(open(&m, guard(false))).await.expect("it opens");
    bench.edit_pool(json!({"stop": true}));
    let refused = before_tear_down(&bench, &m, guard(false), 1).await;
    assert_eq!(
        why(refused.map(|it| it.expect("refused"))),
        FenceRefusal::Stopped
    );
    let waits = before_tear_down(&bench, &m, guard(true), 1).await;
    assert_eq!(waits.expect_err("it waits").code, "PoolStopped");
}

/// dormer is restarted in the middle, and another worker gets the order with the same attempt.
#[tokio::test]
async fn a_tear_down_whose_order_comes_once_more_is_finished() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let key = Key::new(m.namespace.as_str(), m.name.as_str());
    let guard = |token| Guard {
        token: Some(LeaseToken(token)),
        ..Guard::default()
    };
    bench.run(open(&m, guard(1))).await.expect("it opens");
    assert_eq!(before_tear_down(&bench, &m, guard(1), 1).await, Ok(None));
    bench.edit_pool(json!({"stop": true}));
    let waits = before_tear_down(&bench, &m, guard(1), 1).await;
    assert_eq!(waits.expect_err("it waits").code, "PoolStopped");
    bench.edit_pool(json!({"stop": false}));
    let label = json!({"metadata": {"labels": {keys::IGNORE: "true"}}});
    bench.patch_object(&kinds::MACHINE, &key, label);
    assert_eq!(before_tear_down(&bench, &m, guard(1), 1).await, Ok(None));
    let label = json!({"metadata": {"labels": {keys::IGNORE: null}}});
    bench.patch_object(&kinds::MACHINE, &key, label);
    bench.run(close(&m)).await.expect("it closes");
    assert_eq!(bench.machine(&m).annotation(keys::TEARING), None);
    // What was begun under another lease is over.
    let noted = json!({"metadata": {"annotations": {keys::TEARING: "1"}}});
    bench.patch_object(&kinds::MACHINE, &key, noted);
    bench.run(open_at(&m, 2)).await.expect("it opens");
    bench.edit_pool(json!({"stop": true}));
    let refused = before_tear_down(&bench, &m, guard(2), 1).await;
    let refused = refused.map(|it| it.expect("refused"));
    assert_eq!(why(refused), FenceRefusal::Stopped);
}

/// A worker that was suspended carries its order out long after another one has answered for it.
#[tokio::test]
async fn a_host_is_torn_down_and_rebooted_under_its_own_lease_alone() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let under = |token: u64| Guard {
        token: Some(LeaseToken(token)),
        ..Guard::default()
    };
    let before =
        async |token: u64, attempt: u64| before_tear_down(&bench, &m, under(token), attempt).await;
    bench
        .run(open(&m, within_the_limit()))
        .await
        .expect("it opens");
    assert_eq!(before(1, 1).await, Ok(None), "its lease is open");
    assert_eq!(before(1, 2).await, Ok(None));
    let reboot = async |token: u64| before_reboot(&bench, &m, Some(LeaseToken(token))).await;
    assert_eq!(reboot(1).await, Ok(None));
    bench.run(close(&m)).await.expect("it closes");
    for attempt in [1, 2] {
        let refused = before(1, attempt).await.map(|it| it.expect("refused"));
        assert_eq!(why(refused), FenceRefusal::Superseded, "its lease ended");
    }
    let failure = reboot(1).await.expect_err("its lease ended");
    assert_eq!((failure.code.as_str(), failure.retry), ("LeaseEnded", true));
    assert_eq!(
        before_reboot(&bench, &m, None).await,
        Ok(None),
        "a bring-up needs no lease"
    );
    let another = MachineRef {
        uid: "another".into(),
        ..m.clone()
    };
    let failure = before_reboot(&bench, &another, Some(LeaseToken(1))).await;
    let failure = failure.expect_err("it is gone");
    assert_eq!(failure.code, "MachineGone");
    assert!(failure.message.contains(&m.name), "{}", failure.message);
    let cordon = |on: Option<bool>| bench.patch_node(&m, json!({"spec": {"unschedulable": on}}));
    cordon(Some(true));
    assert_eq!(before(2, 1).await, Ok(None), "a later lease is not ended");
    cordon(None);
    let later = Task::OpenFence {
        machine: m.clone(),
        node: Some(m.name.clone()),
        token: LeaseToken(3),
        over_limit: false,
        cordon: true,
        guard: within_the_limit(),
    };
    bench.run(later).await.expect("it opens");
    let refused = before(2, 1).await.map(|it| it.expect("refused"));
    assert_eq!(
        why(refused),
        FenceRefusal::Superseded,
        "a later one is open"
    );
}

#[tokio::test]
async fn a_host_without_a_node_is_repaired_under_a_lease_that_opened_nothing() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let guard = || Guard {
        token: Some(TOKEN),
        ..Guard::default()
    };
    let refused = before_tear_down(&bench, &m, guard(), 1).await;
    assert_eq!(
        why(refused.map(|it| it.expect("refused"))),
        FenceRefusal::Uncordoned,
        "its Node serves, and nothing drained it"
    );
    bench.delete_node(&m);
    assert_eq!(before_tear_down(&bench, &m, guard(), 1).await, Ok(None));
}

#[tokio::test]
async fn nothing_is_taken_while_the_pool_is_stopped_or_absent() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    bench.pod(&m, "a", json!({}));
    let stopped = || async {
        let guard = within_the_limit;
        let mut all = vec![why(bench.run(open(&m, guard())).await)];
        for force in [false, true] {
            let outcome = bench.run(evict(&m, guard(), force)).await;
            if outcome != Ok(Outcome::FenceClosedMeanwhile) {
                all.push(why(outcome));
            }
        }
        let outcome = bench.run(delete(&m, guard())).await;
        if outcome != Ok(Outcome::FenceClosedMeanwhile) {
            all.push(why(outcome));
        }
        let refused = before_tear_down(&bench, &m, guard(), 1).await;
        all.push(why(refused.map(|it| it.expect("refused"))));
        assert!(all.iter().all(|it| *it == FenceRefusal::Stopped), "{all:?}");
        all.len()
    };
    bench.edit_pool(json!({"stop": true}));
    assert_eq!(stopped().await, 2, "there is no open fence yet");
    assert_eq!(bench.marks(&m), [None, None]);
    bench.edit_pool(json!({"stop": false}));
    bench
        .run(open(&m, within_the_limit()))
        .await
        .expect("it opens");
    bench.edit_pool(json!({"stop": true}));
    assert_eq!(stopped().await, 5, "in the middle of a drain");
    // A host whose teardown may have begun is not given back half done: it waits.
    let waits = before_tear_down(&bench, &m, within_the_limit(), 2).await;
    let waits = waits.expect_err("it waits");
    assert!(waits.retry && waits.code == "PoolStopped", "{waits:?}");
    bench.edit_pool(json!({"stop": false}));
    let key = Key::new("dormer", "windows");
    let gone = bench.world.api.delete(
        &User::admin(),
        &kinds::WINDOWS_POOL,
        &key,
        &DeleteOptions::now(),
    );
    gone.expect("it is deleted");
    assert_eq!(stopped().await, 5, "a pool that is absent");
    assert_eq!(bench.remaining_pods(), ["a"]);
    assert!(!bench.machine(&m).deleting());
    // Closing takes nothing away.
    assert_eq!(bench.run(close(&m)).await, Ok(Outcome::FenceClosed));
    assert!(!bench.cordoned(&m));
}

#[tokio::test]
async fn a_stop_ends_a_pass_between_two_pods() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    for name in ["a", "b", "c"] {
        bench.pod(&m, name, json!({}));
    }
    bench
        .run(open(&m, within_the_limit()))
        .await
        .expect("it opens");
    let there = bench.clone();
    // Machine, Node, pool, pods; then the pool and an eviction for each pod.
    bench
        .gate
        .before(6, move || there.edit_pool(json!({"stop": true})));
    let outcome = bench.run(evict(&m, within_the_limit(), false)).await;
    assert_eq!(why(outcome), FenceRefusal::Stopped);
    assert_eq!(bench.remaining_pods().len(), 2, "one was evicted before it");
}

/// A person's cordon from before is theirs to lift, also while dormer drains.
#[tokio::test]
async fn a_cordon_that_its_maker_lifts_in_mid_drain_is_not_restored() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let lift = || bench.patch_node(&m, json!({"spec": {"unschedulable": null}}));
    let asked = || Guard {
        asked: true,
        ..within_the_limit()
    };
    let found = |was_cordoned| Ok(Outcome::FenceOpened { was_cordoned });
    bench.patch_node(&m, json!({"spec": {"unschedulable": true}}));
    let opened = bench.run(open(&m, asked())).await;
    assert_eq!(opened, found(true));
    lift();
    let again = bench.run(open(&m, asked())).await;
    assert_eq!(again, found(false), "the drain goes on, cordoned by dormer");
    assert!(bench.cordoned(&m));
    assert_eq!(bench.run(close(&m)).await, Ok(Outcome::FenceClosed));
    assert!(!bench.cordoned(&m));
    // Lifted so late that no open saw it.
    bench.patch_node(&m, json!({"spec": {"unschedulable": true}}));
    let next = |task: Task| match task {
        Task::OpenFence {
            machine,
            node,
            guard,
            ..
        } => Task::OpenFence {
            machine,
            node,
            token: LeaseToken(2),
            over_limit: false,
            cordon: true,
            guard,
        },
        other => other,
    };
    let opened = bench.run(next(open(&m, asked()))).await;
    assert_eq!(opened, found(true));
    lift();
    let close = Task::CloseFence {
        machine: m.clone(),
        node: Some(m.name.clone()),
        token: LeaseToken(2),
    };
    assert_eq!(bench.run(close).await, Ok(Outcome::FenceClosed));
    assert!(!bench.cordoned(&m));
}

/// A Machine of Cluster API with a set and a cluster above it, linked to the first Windows node; and their keys.
fn of_cluster_api(bench: &Bench) -> (MachineRef, [(&'static Kind, Key); 3]) {
    let node = bench.machines().remove(0).name;
    let namespace = "openshift-cluster-api";
    let group = "cluster.x-k8s.io/v1beta2";
    let make = |kind: &str, name: &str, more: Value| {
        let mut object = json!({"apiVersion": group, "kind": kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": {}});
        for (key, value) in more.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        let made = bench.world.create(object).expect("it is made");
        made.value.uid().to_owned()
    };
    make("Cluster", "blue", json!({}));
    let set = make("MachineSet", "win", json!({}));
    let owner = json!([{"apiVersion": group, "kind": "MachineSet", "name": "win", "uid": set, "controller": true}]);
    let meta = json!({"name": node, "namespace": namespace, "ownerReferences": owner,
        "labels": {"kubernetes.io/os": "windows"}});
    let uid = make(
        "Machine",
        &node,
        json!({"metadata": meta, "spec": {"clusterName": "blue"}, "status": {"nodeRef": {"name": node}}}),
    );
    let machine = MachineRef {
        namespace: namespace.into(),
        name: node.clone(),
        uid,
        api: MachineApi::ClusterV1Beta2,
    };
    let key = |name: &str| Key::new(namespace, name);
    let all = [
        (&kinds::CLUSTER_MACHINE, key(&node)),
        (&kinds::CLUSTER_MACHINE_SET, key("win")),
        (&kinds::CLUSTER_API_CLUSTER, key("blue")),
    ];
    (machine, all)
}

#[tokio::test]
async fn nothing_is_taken_of_a_paused_machine_set_or_cluster() {
    let bench = Bench::new(1, false).await;
    let (m, [machine, set, cluster]) = of_cluster_api(&bench);
    bench.pod(&m, "a", json!({}));
    let note = |on: bool| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": on.then_some("")}}});
    let spec = |on: bool| json!({"spec": {"paused": on}});
    let condition = |on: bool| {
        let status = if on { "True" } else { "False" };
        json!({"status": {"conditions": [{"type": "Paused", "status": status}]}})
    };
    let pauses = [
        (&machine, note(true), note(false)),
        (&machine, condition(true), condition(false)),
        (&set, note(true), note(false)),
        (&cluster, note(true), note(false)),
        (&cluster, spec(true), spec(false)),
    ];
    let change = |(kind, key): &(&'static Kind, Key), change: &Value| {
        let part = if change["status"].is_null() {
            Part::Main
        } else {
            Part::Status
        };
        patch_part(&bench.world, kind, key, part, change.clone());
    };
    for (of, on, off) in &pauses {
        change(of, on);
        let outcome = bench.run(open(&m, within_the_limit())).await;
        assert_eq!(why(outcome), FenceRefusal::Paused, "{on}");
        change(of, off);
    }
    assert!(!bench.cordoned(&m));
    bench
        .run(open(&m, within_the_limit()))
        .await
        .expect("it opens");
    for (of, on, off) in &pauses {
        change(of, on);
        for task in [
            evict(&m, within_the_limit(), true),
            delete(&m, within_the_limit()),
        ] {
            assert_eq!(why(bench.run(task).await), FenceRefusal::Paused, "{on}");
        }
        let refused = before_tear_down(&bench, &m, within_the_limit(), 1).await;
        assert_eq!(
            why(refused.map(|it| it.expect("refused"))),
            FenceRefusal::Paused
        );
        change(of, off);
    }
    assert_eq!(bench.remaining_pods(), ["a"]);
    let left = bench
        .world
        .api
        .get(machine.0, &machine.1)
        .expect("it is there");
    assert!(!left.value.deleting());
    let outcome = bench.run(evict(&m, within_the_limit(), false)).await;
    assert!(
        matches!(outcome, Ok(Outcome::Evicted { evicted: 1, .. })),
        "{outcome:?}"
    );
}

/// The owner of such a hook acts once the Machine is being deleted, and not before.
#[tokio::test]
async fn a_hook_before_the_drain_lets_the_machine_controller_drain() {
    let bench = Bench::new(1, false).await;
    let of_openshift = bench.machines().remove(0);
    let (of_cluster, [machine, ..]) = of_cluster_api(&bench);
    bench.pod(&of_openshift, "a", json!({}));
    let hooks = json!({"spec": {"lifecycleHooks": {"preDrain": [
        {"name": "MigrateStorage", "owner": "storage-operator"}]}}});
    let annotation = "pre-drain.delete.hook.machine.cluster.x-k8s.io/migrate-storage";
    let cases = [
        (
            &of_openshift,
            (
                &kinds::MACHINE,
                Key::new(of_openshift.namespace.as_str(), of_openshift.name.as_str()),
            ),
            hooks,
            "MigrateStorage of storage-operator",
        ),
        (
            &of_cluster,
            machine,
            json!({"metadata": {"annotations": {annotation: "storage-operator"}}}),
            annotation,
        ),
    ];
    for (m, (kind, key), hook, named) in cases {
        bench.patch_object(kind, &key, hook);
        // Its Node is Ready.
        let guard = || Guard {
            deletes: true,
            ..Guard::default()
        };
        bench.run(open(m, guard())).await.expect("it opens");
        let outcome = bench.run(evict(m, guard(), false)).await;
        let Ok(Outcome::Evicted {
            evicted: 0,
            left: 0,
            skipped,
            ..
        }) = outcome
        else {
            panic!("{outcome:?}")
        };
        assert!(skipped[0].why.contains(named), "{skipped:?}");
        bench.run(close(m)).await.expect("it closes");
        bench.patch_node(m, json!({"metadata": {"annotations": {keys::FENCE: null}}}));
    }
    assert_eq!(
        bench.remaining_pods(),
        ["a"],
        "the machine controller evicts it"
    );
    // A host that stays is drained: no controller acts on such a hook without a deletion.
    bench
        .run(open_at(&of_openshift, 2))
        .await
        .expect("it opens");
    let in_place = Task::Evict {
        machine: of_openshift.clone(),
        node: of_openshift.name.clone(),
        token: LeaseToken(2),
        force: false,
        guard: Guard::default(),
    };
    let outcome = bench.run(in_place).await;
    assert!(
        matches!(outcome, Ok(Outcome::Evicted { evicted: 1, .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn labels_of_pods_for_cluster_apis_drains_count_on_its_machines() {
    let bench = Bench::new(1, false).await;
    let (m, _) = of_cluster_api(&bench);
    for (name, label) in [
        ("agent", "skip"),
        ("job", "wait-completed"),
        ("web", "drain"),
    ] {
        bench.pod(
            &m,
            name,
            json!({"labels": {"cluster.x-k8s.io/drain": label}}),
        );
    }
    bench
        .run(open(&m, within_the_limit()))
        .await
        .expect("it opens");
    let outcome = bench.run(evict(&m, within_the_limit(), false)).await;
    let Ok(Outcome::Evicted {
        evicted: 1,
        left: 2,
        blockers,
        skipped,
    }) = outcome
    else {
        panic!("{outcome:?}")
    };
    let names = |all: &[Blocker]| all.iter().map(|it| it.pod.clone()).collect::<Vec<_>>();
    assert_eq!(names(&blockers), ["default/job"]);
    assert_eq!(names(&skipped), ["default/agent"]);
    // After the drain's limit, under a pool that forces, a job ends too; what is skipped stays.
    bench
        .run(evict(&m, within_the_limit(), true))
        .await
        .expect("a pass");
    assert_eq!(bench.remaining_pods(), ["agent"]);
}

/// A person's label comes after the token was opened, and before the engine sees it.
#[tokio::test]
async fn nothing_is_taken_of_a_machine_that_a_person_took_over() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    bench.pod(&m, "a", json!({}));
    let guard = within_the_limit;
    let key = Key::new(m.namespace.as_str(), m.name.as_str());
    let change = |to: Value| bench.patch_object(&kinds::MACHINE, &key, to);
    bench.run(open(&m, guard())).await.expect("it opens");
    let label = |key: &str, value: Value| json!({"metadata": {"labels": {key: value}}});
    let annotation = |value: Value| json!({"metadata": {"annotations": {keys::IGNORE: value}}});
    for (set, lifted) in [
        (
            label(keys::IGNORE, "true".into()),
            label(keys::IGNORE, Value::Null),
        ),
        (annotation("true".into()), annotation(Value::Null)),
        (
            label(keys::OS_ID, Value::Null),
            label(keys::OS_ID, "Windows".into()),
        ),
    ] {
        change(set.clone());
        for task in [
            open(&m, guard()),
            evict(&m, guard(), false),
            evict(&m, guard(), true),
            delete(&m, guard()),
        ] {
            let name = task.name();
            assert_eq!(
                why(bench.run(task).await),
                FenceRefusal::Ignored,
                "{name}: {set}"
            );
        }
        let refused = before_tear_down(&bench, &m, guard(), 1).await;
        let refused = refused.map(|it| it.expect("refused"));
        assert_eq!(why(refused), FenceRefusal::Ignored, "{set}");
        // A teardown that may have begun is finished: the host is not whole.
        assert_eq!(
            before_tear_down(&bench, &m, guard(), 2).await,
            Ok(None),
            "{set}"
        );
        change(lifted);
    }
    assert_eq!(bench.remaining_pods(), ["a"]);
    assert!(!bench.machine(&m).deleting());
    assert_eq!(bench.run(close(&m)).await, Ok(Outcome::FenceClosed));
    assert!(!bench.cordoned(&m));
}

/// Its MachineSet releases it during the drain: no controller would replace it.
#[tokio::test]
async fn a_machine_without_an_owner_is_not_deleted() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let key = Key::new(m.namespace.as_str(), m.name.as_str());
    let guard = within_the_limit;
    bench.run(open(&m, guard())).await.expect("it opens");
    let owners = bench.machine(&m)["metadata"]["ownerReferences"].clone();
    let etcd = json!([{"apiVersion": "example.com/v1", "kind": "Sweeper", "name": "s", "uid": "1", "controller": true}]);
    for to in [Value::Null, etcd] {
        bench.patch_object(
            &kinds::MACHINE,
            &key,
            json!({"metadata": {"ownerReferences": to}}),
        );
        assert_eq!(
            why(bench.run(delete(&m, guard())).await),
            FenceRefusal::NoOwner
        );
        assert!(!bench.machine(&m).deleting());
    }
    bench.patch_object(
        &kinds::MACHINE,
        &key,
        json!({"metadata": {"ownerReferences": owners}}),
    );
    assert_eq!(
        bench.run(delete(&m, guard())).await,
        Ok(Outcome::MachineDeleted)
    );
}

/// A person takes it out of its MachineSet by its labels, or the set is made anew: the reference to the set stays.
#[tokio::test]
async fn a_machine_that_its_set_does_not_keep_is_not_deleted() {
    let bench = Bench::new(1, false).await;
    let (m, [(kind, key), (set_kind, set_key), _]) = of_cluster_api(&bench);
    let guard = within_the_limit;
    bench.run(open(&m, guard())).await.expect("it opens");
    let machine = || bench.world.api.get(kind, &key).expect("it is there");
    let refused = async || {
        let said = bench.run(delete(&m, guard())).await;
        assert_eq!(why(said), FenceRefusal::NoOwner);
        assert!(!machine().value.deleting());
    };
    let select = |of: Value| {
        let labels = json!({"kubernetes.io/os": "windows", "of": of});
        let spec = json!({"spec": {"selector": {"matchLabels": labels}}});
        bench.patch_object(set_kind, &set_key, spec);
    };
    select("others".into());
    refused().await;
    select(Value::Null);
    let owner = machine().value["metadata"]["ownerReferences"][0].clone();
    let own = |owner: &Value| {
        let owners = json!({"metadata": {"ownerReferences": [owner]}});
        bench.patch_object(kind, &key, owners);
    };
    for (field, another) in [("uid", "of-an-earlier-set"), ("name", "not-there")] {
        let mut stranger = owner.clone();
        stranger[field] = another.into();
        own(&stranger);
        refused().await;
    }
    own(&owner);
    assert_eq!(
        bench.run(delete(&m, guard())).await,
        Ok(Outcome::MachineDeleted)
    );
}

/// Two dormers in two namespaces count their tokens apart, so that both may hold the same number.
#[tokio::test]
async fn a_machine_of_another_dormer_is_left_alone() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    bench.pod(&m, "a", json!({}));
    let pool = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
        "metadata": {"name": "windows", "namespace": "dormer-b"}, "spec": {}});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dormer-b"}});
    for object in [namespace, pool] {
        bench.world.create(object).expect("another dormer's");
    }
    let settings = Settings {
        namespace: "dormer-b".into(),
        ..Settings::default()
    };
    let other = executor(&bench.world.kubeconfig(), &bench.gate, settings).await;
    bench
        .run(open(&m, within_the_limit()))
        .await
        .expect("it opens");
    let before = bench.marks(&m);
    for task in [
        open(&m, within_the_limit()),
        evict(&m, within_the_limit(), true),
        delete(&m, within_the_limit()),
    ] {
        assert_eq!(why(run(&other, task).await), FenceRefusal::OtherDormer);
    }
    for failure in [
        run(&other, mark(&m)).await.expect_err("marked"),
        other.note(&m, &m.name, "a key").await.expect_err("noted"),
    ] {
        assert_eq!(
            (failure.code.as_str(), failure.retry),
            ("OtherDormer", false)
        );
        assert!(
            failure
                .message
                .contains("the namespace dormer has the Machine"),
            "{failure:?}"
        );
    }
    assert_eq!(bench.marks(&m), before);
    assert_eq!(bench.remaining_pods(), ["a"]);
    assert_eq!(
        bench
            .run(evict(&m, within_the_limit(), false))
            .await
            .map(drop),
        Ok(()),
        "its own dormer goes on"
    );
    bench.run(close(&m)).await.expect("it closes");
    // A person gives it to the other one.
    let key = Key::new(m.namespace.as_str(), m.name.as_str());
    let none = json!({"metadata": {"annotations": {keys::INSTALLATION: null}}});
    bench.patch_object(&kinds::MACHINE, &key, none);
    other.note(&m, &m.name, "a key").await.expect("noted");
    assert_eq!(
        why(bench.run(open_at(&m, 2)).await),
        FenceRefusal::OtherDormer
    );
    assert!(matches!(
        run(&other, open_at(&m, 2)).await,
        Ok(Outcome::FenceOpened { .. })
    ));
}

fn open_at(machine: &MachineRef, token: u64) -> Task {
    Task::OpenFence {
        machine: machine.clone(),
        node: Some(machine.name.clone()),
        token: LeaseToken(token),
        over_limit: false,
        cordon: true,
        guard: Guard::default(),
    }
}
