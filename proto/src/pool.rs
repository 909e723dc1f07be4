//! Settings of a pool: the desired state of its machines, and how they may be changed.

use crate::{
    defaults::{is_false, is_zero},
    id::Timestamp,
    other_operator::OtherOperator,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the only pool today.
pub const DEFAULT_POOL: &str = "windows";

/// Limit of unavailable members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MaxUnavailable {
    /// A number, at least 1.
    Count(u32),
    /// Percent of the members, 1 to 100; rounded down, at least 1, as in machine config pools.
    Percent(u8),
}

impl MaxUnavailable {
    /// Number for a pool of `members`.
    #[must_use]
    pub fn of(self, members: usize) -> usize {
        match self {
            Self::Count(n) => (n as usize).max(1),
            Self::Percent(p) => (members * usize::from(p) / 100).max(1),
        }
    }
}

/// Strategy of an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// Drain, delete the Machine, wait for its replacement.
    Recreate,
    /// Drain, tear the host down, configure it again.
    InPlace,
}

/// Approval of upgrades.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Approval {
    /// Upgrades start by themselves.
    Automatic,
    /// A person approves each upgrade.
    Manual,
}

/// Action after a drain's timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AfterTimeout {
    /// Keep waiting, and report it.
    Wait,
    /// Undo the cordon, release the lease, hold the machine.
    Abort,
    /// Evict without budgets.
    Force,
}

/// Desired state of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Desired {
    /// The version for this machine's Windows build: profile, payload and the cluster's settings in one hash.
    pub version: String,
    /// The payload's version.
    pub payload: String,
}

/// Upgrade terms of a payload, as far as the watcher knows. Versions here are the payloads' own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Terms {
    /// Versions that it may follow.
    pub may_follow: Vec<String>,
    /// Installed ones among them: possible targets of a rollback.
    #[serde(rename = "at_hand", default, skip_serializing_if = "Vec::is_empty")]
    pub installed: Vec<String>,
    /// Version from which a person rolled back to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_from: Option<String>,
    /// Reason for which its kubelet does not suit the present API servers. `None`: it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew: Option<String>,
    /// Reason for which no upgrade to it begins any more, because it has expired. `None`: it has not, or an older watcher
    /// does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<String>,
    /// Platforms that it is for, lower case; empty: all, or an older watcher does not send it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<String>,
    /// Minor version of its kubelet; `None`: unknown, or an older watcher does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<u32>,
    /// Release of its containerd (`2.1`); `None`: the manifest does not name it, or an older watcher does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containerd: Option<String>,
    /// Image of its canary; `None`: none, or an older watcher does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<String>,
    /// Windows builds that the profile with the cluster's settings is not for, each with the reason. An older watcher
    /// does not send it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_builds: BTreeMap<String, String>,
    /// Installed payloads between the payload that a machine has and this one, in their order, where there is no direct edge. An
    /// older watcher does not send it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paths: BTreeMap<String, Vec<String>>,
    /// SHA-256 of its manifest, which tells two builds of one version apart. `None`: no key signed it, or an older watcher
    /// does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// Reason and remedy where a payload is another build than the one that is known by its version.
#[must_use]
pub fn other_build(version: &str) -> (String, &'static str) {
    let why = format!(
        "payload {version} is another build than the one that dormer knows by this version"
    );
    let cure = "Put the earlier build back, or give each build of a payload a version of its own";
    (why, cure)
}

impl Terms {
    /// Reason for which a machine with the payload `from` may not upgrade to `to`, the payload of these terms. The
    /// same payload may always follow itself, and a person may go back to one that has expired.
    #[must_use]
    pub fn bars(&self, to: &str, from: &str) -> Option<String> {
        let back = self.back_from.as_deref() == Some(from);
        if from == to || back {
            return None;
        }
        if self.may_follow.iter().any(|version| version == from) {
            return self.expired.clone();
        }
        let known = match self.may_follow.as_slice() {
            [] => "no version".to_owned(),
            known => known.join(", "),
        };
        let path = self.path(to, from);
        let path = path.map_or_else(String::new, |it| format!("; {it}"));
        Some(format!(
            "payload {to} may follow {known}, not {from} (may_follow in its manifest){path}"
        ))
    }

