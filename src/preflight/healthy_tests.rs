//! Clusters against which nothing stands, each of another make, as their API servers have them: nothing is invented.

use super::{
    GMSA, HYBRID, OperatorSearch, OtherOperator, POOLS, PreflightFinding, ReadObject, Survey,
    healthy, json, judge, manifest, node, plain, pool, secret, set, user_data, yaml,
};
use dormer_testkit::{KeyKind, SshKey, test_dir};
use serde_json::Value;

/// A manifest as an API server gives it back: with what it keeps for itself, and with what people's tools leave there.
fn served(mut object: Value) -> Value {
    let applied = object.to_string();
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata.insert("uid".into(), json!("6f6c9d3e-4a55-4a63-9d8e-7a3c1f4f3f10"));
    metadata.insert("resourceVersion".into(), json!("812345"));
    metadata.insert("generation".into(), json!(3));
    metadata.insert("creationTimestamp".into(), json!("2026-09-14T09:12:33Z"));
    let managed = json!([{"manager": "kubectl-client-side-apply", "operation": "Update", "fieldsType": "FieldsV1",
        "apiVersion": object["apiVersion"], "fieldsV1": {"f:spec": {}}}]);
    object["metadata"]["managedFields"] = managed;
    let last = "kubectl.kubernetes.io/last-applied-configuration";
    object["metadata"]["annotations"][last] = json!(applied);
    object
}

/// A MachineSet with the defaults and the status that the Machine API's server and its controllers write.
fn served_set(set: Value) -> Value {
    let mut set = served(set);
    set["spec"]["deletePolicy"] = json!("Random");
    set["spec"]["authoritativeAPI"] = json!("MachineAPI");
    set["spec"]["template"]["spec"]["lifecycleHooks"] = json!({});
    set["spec"]["template"]["spec"]["authoritativeAPI"] = json!("MachineAPI");
    set["status"] = json!({"replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "fullyLabeledReplicas": 1,
        "observedGeneration": 3});
    set
}

fn documents(text: &str) -> Vec<Value> {
    yaml::documents(text).expect("YAML")
}

const AZURE: &str = include_str!("../lint/tests/healthy/02-azure.yaml");
const LINUX: &str = include_str!("../lint/tests/healthy/03-linux-infra.yaml");
const VSPHERE: &str = include_str!("../lint/tests/healthy/04-vsphere.yaml");
const GCP: &str = include_str!("../lint/tests/healthy/05-gcp-from-zero.yaml");
const INSTANCES: &str = include_str!("../lint/tests/healthy/06-instances.yaml");

