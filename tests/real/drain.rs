//! Evictions by the real eviction API, under budgets that the real disruption controller computes.

use super::{
    accounts::{home, ours, worker},
    cluster::{
        BUDGET, NODE, PATIENCE, POD, Site, World, config, evict, executor, open, plane, run,
    },
};
use dormer_proto::{
    id::LeaseToken,
    machine::{MachineRef, Outcome},
    message::Failure,
};
use dormer_testkit::await_some;
use dormer_workers::{host::cluster::Cluster, kubernetes::KubernetesExecutor};
use futures::future::BoxFuture;
use hyper::{Request, Response};
use kube::client::{Body, ClientBuilder};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll},
};
use tower::{Layer, Service, ServiceExt};

async fn opened(site: &Site) -> (KubernetesExecutor, MachineRef) {
    let executor = worker(site).await;
    let machine = site.joined("win-1").await;
    run(&executor, open(&machine, 1)).await.expect("it opens");
    (executor, machine)
}

fn pass(outcome: Result<Outcome, Failure>) -> (u32, u32, Vec<String>) {
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

/// A budget for the pods of this application, once the controller has computed it.
async fn budget(site: &Site, name: &str, app: &str, min_available: u32) {
    let spec = json!({"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}});
    site.world
        .create(
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": site.name}, "spec": spec}),
        )
        .await;
    computed(site, name, |status| {
        status["currentHealthy"] == status["expectedPods"]
    })
    .await;
}

async fn computed(site: &Site, name: &str, so: impl Fn(&Value) -> bool) {
    await_some("the budget is computed", PATIENCE, || async {
        let budget = site.world.get(BUDGET, site.name, name).await?;
        let seen = budget["status"]["observedGeneration"] == budget["metadata"]["generation"];
        (seen && so(&budget["status"])).then_some(())
    })
    .await;
}

/// The names of the test's pods that stand and are not going.
async fn remaining(site: &Site, names: &[&str]) -> Vec<String> {
    let mut left = Vec::new();
    for name in names {
        let pod = site.world.get(POD, site.name, name).await;
        if pod.is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
            left.push((*name).to_owned());
        }
    }
    left
}

#[tokio::test]
async fn what_a_drain_moves_goes_and_the_rest_stays() {
    let site = Site::new(plane!(), "drain").await;
    let (executor, m) = opened(&site).await;
    // Its owner has to exist: the garbage collector would take the pod otherwise.
    let daemons = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "d", "namespace": site.name},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": {"app": "d"}},
                "spec": {"nodeSelector": {"nowhere": ""}, "containers": [{"name": "c", "image": "i"}]}}}});
    let daemons = site.world.create(daemons).await;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d",
        "uid": daemons["metadata"]["uid"], "controller": true}]);
    site.pod(&m, "plain", json!({})).await;
    site.pod(
        &m,
        "of-a-daemon",
        json!({"ownerReferences": owner, "labels": {"app": "other"}}),
    )
    .await;
    site.pod(&m, "held", json!({"finalizers": ["example.com/hold"]}))
        .await;
    site.pod(&m, "ended", json!({})).await;
    site.world
        .status(POD, site.name, "ended", json!({"phase": "Succeeded"}))
        .await;
    let in_cluster = executor
        .machine_in_cluster(&m, Some(&m.name))
        .await
        .expect("a standing");
    assert_eq!(in_cluster.token, LeaseToken(1));
    let (evicted, left, blockers) = pass(run(&executor, evict(&m, 1, false)).await);
    assert!(
        evicted >= 2 && left == evicted && blockers.is_empty(),
        "{evicted} {left} {blockers:?}"
    );
    assert!(
        site.world.get(POD, site.name, "plain").await.is_none(),
        "it had no grace"
    );
    let (evicted, left, blockers) = pass(run(&executor, evict(&m, 1, false)).await);
    assert_eq!((evicted, left), (0, 1));
    assert!(blockers[0].contains("drain/held") && blockers[0].contains("example.com/hold"));
    let stays = remaining(&site, &["plain", "held", "ended"]).await;
    assert_eq!(stays, ["ended"], "one that has ended is in nobody's way");
    site.world
        .patch(
            POD,
            site.name,
            "held",
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
}

