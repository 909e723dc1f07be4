//! A pool's settings: the flat keys of its ConfigMap, and what is installed to meet them.

use dormer_profile::{cluster_config::ClusterSnapshot, payload::check_skew};
use dormer_proto::pool::{
    AfterTimeout, Approval, Desired, MaxUnavailable, PoolSettings, Strategy, Terms,
};
use std::collections::BTreeMap;
use tokio::sync::watch;

/// The profile of a pool that names none.
pub const DEFAULT_PROFILE: &str = "openshift";
/// The payload of a pool that names none: the newest one that the catalog has.
pub const INSTALLED: &str = "installed";
/// The key that names the payload from which a person goes back to an earlier one.
pub const BACK_FROM: &str = "rollbackFrom";
/// Longest name of a profile or payload, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Most Windows builds that one pool's settings tell apart.
pub const BUILDS_MAX: usize = 32;

/// The name of the ConfigMap that holds the settings of `pool`.
#[must_use]
pub fn config_map(pool: &str) -> String {
    format!("dormer-pool-{pool}")
}

/// What profiles and payloads there are to be installed on machines.
pub trait Installed: Send + Sync + 'static {
    /// What machines should be, by Windows build (`10.0.20348`; `*` is every other build), with this profile and
    /// payload (`None`: the newest there is).
    /// Answers from memory: it is asked in the middle of the watcher's work.
    ///
    /// # Errors
    /// One sentence for people: there is no such profile or payload.
    fn desired(
        &self,
        profile: &str,
        payload: Option<&str>,
    ) -> Result<BTreeMap<String, Desired>, String>;
    /// Along which edges that payload may come; `None`: it is not installed, or nobody knows.
    /// Answers from memory, too.
    fn edges(&self, payload: &str) -> Option<Edges> {
        let _ = payload;
        None
    }
    /// Takes in what a look at the cluster found; the answer says what is not understood or cannot be followed, a
    /// sentence each.
    fn read_cluster(&self, snapshot: ClusterSnapshot) -> Vec<String> {
        let _ = snapshot;
        Vec::new()
    }
    /// Changes its value whenever [`Installed::desired`] may answer otherwise than before.
    fn changed(&self) -> watch::Receiver<u64>;
}

/// Where a payload may come, as its manifest has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edges {
    /// Versions of the payloads that it may follow.
    pub may_follow: Vec<String>,
    /// Minor version of its kubelet.
    pub kubelet: Option<u32>,
}

/// Minor versions of the API servers that answered lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiServers {
    /// The oldest.
    pub oldest: u32,
    /// The newest.
    pub newest: u32,
}

/// A key of the ConfigMap that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct PoolError {
    /// Which key.
    pub key: String,
    /// What is wrong with it, for people.
    pub problem: String,
}

/// A pool's settings as people wrote them: what is desired is not yet looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// The name of a profile.
    pub profile: String,
    /// The version of a payload; `None`: the newest that is installed.
    pub payload: Option<String>,
    /// The version of the payload from which a person goes back to that one.
    pub back_from: Option<String>,
    rest: PoolSettings,
}

impl PoolSpec {
    /// Reads the settings of `pool`; keys that are absent keep their defaults.
    ///
    /// # Errors
    /// The first key, in alphabetical order, that is unknown or has a bad value. Nothing is accepted in part.
    pub fn parse(pool: &str, data: &BTreeMap<String, String>) -> Result<Self, PoolError> {
        let rest = PoolSettings {
            pool: pool.to_owned(),
            ..PoolSettings::default()
        };
        let mut spec = Self {
            profile: DEFAULT_PROFILE.to_owned(),
            payload: None,
            back_from: None,
            rest,
        };
        for (key, value) in data {
            spec.set(key, value.trim()).map_err(|problem| PoolError {
                key: key.clone(),
                problem,
            })?;
        }
        Ok(spec)
    }

