//! Rules of `deploy/rbac.yaml`, split into single rights, and the API server's answer for each.

use crate::real::{accounts::shipped, cluster::World};
use kube::Client;
use serde_json::{Value, json};

/// The smallest part of the rules: one verb on one resource, of one name where the rule has names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Right {
    pub(super) role: String,
    /// The namespace of the role, as shipped; `None`: the whole cluster.
    pub(super) namespace: Option<String>,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) name: Option<String>,
    pub(super) verb: String,
}

impl Right {
    /// Whether an account with this right has the other one, too.
    pub(super) fn gives(&self, other: &Self) -> bool {
        (&self.group, &self.resource, &self.verb) == (&other.group, &other.resource, &other.verb)
            && (self.name.is_none() || self.name == other.name)
            && (self.namespace.is_none() || self.namespace == other.namespace)
    }

    /// Whether the same account has the other right by this one, too, because this one is for the whole cluster.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let account = |right: &Self| right.role.split('-').nth(1).map(str::to_owned);
        self.namespace.is_none()
            && other.namespace.is_some()
            && self.name.is_none()
            && account(self) == account(other)
            && (&self.group, &self.resource, &self.verb)
                == (&other.group, &other.resource, &other.verb)
    }
}

/// Every right that the manifest gives.
pub(super) fn rights() -> Vec<Right> {
    let mut rights = Vec::new();
    for object in shipped() {
        for rule in object["rules"].as_array().into_iter().flatten() {
            for (group, resource, name, verb) in atoms(rule) {
                let text = |key: &str| object["metadata"][key].as_str().map(str::to_owned);
                let role = text("name").expect("a name");
                let namespace = text("namespace");
                rights.push(Right {
                    role,
                    namespace,
                    group,
                    resource,
                    name,
                    verb,
                });
            }
        }
    }
    rights
}

fn texts(rule: &Value, key: &str) -> Vec<String> {
    let all = rule[key].as_array().into_iter().flatten();
    all.map(|one| one.as_str().expect("a text").to_owned())
        .collect()
}

fn atoms(rule: &Value) -> Vec<(String, String, Option<String>, String)> {
    let mut names: Vec<_> = texts(rule, "resourceNames").into_iter().map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    let mut atoms = Vec::new();
    for group in texts(rule, "apiGroups") {
        for resource in texts(rule, "resources") {
            for name in &names {
                for verb in texts(rule, "verbs") {
                    atoms.push((group.clone(), resource.clone(), name.clone(), verb));
                }
            }
        }
    }
    atoms
}

/// A right as a rule of its own.
pub(super) fn rule(right: Right) -> Value {
    let names: Vec<String> = right.name.into_iter().collect();
    json!({"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb],
        "resourceNames": names})
}

/// What the API server says when an account asks whether it may.
pub(super) async fn allowed(account: &Client, attributes: &Value) -> bool {
    let review = json!({"apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}});
    let answer = World {
        admin: account.clone(),
    }
    .create(review)
    .await;
    answer["status"]["allowed"] == true
}
