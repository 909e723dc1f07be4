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
}

impl PoolSettings {
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
        }
    }
}
