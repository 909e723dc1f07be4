//! Last edit of a pool's spec, as the API server notes it.

use dormer_proto::{id::Timestamp, pool::PoolEdit};
use kube::api::ObjectMeta;
use serde_json::Value;

/// Longest name of a program or a field that is kept.
const NAME_MAX: usize = 64;
/// Most fields that are kept.
const FIELDS_MAX: usize = 16;

/// Program that wrote the spec last, when, and the fields that it has set (`metadata.managedFields`). `None`: the API
/// server notes none.
pub(crate) fn edited(meta: &ObjectMeta) -> Option<PoolEdit> {
    let all = meta.managed_fields.as_deref().unwrap_or_default();
    let of_spec = all.iter().filter_map(|entry| {
        let spec = entry.fields_v1.as_ref()?.0.get("f:spec")?;
        Some((entry, spec))
    });
    let (newest, spec) = of_spec.max_by_key(|(entry, _)| entry.time.as_ref().map(|time| time.0))?;
    let program = newest.manager.as_deref().unwrap_or("an unnamed program");
    let at = newest.time.as_ref().map(|time| time.0.as_millisecond());
    let mut fields = Vec::new();
    named(spec, "", &mut fields);
    Some(PoolEdit {
        program: short(program),
        at: at.and_then(|at| u64::try_from(at).ok()).map(Timestamp),
        fields,
    })
}

/// Adds the fields below `value`, each with the path that leads to it.
fn named(value: &Value, path: &str, fields: &mut Vec<String>) {
    for (key, below) in value.as_object().into_iter().flatten() {
        let Some(name) = key.strip_prefix("f:") else {
            continue;
        };
        let name = match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        if below.as_object().is_some_and(|it| !it.is_empty()) {
            named(below, &name, fields);
        } else if fields.len() < FIELDS_MAX {
            fields.push(short(&name));
        }
    }
}

fn short(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_program_that_wrote_the_spec_is_named_with_its_fields() {
        let meta = json!({"name": "windows", "managedFields": [
            {"manager": "kubectl-create", "operation": "Update", "time": "2026-11-24T08:00:00Z",
             "fieldsV1": {"f:spec": {".": {}, "f:payload": {}}}},
            {"manager": "kubectl-edit", "operation": "Update", "time": "2026-11-25T08:00:00Z",
             "fieldsV1": {"f:spec": {"f:paused": {}, "f:strategy": {".": {}, "f:maxUnavailable": {}}}}},
            {"manager": "dormer", "operation": "Update", "subresource": "status", "time": "2026-11-25T08:05:00Z",
             "fieldsV1": {"f:status": {"f:payload": {}}}},
        ]});
        let mut meta: ObjectMeta = serde_json::from_value(meta).expect("metadata");
        let by = edited(&meta).expect("an edit");
        assert_eq!(by.program, "kubectl-edit");
        assert_eq!(by.at, Some(Timestamp(1_795_593_600_000)));
        assert_eq!(by.fields, ["paused", "strategy.maxUnavailable"]);
        meta.managed_fields = None;
        assert_eq!(edited(&meta), None);
    }
}
