//! Difficult drains by the real eviction API: evicted pods, remaining pods, and the reported blockers.

use super::{
    accounts::worker,
    cluster::{BUDGET, Kind, NODE, PATIENCE, POD, Site, World, evict, guarded, open, plane, run},
};
use dormer_proto::machine::{Guard, MachineRef, Outcome};
use dormer_testkit::await_some;
use dormer_workers::kubernetes::KubernetesExecutor;
use serde_json::{Value, json};

const NAMESPACE: Kind = ("", "v1", "Namespace");
const ATTACHMENT: Kind = ("storage.k8s.io", "v1", "VolumeAttachment");

async fn opened(site: &Site) -> (KubernetesExecutor, MachineRef) {
    let executor = worker(site).await;
    let machine = site.joined("win-1").await;
    run(&executor, open(&machine, 1)).await.expect("it opens");
    (executor, machine)
}

/// One pass: how many were evicted, how many are left, and what is in the way.
async fn pass(executor: &KubernetesExecutor, machine: &MachineRef) -> (u32, u32, Vec<String>) {
    let outcome = run(executor, evict(machine, 1, false)).await;
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

/// A pod on the Machine's Node that runs; `more` is merged into it.
async fn pod(site: &Site, machine: &MachineRef, namespace: &str, name: &str, more: Value) {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"nodeName": machine.name, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}], "tolerations": [{"operator": "Exists"}]}});
    merge(&mut pod, more);
    site.world.create(pod).await;
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let status = json!({"phase": "Running", "conditions": ready});
    site.world.status(POD, namespace, name, status).await;
}

fn merge(into: &mut Value, more: Value) {
    match more {
        Value::Object(fields) => {
            fields
                .into_iter()
                .for_each(|(key, value)| merge(&mut into[key], value));
        }
        other => *into = other,
    }
}

/// Lets the drain begin anew, as a new token does: pods that are made from now on count as those of its first pass.
async fn drain_anew(site: &Site, machine: &MachineRef) {
    let note = json!({"metadata": {"annotations": {"dormer.io/newest-pod": null}}});
    site.world.patch(NODE, "", &machine.name, note).await;
}

async fn exists(world: &World, namespace: &str, name: &str) -> bool {
    world.get(POD, namespace, name).await.is_some()
}

