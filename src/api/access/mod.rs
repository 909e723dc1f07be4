//! Authentication and authorization. Four modes: none, loopback only, dormer's own token, or the cluster's
//! TokenReview and SubjectAccessReview, so that plain RBAC decides.

mod cache;
mod login;
mod near;
mod review;
pub(crate) mod right;
mod session;

pub use review::Reviews;

use super::{Api, ApiError};
use axum::{
    Router,
    body::Body,
    extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State},
    http::{
        HeaderMap, HeaderValue, Method,
        header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, STRICT_TRANSPORT_SECURITY},
        request::Parts,
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use dormer_profile::sha256_hex;
use dormer_workflows::State as RunState;
use futures::StreamExt;
use login::Behind;
use right::{GROUP, Needs, Object, Resource, Right};
use session::Sessions;
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Longest life of an endless stream. Its reader then reconnects, so that a revoked right takes effect.
const STREAM_MAX: Duration = Duration::from_secs(300);

/// How callers are authenticated.
pub enum LoginMode {
    /// No check: a proxy in front of dormer must authenticate callers.
    Nobody,
    /// Anyone who reaches the address may read. Actions are accepted from this machine only.
    Loopback,
    /// The printed link, which works once; for programs, this bearer token.
    Token(Option<String>),
    /// Reviews by the cluster's API server.
    Cluster(Box<Reviews>),
}

/// Namespaces in which rights are reviewed.
#[derive(Debug, Clone, Default)]
pub struct RightNamespaces {
    /// Namespace of the Machines. `None`: they are in several namespaces, and lists need the right in all.
    pub machines: Option<String>,
    /// Namespace of rollouts and dead letters: dormer's own.
    pub own: String,
}

/// Authenticated name of the caller, as the history records it.
#[derive(Debug, Clone)]
pub(crate) struct Caller(pub(crate) String);

/// Authentication and authorization in front of the API and the console.
pub struct Gate {
    by: LoginMode,
    homes: RightNamespaces,
    sessions: Sessions,
    /// Whether callers connect over TLS.
    secure: bool,
    /// Base URL of printed links.
    printed: OnceLock<String>,
}

impl Gate {
    /// Gate with the login mode `by`. The first of `keys` seals sessions; any of them opens one.
    pub fn new(by: LoginMode, homes: RightNamespaces, secure: bool, keys: &[String]) -> Arc<Self> {
        let sessions = Sessions::new(keys, secure);
        let printed = OnceLock::new();
        Arc::new(Self {
            by,
            homes,
            sessions,
            secure,
            printed,
        })
    }

    /// Gate that accepts actions from this machine, and reads from anywhere.
    pub fn loopback() -> Arc<Self> {
        Self::new(LoginMode::Loopback, RightNamespaces::default(), false, &[])
    }

    /// Prints the login link of the console at `url`, if the mode needs one.
    pub fn announce(&self, url: &str) {
        let _ = self.printed.set(url.to_owned());
        self.print_link();
    }

    /// Written to standard error, not to the log: logs are kept, and other people read them.
    fn print_link(&self) {
        if let (LoginMode::Token(_), Some(url)) = (&self.by, self.printed.get()) {
            eprintln!(
                "dormer: to log in, open (works once): {url}{}",
                self.sessions.printed()
            );
        }
    }

    fn how_in_a_browser(&self) -> &'static str {
        match &self.by {
            LoginMode::Token(_) => {
                "Open the link that dormer printed last, or enter its access token."
            }
            LoginMode::Cluster(_) => {
                "Enter a bearer token of the cluster: oc whoami --show-token, or kubectl create \
                 token ACCOUNT. Or run dormer console, which prints a login link."
            }
            LoginMode::Nobody | LoginMode::Loopback => "This console needs no login.",
        }
    }

    fn unknown(&self, error: &str) -> ApiError {
        let how = match &self.by {
            LoginMode::Cluster(_) => {
                "send a bearer token of the cluster with --token-file or DORMER_TOKEN (oc whoami \
                 --show-token, kubectl create token ACCOUNT), or use kubectl dormer, which sends \
                 your own; in a browser log in at /login"
            }
            _ => {
                "open the link that dormer printed last; programs send the access token \
                 (--access-token) as DORMER_TOKEN"
            }
        };
        ApiError::unknown(error, how)
    }

    /// Caller whom a bearer token authenticates.
    ///
    /// # Errors
    /// 401: the token is unknown. 503: the API server does not answer.
    async fn known(&self, token: &str) -> Result<KnownCaller, ApiError> {
        match &self.by {
            LoginMode::Nobody | LoginMode::Loopback => Ok(KnownCaller::Somebody),
            LoginMode::Token(Some(own)) if alike(own, token) => Ok(KnownCaller::Holder),
            LoginMode::Token(_) => Err(self.unknown("the token is not dormer's own")),
            LoginMode::Cluster(reviews) => match reviews.user(token).await? {
                Some(user) => Ok(KnownCaller::User(user)),
                None => Err(self.unknown("the cluster knows no such token")),
            },
        }
    }
}

