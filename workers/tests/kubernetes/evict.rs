//! Evictions: evicted pods, blockers, and reports.

use super::bench::{Bench, PATIENCE};
use dormer_fleet::api::{DeleteOptions, Key, Meta, User, kinds};
use dormer_proto::{
    id::LeaseToken,
    machine::{Blocker, Guard, MachineApi, MachineRef, NAMED_ITEMS_MAX, Outcome, Task},
};
use dormer_workers::{host::cluster::Cluster, kubernetes::keys};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

fn evict(machine: &MachineRef, token: u64, force: bool) -> Task {
    let node = machine.name.clone();
    let token = LeaseToken(token);
    Task::Evict {
        machine: machine.clone(),
        node,
        token,
        force,
        guard: Guard::default(),
    }
}

async fn opened(machines: u32) -> (Bench, MachineRef) {
    let bench = Bench::new(machines, false).await;
    let machine = bench.machines().remove(0);
    let node = Some(machine.name.clone());
    let token = LeaseToken(1);
    let open = Task::OpenFence {
        machine: machine.clone(),
        node,
        token,
        over_limit: false,
        cordon: true,
        guard: Guard::default(),
    };
    bench.run(open).await.expect("it opens");
    (bench, machine)
}

fn pass(outcome: Result<Outcome, dormer_proto::message::Failure>) -> (u32, u32, Vec<String>) {
    let Ok(Outcome::Evicted {
        evicted,
        left,
        blockers,
        ..
    }) = outcome
    else {
        panic!("no pass: {outcome:?}")
    };
    (
        evicted,
        left,
        blockers
            .into_iter()
            .map(|b| format!("{}: {}", b.pod, b.why))
            .collect(),
    )
}

/// A budget that allows nothing, for the pods of this name.
fn budget(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}})
}

#[tokio::test]
async fn what_a_drain_moves_goes_and_the_rest_stays() {
    let (bench, m) = opened(1).await;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u",
        "controller": true}]);
    bench.pod(&m, "plain", json!({}));
    bench.pod(&m, "daemon", json!({"ownerReferences": owner}));
    bench.pod(
        &m,
        "mirror",
        json!({"annotations": {"kubernetes.io/config.mirror": "x"}}),
    );
    bench.pod(&m, "held", json!({"finalizers": ["example.com/hold"]}));
    let remaining = bench
        .executor
        .machine_in_cluster(&m, Some(&m.name))
        .await
        .expect("a standing");
    assert_eq!((remaining.token, remaining.pods), (LeaseToken(1), 2));
    let (evicted, left, blockers) = pass(bench.run(evict(&m, 1, false)).await);
    assert_eq!(
        (evicted, left, blockers.len()),
        (2, 2, 0),
        "what is going still counts"
    );
    bench
        .until("the plain one is gone", || {
            let pods = bench.world.all(&dormer_fleet::api::kinds::POD);
            !pods.iter().any(|p| p.value["metadata"]["name"] == "plain")
        })
        .await;
    let (evicted, left, blockers) = pass(bench.run(evict(&m, 1, false)).await);
    assert_eq!((evicted, left), (0, 1));
    assert!(blockers[0].contains("default/held") && blockers[0].contains("example.com/hold"));
    let mut remaining = bench.remaining_pods();
    remaining.sort();
    assert_eq!(remaining, ["daemon", "mirror"]);
}

#[tokio::test]
async fn a_budget_holds_its_pods_and_force_does_not_ask() {
    let (bench, m) = opened(1).await;
    for name in ["guarded", "free"] {
        bench.pod(&m, name, json!({}));
    }
    bench.world.create(budget("guarded")).expect("a budget");
    let (evicted, left, blockers) = pass(bench.run(evict(&m, 1, false)).await);
    assert_eq!((evicted, left, blockers.len()), (1, 2, 1));
    assert!(blockers[0].starts_with("default/guarded: "), "{blockers:?}");
    assert!(
        blockers[0].contains("PodDisruptionBudget guarded"),
        "{blockers:?}"
    );
    assert_eq!(bench.remaining_pods(), ["guarded"]);
    let (evicted, _, _) = pass(bench.run(evict(&m, 1, true)).await);
    assert_eq!(evicted, 1);
    assert!(bench.remaining_pods().is_empty());
}

