//! Layers: stacked profiles, each a JSON merge patch over those below.
//!
//! Objects merge by key, lists and scalars replace, `null` removes (RFC 7386). In a `json` file a value can have a
//! condition (`{when: …, value: …}`): there a layer changes the value, and never the condition by accident.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::check::check;
use crate::problem::Problems;
use crate::profile::Profile;
use crate::render::text::is_conditional;
use crate::yaml::{self, YamlError};

/// Largest layer, in bytes.
pub const LAYER_BYTES_MAX: usize = 1 << 20;

/// Layer as a person wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Origin, for messages.
    pub name: String,
    value: Value,
}

impl Layer {
    /// Reads YAML (and therefore JSON). An error has line, column and reason.
    pub fn parse(name: &str, text: &str) -> Result<Self, Problems> {
        if text.len() > LAYER_BYTES_MAX {
            let reason = format!("{} bytes, at most {LAYER_BYTES_MAX}", text.len());
            return Err(Problems::one(name, reason));
        }
        let refused = |e: YamlError| Problems::from_yaml(&e).below(name);
        let _: Profile = yaml::from_str(text).map_err(refused)?;
        let value: Value = yaml::from_str(text).map_err(refused)?;
        Ok(Self {
            name: name.to_owned(),
            value,
        })
    }

    /// Layer that dormer itself generates.
    pub(crate) fn from_value(name: &str, value: Value) -> Self {
        Self {
            name: name.to_owned(),
            value,
        }
    }

    /// Layered profile as a layer, so that more layers can be added.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let value = serde_json::to_value(profile).unwrap_or_default();
        Self {
            name: profile.name.clone(),
            value,
        }
    }

    /// Whether it applies to that profile: a layer with a `name` applies only to the profile of that name.
    #[must_use]
    pub fn fits(&self, profile: &str) -> bool {
        self.value
            .get("name")
            .and_then(Value::as_str)
            .is_none_or(|name| name == profile)
    }
}

/// Merges the layers, the first one lowest, and checks the resulting profile.
///
/// # Errors
/// Problems that [`check`] finds.
pub fn stack(layers: &[Layer]) -> Result<Profile, Problems> {
    let mut whole = Value::Object(Map::new());
    for layer in layers {
        merge(&mut whole, &layer.value, &mut Vec::new());
    }
    let profile: Profile = Problems::typed(whole, "layers")?;
    check(&profile)?;
    Ok(profile)
}

/// Merges a layer into what lies below it. `path` is the way to here.
fn merge<'v>(below: &mut Value, patch: &'v Value, path: &mut Vec<&'v str>) {
    if let [.., "files", _, "json"] = path[..] {
        return merge_json(below, patch);
    }
    let Some(patch) = patch.as_object() else {
        *below = patch.clone();
        return;
    };
    let mut merged = taken(below);
    for (key, value) in patch {
        if value.is_null() {
            merged.remove(key);
        } else {
            path.push(key);
            merge(merged.entry(key).or_insert(Value::Null), value, path);
            path.pop();
        }
    }
    *below = Value::Object(merged);
}

/// The same in a `json` file. An entry with a condition replaces what is below. An entry without one merges into the
/// value below: what the layer names is there always, and the rest under the condition that it has.
fn merge_json(below: &mut Value, patch: &Value) {
    let Some(entries) = patch.as_object() else {
        *below = patch.clone();
        return;
    };
    if is_conditional(patch) {
        *below = Value::Null;
    } else if is_conditional(below) {
        let part = |key: &str| entries.get(key).filter(|_| entries.len() == 1);
        if let Some(value) = part("value") {
            return merge_json(&mut below["value"], value);
        }
        match part("when") {
            Some(Value::Null) => return *below = below["value"].take(),
            Some(when) => return below["when"] = when.clone(),
            None => *below = distributed(&below["when"], &below["value"]),
        }
    }
    let mut merged = taken(below);
    for (key, value) in entries {
        if value.is_null() {
            merged.remove(key);
        } else {
            merge_json(merged.entry(key).or_insert(Value::Null), value);
        }
    }
    *below = Value::Object(merged);
}

/// An object's entries, each under that condition.
fn distributed(when: &Value, value: &Value) -> Value {
    let entries = value.as_object().into_iter().flatten();
    let each = |(key, value): (&String, _)| (key.clone(), json!({"when": when, "value": value}));
    Value::Object(entries.map(each).collect())
}

