//! The scale subresource: replicas of a set, read and written alone.

use hyper::Method;
use serde_json::{Value, json};

use super::{
    auth::User,
    kinds::Kind,
    object::Key,
    patch::{self, PatchKind},
    server::{ApiServer, Part, WriteOptions},
    status::Refusal,
};

/// Answers a request on `…/scale`.
///
/// # Errors
/// As reading and patching the object itself; 405.
pub fn answer(
    server: &ApiServer,
    user: &User,
    kind: &'static Kind,
    key: &Key,
    method: &Method,
    how: Option<PatchKind>,
    body: &Value,
) -> Result<Value, Refusal> {
    let object = server.get(kind, key)?;
    let mut scale = of(&object.value);
    match *method {
        Method::GET => return Ok(scale),
        Method::PUT => scale = body.clone(),
        Method::PATCH => match how {
            Some(PatchKind::Json) => {
                patch::json(&mut scale, body).map_err(Refusal::bad_request)?;
            }
            _ => {
                if let Some(meta) = scale["metadata"].as_object_mut() {
                    meta.remove("resourceVersion");
                }
                patch::merge(&mut scale, body);
            }
        },
        _ => return Err(Refusal::method_not_allowed()),
    }
    let mut change = json!({"spec": {"replicas": scale["spec"]["replicas"].as_u64().unwrap_or(0)}});
    if let Some(revision) = scale["metadata"]["resourceVersion"].as_str() {
        change["metadata"] = json!({"resourceVersion": revision});
    }
    let change = (PatchKind::Merge, &change);
    let after = server.patch(
        user,
        kind,
        key,
        Part::Main,
        change,
        &WriteOptions::default(),
    )?;
    Ok(of(&after.value))
}

fn of(object: &Value) -> Value {
    let meta = &object["metadata"];
    let labels = object["spec"]["selector"]["matchLabels"]
        .as_object()
        .into_iter()
        .flatten();
    let selector: Vec<String> = labels
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
            "creationTimestamp": meta["creationTimestamp"]},
        "spec": {"replicas": object["spec"]["replicas"]},
        "status": {"replicas": object["status"]["replicas"].as_u64().unwrap_or(0),
            "selector": selector.join(",")}})
}
