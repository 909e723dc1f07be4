//! Cluster settings for nodes, on OpenShift and on plain Kubernetes.

use super::bench::{Bench, patch, patch_part};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_fleet::api::{Key, Part, kinds};
use dormer_profile::{
    builtin,
    cluster_config::{ClusterConfig, ClusterSnapshot},
    document::{ChangeClass, Section},
    drift::between,
    ignition::KubeletFacts,
    kubelet_config::KubeletConfig,
    layers::stack,
    payload::Manifest,
    render::{EXAMPLE_PAYLOAD, Inputs, render},
    shown::readable,
    values::{Values, join_secrets},
    variables::Secrets,
};
use dormer_workers::host::cluster::Cluster;
use serde_json::{Value, json};

fn config(kind: &str, name: &str, body: Value) -> Value {
    let mut object =
        json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": name}});
    for (key, value) in body.as_object().expect("an object") {
        object[key] = value.clone();
    }
    object
}

fn map(namespace: &str, name: &str, key: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
        "data": {key: text}})
}

fn authority(name: &str) -> String {
    rcgen::generate_simple_self_signed(vec![name.to_owned()])
        .expect("a certificate")
        .cert
        .pem()
}

/// Each certificate once, in no order that a person chose.
fn certificates(snapshot: &ClusterSnapshot) -> usize {
    snapshot
        .trusted_ca
        .as_ref()
        .expect("authorities")
        .matches("BEGIN CERTIFICATE")
        .count()
}

fn machine_config(bench: &Bench, name: &str, cloud: &str) {
    let machines = "machineconfiguration.openshift.io/v1";
    let unit = format!("[Service]\nExecStart=/usr/bin/kubelet \\\n  --cloud-provider={cloud}\n");
    let rendered = json!({"apiVersion": machines, "kind": "MachineConfig", "metadata": {"name": name},
        "spec": {"config": {"systemd": {"units": [{"name": "kubelet.service", "contents": unit}]}}}});
    bench.world.create(rendered).expect("a machine config");
    let spec = json!({"spec": {"configuration": {"name": name}}});
    let key = Key::new("", "worker");
    if bench
        .world
        .api
        .get(&kinds::MACHINE_CONFIG_POOL, &key)
        .is_err()
    {
        let pool = json!({"apiVersion": machines, "kind": "MachineConfigPool", "metadata": {"name": "worker",
            "labels": {"pools.operator.machineconfiguration.openshift.io/worker": ""}}});
        bench.world.create(pool).expect("a pool");
    }
    patch(&bench.world, &kinds::MACHINE_CONFIG_POOL, &key, spec);
}

#[tokio::test]
async fn a_cluster_that_says_nothing_is_read_so() {
    let bench = Bench::new(1, false).await;
    assert_eq!(
        bench.executor.read_cluster().await,
        ClusterSnapshot::default()
    );
}

