//! Tests of the judgement: faults planted one by one in the survey of a healthy cluster.

use super::*;
use base64::{Engine, prelude::BASE64_STANDARD};
use dormer_profile::userdata::user_data;
use dormer_testkit::{KeyKind, SshKey, test_dir};
use dormer_workers::kubernetes::operators::OperatorSearch;
use std::collections::BTreeSet;

#[path = "healthy_tests.rs"]
mod healthy_clusters;

fn secret(name: &str, data: &[(&str, &str)]) -> ReadObject {
    let encoded = |text: &str| json!(BASE64_STANDARD.encode(text));
    let data: serde_json::Map<String, Value> = data
        .iter()
        .map(|(key, text)| ((*key).to_owned(), encoded(text)))
        .collect();
    ReadObject::There(json!({"kind": "Secret", "metadata": {"name": name}, "data": data}))
}

fn manifest(text: &str) -> Value {
    yaml::documents(text).expect("YAML").remove(0)
}

fn aws_set() -> Value {
    manifest(include_str!("../lint/tests/healthy/01-aws.yaml"))
}

fn health_check() -> Value {
    let text = include_str!("../lint/tests/healthy/04-vsphere.yaml");
    yaml::documents(text).expect("YAML").remove(1)
}

fn pool(home: &str, name: &str) -> Value {
    json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
        "metadata": {"name": name, "namespace": home},
        "spec": {"profile": "openshift", "payload": "1.34.4-1"}})
}

/// A ConfigMap that the pool names, as the survey has it.
fn layer(key: &str, text: &str) -> (String, ReadObject) {
    let map = json!({"kind": "ConfigMap", "metadata": {"name": "blue"}, "data": {key: text}});
    ("blue".to_owned(), ReadObject::There(map))
}

fn node() -> Value {
    json!({"metadata": {"name": "win-a", "labels": {"kubernetes.io/os": "windows"}},
        "spec": {"taints": [{"key": "os", "value": "Windows", "effect": "NoSchedule"}]},
        "status": {"nodeInfo": {"kubeletVersion": "v1.33.4", "kernelVersion": "10.0.20348.3207",
            "osImage": "Windows Server 2022 Datacenter", "containerRuntimeVersion": "containerd://1.7.27"}}})
}

/// A ClusterAutoscaler with the default of 15 minutes for a machine to become a node.
fn cluster_autoscaler() -> Value {
    json!({"apiVersion": "autoscaling.openshift.io/v1", "kind": "ClusterAutoscaler",
        "metadata": {"name": "default"}, "spec": {}})
}

