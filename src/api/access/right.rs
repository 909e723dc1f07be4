//! Rights of each endpoint and page: verbs on three resources of the API group `dormer.io`.
//!
//! The resources exist only in access reviews. An action is a verb on the object itself, not `create` of a
//! subresource. Three reasons: one rule then reads as a sentence (may `get`, `list`, `watch` and `retry` these
//! `machines`); names of objects limit reading and acting alike; and an old grant of `create` on everything gives
//! no account an action.

use super::audit::AuditEvent;
use axum::http::Method;
use std::fmt;

/// API group of the resources.
pub(crate) const GROUP: &str = "dormer.io";

/// Resource of a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Machines, in the Machine's namespace.
    Machines,
    /// Rollouts and their pools, in dormer's namespace.
    Rollouts,
    /// Dead letters, in dormer's namespace.
    DeadLetters,
}

impl Resource {
    /// Name in RBAC rules.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Machines => "machines",
            Self::Rollouts => "rollouts",
            Self::DeadLetters => "deadletters",
        }
    }
}

/// Objects that a right covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RightObject {
    /// All objects of the resource.
    All,
    /// One object by name. A machine can also be named by its UID or `namespace/name`.
    Called(String),
}

/// Right that a caller needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) verb: String,
    pub(crate) resource: Resource,
    pub(crate) object: RightObject,
}

impl fmt::Display for Right {
    /// Form for `kubectl auth can-i`: `retry machines`.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.verb, self.resource.name())
    }
}

impl Right {
    /// Form for the audit, with the object's name: `retry machines win-1`.
    pub(crate) fn named(&self) -> String {
        match &self.object {
            RightObject::All => self.to_string(),
            RightObject::Called(name) => format!("{self} {name}"),
        }
    }
}

fn on(verb: &str, resource: Resource, object: RightObject) -> Right {
    Right {
        verb: verb.to_owned(),
        resource,
        object,
    }
}

/// Requirements of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Needs {
    /// No login: the answer reveals nothing about the cluster.
    Nothing,
    /// A known caller with all of these rights.
    Rights(Vec<Right>),
    /// No such endpoint. Only a known caller gets the 404.
    Nowhere,
}

/// Rights to read everything.
fn all(verb: &str) -> Vec<Right> {
    [
        Resource::Machines,
        Resource::Rollouts,
        Resource::DeadLetters,
    ]
    .map(|resource| on(verb, resource, RightObject::All))
    .into()
}

/// Requirements of a `method` request to the route `template` with these path parameters.
pub(crate) fn needs(method: &Method, template: Option<&str>, parameters: &[String]) -> Needs {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let Some(path) = template else {
        return Needs::Nowhere;
    };
    let Some(path) = path.strip_prefix("/api/v1") else {
        return if reads {
            of_page(path, parameters)
        } else {
            Needs::Nowhere
        };
    };
    let rights = if reads {
        of_reading(path, parameters)
    } else {
        of_asking(path, parameters)
    };
    rights.map_or(Needs::Nowhere, Needs::Rights)
}

/// Audit event of a `method` request to the route `template`. Confidential are answers that may show secrets' names,
/// remote commands with their output, or messages.
pub(crate) fn event(method: &Method, template: Option<&str>) -> AuditEvent {
    match (matches!(*method, Method::GET | Method::HEAD), template) {
        (
            true,
            Some(
                "/api/v1/machines/{machine}/commands"
                | "/api/v1/machines/{machine}/desired"
                | "/api/v1/machines/{machine}/history"
                | "/api/v1/dead-letters/{id}"
                | "/machines/{machine}"
                | "/dead-letters"
                | "/plan",
            ),
        )
        | (_, Some("/api/v1/pools/{pool}/plan")) => AuditEvent::Confidential,
        (true, _) => AuditEvent::Read,
        (false, Some("/api/v1/links")) => AuditEvent::Link,
        (false, _) => AuditEvent::Action,
    }
}