#[tokio::test]
async fn a_budget_holds_its_pods_until_it_allows_one_and_force_does_not_ask() {
    let site = Site::new(plane!(), "budget").await;
    let (executor, m) = opened(&site).await;
    for name in ["guarded-1", "guarded-2"] {
        site.pod(&m, name, json!({"labels": {"app": "guarded"}}))
            .await;
    }
    site.pod(&m, "free", json!({})).await;
    budget(&site, "strict", "guarded", 2).await;
    let (evicted, left, blockers) = pass(run(&executor, evict(&m, 1, false)).await);
    assert_eq!((evicted, left, blockers.len()), (1, 3, 2));
    assert!(
        blockers[0].starts_with("budget/guarded-1: "),
        "{blockers:?}"
    );
    assert!(
        blockers[0]
            .contains("PodDisruptionBudget strict asks for 2 healthy pods, and 2 are healthy"),
        "{blockers:?}"
    );
    // The budget allows one: exactly one goes, and the budget is used up.
    site.world
        .patch(
            BUDGET,
            site.name,
            "strict",
            json!({"spec": {"minAvailable": 1}}),
        )
        .await;
    computed(&site, "strict", |status| status["disruptionsAllowed"] == 1).await;
    let (evicted, left, blockers) = pass(run(&executor, evict(&m, 1, false)).await);
    assert_eq!((evicted, left, blockers.len()), (1, 2, 1), "{blockers:?}");
    let (evicted, _, _) = pass(run(&executor, evict(&m, 1, true)).await);
    assert_eq!(evicted, 1);
    assert!(
        remaining(&site, &["guarded-1", "guarded-2", "free"])
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn two_budgets_on_one_pod_block_it_and_no_other() {
    let site = Site::new(plane!(), "twice").await;
    let (executor, m) = opened(&site).await;
    for name in ["a", "two", "z"] {
        site.pod(&m, name, json!({})).await;
    }
    for name in ["first", "second"] {
        budget(&site, name, "two", 0).await;
    }
    let (evicted, left, blockers) = pass(run(&executor, evict(&m, 1, false)).await);
    assert_eq!((evicted, left), (2, 3));
    let why = "twice/two: the disruption budgets first, second match it, and no pod with more than one can be \
               evicted: delete all of them but one";
    assert_eq!(blockers, [why]);
}

#[tokio::test]
async fn a_closed_fence_evicts_nothing() {
    let site = Site::new(plane!(), "shut").await;
    let (executor, m) = opened(&site).await;
    site.pod(&m, "stays", json!({})).await;
    let closed = Ok(Outcome::FenceClosedMeanwhile);
    assert_eq!(
        run(&executor, evict(&m, 2, false)).await,
        closed,
        "another token"
    );
    run(&executor, super::cluster::close(&m, 1))
        .await
        .expect("it closes");
    for force in [false, true] {
        assert_eq!(run(&executor, evict(&m, 1, force)).await, closed);
    }
    assert_eq!(remaining(&site, &["stays"]).await, ["stays"]);
}

/// Lets the scheduler place pods that ask for the test's nodes there. (A new Node's taint is not taken away here: that
/// is the business of a controller that would miss the heartbeats of these nodes.)
async fn schedulable(site: &Site, machine: &MachineRef) {
    let room = json!({"pods": "110", "cpu": "4", "memory": "8Gi"});
    site.world
        .status(
            NODE,
            "",
            &machine.name,
            json!({"capacity": room, "allocatable": room}),
        )
        .await;
    let change = json!({"metadata": {"labels": {"site": site.name}}, "spec": {"taints": null}});
    site.world.patch(NODE, "", &machine.name, change).await;
}

#[tokio::test]
async fn a_pod_that_comes_back_under_its_name_goes_elsewhere_and_is_left_alone() {
    let site = Site::new(plane!(), "spread").await;
    let executor = worker(&site).await;
    let machines = [site.joined("win-1").await, site.joined("win-2").await];
    for machine in &machines {
        schedulable(&site, machine).await;
    }
    let labels = json!({"app": "db"});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"nodeSelector": {"site": site.name},
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": site.name},
        "spec": {"replicas": 1, "serviceName": "db", "selector": {"matchLabels": labels},
            "template": pod}});
    site.world.create(set).await;
    let node_of = |not: String| {
        let site = &site;
        await_some("the scheduler places it", PATIENCE, move || {
            let not = not.clone();
            async move {
                let pod = site.world.get(POD, site.name, "db-0").await?;
                let node = pod["spec"]["nodeName"].as_str()?.to_owned();
                (node != not).then_some(node)
            }
        })
    };
    let node = node_of(String::new()).await;
    let machine = machines
        .iter()
        .find(|machine| machine.name == node)
        .expect("one of ours");
    run(&executor, open(machine, 1)).await.expect("it opens");
    let (evicted, left, blockers) = pass(run(&executor, evict(machine, 1, false)).await);
    assert_eq!((evicted, left, blockers.len()), (1, 1, 0));
    let other = node_of(node).await;
    assert!(machines.iter().any(|machine| machine.name == other));
    let (evicted, left, _) = pass(run(&executor, evict(machine, 1, false)).await);
    assert_eq!(
        (evicted, left),
        (0, 0),
        "nothing new came to the cordoned node"
    );
    assert_eq!(remaining(&site, &["db-0"]).await, ["db-0"]);
}

/// A connection on which another pod takes the name of the one that is evicted, just before the first eviction is sent.
#[derive(Clone)]
struct Swap {
    world: World,
    pod: Value,
    /// What the API server answered to evictions.
    answers: Arc<Mutex<Vec<u16>>>,
}

