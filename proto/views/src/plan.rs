//! Plan of a pool: what would change on its machines.

use crate::{machine::TemplateDifference, moment::Moment, open_enum::OpenEnum};
use dormer_proto::{listed, phase::MachinePhase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pool's plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    pub pool: String,
    /// Its machines.
    pub items: Vec<MachinePlan>,
}

listed! {
    /// How much a change disturbs a machine, least first.
    pub enum ChangeClass {
        /// In place, without the lease.
        Live = "live",
        /// With the lease, without a drain.
        Restart = "restart",
        /// With the lease and a drain.
        Drain = "drain",
        /// With the lease: a new Machine.
        Replace = "replace",
    }
}

/// Plan of one machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachinePlan {
    /// The Machine's name.
    pub name: String,
    /// Name of its Node.
    pub node: Option<String>,
    /// Version that it carries.
    pub from: Option<String>,
    /// Version that it would carry.
    pub to: Option<String>,
    /// Fields in which the Machine differs from the template of its MachineSet. An upgrade in place does not change them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub template_differs: Vec<TemplateDifference>,
    /// Whether its Machine is being deleted, so that nothing is changed on it any more. Its replacement is a machine of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
    /// Reason for which the change is not allowed now.
    pub not_allowed: Option<String>,
    /// Reason for which the changes are unknown.
    pub unknown: Option<String>,
    /// Highest class among the changes; null if nothing differs, or if unknown.
    pub class: Option<OpenEnum<ChangeClass>>,
    /// How the change is carried out, in words.
    pub how: Option<String>,
    /// Why its node is not drained before, if it is not: the annotation on its Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_skipped: Option<String>,
    /// What differs, item by item, 200 at most.
    pub changes: Vec<ItemChange>,
    /// How many items differ.
    pub changes_in_all: u64,
    /// Steps of the change, without the waits for approval and for the lease.
    pub steps: Vec<Step>,
    /// Sum of the steps' milliseconds, as far as they are known.
    pub expected_ms: Option<u64>,
    /// Steps that no machine of the pool has taken yet.
    pub unknown_steps: u64,
}

/// One item that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ItemChange {
    /// The item, such as `service:kubelet`.
    pub item: String,
    pub class: OpenEnum<ChangeClass>,
    /// Difference in words, such as the value found and the value wanted.
    pub detail: String,
}

/// Step of a change with its last successful duration: on this machine or, if there is none, on the machine of its
/// pool that ran it last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub phase: OpenEnum<MachinePhase>,
    /// The phase in words.
    pub text: String,
    /// Milliseconds.
    pub took_ms: Option<u64>,
    /// Name of the machine that took it.
    pub machine: Option<String>,
    /// When it ended.
    pub at: Option<Moment>,
}
