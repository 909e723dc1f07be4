//! Objects become facts; odd ones are refused by the field that is odd.

use super::*;
use dormer_proto::{
    id::{LeaseToken, Timestamp},
    machine::{CordonedBy, MachineApi, NodeFact},
};
use kube::api::DynamicObject;
use serde_json::{Value, json};

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("an object")
}

fn a_machine() -> Value {
    json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
        "metadata": {
            "name": "win-1", "namespace": "openshift-machine-api", "uid": "u-1",
            "resourceVersion": "41", "creationTimestamp": "2026-11-21T06:00:00Z",
            "labels": {"machine.openshift.io/os-id": "Windows", "machine.openshift.io/zone": "us-east-1a"},
            "annotations": {"dormer.io/node-name": "win-1", "dormer.io/fence": "7 open"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "o-1"},
                {"apiVersion": "v1", "kind": "MachineSet", "name": "s", "uid": "s-1", "controller": true}],
        },
        "spec": {"providerID": "aws:///a/i-1",
            "providerSpec": {"value": {"kind": "AWSMachineProviderConfig"}}},
        "status": {"phase": "Running", "nodeRef": {"kind": "Node", "name": "win-1", "uid": "n-1"},
            "addresses": [
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "ExternalIP", "address": "1.2.3.4"},
                {"type": "InternalDNS", "address": "win-1.local"},
                {"type": "Hostname", "address": "win-1"}]},
    })
}

#[test]
fn a_machine_becomes_its_fact() {
    let observed = machine(MachineApi::OpenShift, object(a_machine())).expect("readable");
    let fact = &observed.fact;
    assert_eq!(
        (fact.machine.name.as_str(), fact.machine.uid.as_str()),
        ("win-1", "u-1")
    );
    assert_eq!(fact.created, Timestamp(1_795_240_800_000));
    assert_eq!(fact.addresses, ["10.0.0.1"]);
    assert_eq!(fact.names, ["win-1.local", "win-1"]);
    assert_eq!(fact.reached_by, ["fd00::1", "1.2.3.4"]);
    assert_eq!(
        fact.owner.as_ref().map(|owner| owner.uid.as_str()),
        Some("s-1")
    );
    assert_eq!(fact.platform, "AWS");
    assert_eq!(fact.zone.as_deref(), Some("us-east-1a"));
    assert_eq!(
        fact.token,
        Some(TokenMark {
            token: LeaseToken(7),
            open: true
        })
    );
    assert_eq!(
        (observed.expected.as_deref(), observed.node_uid.as_deref()),
        (Some("win-1"), Some("n-1"))
    );
    assert!(observed.may_start() && !fact.deleting && !fact.exclude_drain);
    assert_eq!(observed.resource, 41);
}

/// v1beta2 moved the zone of a Machine into its status, and its failure below `deprecated`.
#[test]
fn a_machine_of_cluster_api_has_its_zone_and_its_failure_in_either_version() {
    let failed = json!({"failureReason": "CreateError", "failureMessage": "no room"});
    let v1beta2 = json!({"failureDomain": "b", "deprecated": {"v1beta1": failed}});
    for (api, status, zone) in [
        (MachineApi::ClusterV1Beta1, failed, "a"),
        (MachineApi::ClusterV1Beta2, v1beta2, "b"),
    ] {
        let mut value = a_machine();
        value["spec"] = json!({"failureDomain": "a"});
        value["status"] = status;
        let observed = machine(api, object(value)).expect("readable");
        let fact = observed.fact;
        assert_eq!(fact.zone.as_deref(), Some(zone), "{api:?}");
        assert_eq!(
            fact.error.as_deref(),
            Some("CreateError: no room"),
            "{api:?}"
        );
    }
}

/// Its own labels and those for its Node, as a MachineSet writes them.
#[test]
fn a_machine_carries_the_labels_by_which_people_choose() {
    let mut value = a_machine();
    let own = json!({"team": "red", "site.example/rack": "7", "machine.openshift.io/os-id": "Windows",
        "cluster.x-k8s.io/cluster-name": "c", "topology.kubernetes.io/zone": "a"});
    value["metadata"]["labels"] = own;
    value["spec"]["metadata"]["labels"] =
        json!({"team": "blue", "tier": "web", "node.openshift.io/x": "y"});
    let labels = |value: &Value| {
        let observed = machine(MachineApi::OpenShift, object(value.clone())).expect("readable");
        observed.fact.labels
    };
    let found: Vec<String> = labels(&value)
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(found, ["site.example/rack=7", "team=red", "tier=web"]);
    for n in 0..20 {
        value["metadata"]["labels"][format!("l{n:02}")] = json!("x");
    }
    assert_eq!(labels(&value).len(), 8, "what a record holds is bounded");
}