/// The engine's clock was set forward, and its timer came due at once.
#[tokio::test]
async fn budgets_count_until_the_api_servers_clock_says_that_the_drain_takes_too_long() {
    const HOUR_MS: u64 = 3_600_000;
    let (bench, m) = opened(1).await;
    bench.pod(&m, "guarded", json!({}));
    bench.world.create(budget("guarded")).expect("a budget");
    let forced = || {
        let Task::Evict {
            machine,
            node,
            token,
            force,
            ..
        } = evict(&m, 1, true)
        else {
            panic!("a pass")
        };
        Task::Evict {
            machine,
            node,
            token,
            force,
            guard: Guard {
                drain_ms: Some(HOUR_MS),
                ..Guard::default()
            },
        }
    };
    let open = |anew: bool| Task::OpenFence {
        machine: m.clone(),
        node: Some(m.name.clone()),
        token: LeaseToken(1),
        over_limit: false,
        cordon: true,
        guard: Guard {
            anew,
            ..Guard::default()
        },
    };
    let began = |seconds: i64| {
        let then = bench.world.api.clock().now() - SignedDuration::from_secs(seconds);
        let since = then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let key = Key::new(m.namespace.as_str(), m.name.as_str());
        let change = json!({"metadata": {"annotations": {keys::DRAINED_SINCE: since}}});
        bench.patch_object(&kinds::MACHINE, &key, change);
    };
    let kept = async |what: &str| {
        let (evicted, left, blockers) = pass(bench.run(forced()).await);
        assert_eq!((evicted, left), (0, 1), "{what}");
        assert!(
            blockers[0].contains("budgets are ignored after 3600 s"),
            "{what}: {blockers:?}"
        );
    };
    kept("it has just begun").await;
    began(30 * 60);
    kept("half an hour is missing").await;
    // A person uncordoned the Node: the drain starts over.
    began(2 * 60 * 60);
    bench.run(open(true)).await.expect("it opens");
    kept("it has begun anew").await;
    began(2 * 60 * 60);
    bench.run(open(false)).await.expect("a repeat");
    let (evicted, _, _) = pass(bench.run(forced()).await);
    assert_eq!(evicted, 1);
    let close = Task::CloseFence {
        machine: m.clone(),
        node: Some(m.name.clone()),
        token: LeaseToken(1),
    };
    bench.run(close).await.expect("it closes");
    let left = bench.machine(&m)["metadata"]["annotations"][keys::DRAINED_SINCE].clone();
    assert!(left.is_null(), "{left}");
}

/// A kubelet may write annotations of its own Node, and no removal of its host would ever end.
#[tokio::test]
async fn the_time_of_a_removals_drain_is_not_the_kubelets() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let key = Key::new("dormer", m.name.as_str());
    let host = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsHost",
        "metadata": {"name": m.name, "namespace": "dormer", "finalizers": [keys::HOST_FINALIZER],
            "annotations": {keys::NODE_NAME: m.name}},
        "spec": {"address": "10.0.9.9"}, "status": {"nodeRef": {"name": m.name}}});
    let host = bench.world.create(host).expect("a host");
    let host = MachineRef {
        namespace: "dormer".into(),
        name: m.name.clone(),
        uid: host.value.uid().to_owned(),
        api: MachineApi::Host,
    };
    let deleted = bench.world.api.delete(
        &User::admin(),
        &kinds::WINDOWS_HOST,
        &key,
        &DeleteOptions::now(),
    );
    deleted.expect("it is being deleted");
    bench.pod(&m, "guarded", json!({}));
    bench.world.create(budget("guarded")).expect("a budget");
    let forced = || Task::Evict {
        machine: host.clone(),
        node: m.name.clone(),
        token: LeaseToken(1),
        force: true,
        guard: Guard {
            drain_ms: Some(3_600_000),
            ..Guard::default()
        },
    };
    let (evicted, left, _) = pass(bench.run(forced()).await);
    assert_eq!((evicted, left), (0, 1), "it has just begun");
    assert!(bench.cordoned(&m));
    let forged =
        json!({"metadata": {"annotations": {keys::DRAINED_SINCE: "2099-01-01T00:00:00Z"}}});
    bench.patch_node(&m, forged);
    let then = bench.world.api.clock().now() - SignedDuration::from_secs(2 * 60 * 60);
    let since = then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let there = bench.world.api.get(&kinds::WINDOWS_HOST, &key);
    let there = there.expect("its finalizer holds it");
    assert!(there.value.annotation(keys::DRAINED_SINCE).is_some());
    let change = json!({"metadata": {"annotations": {keys::DRAINED_SINCE: since}}});
    bench.patch_object(&kinds::WINDOWS_HOST, &key, change);
    let (evicted, _, _) = pass(bench.run(forced()).await);
    assert_eq!(evicted, 1);
}

