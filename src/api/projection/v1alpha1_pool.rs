//! Kind `WindowsPool` in version v1alpha1, only for the CRD: dormer no longer writes it.

#![allow(
    clippy::duplicated_attributes,
    reason = "clippy takes the same key in two of a derive's nested lists for a repeat"
)]

use dormer_workers::pool::v1beta1::{Condition, without_null};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Fields of a `WindowsPool` beside its status: none.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "dormer.io",
    version = "v1alpha1",
    kind = "WindowsPool",
    shortname = "wpool",
    namespaced,
    no_spec,
    status = "PoolStatus",
    deprecated = "dormer.io/v1alpha1 WindowsPool has no spec: use dormer.io/v1beta1",
    doc = "A pool's rollout as builds before v1beta1 showed it.",
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

/// Status of a `WindowsPool` in its former schema.
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
    #[schemars(with = "Option<Vec<Condition>>")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub(super) conditions: Option<Vec<Value>>,
}
