//! Authentication: users by bearer token or client certificate.

use dormer_proto::lock::Locked as _;
use std::{collections::HashMap, sync::Mutex};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

use super::{kinds, object::Key, store::Store};

/// User of MCO's node-bootstrapper token (docs/field-notes.md, Certificate requests of kubelets).
pub const NODE_BOOTSTRAPPER: &str =
    "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";

/// Authenticated user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// `username`.
    pub name: String,
    /// `uid`; empty for most.
    pub uid: String,
    pub groups: Vec<String>,
}

impl User {
    /// A user with these groups, and `system:authenticated`.
    pub fn new<'a>(name: &str, groups: impl IntoIterator<Item = &'a str>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(str::to_owned).collect();
        if !groups.iter().any(|g| g == "system:authenticated") {
            groups.push("system:authenticated".to_owned());
        }
        Self {
            name: name.to_owned(),
            uid: String::new(),
            groups,
        }
    }

    pub fn service_account(namespace: &str, name: &str) -> Self {
        let of_namespace = format!("system:serviceaccounts:{namespace}");
        let user = format!("system:serviceaccount:{namespace}:{name}");
        Self::new(&user, ["system:serviceaccounts", of_namespace.as_str()])
    }

    /// The administrator of the kubeconfig.
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", ["system:masters"])
    }

    /// One of the cluster's own controllers.
    pub fn controller(name: &str) -> Self {
        Self::service_account("kube-system", name)
    }

    pub fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".to_owned()];
        Self {
            name: "system:anonymous".to_owned(),
            uid: String::new(),
            groups,
        }
    }

    /// Whether the user is anonymous.
    pub fn is_anonymous(&self) -> bool {
        self.name == "system:anonymous"
    }
}

/// One rule of RBAC. Access reviews answer by it, and requests of confined users are checked with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub verb: String,
    /// The resource, `machines`, or with its subresource, `machines/log`.
    pub resource: String,
    /// In this namespace; `None`: in all of them.
    pub namespace: Option<String>,
    /// On the object of this name; `None`: on all of them.
    pub name: Option<String>,
}

impl Grant {
    /// `verb` on all of a resource.
    pub fn of(verb: &str, resource: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: None,
            name: None,
        }
    }

    fn allows(&self, asked: &Value) -> bool {
        let word = |key: &str| asked[key].as_str().unwrap_or_default();
        let resource = match word("subresource") {
            "" => word("resource").to_owned(),
            part => format!("{}/{part}", word("resource")),
        };
        self.verb == word("verb")
            && self.resource == resource
            && self
                .namespace
                .as_ref()
                .is_none_or(|it| it == word("namespace"))
            && self.name.as_ref().is_none_or(|it| it == word("name"))
    }
}

/// A token's user, and the audiences that it was made for; none: the server itself.
#[derive(Clone)]
struct Made {
    user: User,
    audiences: Vec<String>,
}

/// The bearer tokens that the server knows, and what reviews say of their users.
#[derive(Default)]
pub struct Tokens {
    made: Mutex<HashMap<String, Made>>,
    grants: Mutex<HashMap<String, Vec<Grant>>>,
    bounds: Mutex<HashMap<String, Bounds>>,
}

/// What requests of one user may not do.
#[derive(Default)]
struct Bounds {
    /// They may do this alone; `None`: everything.
    only: Option<Vec<Grant>>,
    /// They may not do this.
    never: Vec<Grant>,
}

impl Tokens {
    /// Makes a token known.
    pub fn add(&self, token: &str, user: User) {
        self.add_for(token, user, Vec::new());
    }

    /// Makes a token known that was made for these audiences.
    pub fn add_for(&self, token: &str, user: User, audiences: Vec<String>) {
        let mut made = self.made.locked();
        made.insert(token.to_owned(), Made { user, audiences });
    }

    /// Makes a token unknown.
    pub fn revoke(&self, token: &str) {
        self.made.locked().remove(token);
    }

    /// User of a token: an added one, or a bootstrap token whose Secret is in `kube-system` (`id.secret`, user
    /// `system:bootstrap:<id>`).
    pub fn user(&self, token: &str, store: &Store) -> Option<User> {
        let known = self.made.locked().get(token).cloned();
        known
            .map(|made| made.user)
            .or_else(|| bootstrap(token, store))
    }

    /// The audiences that a token was made for.
    pub fn audiences(&self, token: &str) -> Vec<String> {
        let made = self.made.locked();
        made.get(token)
            .map(|made| made.audiences.clone())
            .unwrap_or_default()
    }

    /// From now on reviews allow this user these requests and no others.
    pub fn grant(&self, user: &str, grants: Vec<Grant>) {
        let mut all = self.grants.locked();
        all.insert(user.to_owned(), grants);
    }

    /// From now on this user may only make these requests, as an account with one role. Requests of users that were
    /// never confined are not checked.
    pub fn confine(&self, user: &str, grants: Vec<Grant>) {
        let mut all = self.bounds.locked();
        all.entry(user.to_owned()).or_default().only = Some(grants);
    }

    /// From now on requests of this user may not do these things, and whatever was forbidden before.
    pub fn forbid(&self, user: &str, grants: Vec<Grant>) {
        let mut all = self.bounds.locked();
        all.entry(user.to_owned()).or_default().never = grants;
    }

    /// Whether this user may make the request with these attributes, which have the form of a review's.
    pub fn may(&self, user: &str, asked: &Value) -> bool {
        let all = self.bounds.locked();
        let allows = |grants: &Vec<Grant>| grants.iter().any(|grant| grant.allows(asked));
        all.get(user)
            .is_none_or(|it| it.only.as_ref().is_none_or(allows) && !allows(&it.never))
    }

    /// Whether a user has the permission in the `resourceAttributes` of a review. A user without grants may do
    /// everything.
    pub fn allows(&self, user: &str, asked: &Value) -> bool {
        let grants = self.grants.locked();
        grants
            .get(user)
            .is_none_or(|grants| grants.iter().any(|grant| grant.allows(asked)))
    }
}

fn bootstrap(token: &str, store: &Store) -> Option<User> {
    let (id, secret) = token.split_once('.')?;
    let key = Key::new("kube-system", format!("bootstrap-token-{id}"));
    let kept = store.get(kinds::SECRET.store, &key)?;
    let field = |name: &str| secret_text(&kept.value, name);
    if kept.value["type"] != "bootstrap.kubernetes.io/token"
        || field("token-secret").as_deref() != Some(secret)
        || field("usage-bootstrap-authentication").as_deref() != Some("true")
        || field("expiration").is_some_and(|until| ended(&until))
    {
        return None;
    }
    let extra = field("auth-extra-groups").unwrap_or_default();
    let extra = extra.split(',').map(str::trim).filter(|g| !g.is_empty());
    let groups = std::iter::once("system:bootstrappers").chain(extra);
    Some(User::new(&format!("system:bootstrap:{id}"), groups))
}

/// Whether a time has passed by this computer's clock. An invalid time counts as passed, as in the real server.
fn ended(until: &str) -> bool {
    let until = until.parse::<jiff::Timestamp>();
    until.map_or(true, |until| until <= jiff::Timestamp::now())
}

/// One entry of a Secret's `data`, decoded.
pub fn secret_text(secret: &Value, name: &str) -> Option<String> {
    let bytes = BASE64_STANDARD
        .decode(secret["data"][name].as_str()?)
        .ok()?;
    String::from_utf8(bytes).ok()
}
