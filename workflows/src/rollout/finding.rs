//! Trouble of dormer's own: hosts that cannot be compared. What several of them say, or what all of them share, is one
//! finding, and nothing is granted until it is mended. One host's trouble holds that host alone.

use super::{draft::Draft, member::TROUBLES_MAX, signals::short, state::State, uid::Uid};
use dormer_proto::rollout::NotCompared;

/// From how many hosts on a code is a finding.
const SEVERAL: usize = 2;

/// Codes of what all hosts share (profile, payload, rights, dormer's key): the first host that meets it speaks for all.
const SHARED: [&str; 12] = [
    "BootstrapUnusable",
    "DocumentUnusable",
    "Forbidden",
    "Invalid",
    "KeyEncrypted",
    "KeyTooWeak",
    "KeyUnreadable",
    "PayloadDamaged",
    "PayloadUnreadable",
    "ProfileUnusable",
    "Unauthorized",
    "VersionNotHere",
];

/// Trouble that stops every grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding<'a> {
    /// What it is.
    pub trouble: &'a NotCompared,
    /// The Machines whose hosts it keeps from being compared.
    pub uids: Vec<&'a Uid>,
}

impl State {
    /// The trouble that stops every grant, if there is any: of several, the one that most hosts have.
    #[must_use]
    pub fn finding(&self) -> Option<Finding<'_>> {
        let findings = self
            .troubles
            .iter()
            .zip(1_u8..)
            .filter_map(|(trouble, number)| {
                let members = self.members.iter().filter(|(_, m)| m.trouble() == number);
                let uids: Vec<&Uid> = members.map(|(uid, _)| uid).collect();
                let shared = SHARED.contains(&trouble.code.as_str()) && !uids.is_empty();
                (shared || uids.len() >= SEVERAL).then_some(Finding { trouble, uids })
            });
        findings.max_by_key(|finding| finding.uids.len())
    }
}

impl Draft<'_> {
    /// The number of this trouble; 0: there is none. With more kinds than have numbers, the last number is all others'.
    pub(super) fn trouble(&mut self, trouble: Option<&NotCompared>) -> u8 {
        let Some(trouble) = trouble else { return 0 };
        let told = NotCompared {
            code: short(trouble.code.clone()),
            message: short(trouble.message.clone()),
        };
        let known = self.s.troubles.iter().zip(1_u8..);
        let known = known.filter(|(known, _)| known.code == told.code);
        if let Some(number) = known.map(|(_, number)| number).next() {
            return number;
        }
        let count = u8::try_from(self.s.troubles.len()).unwrap_or(TROUBLES_MAX);
        let members = &self.s.members;
        let over = |number: &u8| members.values().all(|m| m.trouble() != *number);
        if let Some(number) = (1..=count).find(over) {
            self.s.troubles[usize::from(number) - 1] = told;
            return number;
        }
        if count < TROUBLES_MAX {
            self.s.troubles.push(told);
            return count + 1;
        }
        TROUBLES_MAX
    }
}
