//! Patches: merge, JSON, strategic, and server-side apply in small.

use serde_json::{Map, Value};

/// The four ways to patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 7386.
    Merge,
    /// RFC 6902.
    Json,
    /// A merge that knows a few lists by their keys.
    Strategic,
    /// Server-side apply; see [`apply`].
    Apply,
}

impl PatchKind {
    /// By the request's content type.
    pub fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => Some(Self::Merge),
            "application/json-patch+json" => Some(Self::Json),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => Some(Self::Apply),
            _ => None,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// The key that distinguishes a list's items, for the lists that matter.
fn list_key(field: &str) -> Option<&'static [&'static str]> {
    Some(match field {
        "conditions" | "addresses" => &["type"],
        "containers" | "initContainers" | "volumes" | "env" | "preDrain" | "preTerminate" => {
            &["name"]
        }
        "taints" => &["key", "effect"],
        "ownerReferences" => &["uid"],
        "ports" => &["containerPort"],
        "volumeMounts" => &["mountPath"],
        _ => return None,
    })
}

/// Applies a merge patch (RFC 7386).
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    let object = as_object(target);
    for (name, value) in fields {
        if value.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Applies a strategic merge patch: like a merge, but lists with a key are merged by it, and
/// `$patch` and `$deleteFromPrimitiveList` are obeyed.
pub fn strategic(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if fields.get("$patch").is_some_and(|p| p == "replace") {
        let kept = fields.iter().filter(|(name, _)| *name != "$patch");
        *target = Value::Object(kept.map(|(n, v)| (n.clone(), v.clone())).collect());
        return;
    }
    let object = as_object(target);
    for (name, value) in fields {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            remove_primitives(object, list, value);
        } else if name.starts_with('$') {
            continue;
        } else if value.is_null() {
            object.remove(name);
        } else if let (Some(keys), Value::Array(items)) = (list_key(name), value) {
            merge_list(
                object.entry(name.clone()).or_insert(Value::Null),
                items,
                keys,
            );
        } else if name == "finalizers" && value.is_array() {
            union(object.entry(name.clone()).or_insert(Value::Null), value);
        } else {
            strategic(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(object) => object,
        _ => unreachable!("made an object just above"),
    }
}

fn as_array(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(array) => array,
        _ => unreachable!("made an array just above"),
    }
}

fn remove_primitives(object: &mut Map<String, Value>, list: &str, gone: &Value) {
    if let Some(Value::Array(items)) = object.get_mut(list) {
        items.retain(|item| !gone.as_array().is_some_and(|gone| gone.contains(item)));
    }
}

fn union(target: &mut Value, more: &Value) {
    let list = as_array(target);
    for item in more.as_array().into_iter().flatten() {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

fn merge_list(target: &mut Value, items: &[Value], keys: &[&str]) {
    let list = as_array(target);
    if items.iter().any(|item| item["$patch"] == "replace") {
        *list = items
            .iter()
            .filter(|i| i["$patch"] != "replace")
            .cloned()
            .collect();
        return;
    }
    for item in items {
        let same = |other: &Value| keys.iter().all(|k| other.get(k) == item.get(k));
        if item["$patch"] == "delete" {
            list.retain(|other| !same(other));
        } else if let Some(there) = list.iter_mut().find(|other| same(other)) {
            strategic(there, item);
        } else {
            list.push(item.clone());
        }
    }
}

/// Server-side apply, in small: what the manager applied before and leaves out now is removed,
/// the rest is merged by keys. Ownership by other managers is neither kept nor checked.
pub fn apply(target: &mut Value, before: &Value, config: &Value) {
    remove_left_out(target, before, config);
    strategic(target, config);
}

fn remove_left_out(target: &mut Value, before: &Value, config: &Value) {
    let (Value::Object(target), Value::Object(before)) = (target, before) else {
        return;
    };
    for (name, was) in before {
        match (config.get(name), target.get_mut(name)) {
            (None, Some(_)) if !matches!(name.as_str(), "apiVersion" | "kind") => {
                target.remove(name);
            }
            (Some(now), Some(there)) => match (list_key(name), was, now) {
                (Some(keys), Value::Array(was), Value::Array(now)) => {
                    let same = |a: &Value, b: &Value| keys.iter().all(|k| a.get(k) == b.get(k));
                    let left_out = |item: &Value| {
                        was.iter().any(|w| same(w, item)) && !now.iter().any(|n| same(n, item))
                    };
                    as_array(there).retain(|item| !left_out(item));
                }
                _ => remove_left_out(there, was, now),
            },
            _ => {}
        }
    }
}

/// Applies a JSON patch (RFC 6902).
///
/// # Errors
/// What operation failed, in words; a failed `test` among them.
pub fn json(target: &mut Value, operations: &Value) -> Result<(), String> {
    let operations = operations
        .as_array()
        .ok_or("a JSON patch is a list of operations")?;
    for operation in operations {
        one(target, operation)?;
    }
    Ok(())
}

fn one(target: &mut Value, operation: &Value) -> Result<(), String> {
    let text = |name: &str| {
        operation[name]
            .as_str()
            .ok_or_else(|| format!("an operation lacks {name:?}"))
    };
    let value = || {
        operation
            .get("value")
            .cloned()
            .ok_or("an operation lacks \"value\"")
    };
    let path = text("path")?;
    match text("op")? {
        "add" => add(target, path, value()?),
        "remove" => remove(target, path).map(drop),
        "replace" => {
            let there = target.pointer_mut(path).ok_or_else(|| missing(path))?;
            *there = value()?;
            Ok(())
        }
        "test" => match target.pointer(path).unwrap_or(&Value::Null) == &value()? {
            true => Ok(()),
            false => Err(format!("testing path {path} failed")),
        },
        "move" => {
            let moved = remove(target, text("from")?)?;
            add(target, path, moved)
        }
        "copy" => {
            let from = text("from")?;
            let copied = target.pointer(from).cloned().ok_or_else(|| missing(from))?;
            add(target, path, copied)
        }
        other => Err(format!("unknown operation {other:?}")),
    }
}

fn missing(path: &str) -> String {
    format!("the path {path} does not exist")
}

fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (parent, last) = path.rsplit_once('/').ok_or_else(|| missing(path))?;
    let last = last.replace("~1", "/").replace("~0", "~");
    let parent = target.pointer_mut(parent).ok_or_else(|| missing(path))?;
    Ok((parent, last))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let (parent, last) = parent(target, path)?;
    match parent {
        Value::Object(object) => {
            object.insert(last, value);
            Ok(())
        }
        Value::Array(list) => {
            let at = if last == "-" {
                Some(list.len())
            } else {
                last.parse().ok()
            };
            let at = at
                .filter(|at| *at <= list.len())
                .ok_or_else(|| missing(path))?;
            list.insert(at, value);
            Ok(())
        }
        _ => Err(missing(path)),
    }
}

fn remove(target: &mut Value, path: &str) -> Result<Value, String> {
    let (parent, last) = parent(target, path)?;
    match parent {
        Value::Object(object) => object.remove(&last).ok_or_else(|| missing(path)),
        Value::Array(list) => {
            let at = last.parse().ok().filter(|at| *at < list.len());
            Ok(list.remove(at.ok_or_else(|| missing(path))?))
        }
        _ => Err(missing(path)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_replaces_lists_and_removes_nulls() {
        let mut target = json!({"a": {"b": 1, "c": [1, 2]}, "d": 4});
        merge(
            &mut target,
            &json!({"a": {"b": null, "c": [3]}, "e": {"f": null, "g": 1}}),
        );
        assert_eq!(target, json!({"a": {"c": [3]}, "d": 4, "e": {"g": 1}}));
    }

    #[test]
    fn a_strategic_patch_merges_lists_by_key() {
        let mut node = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]}});
        let patch = json!({"status": {
            "$setElementOrder/conditions": [{"type": "Ready"}],
            "conditions": [{"type": "Ready", "status": "False"}]}});
        strategic(&mut node, &patch);
        assert_eq!(node["status"]["conditions"][0]["status"], "False");
        assert_eq!(
            node["status"]["conditions"].as_array().map(Vec::len),
            Some(2)
        );
        strategic(
            &mut node,
            &json!({"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}),
        );
        assert_eq!(node["status"]["conditions"][0]["type"], "DiskPressure");
    }

    #[test]
    fn a_json_patch_tests_before_it_changes() {
        let mut target = json!({"metadata": {"annotations": {"a/b": "1"}}, "list": [1, 3]});
        let patch = json!([
            {"op": "test", "path": "/metadata/annotations/a~1b", "value": "1"},
            {"op": "add", "path": "/list/1", "value": 2},
            {"op": "add", "path": "/list/-", "value": 4},
            {"op": "remove", "path": "/metadata/annotations/a~1b"},
        ]);
        json(&mut target, &patch).expect("it fits");
        assert_eq!(
            target,
            json!({"metadata": {"annotations": {}}, "list": [1, 2, 3, 4]})
        );
        let refused = json(
            &mut target,
            &json!([{"op": "test", "path": "/list/0", "value": 9}]),
        );
        assert_eq!(refused, Err("testing path /list/0 failed".to_owned()));
    }

    #[test]
    fn apply_takes_away_what_is_left_out() {
        let mut live = json!({"metadata": {"labels": {"mine": "1", "other": "2"}},
            "spec": {"preDrain": [{"name": "a"}, {"name": "b"}]}});
        let before = json!({"metadata": {"labels": {"mine": "1"}},
            "spec": {"preDrain": [{"name": "a"}]}});
        apply(
            &mut live,
            &before,
            &json!({"metadata": {"labels": {"new": "3"}},
            "spec": {"preDrain": []}}),
        );
        assert_eq!(
            live["metadata"]["labels"],
            json!({"other": "2", "new": "3"})
        );
        assert_eq!(live["spec"]["preDrain"], json!([{"name": "b"}]));
    }
}
