//! Feature gates in a configuration and on a command line: each is one that the release has, with a value that it takes.

use serde_json::Value;

use super::{
    known::{GATES, Known, NEWEST},
    range,
};
use crate::{release::Release, suggestion::question};

/// Gates of `featureGates` with their values.
pub(super) fn of_config(config: &Value) -> Vec<(String, Option<bool>)> {
    let object = config.get("featureGates").and_then(Value::as_object);
    let entries = object.into_iter().flatten();
    // What is neither true nor false is said of its type.
    let gates = entries.filter(|(_, value)| value.is_boolean());
    gates
        .map(|(name, value)| (name.clone(), value.as_bool()))
        .collect()
}

/// Gates of `--feature-gates=A=true,B=false` (k8s.io/component-base v0.37.2 `cli/flag/map_string_bool.go`).
pub(super) fn of_flag(text: &str) -> Vec<(String, Option<bool>)> {
    let gates = text.split(',').filter(|gate| !gate.trim().is_empty());
    let gate = |gate: &str| {
        let (name, value) = gate.split_once('=').unwrap_or((gate, ""));
        let value = match value.trim() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
            _ => None,
        };
        (name.trim().to_owned(), value)
    };
    gates.map(gate).collect()
}

/// Reason against a gate. `of_row`: a row of the settings tells the releases of this gate.
pub(super) fn wrong(
    gate: &(String, Option<bool>),
    program: &str,
    release: Release,
    of_row: bool,
) -> Option<String> {
    let (name, value) = gate;
    let Some(value) = value else {
        return Some(format!("`featureGates/{name}` is neither true nor false"));
    };
    if of_row {
        return None;
    }
    match GATES.of(name, release) {
        Known::As("free") => None,
        Known::As(locked) => (value.to_string() != locked).then(|| {
            let since = GATES.since(name, release);
            let since = since.map_or_else(String::new, |it| format!(" from {it}"));
            format!(
                "`featureGates/{name}` is locked to {locked}{since}, and the payload has {release}: another value ends \
                 {program}"
            )
        }),
        Known::Elsewhere(first, last) => Some(format!(
            "`featureGates/{name}` is a gate {}, and the payload has {release}: a gate that is not known ends {program}",
            range(first, last)
        )),
        Known::Never if release > NEWEST => None,
        Known::Never => Some(format!(
            "`featureGates/{name}` is no feature gate, and {program} ends with one that is not known{}",
            question(name, GATES.names())
        )),
    }
}
