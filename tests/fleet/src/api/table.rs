//! Tables for `kubectl get`: the columns that Kubernetes and OpenShift's CRDs define.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    kinds::Kind,
    object::{Meta, Object},
};

/// Column name, type, priority (1: only with `-o wide`) and where its text comes from.
type Column = (
    &'static str,
    &'static str,
    u8,
    fn(&Value, Timestamp) -> Value,
);

fn at(value: &Value, pointer: &str) -> Value {
    value.pointer(pointer).cloned().unwrap_or(Value::Null)
}

/// How long ago a timestamp was, in kubectl's short form.
fn ago(stamp: &Value, now: Timestamp) -> Value {
    let Some(then) = stamp.as_str().and_then(|s| s.parse::<Timestamp>().ok()) else {
        return json!("<unknown>");
    };
    let s = now.duration_since(then).as_secs().max(0);
    json!(match s {
        0..120 => format!("{s}s"),
        120..600 if s % 60 > 0 => format!("{}m{}s", s / 60, s % 60),
        120..10_800 => format!("{}m", s / 60),
        10_800..172_800 => format!("{}h", s / 3600),
        _ => format!("{}d", s / 86_400),
    })
}

const NAME: Column = ("Name", "string", 0, |v, _| json!(v.name()));
const AGE: Column = ("Age", "string", 0, |v, now| {
    ago(&v["metadata"]["creationTimestamp"], now)
});
/// OpenShift's CRDs have the age as a date, which kubectl counts itself.
const AGE_DATE: Column = ("Age", "date", 0, |v, now| {
    ago(&v["metadata"]["creationTimestamp"], now)
});

