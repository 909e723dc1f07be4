//! Objects for `kubectl` about machines, pools and Nodes: they follow the histories, are restored after a deletion, and
//! are deleted with their machine.

use super::{DemoScenario, MACHINES, NAMESPACE};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Objects of one kind, as a user reads them.
async fn all(
    scenario: &DemoScenario,
    group: &str,
    version: &str,
    kind: &str,
) -> Vec<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::all_with(scenario.environment.client(), &resource);
    api.list(&ListParams::default())
        .await
        .expect("a list")
        .items
}

async fn machines(scenario: &DemoScenario) -> Vec<DynamicObject> {
    all(scenario, "dormer.io", "v1alpha1", "WindowsMachine").await
}

/// Waits until `fits` holds for the cluster's objects.
async fn until<T>(
    scenario: &mut DemoScenario,
    what: &str,
    read: impl AsyncFn(&DemoScenario) -> T,
    fits: impl Fn(&T) -> bool,
) -> T {
    let begun = std::time::Instant::now();
    loop {
        let machine_run = read(scenario).await;
        if fits(&machine_run) {
            return machine_run;
        }
        assert!(
            begun.elapsed() < super::SCENARIO_MAX,
            "never: {what}\n{}",
            scenario.report().await
        );
        scenario
            .environment
            .pause(super::POLL_EVERY)
            .await
            .expect("dormer's roles go on");
    }
}

fn joined(all: &[DynamicObject]) -> usize {
    all.iter()
        .filter(|one| one.data["status"]["state"] == "Joined")
        .count()
}

/// The conditions of a status, as `Type=Status`.
fn conditions(status: &Value) -> Vec<String> {
    let all = status["conditions"].as_array().into_iter().flatten();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    all.map(|one| format!("{}={}", text(&one["type"]), text(&one["status"])))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_itself_shows_what_dormer_knows() {
    let mut scenario = DemoScenario::all_joined(2).await;
    let shown = until(&mut scenario, "both shown as Joined", machines, |all| {
        joined(all) == 2
    })
    .await;
    for one in &shown {
        assert_eq!(one.namespace().as_deref(), Some(MACHINES));
        assert_eq!(
            one.data["status"]["version"],
            scenario.environment.version(0)
        );
        assert_eq!(one.data["status"]["waitingFor"], Value::Null);
        assert_eq!(one.owner_references().len(), 1, "it goes with its Machine");
    }
    let pools =
        async |scenario: &DemoScenario| all(scenario, "dormer.io", "v1beta1", "WindowsPool").await;
    let rest = [
        "Available=True",
        "Progressing=False",
        "Degraded=False",
        "Upgradeable=True",
        "Overridden=False",
        "Ready=True",
        "Reconciling=False",
        "Stalled=False",
    ];
    let at_rest = |pools: &Vec<DynamicObject>| {
        pools
            .iter()
            .any(|pool| conditions(&pool.data["status"]) == rest)
    };
    until(&mut scenario, "a pool at rest", pools, at_rest).await;
    nodes_carry_the_condition(&mut scenario).await;
    what_was_deleted_comes_back(&mut scenario, &shown[0].name_any()).await;
    events_report_it(&mut scenario).await;
    exporters_are_listed_where_somebody_asks(&mut scenario).await;
    the_object_goes_with_its_machine(&mut scenario).await;
    scenario.end().await;
}

async fn nodes_carry_the_condition(scenario: &mut DemoScenario) {
    let nodes = async |scenario: &DemoScenario| all(scenario, "", "v1", "Node").await;
    let windows = |all: &Vec<DynamicObject>| {
        let ours = |node: &&DynamicObject| {
            conditions(&node.data["status"]).contains(&"DormerConfigured=True".to_owned())
        };
        all.iter().filter(ours).count() == 2
    };
    let all = until(scenario, "both Nodes with the condition", nodes, windows).await;
    let kubelets =
        |node: &&DynamicObject| conditions(&node.data["status"]).contains(&"Ready=True".into());
    assert!(
        all.iter().filter(kubelets).count() >= 2,
        "the kubelets' conditions are left alone"
    );
}

async fn what_was_deleted_comes_back(scenario: &mut DemoScenario, name: &str) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "dormer.io",
        "v1alpha1",
        "WindowsMachine",
    ));
    let api: Api<DynamicObject> =
        Api::namespaced_with(scenario.environment.client(), MACHINES, &resource);
    let uid = api.get(name).await.expect("it is there").uid();
    api.delete(name, &DeleteParams::default())
        .await
        .expect("deleted");
    until(scenario, "it comes back", machines, |all| {
        all.iter()
            .any(|one| one.name_any() == name && one.uid() != uid)
            && joined(all) == 2
    })
    .await;
}

