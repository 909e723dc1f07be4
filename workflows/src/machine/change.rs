//! A change of a machine's node, and the drain that it waits for.

use dormer_proto::machine::Blocker;
use serde::{Deserialize, Serialize};

/// What differs where a person asked for a change.
pub const ASKED: &str = "a person asked for it";

/// Method of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeStrategy {
    /// Drain, delete the Machine, wait for its replacement.
    Recreate,
    /// Drain, tear the host down, configure it again.
    InPlace,
    /// Configure it again, without a drain.
    Restart,
    /// Drain, and stay so until resumed.
    Drain,
}

/// Change that waits for the lease or is carried out under it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub how: ChangeStrategy,
    /// What differs, for people.
    pub differs: Vec<String>,
    /// Whether its Node is gone: the host is set up again, even without another difference, so that its kubelet
    /// registers again; or a Machine that was given up is replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repair: bool,
    /// Whether another client uncordoned the Node since the fence was opened first: the drain starts over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
    /// Whether a person asked for it; `differs` then says no more than that. Earlier records have only that text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
}

impl Change {
    /// A change that a person asked for.
    pub(super) fn asked(how: ChangeStrategy) -> Self {
        Self {
            how,
            differs: vec![ASKED.into()],
            repair: false,
            anew: false,
            asked: true,
        }
    }

    /// What differs; the request of a person is no difference. `requested`: whether a person asked for something: an earlier
    /// record has only the text of it.
    #[must_use]
    pub fn differences(mut self, requested: bool) -> Vec<String> {
        let is_request = |it: &String| self.asked || (requested && it == ASKED);
        self.differs.retain(|it| !is_request(it));
        self.differs
    }

    /// The same change, whose Node another client has uncordoned.
    pub(super) fn anew(&self) -> Self {
        Self {
            anew: true,
            ..self.clone()
        }
    }
}

/// Progress of a drain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Drain {
    /// Pods evicted so far.
    pub evicted: u32,
    /// Pods that remain.
    pub left: u32,
    /// What holds them.
    pub blockers: Vec<Blocker>,
    /// Whether budgets are ignored now.
    pub force: bool,
    /// Whether it has passed the pool's limit, and the pool lets it wait.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub overdue: bool,
    /// Passes in a row that moved nothing and found the same pods left.
    #[serde(skip_serializing_if = "is_zero")]
    pub idle_passes: u8,
    /// Whether another client uncordoned the Node, and dormer has not cordoned it again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uncordoned: bool,
    /// Whether another client uncordoned the Node after the present pass of evictions began, so that pods may have come
    /// after it: this pass does not end the drain.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pass_is_stale: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
pub(super) fn is_zero(it: &u8) -> bool {
    *it == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_of_a_person_is_no_difference() {
        let change = |asked, differs: &str| Change {
            how: ChangeStrategy::Drain,
            differs: vec![differs.into()],
            repair: false,
            anew: false,
            asked,
        };
        let none = Vec::<String>::new();
        assert_eq!(change(true, "in any words").differences(false), none);
        let earlier = change(false, ASKED);
        assert_eq!(earlier.differences(true), none, "an earlier record");
        assert_eq!(change(false, "kubelet").differences(true), ["kubelet"]);
    }
}