    /// Text about the installed payloads between `from` and `to`, the payload of these terms. `None`: they are not known, or
    /// none lead there.
    #[must_use]
    pub fn path(&self, to: &str, from: &str) -> Option<String> {
        let between = self.paths.get(from)?;
        let first = between.first()?;
        let path = between.join(" → ");
        Some(format!(
            "installed payloads lead there ({from} → {path} → {to}): set spec.payload to {first} first"
        ))
    }
}

/// Payload of a version: the part before the hash. `None`: it is not one of dormer's versions.
#[must_use]
pub fn payload_of(version: &str) -> Option<&str> {
    let (payload, hash) = version.rsplit_once('-')?;
    let hex = hash.len() == 12 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then_some(payload)
}

/// Last edit of a pool's spec, by the API server's managed fields. They name programs, not persons: what a person asks of
/// dormer has the person's name beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolEdit {
    /// The program, such as `kubectl-edit`.
    pub program: String,
    /// When, by the API server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Fields that this program owns, also by earlier edits, such as `strategy.maxUnavailable`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// Text about the program that wrote a pool's spec last, and its fields. The API server reports every field that the program
/// owns, not only those of its last edit. The program's name is quoted, since the editor may choose any text.
#[must_use]
pub fn last_written(program: &str, fields: &[String]) -> String {
    let owns = match fields {
        [] => String::new(),
        fields => format!(" (it owns: {})", fields.join(", ")),
    };
    format!("{program:?}{owns}")
}

/// Accepted settings of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSettings {
    /// The pool's name.
    pub pool: String,
    /// What its machines should be, by Windows build (`10.0.20348`); the key `*` is for every other build.
    pub desired: BTreeMap<String, Desired>,
    /// Upgrade strategy.
    pub strategy: Strategy,
    /// Limit of unavailable machines.
    pub max_unavailable: MaxUnavailable,
    /// No new grants.
    pub paused: bool,
    /// Whether upgrades start by themselves.
    pub approval: Approval,
    /// How long a drain may take, in milliseconds (0: no limit).
    pub drain_timeout_ms: u64,
    /// Action after that.
    pub after_timeout: AfterTimeout,
    /// How long a node must have been Ready before it counts as joined, in milliseconds.
    pub soak_ms: u64,
    /// Terms of each payload in `desired`, by version. A missing one has no terms.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub terms: BTreeMap<String, Terms>,
    /// Most grants over the limit at once, for members that do not serve. `None`: an older watcher does not send it,
    /// and one is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_repairs: Option<u32>,
    /// Time that a Node must be not Ready before its machine may be granted over the limit, in milliseconds. `None`:
    /// an older watcher does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair_after_ms: Option<u64>,
    /// Pattern of the names that Nodes may have where the platform gives their Machines none: at most one `*`, which
    /// matches any characters. `None`: the name of the Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_names: Option<String>,
    /// Reason for which no lease is granted, regardless of the other fields. `paused` is set as well, for engines
    /// that do not know this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Remedy for `held`: an imperative sentence, with the commands that execute it. `None`: an older watcher writes it
    /// into `held`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_cure: Option<String>,
    /// Whether there is no pool. These are then defaults for machines without a Node, and a machine that serves is
    /// left unchanged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub absent: bool,
    /// UID of the pool's object. A pool that was deleted and made again is another one, and a machine whose change was refused
    /// meanwhile has to know. `None`: there is no pool, or an older watcher does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Payload as the pool's spec writes it: a version, or `installed`. `None`: there is no pool, or an older watcher
    /// does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_payload: Option<String>,
    /// Person who rolled the pool back to the payload in `desired`, which replaces `spec_payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden_by: Option<String>,
    /// Whether the pool's status still has a rollback that another `spec.payload` has ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub override_ended: bool,
    /// Generation of the pool's spec that was read last; 0: there is none, or an older watcher does not send it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// Last edit of the spec. `None`: the API server notes none, or an older watcher does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<PoolEdit>,
    /// Reason for which that generation is refused. The previous settings stay in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What grants within the limit wait for: something else changes the cluster. A grant over the limit
    /// mends what does not serve, and does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Remedy for `waits`: an imperative sentence, with the commands that execute it. `None`: an older watcher writes it
    /// into `waits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_cure: Option<String>,
    /// Whether a node has to pass the checks of [`crate::checks`] before it counts as joined. An older watcher does not send
    /// it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub verify: bool,
    /// Whether a pause also holds changes that disturb no workload. An older watcher does not send it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub holds_live: bool,
    /// Another operator that configures hosts: while it runs, no lease is granted. `held` says it too, for engines that
    /// do not know this field.
    #[serde(default, skip_serializing_if = "OtherOperator::is_unread")]
    pub neighbour: OtherOperator,
}