/// An OpenShift cluster against which nothing stands.
fn healthy(key: &SshKey) -> Survey {
    let infrastructure = json!({"status": {"platform": "AWS", "platformStatus": {"type": "AWS"}}});
    let network = json!({"spec": {"networkType": "OVNKubernetes", "serviceNetwork": ["172.30.0.0/16"],
        "clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}]}});
    let operator = json!({"spec": {"defaultNetwork": {"type": "OVNKubernetes", "ovnKubernetesConfig":
        {"hybridOverlayConfig": {"hybridClusterNetwork": [{"cidr": "10.132.0.0/14", "hostPrefix": 23}]}}}}});
    let text = user_data(&key.public, "aws").expect("user data");
    Survey {
        namespace: "dormer".into(),
        api_server: "v1.33.4+abc".into(),
        today: "2026-11-28".into(),
        infrastructure: ReadObject::There(infrastructure),
        cluster_version: ReadObject::There(
            json!({"status": {"desired": {"version": "4.20.3"}, "conditions":
            [{"type": "Progressing", "status": "False"}]}}),
        ),
        network: ReadObject::There(network),
        network_operator: ReadObject::There(operator),
        key: secret("cloud-private-key", &[("private-key.pem", &key.private)]),
        user_data: secret("windows-user-data", &[("userData", &text)]),
        install_keys: ReadObject::There(
            json!({"spec": {"config": {"passwd": {"users": [{"name": "core",
            "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOther a@b"]}]}}}}),
        ),
        bootstrap: secret(
            "node-bootstrapper-token",
            &[("ca.crt", "pem"), ("token", "t")],
        ),
        pull_secret: secret("pull-secret", &[(".dockerconfigjson", "{}")]),
        machine_sets: vec![aws_set()],
        health_checks: vec![health_check()],
        nodes: vec![node()],
        definitions: vec![json!({"metadata": {"name": POOLS}})],
        operator: Some(OperatorSearch {
            neighbour: OtherOperator::Absent,
            ..OperatorSearch::default()
        }),
        ..Survey::default()
    }
}

/// A plain Kubernetes cluster against which nothing stands.
fn plain(key: &SshKey) -> Survey {
    Survey {
        infrastructure: ReadObject::Absent,
        cluster_version: ReadObject::Absent,
        network: ReadObject::Absent,
        network_operator: ReadObject::Absent,
        user_data: ReadObject::Absent,
        install_keys: ReadObject::Absent,
        bootstrap: ReadObject::Absent,
        pull_secret: ReadObject::Absent,
        machine_sets: Vec::new(),
        health_checks: Vec::new(),
        api_server: "v1.36.3".into(),
        nodes: Vec::new(),
        ..healthy(key)
    }
}

fn set(one: &mut ReadObject, path: &str, to: Value) {
    let ReadObject::There(value) = one else {
        panic!("{path}")
    };
    *value.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = to;
}

const HYBRID: &str = "/spec/defaultNetwork/ovnKubernetesConfig/hybridOverlayConfig";
const PROVIDER: &str = "/spec/template/spec/providerSpec/value";

type Plant = fn(&mut Survey, &SshKey);

/// What is wrong, and the one finding that it gives.
const PLANTS: &[(&str, Plant)] = &[
    ("Unread", |it, _| {
        it.unread.push("Secret pull-secret: forbidden".into())
    }),
    ("AnotherOperatorRuns", |it, _| {
        let neighbour = OtherOperator::Runs("the Windows Machine Config Operator runs".into());
        it.operator = Some(OperatorSearch {
            neighbour,
            ..OperatorSearch::default()
        });
    }),
    ("AnotherOperatorInstalled", |it, _| {
        it.operator_installed = vec!["wmco/windows-machine-config-operator.v10.20.0".into()]
    }),
    ("KubernetesUnread", |it, _| it.api_server = "unknown".into()),
    ("KubernetesUnsupported", |it, _| {
        it.api_server = "v1.38.0".into();
        it.nodes.clear();
    }),
    ("OpenShiftUnsupported", |it, _| {
        set(
            &mut it.cluster_version,
            "/status/desired/version",
            json!("4.6.8"),
        )
    }),
    ("ClusterUpgrades", |it, _| {
        set(
            &mut it.cluster_version,
            "/status/conditions/0/status",
            json!("True"),
        )
    }),
    ("ClusterFails", |it, _| {
        set(
            &mut it.cluster_version,
            "/status/conditions/0",
            json!({"type": "Failing", "status": "True"}),
        )
    }),
    ("PlatformUnsupported", |it, _| {
        set(
            &mut it.infrastructure,
            "/status/platformStatus/type",
            json!("PowerVS"),
        )
    }),
    ("NetworkAbsent", |it, _| it.network = ReadObject::Absent),
    ("NetworkUnsupported", |it, _| {
        set(&mut it.network, "/spec/networkType", json!("OpenShiftSDN"))
    }),
    ("NetworkUnknown", |it, _| {
        set(&mut it.network, "/spec/networkType", json!("Weave"))
    }),
    ("ServiceNetworkAbsent", |it, _| {
        set(&mut it.network, "/spec/serviceNetwork", json!([]))
    }),
    ("NetworksDiffer", |it, _| {
        set(
            &mut it.network_operator,
            "/spec/defaultNetwork/type",
            json!("OpenShiftSDN"),
        )
    }),
    ("HybridOverlayAbsent", |it, _| {
        set(&mut it.network_operator, HYBRID, json!({}))
    }),
    ("HybridOverlayAbsent", |it, _| {
        it.network_operator = ReadObject::Absent
    }),
    ("HybridOverlayOverlaps", |it, _| {
        let networks = json!({"hybridClusterNetwork": [{"cidr": "10.130.0.0/16"}]});
        set(&mut it.network_operator, HYBRID, networks);
    }),
    ("VxlanPortTaken", |it, _| {
        set(
            &mut it.infrastructure,
            "/status/platformStatus/type",
            json!("VSphere"),
        )
    }),
    ("VxlanPort2019", |it, _| {
        set(
            &mut it.network_operator,
            HYBRID,
            json!({"hybridOverlayVXLANPort": 9898,
            "hybridClusterNetwork": [{"cidr": "10.132.0.0/14"}]}),
        );
        it.machine_sets = vec![manifest(include_str!(
            "../lint/tests/healthy/02-azure.yaml"
        ))];
    }),
    ("BootstrapTokenAbsent", |it, _| {
        it.bootstrap = ReadObject::Absent
    }),
    ("BootstrapTokenAbsent", |it, _| {
        it.bootstrap = secret("t", &[("ca.crt", "pem"), ("token", " ")])
    }),
    ("PullSecretAbsent", |it, _| {
        it.pull_secret = ReadObject::Absent
    }),
    ("KeyAbsent", |it, _| it.key = ReadObject::Absent),
    ("KeyAbsent", |it, _| {
        it.key = secret("k", &[("key.pem", "x")])
    }),
    ("KeyUnusable", |it, _| {
        it.key = secret("k", &[("private-key.pem", "no key")])
    }),
    ("KeyIsTheClusters", |it, key| {
        let path = "/spec/config/passwd/users/0/sshAuthorizedKeys/0";
        set(
            &mut it.install_keys,
            path,
            json!(format!("{} core@install", key.public)),
        );
    }),
    ("UserDataAbsent", |it, _| it.user_data = ReadObject::Absent),
    ("UserDataEmpty", |it, _| {
        it.user_data = secret("u", &[("userData", "\n")])
    }),
    ("UserDataOtherKey", |it, _| {
        it.user_data = secret(
            "u",
            &[("userData", "Restart-Service sshd # ssh-ed25519 AAAAother")],
        )
    }),
    ("UserDataWithoutSshd", |it, key| {
        it.user_data = secret("u", &[("userData", &key.public)])
    }),
    ("UserDataChanged", |it, key| {
        it.user_data = secret(
            "u",
            &[(
                "userData",
                &format!("Restart-Service sshd # {}", key.public),
            )],
        );
        let ReadObject::There(secret) = &mut it.user_data else {
            return;
        };
        secret["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "dormer"});
    }),
    ("os-id-label", |it, _| {
        it.machine_sets[0]["spec"]["template"]["metadata"]["labels"]["machine.openshift.io/os-id"] =
            json!("windows")
    }),
    ("user-data", |it, _| {
        *it.machine_sets[0]
            .pointer_mut(PROVIDER)
            .expect("one")
            .pointer_mut("/userDataSecret/name")
            .expect("one") = json!("worker-user-data")
    }),
    ("disk-size", |it, _| {
        *it.machine_sets[0]
            .pointer_mut(PROVIDER)
            .expect("one")
            .pointer_mut("/blockDevices/0/ebs/volumeSize")
            .expect("one") = json!(50)
    }),
    ("architecture", |it, _| {
        *it.machine_sets[0]
            .pointer_mut(PROVIDER)
            .expect("one")
            .pointer_mut("/instanceType")
            .expect("one") = json!("m6g.large")
    }),
    ("startup-timeout", |it, _| {
        it.health_checks[0]["spec"]["nodeStartupTimeout"] = json!("10m")
    }),
    ("unhealthy-timeout", |it, _| {
        it.health_checks[0]["spec"]["unhealthyConditions"][0]["timeout"] = json!("300s")
    }),
    ("health-check-selector", |it, _| {
        it.health_checks[0]["spec"]["selector"] = json!({})
    }),
    ("provision-time", |survey, _| {
        let target = json!({"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet",
            "name": name(&survey.machine_sets[0])});
        let one = json!({"apiVersion": "autoscaling.openshift.io/v1beta1", "kind": "MachineAutoscaler",
            "metadata": {"name": "win", "namespace": "openshift-machine-api"},
            "spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": target}});
        survey.autoscalers = vec![one];
        survey.cluster_autoscalers = vec![cluster_autoscaler()];
    }),
    ("runtime-handler", |it, _| {
        it.runtime_classes = vec![
            json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "win"}, "handler": "docker"}),
        ]
    }),
    ("instance-entry", |it, _| {
        it.instances = vec![json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "windows-instances", "namespace": "wmco"}, "data": {"10.1.42.1": "Administrator"}})]
    }),
    ("PoolElsewhere", |it, _| {
        it.pools = vec![pool("dormer", "windows"), pool("default", "windows")];
    }),
    ("LayerUnusable", |it, _| {
        it.layers = vec![("blue".into(), ReadObject::Absent)];
    }),
    ("LayerUnusable", |it, _| {
        it.layers = vec![layer("other.yaml", "{}")]
    }),
    ("LayerUnusable", |it, _| {
        it.layers = vec![layer("layer.yaml", "host:\n  firewal: {}\n")];
    }),
    ("LayerUnusable", |it, _| {
        it.layers = vec![layer("layer.yaml", "host: {hostname: '${NOPE}'}")];
    }),
    ("InstancesTwice", |it, _| {
        let map = |home: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "windows-instances", "namespace": home}, "data": {}})
        };
        it.instances = vec![map("wmco"), map("dormer")];
    }),
    ("NodeRunsDocker", |it, _| {
        it.nodes[0]["status"]["nodeInfo"]["containerRuntimeVersion"] = json!("docker://20.10.9")
    }),
    ("NodeUnsupported", |it, _| {
        it.nodes[0]["status"]["nodeInfo"]["kernelVersion"] = json!("10.0.18362.30")
    }),
    ("NodeContainerdOld", |it, _| {
        it.nodes[0]["status"]["nodeInfo"]["containerRuntimeVersion"] = json!("containerd://1.6.36")
    }),
    ("NodeUpdatesEnd", |it, _| it.today = "2031-04-17".into()),
    ("NodeUpdatesEnd", |it, _| it.today = "2031-10-15".into()),
    ("NodeSkew", |it, _| {
        it.nodes[0]["status"]["nodeInfo"]["kubeletVersion"] = json!("v1.29.4")
    }),
    ("NodeWithoutTaint", |it, _| it.nodes[0]["spec"] = json!({})),
    ("DefinitionAbsent", |it, _| {
        it.definitions = vec![json!({"metadata": {"name": "x"}})]
    }),
    ("GmsaWebhookAbsent", |it, _| {
        it.definitions.push(json!({"metadata": {"name": GMSA}}))
    }),
    ("GmsaWebhookAway", |it, _| {
        it.definitions.push(json!({"metadata": {"name": GMSA}}));
        it.gmsa_webhooks =
            vec![json!({"metadata": {"name": "gmsa-webhook"}, "status": {"readyReplicas": 0}})];
    }),
    ("RightsAbsent", |it, _| {
        it.lacks = vec!["patch nodes".into()]
    }),
];

