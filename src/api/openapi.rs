//! `GET /api/v1/openapi.json`: the OpenAPI document. Its paths are written by hand. Actions come from their table,
//! schemas from the view types.

use super::access::right::{Needs, needs};
use axum::{Json, http::Method};
use dormer_views::actions::{ACTIONS, ActionTarget, ROLLBACK};
use dormer_views::{
    finding::Finding,
    machine::Machines,
    plan::Plan,
    record::History,
    rollout::{Pool, Rollout},
    run::{DeadLetter, QuarantinedRun, RemoteCommand, Run},
    timeline::Timeline,
};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Hand-written part.
const WRITTEN: &str = include_str!("openapi.yaml");

/// Complete document. Building it cannot fail: a test reads it.
static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| whole(dormer_profile::yaml::from_str(WRITTEN).unwrap_or_default()));

/// Schemas of the view types by name. The API answers these types, so the document cannot differ from the answers.
fn schemas() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
        .for_serialize();
    let mut generator = settings.into_generator();
    generator.subschema_for::<Machines>();
    generator.subschema_for::<Rollout>();
    generator.subschema_for::<Pool>();
    generator.subschema_for::<Run>();
    generator.subschema_for::<RemoteCommand>();
    generator.subschema_for::<DeadLetter>();
    generator.subschema_for::<Finding>();
    generator.subschema_for::<QuarantinedRun>();
    generator.subschema_for::<History>();
    generator.subschema_for::<Timeline>();
    generator.subschema_for::<Plan>();
    let mut schemas = generator.take_definitions(true);
    schemas.values_mut().for_each(close);
    schemas
}

/// Forbids properties that an object's schema does not name.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") {
                fields
                    .entry("additionalProperties")
                    .or_insert(Value::Bool(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Complete document.
pub fn document() -> &'static Value {
    &DOCUMENT
}

pub(super) async fn openapi() -> Json<Value> {
    Json(DOCUMENT.clone())
}

/// Adds generated parts: path parameters, actions, errors, and the list of required fields.
fn whole(mut document: Value) -> Value {
    if let Some(written) = document["components"]["schemas"].as_object_mut() {
        written.append(&mut schemas());
    }
    for (path, operations) in document["paths"].as_object_mut().into_iter().flatten() {
        let named = parameters(path);
        if path.ends_with("/rollback") {
            operations["post"]["description"] = ROLLBACK.terms().into();
        }
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            operation["x-rights"] = rights(method, path).into();
            operation["responses"]["default"] = json!({"$ref": "#/components/responses/Error"});
            let mut all = operation["parameters"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            all.extend(named.iter().cloned());
            operation["parameters"] = all.into();
        }
    }
    for schema in document["components"]["schemas"]
        .as_object_mut()
        .into_iter()
        .flatten()
    {
        require(schema.1);
    }
    document["components"]["responses"]
        .as_object_mut()
        .into_iter()
        .flat_map(Map::values_mut)
        .for_each(require);
    document
}

/// Parameters in a path. The parameter `action` lists the actions with their terms.
fn parameters(path: &str) -> Vec<Value> {
    let names = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            let mut parameter =
                json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
            if name == "action" {
                let on = if path.starts_with("/rollouts") {
                    ActionTarget::Rollout
                } else {
                    ActionTarget::Machine
                };
                let these = || {
                    ACTIONS
                        .iter()
                        .filter(move |it| it.on == on && it.name != ROLLBACK.name)
                };
                let words: Vec<&str> = these().map(|action| action.name).collect();
                let described: Vec<String> = these()
                    .map(|action| {
                        format!("- `{}`: {}. {}", action.name, action.what, action.terms())
                    })
                    .collect();
                parameter["schema"]["enum"] = json!(words);
                parameter["description"] = described.join("\n").into();
            }
            parameter
        })
        .collect()
}

/// Rights of an operation, in the form of `kubectl auth can-i`.
fn rights(method: &str, path: &str) -> Vec<String> {
    let names = path.split('/').filter(|part| part.starts_with('{'));
    let names: Vec<String> = names
        .map(|name| {
            if name == "{workflow}" {
                "machine".to_owned()
            } else {
                name.to_owned()
            }
        })
        .collect();
    let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap_or_default();
    match needs(&method, Some(&format!("/api/v1{path}")), &names) {
        Needs::Rights(rights) => rights.iter().map(ToString::to_string).collect(),
        Needs::Nothing | Needs::Nowhere => Vec::new(),
    }
}

