//! The canary of a node, run by real pods: Linux' pods stand in for Windows'. The scheduler, the API server's way to the
//! log, the probe and the connections are real; the image is a folder, and the names of Services stand in a file.

use super::cluster::{NODE, POD, World, client, with_kubelets};
use crate::chart::{objects, rendered};
use dormer_proto::checks::{CheckResult, NodeCheck, NodeExpectation};
use dormer_testkit::{Helm, PodImage, PodNode, agnhost, await_some, skip, started, test_dir};
use dormer_workers::kubernetes::{KubernetesExecutor, Settings};
use serde_json::{Value, json};
use std::time::Duration;

const IN_TIME: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "canaries";
const IMAGE: &str = "registry.example/agnhost:2.63.0";
/// The user that dormer's worker is here.
const WORKER: &str = "canary-worker";
const WINDOWS: &str = "canary-win";

/// Gives the user of the test the chart's Role in the canary's namespace, and beside it what it reads in the cluster.
async fn may(world: &World, helm: &Helm) {
    let text = rendered(
        helm,
        "dormer",
        &[&format!("--set=canaryNamespace={NAMESPACE}")],
    );
    let all = objects(&text);
    let ours =
        |it: &&Value| it["kind"] == "Role" && it["metadata"]["name"] == "dormer-worker-canary";
    let role = all.iter().find(ours).expect("the chart's Role").clone();
    assert_eq!(role["metadata"]["namespace"], NAMESPACE);
    world.create(role).await;
    let api = "rbac.authorization.k8s.io/v1";
    let who = json!([{"kind": "User", "name": WORKER, "apiGroup": "rbac.authorization.k8s.io"}]);
    let of = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let reads = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    for object in [
        json!({"apiVersion": api, "kind": "RoleBinding", "metadata": {"name": WORKER, "namespace": NAMESPACE},
            "roleRef": of("Role", "dormer-worker-canary"), "subjects": who}),
        json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": WORKER}, "rules": reads}),
        json!({"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": WORKER},
            "roleRef": of("ClusterRole", WORKER), "subjects": who}),
    ] {
        world.create(object).await;
    }
}

fn result(checks: &[NodeCheck], name: &str) -> Option<(CheckResult, String)> {
    let found = checks.iter().find(|check| check.check == name);
    found.map(|check| (check.result, check.said.clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_pod_is_scheduled_on_a_cordoned_node_and_answers_before_it_counts() {
    let plane = match with_kubelets() {
        Ok(plane) => plane,
        Err(skipped) => skip!(skipped),
    };
    let program = match agnhost::program() {
        Ok(program) => program,
        Err(skipped) => skip!(skipped),
    };
    let helm = started!(Helm::start());
    let folder = test_dir("agnhost");
    let image = PodImage {
        root: folder.path().to_path_buf(),
        entrypoint: vec!["/agnhost".into()],
        user: (65532, 65532),
        ..PodImage::default()
    };
    image.program(&program, "/agnhost").expect("an image");
    let new = started!(PodNode::start(plane, WINDOWS));
    let linux = started!(PodNode::start(plane, "canary-linux"));
    let world = World {
        admin: client(&plane.kubeconfig(&plane.admin())).await,
    };
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}});
    world.create(namespace).await;
    may(&world, &helm).await;
    // A node that is checked is not open for pods yet.
    let windows = json!({"metadata": {"labels": {"kubernetes.io/os": "windows"}}, "spec": {"unschedulable": true}});
    world.patch(NODE, "", WINDOWS, windows).await;

    let settings = Settings {
        canaries: Some(NAMESPACE.into()),
        ..Settings::default()
    };
    let worker = client(&plane.kubeconfig(&plane.user(WORKER, None))).await;
    let executor = KubernetesExecutor::new(worker, settings);
    let expect = NodeExpectation {
        canary: Some(IMAGE.into()),
        ..NodeExpectation::default()
    };
    let pass = async || {
        executor
            .verify_node(WINDOWS, &expect)
            .await
            .expect("it is read")
    };

    // The node does not get the image: it does not count.
    let unpulled = await_some("the image is missing", IN_TIME, || async {
        result(&pass().await, "image-pull").filter(|(_, said)| said.contains("ErrImagePull"))
    });
    assert_eq!(unpulled.await.0, CheckResult::Failed);

    new.image(IMAGE, image.clone());
    let unreached = await_some("no Linux node has the image", IN_TIME, || async {
        let checks = pass().await;
        let peer = result(&checks, "pod-to-pod")?;
        (peer.0 == CheckResult::NotChecked).then_some(checks)
    });
    let unreached = unreached.await;
    for name in [
        "canary",
        "image-pull",
        "node-to-pod",
        "service-ip",
        "service-dns",
        "logs",
    ] {
        let (found, said) = result(&unreached, name).expect("it is checked");
        assert_eq!(found, CheckResult::Ok, "{name}: {said}");
    }

    linux.image(IMAGE, image);
    let reached = await_some("all of them pass", IN_TIME, || async {
        let checks = pass().await;
        let peer = result(&checks, "pod-to-pod")?;
        (peer.0 == CheckResult::Ok).then_some(peer.1)
    });
    assert!(reached.await.contains("canary-linux"));
    // Nothing of it stays.
    await_some("its pods are gone", IN_TIME, || async {
        world.list(POD, NAMESPACE).await.is_empty().then_some(())
    })
    .await;
    for name in [WINDOWS, "canary-linux"] {
        world.delete(NODE, "", name).await;
    }
    for kind in ["ClusterRoleBinding", "ClusterRole"] {
        world
            .delete(("rbac.authorization.k8s.io", "v1", kind), "", WORKER)
            .await;
    }
}