/// An OpenShift cluster of another platform and version, with the user data for it.
fn openshift(key: &SshKey, platform: &str, versions: (&str, &str)) -> Survey {
    let mut it = healthy(key);
    let status = json!({"platform": platform, "platformStatus": {"type": platform}});
    it.infrastructure = ReadObject::There(json!({"status": status}));
    set(
        &mut it.cluster_version,
        "/status/desired/version",
        json!(versions.0),
    );
    it.api_server = versions.1.to_owned();
    it.nodes = Vec::new();
    it.machine_sets = Vec::new();
    it.health_checks = Vec::new();
    let text = user_data(&key.public, &platform.to_ascii_lowercase()).expect("user data");
    it.user_data = secret("windows-user-data", &[("userData", &text)]);
    let ReadObject::There(made) = &mut it.user_data else {
        panic!("a Secret")
    };
    made["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "dormer"});
    it
}

/// A Windows node of a kubelet and an update of Windows.
fn windows_node(kubelet: &str, kernel: &str, image: &str, taint: &str) -> Value {
    let mut it = node();
    it["spec"]["taints"][0]["value"] = json!(taint);
    let info = &mut it["status"]["nodeInfo"];
    info["kubeletVersion"] = json!(kubelet);
    info["kernelVersion"] = json!(kernel);
    info["osImage"] = json!(image);
    it
}

fn linux_node() -> Value {
    json!({"metadata": {"name": "linux-a", "labels": {"kubernetes.io/os": "linux"}}, "spec": {},
        "status": {"nodeInfo": {"kubeletVersion": "v1.33.4", "kernelVersion": "5.14.0-570.el9.x86_64",
            "osImage": "Red Hat Enterprise Linux CoreOS", "operatingSystem": "linux",
            "containerRuntimeVersion": "cri-o://1.33.4"}}})
}

fn azure(key: &SshKey) -> Survey {
    let mut it = openshift(key, "Azure", ("4.21.4", "v1.34.2"));
    it.machine_sets = vec![served_set(manifest(AZURE))];
    it.nodes = vec![
        linux_node(),
        windows_node(
            "v1.34.2",
            "10.0.17763.7919",
            "Windows Server 2019 Datacenter",
            "Windows",
        ),
    ];
    it
}

fn vsphere(key: &SshKey) -> Survey {
    let mut it = openshift(key, "VSphere", ("4.22.1", "v1.35.1"));
    let [set_of, check] = documents(VSPHERE).try_into().expect("two");
    it.machine_sets = vec![served_set(set_of)];
    it.health_checks = vec![served(check)];
    let overlay = json!({"hybridOverlayVXLANPort": 9898, "hybridClusterNetwork": [{"cidr": "10.132.0.0/14", "hostPrefix": 23}]});
    set(&mut it.network_operator, HYBRID, overlay);
    it
}

fn gcp(key: &SshKey) -> Survey {
    let mut it = openshift(key, "GCP", ("4.20.30", "v1.33.9"));
    for object in documents(GCP) {
        match object["kind"].as_str() {
            Some("MachineSet") => it.machine_sets.push(served_set(object)),
            Some("MachineAutoscaler") => it.autoscalers.push(served(object)),
            _ => {}
        }
    }
    it
}

/// BYOH hosts on OpenShift, from a ConfigMap, with a key of RSA.
fn own_hosts(key: &SshKey) -> Survey {
    let mut it = openshift(key, "None", ("5.0.3", "v1.36.2"));
    let mut map = served(manifest(INSTANCES));
    map["metadata"]["namespace"] = json!("dormer");
    it.instances = vec![map];
    it.user_data = ReadObject::Absent;
    it.nodes = vec![windows_node(
        "v1.36.2",
        "10.0.26100.4061",
        "Windows Server 2025 Datacenter",
        "Windows",
    )];
    it
}

/// Linux MachineSets and a health check of them with short limits: none of ours.
fn linux_beside(key: &SshKey) -> Survey {
    let mut it = openshift(key, "AWS", ("4.20.3", "v1.33.4"));
    it.machine_sets = documents(LINUX).into_iter().map(served_set).collect();
    it.health_checks = vec![served(json!({"apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineHealthCheck", "metadata": {"name": "infra", "namespace": "openshift-machine-api"},
        "spec": {"selector": {"matchLabels": {"machine.openshift.io/cluster-api-machine-role": "infra"}},
            "maxUnhealthy": "40%", "nodeStartupTimeout": "10m",
            "unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "300s"}]}}))];
    it.nodes = vec![linux_node()];
    it
}

fn calico(key: &SshKey) -> Survey {
    let mut it = openshift(key, "AWS", ("4.20.3", "v1.33.4"));
    set(&mut it.network, "/spec/networkType", json!("Calico"));
    it.network_operator =
        ReadObject::There(json!({"spec": {"defaultNetwork": {"type": "Calico"}}}));
    it
}

fn with_gmsa(key: &SshKey) -> Survey {
    let mut it = healthy(key);
    it.definitions.push(json!({"metadata": {"name": GMSA}}));
    it.gmsa_webhooks =
        vec![json!({"metadata": {"name": "gmsa-webhook"}, "status": {"readyReplicas": 2}})];
    let accounts = json!([{"Name": "web", "Scope": "CORP"}]);
    it.gmsa_specs = vec![json!({"metadata": {"name": "web"},
        "credspec": {"ActiveDirectoryConfig": {"GroupManagedServiceAccounts": accounts}}})];
    it
}

/// After WMCO went: its nodes serve on, their kubelets two minors back.
fn moved(key: &SshKey) -> Survey {
    let mut it = openshift(key, "AWS", ("4.22.1", "v1.35.1"));
    it.infrastructure = ReadObject::There(json!({"status": {"platform": "AWS"}}));
    it.nodes = vec![windows_node(
        "v1.33.4+1a2b3c4",
        "10.0.20348.4529",
        "Windows Server 2022 Datacenter",
        "Windows",
    )];
    it.pools = vec![served(pool("dormer", "windows"))];
    it.operator = Some(OperatorSearch {
        neighbour: OtherOperator::Absent,
        ..OperatorSearch::default()
    });
    it
}

/// A cluster of kubeadm before dormer was installed: no definition of anybody.
fn bare_kubernetes(key: &SshKey) -> Survey {
    Survey {
        api_server: "v1.33.13".into(),
        definitions: Vec::new(),
        ..plain(key)
    }
}

/// Plain Kubernetes with nodes of two Windows, the taint of the profile upstream, and dormer's RuntimeClass.
fn upstream(key: &SshKey) -> Survey {
    let mut settings = pool("dormer", "windows");
    settings["spec"]["profile"] = json!("upstream");
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "windows-10.0.20348", "labels": {"app.kubernetes.io/managed-by": "dormer"}},
        "handler": "runhcs-wcow-process", "scheduling": {
            "nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348"},
            "tolerations": [{"key": "os", "operator": "Equal", "value": "Windows", "effect": "NoSchedule"},
                {"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]}});
    Survey {
        api_server: "v1.37.2".into(),
        pools: vec![served(settings)],
        runtime_classes: vec![served(class)],
        nodes: vec![
            windows_node(
                "v1.35.4",
                "10.0.20348.4529",
                "Windows Server 2022 Datacenter",
                "windows",
            ),
            windows_node(
                "v1.37.2",
                "10.0.26100.4061",
                "Windows Server 2025 Standard",
                "windows",
            ),
        ],
        definitions: vec![
            json!({"metadata": {"name": POOLS}}),
            json!({"metadata": {"name": "machines.cluster.x-k8s.io"}}),
        ],
        ..plain(key)
    }
}

type Installation = fn(&SshKey) -> Survey;

const CLUSTERS: &[(&str, KeyKind, Installation)] = &[
    ("OpenShift 4.20 on AWS", KeyKind::Ed25519, healthy),
    ("OpenShift 4.21 on Azure", KeyKind::Ecdsa(384), azure),
    ("OpenShift 4.22 on vSphere", KeyKind::Ed25519, vsphere),
    ("OpenShift 4.20 on GCP, from zero", KeyKind::Ed25519, gcp),
    ("OpenShift 5.0, BYOH hosts", KeyKind::Rsa(4096), own_hosts),
    (
        "OpenShift with Linux sets alone",
        KeyKind::Ed25519,
        linux_beside,
    ),
    ("OpenShift with Calico", KeyKind::Ed25519, calico),
    ("OpenShift with gMSA", KeyKind::Ed25519, with_gmsa),
    ("OpenShift after WMCO", KeyKind::Ecdsa(256), moved),
    (
        "Kubernetes 1.33 of kubeadm",
        KeyKind::Ed25519,
        bare_kubernetes,
    ),
    ("Kubernetes 1.36 with dormer", KeyKind::Ed25519, plain),
    (
        "Kubernetes 1.37 with two Windows",
        KeyKind::Ed25519,
        upstream,
    ),
];

#[test]
fn nothing_is_invented_about_a_healthy_cluster() {
    dormer_testkit::full!();
    let folder = test_dir("preflight-healthy");
    let mut found: Vec<(&str, Vec<PreflightFinding>)> = Vec::new();
    for (at, (what, kind, cluster)) in CLUSTERS.iter().enumerate() {
        let key = SshKey::make(folder.path(), &format!("key-{at}"), *kind).expect("a key");
        found.push((*what, judge(&cluster(&key))));
    }
    found.retain(|(_, findings)| !findings.is_empty());
    assert_eq!(found, []);
    assert!(CLUSTERS.len() >= 10, "{}", CLUSTERS.len());
}
