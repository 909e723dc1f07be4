//! What would change on the machines of a pool.

use crate::{moment::Moment, open_enum::OpenEnum};
use dormer_proto::{listed, phase::MachinePhase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pool's plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The pool.
    pub pool: String,
    /// Its machines.
    pub items: Vec<MachinePlan>,
}

listed! {
    /// How deep a change cuts.
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

/// What would change on one machine.
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
    /// Why it may not go there now.
    pub not_allowed: Option<String>,
    /// Why nobody can say what would change.
    pub unknown: Option<String>,
    /// The deepest class among the changes; null where nothing differs, or nobody knows.
    pub class: Option<OpenEnum<ChangeClass>>,
    /// How the change is carried out, in words.
    pub how: Option<String>,
    /// What differs, item by item, 200 at most.
    pub changes: Vec<ItemChange>,
    /// How many items differ.
    pub changes_in_all: u64,
    /// Steps of the change. The waits for approval and for the lease are none.
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
    /// How deep its change cuts.
    pub class: OpenEnum<ChangeClass>,
    /// What differs.
    pub detail: String,
}

/// A step of a change, with how long it took the last time that it succeeded: on this machine or, if it never did, on
/// the machine of its pool that took it last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The phase.
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