#[tokio::test]
async fn what_openshift_says_of_its_nodes_is_read() {
    let bench = Bench::new(1, false).await;
    let create = |object: Value| drop(bench.world.create(object).expect("made"));
    let source = |mirror: &str| json!([{"source": "quay.io", "mirrors": [mirror]}]);
    create(config(
        "ImageTagMirrorSet",
        "a",
        json!({"spec": {"imageTagMirrors": source("tags.example")}}),
    ));
    create(config(
        "ImageDigestMirrorSet",
        "b",
        json!({"spec": {"imageDigestMirrors": source("b.example")}}),
    ));
    create(config(
        "ImageDigestMirrorSet",
        "a",
        json!({"spec": {"imageDigestMirrors":
        [{"source": "quay.io", "mirrors": ["a.example"], "mirrorSourcePolicy": "NeverContactSource"}]}}),
    ));
    create(
        json!({"apiVersion": "operator.openshift.io/v1alpha1", "kind": "ImageContentSourcePolicy",
        "metadata": {"name": "old"}, "spec": {"repositoryDigestMirrors": source("old.example")}}),
    );
    patch(
        &bench.world,
        &kinds::NETWORK_OPERATOR,
        &Key::new("", "cluster"),
        json!({"spec": {"defaultNetwork": {"ovnKubernetesConfig":
            {"hybridOverlayConfig": {"hybridOverlayVXLANPort": 9898}}}}}),
    );
    for (name, label, pods) in [("ours", "worker", 100), ("theirs", "master", 50)] {
        let label = format!("pools.operator.machineconfiguration.openshift.io/{label}");
        create(
            json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
            "metadata": {"name": name}, "spec": {"kubeletConfig": {"maxPods": pods},
                "machineConfigPoolSelector": {"matchLabels": {label: ""}}}}),
        );
    }
    create(config(
        "Proxy",
        "cluster",
        json!({"spec": {"trustedCA": {"name": "user-ca-bundle"}, "httpProxy": "no"},
        "status": {"httpProxy": "http://u:p@proxy.example:3128", "httpsProxy": "", "noProxy": ".svc"}}),
    ));
    create(config(
        "Image",
        "cluster",
        json!({"spec": {"additionalTrustedCA": {"name": "registries"}}}),
    ));
    let one = authority("one.example");
    let two = authority("two.example");
    create(map(
        "openshift-config",
        "user-ca-bundle",
        "ca-bundle.crt",
        &format!("{one}{two}"),
    ));
    create(map(
        "openshift-config",
        "registries",
        "mirror.example..5000",
        &two,
    ));
    machine_config(&bench, "rendered-worker-1", "external");

    let snapshot = bench.executor.read_cluster().await;
    let mirrors = snapshot.mirrors.as_ref().expect("mirrors");
    let warnings: Vec<_> = mirrors
        .iter()
        .map(|m| (m.mirrors[0].as_str(), m.tags, m.never_source))
        .collect();
    let wanted = [
        ("a.example", false, true),
        ("b.example", false, false),
        ("old.example", false, false),
        ("tags.example", true, false),
    ];
    assert_eq!(warnings, wanted, "digests first, each kind by its names");
    assert!(
        snapshot
            .pull_secret
            .as_ref()
            .is_ok_and(|(revision, _)| !revision.0.is_empty())
    );
    assert_eq!(certificates(&snapshot), 2, "each once");
    let facts = KubeletFacts {
        cloud_provider: Some("external".into()),
        ..KubeletFacts::default()
    };
    assert_eq!(snapshot.kubelet, Ok(facts));
    assert_eq!(snapshot.vxlan_port, Ok(Some(9898)));
    assert_eq!(
        snapshot.kubelet_configs,
        Ok(vec![KubeletConfig {
            name: "ours".to_owned(),
            settings: json!({"maxPods": 100}),
            ..KubeletConfig::default()
        }]),
        "of the pool worker alone"
    );
    let (cluster_config, warnings) = ClusterConfig::default().with(snapshot, true);
    assert!(
        warnings.is_empty() && cluster_config.unknown.is_empty(),
        "{warnings:?}"
    );
    let mut values = Values::example("none");
    cluster_config.fill(&mut values);
    assert_eq!(
        (&*values.http_proxy, &*values.https_proxy, &*values.no_proxy),
        ("http://u:***@proxy.example:3128", "", ".svc")
    );

    // dormer's own bundle wins over the proxy's; a registry's authorities come on top.
    create(map("dormer", "trusted-ca", "ca-bundle.crt", &one));
    machine_config(&bench, "rendered-worker-2", "");
    let snapshot = bench.executor.read_cluster().await;
    assert_eq!(certificates(&snapshot), 2);
    assert_eq!(
        snapshot.kubelet.expect("facts").cloud_provider.as_deref(),
        Some("")
    );
}

