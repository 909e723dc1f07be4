//! Conversion of an earlier build's ConfigMap into a `WindowsPool`.

use super::{
    INSTALLED, PoolError, PoolSpec,
    v1beta1::{AfterTimeoutSpec, ApprovalSpec, StrategyType, WindowsPoolSpec},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The spec that means the same as a ConfigMap's `data`.
///
/// # Errors
/// A key that no build knew, or a value that cannot be: nothing is translated in part.
pub fn spec_of(data: &BTreeMap<String, String>) -> Result<WindowsPoolSpec, PoolError> {
    let mut spec = WindowsPoolSpec::default();
    for (key, value) in data {
        set(&mut spec, key, value.trim()).map_err(|problem| PoolError {
            key: format!("data.{key}"),
            problem,
        })?;
    }
    // That was ignored beside `installed`.
    if spec.payload == INSTALLED || spec.rollback_from.as_ref() == Some(&spec.payload) {
        spec.rollback_from = None;
    }
    // Rules of the API server are checked here as well.
    let json = serde_json::to_value(&spec).unwrap_or_default();
    PoolSpec::read("windows", &json, &Value::Null).map(|_| spec)
}

/// The object for `kubectl apply`.
#[must_use]
pub fn object(namespace: &str, pool: &str, spec: &WindowsPoolSpec) -> Value {
    json!({
        "apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
        "metadata": {"name": pool, "namespace": namespace}, "spec": spec,
    })
}

fn set(spec: &mut WindowsPoolSpec, key: &str, value: &str) -> Result<(), String> {
    match key {
        "profile" => value.clone_into(&mut spec.profile),
        "payload" => value.clone_into(&mut spec.payload),
        "rollbackFrom" => spec.rollback_from = Some(value.to_owned()),
        "strategy" => {
            let words = [
                ("recreate", StrategyType::Recreate),
                ("in-place", StrategyType::InPlace),
            ];
            spec.strategy.r#type = word(value, &words)?;
        }
        "maxUnavailable" => {
            let count = value.parse::<u32>().map(Value::from);
            spec.strategy.max_unavailable = count.unwrap_or_else(|_| value.into());
        }
        "paused" => spec.paused = word(value, &[("true", true), ("false", false)])?,
        "approval" => {
            let words = [
                ("automatic", ApprovalSpec::Automatic),
                ("manual", ApprovalSpec::Manual),
            ];
            spec.approval = word(value, &words)?;
        }
        "drainTimeoutSeconds" => spec.drain.timeout = seconds(value)?,
        "afterTimeout" => {
            let words = [
                ("wait", AfterTimeoutSpec::Wait),
                ("abort", AfterTimeoutSpec::Abort),
                ("force", AfterTimeoutSpec::Force),
            ];
            spec.drain.after_timeout = word(value, &words)?;
        }
        "soakSeconds" => spec.soak = seconds(value)?,
        _ => return Err("no build of dormer knew such a key".to_owned()),
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

/// Whole seconds, as the spec has a time: in the longest unit that divides them.
fn seconds(value: &str) -> Result<String, String> {
    let seconds: u64 = value
        .parse()
        .map_err(|_| "must be a whole number of seconds".to_owned())?;
    Ok(match seconds {
        0 => "0s".to_owned(),
        all if all % 3_600 == 0 => format!("{}h", all / 3_600),
        all if all % 60 == 0 => format!("{}m", all / 60),
        all => format!("{all}s"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &[(&str, &str)]) -> Result<WindowsPoolSpec, PoolError> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        spec_of(&data.iter().map(own).collect())
    }

    #[test]
    fn every_key_has_its_field() {
        let spec = read(&[
            ("profile", "upstream"),
            ("payload", "11.0.0"),
            ("rollbackFrom", "11.1.0"),
            ("strategy", "in-place"),
            ("maxUnavailable", "10%"),
            ("approval", "manual"),
            ("drainTimeoutSeconds", "5400"),
            ("afterTimeout", "force"),
            ("soakSeconds", "5\n"),
            ("paused", "true"),
        ]);
        let expected = json!({
            "profile": "upstream", "payload": "11.0.0", "rollbackFrom": "11.1.0",
            "strategy": {"type": "InPlace", "maxUnavailable": "10%", "maxRepairs": 1, "repairAfter": "10m"},
            "approval": "Manual", "drain": {"timeout": "90m", "afterTimeout": "Force"},
            "soak": "5s", "paused": true, "stop": false, "verifyJoined": true,
            "waitForClusterVersion": true,
        });
        let spec = serde_json::to_value(spec.expect("translated")).expect("JSON");
        assert_eq!(spec, expected);
        assert_eq!(read(&[]).expect("translated"), WindowsPoolSpec::default());
        let two = read(&[("maxUnavailable", "2"), ("rollbackFrom", "11.1.0")]);
        let two = two.expect("translated");
        assert_eq!(two.strategy.max_unavailable, 2);
        assert_eq!(
            two.rollback_from, None,
            "beside `installed` it meant nothing"
        );
    }

    #[test]
    fn what_cannot_be_translated_names_its_key() {
        for (key, value, field) in [
            ("paused", "yes", "data.paused"),
            ("soakSeconds", "-1", "data.soakSeconds"),
            ("maxunavailable", "1", "data.maxunavailable"),
            ("maxUnavailable", "0", "spec.strategy.maxUnavailable"),
            ("payload", "two words", "spec.payload"),
        ] {
            let error = read(&[(key, value)]).expect_err("refused");
            assert_eq!(error.key, field, "{error}");
        }
    }
}
