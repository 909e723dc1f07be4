//! Findings: causes that keep hosts from being compared. A cause that several hosts report, or that all hosts share, is
//! a finding, and stops every grant until it is fixed. The trouble of one host holds only that host.

use super::{draft::Draft, member::TROUBLES_MAX, signals::short, state::State, uid::Uid};
use crate::machine::policy::is_shared;
use dormer_proto::rollout::NotCompared;

/// Hosts with the same code that make a finding.
const SEVERAL: usize = 2;

/// Trouble that stops every grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommonTrouble<'a> {
    pub trouble: &'a NotCompared,
    /// Machines whose hosts cannot be compared because of it.
    pub uids: Vec<&'a Uid>,
}

impl State {
    /// Trouble that stops every grant, if there is any. Of several, the one with the most hosts.
    #[must_use]
    pub fn finding(&self) -> Option<CommonTrouble<'_>> {
        let findings = self
            .troubles
            .iter()
            .zip(1_u8..)
            .filter_map(|(trouble, number)| {
                let members = self
                    .members
                    .iter()
                    .filter(|(_, m)| m.finding_number() == number);
                let uids: Vec<&Uid> = members.map(|(uid, _)| uid).collect();
                let shared = is_shared(&trouble.code) && !uids.is_empty();
                (shared || uids.len() >= SEVERAL).then_some(CommonTrouble { trouble, uids })
            });
        findings.max_by_key(|finding| finding.uids.len())
    }
}

impl Draft<'_> {
    /// Number of this trouble; 0: there is none. When the numbers are used up, all further kinds share the last one.
    pub(super) fn finding_number(&mut self, trouble: Option<&NotCompared>) -> u8 {
        let Some(trouble) = trouble else { return 0 };
        let kept = NotCompared {
            code: short(trouble.code.clone()),
            message: short(trouble.message.clone()),
            shown_key: None,
        };
        let known = self.state.troubles.iter().zip(1_u8..);
        let known = known.filter(|(known, _)| known.code == kept.code);
        if let Some(number) = known.map(|(_, number)| number).next() {
            return number;
        }
        let count = u8::try_from(self.state.troubles.len()).unwrap_or(TROUBLES_MAX);
        let members = &self.state.members;
        let over = |number: &u8| members.values().all(|m| m.finding_number() != *number);
        if let Some(number) = (1..=count).find(over) {
            self.state.troubles[usize::from(number) - 1] = kept;
            return number;
        }
        if count < TROUBLES_MAX {
            self.state.troubles.push(kept);
            return count + 1;
        }
        TROUBLES_MAX
    }
}
