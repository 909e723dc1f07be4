//! A pool's settings: what its machines should be, and how they may be changed.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The one pool there is today.
pub const DEFAULT_POOL: &str = "windows";

/// How many members may be unavailable at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MaxUnavailable {
    /// A number, at least 1.
    Count(u32),
    /// Percent of the members, 1 to 100; rounded down, at least 1, as in machine config pools.
    Percent(u8),
}

impl MaxUnavailable {
    /// The number for a pool of `members`.
    #[must_use]
    pub fn of(self, members: usize) -> usize {
        match self {
            Self::Count(n) => (n as usize).max(1),
            Self::Percent(p) => (members * usize::from(p) / 100).max(1),
        }
    }
}

/// How a member is upgraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// Drain, delete the Machine, wait for its replacement.
    Recreate,
    /// Drain, tear the host down, configure it again.
    InPlace,
}

/// Whether an upgrade starts by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Approval {
    /// At once.
    Automatic,
    /// After a person said so.
    Manual,
}

/// What follows when a drain has taken too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AfterTimeout {
    /// Go on waiting, and say so.
    Wait,
    /// Undo the cordon, release the lease, hold the machine.
    Abort,
    /// Evict without budgets.
    Force,
}

/// What a machine should be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Desired {
    /// The version for this machine's Windows build: profile, payload and script in one hash.
    pub version: String,
    /// The payload's version.
    pub payload: String,
}

/// Along which edges a payload may come, as far as the watcher knows. Versions here are payloads' own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Terms {
    /// Versions that it may follow.
    pub may_follow: Vec<String>,
    /// Those of them that are installed: what one could go back to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_hand: Vec<String>,
    /// The version from which a person goes back to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_from: Option<String>,
    /// Why its kubelet does not fit the API servers there are now; `None`: it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew: Option<String>,
}

impl Terms {
    /// Why a machine that carries the payload `from` may not come to `to`, which these are the terms of. The same
    /// payload may always follow itself.
    #[must_use]
    pub fn bars(&self, to: &str, from: &str) -> Option<String> {
        let back = self.back_from.as_deref() == Some(from);
        if from == to || back || self.may_follow.iter().any(|version| version == from) {
            return None;
        }
        let known = match self.may_follow.as_slice() {
            [] => "no version".to_owned(),
            known => known.join(", "),
        };
        Some(format!(
            "payload {to} may follow {known}, not {from} (may_follow in its manifest)"
        ))
    }
}

/// The payload of a version: what stands before the hash. `None`: it is no version of ours.
#[must_use]
pub fn payload_of(version: &str) -> Option<&str> {
    let (payload, hash) = version.rsplit_once('-')?;
    let hex = hash.len() == 12 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then_some(payload)
}

/// A pool's accepted settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSettings {
    /// The pool's name.
    pub pool: String,
    /// What its machines should be, by Windows build (`10.0.20348`); the key `*` is for every other build.
    pub desired: BTreeMap<String, Desired>,
    /// How they get there.
    pub strategy: Strategy,
    /// How many may be away at once.
    pub max_unavailable: MaxUnavailable,
    /// No new grants.
    pub paused: bool,
    /// Whether upgrades start by themselves.
    pub approval: Approval,
    /// How long a drain may take, in milliseconds (0: no limit).
    pub drain_timeout_ms: u64,
    /// What follows then.
    pub after_timeout: AfterTimeout,
    /// How long a node must have been Ready before it counts as joined, in milliseconds.
    pub soak_ms: u64,
    /// The terms of each payload in `desired`, by its version; one that is not there comes without terms.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub terms: BTreeMap<String, Terms>,
    /// How many grants over the limit may stand at once, for members that do not serve; `None`: an older watcher does
    /// not say, and one may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_repairs: Option<u32>,
    /// How long a Node has not to be Ready before its machine may be granted over the limit, in milliseconds; `None`: an
    /// older watcher does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair_after_ms: Option<u64>,
    /// The pattern of the names that Nodes may have where the platform gives their Machines none: at most one `*`, which
    /// stands for any letters. `None`: the name of the Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_names: Option<String>,
    /// Why no lease is granted, whatever else stands here. `paused` is set beside it, for engines that do not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// There is no pool, and these are the defaults for machines without a Node: a machine that serves is left as it is.
    #[serde(default, skip_serializing_if = "is_false")]
    pub absent: bool,
    /// The payload in the words of the pool's spec: a version, or `installed`. `None`: there is no pool, or an older
    /// watcher does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_payload: Option<String>,
    /// Who rolled the pool back to the payload in `desired`, which holds in place of `spec_payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden_by: Option<String>,
    /// The generation of the pool's spec that was read last; 0: there is none, or an older watcher does not say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// Why that generation is refused: the settings before it hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(it: &bool) -> bool {
    !it
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(it: &u64) -> bool {
    *it == 0
}

impl PoolSettings {
    /// As a machine's run is told: without what only the rollout needs. `None`: a machine is told nothing, because
    /// nothing could be accepted of the pool that is there.
    #[must_use]
    pub fn for_machine(&self) -> Option<Self> {
        let unknown = self.absent && self.desired.is_empty();
        (!unknown).then(|| Self {
            max_repairs: None,
            spec_payload: None,
            overridden_by: None,
            generation: 0,
            refused: None,
            ..self.clone()
        })
    }

    /// What a machine with this Windows build should be.
    #[must_use]
    pub fn desired_for(&self, build: &str) -> Option<&Desired> {
        self.desired.get(build).or_else(|| self.desired.get("*"))
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            pool: DEFAULT_POOL.into(),
            desired: BTreeMap::new(),
            strategy: Strategy::Recreate,
            max_unavailable: MaxUnavailable::Count(1),
            paused: false,
            approval: Approval::Automatic,
            drain_timeout_ms: 3_600_000,
            after_timeout: AfterTimeout::Wait,
            soak_ms: 30_000,
            terms: BTreeMap::new(),
            max_repairs: None,
            repair_after_ms: None,
            node_names: None,
            held: None,
            absent: false,
            spec_payload: None,
            overridden_by: None,
            generation: 0,
            refused: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_comes_along_its_edges_and_back_when_a_person_says_so() {
        let terms = Terms {
            may_follow: vec!["11.0.0".into()],
            ..Terms::default()
        };
        assert_eq!(terms.bars("11.1.0", "11.0.0"), None);
        assert_eq!(terms.bars("11.1.0", "11.1.0"), None);
        let why = terms.bars("11.1.0", "10.9.0").expect("no edge");
        assert!(why.contains("may follow 11.0.0, not 10.9.0"), "{why}");
        let none = Terms::default();
        assert!(
            none.bars("11.0.0", "11.1.0")
                .expect("no edge")
                .contains("no version")
        );
        let back = Terms {
            back_from: Some("11.1.0".into()),
            ..none
        };
        assert_eq!(back.bars("11.0.0", "11.1.0"), None);
        assert!(
            back.bars("11.0.0", "11.2.0").is_some(),
            "one step back, from one version"
        );
    }

    #[test]
    fn a_version_names_its_payload() {
        let table = [
            ("11.0.0-0123456789ab", Some("11.0.0")),
            ("11.0.0-rc.1-0123456789ab", Some("11.0.0-rc.1")),
            ("11.0.0", None),
            ("11.0.0-rc1", None),
            ("v1", None),
        ];
        for (version, payload) in table {
            assert_eq!(payload_of(version), payload, "{version}");
        }
    }
}