fn of_reading(path: &str, parameters: &[String]) -> Option<Vec<Right>> {
    use Resource::{DeadLetters, Machines, Rollouts};
    let one = |resource| {
        let called = parameters.first().cloned().unwrap_or_default();
        vec![on("get", resource, RightObject::Called(called))]
    };
    let every = |resource| vec![on("list", resource, RightObject::All)];
    Some(match path {
        "/openapi.json" => Vec::new(),
        "/machines" | "/tasks" => every(Machines),
        "/machines/{machine}"
        | "/machines/{machine}/commands"
        | "/machines/{machine}/desired"
        | "/machines/{machine}/history" => one(Machines),
        "/runs" => [every(Machines), every(Rollouts)].concat(),
        "/runs/{workflow}/{key}"
        | "/runs/{workflow}/{key}/history"
        | "/runs/{workflow}/{key}/timeline" => vec![of_run("get", parameters)?],
        "/rollouts" | "/pools" => every(Rollouts),
        "/rollouts/{pool}" | "/rollouts/{pool}/history" | "/pools/{pool}" => one(Rollouts),
        "/pools/{pool}/plan" => [one(Rollouts), every(Machines)].concat(),
        "/changes" => [Machines, Rollouts]
            .map(|resource| on("watch", resource, RightObject::All))
            .into(),
        "/dead-letters" => every(DeadLetters),
        // They name Nodes, MachineSets and pools.
        "/findings" => [every(Machines), every(Rollouts)].concat(),
        "/quarantine" => [every(Machines), every(Rollouts)].concat(),
        "/dead-letters/{id}" => one(DeadLetters),
        _ => return None,
    })
}

fn of_asking(path: &str, parameters: &[String]) -> Option<Vec<Right>> {
    use Resource::{DeadLetters, Machines, Rollouts};
    let first = || RightObject::Called(parameters.first().cloned().unwrap_or_default());
    // An unknown action is answered 404 to callers who may do everything.
    let action = || parameters.get(1).map_or("*", String::as_str);
    Some(match path {
        "/machines/{machine}/actions/{action}" => vec![on(action(), Machines, first())],
        "/rollouts/{pool}/actions/rollback" => vec![on("rollback", Rollouts, first())],
        "/rollouts/{pool}/actions/{action}" => vec![on(action(), Rollouts, first())],
        "/runs/{workflow}/{key}/reset" => vec![of_run("reset", parameters)?],
        "/runs/{workflow}/{key}/unquarantine" => vec![of_run("unquarantine", parameters)?],
        // A plan changes nothing. It is a POST because its body carries the candidate.
        "/pools/{pool}/plan" => return of_reading(path, parameters),
        "/dead-letters/{id}/requeue" => vec![on("requeue", DeadLetters, first())],
        // A caller with a login may get one in a browser too.
        "/links" => Vec::new(),
        _ => return None,
    })
}

fn of_run(verb: &str, parameters: &[String]) -> Option<Right> {
    let [workflow, key] = parameters else {
        return None;
    };
    let resource = match workflow.as_str() {
        dormer_proto::work::MACHINE => Resource::Machines,
        dormer_proto::work::ROLLOUT => Resource::Rollouts,
        _ => return None,
    };
    Some(on(verb, resource, RightObject::Called(key.clone())))
}

