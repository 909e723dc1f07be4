//! Removal of dormer from a cluster: nothing of it is left, and nodes serve on.

use super::{
    super::cluster::NODE,
    crew::{Crew, install},
    ground::{Ground, condition},
};
use dormer_fleet::written;
use dormer_testkit::{skip, started};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    discovery::{Discovery, verbs},
};
use serde_json::{Value, json};
use std::process::Command;

/// Kinds that tell of dormer, but are no trace of it: Events end by themselves, and the chart takes accounts, rights and
/// its namespace away.
pub(crate) const NOT_TRACES: [&str; 11] = [
    "Event",
    "Namespace",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    // Secrets and ConfigMaps of dormer's namespace are people's.
    "ConfigMap",
    // The kubelets' requests name the tokens that they came with, and end by themselves.
    "CertificateSigningRequest",
    // Made by the API server from the kinds.
    "APIService",
    // The simulated cloud's.
    "MachineSet",
];

/// The names, labels, annotations, conditions and API groups of an object that speak of dormer.
fn traces(object: &Value) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let metadata = &object["metadata"];
    words.extend(metadata["name"].as_str().map(str::to_owned));
    for field in ["labels", "annotations"] {
        for (key, value) in metadata[field].as_object().into_iter().flatten() {
            words.push(format!("{key}={}", value.as_str().unwrap_or_default()));
        }
    }
    let conditions = object["status"]["conditions"].as_array();
    for one in conditions.into_iter().flatten() {
        words.extend(one["type"].as_str().map(str::to_owned));
    }
    words.extend(object["apiVersion"].as_str().map(str::to_owned));
    words.retain(|word| word.to_ascii_lowercase().contains("dormer"));
    words
}

async fn inventory(ground: &Ground) -> Vec<String> {
    inventory_but(&ground.world.admin, &NOT_TRACES).await
}

/// Every object of every kind that the API server serves, but for these.
async fn objects_but(client: &Client, except: &[&str]) -> Vec<Value> {
    let discovered = Discovery::new(client.clone()).run().await.expect("kinds");
    let mut found = Vec::new();
    for group in discovered.groups() {
        for (resource, can) in group.resources_by_stability() {
            if !can.supports_operation(verbs::LIST) || except.contains(&&*resource.kind) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let Ok(list) = api.list(&ListParams::default()).await else {
                continue;
            };
            for object in list.items {
                let mut value = serde_json::to_value(&object).expect("JSON");
                value["apiVersion"] = resource.api_version.clone().into();
                value["kind"] = resource.kind.clone().into();
                found.push(value);
            }
        }
    }
    found
}

/// The same, with what speaks of dormer in it.
pub(crate) async fn inventory_but(client: &Client, except: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for object in objects_but(client, except).await {
        let words = traces(&object);
        if !words.is_empty() {
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = word(&object["metadata"]["name"]);
            found.push(format!(
                "{} {name}: {}",
                word(&object["kind"]),
                words.join(", ")
            ));
        }
    }
    found.sort();
    found
}

/// All that speaks of dormer, as docs/inventory.md names it.
pub(crate) async fn all_traces(client: &Client) -> Vec<String> {
    let objects = objects_but(client, &written::NO_TRACES).await;
    objects.iter().flat_map(written::traces).collect()
}

/// What of it no row of that page names.
pub(crate) async fn unwritten(client: &Client) -> Vec<String> {
    let found = all_traces(client).await;
    let rows = written::rows("## In the cluster");
    let unnamed = written::unnamed(&rows, |_| true, &found);
    unnamed.into_iter().cloned().collect()
}