/// The entries of an object, to be put back. What is no object has none.
fn taken(value: &mut Value) -> Map<String, Value> {
    match value.take() {
        Value::Object(entries) => entries,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "host: {firewall: {a: {port: 1}, b: {port: 2}}}";

    #[test]
    fn a_layer_changes_one_entry_and_removes_another() {
        let base = Layer::parse("base", BASE).expect("a layer");
        let user = Layer::parse("user", "host: {firewall: {a: {port: 9}, b: null}}").expect("one");
        let profile = stack(&[base, user]).expect("a profile");
        assert_eq!(profile.host.firewall.len(), 1);
        assert_eq!(profile.host.firewall["a"].port, 9);
    }

    #[test]
    fn a_layer_with_a_name_is_for_one_profile() {
        let named = Layer::parse("user", "name: openshift").expect("a layer");
        assert!(named.fits("openshift") && !named.fits("upstream"));
        let any = Layer::parse("user", BASE).expect("a layer");
        assert!(any.fits("openshift") && any.fits("upstream"));
    }

    #[test]
    fn more_can_lie_on_a_layered_profile() {
        let below = Layer::of(&crate::builtin::openshift());
        let same = stack(std::slice::from_ref(&below)).expect("a profile");
        assert_eq!(same, crate::builtin::openshift());
        // Its file is removed as well, because the whole profile is checked.
        let none = r"node: {services: {kube-proxy: null}, network: {files: {'C:\k\kube-proxy.conf': null}}}";
        let user = Layer::parse("user", none).expect("one");
        let less = stack(&[below, user]).expect("a profile");
        assert_eq!(less.node.services.len() + 1, same.node.services.len());
    }

    #[test]
    fn a_mistake_in_a_layer_is_reported_with_its_location() {
        let problems = Layer::parse("user", "host:\n  firewal: {}\n").expect_err("refused");
        let text = problems.to_string();
        assert!(
            text.contains("user") && text.contains("line 2") && text.contains("firewal"),
            "{text}"
        );
    }

    /// What a `json` file says after a layer on one with conditions.
    fn layered(below: &str, layer: &str) -> Value {
        let file = |json: &str| format!(r"host: {{files: {{'C:\a': {{json: {json}}}}}}}");
        let one = |name, json| Layer::parse(name, &file(json)).expect("a layer");
        let profile = stack(&[one("base", below), one("user", layer)]).expect("a profile");
        profile.host.files[r"C:\a"].json.clone().expect("JSON")
    }

    #[test]
    fn a_layer_never_joins_its_entries_with_a_condition() {
        const OLD: &str = "{kubelet: '<1.34'}";
        let below = format!("{{g: {{when: {OLD}, value: {{a: 1, b: {{c: 2}}}}}}}}");
        let when = json!({"kubelet": "<1.34"});
        let aws = json!({"platform": ["aws"]});
        let table = [
            // A key more is there always; the others as before.
            (
                "{g: {d: 3}}",
                json!({"g": {"a": {"when": when, "value": 1}, "b": {"when": when, "value": {"c": 2}}, "d": 3}}),
            ),
            ("{g: {b: {c: null}, a: null}}", json!({"g": {"b": {}}})),
            // A condition of its own replaces both.
            (
                "{g: {when: {platform: [aws]}, value: {d: 3, e: null}}}",
                json!({"g": {"when": aws, "value": {"d": 3}}}),
            ),
            // One of the two alone.
            (
                "{g: {value: {d: 3}}}",
                json!({"g": {"when": when, "value": {"a": 1, "b": {"c": 2}, "d": 3}}}),
            ),
            (
                "{g: {when: {platform: [aws]}}}",
                json!({"g": {"when": aws, "value": {"a": 1, "b": {"c": 2}}}}),
            ),
            ("{g: {when: null}}", json!({"g": {"a": 1, "b": {"c": 2}}})),
            ("{g: 4}", json!({"g": 4})),
            ("{g: null}", json!({})),
        ];
        for (layer, wanted) in table {
            assert_eq!(layered(&below, layer), wanted, "{layer}");
        }
        let scalar = format!("{{g: {{when: {OLD}, value: 60s}}}}");
        let replaced = layered(&scalar, "{g: {when: {platform: [aws]}, value: 30s}}");
        assert_eq!(replaced, json!({"g": {"when": aws, "value": "30s"}}));
        assert_eq!(layered(&scalar, "{g: {d: 3}}"), json!({"g": {"d": 3}}));
        // Elsewhere `value` and `when` are names as others are.
        let base = Layer::parse(
            "base",
            "host: {environment: {A: {value: x, when: {platform: [aws]}}}}",
        );
        let user = Layer::parse("user", "host: {environment: {A: {reboot: true}}}");
        let profile = stack(&[base.expect("one"), user.expect("one")]).expect("a profile");
        let kept = &profile.host.environment["A"];
        assert!(kept.reboot && kept.value == "x" && kept.when.platform == ["aws"]);
    }
}