/// Requirements of a page of the console. A page that is not listed here needs every read right.
fn of_page(path: &str, parameters: &[String]) -> Needs {
    let asset = ["css", "js", "svg", "ico", "png", "woff2"];
    let ending = path.rsplit_once('.').map(|(_, ending)| ending);
    if ending.is_some_and(|ending| asset.contains(&ending) && !path.contains('{')) {
        return Needs::Nothing;
    }
    Needs::Rights(match path {
        "/machines/{machine}" => {
            of_reading("/machines/{machine}", parameters).unwrap_or_else(|| all("list"))
        }
        "/rollouts/{pool}" => {
            of_reading("/rollouts/{pool}", parameters).unwrap_or_else(|| all("list"))
        }
        "/dead-letters" => vec![on("list", Resource::DeadLetters, RightObject::All)],
        _ => all("list"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_views::actions::{ACTIONS, ActionTarget};

    fn rights_text(method: Method, template: &str, parameters: &[&str]) -> String {
        let parameters: Vec<String> = parameters.iter().map(|it| (*it).to_owned()).collect();
        match needs(&method, Some(template), &parameters) {
            Needs::Nothing => "nothing".into(),
            Needs::Nowhere => "nowhere".into(),
            Needs::Rights(rights) => {
                let named = rights.iter().map(|right| match &right.object {
                    RightObject::All => right.to_string(),
                    RightObject::Called(name) => format!("{right} {name}"),
                });
                named.collect::<Vec<_>>().join(", ")
            }
        }
    }

    #[test]
    fn every_action_of_the_table_is_a_verb_of_its_own() {
        for action in ACTIONS {
            let name = action.name;
            let post = Method::POST;
            let (needs, expected) = match action.on {
                ActionTarget::Machine => (
                    rights_text(
                        post,
                        "/api/v1/machines/{machine}/actions/{action}",
                        &["win-1", name],
                    ),
                    format!("{name} machines win-1"),
                ),
                ActionTarget::Rollout => (
                    rights_text(
                        post,
                        "/api/v1/rollouts/{pool}/actions/{action}",
                        &["windows", name],
                    ),
                    format!("{name} rollouts windows"),
                ),
                ActionTarget::Run => (
                    rights_text(
                        post,
                        "/api/v1/runs/{workflow}/{key}/reset",
                        &["machine", "u1"],
                    ),
                    format!("{name} machines u1"),
                ),
                ActionTarget::DeadLetter => (
                    rights_text(post, "/api/v1/dead-letters/{id}/requeue", &["7"]),
                    format!("{name} deadletters 7"),
                ),
            };
            assert_eq!(needs, expected);
        }
    }

    #[test]
    fn the_audit_tells_actions_from_confidential_reads() {
        let get = |template| event(&Method::GET, Some(template));
        let post = |template| event(&Method::POST, Some(template));
        assert_eq!(get("/api/v1/machines"), AuditEvent::Read);
        assert_eq!(
            get("/api/v1/machines/{machine}/desired"),
            AuditEvent::Confidential
        );
        assert_eq!(get("/machines/{machine}"), AuditEvent::Confidential);
        assert_eq!(post("/api/v1/pools/{pool}/plan"), AuditEvent::Confidential);
        assert_eq!(post("/api/v1/links"), AuditEvent::Link);
        assert_eq!(
            post("/api/v1/machines/{machine}/actions/{action}"),
            AuditEvent::Action
        );
        assert_eq!(event(&Method::POST, None), AuditEvent::Action);
    }

    #[test]
    fn reading_is_a_right_and_what_is_not_named_is_not_reached() {
        let get =
            |template: &str, parameters: &[&str]| rights_text(Method::GET, template, parameters);
        assert_eq!(
            get("/api/v1/changes", &[]),
            "watch machines, watch rollouts"
        );
        assert_eq!(get("/console.css", &[]), "nothing");
        assert_eq!(
            get("/", &[]),
            "list machines, list rollouts, list deadletters"
        );
        assert_eq!(
            get("/new/{page}.css", &["x"]),
            "list machines, list rollouts, list deadletters"
        );
        assert_eq!(get("/api/v1/new", &[]), "nowhere");
        assert_eq!(
            get("/api/v1/runs/{workflow}/{key}", &["other", "x"]),
            "nowhere"
        );
        assert_eq!(rights_text(Method::POST, "/", &[]), "nowhere");
        assert_eq!(
            rights_text(Method::DELETE, "/api/v1/machines/{machine}", &["a"]),
            "nowhere"
        );
        assert_eq!(needs(&Method::GET, None, &[]), Needs::Nowhere);
    }
}