#[tokio::test]
async fn a_pod_that_nobody_can_evict_holds_no_other_up() {
    let (bench, m) = opened(1).await;
    for name in ["a", "two", "z"] {
        bench.pod(&m, name, json!({}));
    }
    for name in ["first", "second"] {
        let mut both = budget("two");
        both["metadata"]["name"] = name.into();
        bench.world.create(both).expect("a budget");
    }
    let (evicted, left, blockers) = pass(bench.run(evict(&m, 1, false)).await);
    assert_eq!((evicted, left), (2, 3));
    let why = "default/two: the disruption budgets first, second match it, and no pod with more than one can be \
               evicted: delete all of them but one";
    assert_eq!(blockers, [why]);
}

#[tokio::test]
async fn many_blockers_are_counted_and_some_are_named() {
    let (bench, m) = opened(1).await;
    let labels = json!({"labels": {"app": "many"}});
    for n in 0..20 {
        bench.pod(&m, &format!("many-{n}"), labels.clone());
    }
    let mut none = budget("many");
    none["spec"]["minAvailable"] = 20.into();
    bench.world.create(none).expect("a budget");
    let (evicted, left, blockers) = pass(bench.run(evict(&m, 1, false)).await);
    assert_eq!((evicted, left, blockers.len()), (0, 20, NAMED_ITEMS_MAX));
}

#[tokio::test]
async fn without_its_open_token_no_pod_is_touched() {
    let (bench, m) = opened(1).await;
    bench.pod(&m, "a", json!({}));
    for force in [false, true] {
        let outcome = bench.run(evict(&m, 2, force)).await;
        assert_eq!(outcome, Ok(Outcome::FenceClosedMeanwhile), "another token");
    }
    bench.close_at_once(&m, 1);
    for force in [false, true] {
        assert_eq!(
            bench.run(evict(&m, 1, force)).await,
            Ok(Outcome::FenceClosedMeanwhile)
        );
    }
    assert_eq!(bench.remaining_pods(), ["a"]);
}

/// What a pass names: those that hold the drain, and those that it does not wait for.
async fn named(bench: &Bench, task: Task) -> (u32, u32, Vec<String>, Vec<String>) {
    let Ok(Outcome::Evicted {
        evicted,
        left,
        blockers,
        skipped,
    }) = bench.run(task).await
    else {
        panic!("no pass")
    };
    let told = |all: Vec<Blocker>| -> Vec<String> {
        all.into_iter()
            .map(|one| format!("{}: {}", one.pod, one.why))
            .collect()
    };
    (evicted, left, told(blockers), told(skipped))
}

