//! Machines of several APIs in one cluster, and clusters that have one of them only.

use super::{
    actions::{patch, windows, world},
    bench::{Bench, KnownFacts, Pool, Recorder, run_of},
};
use dormer_fleet::{
    World,
    api::{Grant, Key, Meta, User, kinds, kinds::Kind},
};
use dormer_proto::{
    machine::{self, MachineApi, MachineFact, NodeFact},
    work::Fact,
};
use dormer_workers::watcher::{Options, SourceState, Status};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

const HOME: &str = "openshift-cluster-api";
/// What OpenShift serves, and plain Kubernetes does not.
const OPENSHIFT: [&str; 4] = [
    "machine.openshift.io",
    "config.openshift.io",
    "operator.openshift.io",
    "machineconfiguration.openshift.io",
];

/// The namespace of Cluster API's machines, where the world has none.
fn home(world: &World) {
    if world
        .api
        .get(&kinds::NAMESPACE, &Key::new("", HOME))
        .is_err()
    {
        let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}});
        world.create(home).expect("a namespace");
    }
}

/// A Machine of Cluster API in its version v1beta2, linked with a Node of its own by the name alone.
fn cluster_machine(world: &World, name: &str, labels: Value) -> String {
    home(world);
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows"}},
        "spec": {"providerID": format!("test:///{name}")}});
    world.create(node).expect("a Node");
    let made = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": name, "namespace": HOME, "labels": labels,
            "annotations": {"machine.cluster.x-k8s.io/exclude-node-draining": ""},
            "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet",
                "name": "set", "uid": "set-uid", "controller": true}]},
        "spec": {"providerID": format!("test:///{name}"),
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AzureMachine",
                "name": name}},
        "status": {"phase": "Running", "nodeRef": {"name": name},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}});
    let made = world.create(made).expect("a Machine");
    made.value.uid().to_owned()
}

fn labelled() -> Value {
    json!({"machine.openshift.io/os-id": "Windows"})
}

fn machine_fact(state: &KnownFacts, uid: &str) -> Option<MachineFact> {
    let facts = state.facts(&run_of(uid)).into_values();
    facts.into_iter().find_map(|fact| match fact {
        Fact::Machine(machine::Fact::Machine(fact)) => Some(fact),
        _ => None,
    })
}

fn node_fact(state: &KnownFacts, uid: &str) -> Option<NodeFact> {
    let facts = state.facts(&run_of(uid)).into_values();
    facts.into_iter().find_map(|fact| match fact {
        Fact::Machine(machine::Fact::Node(fact)) => Some(fact),
        _ => None,
    })
}

/// Waits for the Machine of the Machine API, with its Node.
async fn all_serve(bench: &Bench, world: &World) {
    let served = |state: &KnownFacts| {
        let machine = windows(world).first()?.uid().to_owned();
        node_fact(state, &machine).filter(|node| node.ready)
    };
    bench.until("its Node is ready", served).await;
}

fn state_of<'a>(status: &'a Status, what: &str) -> Option<&'a SourceState> {
    let source = status.sources.iter().find(|it| it.what.starts_with(what));
    source.map(|it| &it.state)
}

