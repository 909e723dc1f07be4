//! Answers of the API against its OpenAPI document.

use dormer_api::openapi::document;
use serde_json::{Value, json};

/// Every way in which `value` is not what the document says about an answer to GET `path`.
pub(crate) fn faults(path: &str, value: &Value) -> Vec<String> {
    let answer = &document()["paths"][path]["get"]["responses"]["200"];
    let schema = &followed(answer)["content"]["application/json"]["schema"];
    let mut faults = Vec::new();
    check(schema, value, path, &mut faults);
    faults
}

fn followed(schema: &Value) -> &Value {
    match schema["$ref"].as_str().and_then(|to| to.strip_prefix('#')) {
        Some(to) => document()
            .pointer(to)
            .expect("a reference that leads somewhere"),
        None => schema,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check(schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    let schema = followed(schema);
    if let Some(alternatives) = schema["anyOf"].as_array() {
        let faults_of = |schema: &Value| {
            let mut faults = Vec::new();
            check(schema, value, at, &mut faults);
            faults
        };
        let mut each = alternatives.iter().map(faults_of);
        // A null is the last alternative; what is wrong with a value is wrong with the first.
        let first = each.next().unwrap_or_default();
        if !first.is_empty() && each.all(|it| !it.is_empty()) {
            faults.extend(first);
        }
        return;
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        Value::String(kind) => vec![kind.as_str()],
        _ => Vec::new(),
    };
    if !kinds.contains(&kind(value)) {
        faults.push(format!("{at} is {}, not one of {kinds:?}", kind(value)));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        faults.push(format!("{at} is {value}, not one of {allowed:?}"));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(&schema["items"], item, &format!("{at}[{index}]"), faults);
    }
    let Some(fields) = value.as_object() else {
        return;
    };
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !fields.contains_key(name) {
            faults.push(format!("{at}.{name} is missing"));
        }
    }
    for (name, field) in fields {
        match schema["properties"].get(name) {
            Some(schema) => check(schema, field, &format!("{at}.{name}"), faults),
            None if schema["additionalProperties"].is_object() => {
                let others = &schema["additionalProperties"];
                check(others, field, &format!("{at}.{name}"), faults);
            }
            None if schema["additionalProperties"] == json!(false) => {
                faults.push(format!("{at}.{name} is not documented"));
            }
            None => {}
        }
    }
}