async fn events_report_it(scenario: &mut DemoScenario) {
    scenario.set(json!({"paused": true})).await;
    let events =
        async |scenario: &DemoScenario| all(scenario, "events.k8s.io", "v1", "Event").await;
    let about = |event: &DynamicObject| {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        (
            text(&event.data["regarding"]["kind"]),
            text(&event.data["reason"]),
        )
    };
    let told_events = until(scenario, "the pause is told", events, |all| {
        all.iter()
            .any(|event| about(event) == ("WindowsPool".into(), "RolloutPaused".into()))
    })
    .await;
    for kind in ["Machine", "Node"] {
        let of_kind = told_events
            .iter()
            .filter(|event| about(event) == (kind.into(), "Joined".into()));
        assert_eq!(of_kind.count(), 2, "each {kind} joined once");
    }
    let home = told_events
        .iter()
        .filter(|event| about(event).0 == "WindowsPool");
    assert!(
        home.into_iter()
            .all(|event| event.namespace().as_deref() == Some(NAMESPACE))
    );
    scenario.set(json!({"paused": false})).await;
}

async fn exporters_are_listed_where_somebody_asks(scenario: &mut DemoScenario) {
    let slices = async |scenario: &DemoScenario| {
        all(scenario, "discovery.k8s.io", "v1", "EndpointSlice").await
    };
    assert_eq!(slices(scenario).await.len(), 0, "nobody scrapes");
    let services: Api<Service> = Api::namespaced(scenario.environment.client(), NAMESPACE);
    let service = json!({"metadata": {"name": "dormer-windows-exporter"},
        "spec": {"clusterIP": "None", "ports": [{"port": 9182}]}});
    let service = serde_json::from_value(service).expect("a Service");
    services
        .create(&PostParams::default(), &service)
        .await
        .expect("created");
    let both = |slices: &Vec<DynamicObject>| {
        let endpoints = slices
            .iter()
            .filter_map(|slice| slice.data["endpoints"].as_array());
        endpoints
            .flatten()
            .filter(|one| one["nodeName"].is_string())
            .count()
            == 2
    };
    until(scenario, "both exporters are told", slices, both).await;
}

async fn the_object_goes_with_its_machine(scenario: &mut DemoScenario) {
    scenario.scale(1).await;
    until(scenario, "one is left", machines, |all| all.len() == 1).await;
}

/// What the API answers to `GET path`.
async fn get(scenario: &DemoScenario, path: &str) -> Value {
    let address = scenario.environment.address();
    let mut stream = TcpStream::connect(address).await.expect("the API listens");
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("asked");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.expect("answered");
    let (_, body) = answer.split_once("\r\n\r\n").expect("head and body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_command_is_dated_within_its_attempt() {
    let scenario = DemoScenario::all_joined(1).await;
    let uid = scenario
        .machine_runs
        .live()
        .next()
        .expect("a machine")
        .view
        .uid
        .clone();
    let timeline = get(&scenario, &format!("/api/v1/runs/machine/{uid}/timeline")).await;
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let tasks: Vec<Value> = all(&timeline["episodes"])
        .iter()
        .flat_map(|episode| all(&episode["phases"]))
        .flat_map(|phase| all(&phase["tasks"]))
        .collect();
    let commands = get(&scenario, &format!("/api/v1/machines/{uid}/commands")).await;
    let commands = all(&commands["items"]);
    assert!(!commands.is_empty(), "{commands:?}");
    for command in &commands {
        let id = command["task"].as_str().expect("a task");
        let (_, id) = id.rsplit_once('@').expect("a run and its task");
        let task = tasks.iter().find(|task| task["id"] == id);
        let attempts = all(&task.expect("a task of the timeline")["attempts"]);
        let attempt = attempts
            .iter()
            .find(|attempt| attempt["attempt"] == command["attempt"])
            .expect("an attempt");
        let at: Timestamp = command["at"]
            .as_str()
            .and_then(|at| at.parse().ok())
            .expect("a date");
        let at = at.as_millisecond();
        let within = |from: &Value, to: &Value| {
            from.as_i64().is_some_and(|from| from <= at) && to.as_i64().is_none_or(|to| at <= to)
        };
        assert!(
            within(&attempt["from"], &attempt["to"]),
            "{command} {attempt}"
        );
    }
    scenario.end().await;
}
