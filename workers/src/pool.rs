//! Settings of a pool: the spec of its `WindowsPool`, resolved with the installed profiles and payloads.

pub(crate) mod edit;
pub mod host;
pub mod import;
pub mod v1beta1;

use dormer_profile::{cluster_config::ClusterSnapshot, payload::check_skew};
use dormer_proto::pool::{
    AfterTimeout, Approval, Desired, MaxUnavailable, PoolSettings, Strategy, Terms, other_build,
    with_remedy,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tokio::sync::watch;
use v1beta1::{
    AfterTimeoutSpec, ApprovalSpec, DrainSpec, FIELDS, Override, StrategySpec, StrategyType,
    WindowsPoolSpec,
};

/// The profile of a pool that names none.
pub const DEFAULT_PROFILE: &str = "openshift";
/// The payload of a pool that names none: the newest one that the catalog has.
pub const INSTALLED: &str = "installed";
/// Longest name of a profile or payload, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Most payloads whose path to the desired one is named: each machine's record has the terms.
const PATHS_MAX: usize = 16;
/// Most Windows builds that the settings of one pool distinguish.
pub const BUILDS_MAX: usize = 32;
/// Key of a layer's text in its ConfigMap.
pub const LAYER_KEY: &str = "layer.yaml";
/// Most layers of a pool.
const LAYERS_MAX: usize = 8;
/// Longest name of a ConfigMap, in bytes.
const MAP_NAME_BYTES_MAX: usize = 253;
/// Longest pattern of Node names, in bytes.
const PATTERN_BYTES_MAX: usize = 63;
/// Most machines that `maxUnavailable` and `maxRepairs` may count.
const MACHINES_MAX: u64 = 5_000;
/// Longest soak, and longest time before a repair, in seconds.
const DAY_S: u64 = 24 * 3_600;
/// Longest timeout of a drain, in seconds.
const DRAIN_MAX_S: u64 = 720 * 3_600;

/// Name of the ConfigMap in which builds before v1beta1 kept the settings of `pool`.
#[must_use]
pub fn config_map(pool: &str) -> String {
    format!("dormer-pool-{pool}")
}

/// Names of the ConfigMaps with a pool's layers, the lowest first.
///
/// # Errors
/// The spec names them in another form.
pub fn layers(spec: &Value) -> Result<Vec<String>, PoolError> {
    let read = Option::<Vec<String>>::deserialize(&spec["layers"]);
    let layers = read.map_err(|error| PoolError::new("spec.layers", error.to_string()))?;
    let named = layers.unwrap_or_default();
    check_layers(&named)?;
    Ok(named)
}

/// Source of the profiles and payloads that are available.
pub trait Installed: Send + Sync + 'static {
    /// Desired versions with this profile and payload (`None`: the newest), by Windows build (`10.0.20348`; `*` is
    /// every other build). Answers from memory, because the watcher must not wait.
    ///
    /// # Errors
    /// One sentence for people: there is no such profile or payload.
    fn desired(
        &self,
        profile: &str,
        payload: Option<&str>,
    ) -> Result<BTreeMap<String, Desired>, String>;
    /// Upgrade edges to this payload; `None`: it is not installed, or unknown. Answers from memory.
    fn edges(&self, payload: &str) -> Option<Edges> {
        let _ = payload;
        None
    }
    /// Windows builds of that payload that cannot have what the profile and the cluster say, each with the reason.
    /// Answers from memory, too.
    fn refused_builds(&self, profile: &str, payload: &str) -> BTreeMap<String, String> {
        let _ = (profile, payload);
        BTreeMap::new()
    }
    /// Applies the settings that were read from the cluster. Returns a sentence for each that is not understood or not
    /// possible.
    fn read_cluster(&self, snapshot: ClusterSnapshot) -> Vec<String> {
        let _ = snapshot;
        Vec::new()
    }
    /// Number that changes whenever [`Installed::desired`] may give another answer.
    fn changed(&self) -> watch::Receiver<u64>;
}