#[tokio::test]
async fn a_proxys_password_reaches_the_host_and_no_view() {
    let bench = Bench::new(1, false).await;
    let address = |password: &str| format!("http://u:{password}@proxy.example:3128");
    let status = |password: &str| json!({"status": {"httpProxy": address(password), "httpsProxy": "http://proxy.example"}});
    let proxy = config("Proxy", "cluster", json!({"spec": {}}));
    drop(bench.world.create(proxy).expect("made"));
    let read = async |password: &str| {
        patch_part(
            &bench.world,
            &kinds::PROXY,
            &Key::new("", "cluster"),
            Part::Status,
            status(password),
        );
        let snapshot = bench.executor.read_cluster().await;
        ClusterConfig::default().with(snapshot, true).0
    };
    let first = read("marked-password").await;
    let second = read("another-password").await;
    assert_ne!(first.digest(), second.digest(), "it reaches the nodes");
    assert!(!format!("{first:?}").contains("marked-password"));

    let mut values = Values::example("aws");
    first.fill(&mut values);
    let environment = |secrets: &Secrets| {
        let profile = builtin::openshift();
        let payload = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
        let inputs = Inputs {
            profile: &profile,
            payload: &payload,
            variables: &values.variables(),
            secrets,
            keep: &[],
        };
        let rendered = render(&inputs, Section::Host, "v").expect("it renders");
        rendered.document
    };
    let value = |document: &Value, name: &str| {
        let items = document["items"].as_array().expect("items");
        let id = format!("environment:{name}");
        let item = items.iter().find(|item| item["id"] == id);
        item.expect("a variable")["value"].clone()
    };
    let mut secrets = join_secrets("https://api:6443", "CA", "CA", "token");
    first.secrets("aws", &mut secrets);
    let host = serde_json::to_value(environment(&secrets)).expect("JSON");
    assert_eq!(value(&host, "HTTP_PROXY"), address("marked-password"));
    assert_eq!(value(&host, "HTTPS_PROXY"), "http://proxy.example");

    let named = |config: &ClusterConfig| {
        let mut named = join_secrets("https://api:6443", "CA", "CA", "token");
        config.named_secrets("aws", &mut named);
        environment(&named)
    };
    let before = named(&first);
    let after = named(&second);
    let shown = readable(&before);
    assert_eq!(value(&shown, "HTTP_PROXY"), address("***"));
    for document in [&before, &after] {
        let text = format!("{document:?} {}", readable(document));
        assert!(!text.contains("-password"), "{text}");
    }
    let differences = between(&before, &after).into_iter();
    let differences: Vec<_> = differences.map(|it| (it.id, it.change)).collect();
    let wanted = ("environment:HTTP_PROXY".to_owned(), ChangeClass::Drain);
    assert_eq!(differences, [wanted], "a plan shows that it changes");
}

/// A configuration that the Machine Config Operator has rendered and no Linux node has run yet reaches no Windows node, be
/// the pool paused, being updated, or degraded by it.
#[tokio::test]
async fn of_a_pool_counts_what_all_its_nodes_have() {
    let bench = Bench::new(1, false).await;
    let key = Key::new("", "worker");
    let read = async || {
        let snapshot = bench.executor.read_cluster().await;
        snapshot.kubelet.expect("facts").cloud_provider
    };
    machine_config(&bench, "rendered-worker-1", "aws");
    // A pool that no node has ever finished has nothing else to say.
    assert_eq!(read().await.as_deref(), Some("aws"));
    all_nodes_have(&bench, "rendered-worker-1");
    machine_config(&bench, "rendered-worker-2", "external");
    for (paused, updated) in [(false, 0), (false, 2), (true, 0), (true, 2)] {
        let spec = json!({"spec": {"paused": paused}});
        patch(&bench.world, &kinds::MACHINE_CONFIG_POOL, &key, spec);
        let counts = json!({"status": {"machineCount": 3, "updatedMachineCount": updated}});
        let status = Part::Status;
        patch_part(
            &bench.world,
            &kinds::MACHINE_CONFIG_POOL,
            &key,
            status,
            counts,
        );
        assert_eq!(read().await.as_deref(), Some("aws"), "{paused} {updated}");
    }
    all_nodes_have(&bench, "rendered-worker-2");
    assert_eq!(read().await.as_deref(), Some("external"));
}

