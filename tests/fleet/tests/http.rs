//! The simulated API server as real clients see it: kube's over HTTPS, and kubectl.

use std::{process::Stdio, time::Duration};

use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{Meta as _, User, kinds},
    world::BareCloud,
};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{
    certificates::v1::CertificateSigningRequest,
    core::v1::{ConfigMap, Node, Pod},
};
use kube::{
    Api, Client, Config,
    api::{DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
    runtime::watcher,
};
use serde_json::{Value, json};
use tokio::process::Command;

async fn world(machines: u32) -> World {
    let config = WorldConfig::on_loopback(machines, Pace::times_faster(100.0));
    let made = World::start_with(config, |context, api| BareCloud::new(api, context.pace)).await;
    made.expect("a world")
}

async fn client(kubeconfig: Value) -> Client {
    let parsed = Kubeconfig::from_yaml(&kubeconfig.to_string()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(parsed, &options)
        .await
        .expect("a config");
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let check = async {
        let mut poll = tokio::time::interval(Duration::from_millis(20));
        while !holds().await {
            poll.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), check)
        .await
        .expect(what);
}

fn machines(client: &Client) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("machine.openshift.io", "v1beta1", "Machine");
    let resource = ApiResource::from_gvk(&gvk);
    Api::namespaced_with(client.clone(), "openshift-machine-api", &resource)
}

#[tokio::test]
async fn kube_lists_watches_patches_and_evicts() {
    let world = world(2).await;
    let client = client(world.kubeconfig()).await;
    assert_eq!(
        client.apiserver_version().await.expect("a version").major,
        "1"
    );
    let windows = ListParams::default().labels("machine.openshift.io/os-id=Windows");
    let running = || async {
        let listed = machines(&client).list(&windows).await.expect("a list");
        let phase = |m: &DynamicObject| m.data["status"]["phase"] == "Running";
        listed.items.iter().filter(|m| phase(m)).count() == 2
    };
    until("two machines run", running).await;
    let paged = machines(&client)
        .list(&ListParams::default().limit(2))
        .await
        .expect("a page");
    let more = paged.metadata.continue_.clone().expect("there is more");
    let rest = ListParams::default().limit(10).continue_token(&more);
    let rest = machines(&client).list(&rest).await.expect("the rest");
    assert_eq!(paged.items.len() + rest.items.len(), 6);

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let watched = maps.clone();
    let stream = watcher(watched, watcher::Config::default());
    let mut stream = std::pin::pin!(kube::runtime::WatchStreamExt::applied_objects(stream));
    let map = json!({"metadata": {"name": "m"}, "data": {"a": "1"}});
    let map: ConfigMap = serde_json::from_value(map).expect("a map");
    let made = maps
        .create(&PostParams::default(), &map)
        .await
        .expect("it is made");
    let received = stream.next().await.expect("it goes on").expect("no error");
    assert_eq!(received.metadata.uid, made.metadata.uid);
    let stale = maps.replace("m", &PostParams::default(), &made).await;
    assert!(stale.is_ok(), "nothing changed, so nothing is refused");
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "2"}});
    let params = PatchParams::apply("test").force();
    maps.patch("m", &params, &Patch::Apply(apply))
        .await
        .expect("it is applied");
    let refused = maps.replace("m", &PostParams::default(), &made).await;
    assert!(matches!(refused, Err(kube::Error::Api(e)) if e.code == 409));

    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let ready = || async {
        let all = world.all(&kinds::POD);
        all.len() == 2 && all.iter().all(|p| p.value.is("Ready"))
    };
    until("two pods are ready", ready).await;
    let budget = || async { world.all(&kinds::PDB)[0].value["status"]["disruptionsAllowed"] == 1 };
    until("the budget allows one", budget).await;
    let names: Vec<String> = world
        .all(&kinds::POD)
        .iter()
        .map(|p| p.value.name().to_owned())
        .collect();
    pods.evict(&names[0], &EvictParams::default())
        .await
        .expect("one may go");
    let refused = pods.evict(&names[1], &EvictParams::default()).await;
    assert!(matches!(refused, Err(kube::Error::Api(e)) if e.code == 429));
}