impl Swap {
    async fn happen(&self) {
        let field = |field: &str| self.pod["metadata"][field].as_str().expect("text");
        let namespace = field("namespace");
        let name = field("name");
        self.world.delete(POD, namespace, name).await;
        self.world.create(self.pod.clone()).await;
    }
}

struct Swapping<S>(Arc<tokio::sync::Mutex<S>>, Swap);

impl<S> Layer<S> for Swap {
    type Service = Swapping<S>;
    fn layer(&self, inner: S) -> Swapping<S> {
        Swapping(Arc::new(tokio::sync::Mutex::new(inner)), self.clone())
    }
}

impl<S, B> Service<Request<Body>> for Swapping<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        let swap = self.1.clone();
        Box::pin(async move {
            let evicts = request.uri().path().ends_with("/eviction");
            if evicts {
                swap.happen().await;
            }
            let answer = inner.lock().await.ready().await?.call(request);
            let answer = answer.await?;
            if evicts {
                let code = answer.status().as_u16();
                swap.answers.lock().expect("unpoisoned").push(code);
            }
            Ok(answer)
        })
    }
}

/// The pod that was listed has gone, and one of its name runs elsewhere by now.
#[tokio::test]
async fn a_pod_of_the_same_name_with_another_uid_is_not_evicted() {
    let site = Site::new(plane!(), "uid").await;
    let (_, m) = opened(&site).await;
    let other = site.joined("win-2").await;
    site.pod(&m, "db-0", json!({})).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "db-0", "namespace": site.name},
        "spec": {"nodeName": other.name, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}], "tolerations": [{"operator": "Exists"}]}});
    let swap = Swap {
        world: site.world.clone(),
        pod,
        answers: Arc::default(),
    };
    let speaker = ours(&site, "dormer-worker").await;
    let config = config(&site.plane.kubeconfig(&speaker)).await;
    let builder = ClientBuilder::try_from(config).expect("a client");
    let executor = executor(builder.with_layer(&swap).build(), home(&site));
    let (evicted, left, blockers) = pass(run(&executor, evict(&m, 1, false)).await);
    assert_eq!((evicted, left, blockers.len()), (0, 1, 0));
    assert_eq!(*swap.answers.lock().expect("unpoisoned"), [409]);
    let there = site.world.get(POD, site.name, "db-0").await;
    let there = there.expect("the new one stays");
    assert_eq!(there["spec"]["nodeName"], other.name);
    assert!(there["metadata"]["deletionTimestamp"].is_null(), "{there}");
    let (evicted, left, _) = pass(run(&executor, evict(&m, 1, false)).await);
    assert_eq!(
        (evicted, left),
        (0, 0),
        "the next pass sees that it has gone"
    );
}

/// A workload whose controller makes each pod again on the cordoned node, which it tolerates.
#[tokio::test]
async fn a_pod_that_tolerates_the_cordon_does_not_hold_a_drain() {
    let site = Site::new(plane!(), "tolerates").await;
    let executor = worker(&site).await;
    let m = site.joined("win-1").await;
    schedulable(&site, &m).await;
    let labels = json!({"app": "agent"});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"nodeSelector": {"site": site.name},
        "tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "agent", "namespace": site.name},
        "spec": {"replicas": 1, "serviceName": "agent", "selector": {"matchLabels": labels},
            "template": pod}});
    site.world.create(set).await;
    let runs = || {
        let site = &site;
        await_some("the scheduler binds it", PATIENCE, move || async move {
            let pod = site.world.get(POD, site.name, "agent-0").await?;
            pod["spec"]["nodeName"].as_str()?;
            Some(pod["metadata"]["uid"].clone())
        })
    };
    let first = runs().await;
    run(&executor, open(&m, 1)).await.expect("it opens");
    let mut evictions = 0;
    // One that is made within the second in which the first was made cannot be distinguished from it, and is evicted again.
    let skipped = loop {
        runs().await;
        let outcome = run(&executor, evict(&m, 1, false)).await;
        let Ok(Outcome::Evicted {
            evicted,
            left,
            skipped,
            ..
        }) = outcome
        else {
            panic!("no pass: {outcome:?}")
        };
        evictions += evicted;
        assert!(evictions < 100, "it is evicted for ever");
        if left == 0 && !skipped.is_empty() {
            break skipped;
        }
    };
    assert!(evictions > 0);
    let why = "it came after the drain began: it tolerates the cordon, and StatefulSet agent makes it again";
    assert!(skipped[0].why.starts_with(why), "{skipped:?}");
    let back = runs().await;
    assert_ne!(first, back, "it was evicted once");
    let (evicted, left, blockers) = pass(run(&executor, evict(&m, 1, true)).await);
    assert_eq!((evicted, left), (0, 0), "{blockers:?}");
    assert_eq!(runs().await, back, "and left alone afterwards");
}
