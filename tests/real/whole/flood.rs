//! A flood of Linux pods that no Linux node takes, while Windows nodes come up and are upgraded: the real scheduler looks
//! for room at each change of a node, and finds none.

use super::{
    super::cluster::{NODE, POD},
    crew::{Crew, install},
    ground::{Ground, MACHINE_SET, uids},
};
use dormer_testkit::{skip, started};
use futures::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How many pods wait.
const PODS: usize = 500;
/// How many are created at once.
const AT_ONCE: usize = 25;
const FLOOD: &str = "flood-of-linux";

/// A pod as most people write one: without a selector, without a toleration, and with next to no requests.
fn pod(number: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("linux-{number}"), "namespace": FLOOD},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "web", "image": "docker.io/library/nginx:1.29",
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}]}})
}

async fn flood(ground: &Ground) -> BTreeSet<String> {
    ground.world.namespace(FLOOD).await;
    for first in (0..PODS).step_by(AT_ONCE) {
        join_all((first..first + AT_ONCE).map(|number| ground.world.create(pod(number)))).await;
    }
    uids(&ground.world.list(POD, FLOOD).await)
        .into_iter()
        .collect()
}

/// Nodes on which pods of the flood are bound. A pod that was bound and deleted with its node would be missing.
async fn landed(ground: &Ground, all: &BTreeSet<String>) -> BTreeSet<String> {
    let pods = ground.world.list(POD, FLOOD).await;
    let there: BTreeSet<String> = uids(&pods).into_iter().collect();
    assert_eq!(&there, all, "each pod is the one that was created");
    let nodes = pods
        .iter()
        .filter_map(|pod| pod["spec"]["nodeName"].as_str());
    nodes.map(str::to_owned).collect()
}

/// Values of the label `team` on the nodes of the Machines that serve, in order.
async fn teams(ground: &Ground) -> Vec<String> {
    let nodes = ground.served("").await;
    let team = |node: &Value| {
        node["metadata"]["labels"]["team"]
            .as_str()
            .map(str::to_owned)
    };
    let mut teams: Vec<String> = nodes
        .iter()
        .map(|node| team(node).unwrap_or_default())
        .collect();
    teams.sort();
    teams
}

/// Sets the label `team` in the template of the MachineSet, for the Nodes of new Machines.
async fn team(ground: &Ground, name: &str) {
    let sets = ground.world.list(MACHINE_SET, &ground.machines).await;
    let set = sets[0]["metadata"]["name"].as_str().expect("a name");
    let template = json!({"spec": {"metadata": {"labels": {"team": name}}}});
    let change = json!({"spec": {"template": template}});
    ground
        .world
        .patch(MACHINE_SET, &ground.machines, set, change)
        .await;
}

/// A Linux node that takes every pod.
async fn linux_node(ground: &Ground) {
    let name = "linux-a";
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}}});
    ground.world.create(node).await;
    let room = json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady",
        "lastHeartbeatTime": "2026-11-27T00:00:00Z", "lastTransitionTime": "2026-11-27T00:00:00Z"});
    let status = json!({"capacity": room, "allocatable": room, "conditions": [ready]});
    ground.world.status(NODE, "", name, status).await;
    // The controller of nodes taints one that it sees for the first time before its status.
    ground
        .world
        .patch(NODE, "", name, json!({"spec": {"taints": null}}))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_of_a_flood_for_linux_lands_on_a_windows_node_while_it_comes_up_or_is_upgraded() {
    let ground = match Ground::alone("flood", 2).await {
        Ok(ground) => ground,
        Err(skipped) => skip!(skipped),
    };
    let all = flood(&ground).await;
    assert_eq!(all.len(), PODS);
    install(&ground, "11.0.0");
    let crew = started!(Crew::start(&ground));
    crew.until_all_serve(2, "11.0.0-").await;
    assert_eq!(landed(&ground, &all).await, BTreeSet::new(), "bring-up");

    // Machines keep the labels of the template that they were made from; new ones have the new.
    team(&ground, "green").await;
    ground.scale(3).await;
    crew.until_all_serve(3, "11.0.0-").await;
    assert_eq!(teams(&ground).await, ["", "", "green"]);

    ground.set(json!({"strategy": {"type": "InPlace"}})).await;
    install(&ground, "11.1.0");
    crew.until_all_serve(3, "11.1.0-").await;
    assert_eq!(
        landed(&ground, &all).await,
        BTreeSet::new(),
        "an upgrade in place"
    );
    assert_eq!(teams(&ground).await, ["", "", "green"]);

    ground.set(json!({"strategy": {"type": "Recreate"}})).await;
    install(&ground, "11.2.0");
    crew.until_all_serve(3, "11.2.0-").await;
    assert_eq!(landed(&ground, &all).await, BTreeSet::new(), "new Machines");
    assert_eq!(teams(&ground).await, ["green"; 3]);

    // The flood was real: one Linux node takes all of it.
    linux_node(&ground).await;
    crew.until("the flood runs off", async || {
        let pods = ground.world.list(POD, FLOOD).await;
        pods.iter().all(|pod| pod["spec"]["nodeName"] == "linux-a")
    })
    .await;
    crew.end();
}