#[tokio::test]
async fn a_watch_that_starts_too_early_is_gone() {
    let world = world(1).await;
    let client = client(world.kubeconfig()).await;
    world.api.store().compact(kinds::MACHINE.store);
    let params = WatchParams::default();
    let watch = machines(&client)
        .watch(&params, "1")
        .await
        .expect("it starts");
    let first = watch
        .boxed()
        .try_next()
        .await
        .expect("a line")
        .expect("an event");
    assert!(matches!(first, kube::core::WatchEvent::Error(e) if e.code == 410));
}

#[tokio::test]
async fn an_alias_bomb_in_yaml_is_refused_at_once() {
    let world = world(1).await;
    let client = client(world.kubeconfig()).await;
    let aliases = vec!["*a"; 170_000].join(",");
    let bomb = format!("kind: &a {}\nitems: [{aliases}]", "x".repeat(12_000));
    let request = hyper::Request::post("/api/v1/namespaces/default/configmaps")
        .header("content-type", "application/yaml")
        .body(bomb.into_bytes())
        .expect("a request");
    let started = std::time::Instant::now();
    let error = client.request::<Value>(request).await.expect_err("refused");
    let took = started.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(
        error.to_string().contains("more than 1000 aliases"),
        "{error}"
    );
}

#[tokio::test]
async fn a_kubelet_gets_its_certificate() {
    let world = world(0).await;
    let bootstrap = User::service_account("openshift-machine-config-operator", "node-bootstrapper");
    let kubelet = client(world.kubeconfig_for(bootstrap.clone())).await;
    let request = {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "system:nodes");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "system:node:win-1");
        (
            params
                .serialize_request(&key)
                .expect("a request")
                .pem()
                .expect("PEM"),
            key,
        )
    };
    let csr: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"generateName": "csr-"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"], "username": "forged",
            "request": base64(&request.0)},
    }))
    .expect("a request");
    let csrs: Api<CertificateSigningRequest> = Api::all(kubelet.clone());
    let made = csrs
        .create(&PostParams::default(), &csr)
        .await
        .expect("it is made");
    assert_eq!(made.spec.username.as_deref(), Some(bootstrap.name.as_str()));
    let name = made.metadata.name.clone().expect("a name");
    let admin: Api<CertificateSigningRequest> = Api::all(client(world.kubeconfig()).await);
    let approval = json!({"status": {"conditions": [{"type": "Approved", "status": "True",
        "reason": "ByTest", "lastUpdateTime": "2026-11-21T00:00:00Z"}]}});
    let params = PatchParams::default();
    admin
        .patch_approval(&name, &params, &Patch::Merge(approval))
        .await
        .expect("it is approved");
    let signed = || async {
        let csr = csrs.get(&name).await.expect("it is there");
        csr.status.is_some_and(|s| s.certificate.is_some())
    };
    until("it is signed", signed).await;
    let csr = csrs.get(&name).await.expect("it is there");
    let pem = csr
        .status
        .and_then(|s| s.certificate)
        .expect("a certificate")
        .0;
    let pair = dormer_fleet::api::ca::Pair {
        cert_pem: String::from_utf8(pem).expect("PEM"),
        key_pem: request.1.serialize_pem(),
    };
    let shown = dormer_fleet::api::kubeconfig::Credential::Certificate(pair);
    let ca = world.api.ca().pem();
    let config = dormer_fleet::api::kubeconfig::kubeconfig(&world.api_url, &ca, "node", &shown);
    let node = client(config).await;
    let nodes: Api<Node> = Api::all(node);
    let me: Node = serde_json::from_value(json!({"metadata": {"name": "win-1"}})).expect("a node");
    nodes
        .create(&PostParams::default(), &me)
        .await
        .expect("it registers by its certificate");
    let mut nobody = Config::new(world.api_url.parse().expect("a URL"));
    nobody.accept_invalid_certs = true;
    nobody.default_retry = false;
    let nobody: Api<Node> = Api::all(Client::try_from(nobody).expect("a client"));
    let refused = nobody.list(&ListParams::default()).await;
    assert!(matches!(refused, Err(kube::Error::Api(e)) if e.code == 401));
}

fn base64(text: &str) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    BASE64_STANDARD.encode(text)
}

struct Kubectl {
    config: std::path::PathBuf,
    home: tempfile::TempDir,
}

