//! The same requests to a real API server and to the simulated one: both answer the same.

use super::cluster::{BUDGET, Kind, PATIENCE, POD, World, client, plane};
use dormer_fleet::{Pace, WorldConfig};
use dormer_testkit::await_condition;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const CONFIG_MAP: Kind = ("", "v1", "ConfigMap");
const NAMESPACE: Kind = ("", "v1", "Namespace");
const NODE: &str = "both-1";
const FINALIZER: &str = "example.com/hold";

/// What a server says to a refusal: its code, its reason, what it names, its causes' reasons, and its words.
fn refusal<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> Value {
    let status = match answer {
        Err(kube::Error::Api(status)) => status,
        other => panic!("no refusal: {other:?}"),
    };
    let details = status.details.clone();
    let causes = details.iter().flat_map(|details| &details.causes);
    let causes: Vec<&str> = causes.map(|cause| cause.reason.as_str()).collect();
    let named = details
        .as_ref()
        .map(|details| (&details.name, &details.kind));
    json!({"code": status.code, "reason": status.reason, "named": named, "causes": causes,
        "message": status.message})
}

fn pod(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name},
            "finalizers": [FINALIZER]},
        "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}], "tolerations": [{"operator": "Exists"}]}})
}

async fn evict(world: &World, namespace: &str, name: &str) -> Result<(), kube::Error> {
    let api: Api<Pod> = Api::namespaced(world.admin.clone(), namespace);
    api.evict(name, &EvictParams::default()).await.map(drop)
}

/// What is made in a namespace that is not there, by every way of making.
async fn nowhere(world: &World, results: &mut Vec<(&'static str, Value)>) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "m", "namespace": "both-nowhere"}});
    results.push((
        "create nowhere",
        refusal(world.try_create(map.clone()).await),
    ));
    let api = world.api(CONFIG_MAP, "both-nowhere");
    let by = PatchParams::apply("both").force();
    results.push((
        "apply nowhere",
        refusal(api.patch("m", &by, &Patch::Apply(&map)).await),
    ));
    let change = Patch::Merge(json!({"data": {}}));
    results.push((
        "patch nowhere",
        refusal(api.patch("m", &PatchParams::default(), &change).await),
    ));
    results.push(("get nowhere", refusal(api.get("m").await)));
    results.push((
        "delete nowhere",
        refusal(api.delete("m", &DeleteParams::default()).await),
    ));
    results.push((
        "evict nowhere",
        refusal(evict(world, "both-nowhere", "p").await),
    ));
    let listed = api
        .list(&ListParams::default())
        .await
        .expect("an empty list");
    results.push(("list nowhere", json!(listed.items.len())));
}

/// A pod of two budgets, one that is not there, and one in a namespace that ends.
async fn evictions(world: &World, results: &mut Vec<(&'static str, Value)>) {
    world.create(pod("both", "twice")).await;
    let ready = json!([{"type": "Ready", "status": "True"}]);
    world
        .status(
            POD,
            "both",
            "twice",
            json!({"phase": "Running", "conditions": ready}),
        )
        .await;
    for name in ["first", "second"] {
        let spec = json!({"minAvailable": 0, "selector": {"matchLabels": {"app": "twice"}}});
        let metadata = json!({"name": name, "namespace": "both"});
        let budget = json!({"apiVersion": "policy/v1", "kind": BUDGET.2, "metadata": metadata,
            "spec": spec});
        world.create(budget).await;
    }
    results.push(("two budgets", refusal(evict(world, "both", "twice").await)));
    results.push(("no such pod", refusal(evict(world, "both", "nobody").await)));
    world.create(pod("both-ends", "held")).await;
    world.delete(NAMESPACE, "", "both-ends").await;
    await_condition("the namespace ends", PATIENCE, || async {
        let one = world.get(NAMESPACE, "", "both-ends").await;
        one.is_some_and(|one| one["status"]["phase"] == "Terminating")
    })
    .await;
    results.push((
        "evict in an end",
        refusal(evict(world, "both-ends", "held").await),
    ));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "m", "namespace": "both-ends"}});
    results.push(("create in an end", refusal(world.try_create(map).await)));
    for (namespace, name) in [("both", "twice"), ("both-ends", "held")] {
        let free = json!({"metadata": {"finalizers": null}});
        world.patch(POD, namespace, name, free).await;
    }
    await_condition("the namespace is gone", PATIENCE, || async {
        world.get(NAMESPACE, "", "both-ends").await.is_none()
    })
    .await;
}