impl Installed for std::sync::Arc<dyn Installed> {
    fn desired(
        &self,
        profile: &str,
        payload: Option<&str>,
    ) -> Result<BTreeMap<String, Desired>, String> {
        self.as_ref().desired(profile, payload)
    }
    fn edges(&self, payload: &str) -> Option<Edges> {
        self.as_ref().edges(payload)
    }
    fn refused_builds(&self, profile: &str, payload: &str) -> BTreeMap<String, String> {
        self.as_ref().refused_builds(profile, payload)
    }
    fn read_cluster(&self, snapshot: ClusterSnapshot) -> Vec<String> {
        self.as_ref().read_cluster(snapshot)
    }
    fn changed(&self) -> watch::Receiver<u64> {
        self.as_ref().changed()
    }
}

/// Edges of a payload, from its manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edges {
    /// Versions of the payloads that it may follow.
    pub may_follow: Vec<String>,
    /// Minor version of its kubelet.
    pub kubelet: Option<u32>,
    /// Release of its containerd, where the manifest names it.
    pub containerd: Option<String>,
    /// Platforms that it is for; empty: all.
    pub platforms: Vec<String>,
    /// Why no upgrade to it begins any more, if it has expired.
    pub expired: Option<String>,
    /// Image of its canary, where the manifest names it.
    pub canary: Option<String>,
    /// SHA-256 of its manifest, if a key signed it.
    pub build: Option<String>,
}

/// Minor versions of the API servers that answered lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiServers {
    pub oldest: u32,
    pub newest: u32,
}

/// A field of the spec that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct PoolError {
    /// Which field, from the object's root.
    pub key: String,
    /// Problem, as a sentence for people.
    pub problem: String,
}

impl PoolError {
    fn new(key: &str, problem: impl Into<String>) -> Self {
        Self {
            key: key.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Settings of a pool as people wrote them, before the lookup of versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// The name of a profile.
    pub profile: String,
    /// The version of a payload; `None`: the newest that is installed.
    pub payload: Option<String>,
    /// Version of the payload that a person rolled back from.
    pub back_from: Option<String>,
    /// No lease is granted.
    pub stop: bool,
    /// No upgrade begins while the cluster is upgraded.
    pub waits_for_cluster: bool,
    /// Builds that the pool's status remembers, by the version of the payload.
    builds: BTreeMap<String, String>,
    rest: PoolSettings,
}

impl PoolSpec {
    /// Reads the spec of `pool`, and the rollback in its status, if that is about this spec.
    ///
    /// # Errors
    /// A field that is unknown or has a bad value. Nothing is accepted in part.
    pub fn read(pool: &str, spec: &Value, status: &Value) -> Result<Self, PoolError> {
        let fields = spec.as_object();
        let fields = fields.ok_or_else(|| PoolError::new("spec", "must be an object"))?;
        if let Some(odd) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
            let key = format!("spec.{odd}");
            return Err(PoolError::new(&key, "this build knows no such field"));
        }
        let typed: WindowsPoolSpec = serde_path_to_error::deserialize(spec).map_err(|error| {
            let key = format!("spec.{}", error.path());
            PoolError::new(key.trim_end_matches(".."), error.inner().to_string())
        })?;
        let rollback = Override::deserialize(&status["override"]).ok();
        let builds = BTreeMap::deserialize(&status["builds"]).unwrap_or_default();
        let spec = Self::of(pool, &typed, rollback)?;
        Ok(Self { builds, ..spec })
    }

    /// The defaults, which hold for machines that come up while there is no pool.
    #[must_use]
    pub fn absent(pool: &str) -> Self {
        Self {
            profile: DEFAULT_PROFILE.to_owned(),
            payload: None,
            back_from: None,
            stop: false,
            waits_for_cluster: true,
            builds: BTreeMap::new(),
            rest: PoolSettings {
                pool: pool.to_owned(),
                absent: true,
                verify: true,
                holds_live: true,
                ..PoolSettings::default()
            },
        }
    }

    /// Whether the rollout is paused.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.rest.paused
    }