impl Kubectl {
    async fn run(&self, arguments: &str) -> String {
        let mut command = Command::new("kubectl");
        command
            .arg("--kubeconfig")
            .arg(&self.config)
            .args(arguments.split(' '));
        command
            .env("HOME", self.home.path())
            .env("EDITOR", "sed -i s/replicas:.*/replicas:\\ 3/");
        command.stdin(Stdio::null()).kill_on_drop(true);
        let ran = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
        let output = ran.expect("in time").expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "kubectl {arguments}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }
}

#[tokio::test]
async fn kubectl_is_served() {
    let found = Command::new("kubectl")
        .arg("version")
        .arg("--client")
        .output()
        .await;
    if !found.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: no kubectl on the PATH");
        return;
    }
    let world = world(1).await;
    let home = tempfile::tempdir().expect("a folder");
    let config = home.path().join("config");
    world.write_kubeconfig(&config).expect("it is written");
    let azure = dormer_fleet::manifest::parse(
        dormer_fleet::manifest::AZURE_WINDOWS,
        &dormer_fleet::manifest::Sets::new(),
    );
    let azure = dormer_profile::yaml::to_string(&azure.expect("it parses")[0]).expect("YAML");
    let file = home.path().join("azure.yaml");
    std::fs::write(&file, azure).expect("it is written");
    let kubectl = Kubectl { config, home };
    let created = kubectl.run(&format!("create -f {}", file.display())).await;
    assert_eq!(
        created.trim(),
        "machineset.machine.openshift.io/winworker created"
    );
    let table = kubectl
        .run("get machinesets -n openshift-machine-api")
        .await;
    let head: Vec<&str> = table
        .lines()
        .next()
        .expect("a head")
        .split_whitespace()
        .collect();
    assert_eq!(
        head,
        ["NAME", "DESIRED", "CURRENT", "READY", "AVAILABLE", "AGE"]
    );
    kubectl
        .run("scale machineset winworker --replicas=2 -n openshift-machine-api")
        .await;
    let replicas = || async {
        let jsonpath =
            "get machineset winworker -n openshift-machine-api -o jsonpath={.spec.replicas}";
        kubectl.run(jsonpath).await
    };
    assert_eq!(replicas().await, "2");
    kubectl
        .run("edit machineset winworker -n openshift-machine-api")
        .await;
    assert_eq!(replicas().await, "3");
    let patch = r#"patch machineset winworker -n openshift-machine-api --type=json -p=[{"op":"replace","path":"/spec/replicas","value":1}]"#;
    kubectl.run(patch).await;
    assert_eq!(replicas().await, "1");
    let one = || async { kubectl.run("get nodes").await.contains("winworker") };
    until("the Azure machine is a node", one).await;
    let all = kubectl
        .run("get machinesets,machines,nodes,csr,pods -A -o wide")
        .await;
    assert!(
        all.contains("machine.machine.openshift.io/demo-x7k2p-master-0"),
        "{all}"
    );
    assert!(all.contains("node/winworker-"), "{all}");
    let node = kubectl
        .run("get nodes -l kubernetes.io/os=windows -o name")
        .await;
    let node = node.lines().next().expect("a node").to_owned();
    kubectl.run(&format!("label {node} zone=a")).await;
    kubectl.run(&format!("cordon {node}")).await;
    let drain = format!("drain {node} --ignore-daemonsets --delete-emptydir-data --timeout=30s");
    kubectl.run(&drain).await;
    kubectl.run(&format!("uncordon {node}")).await;
    kubectl.run("describe node/demo-x7k2p-master-0").await;
    kubectl
        .run("delete machineset winworker -n openshift-machine-api")
        .await;
    let map = kubectl.home.path().join("map.yaml");
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n";
    std::fs::write(&map, text).expect("it is written");
    kubectl.run(&format!("apply -f {}", map.display())).await;
    kubectl
        .run(&format!(
            "apply --server-side --force-conflicts -f {}",
            map.display()
        ))
        .await;
    kubectl.run("annotate configmap c seen=yes").await;
    kubectl
        .run("wait --for=delete machine -l none=such --timeout=5s -A")
        .await;
    kubectl.run(&format!("delete -f {}", map.display())).await;
}