/// Compares checksums, so that the duration of the comparison reveals nothing about the token.
fn alike(one: &str, other: &str) -> bool {
    sha256_hex(one.as_bytes()) == sha256_hex(other.as_bytes())
}

/// Authenticated caller.
enum KnownCaller {
    /// Caller in a mode without authentication.
    Somebody,
    /// Holder of dormer's own token or link.
    Holder,
    /// User of the cluster.
    User(Arc<k8s_openapi::api::authentication::v1::UserInfo>),
}

/// Wraps `router` in the gate, and adds the login pages.
pub fn around(router: Router, api: Arc<Api>, gate: Arc<Gate>) -> Router {
    let guard = Guard {
        gate: Arc::clone(&gate),
        api,
    };
    router
        .merge(login::links(Arc::clone(&gate)))
        .layer(middleware::from_fn_with_state(Arc::new(guard), guarded))
        .merge(login::open(Arc::clone(&gate)))
        .layer(middleware::from_fn_with_state(gate, over_tls_next_time))
}

/// Tells browsers to come over TLS only. A name of every computer, such as `localhost`, is not bound to it: other
/// programs answer there without TLS.
async fn over_tls_next_time(
    State(gate): State<Arc<Gate>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let binds = gate.secure && !near::is_own_name(near::host(&parts));
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if binds {
        let year = HeaderValue::from_static("max-age=31536000");
        response
            .headers_mut()
            .insert(STRICT_TRANSPORT_SECURITY, year);
    }
    response
}

struct Guard {
    gate: Arc<Gate>,
    api: Arc<Api>,
}

async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match guard.lets_in(&mut parts).await {
        Ok(lasting) => {
            let response = next.run(Request::from_parts(parts, body)).await;
            let kind = response.headers().get(CONTENT_TYPE);
            let streams = kind.is_some_and(|it| it.as_bytes().starts_with(b"text/event-stream"));
            if streams && !lasting {
                cut(response)
            } else {
                response
            }
        }
        Err(error) if parts.uri.path().starts_with("/api/") => error.into_response(),
        Err(error) => login::refused(&error),
    }
}

/// Ends the response's stream after [`STREAM_MAX`].
fn cut(response: Response) -> Response {
    response.map(|body| {
        let end = tokio::time::sleep(STREAM_MAX);
        Body::from_stream(body.into_data_stream().take_until(Box::pin(end)))
    })
}