/// A reason and its remedy in one text, for an Event or a condition.
#[must_use]
pub fn with_remedy(why: &str, cure: Option<&str>) -> String {
    cure.map_or_else(|| why.to_owned(), |cure| format!("{why}. {cure}"))
}

impl PoolSettings {
    /// Reason for which no lease is granted, with its remedy, for an Event or a status.
    #[must_use]
    pub fn held_in_full(&self) -> Option<String> {
        let held = self.held.as_deref();
        held.map(|why| with_remedy(why, self.held_cure.as_deref()))
    }
}

impl PoolSettings {
    /// Settings for a machine's run, without the rollout's fields. `None`: a machine gets no settings, because the
    /// existing pool is invalid.
    #[must_use]
    pub fn for_machine(&self) -> Option<Self> {
        let unknown = self.absent && self.desired.is_empty();
        let without_build = |(version, terms): (&String, &Terms)| {
            let build = None;
            let terms = Terms {
                build,
                ..terms.clone()
            };
            (version.clone(), terms)
        };
        (!unknown).then(|| Self {
            // The rollout compares the builds.
            terms: self.terms.iter().map(without_build).collect(),
            edited: None,
            max_repairs: None,
            spec_payload: None,
            overridden_by: None,
            override_ended: false,
            generation: 0,
            refused: None,
            waits: None,
            waits_cure: None,
            // Its own fact says it, before any settings come.
            neighbour: OtherOperator::Unread,
            ..self.clone()
        })
    }

    /// Desired state of a machine with this Windows build.
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
            verify: false,
            holds_live: false,
            node_names: None,
            held: None,
            held_cure: None,
            absent: false,
            uid: None,
            spec_payload: None,
            overridden_by: None,
            override_ended: false,
            generation: 0,
            edited: None,
            refused: None,
            waits: None,
            waits_cure: None,
            neighbour: OtherOperator::Unread,
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
    fn a_refusal_names_the_payloads_that_lead_there() {
        let terms = Terms {
            may_follow: vec!["11.1.0".into()],
            paths: [
                ("11.0.0".to_owned(), vec!["11.1.0".to_owned()]),
                (
                    "10.9.0".to_owned(),
                    vec!["11.0.0".to_owned(), "11.1.0".to_owned()],
                ),
            ]
            .into(),
            ..Terms::default()
        };
        let why = |from| terms.bars("11.2.0", from).expect("no edge");
        assert_eq!(
            why("10.9.0"),
            "payload 11.2.0 may follow 11.1.0, not 10.9.0 (may_follow in its manifest); installed payloads lead there \
             (10.9.0 → 11.0.0 → 11.1.0 → 11.2.0): set spec.payload to 11.0.0 first"
        );
        assert!(
            why("11.0.0").ends_with("(11.0.0 → 11.1.0 → 11.2.0): set spec.payload to 11.1.0 first")
        );
        assert!(why("10.0.0").ends_with("(may_follow in its manifest)"));
        assert_eq!(terms.bars("11.2.0", "11.1.0"), None);
    }

    #[test]
    fn a_machine_is_not_given_the_build_of_its_payload() {
        let terms = Terms {
            build: Some("its SHA-256".into()),
            kubelet: Some(35),
            ..Terms::default()
        };
        let settings = PoolSettings {
            terms: [("11.0.0".to_owned(), terms)].into(),
            ..PoolSettings::default()
        };
        let machine = settings.for_machine().expect("settings");
        let of_machine = &machine.terms["11.0.0"];
        assert_eq!((&of_machine.build, of_machine.kubelet), (&None, Some(35)));
    }

    #[test]
    fn an_expired_payload_takes_a_rollback_and_no_upgrade() {
        let expired = Terms {
            may_follow: vec!["11.0.0".into()],
            back_from: Some("11.2.0".into()),
            expired: Some("it has expired".into()),
            ..Terms::default()
        };
        let barred = Some("it has expired".to_owned());
        assert_eq!(expired.bars("11.1.0", "11.0.0"), barred);
        assert_eq!(expired.bars("11.1.0", "11.1.0"), None, "other settings");
        assert_eq!(expired.bars("11.1.0", "11.2.0"), None, "a rollback");
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
