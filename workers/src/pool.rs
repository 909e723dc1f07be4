//! A pool's settings out of the flat keys of its ConfigMap.

use dormer_proto::pool::{AfterTimeout, Approval, Desired, MaxUnavailable, PoolSettings, Strategy};
use std::collections::BTreeMap;

/// The prefix of the keys that say what machines should be: `desired.<build>`.
/// Every other build is `desired.any`, since a ConfigMap's key may not hold `*`.
pub const DESIRED_PREFIX: &str = "desired.";

/// A key of the ConfigMap that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct PoolError {
    /// Which key.
    pub key: String,
    /// What is wrong with it, for people.
    pub problem: String,
}

/// Reads the settings of `pool`; keys that are absent keep their defaults.
///
/// # Errors
/// The first key, in alphabetical order, that is unknown or has a bad value. Nothing is accepted in part.
pub fn parse(pool: &str, data: &BTreeMap<String, String>) -> Result<PoolSettings, PoolError> {
    let mut settings = PoolSettings { pool: pool.to_owned(), ..PoolSettings::default() };
    for (key, value) in data {
        set(&mut settings, key, value.trim())
            .map_err(|problem| PoolError { key: key.clone(), problem })?;
    }
    Ok(settings)
}

fn set(settings: &mut PoolSettings, key: &str, value: &str) -> Result<(), String> {
    match key {
        "strategy" => {
            let words = [("recreate", Strategy::Recreate), ("in-place", Strategy::InPlace)];
            settings.strategy = word(value, &words)?;
        }
        "maxUnavailable" => settings.max_unavailable = max_unavailable(value)?,
        "paused" => settings.paused = word(value, &[("true", true), ("false", false)])?,
        "approval" => {
            let words = [("automatic", Approval::Automatic), ("manual", Approval::Manual)];
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
        _ => {
            let build = key.strip_prefix(DESIRED_PREFIX).filter(|build| !build.is_empty());
            let build = build.ok_or("there is no such setting")?;
            let build = if build == "any" { "*" } else { build };
            settings.desired.insert(build.to_owned(), desired(value)?);
        }
    }
    Ok(())
}

fn word<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(name, _)| *name == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
        format!("must be one of {}", names.join(", "))
    })
}

fn seconds(value: &str) -> Result<u64, String> {
    let ms = value.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1_000));
    ms.ok_or_else(|| "must be a whole number of seconds".to_owned())
}

fn max_unavailable(value: &str) -> Result<MaxUnavailable, String> {
    let parsed = match value.strip_suffix('%') {
        Some(percent) => percent
            .parse()
            .ok()
            .filter(|percent| (1..=100).contains(percent))
            .map(MaxUnavailable::Percent),
        None => value.parse().ok().filter(|count| *count >= 1).map(MaxUnavailable::Count),
    };
    parsed.ok_or_else(|| "must be a number from 1, or 1% to 100%".to_owned())
}

/// `<version> <payload>`: two words.
fn desired(value: &str) -> Result<Desired, String> {
    let words: Vec<_> = value.split_whitespace().collect();
    match words[..] {
        [version, payload] => Ok(Desired { version: version.into(), payload: payload.into() }),
        _ => Err("must be a version and a payload's version, with a space between".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> Result<PoolSettings, PoolError> {
        parse("windows", &BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn no_keys_are_the_defaults() {
        assert_eq!(parse("windows", &BTreeMap::new()), Ok(PoolSettings::default()));
    }

    #[test]
    fn good_values_are_taken() {
        let settings = one("maxUnavailable", "10%").expect("accepted");
        assert_eq!(settings.max_unavailable, MaxUnavailable::Percent(10));
        assert_eq!(one("strategy", "in-place").expect("accepted").strategy, Strategy::InPlace);
        assert_eq!(one("soakSeconds", "5\n").expect("accepted").soak_ms, 5_000);
        let settings = one("desired.any", "v1 p1").expect("accepted");
        assert_eq!(settings.desired_for("10.0.20348").expect("any build").payload, "p1");
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
            ("desired.", "v p"),
            ("desired.any", "v"),
            ("maxunavailable", "1"),
        ];
        for (key, value) in table {
            assert_eq!(one(key, value).expect_err(value).key, key);
        }
    }
}