const MACHINE: &[Column] = &[
    NAME,
    ("Phase", "string", 0, |v, _| at(v, "/status/phase")),
    ("Type", "string", 0, |v, _| instance_type(v)),
    ("Region", "string", 0, |v, _| region(v)),
    ("Zone", "string", 0, |v, _| zone(v)),
    AGE_DATE,
    ("Node", "string", 1, |v, _| at(v, "/status/nodeRef/name")),
    ("ProviderID", "string", 1, |v, _| at(v, "/spec/providerID")),
    ("State", "string", 1, |v, _| {
        at(v, "/status/providerStatus/instanceState")
    }),
];
const MACHINE_SET: &[Column] = &[
    NAME,
    ("Desired", "integer", 0, |v, _| at(v, "/spec/replicas")),
    ("Current", "integer", 0, |v, _| at(v, "/status/replicas")),
    ("Ready", "integer", 0, |v, _| at(v, "/status/readyReplicas")),
    ("Available", "string", 0, |v, _| {
        at(v, "/status/availableReplicas")
    }),
    AGE_DATE,
];
const MACHINE_HEALTH_CHECK: &[Column] = &[
    NAME,
    ("MaxUnhealthy", "string", 0, |v, _| {
        at(v, "/spec/maxUnhealthy")
    }),
    ("ExpectedMachines", "integer", 0, |v, _| {
        at(v, "/status/expectedMachines")
    }),
    ("CurrentHealthy", "integer", 0, |v, _| {
        at(v, "/status/currentHealthy")
    }),
];
const NODE: &[Column] = &[
    NAME,
    ("Status", "string", 0, |v, _| node_status(v)),
    ("Roles", "string", 0, |v, _| roles(v)),
    AGE,
    ("Version", "string", 0, |v, _| {
        at(v, "/status/nodeInfo/kubeletVersion")
    }),
    ("Internal-IP", "string", 1, |v, _| internal_ip(v)),
    ("OS-Image", "string", 1, |v, _| {
        at(v, "/status/nodeInfo/osImage")
    }),
    ("Kernel-Version", "string", 1, |v, _| {
        at(v, "/status/nodeInfo/kernelVersion")
    }),
    ("Container-Runtime", "string", 1, |v, _| {
        at(v, "/status/nodeInfo/containerRuntimeVersion")
    }),
];
const POD: &[Column] = &[
    NAME,
    ("Ready", "string", 0, |v, _| {
        json!(if v.is("Ready") { "1/1" } else { "0/1" })
    }),
    ("Status", "string", 0, |v, _| {
        if v.deleting() {
            json!("Terminating")
        } else {
            at(v, "/status/phase")
        }
    }),
    ("Restarts", "string", 0, |_, _| json!("0")),
    AGE,
    ("IP", "string", 1, |v, _| at(v, "/status/podIP")),
    ("Node", "string", 1, |v, _| at(v, "/spec/nodeName")),
];
const CSR: &[Column] = &[
    NAME,
    AGE,
    ("SignerName", "string", 0, |v, _| at(v, "/spec/signerName")),
    ("Requestor", "string", 0, |v, _| at(v, "/spec/username")),
    ("RequestedDuration", "string", 0, |_, _| json!("<none>")),
    ("Condition", "string", 0, |v, _| csr_condition(v)),
];
const CONFIG_MAP: &[Column] = &[
    NAME,
    ("Data", "integer", 0, |v, _| {
        json!(v["data"].as_object().map_or(0, serde_json::Map::len))
    }),
    AGE,
];
const SECRET: &[Column] = &[
    NAME,
    ("Type", "string", 0, |v, _| at(v, "/type")),
    ("Data", "integer", 0, |v, _| {
        json!(v["data"].as_object().map_or(0, serde_json::Map::len))
    }),
    AGE,
];
const DEPLOYMENT: &[Column] = &[
    NAME,
    ("Ready", "string", 0, |v, _| {
        let number = |p: &str| v.pointer(p).and_then(Value::as_u64).unwrap_or(0);
        json!(format!(
            "{}/{}",
            number("/status/readyReplicas"),
            number("/spec/replicas")
        ))
    }),
    ("Up-to-date", "integer", 0, |v, _| {
        at(v, "/status/updatedReplicas")
    }),
    ("Available", "integer", 0, |v, _| {
        at(v, "/status/availableReplicas")
    }),
    AGE,
];
const PDB: &[Column] = &[
    NAME,
    ("Min Available", "string", 0, |v, _| {
        text_or_na(at(v, "/spec/minAvailable"))
    }),
    ("Max Unavailable", "string", 0, |v, _| {
        text_or_na(at(v, "/spec/maxUnavailable"))
    }),
    ("Allowed Disruptions", "integer", 0, |v, _| {
        at(v, "/status/disruptionsAllowed")
    }),
    AGE,
];
const LEASE: &[Column] = &[
    NAME,
    ("Holder", "string", 0, |v, _| at(v, "/spec/holderIdentity")),
    AGE,
];
/// When an Event was seen last. One of the Events' own group has no first and last times, but its time and its series'.
fn last_seen(event: &Value) -> &Value {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["firstTimestamp"],
    ];
    times
        .into_iter()
        .find(|time| time.is_string())
        .unwrap_or(&event["eventTime"])
}

const EVENT: &[Column] = &[
    ("Last Seen", "string", 0, |v, now| ago(last_seen(v), now)),
    ("Type", "string", 0, |v, _| at(v, "/type")),
    ("Reason", "string", 0, |v, _| at(v, "/reason")),
    ("Object", "string", 0, |v, _| {
        let object = &v["involvedObject"];
        let text = |f: &str| object[f].as_str().unwrap_or_default().to_owned();
        json!(format!("{}/{}", text("kind").to_lowercase(), text("name")))
    }),
    ("Message", "string", 0, |v, _| at(v, "/message")),
];
const NAMESPACE: &[Column] = &[
    NAME,
    ("Status", "string", 0, |v, _| at(v, "/status/phase")),
    AGE,
];
const WINDOWS_MACHINE: &[Column] = &[
    NAME,
    ("State", "string", 0, |v, _| at(v, "/status/state")),
    ("Version", "string", 0, |v, _| at(v, "/status/version")),
    ("Since", "date", 0, |v, now| ago(&v["status"]["since"], now)),
    ("Waiting For", "string", 0, |v, _| {
        at(v, "/status/waitingFor")
    }),
    ("Node", "string", 1, |v, _| at(v, "/status/node")),
];
const WINDOWS_POOL: &[Column] = &[
    NAME,
    ("State", "string", 0, |v, _| at(v, "/status/state")),
    ("Payload", "string", 0, |v, _| at(v, "/status/payload")),
    ("Joined", "integer", 0, |v, _| at(v, "/status/joined")),
    ("Members", "integer", 0, |v, _| at(v, "/status/members")),
    ("Away", "integer", 0, |v, _| at(v, "/status/unavailable")),
    ("Ready", "string", 0, |v, _| condition(v, "Ready")),
    ("Degraded", "string", 0, |v, _| condition(v, "Degraded")),
    ("Upgradeable", "string", 0, |v, _| {
        condition(v, "Upgradeable")
    }),
];
const OTHER: &[Column] = &[NAME, AGE];