    fn of(
        pool: &str,
        spec: &WindowsPoolSpec,
        rollback: Option<Override>,
    ) -> Result<Self, PoolError> {
        let written = name("spec.payload", &spec.payload)?;
        let mut back_from = match &spec.rollback_from {
            Some(from) => Some(name("spec.rollbackFrom", from)?),
            None => None,
        };
        if back_from.is_some() && (written == INSTALLED || back_from.as_ref() == Some(&written)) {
            let problem = "needs a payload that is a version, and another one";
            return Err(PoolError::new("spec.rollbackFrom", problem));
        }
        let mut payload = written.clone();
        let mut by = None;
        // A worker of an earlier build writes one that names the spec's own payload, instead of none.
        let holds = |it: &Override| it.instead_of == written && it.payload != written;
        let override_ended = rollback.as_ref().is_some_and(|it| !holds(it));
        if let Some(it) = rollback.filter(holds) {
            payload = name("status.override.payload", &it.payload)?;
            back_from = Some(it.from);
            by = Some(it.by);
        }
        check_layers(&spec.layers)?;
        let rest = PoolSettings {
            pool: pool.to_owned(),
            spec_payload: Some(written),
            overridden_by: by,
            override_ended,
            ..settings(spec)?
        };
        Ok(Self {
            profile: name("spec.profile", &spec.profile)?,
            payload: Some(payload).filter(|payload| payload != INSTALLED),
            back_from,
            stop: spec.stop,
            waits_for_cluster: spec.wait_for_cluster_version,
            builds: BTreeMap::new(),
            rest,
        })
    }

    /// Settings, with the desired versions that follow from what is installed now.
    ///
    /// # Errors
    ///
    /// There is no such profile or payload; the error's key names the field.
    pub fn resolve(
        &self,
        installed: &impl Installed,
        servers: Option<ApiServers>,
    ) -> Result<PoolSettings, PoolError> {
        let refused = |problem: String| {
            let key = match (&self.rest.overridden_by, &self.payload) {
                (Some(_), _) => "status.override.payload",
                (None, Some(_)) => "spec.payload",
                (None, None) => "spec.profile",
            };
            PoolError::new(key, problem)
        };
        let desired = installed
            .desired(&self.profile, self.payload.as_deref())
            .map_err(refused)?;
        if desired.is_empty() || desired.len() > BUILDS_MAX {
            return Err(refused(format!("names {} Windows builds", desired.len())));
        }
        let mut terms = BTreeMap::new();
        for Desired { payload, .. } in desired.values() {
            if let Some(edges) = installed.edges(payload) {
                let known = self.builds.get(payload);
                if edges.build.is_some() && known.is_some_and(|it| edges.build.as_ref() != Some(it))
                {
                    let (why, cure) = other_build(payload);
                    let why = with_remedy(&why, Some(cure));
                    return Err(refused(format!(
                        "{why}. dormer remembers builds in the pool's status.builds: if that value is wrong, remove the version \
                         there (docs/runbook.md, DormerPoolRefused)"
                    )));
                }
                terms.insert(
                    payload.clone(),
                    self.terms(payload, edges, installed, servers),
                );
            }
        }
        Ok(PoolSettings {
            desired,
            terms,
            ..self.rest.clone()
        })
    }

    /// The terms of a payload: its manifest's edges, a person's step back, and whether its kubelet fits.
    fn terms(
        &self,
        payload: &str,
        edges: Edges,
        installed: &impl Installed,
        servers: Option<ApiServers>,
    ) -> Terms {
        let is_installed = |version: &&String| installed.edges(version).is_some();
        let targets = edges.may_follow.iter().filter(is_installed);
        let targets = targets.cloned().collect();
        let skew = skew(&edges, servers);
        let paths = paths(
            payload,
            &edges.may_follow,
            (installed, &self.profile),
            servers,
        );
        // A rollback follows an edge only; the value of an earlier rollback no longer counts.
        let step = |from: &String| {
            installed
                .edges(from)
                .is_some_and(|left| left.may_follow.iter().any(|v| v == payload))
        };
        let back_from = self.back_from.clone().filter(step);
        Terms {
            may_follow: edges.may_follow,
            installed: targets,
            back_from,
            skew,
            expired: edges.expired,
            platforms: edges.platforms,
            kubelet: edges.kubelet,
            containerd: edges.containerd,
            canary: edges.canary,
            build: edges.build,
            refused_builds: installed.refused_builds(&self.profile, payload),
            paths,
        }
    }
}

