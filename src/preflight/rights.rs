//! Rights that dormer needs, out of the manifest that grants them.

use dormer_profile::yaml;
use serde_json::Value;
use std::fmt::Display;

/// Roles as they are applied.
const ROLES: &str = include_str!("../../deploy/rbac.yaml");
/// dormer's namespace in that manifest.
const HOME: &str = "dormer";
/// Roles whose rights only some pools or clusters need, or dormer in several processes.
const OPTIONAL: [&str; 2] = ["force", "-join"];

/// Right that dormer needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Right {
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) verb: String,
}

impl Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, "/{name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

/// Rights that every cluster needs, each once: of all roles, or of those that are bound to `account` if it is one of
/// dormer's. `home` is dormer's namespace.
pub(super) fn needed(home: &str, account: Option<&str>) -> Vec<Right> {
    let prefix = format!("system:serviceaccount:{home}:");
    let name = account.and_then(|it| it.strip_prefix(prefix.as_str()));
    let bound = name.map(bound_to).unwrap_or_default();
    of_roles(home, |role| {
        bound.is_empty() || bound.iter().any(|it| it == role)
    })
}

/// Names of the roles that the manifest binds to a service account.
fn bound_to(account: &str) -> Vec<String> {
    let documents = yaml::documents(ROLES).unwrap_or_default();
    let bindings = documents.iter().filter(|binding| {
        let subjects = binding["subjects"].as_array();
        subjects.is_some_and(|all| all.iter().any(|it| it["name"] == account))
    });
    let role = |binding: &Value| Some(binding["roleRef"]["name"].as_str()?.to_owned());
    bindings.filter_map(role).collect()
}

/// The console's rights in the whole cluster and in dormer's namespace, `home`. Those on machines are left out, because their
/// namespace is another one in some installations.
pub(super) fn of_the_console(home: &str) -> Vec<Right> {
    let mut all = of_roles(home, |role| role.starts_with("dormer-console"));
    all.retain(|right| right.namespace.as_deref().is_none_or(|it| it == home));
    all
}

fn of_roles(home: &str, wanted: impl Fn(&str) -> bool) -> Vec<Right> {
    let mut all: Vec<Right> = Vec::new();
    for role in yaml::documents(ROLES).unwrap_or_default() {
        let kind = role["kind"].as_str().unwrap_or_default();
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        let optional = OPTIONAL.iter().any(|it| name.contains(it));
        if !["Role", "ClusterRole"].contains(&kind) || optional || !wanted(name) {
            continue;
        }
        let namespace = role["metadata"]["namespace"].as_str();
        let namespace = namespace.map(|it| if it == HOME { home } else { it }.to_owned());
        for rule in role["rules"].as_array().into_iter().flatten() {
            for right in rights(rule, namespace.as_ref()) {
                if !all.contains(&right) {
                    all.push(right);
                }
            }
        }
    }
    all
}

fn rights(rule: &Value, namespace: Option<&String>) -> Vec<Right> {
    let texts = |key: &str| -> Vec<String> {
        let all = rule[key].as_array().into_iter().flatten();
        all.filter_map(|it| Some(it.as_str()?.to_owned())).collect()
    };
    let names: Vec<Option<String>> = match texts("resourceNames") {
        names if names.is_empty() => vec![None],
        names => names.into_iter().map(Some).collect(),
    };
    let mut all = Vec::new();
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            for verb in texts("verbs") {
                for name in &names {
                    all.push(Right {
                        group: group.clone(),
                        resource: resource.clone(),
                        name: name.clone(),
                        namespace: namespace.cloned(),
                        verb: verb.clone(),
                    });
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rights_are_those_that_the_manifest_grants() {
        let all = needed("dormer", None);
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        for right in [
            "list nodes",
            "create pods/eviction",
            "get clusterversions.config.openshift.io/version",
            "approve signers.certificates.k8s.io/kubernetes.io/kubelet-serving",
        ] {
            assert!(all.iter().any(|it| it == right), "{right}: {all:#?}");
        }
        assert!(all.len() < 200, "{}", all.len());
    }

    #[test]
    fn the_rights_of_one_account_are_those_of_the_roles_that_are_bound_to_it() {
        let texts = |account: &str| -> Vec<String> {
            let all = needed("home", Some(account));
            all.iter().map(ToString::to_string).collect()
        };
        let has = |all: &[String], right: &str| all.iter().any(|it| it == right);
        let approves = "approve signers.certificates.k8s.io/kubernetes.io/kubelet-serving";
        let worker = texts("system:serviceaccount:home:dormer-worker");
        assert!(has(&worker, "create pods/eviction"), "{worker:#?}");
        assert!(!has(&worker, approves), "{worker:#?}");
        let approver = texts("system:serviceaccount:home:dormer-approver");
        assert!(has(&approver, approves), "{approver:#?}");
        assert!(!has(&approver, "create pods/eviction"), "{approver:#?}");
        // Anyone else may be the account of all roles in one process.
        for other in ["system:serviceaccount:home:dormer", "ann"] {
            let all = texts(other);
            assert!(has(&all, approves) && has(&all, "create pods/eviction"));
        }
    }

    #[test]
    fn the_consoles_rights_are_in_the_cluster_and_at_home_and_none_are_those_of_workers() {
        let all = of_the_console("home");
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        for right in [
            "list nodes",
            "list runtimeclasses.node.k8s.io",
            "patch windowspools/status.dormer.io/windows in home",
        ] {
            assert!(texts.iter().any(|it| it == right), "{right}: {texts:#?}");
        }
        let elsewhere = |it: &Right| it.namespace.as_deref().is_some_and(|it| it != "home");
        assert!(!all.iter().any(elsewhere), "{texts:#?}");
        assert!(
            !texts.iter().any(|it| it.contains("eviction")),
            "{texts:#?}"
        );
    }
}