fn columns(kind: &Kind) -> &'static [Column] {
    match kind.store {
        "machines.machine.openshift.io" => MACHINE,
        "machinesets.machine.openshift.io" => MACHINE_SET,
        "machinehealthchecks.machine.openshift.io" => MACHINE_HEALTH_CHECK,
        "nodes" => NODE,
        "pods" => POD,
        "certificatesigningrequests.certificates.k8s.io" => CSR,
        "configmaps" => CONFIG_MAP,
        "secrets" => SECRET,
        "deployments.apps" | "replicasets.apps" => DEPLOYMENT,
        "poddisruptionbudgets.policy" => PDB,
        "leases.coordination.k8s.io" => LEASE,
        "events" => EVENT,
        "namespaces" => NAMESPACE,
        "windowsmachines.dormer.io" => WINDOWS_MACHINE,
        "windowspools.dormer.io" => WINDOWS_POOL,
        _ => OTHER,
    }
}

/// The Table of these objects.
pub fn of(kind: &Kind, items: &[Arc<Object>], list_meta: Value, now: Timestamp) -> Value {
    let columns = columns(kind);
    let definition = |c: &Column| {
        json!({"name": c.0, "type": c.1, "format": if c.0 == "Name" { "name" } else { "" },
            "description": "", "priority": c.2})
    };
    let row = |object: &Arc<Object>| {
        let cells: Vec<Value> = columns.iter().map(|c| (c.3)(&object.value, now)).collect();
        json!({"cells": cells, "object": {"kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1", "metadata": object.value["metadata"]}})
    };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta,
        "columnDefinitions": columns.iter().map(definition).collect::<Vec<_>>(),
        "rows": items.iter().map(row).collect::<Vec<_>>()})
}

fn condition(object: &Value, kind: &str) -> Value {
    let found = object.condition(kind);
    found.map_or(Value::Null, |condition| condition["status"].clone())
}

fn provider(machine: &Value) -> &Value {
    &machine["spec"]["providerSpec"]["value"]
}

fn first_of(value: &Value, pointers: &[&str]) -> Value {
    let found = pointers
        .iter()
        .map(|p| at(value, p))
        .find(|v| v.is_string());
    found.unwrap_or(Value::Null)
}

fn instance_type(machine: &Value) -> Value {
    first_of(provider(machine), &["/instanceType", "/vmSize"])
}

fn region(machine: &Value) -> Value {
    first_of(provider(machine), &["/placement/region", "/location"])
}

fn zone(machine: &Value) -> Value {
    first_of(provider(machine), &["/placement/availabilityZone", "/zone"])
}

fn text_or_na(value: Value) -> Value {
    match value {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    }
}

fn node_status(node: &Value) -> Value {
    let mut status = String::from(if node.is("Ready") {
        "Ready"
    } else {
        "NotReady"
    });
    if node.condition("Ready").is_none() {
        status = "Unknown".to_owned();
    }
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    json!(status)
}

fn roles(node: &Value) -> Value {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: Vec<_> = labels
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    json!(if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    })
}

fn internal_ip(node: &Value) -> Value {
    let addresses = node["status"]["addresses"].as_array();
    let internal = addresses
        .into_iter()
        .flatten()
        .find(|a| a["type"] == "InternalIP");
    internal.map_or(json!("<none>"), |a| a["address"].clone())
}

fn csr_condition(csr: &Value) -> Value {
    let mut text = if csr.is("Denied") {
        "Denied"
    } else if csr.is("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if csr["status"]["certificate"].is_string() {
        text.push_str(",Issued");
    }
    json!(text)
}