/// Why a payload's kubelet does not suit the present API servers. `None`: it does, or one of them is unknown.
fn skew(edges: &Edges, servers: Option<ApiServers>) -> Option<String> {
    let (kubelet, servers) = edges.kubelet.zip(servers)?;
    let fits = check_skew(kubelet, servers.oldest, servers.newest);
    fits.err().map(|why| why.to_string())
}

/// Installed payloads between each payload that may not come to this one directly, and this one. Each can be installed now,
/// wherever this one can: with the profile, on its platforms and Windows builds. So a path that exists for some hosts only is
/// not among them. The search is breadth first, so that each path
/// is a shortest one.
#[must_use]
pub fn paths(
    payload: &str,
    may_follow: &[String],
    (installed, profile): (&impl Installed, &str),
    servers: Option<ApiServers>,
) -> BTreeMap<String, Vec<String>> {
    let platforms = installed.edges(payload).map(|it| it.platforms);
    let platforms = platforms.unwrap_or_default();
    let refused = installed.refused_builds(profile, payload);
    let suits = |version: &str, edges: &Edges| {
        let everywhere = edges.platforms.is_empty();
        let on_these = platforms.iter().all(|it| edges.platforms.contains(it));
        let more = installed.refused_builds(profile, version);
        edges.expired.is_none()
            && skew(edges, servers).is_none()
            && (everywhere || (!platforms.is_empty() && on_these))
            && more.keys().all(|build| refused.contains_key(build))
    };
    let mut paths = BTreeMap::new();
    let direct = may_follow.iter().cloned();
    let mut seen: BTreeSet<String> = direct.clone().chain([payload.to_owned()]).collect();
    let mut next: VecDeque<(String, Vec<String>)> = direct.map(|it| (it, Vec::new())).collect();
    while let Some((version, after)) = next.pop_front() {
        let edges = installed.edges(&version);
        let Some(edges) = edges.filter(|it| suits(&version, it)) else {
            continue;
        };
        let path = [vec![version], after].concat();
        for from in edges.may_follow {
            if paths.len() == PATHS_MAX {
                return paths;
            }
            if seen.insert(from.clone()) {
                paths.insert(from.clone(), path.clone());
                next.push_back((from, path.clone()));
            }
        }
    }
    paths
}

/// Strategy of the spec.
fn settings(spec: &WindowsPoolSpec) -> Result<PoolSettings, PoolError> {
    let StrategySpec {
        r#type,
        max_unavailable,
        max_repairs,
        repair_after,
    } = &spec.strategy;
    let DrainSpec {
        timeout,
        after_timeout,
    } = &spec.drain;
    let repairs = u32::try_from(*max_repairs).ok();
    let repairs = repairs.filter(|count| u64::from(*count) <= MACHINES_MAX);
    let bad_repairs = || {
        let problem = format!("must be a number from 0 to {MACHINES_MAX}");
        PoolError::new("spec.strategy.maxRepairs", problem)
    };
    let drain_timeout_ms = time("spec.drain.timeout", timeout, DRAIN_MAX_S)?;
    let after_timeout = match after_timeout {
        AfterTimeoutSpec::Wait => AfterTimeout::Wait,
        AfterTimeoutSpec::Abort => AfterTimeout::Abort,
        AfterTimeoutSpec::Force => AfterTimeout::Force,
    };
    if drain_timeout_ms == 0 && after_timeout != AfterTimeout::Wait {
        let problem = "a drain without a timeout (0s) has no afterTimeout but Wait";
        return Err(PoolError::new("spec.drain", problem));
    }
    Ok(PoolSettings {
        strategy: match r#type {
            StrategyType::Recreate => Strategy::Recreate,
            StrategyType::InPlace => Strategy::InPlace,
        },
        max_unavailable: max_unavailable_of(max_unavailable)?,
        max_repairs: Some(repairs.ok_or_else(bad_repairs)?),
        repair_after_ms: Some(time("spec.strategy.repairAfter", repair_after, DAY_S)?),
        paused: spec.paused,
        approval: match spec.approval {
            ApprovalSpec::Automatic => Approval::Automatic,
            ApprovalSpec::Manual => Approval::Manual,
        },
        drain_timeout_ms,
        after_timeout,
        soak_ms: time("spec.soak", &spec.soak, DAY_S)?,
        verify: spec.verify_joined,
        holds_live: true,
        node_names: spec.node_names.as_deref().map(pattern).transpose()?,
        ..PoolSettings::default()
    })
}