    /// The settings, with what machines should be by what is installed now.
    ///
    /// # Errors
    /// There is no such profile or payload; the error's key is the one that names it.
    pub fn resolve(
        &self,
        installed: &impl Installed,
        servers: Option<ApiServers>,
    ) -> Result<PoolSettings, PoolError> {
        let refused = |problem: String| {
            let key = if self.payload.is_some() {
                "payload"
            } else {
                "profile"
            };
            PoolError {
                key: key.to_owned(),
                problem,
            }
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
        let at_hand = edges
            .may_follow
            .iter()
            .filter(|version| installed.edges(version).is_some());
        let at_hand = at_hand.cloned().collect();
        let skew = edges.kubelet.zip(servers).and_then(|(kubelet, servers)| {
            check_skew(kubelet, servers.oldest, servers.newest)
                .err()
                .map(|why| why.to_string())
        });
        // Back along an edge only; a word that an earlier step back left there means nothing any more.
        let step = |from: &String| {
            installed
                .edges(from)
                .is_some_and(|left| left.may_follow.iter().any(|v| v == payload))
        };
        let back_from = self.back_from.clone().filter(step);
        Terms {
            may_follow: edges.may_follow,
            at_hand,
            back_from,
            skew,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let settings = &mut self.rest;
        match key {
            "profile" => self.profile = name(value)?,
            "payload" if value == INSTALLED => self.payload = None,
            "payload" => self.payload = Some(name(value)?),
            BACK_FROM => self.back_from = Some(name(value)?),
            "strategy" => {
                let words = [
                    ("recreate", Strategy::Recreate),
                    ("in-place", Strategy::InPlace),
                ];
                settings.strategy = word(value, &words)?;
            }
            "maxUnavailable" => settings.max_unavailable = max_unavailable(value)?,
            "paused" => settings.paused = word(value, &[("true", true), ("false", false)])?,
            "approval" => {
                let words = [
                    ("automatic", Approval::Automatic),
                    ("manual", Approval::Manual),
                ];
                settings.approval = word(value, &words)?;
            }
            "drainTimeoutSeconds" => settings.drain_timeout_ms = seconds(value)?,
            "afterTimeout" => {
                let words = [
                    ("wait", AfterTimeout::Wait),
                    ("abort", AfterTimeout::Abort),
                    ("force", AfterTimeout::Force),
                ];
                settings.after_timeout = word(value, &words)?;
            }
            "soakSeconds" => settings.soak_ms = seconds(value)?,
            _ => return Err("there is no such setting".to_owned()),
        }
        Ok(())
    }
}

/// A name may stand in a path or a label: letters, digits, `.`, `-`, `_`, `+`.
fn name(value: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_+".contains(c);
    let good = value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && value.len() <= NAME_BYTES_MAX
        && value.chars().all(fits);
    if good {
        Ok(value.to_owned())
    } else {
        Err("must be a name: letters, digits, . - _ +".into())
    }
}

fn word<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(name, _)| *name == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
        format!("must be one of {}", names.join(", "))
    })
}

fn seconds(value: &str) -> Result<u64, String> {
    let ms = value
        .parse::<u64>()
        .ok()
        .and_then(|seconds| seconds.checked_mul(1_000));
    ms.ok_or_else(|| "must be a whole number of seconds".to_owned())
}