/// Marks every field of a closed object as required, unless its schema lists the required ones.
fn require(schema: &mut Value) {
    let Value::Object(fields) = schema else {
        for item in schema.as_array_mut().into_iter().flatten() {
            require(item);
        }
        return;
    };
    if fields.get("additionalProperties") == Some(&Value::Bool(false))
        && !fields.contains_key("required")
        && let Some(properties) = fields.get("properties").and_then(Value::as_object)
    {
        let names: Vec<&String> = properties.keys().collect();
        fields.insert("required".into(), json!(names));
    }
    fields.values_mut().for_each(require);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask;
    use dormer_views::actions::TRUST_HOST_KEY;
    use std::collections::BTreeSet;

    #[test]
    fn every_operation_says_which_rights_it_needs() {
        for (path, operations) in DOCUMENT["paths"].as_object().into_iter().flatten() {
            for (method, operation) in operations.as_object().into_iter().flatten() {
                let rights = operation["x-rights"].as_array().map_or(0, Vec::len);
                let free =
                    ["/openapi.json", "/links", "/healthz", "/readyz"].contains(&path.as_str());
                assert!(free || rights > 0, "{method} {path} would be answered 404");
            }
        }
        let pause = &DOCUMENT["paths"]["/machines/{machine}/actions/{action}"]["post"]["x-rights"];
        assert_eq!(*pause, json!(["{action} machines"]));
    }

    /// Routes in the router's source.
    fn routes() -> BTreeSet<(String, String)> {
        let router = include_str!("lib.rs");
        // One route belongs to the gate, and two outside of it need no authentication.
        let beside = [("/links", "post"), ("/healthz", "get"), ("/readyz", "get")];
        let mut routes: BTreeSet<_> = beside
            .map(|(path, method)| (path.to_owned(), method.to_owned()))
            .into();
        // rustfmt breaks a long route into several lines.
        let router = router.split_whitespace().collect::<String>();
        for route in router.split(".route(\"").skip(1) {
            let (path, handlers) = route.split_once("\",").expect("a path and its handler");
            let handlers = handlers.split(".fallback(").next().expect("a text");
            for method in ["get", "post"] {
                if handlers.contains(&format!("{method}(")) {
                    routes.insert((path.to_owned(), method.to_owned()));
                }
            }
        }
        routes
    }

    #[test]
    fn every_route_is_documented_and_no_other() {
        let mut documented = BTreeSet::new();
        for (path, operations) in DOCUMENT["paths"].as_object().expect("paths") {
            for method in operations.as_object().expect("operations").keys() {
                documented.insert((path.clone(), method.clone()));
            }
        }
        assert_eq!(documented, routes());
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_operation_says_what_it_does() {
        let text = DOCUMENT.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let to = reference.split('"').next().expect("a text");
            assert!(DOCUMENT.pointer(to).is_some(), "{to}");
        }
        for (path, operations) in DOCUMENT["paths"].as_object().expect("paths") {
            for operation in operations.as_object().expect("operations").values() {
                assert!(
                    operation["summary"]
                        .as_str()
                        .is_some_and(|it| !it.is_empty()),
                    "{path}"
                );
            }
        }
    }

    /// The document itself is the only answer that no schema describes.
    #[test]
    fn every_answer_has_a_type() {
        let mut free = Vec::new();
        for (path, operations) in DOCUMENT["paths"].as_object().expect("paths") {
            for operation in operations.as_object().expect("operations").values() {
                let answer = &operation["responses"]["200"];
                let to = answer["$ref"].as_str().and_then(|it| it.strip_prefix('#'));
                let answer = to.map_or(Some(answer), |to| DOCUMENT.pointer(to));
                let schema = answer.and_then(|it| it.pointer("/content/application~1json/schema"));
                if schema == Some(&json!({"type": "object"})) {
                    free.push(path.as_str());
                }
            }
        }
        assert_eq!(free, ["/openapi.json"]);
    }

    /// A generated client knows of `dryRun` only if the body's schema is there.
    #[test]
    fn every_request_that_changes_something_names_the_fields_of_its_body() {
        let paths = DOCUMENT["paths"].as_object().expect("paths");
        for (path, operations) in paths {
            if path == "/links" || path.ends_with("/plan") || operations["post"].is_null() {
                continue;
            }
            let body = operations["post"]["requestBody"]["$ref"].as_str();
            assert!(body.is_some(), "{path}");
        }
    }

    /// The table of actions, the document and the parser agree.
    #[test]
    fn every_action_is_documented_and_understood() {
        for (things, on) in [
            ("machines/{machine}", ActionTarget::Machine),
            ("rollouts/{pool}", ActionTarget::Rollout),
        ] {
            let post = &DOCUMENT["paths"][format!("/{things}/actions/{{action}}")]["post"];
            let parameters = post["parameters"].as_array().expect("parameters");
            let action = parameters
                .iter()
                .find(|it| it["name"] == "action")
                .expect("one");
            // A rollback names a payload, so it has its own path.
            let known = ACTIONS
                .iter()
                .filter(|known| known.on == on && known.name != ROLLBACK.name);
            for known in known {
                assert!(
                    action["schema"]["enum"]
                        .as_array()
                        .unwrap()
                        .contains(&json!(known.name))
                );
                let described = action["description"].as_str().unwrap();
                assert!(
                    described.contains(&known.terms()),
                    "{}: {described}",
                    known.name
                );
                if known.name == TRUST_HOST_KEY.name {
                    // Its body contains a key; `ask.rs` tests it.
                    continue;
                }
                let understood = match on {
                    ActionTarget::Rollout => ask::of_rollout(known.name),
                    _ => ask::of_machine(known.name),
                };
                assert_eq!(understood, known.signal, "{}", known.name);
            }
        }
    }
}
