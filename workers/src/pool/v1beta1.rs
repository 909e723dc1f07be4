//! The kind `WindowsPool` in version v1beta1: the spec that people write, and the status that dormer writes.
//!
//! `deploy/crd.yaml` is written from these types by a test. The API server fills in the defaults and refuses what
//! breaks a rule; [`super::PoolSpec`] still reads strictly, because an object may have come by another version.

#![allow(
    clippy::duplicated_attributes,
    reason = "clippy takes the same key in two of a derive's nested lists for a repeat"
)]

use dormer_proto::id::{Incarnation, Seq};
use kube::CustomResource;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The fields of the spec, which are read strictly: another one is refused.
pub const FIELDS: [&str; 13] = [
    "approval",
    "drain",
    "layers",
    "nodeNames",
    "paused",
    "payload",
    "profile",
    "rollbackFrom",
    "soak",
    "stop",
    "strategy",
    "verifyJoined",
    "waitForClusterVersion",
];

/// Validation rule of the whole object, and the message when it is broken.
pub const ONE_POOL: (&str, &str) = (
    "self.metadata.name == 'windows'",
    "there is one pool, and its name is windows",
);

/// Desired configuration of the pool's machines, and the way to change them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "dormer.io",
    version = "v1beta1",
    kind = "WindowsPool",
    shortname = "wpool",
    namespaced,
    status = "PoolStatus",
    doc = "The Windows machines that are upgraded together: what they should be, how they may be changed, and how far \
           that came. There is one pool, named windows, in dormer's namespace. People write the spec, dormer writes \
           the status. While there is no pool, new machines are brought up with the defaults, and no node that serves \
           is upgraded.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Payload", type_ = "string", json_path = ".status.payload"),
    printcolumn(name = "Joined", type_ = "integer", json_path = ".status.joined"),
    printcolumn(name = "Members", type_ = "integer", json_path = ".status.members"),
    printcolumn(name = "Away", type_ = "integer", json_path = ".status.unavailable"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
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
        name = "Strategy",
        type_ = "string",
        json_path = ".spec.strategy.type",
        priority = 1
    ),
    printcolumn(
        name = "Wanted",
        type_ = "string",
        json_path = ".spec.payload",
        priority = 1
    ),
    printcolumn(
        name = "Paused",
        type_ = "boolean",
        json_path = ".spec.paused",
        priority = 1
    ),
    printcolumn(
        name = "Waiting For",
        type_ = "string",
        json_path = ".status.waitingFor",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_null)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.rollbackFrom) || (self.payload != 'installed' && self.payload != self.rollbackFrom)",
        "message": "rollbackFrom needs a payload that is a version, and another one",
    },
]))]
pub struct WindowsPoolSpec {
    /// Payload that is installed on the machines: its version, or `installed` for the newest that dormer has.
    #[serde(default = "payload")]
    #[schemars(extend("maxLength" = 128, "x-kubernetes-validations" = [{
        "rule": "self.matches('^[A-Za-z0-9][A-Za-z0-9._+-]*$')",
        "message": "must be installed, or a version: letters, digits, . - _ +",
    }]))]
    pub payload: String,
    /// Payload that may be left for an earlier one against its manifest's `may_follow`: one step back, to `payload`.
    /// `dormer rollback` does the same without a change of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 128, "x-kubernetes-validations" = [{
        "rule": "self.matches('^[A-Za-z0-9][A-Za-z0-9._+-]*$')",
        "message": "must be a version: letters, digits, . - _ +",
    }]))]
    pub rollback_from: Option<String>,
    /// Profile that a node's configuration is rendered from: `openshift` or `upstream`.
    #[serde(default = "profile")]
    #[schemars(extend("maxLength" = 128, "x-kubernetes-validations" = [{
        "rule": "self.matches('^[A-Za-z0-9][A-Za-z0-9._+-]*$')",
        "message": "must be a name: letters, digits, . - _ +",
    }]))]
    pub profile: String,
    /// Layers over the profile: names of ConfigMaps in dormer's namespace, the lowest first, each with the layer's text as
    /// `layer.yaml`. They lie above the layers that dormer was started with. If one is absent or has a mistake, an Event
    /// says so, and the layers as they were last read stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "map_names")]
    pub layers: Vec<String>,
    /// Way in which machines are changed, and how many at once.
    #[serde(default)]
    pub strategy: StrategySpec,
    /// Start of an upgrade: `Automatic` at once, `Manual` after `dormer approve MACHINE`.
    #[serde(default)]
    pub approval: ApprovalSpec,
    /// Drain of a node before its machine is changed.
    #[serde(default)]
    pub drain: DrainSpec,
    /// Time for which a new node must have been Ready before it counts, as in `30s`; at most `24h`.
    #[serde(default = "soak")]
    #[schemars(extend("maxLength" = 24, "x-kubernetes-validations" = [{
        "rule": "self.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?$') && self != '' && duration(self) <= duration('24h')",
        "message": "must be a time as 30s, 10m or 1h30m, at most 24h",
    }]))]
    pub soak: String,
    /// Pattern of the names that Nodes may have where the platform gives their Machines none: lower-case letters,
    /// digits, `-`, `.`, and one `*` for any of them, as in `win-*`. Without it such a Node has the name of its
    /// Machine. A host is believed its name only if it fits: choose a pattern that no other node's name fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 63, "x-kubernetes-validations" = [{
        "rule": "self.matches('^[a-z0-9][a-z0-9.-]*[*]?[a-z0-9.-]*$')",
        "message": "must be a pattern as win-*: a letter or digit first; lower-case letters, digits, - and . ; at most one *",
    }]))]
    pub node_names: Option<String>,
    /// Pause of the rollout: `true` begins no further machine, and changes nothing on a host that serves, not even what
    /// disturbs no workload, except trusted certificates. A machine that is under way is finished.
    #[serde(default)]
    pub paused: bool,
    /// Stop in an emergency: `true` grants no lease, also none for the repair of a machine that does not serve, and
    /// ends drains that are under way: workers read it before they cordon, evict, delete a Machine or tear a host down.
    /// A host that is being configured again is finished.
    #[serde(default)]
    pub stop: bool,
    /// Wait for the cluster's own upgrade: `true` begins no upgrade while the ClusterVersion is progressing. A machine
    /// that does not serve is still repaired.
    #[serde(default = "yes")]
    pub wait_for_cluster_version: bool,
    /// Checks of a node before it counts as joined: its versions, labels, taints, serving certificate and the pods of
    /// DaemonSets on it are as they should be, and it has been Ready for the soak time without a break. `false` asks for
    /// the last alone.
    #[serde(default = "yes")]
    pub verify_joined: bool,
}

