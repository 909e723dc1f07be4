//! The canary of a node, run by real pods: Linux' pods stand in for Windows'. The scheduler, the API server's way to the
//! log, the probe and the connections are real; the image is a folder, and the names of Services stand in a file.

use super::cluster::{Kind, NODE, POD, World, client, with_kubelets};
use crate::chart::{objects, rendered};
use dormer_proto::checks::{CheckResult, NodeCheck, NodeExpectation};
use dormer_testkit::{Helm, PodImage, PodNode, agnhost, await_some, skip, started, test_dir};
use dormer_workers::kubernetes::{KubernetesExecutor, Settings};
use serde_json::{Value, json};
use std::{net::TcpListener, time::Duration};
use tokio::{io::copy_bidirectional, net::TcpStream};

const IN_TIME: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "canaries";
const SERVICE: Kind = ("", "v1", "Service");
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

/// Something outside of the cluster: pods reach this computer by such an address.
struct Outside(TcpListener);

impl Outside {
    fn listen() -> Self {
        Self(TcpListener::bind("127.77.0.1:0").expect("a listener"))
    }

    fn address(&self) -> String {
        self.0.local_addr().expect("an address").to_string()
    }
}

/// Plays kube-proxy on the new node: its NodePort leads to the canary.
struct Proxy(tokio::task::JoinHandle<()>);

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Proxy {
    async fn of(world: &World) -> Self {
        let services = world.list(SERVICE, NAMESPACE).await;
        let port = &services[0]["spec"]["ports"][0]["nodePort"];
        let node = world.get(NODE, "", WINDOWS).await.expect("the Node");
        let addresses = node["status"]["addresses"].as_array().expect("addresses");
        let internal = addresses.iter().find(|it| it["type"] == "InternalIP");
        let internal = internal.expect("one")["address"].as_str().expect("a text");
        let pod = world
            .get(POD, NAMESPACE, &format!("canary-{WINDOWS}"))
            .await;
        let pod = pod.expect("the canary");
        let canary = format!(
            "{}:8080",
            pod["status"]["podIP"].as_str().expect("an address")
        );
        let listener = tokio::net::TcpListener::bind(format!("{internal}:{port}")).await;
        let listener = listener.expect("a listener");
        Self(tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                if let Ok(mut far) = TcpStream::connect(&canary).await {
                    // Either side closes as it likes.
                    drop(copy_bidirectional(&mut near, &mut far).await);
                }
            }
        }))
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

    let outside = Outside::listen();
    let settings = Settings {
        canaries: Some(NAMESPACE.into()),
        outbound: Some(outside.address()),
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
        "outbound",
        "logs",
        "exec",
    ] {
        let (found, said) = result(&unreached, name).expect("it is checked");
        assert_eq!(found, CheckResult::Ok, "{name}: {said}");
    }

    linux.image(IMAGE, image);
    // No proxy answers on the NodePort yet: the node does not count, though its pod is reached.
    let unserved = await_some("the NodePort is not served", IN_TIME, || async {
        let checks = pass().await;
        let peer = result(&checks, "pod-to-pod")?;
        let port = result(&checks, "node-port")?;
        (peer.0 == CheckResult::Ok && port.1.contains("does not connect")).then_some(port)
    });
    assert_eq!(unserved.await.0, CheckResult::Failed);
    let proxy = Proxy::of(&world).await;
    let reached = await_some("all of them pass", IN_TIME, || async {
        let checks = pass().await;
        let peer = result(&checks, "pod-to-pod")?;
        let port = result(&checks, "node-port")?;
        (port.0 == CheckResult::Ok).then_some((peer, port))
    });
    let (peer, port) = reached.await;
    assert!(peer.1.contains("canary-linux"), "{}", peer.1);
    assert_eq!(port.0, CheckResult::Ok, "{}", port.1);
    drop((proxy, outside));
    // Nothing of it stays.
    await_some("its pods are gone", IN_TIME, || async {
        let services = world.list(SERVICE, NAMESPACE).await;
        (world.list(POD, NAMESPACE).await.is_empty() && services.is_empty()).then_some(())
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
