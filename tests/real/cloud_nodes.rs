//! Azure's cloud-node-manager at the real API server: what a kubelet may not do to its own Node, this account may, to the
//! Node of its token and to no other.

use super::{
    accounts::{apply, cloud_nodes, granted, home, worker_beside},
    cluster::{NODE, PATIENCE, Site, World, plane},
};
use dormer_testkit::{Speaker, await_condition};
use dormer_workers::{
    host::cluster::{CloudToken, Cluster},
    kubernetes::{cloud_token::ACCOUNT, keys},
};
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// A Node as a kubelet makes it under `--cloud-provider=external`.
async fn new_node(site: &Site, name: &str) {
    let taints = json!([
        {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"},
        {"key": "os", "value": "Windows", "effect": "NoSchedule"},
    ]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "spec": {"taints": taints},
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows"}}});
    site.world.create(node).await;
}

/// What the API server says to a change of a Node.
async fn tries(by: &Client, node: &str, change: &Value, status: bool) -> Result<(), String> {
    let world = World { admin: by.clone() };
    let api = world.api(NODE, "");
    let params = PatchParams::default();
    let how = Patch::Merge(change);
    let done = match status {
        true => api.patch_status(node, &params, &how).await,
        false => api.patch(node, &params, &how).await,
    };
    done.map(drop).map_err(|error| error.to_string())
}

/// What a cloud-node-manager does to a new Node (cloud-provider v0.36, `controllers/node/node_controller.go`).
async fn initialized(site: &Site, name: &str) -> Value {
    let node = site.world.get(NODE, "", name).await.expect("the Node");
    // The API server and its controllers have taints of their own there, such as not-ready.
    let mut taints = node["spec"]["taints"].as_array().cloned().expect("taints");
    taints.retain(|taint| taint["key"] != UNINITIALIZED);
    json!({
        "metadata": {"labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {"taints": taints, "providerID": "azure:///subscriptions/s/virtualMachines/win"},
    })
}

#[tokio::test]
async fn a_cloud_node_manager_changes_its_own_node_and_no_other() {
    let site = Site::new(plane!(), "cloudnodes").await;
    apply(&site, |_, _| true).await;
    cloud_nodes(&site).await;
    let [mine, theirs, gone] = ["mine", "theirs", "gone"].map(|it| format!("cloudnodes-{it}"));
    for node in [&mine, &theirs, &gone] {
        new_node(&site, node).await;
    }

    // NodeRestriction: why the kubelet's own identity is not enough.
    let kubelet = site
        .plane
        .user(&format!("system:node:{mine}"), Some("system:nodes"));
    let kubelet = site.client(&kubelet).await;
    let refused = tries(&kubelet, &mine, &initialized(&site, &mine).await, false).await;
    let why = refused.expect_err("a kubelet takes no taint away");
    assert!(why.contains("is not allowed to modify taints"), "{why}");

    // The worker gives the node's host a token, and notes until when.
    let worker = worker_beside(&site).await;
    let asked = async |renew| worker.cloud_token(&mine, renew).await.expect("an answer");
    assert!(matches!(asked(false).await, CloudToken::Due));
    let CloudToken::New {
        token,
        node_uid,
        due,
    } = asked(true).await
    else {
        panic!("a token was asked for")
    };
    // Until its host has it, the Node says nothing of it.
    assert!(matches!(asked(false).await, CloudToken::Due));
    let noted = worker.note_cloud_token(&mine, "uid-of-another", due).await;
    noted.expect("nothing is noted");
    assert!(matches!(asked(false).await, CloudToken::Due));
    let noted = worker.note_cloud_token(&mine, &node_uid, due).await;
    noted.expect("noted");
    assert!(matches!(asked(false).await, CloudToken::Lasts));
    let past =
        json!({"metadata": {"annotations": {keys::CLOUD_TOKEN_DUE: "2026-01-01T00:00:00Z"}}});
    site.world.patch(NODE, "", &mine, past).await;
    assert!(matches!(asked(false).await, CloudToken::Due));

    let manager = site.client(&Speaker::Token(token.to_string())).await;
    // The API server follows policies and roles by a watch.
    await_condition("another Node is refused", PATIENCE, || async {
        let change = initialized(&site, &theirs).await;
        let refused = tries(&manager, &theirs, &change, false).await;
        refused.is_err_and(|why| why.contains("its own Node only"))
    })
    .await;
    let noted = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.8"}]}});
    let refused = tries(&manager, &theirs, &noted, true).await;
    assert!(refused.is_err_and(|why| why.contains("its own Node only")));
    // A controller's taint may come in between.
    await_condition("it changes its own Node", PATIENCE, || async {
        let change = initialized(&site, &mine).await;
        tries(&manager, &mine, &change, false).await.is_ok()
    })
    .await;
    tries(&manager, &mine, &noted, true)
        .await
        .expect("its own Node's addresses");
    let node = site.world.get(NODE, "", &mine).await.expect("the Node");
    let taints = node["spec"]["taints"].as_array().expect("taints");
    assert!(taints.iter().all(|taint| taint["key"] != UNINITIALIZED));
    assert_eq!(node["status"]["addresses"][0]["address"], "10.0.0.8");

    // And no more than that.
    let os = json!({"key": "os", "value": "Windows", "effect": "NoSchedule"});
    let more = json!([os, {"key": "a", "effect": "NoExecute"}]);
    let attempts = [
        (json!({"spec": {"taints": more}}), "changes no other"),
        (json!({"spec": {"taints": []}}), "changes no other"),
        (
            json!({"spec": {"unschedulable": true}}),
            "nothing else in its spec",
        ),
        (
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
            "no role",
        ),
        (
            json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}}}),
            "no role",
        ),
        (json!({"metadata": {"finalizers": ["a.b/c"]}}), "finalizers"),
    ];
    for (change, says) in attempts {
        let refused = tries(&manager, &mine, &change, false).await;
        let why = refused.expect_err(&format!("{change} is not its own to change"));
        assert!(why.contains(says), "{change}: {why}");
    }

    // A token that is bound to no Node changes none.
    let loose = granted(&site.world, &home(&site), ACCOUNT).await;
    let loose = site.client(&Speaker::Token(loose)).await;
    let change = initialized(&site, &theirs).await;
    let refused = tries(&loose, &theirs, &change, false).await;
    assert!(refused.is_err_and(|why| why.contains("its own Node only")));

    // A token ends with its Node.
    let Ok(CloudToken::New { token, .. }) = worker.cloud_token(&gone, true).await else {
        panic!("a token was asked for")
    };
    site.world.delete(NODE, "", &gone).await;
    assert!(matches!(
        worker.cloud_token(&gone, false).await,
        Ok(CloudToken::Due)
    ));
    let refused = worker.cloud_token(&gone, true).await.err();
    assert_eq!(refused.expect("a refusal").code, "NodeGone");
    let late = site.client(&Speaker::Token(token.to_string())).await;
    await_condition("its token has ended", PATIENCE, || async {
        let refused = tries(&late, &mine, &noted, true).await;
        refused.is_err_and(|why| why.contains("Unauthorized"))
    })
    .await;
}