#[test]
fn a_console_that_runs_names_the_rights_that_its_account_lacks() {
    let survey = Survey {
        running: true,
        lacks: vec!["list nodes".into()],
        ..Survey::default()
    };
    let found = judge(&survey);
    let found = found.iter().find(|it| it.code == "RightsAbsent");
    let message = found.map(|it| it.message.as_str());
    assert_eq!(message, Some("the console's account may not list nodes"));
}

#[test]
fn an_account_that_was_named_is_named_with_the_rights_that_it_lacks() {
    let worker = "system:serviceaccount:dormer:dormer-worker";
    let survey = Survey {
        account: Some(worker.into()),
        lacks: vec!["patch nodes".into()],
        ..Survey::default()
    };
    let found = judge(&survey);
    let found = found.iter().find(|it| it.code == "RightsAbsent");
    let message = found.map(|it| it.message.clone());
    let wanted = format!("the account {worker} may not patch nodes");
    assert_eq!(message, Some(wanted));
}

/// An account may list one kind and not another.
#[test]
fn what_could_not_be_listed_does_not_count_as_absent() {
    let scaled = json!({"apiVersion": "autoscaling.openshift.io/v1beta1", "kind": "MachineAutoscaler",
        "metadata": {"name": "win", "namespace": "openshift-machine-api"},
        "spec": {"minReplicas": 0, "maxReplicas": 3, "scaleTargetRef": {
            "apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "win"}}});
    let mut survey = Survey {
        definitions: vec![json!({"metadata": {"name": GMSA}})],
        autoscalers: vec![scaled],
        ..Survey::default()
    };
    let invented = ["GmsaWebhookAbsent", "scale-from-zero"];
    let found = codes(&survey);
    assert!(invented.iter().all(|it| found.contains(*it)), "{found:?}");
    survey.unread_kinds = ["Deployment", "MachineSet"].map(str::to_owned).into();
    let found = codes(&survey);
    assert!(!invented.iter().any(|it| found.contains(*it)), "{found:?}");
}

fn codes(survey: &Survey) -> BTreeSet<String> {
    judge(survey).into_iter().map(|it| it.code).collect()
}

#[test]
fn each_fault_of_a_cluster_is_found_and_none_is_invented() {
    dormer_testkit::full!();
    let folder = test_dir("preflight-findings");
    let key = |name: &str, kind| SshKey::make(folder.path(), name, kind).expect("a key");
    let own = key("own", KeyKind::Ed25519);
    for survey in [healthy(&own), plain(&own)] {
        assert_eq!(judge(&survey), [], "a healthy cluster");
    }
    for (code, plant) in PLANTS {
        let mut survey = healthy(&own);
        plant(&mut survey, &own);
        let found = codes(&survey);
        assert_eq!(found, BTreeSet::from([(*code).to_owned()]), "{code}");
        assert!(
            judge(&survey).iter().all(|it| !it.what_to_do.is_empty()),
            "{code}"
        );
    }
    assert!(PLANTS.len() >= 40, "{}", PLANTS.len());
    in_an_agent(&own, &key("other", KeyKind::Ed25519));
    a_bad_update_comes_with_an_old_kubelet(&own);
    a_missing_taint_is_written_as_the_profile_has_it(&own);
    let mut linux_alone = healthy(&own);
    linux_alone.cluster_autoscalers = vec![cluster_autoscaler()];
    assert_eq!(judge(&linux_alone), [], "it scales no Windows machines");
    let mut layered = healthy(&own);
    let text = "host: {services: {kubelet: {environment: {TEAM: blue}}}}";
    layered.layers = vec![layer("layer.yaml", text)];
    assert_eq!(judge(&layered), [], "a layer without a mistake");
    let mut early = healthy(&own);
    early.today = "2031-04-16".into();
    assert_eq!(judge(&early), [], "181 days before the end");
    let mut weak = healthy(&own);
    let short = key("weak", KeyKind::Rsa(1024));
    weak.key = secret("k", &[("private-key.pem", &short.private)]);
    assert_eq!(codes(&weak), BTreeSet::from(["KeyWeak".to_owned()]));
}

/// The profile upstream has the taint's value in lower case, and pods that tolerate one value do not tolerate the other.
fn a_missing_taint_is_written_as_the_profile_has_it(own: &SshKey) {
    for (mut survey, taint) in [(healthy(own), "os=Windows:"), (plain(own), "os=windows:")] {
        let mut bare = node();
        bare["spec"] = json!({});
        survey.nodes = vec![bare];
        let found = judge(&survey);
        let todo: Vec<&str> = found.iter().map(|it| it.what_to_do.as_str()).collect();
        assert_eq!(todo.len(), 1, "{found:?}");
        let command = format!("kubectl taint node win-a {taint}NoSchedule");
        assert!(todo[0].contains(&command), "{}", todo[0]);
    }
}

/// Node programs that a known fault of an update is about are too old for any API server that dormer supports.
fn a_bad_update_comes_with_an_old_kubelet(own: &SshKey) {
    let mut survey = healthy(own);
    let info = &mut survey.nodes[0]["status"]["nodeInfo"];
    info["kernelVersion"] = json!("10.0.17763.1458");
    info["osImage"] = json!("Windows Server 2019 Datacenter");
    info["kubeletVersion"] = json!("v1.19.16");
    let found = judge(&survey);
    let all: Vec<&str> = found.iter().map(|it| it.code.as_str()).collect();
    assert_eq!(all, ["NodeBadUpdate", "NodeSkew"]);
    assert!(found[0].message.contains("LoadBalancer"), "{:?}", found[0]);
    assert!(found[0].what_to_do.contains("payload"));
}

/// The key is in an ssh-agent and in no Secret.
fn in_an_agent(own: &SshKey, other: &SshKey) {
    let mut held = healthy(own);
    held.key = ReadObject::Absent;
    held.agent_key = Some(own.public.clone());
    assert_eq!(judge(&held), []);
    held.agent_key = Some(other.public.clone());
    assert_eq!(
        codes(&held),
        BTreeSet::from(["UserDataOtherKey".to_owned()])
    );
    held.agent_key = Some(own.public.clone());
    let path = "/spec/config/passwd/users/0/sshAuthorizedKeys/0";
    set(&mut held.install_keys, path, json!(own.public));
    assert_eq!(
        codes(&held),
        BTreeSet::from(["KeyIsTheClusters".to_owned()])
    );
}
