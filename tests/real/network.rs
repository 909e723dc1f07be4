//! The host-process DaemonSets for a Windows network, on the real API server, its DaemonSet controller and its scheduler. No
//! kubelet runs them: what Windows does with them is not tried here.

use super::{
    chart::applied_dry,
    cluster::{NODE, POD, Site, plane},
};
use crate::chart::{NETWORK, objects, rendered};
use dormer_proto::checks::{CheckResult, NodeExpectation};
use dormer_testkit::{Helm, await_some, started};
use dormer_workers::kubernetes::{KubernetesExecutor, Settings};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

const IN_TIME: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "windows-network";
/// A build that no Node of another test has.
const BUILD: &str = "10.0.99001";
const RIGHT: &str = "network-win";

/// A Node as a kubelet registers it under dormer's profile, before anything on it works.
async fn node(site: &Site, name: &str, labels: Value) {
    let taints = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": true}});
    site.world.create(node).await;
    let room = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    let waits = json!({"type": "Ready", "status": "False", "reason": "KubeletNotReady",
        "message": "cni plugin not initialized",
        "lastHeartbeatTime": "2026-11-27T00:00:00Z", "lastTransitionTime": "2026-11-27T00:00:00Z"});
    let status = json!({"capacity": room, "allocatable": room, "conditions": [waits]});
    site.world.status(NODE, "", name, status).await;
}

/// What the join's check of DaemonSets says of the right Node.
async fn judged(executor: &KubernetesExecutor) -> (CheckResult, String) {
    let checks = executor
        .verify_node(RIGHT, &NodeExpectation::default())
        .await;
    let checks = checks.expect("it is read");
    let found = checks.iter().find(|check| check.check == "daemonsets");
    let found = found.expect("it is checked");
    (found.result, found.said.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_network_runs_on_windows_nodes_of_its_builds_alone_and_a_join_waits_for_it() {
    let helm = started!(Helm::start());
    let site = Site::new(plane!(), "network").await;
    let world = &site.world;
    let labels = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    world
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}))
        .await;
    let build = format!("--set=windowsNetwork.builds={{{BUILD}}}");
    let namespace = format!("--set=windowsNetwork.namespace={NAMESPACE}");
    let mut arguments = NETWORK.to_vec();
    let show = "--show-only=templates/windows-network.yaml";
    arguments.extend([build.as_str(), namespace.as_str(), show]);
    let all = objects(&rendered(&helm, "dormer", &arguments));
    let windows = |build: &str| json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "node.kubernetes.io/windows-build": build});
    node(&site, RIGHT, windows(BUILD)).await;
    node(&site, "network-other", windows("10.0.99002")).await;
    let linux = json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/windows-build": BUILD});
    node(&site, "network-linux", linux).await;
    for object in &all {
        let done = applied_dry(world, object).await;
        done.unwrap_or_else(|error| panic!("{error}: {object}"));
        world.create(object.clone()).await;
    }

    let named = |pods: &[Value]| -> BTreeSet<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let one = |pod: &Value| {
            let owner = text(&pod["metadata"]["ownerReferences"][0]["name"]);
            (owner, text(&pod["spec"]["nodeName"]))
        };
        pods.iter().map(one).collect()
    };
    let both = ["dormer-windows-flannel", "dormer-windows-kube-proxy"];
    let wanted: BTreeSet<_> = both.map(|name| (name.to_owned(), RIGHT.to_owned())).into();
    let pods = await_some("both are bound", IN_TIME, || async {
        let pods = world.list(POD, NAMESPACE).await;
        (named(&pods) == wanted).then_some(pods)
    });
    let pods = pods.await;

    let executor = KubernetesExecutor::new(world.admin.clone(), Settings::default());
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    for pod in &pods {
        let (result, said) = judged(&executor).await;
        assert_eq!(result, CheckResult::Failed, "{said}");
        let name = pod["metadata"]["name"].as_str().expect("a name");
        assert!(said.contains(name), "{said}");
        world.status(POD, NAMESPACE, name, ready.clone()).await;
    }
    let (result, said) = judged(&executor).await;
    assert_eq!(
        (result, said.as_str()),
        (CheckResult::Ok, "2 pods of DaemonSets")
    );
    // No other Node got one meanwhile.
    assert_eq!(named(&world.list(POD, NAMESPACE).await), wanted);
    for name in [RIGHT, "network-other", "network-linux"] {
        world.delete(NODE, "", name).await;
    }
    for name in both {
        world
            .delete(("apps", "v1", "DaemonSet"), NAMESPACE, name)
            .await;
    }
}