/// A name that may be part of a path or a label: letters, digits, `.`, `-`, `_`, `+`.
fn name(key: &str, value: &str) -> Result<String, PoolError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_+".contains(c);
    let good = value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && value.len() <= NAME_BYTES_MAX
        && value.chars().all(fits);
    if good {
        Ok(value.to_owned())
    } else {
        let problem = "must be a name: letters, digits, . - _ +";
        Err(PoolError::new(key, problem))
    }
}

/// Names of ConfigMaps, each once.
fn check_layers(names: &[String]) -> Result<(), PoolError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = |name: &String| {
        name.starts_with(plain)
            && name.ends_with(plain)
            && name.len() <= MAP_NAME_BYTES_MAX
            && name.chars().all(|c| plain(c) || ".-".contains(c))
    };
    let twice = |(n, name): (usize, &String)| names[..n].contains(name);
    let problem = if names.len() > LAYERS_MAX {
        format!("must be at most {LAYERS_MAX} names")
    } else if !names.iter().all(fits) {
        "must be names of ConfigMaps: lower-case letters, digits, - and .".to_owned()
    } else if names.iter().enumerate().any(twice) {
        "must name each ConfigMap once".to_owned()
    } else {
        return Ok(());
    };
    Err(PoolError::new("spec.layers", problem))
}

/// A pattern of Node names: it begins with a letter or digit, and has at most one `*`.
fn pattern(value: &str) -> Result<String, PoolError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let good = value.starts_with(plain)
        && value.len() <= PATTERN_BYTES_MAX
        && value.chars().all(|c| plain(c) || ".-*".contains(c))
        && value.matches('*').count() <= 1;
    if good {
        Ok(value.to_owned())
    } else {
        let problem = "must be a pattern as win-*: a letter or digit first; lower-case letters, digits, - and . ; at most \
                       one *";
        Err(PoolError::new("spec.nodeNames", problem))
    }
}

/// A time as `1h30m` or `45s`, in milliseconds; at most so many seconds.
fn time(key: &str, value: &str, most_s: u64) -> Result<u64, PoolError> {
    let seconds = seconds(value).filter(|seconds| *seconds <= most_s);
    seconds.map(|seconds| seconds * 1_000).ok_or_else(|| {
        let most = most_s / 3_600;
        let problem = format!("must be a time as 30s, 10m or 1h30m, at most {most}h");
        PoolError::new(key, problem)
    })
}

/// `1h30m` in seconds: each unit at most once, the longest first.
fn seconds(value: &str) -> Option<u64> {
    let mut rest = value;
    let mut sum = 0_u64;
    for (unit, worth) in [('h', 3_600), ('m', 60), ('s', 1)] {
        let Some((number, after)) = rest.split_once(unit) else {
            continue;
        };
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let number: u64 = number.parse().ok().filter(|_| digits)?;
        sum = sum.checked_add(number.checked_mul(worth)?)?;
        rest = after;
    }
    (rest.is_empty() && !value.is_empty()).then_some(sum)
}

fn max_unavailable_of(value: &Value) -> Result<MaxUnavailable, PoolError> {
    let parsed = match value {
        Value::String(text) => text
            .strip_suffix('%')
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|percent| percent.parse().ok())
            .filter(|percent| (1..=100).contains(percent))
            .map(MaxUnavailable::Percent),
        other => other
            .as_u64()
            .filter(|count| (1..=MACHINES_MAX).contains(count))
            .and_then(|count| u32::try_from(count).ok())
            .map(MaxUnavailable::Count),
    };
    let problem = "must be a number from 1, or 1% to 100%";
    parsed.ok_or_else(|| PoolError::new("spec.strategy.maxUnavailable", problem))
}

#[cfg(test)]
mod tests;
