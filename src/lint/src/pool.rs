//! Rules for WindowsPools: the schema of the cluster's definition, and what it cannot say.

use crate::{
    common::{Site, close, nearest, seconds},
    documents::Object,
    finding::Finding,
};
use dormer_profile::{
    suggestion::question,
    yaml_tree::{Key, Node, Value},
};
use serde_json::Value as Json;
use std::sync::LazyLock;

/// The definitions as they are applied.
const DEFINITIONS: &str = include_str!("../../../deploy/crd.yaml");
/// Version of a WindowsPool, and the one before it.
const CURRENT: &str = "dormer.io/v1beta1";
const EARLIER: &str = "dormer.io/v1alpha1";
/// Fields of an object.
const ROOT: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
/// Name of the one pool.
const NAME: &str = "windows";

/// Schema of a WindowsPool's current version.
static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
    let all = dormer_profile::yaml::documents(DEFINITIONS).unwrap_or_default();
    let pool = all
        .iter()
        .find(|it| it["spec"]["names"]["kind"] == "WindowsPool");
    let versions = pool
        .and_then(|it| it["spec"]["versions"].as_array())
        .cloned()
        .unwrap_or_default();
    let current = versions.into_iter().find(|it| it["name"] == "v1beta1");
    current.map_or(Json::Null, |it| it["schema"]["openAPIV3Schema"].clone())
});

pub(crate) fn check(object: &Object<'_>, _: &Site<'_>, found: &mut Vec<Finding>) {
    let root = &object.root;
    if object.api_version != CURRENT {
        let place = root
            .get("apiVersion")
            .map_or(root.position, |it| it.position);
        let (rule, says) = match object.api_version.as_str() {
            EARLIER => ("pool-version", "an earlier version"),
            other if other.starts_with("dormer.io/") => ("pool-api", "no version of WindowsPool"),
            _ => ("pool-api", "not dormer's API"),
        };
        let message = format!("`{}` is {says}", object.api_version);
        // What else is wrong would be found only after that is mended.
        found.push(Finding::new(rule, place, message).replace(place, CURRENT));
    }
    for (key, _) in root.entries() {
        if !ROOT.contains(&key.name.as_str()) {
            found.push(unknown(key, "the pool", &ROOT));
        }
    }
    if let Some(name) = root.at(&["metadata", "name"])
        && name.text() != Some(NAME)
    {
        let is = name.text().unwrap_or_default();
        let finding = Finding::new(
            "pool-name",
            name.position,
            format!("the pool is named `{is}`"),
        );
        found.push(finding.replace(name.position, NAME));
    }
    let Some(spec) = root.get("spec") else {
        let place = nearest(root, &["metadata"]);
        found.push(
            Finding::new("pool-field", place, "the pool has no `spec`")
                .mend("write `spec: {}` for the defaults"),
        );
        return;
    };
    walk(spec, &SCHEMA["properties"]["spec"], "spec", found);
    drain(spec, found);
}

fn walk(node: &Node, schema: &Json, path: &str, found: &mut Vec<Finding>) {
    let bad = |message: String| Finding::new("pool-value", node.position, message);
    let text = node.text().unwrap_or_default();
    if let Some(known) = schema["properties"].as_object() {
        if !matches!(node.value, Value::Map(_)) {
            found.push(bad(format!("`{path}` has fields, and no value of its own")));
        }
        for (key, value) in node.entries() {
            match known.get(&key.name) {
                Some(schema) => walk(value, schema, &format!("{path}.{}", key.name), found),
                None => {
                    let known: Vec<&str> = known.keys().map(String::as_str).collect();
                    found.push(unknown(key, &format!("`{path}`"), &known));
                }
            }
        }
        return;
    }
    if let Some(all) = schema["enum"].as_array() {
        let all: Vec<&str> = all.iter().filter_map(Json::as_str).collect();
        if !all.contains(&text) {
            let right = all.iter().find(|it| it.eq_ignore_ascii_case(text));
            let meant = question(text, all.iter().copied());
            let finding = bad(format!("`{path}` is `{text}`"))
                .mend(format!("take one of {}{meant}", all.join(", ")));
            found.push(match right {
                Some(right) => finding.replace(node.position, *right),
                None => finding,
            });
        }
        return;
    }
    if let Some(items) = schema.get("items") {
        match &node.value {
            Value::List(all) => all.iter().for_each(|it| walk(it, items, path, found)),
            Value::Null => {}
            _ => found.push(bad(format!("`{path}` is no list")).mend("write a list, as [a, b]")),
        }
        return;
    }
    let is = match schema["type"].as_str() {
        Some("boolean") => matches!(node.value, Value::Bool(_)),
        Some("integer") => node.number().is_some_and(|it| it >= 0),
        Some("string") => matches!(node.value, Value::Text(_)),
        _ => true,
    };
    let rule = schema["x-kubernetes-validations"][0]["message"].as_str();
    if !is {
        let wanted = schema["type"].as_str().unwrap_or_default();
        found.push(
            bad(format!("`{path}` is no {wanted}"))
                .mend(format!("write a {wanted}, with no quotes if it is no text")),
        );
    } else if let Some(rule) = rule
        && !fits(rule, node)
    {
        found.push(bad(format!("`{path}` is `{text}`")).mend(rule.to_owned()));
    }
}