#[tokio::test]
async fn without_openshift_the_machines_of_cluster_api_are_found_in_either_version() {
    let world = world(0, &[]).await;
    world.api.unserve(&OPENSHIFT);
    let bench = Bench::start(&world, Pool::newest()).await;
    let uid = cluster_machine(&world, "win-a", json!({"kubernetes.io/os": "windows"}));
    cluster_machine(&world, "linux-a", json!({"kubernetes.io/os": "linux"}));
    let told = bench.until("the Machine with its Node", |state| {
        node_fact(state, &uid)?;
        machine_fact(state, &uid)
    });
    let told = told.await;
    assert_eq!(told.machine.api, MachineApi::ClusterV1Beta2);
    assert_eq!(told.platform, "Azure");
    assert!(told.exclude_drain);
    assert_eq!(
        told.drain_excluded_by,
        ["machine.cluster.x-k8s.io/exclude-node-draining"]
    );
    assert_eq!(
        bench.known.0.borrow().machines(),
        std::slice::from_ref(&uid)
    );
    let status = bench
        .until_status("it has listed", |status| !status.sources.is_empty())
        .await;
    assert_eq!(state_of(&status, "machines.machine.openshift.io"), None);
    let cluster = state_of(&status, "machines.cluster.x-k8s.io");
    assert_eq!(cluster, Some(&SourceState::Watched));

    // An older Cluster API, or the newer one before its upgrade.
    let mut before = OPENSHIFT.to_vec();
    before.push("cluster.x-k8s.io/v1beta2");
    world.api.unserve(&before);
    let older = bench.until("the same Machine in the older version", |state| {
        machine_fact(state, &uid).filter(|it| it.machine.api == MachineApi::ClusterV1Beta1)
    });
    assert_eq!(older.await.machine.uid, uid);
    let said = bench.known.0.borrow().messages.clone();
    let gone = |(_, it): &&(String, _)| {
        let it: &dormer_proto::message::Observation<Fact> = it;
        it.object.kind == "Machine" && it.fact.is_none()
    };
    assert_eq!(said.iter().find(gone), None);
    bench.stop().await;
}

#[tokio::test]
async fn a_kind_that_comes_later_is_found_without_a_restart() {
    let world = world(0, &[]).await;
    let mut without = OPENSHIFT.to_vec();
    without.push("cluster.x-k8s.io");
    world.api.unserve(&without);
    let bench = Bench::start(&world, Pool::newest()).await;
    bench
        .until_status("it has listed", |status| status.listed.is_some())
        .await;
    world.api.unserve(&OPENSHIFT);
    let uid = cluster_machine(&world, "win-a", labelled());
    bench
        .until("the Machine", |state| machine_fact(state, &uid))
        .await;
    bench.stop().await;
}

/// An API server that starts, or an extension that is registered anew, lacks a group for a while: discovery does not
/// name it, and a list of its kind is a 404 (kubernetes#115241).
#[tokio::test]
async fn a_kind_that_is_not_served_for_a_while_ends_no_run() {
    let world = world(1, &[]).await;
    let options = || Options {
        repeat: Duration::from_secs(4),
        ..Options::default()
    };
    let bench = Bench::with(
        &world,
        Pool::newest(),
        options(),
        Arc::new(Recorder(watch::Sender::default())),
    )
    .await;
    all_serve(&bench, &world).await;
    let uid = windows(&world)[0].uid().to_owned();
    world.api.unserve(&OPENSHIFT);
    bench
        .until_status("the kind is not seen", |status| {
            status.listed.is_some() && state_of(status, "machines.machine.openshift.io").is_none()
        })
        .await;
    let known = bench.known.clone();
    bench.stop().await;

    // A watcher that begins meanwhile knows of the run from the engine alone.
    let mut none = OPENSHIFT.to_vec();
    none.push("cluster.x-k8s.io");
    world.api.unserve(&none);
    let bench = Bench::with(&world, Pool::newest(), options(), known).await;
    bench
        .until_status("it has listed", |status| status.live == 1)
        .await;
    let epoch = bench.known.0.borrow().epoch;
    world.api.unserve(&[]);
    bench
        .until("it is seen again", |state| {
            (state.epoch > epoch).then_some(())?;
            machine_fact(state, &uid)
        })
        .await;
    let told = bench.known.0.borrow().messages.clone();
    let gone = |(_, it): &&(String, _)| {
        let it: &dormer_proto::message::Observation<Fact> = it;
        ["Machine", "MachineSet"].contains(&it.object.kind.as_str()) && it.fact.is_none()
    };
    assert_eq!(told.iter().find(gone), None);
    bench.stop().await;
}