#[test]
fn a_machine_that_the_cloud_refuses_carries_the_clouds_message() {
    let mut refused = a_machine();
    refused["status"] = json!({
        "phase": "Failed", "errorReason": "InsufficientResources", "errorMessage": "limit, request id: 7f-0",
        "conditions": [{"type": "InstanceExists", "status": "False", "reason": "InstanceNotCreated",
            "message": "Instance has not been created"}, {"type": "Drainable", "status": "True"}],
        "providerStatus": {"conditions": [{"type": "MachineCreation", "status": "False",
            "reason": "MachineCreationFailed", "message": "limit"}]},
    });
    let fact = machine(MachineApi::OpenShift, object(refused))
        .expect("readable")
        .fact;
    assert_eq!(
        fact.error.as_deref(),
        Some("InsufficientResources: limit, request id: …")
    );
    let kinds: Vec<_> = fact.conditions.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["InstanceExists", "MachineCreation"]);
}

#[test]
fn a_new_machine_has_hardly_anything() {
    let meta = json!({"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "1"});
    let bare = json!({"metadata": meta, "spec": {}, "status": null});
    let observed = machine(MachineApi::OpenShift, object(bare)).expect("readable");
    assert_eq!(
        (observed.fact.phase, observed.fact.node, observed.fact.error),
        (None, None, None)
    );
}

#[test]
fn a_machine_is_ignored_by_label_annotation_or_another_api() {
    let with = |path: &str, value: Value| {
        let mut changed = a_machine();
        let at = path.rsplit_once('/').expect("a path");
        changed.pointer_mut(at.0).expect("there")[at.1] = value;
        machine(MachineApi::OpenShift, object(changed)).expect("readable")
    };
    let windows = "machine.openshift.io/os-id";
    let ignore = json!({"windowsmachineconfig.openshift.io/ignore": "true", windows: "Windows"});
    assert!(!with("/metadata/labels", ignore.clone()).may_start());
    let linux = with("/metadata/labels", json!({windows: "Linux"}));
    assert_eq!(
        (linux.windows, linux.may_start(), linux.fact.ignored),
        (false, false, true)
    );
    assert!(with("/metadata/annotations", ignore).fact.ignored);
    let not = json!({"windowsmachineconfig.openshift.io/ignore": "false", windows: "Windows"});
    assert!(with("/metadata/labels", not).may_start());
    for api in ["ClusterAPI", "Migrating"] {
        let observed = with("/status/authoritativeAPI", json!(api));
        assert_eq!(
            (observed.elsewhere.as_deref(), observed.fact.ignored),
            (Some(api), true)
        );
        assert!(!observed.may_start());
    }
    assert!(with("/status/authoritativeAPI", json!("MachineAPI")).may_start());
}

#[test]
fn odd_objects_name_their_field() {
    let with = |path: &str, value: Value| {
        let mut changed = a_machine();
        let at = path.rsplit_once('/').expect("a path");
        changed.pointer_mut(at.0).expect("there")[at.1] = value;
        machine(MachineApi::OpenShift, object(changed))
            .expect_err(path)
            .field
    };
    assert_eq!(with("/metadata/uid", json!("")), "metadata.uid");
    assert_eq!(
        with("/metadata/resourceVersion", json!("x")),
        "metadata.resourceVersion"
    );
    assert_eq!(with("/status/phase", json!({"a": 1})), "spec or status");
    assert_eq!(
        with("/status/addresses", json!("10.0.0.1")),
        "spec or status"
    );
    assert_eq!(
        with("/spec/providerID", json!("x".repeat(2_000))),
        "spec.providerID"
    );
}

#[test]
fn a_node_becomes_its_fact() {
    let observed = node(object(json!({
        "metadata": {"name": "win-1", "uid": "n-1", "resourceVersion": "9", "labels": {
            "kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348",
        }, "annotations": {
            "dormer.io/version": "v1", "windowsmachineconfig.openshift.io/version": "10.17",
            "k8s.ovn.org/hybrid-overlay-node-subnet": "10.132.0.0/24", "dormer.io/fence": "3 closed"},
            "managedFields": [{"manager": "kubectl-cordon", "operation": "Update",
                "time": "2026-11-25T08:00:00Z", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]},
        "spec": {"unschedulable": true, "providerID": "aws:///a/i-1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": "b", "kubeletVersion": "v1.33.1"}},
    })))
    .expect("readable");
    let expected = NodeFact {
        name: "win-1".into(),
        uid: "n-1".into(),
        ready: true,
        cordoned: true,
        provider_id: Some("aws:///a/i-1".into()),
        boot_id: "b".into(),
        kubelet_version: "v1.33.1".into(),
        version: Some("v1".into()),
        wmco_version: Some("10.17".into()),
        token: Some(TokenMark {
            token: LeaseToken(3),
            open: false,
        }),
        subnet: Some("10.132.0.0/24".into()),
        cordoned_by: Some(CordonedBy {
            program: "kubectl-cordon".into(),
            at: Some(Timestamp(1_795_593_600_000)),
        }),
    };
    let build = Some("10.0.20348".to_owned());
    assert_eq!(
        observed,
        ObservedNode {
            addresses: Vec::new(),
            fact: expected,
            build,
            windows_worker: true,
            resource: 9
        }
    );
}

#[test]
fn a_set_is_windows_by_its_template() {
    let set = |labels: Value, replicas: Value| {
        machine_set(
            MachineApi::OpenShift,
            object(json!({
                "metadata": {"name": "s", "uid": "s-1", "resourceVersion": "5"},
                "spec": {"replicas": replicas, "template": {"metadata": {"labels": labels}}},
                "status": {"replicas": 3, "readyReplicas": 2},
            })),
        )
    };
    let windows =
        set(json!({"machine.openshift.io/os-id": "Windows"}), json!(3)).expect("readable");
    assert_eq!((windows.windows, windows.replicas), (true, 3));
    assert_eq!((windows.ready, windows.available), (2, 0));
    assert!(!set(json!(null), json!(null)).expect("readable").windows);
    for (key, scaled) in [
        (
            "machine.openshift.io/cluster-api-autoscaler-node-group-min-size",
            true,
        ),
        (
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size",
            true,
        ),
        ("machine.openshift.io/memoryMb", false),
    ] {
        let set = machine_set(
            MachineApi::OpenShift,
            object(json!({
                "metadata": {"name": "s", "uid": "s-1", "resourceVersion": "5", "annotations": {key: "1"}},
                "spec": {"replicas": 1},
            })),
        );
        assert_eq!(set.expect("readable").autoscaled, scaled, "{key}");
    }
    assert_eq!(
        set(json!({}), json!(-1)).expect_err("odd").field,
        "spec.replicas"
    );
}

#[test]
fn a_set_keeps_the_machines_that_its_selector_matches() {
    let keeps = |selector: Value, labels: Value| {
        let set = object(json!({
            "metadata": {"name": "s", "uid": "s-1", "resourceVersion": "5"},
            "spec": {"replicas": 1, "selector": selector},
        }));
        let labels = serde_json::from_value(labels).expect("labels");
        let set = machine_set(MachineApi::OpenShift, set).expect("readable");
        set.keeps(&labels)
    };
    let of = json!({"matchLabels": {"set": "s"}});
    let not = json!({"matchExpressions": [{"key": "away", "operator": "DoesNotExist"}]});
    let odd = json!({"matchExpressions": [{"key": "away", "operator": "Near"}]});
    for (selector, labels, kept) in [
        (&of, json!({"set": "s", "more": "m"}), true),
        (&of, json!({"set": "quarantine"}), false),
        (&of, json!({}), false),
        (&not, json!({}), true),
        (&not, json!({"away": ""}), false),
        (&odd, json!({"away": ""}), true),
        (&json!({}), json!({}), true),
        (&Value::Null, json!({}), true),
    ] {
        assert_eq!(
            keeps(selector.clone(), labels.clone()),
            kept,
            "{selector} {labels}"
        );
    }
}

#[test]
fn ignore_in_another_case_is_reported() {
    for (value, told) in [
        ("True", true),
        ("TRUE", true),
        ("true", false),
        ("false", false),
    ] {
        let mut it = a_machine();
        it["metadata"]["labels"][keys::IGNORE] = value.into();
        let fact = machine(MachineApi::OpenShift, object(it))
            .expect("readable")
            .fact;
        let mut conditions = fact.conditions.iter();
        let found = conditions.any(|it| it.kind == "HandsOff" && it.message.contains(value));
        assert_eq!(found, told, "{value}");
        assert_eq!(fact.ignored, value == "true", "{value}");
    }
}