impl Guard {
    /// Authorizes the request. The answer is whether its stream may last without limit.
    async fn lets_in(&self, parts: &mut Parts) -> Result<bool, ApiError> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        match &self.gate.by {
            LoginMode::Nobody => return Ok(true),
            LoginMode::Loopback if reads => return near::reads(parts).map(|()| true),
            LoginMode::Loopback => return near::near(parts).map(|()| true),
            LoginMode::Token(_) | LoginMode::Cluster(_) => {}
        }
        let rights = match needs(parts).await {
            Needs::Nothing => return Ok(true),
            Needs::Rights(rights) => rights,
            Needs::Nowhere => {
                self.identify(parts, reads).await?;
                let path = parts.uri.path();
                return Err(ApiError::absent("endpoint", path, "dormer help"));
            }
        };
        let known = self.identify(parts, reads).await?;
        if let (KnownCaller::User(user), LoginMode::Cluster(reviews)) = (&known, &self.gate.by) {
            for right in &rights {
                self.allowed(reviews, user, right).await?;
            }
        }
        Ok(false)
    }

    /// Identifies the caller, and notes the name in the request for the history.
    async fn identify(&self, parts: &mut Parts, reads: bool) -> Result<KnownCaller, ApiError> {
        let (known, behind) = match bearer(&parts.headers) {
            Some(token) => (self.gate.known(token).await?, Some(token.to_owned())),
            None => self.of_session(&parts.headers, reads).await?,
        };
        let name = match &known {
            KnownCaller::Somebody => None,
            KnownCaller::Holder => Some("the holder of dormer's token".to_owned()),
            KnownCaller::User(user) => Some(user.username.clone().unwrap_or_default()),
        };
        parts.extensions.insert(Behind(behind));
        if let Some(name) = name {
            parts.extensions.insert(Caller(name));
        }
        Ok(known)
    }

    async fn of_session(
        &self,
        headers: &HeaderMap,
        reads: bool,
    ) -> Result<(KnownCaller, Option<String>), ApiError> {
        let Some(behind) = self.gate.sessions.of(headers) else {
            return Err(self.gate.unknown("the request has no valid login"));
        };
        if !reads {
            ask_origin(headers)?;
        }
        let known = match &behind {
            None => KnownCaller::Holder,
            Some(token) => self.gate.known(token).await?,
        };
        Ok((known, behind))
    }

    async fn allowed(
        &self,
        reviews: &Reviews,
        user: &k8s_openapi::api::authentication::v1::UserInfo,
        right: &Right,
    ) -> Result<(), ApiError> {
        let (right, namespace) = self.in_namespace(right).await?;
        if reviews.may(user, &right, &namespace).await? {
            return Ok(());
        }
        let resource = right.resource.name();
        let named = match &right.object {
            Object::All => String::new(),
            Object::Called(name) => format!(" {name}"),
        };
        let within = match namespace.as_str() {
            "" => "in every namespace".to_owned(),
            namespace => format!("in the namespace {namespace}"),
        };
        let user = user.username.as_deref().unwrap_or_default();
        let verb = &right.verb;
        Err(ApiError::forbidden(
            format!("user {user:?} may not {verb} {resource}{named} of {GROUP} {within}"),
            format!(
                "ask an administrator for a rule with apiGroups: [{GROUP}], resources: \
                 [{resource}], verbs: [{verb}]; the ClusterRoles dormer-viewer and \
                 dormer-operator hold such rules"
            ),
        ))
    }

    /// Right with the object's own name, and the object's namespace.
    async fn in_namespace(&self, right: &Right) -> Result<(Right, String), ApiError> {
        let homes = &self.gate.homes;
        let machines = || homes.machines.clone().unwrap_or_default();
        let called = match (&right.object, right.resource) {
            (_, Resource::Rollouts | Resource::DeadLetters) => {
                return Ok((right.clone(), homes.own.clone()));
            }
            (Object::All, _) => return Ok((right.clone(), machines())),
            (Object::Called(called), _) => called,
        };
        // A caller without the right to read gets the same answer whether or not the machine exists.
        let (name, namespace) = match self.api.run_cache.machine(called).await {
            Ok(run) => match &run.state {
                RunState::Machine(state) => {
                    let machine = state.machine_ref();
                    (machine.name, machine.namespace)
                }
                _ => (called.clone(), machines()),
            },
            Err(error) if error.status().is_client_error() => (called.clone(), machines()),
            Err(error) => return Err(error),
        };
        Ok((
            Right {
                object: Object::Called(name),
                ..right.clone()
            },
            namespace,
        ))
    }
}

async fn needs(parts: &mut Parts) -> Needs {
    let template = parts.extensions.get::<MatchedPath>().cloned();
    let parameters = match RawPathParams::from_request_parts(parts, &()).await {
        Ok(found) => found.iter().map(|(_, value)| value.to_owned()).collect(),
        Err(_) => Vec::new(),
    };
    right::needs(
        &parts.method,
        template.as_ref().map(MatchedPath::as_str),
        &parameters,
    )
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let shown = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = shown.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Rejects cross-site requests: a request with a session cookie must come from one of dormer's own pages.
fn ask_origin(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let origin = text(ORIGIN).unwrap_or("nowhere");
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    if authority.is_some() && authority == text(HOST) {
        Ok(())
    } else {
        Err(ApiError::foreign(origin))
    }
}