/// The Machine API's rule, where the Machine is deleted next: budgets hold, the grace is one second, and what is ending
/// beyond it is not waited for.
#[tokio::test]
async fn the_drain_of_an_unreachable_node_ends_where_its_machine_is_deleted_next() {
    let (bench, m) = opened(1).await;
    bench.node_is_silent(&m);
    for name in ["guarded", "slow"] {
        bench.pod(
            &m,
            name,
            json!({"finalizers": ["example.com/silent-kubelet"]}),
        );
    }
    bench.world.create(budget("guarded")).expect("a budget");
    let recreating = || {
        let Task::Evict {
            machine,
            node,
            token,
            force,
            ..
        } = evict(&m, 1, false)
        else {
            unreachable!("an eviction")
        };
        let guard = Guard {
            recreate: true,
            ..Guard::default()
        };
        Task::Evict {
            machine,
            node,
            token,
            force,
            guard,
        }
    };
    // Where the host stays nothing is forced.
    let (evicted, left, blockers, skipped) = named(&bench, evict(&m, 1, true)).await;
    assert_eq!((evicted, left, skipped.len()), (1, 2, 0));
    assert!(
        blockers[0].contains("PodDisruptionBudget guarded")
            && blockers[0].ends_with("its node does not answer, so budgets are not ignored"),
        "{blockers:?}"
    );
    // From now on the world counts: its taint manager ends the other one in time, whatever its budget says.
    bench.node_says_ready(&m, "Unknown");
    let ended = dormer_testkit::await_some("no pod is waited for", PATIENCE, || async {
        let (_, left, _, skipped) = named(&bench, recreating()).await;
        (left == 0).then_some(skipped)
    });
    let skipped = ended.await;
    for (one, name) in skipped.iter().zip(["guarded", "slow"]) {
        assert!(
            one.starts_with(&format!("default/{name}: "))
                && one.ends_with("and its node does not answer"),
            "{skipped:?}"
        );
    }
    assert_eq!(skipped.len(), 2);
    let (evicted, left, blockers, skipped) = named(&bench, evict(&m, 1, true)).await;
    assert_eq!((evicted, left, skipped.len()), (0, 2, 0));
    assert!(
        blockers
            .iter()
            .all(|it| it.contains("its containers may still run")),
        "{blockers:?}"
    );
}

/// Where the host stays, only a person's word that it is off lets its pods be deleted by force; their grace is not
/// waited for, because no kubelet ends it.
#[tokio::test]
async fn a_silent_host_that_stays_is_drained_by_force_once_a_person_says_that_it_is_off() {
    let (bench, m) = opened(1).await;
    bench.node_is_silent(&m);
    let held = json!({"finalizers": ["example.com/silent-kubelet"]});
    bench.pod(&m, "guarded", held.clone());
    bench.world.create(budget("guarded")).expect("a budget");
    let (evicted, left, blockers, _) = named(&bench, evict(&m, 1, true)).await;
    assert_eq!((evicted, left, blockers.len()), (0, 1, 1));
    let taints = |key: &str| {
        let taint = json!({"key": key, "effect": "NoExecute"});
        json!({"spec": {"taints": [taint]}})
    };
    // Kubernetes itself sets this one, and knows nothing of the host.
    bench.patch_node(&m, taints("node.kubernetes.io/unreachable"));
    assert_eq!(named(&bench, evict(&m, 1, true)).await.0, 0);
    bench.patch_node(&m, taints("node.kubernetes.io/out-of-service"));
    let (evicted, left, blockers, _) = named(&bench, evict(&m, 1, false)).await;
    assert_eq!((evicted, left), (0, 1), "without force budgets hold");
    assert!(blockers[0].contains("PodDisruptionBudget guarded"));
    assert_eq!(named(&bench, evict(&m, 1, true)).await.0, 1);
    let pods = bench.world.all(&dormer_fleet::api::kinds::POD);
    let pod = pods
        .iter()
        .find(|pod| pod.value["metadata"]["name"] == "guarded")
        .expect("its finalizer holds it");
    assert_eq!(pod.value["metadata"]["deletionGracePeriodSeconds"], 0);
    let (evicted, left, blockers, _) = named(&bench, evict(&m, 1, true)).await;
    assert_eq!((evicted, left), (0, 1));
    assert_eq!(
        blockers,
        ["default/guarded: it waits for its finalizers example.com/silent-kubelet"]
    );
}

