//! Layers: stacked profiles, each a JSON merge patch over those below.
//!
//! Objects merge by key, lists and scalars replace, `null` removes (RFC 7386).

use serde_json::Value;

use crate::check::check;
use crate::problem::Problems;
use crate::profile::Profile;
use crate::yaml::{self, YamlError};

/// Largest layer, in bytes.
pub const LAYER_BYTES_MAX: usize = 1 << 20;

/// Layer as a person wrote it.
#[derive(Debug, Clone, PartialEq)]
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
    let mut whole = Value::Object(serde_json::Map::new());
    for layer in layers {
        merge(&mut whole, &layer.value);
    }
    let profile: Profile =
        serde_json::from_value(whole).map_err(|e| Problems::one("layers", e.to_string()))?;
    check(&profile)?;
    Ok(profile)
}

fn merge(below: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *below = patch.clone();
        return;
    };
    if !below.is_object() {
        *below = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(below) = below {
        for (key, value) in patch {
            if value.is_null() {
                below.remove(key);
            } else {
                merge(below.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
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
}