/// What the Machine Config Operator writes when the last node of the pool has finished.
fn all_nodes_have(bench: &Bench, name: &str) {
    patch_part(
        &bench.world,
        &kinds::MACHINE_CONFIG_POOL,
        &Key::new("", "worker"),
        Part::Status,
        json!({"status": {"configuration": {"name": name}}}),
    );
}

/// Windows nodes follow the file that the Linux nodes of the pool have, and the one KubeletConfig that OpenShift itself takes.
#[tokio::test]
async fn windows_nodes_follow_the_kubelet_conf_of_the_pool() {
    let bench = Bench::new(1, false).await;
    let label = "pools.operator.machineconfiguration.openshift.io/worker";
    let create = |name: &str, number: Option<&str>, spec: Value, status: Value| {
        let annotations = number.map(|it| ("machineconfiguration.openshift.io/mc-name-suffix", it));
        let annotations: std::collections::BTreeMap<_, _> = annotations.into_iter().collect();
        let mut object = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
            "metadata": {"name": name, "annotations": annotations}, "spec": spec, "status": status});
        object["spec"]["machineConfigPoolSelector"] = json!({"matchLabels": {label: ""}});
        drop(bench.world.create(object).expect("made"));
    };
    let pods = |pods: u32| json!({"kubeletConfig": {"maxPods": pods}});
    create("second", Some("1"), pods(200), json!({}));
    create("first", None, pods(100), json!({}));
    let modern = json!({"kubeletConfig": {"clusterDNS": ["10.0.0.1"]}, "tlsSecurityProfile": {"type": "Modern"}});
    let conditions = json!([{"type": "Success", "status": "True"},
        {"type": "Failure", "status": "False", "message": "clusterDNS is not allowed to be set"}]);
    create(
        "third",
        Some("2"),
        modern,
        json!({"conditions": conditions}),
    );
    machine_config(&bench, "rendered-worker-1", "external");
    let pods_of = async || {
        let snapshot = bench.executor.read_cluster().await;
        let (config, said) = ClusterConfig::default().with(snapshot, true);
        let below = builtin::layer("openshift").expect("a layer");
        let profile = stack(&[below, config.layer()]).expect("a profile");
        let json = profile.host.files[r"C:\k\kubelet.conf"].json.clone();
        let json = json.expect("JSON");
        (json["maxPods"].clone(), json["tlsMinVersion"].clone(), said)
    };
    // Without the file, the last that OpenShift takes.
    let (pods, _, said) = pods_of().await;
    assert_eq!(pods, 200);
    let wanted = [
        "second comes later",
        "OpenShift refused it (clusterDNS is not",
    ];
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        wanted
            .iter()
            .zip(&said)
            .all(|(part, said)| said.contains(part)),
        "{said:?}"
    );
    // With it, the file: the one that all nodes of the pool have.
    let rendered = |name: &str, pods: u32| {
        let file = json!({"kind": "KubeletConfiguration", "maxPods": pods, "tlsMinVersion": "VersionTLS13"});
        let source = format!(
            "data:text/plain;charset=utf-8;base64,{}",
            STANDARD.encode(file.to_string())
        );
        machine_config(&bench, name, "external");
        let files =
            json!([{"path": "/etc/kubernetes/kubelet.conf", "contents": {"source": source}}]);
        let spec = json!({"spec": {"config": {"storage": {"files": files}}}});
        patch(
            &bench.world,
            &kinds::MACHINE_CONFIG,
            &Key::new("", name),
            spec,
        );
    };
    rendered("rendered-worker-2", 210);
    let (pods, tls, _) = pods_of().await;
    assert_eq!((pods, tls), (json!(210), json!("VersionTLS13")));
    all_nodes_have(&bench, "rendered-worker-2");
    rendered("rendered-worker-3", 220);
    assert_eq!(pods_of().await.0, 210);
    all_nodes_have(&bench, "rendered-worker-3");
    assert_eq!(pods_of().await.0, 220);
}

