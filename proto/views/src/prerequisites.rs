//! Prerequisites that dormer itself lacks, each reported once for many machines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Prerequisite of dormer's own that machines wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingPrerequisite {
    /// The prerequisite and its remedy: one sentence without a full stop.
    pub what: String,
    /// Machines that wait for it.
    pub waiting: u64,
    /// Number of all machines.
    pub machines: u64,
}

impl MissingPrerequisite {
    /// Sentence about it, with the number of waiting machines.
    pub fn sentence(&self) -> String {
        let Self {
            what,
            waiting,
            machines,
        } = self;
        let who = match (waiting, machines) {
            (1, 1) => "The one machine waits".to_owned(),
            _ if waiting == machines => format!("All {machines} machines wait"),
            (1, _) => format!("1 of {machines} machines waits"),
            _ => format!("{waiting} of {machines} machines wait"),
        };
        format!("{who} for one thing: {what}. Once that is mended, dormer continues by itself.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_machines_are_counted() {
        for (waiting, machines, begins) in [
            (1, 1, "The one machine waits for"),
            (9, 9, "All 9 machines wait for"),
            (1, 9, "1 of 9 machines waits for"),
            (2, 9, "2 of 9 machines wait for"),
        ] {
            let what = "the key is encrypted".to_owned();
            let text = MissingPrerequisite {
                what,
                waiting,
                machines,
            }
            .sentence();
            assert!(text.starts_with(begins), "{text}");
            let thing = "one thing: the key is encrypted. Once";
            assert!(text.contains(thing), "{text}");
        }
    }
}