#[tokio::test]
async fn a_mirror_pod_stays_and_a_pod_with_data_of_its_own_goes() {
    let site = Site::new(plane!(), "mirror").await;
    let (executor, m) = opened(&site).await;
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "a-hash"}}});
    pod(&site, &m, site.name, "static", mirror).await;
    let data = json!({"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}});
    pod(&site, &m, site.name, "scratch", data).await;
    assert_eq!(
        pass(&executor, &m).await,
        (1, 1, vec![]),
        "the one with the folder"
    );
    assert_eq!(
        pass(&executor, &m).await,
        (0, 0, vec![]),
        "the other is in nobody's way"
    );
    assert!(exists(&site.world, site.name, "static").await);
    assert!(!exists(&site.world, site.name, "scratch").await);
}

/// Behind a partition, a host that stays may still run pods that its kubelet should end, and write to its volumes.
#[tokio::test]
async fn the_host_stays_so_the_pods_of_a_silent_node_are_kept() {
    let site = Site::new(plane!(), "silent").await;
    let (executor, m) = opened(&site).await;
    let grace = json!({"spec": {"terminationGracePeriodSeconds": 1}});
    pod(&site, &m, site.name, "slow", grace).await;
    assert_eq!(pass(&executor, &m).await, (1, 1, vec![]));
    site.node_says_ready(&m, "Unknown", 0).await;
    drain_anew(&site, &m).await;
    let late = json!({"spec": {"terminationGracePeriodSeconds": 60}});
    pod(&site, &m, site.name, "late", late).await;
    let (evicted, left, blockers) = pass(&executor, &m).await;
    assert_eq!((evicted, left), (1, 2), "evictions need no kubelet");
    let way_out =
        "but its node does not answer: its containers may still run, so it is not deleted by force";
    let says = |name: &str, grace: u32| {
        format!("silent/{name}: it is ending, with {grace} s of grace, {way_out}")
    };
    assert_eq!(blockers, [says("slow", 1)]);
    for force in [false, true] {
        let outcome = run(&executor, evict(&m, 1, force)).await;
        let Ok(Outcome::Evicted {
            evicted: 0,
            left: 2,
            blockers,
            skipped,
        }) = outcome
        else {
            panic!("{outcome:?}")
        };
        assert!(blockers.iter().all(|it| it.until_off), "{blockers:?}");
        let blockers: Vec<String> = blockers
            .into_iter()
            .map(|b| format!("{}: {}", b.pod, b.why))
            .collect();
        assert_eq!(blockers, [says("late", 60), says("slow", 1)], "{force}");
        assert!(skipped.is_empty());
    }
    for name in ["slow", "late"] {
        assert!(exists(&site.world, site.name, name).await, "{name}");
        // The host is off: the person says so, and Kubernetes takes them away.
        site.world.delete(POD, site.name, name).await;
    }
    assert_eq!(pass(&executor, &m).await, (0, 0, vec![]));
}

/// Once a person says that the host is off, a forced drain of a host that stays ends: budgets and graces are not waited
/// for. The word counts only while the kubelet is silent, and only while it stands.
#[tokio::test]
async fn a_silent_host_that_stays_is_drained_once_a_person_says_that_it_is_off() {
    let site = Site::new(plane!(), "off").await;
    let (executor, m) = opened(&site).await;
    let held = json!({"metadata": {"finalizers": ["example.com/silent-kubelet"]},
        "spec": {"terminationGracePeriodSeconds": 3600}});
    for name in ["guarded", "second"] {
        pod(&site, &m, site.name, name, held.clone()).await;
    }
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "strict", "namespace": site.name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}});
    site.world.create(budget).await;
    await_some("the budget is computed", PATIENCE, || async {
        let budget = site.world.get(BUDGET, site.name, "strict").await?;
        (budget["status"]["currentHealthy"] == 1).then_some(())
    })
    .await;
    site.node_says_ready(&m, "Unknown", 0).await;
    let forced = async || {
        let outcome = run(&executor, evict(&m, 1, true)).await;
        let Ok(Outcome::Evicted {
            evicted,
            left,
            blockers,
            ..
        }) = outcome
        else {
            panic!("{outcome:?}")
        };
        (evicted, left, blockers)
    };
    let grace = async |name: &str| {
        let pod = site.world.get(POD, site.name, name).await.expect("a pod");
        pod["metadata"]["deletionGracePeriodSeconds"].clone()
    };
    let (evicted, left, blockers) = forced().await;
    assert_eq!((evicted, left), (1, 2), "by eviction, with its own grace");
    assert!(
        blockers[0].why.contains("budgets are not ignored"),
        "{blockers:?}"
    );
    assert_eq!(grace("second").await, 3600);

    let taints = |taints: Value| json!({"spec": {"taints": taints}});
    let off = json!([{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown",
        "effect": "NoExecute"}]);
    site.world
        .patch(NODE, "", &m.name, taints(off.clone()))
        .await;
    // The pod garbage collector may be first with the one that is ending.
    let (evicted, left, blockers) = forced().await;
    assert!(evicted >= 1 && left == 2, "{blockers:?}");
    for name in ["guarded", "second"] {
        assert_eq!(grace(name).await, 0, "{name}");
        site.world
            .patch(
                POD,
                site.name,
                name,
                json!({"metadata": {"finalizers": null}}),
            )
            .await;
    }
    await_some("the drain ends", PATIENCE, || async {
        (forced().await.1 == 0).then_some(())
    })
    .await;

    // The word is taken back, and the next pods are safe again.
    site.world
        .patch(NODE, "", &m.name, taints(Value::Null))
        .await;
    drain_anew(&site, &m).await;
    pod(&site, &m, site.name, "guarded", held).await;
    await_some("the budget is computed", PATIENCE, || async {
        let budget = site.world.get(BUDGET, site.name, "strict").await?;
        (budget["status"]["currentHealthy"] == 1).then_some(())
    })
    .await;
    let (evicted, left, blockers) = forced().await;
    assert_eq!((evicted, left, blockers.len()), (0, 1, 1));
    site.world.patch(NODE, "", &m.name, taints(off)).await;
    site.node_says_ready(&m, "True", 0).await;
    let (_, left, _) = forced().await;
    assert_eq!(left, 1);
    assert_eq!(
        grace("guarded").await,
        3600,
        "its kubelet is there to end it"
    );
    let free = json!({"metadata": {"finalizers": null}});
    site.world.patch(POD, site.name, "guarded", free).await;
}