/// An Event of the Events' own group as `kubectl get events` shows it.
async fn event(world: &World, results: &mut Vec<(&'static str, Value)>) {
    let now = jiff::Timestamp::now();
    let at = |minutes: i64| {
        let then = now - jiff::SignedDuration::from_mins(minutes);
        format!("{then:.6}")
    };
    for (name, series) in [
        ("once", Value::Null),
        ("twice", json!({"count": 2, "lastObservedTime": at(7)})),
    ] {
        let about =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "both", "name": "m"});
        let mut event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": "both"}, "eventTime": at(30),
            "type": "Normal", "reason": "Joined", "action": "Joined", "regarding": about,
            "note": "a word", "reportingController": "dormer.io/console",
            "reportingInstance": "one"});
        if series.is_object() {
            event["series"] = series;
        }
        world.create(event).await;
    }
    for (group, path) in [
        ("events", "/api/v1/namespaces/both/events"),
        (
            "own events",
            "/apis/events.k8s.io/v1/namespaces/both/events",
        ),
    ] {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let request = hyper::Request::get(path).header("accept", table);
        let request = request.body(Vec::new()).expect("a request");
        let table: Value = world.admin.request(request).await.expect("a table");
        // What is shown without `-o wide`, by the columns' names.
        let columns = table["columnDefinitions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let shown = |row: &Value| {
            let cells = columns
                .iter()
                .zip(row["cells"].as_array().into_iter().flatten());
            let shown = cells.filter(|(column, _)| column["priority"] == 0);
            Value::Object(
                shown
                    .map(|(c, cell)| (c["name"].to_string(), cell.clone()))
                    .collect(),
            )
        };
        let rows = table["rows"].as_array().into_iter().flatten().map(shown);
        let cells: Vec<Value> = rows.filter(|row| row["\"Reason\""] == "Joined").collect();
        results.push((group, json!(cells)));
    }
}

async fn answers(world: &World) -> Vec<(&'static str, Value)> {
    let mut results = Vec::new();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    world.create(node).await;
    nowhere(world, &mut results).await;
    evictions(world, &mut results).await;
    event(world, &mut results).await;
    results
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simulated_api_server_answers_as_a_real_one() {
    let plane = plane!();
    let real = World {
        admin: client(&plane.kubeconfig(&plane.admin())).await,
    };
    let config = WorldConfig {
        linux: false,
        ..WorldConfig::on_loopback(0, Pace::times_faster(1.0))
    };
    let fleet = dormer_fleet::World::start(config).await.expect("a world");
    let simulated = World {
        admin: client(&fleet.kubeconfig().to_string()).await,
    };
    for name in ["both", "both-ends"] {
        // On the real one pods wait for the namespace's account.
        real.namespace(name).await;
        let metadata = json!({"name": name});
        simulated
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
            .await;
    }
    let real = answers(&real).await;
    let simulated = answers(&simulated).await;
    let differ = real
        .iter()
        .zip(&simulated)
        .filter(|(real, simulated)| real != simulated);
    let differ: Vec<String> = differ
        .map(|(r, s)| format!("real {r:?}\nsimulated {s:?}"))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert_eq!(real.len(), simulated.len());
    let codes: Vec<&Value> = real.iter().map(|(_, said)| &said["code"]).collect();
    assert_eq!(
        codes[7..11],
        [&json!(500), &json!(404), &json!(403), &json!(403)],
        "{real:?}"
    );
}
