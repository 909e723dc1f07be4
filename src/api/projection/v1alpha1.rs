//! The kinds `WindowsMachine` and `WindowsPool` in version v1alpha1: a status that dormer writes, nothing that people set.
//!
//! `deploy/crd.yaml` is written from these types by a test. An absent value is `null` in what dormer writes, so that a
//! merge patch removes the field; the API server stores no `null`, so the schema has no nullable field.

#![allow(
    clippy::duplicated_attributes,
    reason = "clippy takes the same key in two of a derive's nested lists for a repeat"
)]

use kube::CustomResource;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The fields of a `WindowsMachine` beside its status: none.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "dormer.io",
    version = "v1alpha1",
    kind = "WindowsMachine",
    shortname = "wm",
    namespaced,
    no_spec,
    status = "MachineStatus",
    doc = "What dormer knows of a Machine that is a Windows node, or becomes one. It has the Machine's name.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.since"),
    printcolumn(
        name = "Waiting For",
        type_ = "string",
        json_path = ".status.waitingFor"
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".status.node",
        priority = 1
    ),
    printcolumn(
        name = "Attempt",
        type_ = "integer",
        json_path = ".status.attempt",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        priority = 1
    )
)]
pub(super) struct MachineFields {}

/// The status of a `WindowsMachine`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_null)]
pub(super) struct MachineStatus {
    /// One of Provisioned, Reachable, Configured, Joined, Draining, Recreated and Failed.
    pub(super) state: Option<String>,
    /// Phase within the state.
    pub(super) phase: Option<String>,
    /// Time at which it entered the state.
    #[schemars(extend("format" = "date-time"))]
    pub(super) since: Option<String>,
    /// Version that its node carries.
    pub(super) version: Option<String>,
    /// Version that its node should carry.
    pub(super) desired_version: Option<String>,
    /// What the machine waits for; absent when it serves.
    pub(super) waiting_for: Option<String>,
    /// Reason for its state.
    pub(super) reason: Option<String>,
    /// Name of its Node.
    pub(super) node: Option<String>,
    /// Address of its host.
    pub(super) address: Option<String>,
    /// Name of its pool.
    pub(super) pool: Option<String>,
    /// Attempt of the task under way.
    #[schemars(with = "Option<i64>")]
    pub(super) attempt: Option<u64>,
}

/// The fields of a `WindowsPool` beside its status: none.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "dormer.io",
    version = "v1alpha1",
    kind = "WindowsPool",
    shortname = "wpool",
    namespaced,
    no_spec,
    status = "PoolStatus",
    doc = "A pool's rollout, and dormer's own conditions. Its settings are the ConfigMap dormer-pool-NAME.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Payload", type_ = "string", json_path = ".status.payload"),
    printcolumn(name = "Joined", type_ = "integer", json_path = ".status.joined"),
    printcolumn(name = "Members", type_ = "integer", json_path = ".status.members"),
    printcolumn(name = "Away", type_ = "integer", json_path = ".status.unavailable"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(
        name = "Progressing",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].status"#
    ),
    printcolumn(
        name = "Degraded",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Degraded")].status"#
    ),
    printcolumn(
        name = "Upgradeable",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Upgradeable")].status"#
    ),
    printcolumn(
        name = "Waiting For",
        type_ = "string",
        json_path = ".status.waitingFor",
        priority = 1
    )
)]
pub(super) struct PoolFields {}

/// The status of a `WindowsPool`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_null)]
pub(super) struct PoolStatus {
    /// One of Open, Enrolling, Paused and Halted.
    pub(super) state: Option<String>,
    /// Time at which it entered the state.
    #[schemars(extend("format" = "date-time"))]
    pub(super) since: Option<String>,
    /// Payload that its machines should run.
    pub(super) payload: Option<String>,
    /// Number of machines enrolled.
    #[schemars(with = "Option<i64>")]
    pub(super) members: Option<usize>,
    /// Number of machines that serve.
    #[schemars(with = "Option<i64>")]
    pub(super) joined: Option<usize>,
    /// Number of machines that failed.
    #[schemars(with = "Option<i64>")]
    pub(super) failed: Option<usize>,
    /// Number of machines that count as unavailable.
    #[schemars(with = "Option<i64>")]
    pub(super) unavailable: Option<usize>,
    /// Number of machines that may be unavailable.
    #[schemars(with = "Option<i64>")]
    pub(super) max_unavailable: Option<usize>,
    /// Names of the machines that hold a lease.
    pub(super) holders: Option<Vec<String>>,
    /// Number of machines that wait for a lease.
    #[schemars(with = "Option<i64>")]
    pub(super) waiting: Option<usize>,
    /// What the next grant waits for.
    pub(super) waiting_for: Option<String>,
    /// Conditions of the pool, as those of a ClusterOperator are named.
    #[schemars(with = "Option<Vec<PoolCondition>>")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub(super) conditions: Option<Vec<Value>>,
}

/// A condition of the pool.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", transform = without_null)]
#[expect(dead_code, reason = "its fields are read by the derived schema")]
struct PoolCondition {
    /// One of Available, Progressing, Degraded and Upgradeable.
    r#type: String,
    /// Whether it holds.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    status: String,
    /// Reason as one word, which programs may compare.
    reason: Option<String>,
    /// Message for people.
    message: Option<String>,
    /// Time at which its status changed.
    #[schemars(extend("format" = "date-time"))]
    last_transition_time: String,
}

/// Takes `null` out of the types of an object's fields.
fn without_null(schema: &mut Schema) {
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for field in fields.into_iter().flat_map(|all| all.values_mut()) {
        let Some(types) = field["type"].as_array_mut() else {
            continue;
        };
        types.retain(|one| one != "null");
        if let [one] = &types[..] {
            field["type"] = one.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_profile::yaml;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::CustomResourceExt;
    use std::{fs, path::Path};

    const HEAD: &str = "\
# Written by a test from src/api/projection/v1alpha1.rs.
#
# Two status-only kinds for `kubectl get`. The console writes them from the histories: deleting an object loses nothing,
# and within a minute it is there again. Nothing in dormer reads them; without these definitions dormer works the same.
";

    /// The definitions. The derive allows `status: null`, which nobody needs.
    fn definitions() -> [CustomResourceDefinition; 2] {
        [WindowsMachine::crd(), WindowsPool::crd()].map(|mut crd| {
            let versions = crd.spec.versions.iter_mut();
            let schemas =
                versions.filter_map(|one| one.schema.as_mut()?.open_api_v3_schema.as_mut());
            for status in schemas.filter_map(|one| one.properties.as_mut()?.get_mut("status")) {
                status.nullable = None;
            }
            crd
        })
    }

    #[test]
    fn the_committed_definitions_are_what_the_types_give() {
        let written = definitions().map(|crd| yaml::to_string(&crd).expect("YAML"));
        let made = format!("{HEAD}{}", written.join("---\n"));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crd.yaml");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&path, &made).expect("written");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, made, "run this test with UPDATE_EXPECT=1");
    }

    /// The API server refuses a definition whose schema is not structural.
    #[test]
    fn the_schemas_are_structural_and_have_no_nullable_field() {
        for crd in definitions() {
            let text = serde_json::to_string(&crd.spec.versions[0].schema).expect("JSON");
            for refused in ["nullable", "$ref", "anyOf", "oneOf", "additionalProperties"] {
                assert!(!text.contains(refused), "{refused}: {text}");
            }
        }
    }
}