#[tokio::test]
async fn what_cannot_be_understood_is_a_sentence_without_a_secret() {
    let bench = Bench::new(1, false).await;
    let create = |object: Value| drop(bench.world.create(object).expect("made"));
    create(config(
        "ImageDigestMirrorSet",
        "a",
        json!({"spec": {"imageDigestMirrors":
        [{"source": "quay.io", "mirrors": ["a.example"]}]}}),
    ));
    let secret = json!({"data": {".dockerconfigjson": STANDARD.encode(r#"{"auths": hunter2"#)}});
    patch(
        &bench.world,
        &kinds::SECRET,
        &Key::new("openshift-config", "pull-secret"),
        secret,
    );
    create(config(
        "Proxy",
        "cluster",
        json!({"spec": {}, "status": {"httpProxy": "u:hunter2@proxy"}}),
    ));
    create(map("dormer", "trusted-ca", "ca-bundle.crt", "hunter2"));
    let pool = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"}, "spec": {"configuration": {"name": "rendered-worker-9"}}});
    create(pool);
    let (cluster_config, warnings) =
        ClusterConfig::default().with(bench.executor.read_cluster().await, true);
    assert_eq!(cluster_config.unknown, warnings);
    let wanted = [
        "pull secret: Secret openshift-config/pull-secret: .dockerconfigjson is no JSON",
        "proxy: status.httpProxy of proxies.config.openshift.io/cluster is no URL",
        "trusted authorities: ConfigMap dormer/trusted-ca: ca-bundle.crt cannot be read",
        "machine config: there is no MachineConfig rendered-worker-9",
    ];
    for (sentence, wanted) in warnings.iter().zip(wanted) {
        assert!(
            sentence.contains(wanted) && !sentence.contains("hunter2"),
            "{sentence}"
        );
    }
    assert_eq!(warnings.len(), wanted.len(), "{warnings:?}");
    let mut secrets = Secrets::default();
    cluster_config.secrets("aws", &mut secrets);
    assert_eq!(secrets, Secrets::default());
}

#[tokio::test]
async fn a_pools_layers_are_read_in_its_order_from_dormers_namespace() {
    let bench = Bench::new(1, false).await;
    let create = |object: Value| drop(bench.world.create(object).expect("made"));
    let text =
        |team: &str| format!("host: {{services: {{kubelet: {{environment: {{TEAM: {team}}}}}}}}}");
    for name in ["a", "b"] {
        create(map("dormer", name, "layer.yaml", &text(name)));
    }
    create(map(
        "openshift-config",
        "elsewhere",
        "layer.yaml",
        &text("c"),
    ));
    create(map("dormer", "other-key", "layer.json", "{}"));
    create(map(
        "dormer",
        "mistake",
        "layer.yaml",
        "host:\n  firewal: {}\n",
    ));
    let large = format!("# {}\nhost: {{}}\n", "x".repeat(256 << 10));
    create(map("dormer", "large", "layer.yaml", &large));
    let layers = |names: Value| {
        patch(
            &bench.world,
            &kinds::WINDOWS_POOL,
            &Key::new("dormer", "windows"),
            json!({"spec": {"layers": names}}),
        );
    };
    layers(json!(["b", "a"]));
    let read = async || bench.executor.read_cluster().await.layers;
    let names = read().await.expect("layers").into_iter().map(|it| it.name);
    let names: Vec<String> = names.collect();
    assert_eq!(names, ["ConfigMap dormer/b", "ConfigMap dormer/a"]);
    for (named, wanted) in [
        ("elsewhere", "there is no ConfigMap dormer/elsewhere"),
        ("other-key", "ConfigMap dormer/other-key has no layer.yaml"),
        ("mistake", "ConfigMap dormer/mistake: line 2"),
        ("large", "the layers up to ConfigMap dormer/large have "),
    ] {
        layers(json!(["a", named]));
        let why = read().await.expect_err(named);
        assert!(why.starts_with(wanted), "{why}");
    }
    layers(Value::Null);
    assert_eq!(read().await, Ok(Vec::new()));
}
