//! Which rights each endpoint and page needs: verbs on three resources of the group `dormer.io`, as RBAC has them.
//!
//! The resources exist nowhere but in reviews. An action is a verb of its own on the object itself, not `create` of a
//! subresource: one rule then reads as a sentence (may `get`, `list`, `watch` and `retry` these `machines`), names of
//! objects narrow looking and acting alike, and an old grant of `create` on everything lets nobody act.

use axum::http::Method;
use std::fmt;

/// The group of the resources.
pub(crate) const GROUP: &str = "dormer.io";

/// What a right is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Machines, in their own namespace.
    Machines,
    /// Rollouts and their pools, in dormer's namespace.
    Rollouts,
    /// Dead letters, in dormer's namespace.
    DeadLetters,
}

impl Resource {
    /// Its name in rules.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Machines => "machines",
            Self::Rollouts => "rollouts",
            Self::DeadLetters => "deadletters",
        }
    }
}

/// On which objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Object {
    /// All of the resource.
    All,
    /// The one that is called so: a machine also by its UID or `namespace/name`.
    Called(String),
}

/// Something that an asker must be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) verb: String,
    pub(crate) resource: Resource,
    pub(crate) object: Object,
}

impl fmt::Display for Right {
    /// As `kubectl auth can-i` takes it: `retry machines`.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.verb, self.resource.name())
    }
}

fn on(verb: &str, resource: Resource, object: Object) -> Right {
    Right {
        verb: verb.to_owned(),
        resource,
        object,
    }
}

/// What a request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: it says nothing of the cluster.
    Nothing,
    /// To be known, and these rights.
    Rights(Vec<Right>),
    /// There is no such endpoint; nobody but the known is told.
    Nowhere,
}

/// What everything that can be read needs.
fn all(verb: &str) -> Vec<Right> {
    [
        Resource::Machines,
        Resource::Rollouts,
        Resource::DeadLetters,
    ]
    .map(|resource| on(verb, resource, Object::All))
    .into()
}

/// What a request of `method` to the route `template` needs, with the route's parameters.
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

fn of_reading(path: &str, parameters: &[String]) -> Option<Vec<Right>> {
    use Resource::{DeadLetters, Machines, Rollouts};
    let one = |resource| {
        let called = parameters.first().cloned().unwrap_or_default();
        vec![on("get", resource, Object::Called(called))]
    };
    let every = |resource| vec![on("list", resource, Object::All)];
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
            .map(|resource| on("watch", resource, Object::All))
            .into(),
        "/dead-letters" => every(DeadLetters),
        "/dead-letters/{id}" => one(DeadLetters),
        _ => return None,
    })
}

fn of_asking(path: &str, parameters: &[String]) -> Option<Vec<Right>> {
    use Resource::{DeadLetters, Machines, Rollouts};
    let first = || Object::Called(parameters.first().cloned().unwrap_or_default());
    // An action that there is not is answered 404 to those who may do everything.
    let action = || parameters.get(1).map_or("*", String::as_str);
    Some(match path {
        "/machines/{machine}/actions/{action}" => vec![on(action(), Machines, first())],
        "/rollouts/{pool}/actions/rollback" => vec![on("rollback", Rollouts, first())],
        "/rollouts/{pool}/actions/{action}" => vec![on(action(), Rollouts, first())],
        "/runs/{workflow}/{key}/reset" => vec![of_run("reset", parameters)?],
        // A plan changes nothing: it is asked by POST because of what is tried on.
        "/pools/{pool}/plan" => return of_reading(path, parameters),
        "/dead-letters/{id}/requeue" => vec![on("requeue", DeadLetters, first())],
        // Whoever may look may look in a browser.
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
    Some(on(verb, resource, Object::Called(key.clone())))
}

/// A page of the console. One that is not named here shows what it likes, so it needs everything.
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
        "/dead-letters" => vec![on("list", Resource::DeadLetters, Object::All)],
        _ => all("list"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_workflows::actions::{ACTIONS, ActionTarget};

    fn rights_text(method: Method, template: &str, parameters: &[&str]) -> String {
        let parameters: Vec<String> = parameters.iter().map(|it| (*it).to_owned()).collect();
        match needs(&method, Some(template), &parameters) {
            Needs::Nothing => "nothing".into(),
            Needs::Nowhere => "nowhere".into(),
            Needs::Rights(rights) => {
                let named = rights.iter().map(|right| match &right.object {
                    Object::All => right.to_string(),
                    Object::Called(name) => format!("{right} {name}"),
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
