//! Authentication and authorization. Four modes: none, loopback only, dormer's own token, or the cluster's
//! TokenReview and SubjectAccessReview, so that plain RBAC decides.

pub mod audit;
mod cache;
mod limits;
mod link_file;
mod login;
mod loopback;
pub(crate) mod origin;
mod review;
pub(crate) mod right;
mod session;

pub use review::Reviews;
pub use session::{Sessions, TooLong};

use super::{Api, ApiError, run_cache::LastRecord};
use audit::{Audit, AuditEntry, AuditEvent, AuditOutcome};
use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, FromRequestParts, MatchedPath, RawPathParams, Request, State},
    http::{
        HeaderMap, HeaderValue, Method,
        header::{AUTHORIZATION, CONTENT_TYPE, STRICT_TRANSPORT_SECURITY},
        request::Parts,
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use dormer_profile::sha256_hex;
use dormer_workflows::State as RunState;
use futures::{FutureExt, StreamExt};
use limits::PerUser;
use login::SessionCredential;
use origin::WithoutOrigin;
use right::{GROUP, Needs, Resource, Right, RightObject};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Header in which a proxy such as OpenShift's oauth-proxy forwards the token of a person who logged in there.
const FORWARDED_TOKEN: &str = "x-forwarded-access-token";
/// Longest life of an endless stream. Its reader then reconnects, so that a revoked right takes effect.
const STREAM_MAX: Duration = Duration::from_secs(300);

/// How callers are authenticated.
pub enum LoginMode {
    /// No check: a proxy in front of dormer must authenticate callers.
    Nobody,
    /// Anyone who reaches the address may read. Actions are accepted from this machine only.
    Loopback,
    /// The link in a file, which works once; for programs, this bearer token.
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
    /// The one proxy that may forward a token of its caller's.
    proxy: Option<IpAddr>,
    /// Whether callers connect over TLS.
    secure: bool,
    /// Base URL of the login link, and its file.
    link: OnceLock<(String, PathBuf)>,
    audit: Option<Arc<Audit>>,
    users: Arc<PerUser>,
}

impl Gate {
    /// Gate with the login mode `by`. The first of `keys` seals sessions; any of them opens one. The
    /// header `X-Forwarded-Access-Token` of a request counts if its peer is `proxy`.
    pub fn new(
        by: LoginMode,
        homes: RightNamespaces,
        secure: bool,
        keys: &[String],
        proxy: Option<IpAddr>,
        audit: Option<Arc<Audit>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            by,
            homes,
            proxy: proxy.map(|it| it.to_canonical()),
            sessions: Sessions::new(keys, secure),
            secure,
            link: OnceLock::new(),
            audit,
            users: Arc::default(),
        })
    }

    /// Gate that accepts actions from this machine, and reads from anywhere.
    pub fn loopback() -> Arc<Self> {
        let homes = RightNamespaces::default();
        Self::new(LoginMode::Loopback, homes, false, &[], None, None)
    }

    /// Keeps a login link for the console at `url` in `file`, if the mode needs one. Standard error shows the file's
    /// path, never the link: logs are kept, and other people read them. Returns whether the caller must run
    /// [`Gate::run_link_renewal`].
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn announce(&self, url: &str, file: PathBuf) -> io::Result<bool> {
        if !matches!(self.by, LoginMode::Token(_)) {
            return Ok(false);
        }
        let shown = file.display().to_string();
        let _ = self.link.set((url.to_owned(), file));
        self.write_link()?;
        eprintln!("dormer: to log in, open the link in {shown} (it works once, and for minutes)");
        Ok(true)
    }

    /// Writes a fresh link in good time before the present one ends.
    pub async fn run_link_renewal(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(session::KEPT / 2).await;
            self.renew_link();
        }
    }

    /// Removes the file with the link.
    pub fn forget_link(&self) {
        if let Some((_, file)) = self.link.get() {
            let _ = std::fs::remove_file(file);
        }
    }

    fn renew_link(&self) {
        if let Err(error) = self.write_link() {
            tracing::warn!(%error, "the login link cannot be written");
        }
    }

    fn write_link(&self) -> io::Result<()> {
        match self.link.get() {
            Some((url, file)) => {
                link_file::write(file, &format!("{url}{}", self.sessions.file_link()))
            }
            None => Ok(()),
        }
    }

    /// Writes a line of the audit, if there is one.
    ///
    /// # Errors
    /// 503: it cannot be written, and the audit is required.
    async fn note(&self, entry: AuditEntry) -> Result<(), ApiError> {
        match &self.audit {
            Some(audit) => audit.write(entry).await,
            None => Ok(()),
        }
    }

    fn how_in_a_browser(&self) -> &'static str {
        match &self.by {
            LoginMode::Token(_) => {
                "Open the link in the file that dormer named when it started, or enter its access \
                 token."
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
                "open the link in the file that dormer named when it started (--login-link); programs \
                 send the access token (--access-token) as DORMER_TOKEN"
            }
        };
        ApiError::unknown(error, how)
    }

    /// Caller of a bearer token from `peer`.
    ///
    /// # Errors
    ///
    /// 401: the token is unknown. 429: the peer sends too many unknown ones. 503: the API server does not answer.
    async fn known(&self, token: &str, peer: Option<IpAddr>) -> Result<KnownCaller, ApiError> {
        match &self.by {
            LoginMode::Nobody | LoginMode::Loopback => Ok(KnownCaller::Somebody),
            LoginMode::Token(Some(own)) if alike(own, token) => Ok(KnownCaller::Holder),
            LoginMode::Token(_) => Err(self.unknown("the token is not dormer's own")),
            LoginMode::Cluster(reviews) => match reviews.user(token, peer).await? {
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

impl KnownCaller {
    /// Name in the history and the audit.
    fn name(&self) -> Option<String> {
        match self {
            Self::Somebody => None,
            Self::Holder => Some("the holder of dormer's token".to_owned()),
            Self::User(user) => Some(user.username.clone().unwrap_or_default()),
        }
    }
}

/// How the caller showed who it is, for the audit.
#[derive(Clone, Copy)]
struct ShownBy(&'static str);

/// Rights that a request needs, for the audit.
#[derive(Clone)]
struct Needed(Vec<Right>);

/// Notes about an action for its line `answered`. The line `allowed` is written before the body is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActionNotes(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    dry_run: AtomicBool,
    record: OnceLock<LastRecord>,
}

impl ActionNotes {
    /// Notes that the action is only checked.
    pub(crate) fn dry_run(&self) {
        self.0.dry_run.store(true, Ordering::Relaxed);
    }

    /// Notes the last record of the run that the action was for. The first note counts.
    pub(crate) fn record(&self, last: LastRecord) {
        let _ = self.0.record.set(last);
    }
}

/// Address of the peer, if it is known.
fn peer(parts: &Parts) -> Option<IpAddr> {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map(|peer| peer.0.ip())
}

/// Audit entry about a request, with the fields known so far.
fn entry(parts: &Parts, event: AuditEvent, outcome: AuditOutcome) -> AuditEntry {
    let extensions = &parts.extensions;
    let header = parts.headers.get("x-forwarded-for");
    let forwarded = header.and_then(|value| value.to_str().ok());
    let rights = extensions.get::<Needed>();
    AuditEntry {
        id: format!("{:016x}", rand::random::<u64>()),
        event,
        outcome,
        user: extensions.get::<Caller>().map(|caller| caller.0.clone()),
        by: extensions.get::<ShownBy>().map_or("none", |by| by.0),
        from: peer(parts).map(|peer| peer.to_canonical().to_string()),
        forwarded_for: forwarded.map(AuditEntry::said),
        method: parts.method.to_string(),
        path: AuditEntry::said(parts.uri.path()),
        rights: rights.map_or_else(Vec::new, |it| it.0.iter().map(Right::named).collect()),
        status: None,
        dry_run: false,
        record: None,
        error: None,
    }
}

/// Wraps `router` in the gate, and adds the login pages.
pub fn around(router: Router, api: Arc<Api>, gate: Arc<Gate>) -> Router {
    let guard = AccessGuard {
        gate: Arc::clone(&gate),
        api,
    };
    router
        .merge(login::links(Arc::clone(&gate)))
        .layer(middleware::from_fn_with_state(Arc::new(guard), guarded))
        .merge(login::open(Arc::clone(&gate)))
        .layer(middleware::from_fn_with_state(gate, over_tls_next_time))
}

/// Tells browsers to use only TLS in future (HSTS). A name that every computer has, such as `localhost`, is exempt:
/// other programs answer there without TLS.
async fn over_tls_next_time(
    State(gate): State<Arc<Gate>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let binds = gate.secure && !loopback::is_own_name(loopback::host(&parts));
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if binds {
        let year = HeaderValue::from_static("max-age=31536000");
        response
            .headers_mut()
            .insert(STRICT_TRANSPORT_SECURITY, year);
    }
    response
}

struct AccessGuard {
    gate: Arc<Gate>,
    api: Arc<Api>,
}

async fn guarded(State(guard): State<Arc<AccessGuard>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let is_api = parts.uri.path().starts_with("/api/");
    let refused = |error: ApiError| match is_api {
        true => error.into_response(),
        false => login::refused(&error),
    };
    let admitted = guard.admits(&mut parts).await;
    let (lasting, open, entry) = match admitted {
        Ok(admitted) => admitted,
        Err(error) => return refused(error),
    };
    let notes = ActionNotes::default();
    parts.extensions.insert(notes.clone());
    let request = Request::from_parts(parts, body);
    let (response, open) = match entry.event {
        AuditEvent::Action => {
            let action = next.run(request);
            match guard.audited(action, notes, open, entry).await {
                Ok(audited) => audited,
                Err(error) => return refused(error),
            }
        }
        _ => (next.run(request).await, open),
    };
    let kind = response.headers().get(CONTENT_TYPE);
    let streams = kind.is_some_and(|it| it.as_bytes().starts_with(b"text/event-stream"));
    match (streams, open) {
        (false, _) => response,
        (true, Some(open)) => limits::held(cut_unless(lasting, response), open),
        (true, None) => cut_unless(lasting, response),
    }
}

fn cut_unless(lasting: bool, response: Response) -> Response {
    if lasting { response } else { cut(response) }
}

/// Ends the response's stream after [`STREAM_MAX`].
fn cut(response: Response) -> Response {
    response.map(|body| {
        let end = tokio::time::sleep(STREAM_MAX);
        Body::from_stream(body.into_data_stream().take_until(Box::pin(end)))
    })
}

impl AccessGuard {
    /// Waits for the result of an action, and audits it. If the caller disconnects meanwhile, the action still
    /// completes, and its result is on record.
    ///
    /// # Errors
    ///
    /// 500: a panic.
    async fn audited(
        self: &Arc<Self>,
        action: impl Future<Output = Response> + Send + 'static,
        notes: ActionNotes,
        open: Option<limits::Open>,
        entry: AuditEntry,
    ) -> Result<(Response, Option<limits::Open>), ApiError> {
        let guard = Arc::clone(self);
        let acting = tokio::spawn(async move {
            let answer = AssertUnwindSafe(action).catch_unwind().await;
            let answer = answer.map_err(|_| ApiError::broken("the action panicked"));
            let status = match &answer {
                Ok(response) => response.status(),
                Err(error) => error.status(),
            };
            let answered = AuditEntry {
                outcome: AuditOutcome::Answered,
                status: Some(status.as_u16()),
                dry_run: notes.0.dry_run.load(Ordering::Relaxed),
                record: notes.0.record.get().cloned(),
                ..entry
            };
            // The action is done, and the request is on record; a lost line is counted.
            let _ = guard.gate.note(answered).await;
            answer.map(|response| (response, open))
        });
        let ended = acting.await;
        ended.unwrap_or_else(|_| Err(ApiError::broken("the record of the action panicked")))
    }

    /// Admits a request, and audits it before anything is done. Returns whether its stream may last without limit, the
    /// slot among its user's streams, and the audit entry.
    async fn admits(
        &self,
        parts: &mut Parts,
    ) -> Result<(bool, Option<limits::Open>, AuditEntry), ApiError> {
        let decided = self.lets_in(parts).await.and_then(|lasting| {
            let Some(Caller(name)) = parts.extensions.get() else {
                return Ok((lasting, None));
            };
            let too_many = || ApiError::too_many(format!("{name:?} has too many open requests"));
            let open = self.gate.users.open(name).ok_or_else(too_many)?;
            Ok((lasting, Some(open)))
        });
        let template = parts.extensions.get::<MatchedPath>();
        let event = right::event(&parts.method, template.map(MatchedPath::as_str));
        match decided {
            Ok((lasting, open)) => {
                let entry = entry(parts, event, AuditOutcome::Allowed);
                if event != AuditEvent::Read {
                    self.gate.note(entry.clone()).await?;
                }
                Ok((lasting, open, entry))
            }
            Err(error) => {
                let entry = AuditEntry {
                    status: Some(error.status().as_u16()),
                    error: Some(error.to_string()),
                    ..entry(parts, event, AuditOutcome::Refused)
                };
                // A first visit to the console without a credential is not written.
                if event != AuditEvent::Read || entry.by != "none" {
                    // It is refused in any case.
                    let _ = self.gate.note(entry).await;
                }
                Err(error)
            }
        }
    }

    /// Authorizes the request. Returns whether its stream may last without limit.
    async fn lets_in(&self, parts: &mut Parts) -> Result<bool, ApiError> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let needs = needs(parts).await;
        if let Needs::Rights(rights) = &needs {
            parts.extensions.insert(Needed(rights.clone()));
        }
        match &self.gate.by {
            LoginMode::Nobody => return Ok(true),
            LoginMode::Loopback if reads => return loopback::reads(parts).map(|()| true),
            LoginMode::Loopback => return loopback::check(parts).map(|()| true),
            LoginMode::Token(_) | LoginMode::Cluster(_) => {}
        }
        let rights = match needs {
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
        let peer = peer(parts);
        let shown = self.token(parts, reads)?;
        let (known, behind) = match shown {
            Some((token, by)) => {
                parts.extensions.insert(ShownBy(by));
                (self.gate.known(&token, peer).await?, Some(token))
            }
            None => self.of_session(parts, reads).await?,
        };
        parts.extensions.insert(SessionCredential(behind));
        if let Some(name) = known.name() {
            parts.extensions.insert(Caller(name));
        }
        Ok(known)
    }

    /// The token that the caller sends, or that the proxy forwards, and the audit's word for it. The proxy knows the caller
    /// by a cookie, which browsers send from foreign pages, too: an action has to come from a page of dormer's. A program
    /// that sends its own token through the proxy names no page.
    ///
    /// # Errors
    /// An action through the proxy from another origin, or from none.
    fn token(
        &self,
        parts: &Parts,
        reads: bool,
    ) -> Result<Option<(String, &'static str)>, ApiError> {
        let headers = &parts.headers;
        let by_proxy = peer(parts).is_some_and(|it| Some(it.to_canonical()) == self.gate.proxy);
        let forwarded = headers.get(FORWARDED_TOKEN).filter(|_| by_proxy);
        let forwarded = forwarded.and_then(|it| it.to_str().ok());
        let (token, by, without) = match (bearer(headers), forwarded) {
            (Some(token), _) => (token, "token", WithoutOrigin::Allowed),
            (None, Some(token)) => (token.trim(), "proxy", WithoutOrigin::Refused),
            (None, None) => return Ok(None),
        };
        if by_proxy && !reads {
            origin::check(headers, without)?;
        }
        Ok(Some((token.to_owned(), by)))
    }

    async fn of_session(
        &self,
        parts: &mut Parts,
        reads: bool,
    ) -> Result<(KnownCaller, Option<String>), ApiError> {
        let Some(behind) = self.gate.sessions.of(&parts.headers) else {
            return Err(self.gate.unknown("the request has no valid login"));
        };
        parts.extensions.insert(ShownBy("session"));
        if !reads {
            origin::check(&parts.headers, WithoutOrigin::Refused)?;
        }
        let known = match &behind {
            None => KnownCaller::Holder,
            Some(token) => self.gate.known(token, peer(parts)).await?,
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
            RightObject::All => String::new(),
            RightObject::Called(name) => format!(" {name}"),
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
            (RightObject::All, _) => return Ok((right.clone(), machines())),
            (RightObject::Called(called), _) => called,
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
                object: RightObject::Called(name),
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

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