/// The cloud controller manager saw the instance shut down: what ran there has ended.
#[tokio::test]
async fn a_silent_host_that_its_cloud_found_shut_down_is_drained_by_force() {
    let (bench, m) = opened(1).await;
    bench.node_is_silent(&m);
    let held = json!({"finalizers": ["example.com/silent-kubelet"]});
    bench.pod(&m, "guarded", held);
    bench.world.create(budget("guarded")).expect("a budget");
    let shut_down = |provider_id: &str| {
        let taint =
            json!({"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"});
        json!({"spec": {"providerID": provider_id, "taints": [taint]}})
    };
    // These set it for an instance that is suspended, or still being deallocated; of others nothing is known.
    for cloud in ["vsphere://4230", "azure:///subscriptions/s", "bare:///1"] {
        bench.patch_node(&m, shut_down(cloud));
        assert_eq!(named(&bench, evict(&m, 1, true)).await.0, 0, "{cloud}");
    }
    // Its kubelet answers, or did a moment ago: the word is about an earlier time.
    bench.node_says_ready(&m, "False");
    bench.patch_node(&m, shut_down("aws:///us-east-1a/i-1"));
    assert_eq!(named(&bench, evict(&m, 1, false)).await.0, 0);
    bench.node_is_silent(&m);
    let (evicted, left, blockers, _) = named(&bench, evict(&m, 1, false)).await;
    assert_eq!((evicted, left), (0, 1), "without force budgets hold");
    assert!(blockers[0].contains("PodDisruptionBudget guarded"));
    assert_eq!(named(&bench, evict(&m, 1, true)).await.0, 1);
    let pods = bench.world.all(&dormer_fleet::api::kinds::POD);
    let pod = pods
        .iter()
        .find(|pod| pod.value["metadata"]["name"] == "guarded")
        .expect("its finalizer holds it");
    assert_eq!(pod.value["metadata"]["deletionGracePeriodSeconds"], 0);
}

/// The word that a host is off is read again before each pod: taken back in mid-pass, whatever the worker does then, it
/// costs at most the pod whose DELETE was under way.
#[tokio::test]
async fn the_word_that_a_host_is_off_may_be_taken_back_in_the_middle_of_a_drain() {
    let (bench, m) = opened(1).await;
    bench.node_is_silent(&m);
    let off = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
    let mut forced_after = Vec::new();
    for skip in 0.. {
        let names: Vec<String> = (0..3).map(|pod| format!("pod-{skip}-{pod}")).collect();
        for name in &names {
            bench.pod(&m, name, json!({}));
            bench.world.create(budget(name)).expect("a budget");
        }
        // Each round is a drain of its own.
        let anew = json!({"dormer.io/newest-pod": null});
        bench.patch_node(
            &m,
            json!({"spec": {"taints": off}, "metadata": {"annotations": anew}}),
        );
        let stood = Arc::new(Mutex::new(0));
        let there = bench.clone();
        let machine = m.clone();
        let count = Arc::clone(&stood);
        bench.gate.before(skip, move || {
            *count.lock().expect("unpoisoned") = there.remaining_pods().len();
            there.patch_node(&machine, json!({"spec": {"taints": null}}));
        });
        let outcome = bench.run(evict(&m, 1, true)).await;
        if !bench.gate.passed().1 {
            break;
        }
        assert!(
            matches!(outcome, Ok(Outcome::Evicted { .. })),
            "{outcome:?}"
        );
        let stood = *stood.lock().expect("unpoisoned");
        forced_after.push(stood - bench.remaining_pods().len());
        // Without that word nothing is forced: the next pass finds the budgets again.
        let before = bench.remaining_pods();
        bench.run(evict(&m, 1, true)).await.expect("a pass");
        assert_eq!(bench.remaining_pods(), before);
        bench.patch_node(&m, json!({"spec": {"taints": off}}));
        bench.run(evict(&m, 1, true)).await.expect("a pass");
        assert_eq!(bench.remaining_pods(), Vec::<String>::new());
    }
    assert!(
        forced_after.len() > 6,
        "a read and a DELETE for each: {forced_after:?}"
    );
    assert!(
        forced_after.iter().all(|forced| *forced <= 1),
        "pods forced after the word was taken back, by the call before which it was: {forced_after:?}"
    );
    assert!(
        forced_after.contains(&1),
        "a DELETE was under way: {forced_after:?}"
    );
}

/// Once the world's clock, which stamps what is made, shows another second.
async fn next_second(bench: &Bench) {
    let now = bench.world.clock.stamp();
    bench
        .until("the next second", || bench.world.clock.stamp() != now)
        .await;
}