/// The Machine API's rule for unreachable nodes: budgets hold, the grace is one second, and what is ending beyond it is
/// not waited for.
#[tokio::test]
async fn the_drain_of_a_dead_node_ends_where_its_machine_is_deleted_next() {
    let site = Site::new(plane!(), "dead").await;
    let (executor, m) = opened(&site).await;
    let grace = json!({"spec": {"terminationGracePeriodSeconds": 3600}});
    pod(&site, &m, site.name, "before", grace.clone()).await;
    assert_eq!(pass(&executor, &m).await, (1, 1, vec![]));
    site.node_says_ready(&m, "Unknown", 0).await;
    drain_anew(&site, &m).await;
    for name in ["guarded", "late"] {
        pod(&site, &m, site.name, name, grace.clone()).await;
    }
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "strict", "namespace": site.name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}});
    site.world.create(budget).await;
    await_some("the budget is computed", PATIENCE, || async {
        let budget = site.world.get(BUDGET, site.name, "strict").await?;
        (budget["status"]["currentHealthy"] == 1).then_some(())
    })
    .await;
    let recreate = || {
        let guard = Guard {
            recreate: true,
            ..Guard::default()
        };
        run(&executor, guarded(evict(&m, 1, false), guard))
    };
    let first = recreate().await;
    let Ok(Outcome::Evicted {
        evicted: 2,
        left: 3,
        blockers,
        skipped,
    }) = first
    else {
        panic!("{first:?}")
    };
    assert!(
        blockers.len() == 1 && blockers[0].why.contains("PodDisruptionBudget strict"),
        "{blockers:?}"
    );
    assert!(skipped.is_empty(), "{skipped:?}");
    for name in ["before", "late"] {
        let pod = site.world.get(POD, site.name, name).await.expect("a pod");
        assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 1, "{name}");
    }
    let skipped = await_some("their second is over", PATIENCE, || async {
        let outcome = recreate().await;
        let Ok(Outcome::Evicted { left, skipped, .. }) = outcome else {
            panic!("{outcome:?}")
        };
        (left == 1).then_some(skipped)
    })
    .await;
    let named: Vec<&str> = skipped.iter().map(|one| one.pod.as_str()).collect();
    assert_eq!(named, ["dead/before", "dead/late"]);
    site.world.delete(BUDGET, site.name, "strict").await;
    await_some(
        "the drain ends, with every pod's object there",
        PATIENCE,
        || async {
            let outcome = recreate().await;
            let Ok(Outcome::Evicted { left, skipped, .. }) = outcome else {
                panic!("{outcome:?}")
            };
            (left == 0 && skipped.len() == 3).then_some(())
        },
    )
    .await;
    for name in ["before", "guarded", "late"] {
        assert!(exists(&site.world, site.name, name).await, "{name}");
        site.world.delete(POD, site.name, name).await;
    }
}

#[tokio::test]
async fn a_pod_of_a_namespace_that_ends_is_waited_for_by_name() {
    let site = Site::new(plane!(), "ending").await;
    let (executor, m) = opened(&site).await;
    let ends = "ending-soon";
    site.world.namespace(ends).await;
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    pod(&site, &m, ends, "held", held).await;
    pod(&site, &m, site.name, "other", json!({})).await;
    site.world.delete(NAMESPACE, "", ends).await;
    await_some("the namespace's pods are going", PATIENCE, || async {
        let pod = site.world.get(POD, ends, "held").await?;
        pod["metadata"]["deletionTimestamp"]
            .is_string()
            .then_some(())
    })
    .await;
    let (evicted, left, blockers) = pass(&executor, &m).await;
    assert_eq!((evicted, left), (1, 2), "the other goes all the same");
    assert_eq!(
        blockers,
        ["ending-soon/held: it waits for its finalizers example.com/hold"]
    );
    site.world
        .patch(POD, ends, "held", json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(pass(&executor, &m).await, (0, 0, vec![]));
    await_some("the namespace is gone", PATIENCE, || async {
        site.world
            .get(NAMESPACE, "", ends)
            .await
            .is_none()
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_volume_that_stays_attached_holds_no_drain_and_is_left_alone() {
    let site = Site::new(plane!(), "volume").await;
    let (executor, m) = opened(&site).await;
    let claim = json!({"spec": {"volumes": [{"name": "data",
        "persistentVolumeClaim": {"claimName": "data-0"}}]}});
    pod(&site, &m, site.name, "data-0", claim).await;
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": "volume-held"}, "spec": {"attacher": "csi.example.com",
            "nodeName": m.name, "source": {"persistentVolumeName": "volume-data-0"}}});
    site.world.create(attachment).await;
    site.world
        .status(ATTACHMENT, "", "volume-held", json!({"attached": true}))
        .await;
    assert_eq!(pass(&executor, &m).await, (1, 1, vec![]));
    assert_eq!(
        pass(&executor, &m).await,
        (0, 0, vec![]),
        "that it is detached is the machine controller's care"
    );
    let held = site
        .world
        .get(ATTACHMENT, "", "volume-held")
        .await
        .expect("it stands");
    assert!(held["metadata"]["deletionTimestamp"].is_null());
    site.world.delete(ATTACHMENT, "", "volume-held").await;
}
