//! Findings about the cluster around: the checks of `dormer preflight --cluster`, made again while dormer runs.

use crate::open_enum::OpenEnum;
use dormer_proto::listed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

listed! {
    /// How bad a finding is.
    pub enum FindingSeverity {
        /// Machines do not come up, or do not serve.
        Error = "error",
        /// It may be intended.
        Warning = "warning",
    }
}

/// Finding about the cluster, as it is now. It lapses once it is mended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Stable code: a word, or the name of a lint's rule.
    pub code: String,
    /// How bad it is.
    pub severity: OpenEnum<FindingSeverity>,
    /// The object: `MachineHealthCheck windows`; empty if it is the cluster.
    pub object: String,
    /// What is wrong.
    pub message: String,
    /// The remedy: a sentence, with the commands that execute it.
    pub what_to_do: String,
}