/// Way in which machines are changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(transform = closed)]
pub struct StrategySpec {
    /// `Recreate` drains a node, deletes its Machine and waits for the replacement. `InPlace` drains it, and configures
    /// the same host again.
    pub r#type: StrategyType,
    /// Machines that may be unavailable at once: a number from 1, or a percentage of the pool as `10%`, rounded down,
    /// at least one machine.
    #[schemars(schema_with = "int_or_percent")]
    pub max_unavailable: Value,
    /// Leases over that limit that may be held at once, each for a machine whose node does not serve: repairing it
    /// takes no serving node away. 0 grants none over the limit.
    #[schemars(range(min = 0, max = 5000))]
    pub max_repairs: i64,
    /// Time for which a node must not have been Ready before its machine counts as one to repair, as in `10m`; at most
    /// `24h`.
    #[schemars(extend("maxLength" = 24, "x-kubernetes-validations" = [{
        "rule": "self.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?$') && self != '' && duration(self) <= duration('24h')",
        "message": "must be a time as 30s, 10m or 1h30m, at most 24h",
    }]))]
    pub repair_after: String,
}

/// Drain of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(transform = closed)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.afterTimeout == 'Wait' || !self.timeout.matches('^(0+[hms])+$')",
    "message": "a drain without a timeout (0s) has no afterTimeout but Wait",
}]))]
pub struct DrainSpec {
    /// Time that a drain may take, as in `1h`; `0s` is no limit; at most `720h`.
    #[schemars(extend("maxLength" = 24, "x-kubernetes-validations" = [{
        "rule": "self.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?$') && self != '' && duration(self) <= duration('720h')",
        "message": "must be a time as 30s, 10m or 1h30m, at most 720h",
    }]))]
    pub timeout: String,
    /// Policy after that time: `Wait` continues and reports what holds the node; `Abort` uncordons it and holds the
    /// machine; `Force` deletes the pods without regard to their disruption budgets.
    pub after_timeout: AfterTimeoutSpec,
}