#[tokio::test]
async fn a_source_that_is_forbidden_is_named_stops_no_other_and_ends_no_run() {
    let world = world(1, &[]).await;
    let ours = cluster_machine(&world, "win-a", labelled());
    let bench = Bench::start(&world, Pool::newest()).await;
    all_serve(&bench, &world).await;
    let openshift = windows(&world)[0].uid().to_owned();
    bench
        .until("both", |state| {
            machine_fact(state, &ours)?;
            machine_fact(state, &openshift)
        })
        .await;
    let known = bench.known.clone();
    bench.stop().await;

    let lists = |what: &str| Grant {
        namespace: Some(HOME.into()),
        ..Grant::of("list", what)
    };
    let admin = User::admin().name;
    let tokens = world.api.tokens();
    tokens.forbid(&admin, vec![lists("machines"), lists("machinesets")]);
    let options = Options {
        repeat: Duration::from_secs(6),
        ..Options::default()
    };
    let bench = Bench::with(&world, Pool::newest(), options, known).await;
    let status = bench
        .until_status("it has listed", |status| !status.sources.is_empty())
        .await;
    let Some(SourceState::Forbidden(why)) = state_of(&status, "machines.cluster.x-k8s.io") else {
        panic!("{status:?}");
    };
    assert!(
        why.starts_with(
            "dormer may not list machines.cluster.x-k8s.io in namespace openshift-cluster-api"
        ),
        "{why}"
    );
    assert_eq!(
        state_of(&status, "machines.machine.openshift.io"),
        Some(&SourceState::Watched)
    );
    let key = Key::of(&windows(&world)[0]);
    let failed = json!({"status": {"errorMessage": "later"}});
    patch(&world, &kinds::MACHINE, &key, failed);
    bench
        .until("the other API is still watched", |state| {
            machine_fact(state, &openshift).filter(|it| it.error.as_deref() == Some("later"))
        })
        .await;
    assert!(
        bench.known.0.borrow().machines().contains(&ours),
        "what is not seen is not gone"
    );
    bench.stop().await;
}

#[tokio::test]
async fn a_machine_that_both_apis_show_counts_once_and_for_the_api_that_speaks_for_it() {
    let world = world(1, &[]).await;
    let known = Arc::new(Recorder(watch::Sender::default()));
    let bench = Bench::with(&world, Pool::newest(), Options::default(), known).await;
    all_serve(&bench, &world).await;
    let machine = windows(&world).remove(0);
    let uid = machine.uid().to_owned();
    let key = Key::of(&machine);
    bench
        .until("it is seen", |state| machine_fact(state, &uid))
        .await;
    let speaks = |api: &str| {
        let change = json!({"status": {"authoritativeAPI": api}});
        patch(&world, &kinds::MACHINE, &key, change);
    };
    speaks("MachineAPI");
    let twin = mirror(&world, &machine);
    bench
        .until_status("the other one is counted as such", |status| {
            status.elsewhere == 1 && status.live == 1
        })
        .await;
    assert_eq!(
        bench.known.0.borrow().machines(),
        std::slice::from_ref(&uid)
    );

    speaks("Migrating");
    bench
        .until_status("neither is touched", |status| status.elsewhere == 2)
        .await;
    speaks("ClusterAPI");
    bench
        .until(
            "Cluster API's has a run, and the other is left alone",
            |state| {
                machine_fact(state, &twin).filter(|it| !it.ignored)?;
                machine_fact(state, &uid).filter(|it| it.ignored)
            },
        )
        .await;
    speaks("MachineAPI");
    bench
        .until("and back", |state| {
            machine_fact(state, &uid).filter(|it| !it.ignored)?;
            machine_fact(state, &twin).filter(|it| it.ignored)
        })
        .await;
    bench.stop().await;
}

/// The same machine as Cluster API shows it: the same name, and no provider id yet.
fn mirror(world: &World, machine: &Value) -> String {
    home(world);
    let copy = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": machine.name(), "namespace": HOME, "labels": labelled()},
        "spec": {}});
    let made = world.create(copy).expect("a Machine");
    made.value.uid().to_owned()
}

#[test]
fn both_versions_of_cluster_api_are_one_store() {
    let stores = |kind: &Kind| kind.store;
    assert_eq!(
        stores(&kinds::CLUSTER_MACHINE),
        stores(&kinds::CLUSTER_MACHINE_V1BETA1)
    );
}