fn max_unavailable(value: &str) -> Result<MaxUnavailable, String> {
    let parsed = match value.strip_suffix('%') {
        Some(percent) => percent
            .parse()
            .ok()
            .filter(|percent| (1..=100).contains(percent))
            .map(MaxUnavailable::Percent),
        None => value
            .parse()
            .ok()
            .filter(|count| *count >= 1)
            .map(MaxUnavailable::Count),
    };
    parsed.ok_or_else(|| "must be a number from 1, or 1% to 100%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Newest(watch::Sender<u64>);

    impl Installed for Newest {
        fn desired(
            &self,
            profile: &str,
            payload: Option<&str>,
        ) -> Result<BTreeMap<String, Desired>, String> {
            let payload = payload.unwrap_or("p2").to_owned();
            if payload != "p1" && payload != "p2" {
                return Err(format!("there is no payload {payload}"));
            }
            let version = format!("{profile}-{payload}");
            Ok(BTreeMap::from([(
                "*".to_owned(),
                Desired { version, payload },
            )]))
        }

        fn edges(&self, payload: &str) -> Option<Edges> {
            let may_follow = match payload {
                "p1" => vec!["p0".to_owned()],
                "p2" => vec!["p1".to_owned()],
                _ => return None,
            };
            Some(Edges {
                may_follow,
                kubelet: Some(34),
            })
        }

        fn changed(&self) -> watch::Receiver<u64> {
            self.0.subscribe()
        }
    }

    fn terms(data: &[(&str, &str)], servers: Option<ApiServers>) -> Result<Terms, PoolError> {
        let data = data
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let settings =
            PoolSpec::parse("windows", &data)?.resolve(&Newest(watch::Sender::new(0)), servers)?;
        Ok(settings.terms.into_values().next().unwrap_or_default())
    }

    #[test]
    fn a_payload_comes_with_its_terms() {
        let plain = terms(&[], None).expect("accepted");
        assert_eq!(
            (plain.may_follow, plain.at_hand),
            (vec!["p1".into()], vec!["p1".into()])
        );
        assert_eq!((plain.back_from, plain.skew), (None, None));
        let older = terms(&[("payload", "p1")], None).expect("accepted");
        assert!(older.at_hand.is_empty(), "p0 is not installed");
        let back = [("payload", "p1"), (BACK_FROM, "p2")];
        assert_eq!(
            terms(&back, None).expect("accepted").back_from.as_deref(),
            Some("p2")
        );
        let forward = [("payload", "p2"), (BACK_FROM, "p1")];
        assert_eq!(
            terms(&forward, None).expect("accepted").back_from,
            None,
            "no step back"
        );
        let gone = terms(&[("payload", "p1"), (BACK_FROM, "p9")], None).expect("accepted");
        assert_eq!(gone.back_from, None, "what is not installed proves no edge");
    }

    #[test]
    fn a_kubelet_has_to_fit_the_oldest_and_the_newest_api_server() {
        let skew = |oldest, newest| {
            terms(&[], Some(ApiServers { oldest, newest }))
                .expect("accepted")
                .skew
        };
        assert_eq!(skew(34, 34), None);
        assert_eq!(skew(34, 37), None);
        assert!(
            skew(33, 34)
                .expect("too new")
                .contains("newer than the oldest API server, 1.33")
        );
        assert!(
            skew(38, 38)
                .expect("too old")
                .contains("older than the API server, 1.38")
        );
    }

    fn one(key: &str, value: &str) -> Result<PoolSettings, PoolError> {
        let spec = PoolSpec::parse(
            "windows",
            &BTreeMap::from([(key.to_owned(), value.to_owned())]),
        )?;
        spec.resolve(&Newest(watch::Sender::new(0)), None)
    }

    fn any(settings: &PoolSettings) -> &str {
        &settings
            .desired_for("10.0.20348")
            .expect("for every build")
            .version
    }

    #[test]
    fn no_keys_are_the_defaults_with_the_newest_payload() {
        let spec = PoolSpec::parse("windows", &BTreeMap::new()).expect("accepted");
        let settings = spec
            .resolve(&Newest(watch::Sender::new(0)), None)
            .expect("settled");
        assert_eq!(any(&settings), "openshift-p2");
        let bare = PoolSettings {
            desired: BTreeMap::new(),
            terms: BTreeMap::new(),
            ..settings
        };
        assert_eq!(bare, PoolSettings::default());
    }

    #[test]
    fn good_values_are_taken() {
        let settings = one("maxUnavailable", "10%").expect("accepted");
        assert_eq!(settings.max_unavailable, MaxUnavailable::Percent(10));
        assert_eq!(
            one("strategy", "in-place").expect("accepted").strategy,
            Strategy::InPlace
        );
        assert_eq!(one("soakSeconds", "5\n").expect("accepted").soak_ms, 5_000);
        assert_eq!(
            any(&one("payload", "p1").expect("accepted")),
            "openshift-p1"
        );
        assert_eq!(
            any(&one("payload", "installed").expect("accepted")),
            "openshift-p2"
        );
        assert_eq!(any(&one("profile", "mine").expect("accepted")), "mine-p2");
    }

    #[test]
    fn bad_values_name_their_key() {
        let table = [
            ("maxUnavailable", "0"),
            ("maxUnavailable", "0%"),
            ("maxUnavailable", "101%"),
            ("strategy", "Recreate"),
            ("paused", "yes"),
            ("drainTimeoutSeconds", "-1"),
            ("drainTimeoutSeconds", "18446744073709551615"),
            ("profile", ""),
            ("profile", "../etc"),
            ("payload", "p3"),
            ("payload", "two words"),
            ("maxunavailable", "1"),
        ];
        for (key, value) in table {
            assert_eq!(one(key, value).expect_err(value).key, key);
        }
    }
}