/// Way in which machines are changed, by its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StrategyType {
    /// Drain, delete the Machine, wait for its replacement.
    #[default]
    Recreate,
    /// Drain, configure the same host again.
    InPlace,
}

/// Start of an upgrade.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalSpec {
    /// At once.
    #[default]
    Automatic,
    /// After a person approved it.
    Manual,
}

/// What follows a drain that takes too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AfterTimeoutSpec {
    /// The drain continues.
    #[default]
    Wait,
    /// The node is uncordoned, and the machine held.
    Abort,
    /// The pods are deleted without regard to their budgets.
    Force,
}

impl Default for StrategySpec {
    fn default() -> Self {
        Self {
            r#type: StrategyType::Recreate,
            max_unavailable: 1.into(),
            max_repairs: 1,
            repair_after: "10m".to_owned(),
        }
    }
}

impl Default for DrainSpec {
    fn default() -> Self {
        Self {
            timeout: "1h".to_owned(),
            after_timeout: AfterTimeoutSpec::Wait,
        }
    }
}

impl Default for WindowsPoolSpec {
    fn default() -> Self {
        Self {
            payload: payload(),
            rollback_from: None,
            profile: profile(),
            layers: Vec::new(),
            strategy: StrategySpec::default(),
            approval: ApprovalSpec::Automatic,
            drain: DrainSpec::default(),
            soak: soak(),
            node_names: None,
            paused: false,
            stop: false,
            wait_for_cluster_version: yes(),
            verify_joined: yes(),
        }
    }
}

fn yes() -> bool {
    true
}

fn payload() -> String {
    super::INSTALLED.to_owned()
}

fn profile() -> String {
    super::DEFAULT_PROFILE.to_owned()
}

fn soak() -> String {
    "30s".to_owned()
}

/// The status of a `WindowsPool`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_null)]
pub struct PoolStatus {
    /// Generation of the spec that the rollout obeys.
    pub observed_generation: Option<i64>,
    /// One of Open, Enrolling, Paused and Halted.
    pub state: Option<String>,
    /// Time at which it entered the state.
    #[schemars(extend("format" = "date-time"))]
    pub since: Option<String>,
    /// Payload that its machines should run.
    pub payload: Option<String>,
    /// Builds of payloads that the rollout has known: the SHA-256 of each one's manifest, by its version. Another build of
    /// one of these versions is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builds: Option<BTreeMap<String, String>>,
    /// Number of machines enrolled.
    pub members: Option<i64>,
    /// Number of machines that serve.
    pub joined: Option<i64>,
    /// Number of machines that failed.
    pub failed: Option<i64>,
    /// Number of machines that count as unavailable.
    pub unavailable: Option<i64>,
    /// Number of machines that may be unavailable.
    pub max_unavailable: Option<i64>,
    /// Names of the machines that hold a lease.
    pub holders: Option<Vec<String>>,
    /// Number of machines that wait for a lease.
    pub waiting: Option<i64>,
    /// What the next grant waits for.
    pub waiting_for: Option<String>,
    /// Rollback that a person asked for with `dormer rollback`: its payload holds in place of the spec's until
    /// `spec.payload` is changed, or until `dormer rollback --end`.
    // Written by the worker; the projection leaves it as it is.
    #[serde(rename = "override", default, skip_serializing)]
    pub override_: Option<Override>,
    /// Last order that wrote or ended a rollback, as in `override.order`. It stays when the rollback is over, so that an
    /// earlier order that comes late, or again, brings none back.
    // Written by the worker, as above.
    #[serde(default, skip_serializing)]
    pub override_order: Option<String>,
    /// Conditions of the pool: those of a ClusterOperator (Available, Progressing, Degraded, Upgradeable), those that
    /// GitOps tools read (Ready, Reconciling, Stalled), and Overridden.
    #[schemars(with = "Option<Vec<Condition>>")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Value>>,
}