/// Finding about a field that is not among the `known` ones of `whole`: the near one, or its place elsewhere.
fn unknown(key: &Key, whole: &str, known: &[&str]) -> Finding {
    let name = key.name.as_str();
    let finding = Finding::new(
        "pool-field",
        key.position,
        format!("{whole} has no field `{name}`"),
    );
    let near = known
        .iter()
        .find(|it| it.eq_ignore_ascii_case(name) || close(it, name));
    let elsewhere = |is: &dyn Fn(&str) -> bool| path_of(is, "spec", &SCHEMA["properties"]["spec"]);
    let called_so = || elsewhere(&|it| it.eq_ignore_ascii_case(name));
    let close_to_it = || elsewhere(&|it| close(it, name));
    if let Some(near) = near {
        finding
            .mend(format!("write `{near}`"))
            .replace(key.position, *near)
    } else if let Some(path) = called_so() {
        finding.mend(format!("write it as `{path}`"))
    } else if let Some(path) = close_to_it() {
        finding.mend(format!("did you mean `{path}`?"))
    } else {
        finding.mend(format!("take one of {}", known.join(", ")))
    }
}

/// Path of the first field below `path` whose name `is` wanted, the shallowest first.
fn path_of(is: &dyn Fn(&str) -> bool, path: &str, schema: &Json) -> Option<String> {
    let fields = schema["properties"].as_object()?;
    if let Some((known, _)) = fields.iter().find(|(it, _)| is(it)) {
        return Some(format!("{path}.{known}"));
    }
    let mut below = fields.iter();
    below.find_map(|(field, schema)| path_of(is, &format!("{path}.{field}"), schema))
}

/// Whether a value keeps one of the definition's rules, by its message.
fn fits(rule: &str, node: &Node) -> bool {
    let text = node.text().unwrap_or_default();
    if rule.contains("must be a time") {
        let plain = text
            .chars()
            .all(|c| c.is_ascii_digit() || "hms".contains(c));
        let most = if rule.contains("720h") {
            720 * 3_600
        } else {
            24 * 3_600
        };
        return plain
            && text.ends_with(['h', 'm', 's'])
            && seconds(text).is_some_and(|it| it <= most);
    }
    if rule.contains("1% to 100%") {
        let share = text.strip_suffix('%').and_then(|it| it.parse::<u32>().ok());
        let number = node.number().is_some_and(|it| (1..=5_000).contains(&it));
        return number || share.is_some_and(|it| (1..=100).contains(&it));
    }
    if rule.contains("name of a ConfigMap") {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        return text.chars().all(|c| plain(c) || ".-".contains(c))
            && text.starts_with(plain)
            && text.ends_with(plain);
    }
    if rule.contains("letters, digits, . - _ +") {
        let letters = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        return text.chars().all(letters) && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    }
    true
}

fn drain(spec: &Node, found: &mut Vec<Finding>) {
    let endless = spec
        .at(&["drain", "timeout"])
        .and_then(Node::text)
        .and_then(seconds)
        == Some(0);
    let after = spec.at(&["drain", "afterTimeout"]);
    if let Some(after) = after.filter(|it| endless && it.text() != Some("Wait")) {
        let is = after.text().unwrap_or_default();
        let message = format!("`afterTimeout` is `{is}`, and a drain of `0s` has no end");
        found.push(
            Finding::new("pool-value", after.position, message)
                .mend("write `afterTimeout: Wait`, or give the drain a timeout"),
        );
    }
}
