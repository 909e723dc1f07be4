//! Discovery: which groups, versions and kinds there are, and enough OpenAPI for kubectl.

use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

use super::kinds::{self, Kind};

/// Kubernetes version that the server reports.
pub const VERSION: &str = "v1.33.0";

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// Kinds that are answered and not kept: group, plural, kind, namespaced.
const REVIEWS: [(&str, &str, &str, bool); 5] = [
    (
        "authentication.k8s.io",
        "tokenreviews",
        "TokenReview",
        false,
    ),
    (
        "authentication.k8s.io",
        "selfsubjectreviews",
        "SelfSubjectReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "subjectaccessreviews",
        "SubjectAccessReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
        true,
    ),
];

/// Answers a discovery path, if it is one. `unserved`: groups, or groups with a version, that the server does not serve.
pub fn answer(path: &str, unserved: &BTreeSet<String>) -> Option<Value> {
    let of = |name: &str| path.trim_end_matches('/').strip_prefix("/apis/") == Some(name);
    if unserved.iter().any(|name| of(name)) {
        return None;
    }
    let mut answer = served(path)?;
    for group in answer["groups"].as_array_mut().into_iter().flatten() {
        let versions = group["versions"].as_array_mut();
        versions.into_iter().for_each(|all| {
            all.retain(|it| {
                !unserved
                    .iter()
                    .any(|name| it["groupVersion"] == name.as_str())
            });
        });
    }
    if let Some(groups) = answer["groups"].as_array_mut() {
        groups.retain(|group| !unserved.iter().any(|name| group["name"] == name.as_str()));
    }
    Some(answer)
}

fn served(path: &str) -> Option<Value> {
    match path.trim_end_matches('/') {
        "/version" => Some(version()),
        "/api" => Some(json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": []})),
        "/apis" => Some(json!({"kind": "APIGroupList", "apiVersion": "v1",
            "groups": group_names().into_iter().map(group).collect::<Vec<_>>()})),
        "/openapi/v3" => Some(openapi_index()),
        "" => Some(json!({"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version"]})),
        path => resources(path),
    }
}

fn version() -> Value {
    json!({"major": "1", "minor": "33", "gitVersion": VERSION, "gitCommit": "simulated",
        "gitTreeState": "clean", "buildDate": "2026-11-01T00:00:00Z", "goVersion": "none",
        "compiler": "rustc", "platform": "linux/amd64"})
}

fn groups() -> Vec<(&'static str, &'static str)> {
    let mut groups: Vec<_> = kinds::groups()
        .into_iter()
        .filter(|(g, _)| !g.is_empty())
        .collect();
    groups.extend([
        ("authentication.k8s.io", "v1"),
        ("authorization.k8s.io", "v1"),
    ]);
    groups
}

fn group_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for (name, _) in groups() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn group(name: &str) -> Value {
    let of_group = groups().into_iter().filter(|(group, _)| *group == name);
    let versions: Vec<Value> = of_group
        .map(
            |(_, version)| json!({"groupVersion": format!("{name}/{version}"), "version": version}),
        )
        .collect();
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions,
        "preferredVersion": versions.first()})
}

fn resources(path: &str) -> Option<Value> {
    if path == "/api/v1" {
        return Some(resource_list("", "v1"));
    }
    if let Some(rest) = path.strip_prefix("/openapi/v3/") {
        return openapi(rest);
    }
    let rest = path.strip_prefix("/apis/")?;
    match rest.split('/').collect::<Vec<_>>()[..] {
        [name] => group_names().into_iter().find(|g| *g == name).map(group),
        [name, version] if groups().contains(&(name, version)) => {
            Some(resource_list(name, version))
        }
        _ => None,
    }
}

fn resource_list(group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for kind in kinds::ALL
        .iter()
        .filter(|k| k.group == group && k.version == version)
    {
        resources.push(resource(kind));
        resources.extend(kind.subs.iter().map(|sub| subresource(kind, sub)));
    }
    for (_, plural, kind, namespaced) in REVIEWS.iter().filter(|r| r.0 == group) {
        resources.push(json!({"name": plural, "singularName": "", "kind": kind,
            "namespaced": namespaced, "verbs": ["create"]}));
    }
    let gv = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv,
        "resources": resources})
}

fn resource(kind: &Kind) -> Value {
    let mut resource = json!({"name": kind.plural, "singularName": kind.kind.to_lowercase(),
        "namespaced": kind.namespaced, "kind": kind.kind, "verbs": VERBS});
    if !kind.short.is_empty() {
        resource["shortNames"] = json!(kind.short);
    }
    resource
}

fn subresource(kind: &Kind, sub: &str) -> Value {
    let name = format!("{}/{sub}", kind.plural);
    let (group, version, of, verbs): (_, _, _, &[&str]) = match sub {
        "scale" => ("autoscaling", "v1", "Scale", &["get", "patch", "update"]),
        "eviction" => ("policy", "v1", "Eviction", &["create"]),
        "token" => ("authentication.k8s.io", "v1", "TokenRequest", &["create"]),
        "binding" => ("", "v1", "Binding", &["create"]),
        _ => ("", "", kind.kind, &["get", "patch", "update"]),
    };
    let mut resource = json!({"name": name, "singularName": "", "namespaced": kind.namespaced,
        "kind": of, "verbs": verbs});
    if !version.is_empty() {
        resource["version"] = json!(version);
        resource["group"] = json!(group);
    }
    resource
}

fn openapi_index() -> Value {
    let path = |(group, version): (&str, &str)| {
        let path = if group.is_empty() {
            format!("api/{version}")
        } else {
            format!("apis/{group}/{version}")
        };
        let url = format!("/openapi/v3/{path}?hash=0");
        (path, json!({"serverRelativeURL": url}))
    };
    let paths: Map<String, Value> = kinds::groups().into_iter().map(path).collect();
    json!({"paths": paths})
}

/// A document that says no more than that every kind takes `fieldValidation`: kubectl then
/// leaves the checking to the server.
fn openapi(path: &str) -> Option<Value> {
    let (group, version) = match path.split('/').collect::<Vec<_>>()[..] {
        ["api", version] => ("", version),
        ["apis", group, version] => (group, version),
        _ => return None,
    };
    let of_group = kinds::ALL
        .iter()
        .filter(|k| k.group == group && k.version == version);
    let paths: Map<String, Value> = of_group
        .map(|kind| {
            let name = Some("{namespace}").filter(|_| kind.namespaced);
            let parameter = json!({"name": "fieldValidation", "in": "query",
                "schema": {"type": "string"}});
            let patch = json!({"parameters": [parameter], "responses": {},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind":
                    {"group": group, "version": version, "kind": kind.kind}});
            (
                format!("{}/{{name}}", kind.path(name)),
                json!({"patch": patch}),
            )
        })
        .collect();
    Some(
        json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths, "components": {"schemas": {}}}),
    )
}