/// A rollback that holds in place of the spec's payload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// Payload that holds.
    pub payload: String,
    /// Payload that is left.
    pub from: String,
    /// `spec.payload` at that time: when it is changed, the rollback is over.
    pub instead_of: String,
    /// Who asked, and why.
    pub by: String,
    /// Order that wrote it: incarnation of the store and record of the rollout's run, with a slash between. An earlier
    /// order that comes late changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
}

impl Override {
    /// Word for [`Override::order`].
    #[must_use]
    pub fn order_of(incarnation: Incarnation, record: Seq) -> String {
        format!("{}/{record}", incarnation.0)
    }

    /// Whether the order `written` is a later one of the same store. Of another store's orders nothing is known: the
    /// rollout's history may have been lost.
    #[must_use]
    pub fn is_later(written: &str, incarnation: Incarnation, record: Seq) -> bool {
        written.split_once('/').is_some_and(|(store, number)| {
            store == incarnation.0.to_string()
                && number.parse::<u64>().is_ok_and(|number| number > record.0)
        })
    }
}

/// A condition of a pool or of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_null)]
pub struct Condition {
    /// Name of the condition.
    pub r#type: String,
    /// Whether it holds.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// Reason as one word, which programs may compare.
    pub reason: Option<String>,
    /// Message for people.
    pub message: Option<String>,
    /// Generation of the spec that it is about.
    pub observed_generation: Option<i64>,
    /// Time at which its status changed.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
}

fn int_or_percent(_: &mut schemars::SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 4,
        "default": 1,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self >= 1 && self <= 5000 : string(self).matches('^([1-9][0-9]?|100)%$')",
            "message": "must be a number from 1, or 1% to 100%",
        }],
    })
}

fn map_names(_: &mut schemars::SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 8,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "maxLength": 253,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')",
                "message": "must be the name of a ConfigMap: lower-case letters, digits, - and .",
            }],
        },
    })
}

/// Schema without unknown fields: Rust refuses them, and the API server prunes them.
fn closed(schema: &mut Schema) {
    schema.remove("additionalProperties");
}

/// Takes `null` out of the types and the defaults of an object's fields: the API server stores none.
pub fn without_null(schema: &mut Schema) {
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for field in fields.into_iter().flat_map(|all| all.values_mut()) {
        if let Some(all) = field.as_object_mut() {
            if all.get("default").is_some_and(Value::is_null) {
                all.remove("default");
            }
            // A reference beside `null`: the reference alone.
            let only = all.get("anyOf").and_then(Value::as_array).and_then(|any| {
                let mut rest = any.iter().filter(|one| one["type"] != "null");
                rest.next().filter(|_| any.len() == 2).cloned()
            });
            if let Some(Value::Object(only)) = only {
                all.remove("anyOf");
                all.extend(only);
            }
        }
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

    #[test]
    fn the_fields_that_are_read_are_those_of_the_schema() {
        let schema = schemars::schema_for!(WindowsPoolSpec);
        let names = schema.get("properties").and_then(Value::as_object);
        let names: Vec<&str> = names.expect("fields").keys().map(String::as_str).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, FIELDS);
    }
}