/// The scheduler chose the node before the cordon, and bound the pod when its volume was there.
#[tokio::test]
async fn a_late_pod_that_does_not_tolerate_the_cordon_is_evicted() {
    let (bench, m) = opened(1).await;
    bench.pod(&m, "held", json!({"finalizers": ["example.com/hold"]}));
    named(&bench, evict(&m, 1, false)).await;
    next_second(&bench).await;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "db-0", "namespace": "default"},
        "spec": {"nodeName": m.name, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"}});
    bench.world.create(pod.clone()).expect("a pod");
    let (evicted, left, _, skipped) = named(&bench, evict(&m, 1, false)).await;
    assert_eq!((evicted, left, skipped.len()), (1, 2, 0));
    // Not one that is named so and only tolerates something else.
    pod["metadata"]["name"] = "db-1".into();
    pod["spec"]["tolerations"] = json!([{"key": "os", "operator": "Exists"}]);
    bench.world.create(pod).expect("a pod");
    let (evicted, _, _, skipped) = named(&bench, evict(&m, 1, false)).await;
    assert_eq!((evicted, skipped.len()), (1, 0));
}

/// What tolerates the cordon and is made again by its controller is evicted once.
#[tokio::test]
async fn a_pod_that_comes_back_during_a_drain_is_not_evicted_again() {
    let (bench, m) = opened(1).await;
    bench.pod(&m, "held", json!({"finalizers": ["example.com/hold"]}));
    bench.pod(&m, "web-1", json!({}));
    let (evicted, left, _, skipped) = named(&bench, evict(&m, 1, false)).await;
    assert_eq!((evicted, left, skipped.len()), (2, 2, 0));
    bench
        .until("the first one is gone", || {
            let pods = bench.world.all(&dormer_fleet::api::kinds::POD);
            !pods.iter().any(|p| p.value["metadata"]["name"] == "web-1")
        })
        .await;
    next_second(&bench).await;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
        "controller": true}]);
    bench.pod(&m, "web-2", json!({"ownerReferences": owner}));
    for force in [false, true] {
        let (evicted, left, blockers, skipped) = named(&bench, evict(&m, 1, force)).await;
        assert_eq!((evicted, left), (0, 1), "{blockers:?}");
        assert!(blockers[0].starts_with("default/held"), "{blockers:?}");
        let why = "default/web-2: it came after the drain began: it tolerates the cordon, and ReplicaSet web makes it \
                   again; it is not evicted, and ends with the node";
        assert_eq!(skipped, [why]);
    }
    assert_eq!(bench.remaining_pods(), ["web-2"]);

    // A person who uncordons the node allows its use: what came meanwhile is moved like everything else.
    bench.patch_node(&m, json!({"spec": {"unschedulable": null}}));
    let (evicted, _, _, skipped) = named(&bench, evict(&m, 1, false)).await;
    assert_eq!((evicted, skipped.len()), (1, 0));
    bench.pod(&m, "web-3", json!({}));
    let open = Task::OpenFence {
        machine: m.clone(),
        node: Some(m.name.clone()),
        token: LeaseToken(1),
        over_limit: false,
        cordon: true,
        guard: Guard::default(),
    };
    bench.run(open.clone()).await.expect("it opens again");
    let (evicted, _, _, skipped) = named(&bench, evict(&m, 1, false)).await;
    assert_eq!((evicted, skipped.len()), (1, 0));

    // The same token over a node that is cordoned is a repeat, and begins nothing anew.
    next_second(&bench).await;
    bench.pod(&m, "web-4", json!({}));
    bench.run(open).await.expect("a repeat");
    let (evicted, _, _, skipped) = named(&bench, evict(&m, 1, false)).await;
    assert_eq!((evicted, skipped.len()), (0, 1));

    // It goes with the fence.
    let close = Task::CloseFence {
        machine: m.clone(),
        node: Some(m.name.clone()),
        token: LeaseToken(1),
    };
    bench.run(close).await.expect("it closes");
    let note = &bench.node(&m)["metadata"]["annotations"]["dormer.io/newest-pod"];
    assert!(note.is_null(), "{note}");
}
