//! Texts of the approver of certificate requests.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A Node that has a machine's name, and belongs to another instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignNode {
    /// Name of the Node.
    pub node: String,
    /// providerID of the Node.
    pub theirs: String,
    /// providerID of the Machine.
    pub ours: String,
}

/// Begin of the approver's text about a request that another client approved: the reason why dormer would not have follows.
pub const APPROVED_BY_OTHERS: &str = "somebody else approved it, and dormer would not: ";

/// As the reason for which a certificate request is not approved.
impl fmt::Display for ForeignNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, theirs, ours } = self;
        write!(
            f,
            "the Node {node} is there, and belongs to {theirs}, not {ours}"
        )
    }
}

impl ForeignNode {
    /// Why the machine's own Node did not appear.
    #[must_use]
    pub fn name_taken(&self) -> String {
        let Self { node, theirs, ours } = self;
        format!(
            "its Node did not appear, because a foreign Node has its name: {node} belongs to {theirs}, and the Machine is \
             {ours}"
        )
    }
}