/// `dormer uninstall` as an administrator: its exit code, and what it says.
pub(crate) fn uninstall(ground: &Ground, flags: &[&str]) -> (i32, String) {
    let said = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args(["uninstall", "--namespace", &ground.home, "--kubeconfig"])
        .arg(ground.path("admin.conf"))
        .args(flags)
        .output()
        .expect("dormer runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = said.status.code().expect("an exit code");
    (code, text(&said.stdout) + &text(&said.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_dormer_is_left_on_a_real_api_server_and_nodes_serve_on() {
    let ground = match Ground::alone("leaving", 2).await {
        Ok(ground) => ground,
        Err(skipped) => skip!(skipped),
    };
    install(&ground, "11.0.0");
    let crew = started!(Crew::start(&ground));
    crew.until_all_serve(2, "11.0.0-").await;
    crew.until("the console shows both", async || {
        ground.shown("Joined").await == 2
    })
    .await;

    let (code, said) = uninstall(&ground, &["--keep-nodes", "--yes"]);
    assert!(code == 1 && said.contains("dormer still runs"), "{said}");
    crew.end();
    let host = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsHost",
        "metadata": {"name": "own", "namespace": ground.home, "finalizers": ["dormer.io/host"]},
        "spec": {"address": "192.0.2.7", "user": "Administrator"}});
    ground.world.create(host).await;

    assert_eq!(unwritten(&ground.world.admin).await, Vec::<String>::new());
    let there = inventory(&ground).await;
    for trace in [
        "Node ",
        "Machine ",
        "WindowsMachine ",
        "WindowsHost ",
        "RuntimeClass ",
        "Lease ",
    ] {
        let any = there.iter().any(|line| line.starts_with(trace));
        assert!(any, "{trace}is a trace that dormer leaves: {there:#?}");
    }
    let (code, said) = uninstall(&ground, &["--yes"]);
    assert!(
        code == 1 && said.contains("dormer configured these nodes"),
        "{said}"
    );
    let (code, said) = uninstall(&ground, &["--keep-nodes"]);
    assert!(code == 0 && said.contains("Nothing was changed"), "{said}");
    // The simulated kubelet writes its conditions whole, over anybody's.
    let without = |lines: Vec<String>| -> Vec<String> {
        let strip = |line: &String| line.replace(", DormerConfigured", "");
        lines.iter().map(strip).collect()
    };
    let now = without(inventory(&ground).await);
    assert_eq!(now, without(there), "a list changes nothing");

    let (code, said) = uninstall(&ground, &["--keep-nodes", "--yes"]);
    assert!(
        code == 0 && said.contains("Nothing of dormer is left"),
        "{said}"
    );
    let (code, said) = uninstall(&ground, &["--keep-nodes", "--yes"]);
    assert!(
        code == 0 && said.starts_with("Nothing of dormer is left"),
        "{said}"
    );
    assert_eq!(inventory(&ground).await, Vec::<String>::new());
    let nodes = ground.world.list(NODE, "").await;
    let serving = |node: &&Value| condition(node, "Ready") && node["spec"]["unschedulable"] != true;
    assert_eq!(nodes.iter().filter(serving).count(), 2);
}

/// A drain that a budget holds, and a Node that a person cordoned, when dormer ends for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_under_way_is_undone_and_a_persons_cordon_stays() {
    let ground = match Ground::alone("under-way", 3).await {
        Ok(ground) => ground,
        Err(skipped) => skip!(skipped),
    };
    // The cordoned Node counts as unavailable.
    let strategy = json!({"type": "InPlace", "maxUnavailable": 2});
    ground.set(json!({"strategy": strategy})).await;
    install(&ground, "11.0.0");
    let crew = started!(Crew::start(&ground));
    crew.until_all_serve(3, "11.0.0-").await;
    crew.until("a web server on each node", async || {
        ground.web_servers().await.len() == 3
    })
    .await;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "none-may-leave", "namespace": ground.pods},
        "spec": {"maxUnavailable": 0, "selector": {}}});
    ground.world.create(budget).await;
    let nodes = ground.world.list(NODE, "").await;
    let kept = nodes.iter().find(|node| condition(node, "Ready"));
    let kept = kept.and_then(|node| node["metadata"]["name"].as_str());
    let kept = kept.expect("a node").to_owned();
    let cordon = json!({"spec": {"unschedulable": true}});
    ground.world.patch(NODE, "", &kept, cordon).await;
    install(&ground, "11.1.0");
    let cordoned = async || -> Vec<String> {
        let nodes = ground.world.list(NODE, "").await;
        let is = |node: &&Value| node["spec"]["unschedulable"] == true;
        let name = |node: &Value| node["metadata"]["name"].as_str().map(str::to_owned);
        nodes.iter().filter(is).filter_map(name).collect()
    };
    crew.until("another node is cordoned", async || {
        cordoned().await.len() == 2
    })
    .await;
    crew.end();

    let (code, said) = uninstall(&ground, &["--keep-nodes", "--yes"]);
    assert!(
        code == 1 && said.contains("machines are under way"),
        "{said}"
    );
    assert_eq!(cordoned().await.len(), 2, "nothing was changed");
    let (code, said) = uninstall(&ground, &["--keep-nodes", "--under-way", "--yes"]);
    assert!(
        code == 0 && said.contains("Nothing of dormer is left"),
        "{said}"
    );
    assert_eq!(cordoned().await, [kept], "a person's cordon stays");
    assert_eq!(inventory(&ground).await, Vec::<String>::new());
    let ready = ground.world.list(NODE, "").await;
    assert_eq!(
        ready.iter().filter(|node| condition(node, "Ready")).count(),
        3
    );
}
