//! Kubernetes' HTTP: paths, queries and bodies, turned into the server's verbs.

use std::{collections::HashMap, convert::Infallible, io, net::SocketAddr, sync::Arc};
use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture};
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response,
    body::{Frame, Incoming},
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderValue},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{
    auth::User,
    ca, discovery,
    kinds::{self, Kind},
    object::{Key, Object},
    patch::PatchKind,
    portforward, reviews,
    selector::{Fields, Labels},
    server::{ApiServer, DeleteOptions, Deleted, ListQuery, Part, WriteOptions},
    status::{self, Refusal},
    table,
    watch::WatchQuery,
};
use crate::net::{BoxIo, Dial, Io};

/// Largest body that is read.
pub const BODY_MAX: usize = 3 << 20;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// One request, taken apart.
struct Call {
    method: Method,
    user: User,
    query: HashMap<String, String>,
    table: bool,
    content_type: String,
    body: Bytes,
}

/// What the path of a request names.
struct PathTarget {
    kind: &'static Kind,
    namespace: Option<String>,
    name: Option<String>,
    sub: Option<String>,
}

impl ApiServer {
    /// Serves HTTP/1.1 on one connection until it ends. `peer` is the user of the connection itself (by a client
    /// certificate, or a trusted pipe).
    pub async fn serve_connection(&self, io: impl Io, peer: Option<User>) {
        let service = service_fn(move |request| {
            let server = self.clone();
            let peer = peer.clone();
            async move { Ok::<_, Infallible>(server.answer(request, peer).await) }
        });
        let http = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(io), service)
            .with_upgrades();
        // A connection that breaks is the client's affair.
        let _ = http.await;
    }

    /// Serves TLS on one connection.
    pub async fn serve_tls(&self, io: impl Io, config: Arc<ServerConfig>) {
        let Ok(stream) = TlsAcceptor::from(config).accept(io).await else {
            return;
        };
        let certificates = stream.get_ref().1.peer_certificates();
        let peer = certificates.and_then(|c| c.first()).and_then(ca::user_of);
        self.serve_connection(stream, peer).await;
    }

    /// Serves HTTPS on a listener until the task is dropped.
    pub async fn serve_https(self, listener: TcpListener, config: Arc<ServerConfig>) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            if !self.inner.available.load(Ordering::Relaxed) {
                continue;
            }
            let _ = stream.set_nodelay(true);
            let server = self.clone();
            let config = config.clone();
            tokio::spawn(async move { server.serve_tls(stream, config).await });
        }
    }

    /// A dialer whose streams end in this server, over pipes in memory: TLS with `tls`, else
    /// plain HTTP. The authority is ignored.
    pub fn connector(&self, tls: Option<Arc<ServerConfig>>) -> Arc<dyn Dial> {
        Arc::new(PipeDial {
            server: self.clone(),
            tls,
        })
    }

    async fn answer(&self, request: Request<Incoming>, peer: Option<User>) -> Response<Body> {
        self.inner.requests.fetch_add(1, Ordering::Relaxed);
        let answered = self.try_answer(request, peer).await;
        let mut answer = answered.unwrap_or_else(|refusal| refused(&refusal));
        // Go's server dates its answers by the clock that stamps the objects; hyper would take the computer's.
        let date = self.clock().now().strftime("%a, %d %b %Y %H:%M:%S GMT");
        if let Ok(date) = HeaderValue::from_str(&date.to_string()) {
            answer.headers_mut().insert(DATE, date);
        }
        answer
    }

    async fn try_answer(
        &self,
        request: Request<Incoming>,
        peer: Option<User>,
    ) -> Result<Response<Body>, Refusal> {
        if !self.inner.available.load(Ordering::Relaxed) {
            return Err(Refusal::new(
                503,
                "ServiceUnavailable",
                "the server is not available",
            ));
        }
        let (parts, body) = request.into_parts();
        let header = |name| {
            let value = parts.headers.get(name).and_then(|v| v.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let path = parts.uri.path().to_owned();
        if matches!(path.as_str(), "/healthz" | "/readyz" | "/livez") {
            return Ok(text("ok"));
        }
        let user = self.who(&header(AUTHORIZATION), peer)?;
        if user.is_anonymous() && path != "/version" {
            return Err(Refusal::unauthorized());
        }
        if portforward::is_asked(&path) {
            let asked = Request::from_parts(parts, body);
            return portforward::answer(self, asked).map(|it| it.map(|()| full(Bytes::new())));
        }
        if path.starts_with("/openapi/v2") {
            return Ok(no_openapi_v2());
        }
        if let Some(answer) = discovery::answer(&path, &self.unserved_now()) {
            return Ok(json_answer(200, &answer));
        }
        let body = Limited::new(body, BODY_MAX).collect().await;
        let body = body
            .map_err(|e| Refusal::bad_request(e.to_string()))?
            .to_bytes();
        let call = Call {
            method: parts.method,
            user,
            query: query(parts.uri.query().unwrap_or_default()),
            table: header(ACCEPT).contains("as=Table"),
            content_type: header(CONTENT_TYPE),
            body,
        };
        if let Some(answer) = reviews::answer(self, &path, &call.user, &call.body)? {
            return Ok(json_answer(201, &answer));
        }
        let target = target(&path).filter(|target| self.serves(target.kind));
        let target = target.ok_or_else(Refusal::no_such_path)?;
        self.authorize(&call, &target)?;
        self.dispatch(&call, &target)
    }

    fn who(&self, authorization: &str, peer: Option<User>) -> Result<User, Refusal> {
        match authorization.strip_prefix("Bearer ") {
            Some(token) => {
                let user = self.tokens().user(token.trim(), self.store());
                user.ok_or_else(Refusal::unauthorized)
            }
            None => Ok(peer.unwrap_or_else(User::anonymous)),
        }
    }

    /// # Errors
    /// 403 for a user who was confined to other things.
    fn authorize(&self, call: &Call, target: &PathTarget) -> Result<(), Refusal> {
        let one = target.name.is_some();
        let verb = match call.method {
            Method::GET if call.flag("watch") => "watch",
            Method::GET if one => "get",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if one => "delete",
            Method::DELETE => "deletecollection",
            _ => return Ok(()),
        };
        // A selector of one name is as good as that name, as for the real server.
        let selected = call.query.get("fieldSelector");
        let selected = selected.and_then(|it| it.strip_prefix("metadata.name="));
        let name = target.name.as_deref().or(selected).unwrap_or_default();
        let asked = json!({"verb": verb, "resource": target.kind.plural, "name": name,
            "subresource": target.sub.as_deref().unwrap_or_default(),
            "namespace": target.namespace.as_deref().unwrap_or_default()});
        if self.tokens().may(&call.user.name, &asked) {
            return Ok(());
        }
        let part = target.sub.as_deref();
        let part = part.map_or_else(String::new, |it| format!("/{it}"));
        let within = match target.namespace.as_deref() {
            Some(namespace) => format!("in the namespace \"{namespace}\""),
            None => "at the cluster scope".to_owned(),
        };
        let why = format!(
            "User \"{}\" cannot {verb} resource \"{}{part}\" in API group \"{}\" {within}",
            call.user.name, target.kind.plural, target.kind.group
        );
        Err(Refusal::forbidden(target.kind, name, &why))
    }

    /// Refuses to show Nodes while the right to read them is taken away. Controllers of the cluster read the store.
    fn may_read(&self, call: &Call, target: &PathTarget) -> Result<(), Refusal> {
        let taken = self.inner.unreadable.load(Ordering::Relaxed) > 0;
        let kubelet = call.user.groups.iter().any(|group| group == "system:nodes");
        if !taken || kubelet || call.method != Method::GET || target.kind.store != kinds::NODE.store
        {
            return Ok(());
        }
        let name = target.name.as_deref().unwrap_or_default();
        let verb = if target.name.is_some() { "get" } else { "list" };
        let why = format!("User {:?} cannot {verb} resource \"nodes\"", call.user.name);
        Err(Refusal::forbidden(target.kind, name, &why))
    }

    fn dispatch(&self, call: &Call, target: &PathTarget) -> Result<Response<Body>, Refusal> {
        self.may_read(call, target)?;
        match (&target.name, target.sub.as_deref()) {
            (None, _) => self.collection(call, target),
            (Some(name), sub) => {
                let namespace = target.namespace.clone().unwrap_or_default();
                let key = Key::new(namespace, name.clone());
                match sub {
                    None => self.object(call, target.kind, &key),
                    Some(sub) => self.subresource(call, target.kind, &key, sub),
                }
            }
        }
    }

    fn collection(&self, call: &Call, target: &PathTarget) -> Result<Response<Body>, Refusal> {
        let kind = target.kind;
        match call.method {
            Method::GET if call.flag("watch") => self.start_watch(call, target),
            Method::GET => {
                let listed = self.list(kind, &call.list_query(target)?);
                let mut meta = json!({"resourceVersion": listed.revision.to_string()});
                if let Some(more) = &listed.more {
                    meta["continue"] = json!(format!("{}/{}", more.namespace, more.name));
                    meta["remainingItemCount"] = json!(listed.remaining);
                }
                if call.table {
                    let now = self.clock().now();
                    return Ok(json_answer(200, &table::of(kind, &listed.items, meta, now)));
                }
                Ok(self.list_answer(kind, &listed.items, &meta))
            }
            Method::POST => {
                let namespace = target.namespace.as_deref().unwrap_or_default();
                let dry = call.options().dry_run;
                let made = self.create(&call.user, kind, namespace, call.value()?, dry)?;
                Ok(self.object_answer(call, 201, kind, &made))
            }
            Method::DELETE => {
                let options = DeleteOptions::of(&call.value().unwrap_or(Value::Null));
                let query = call.list_query(target)?;
                let listed = self.delete_collection(&call.user, kind, &query, &options);
                let meta = json!({"resourceVersion": listed.revision.to_string()});
                Ok(self.list_answer(kind, &listed.items, &meta))
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    fn object(
        &self,
        call: &Call,
        kind: &'static Kind,
        key: &Key,
    ) -> Result<Response<Body>, Refusal> {
        match call.method {
            Method::GET if call.flag("watch") => Err(Refusal::method_not_allowed()),
            Method::GET => Ok(self.object_answer(call, 200, kind, &self.get(kind, key)?)),
            Method::PUT | Method::PATCH => {
                let object = self.written(call, kind, key, Part::Main)?;
                Ok(self.object_answer(call, 200, kind, &object))
            }
            Method::DELETE => {
                let mut options = DeleteOptions::of(&call.value().unwrap_or(Value::Null));
                let grace = call
                    .query
                    .get("gracePeriodSeconds")
                    .and_then(|g| g.parse().ok());
                options.grace = options.grace.or(grace);
                options.dry_run |= call.options().dry_run;
                match self.delete(&call.user, kind, key, &options)? {
                    Deleted::Marked(object) => Ok(self.object_answer(call, 200, kind, &object)),
                    Deleted::Gone(object) if kind.store == "pods" => {
                        Ok(self.object_answer(call, 200, kind, &object))
                    }
                    Deleted::Gone(object) => {
                        let details = json!({"name": key.name, "group": kind.group,
                            "kind": kind.plural, "uid": object.value["metadata"]["uid"]});
                        Ok(json_answer(200, &status::success(details)))
                    }
                }
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    fn written(
        &self,
        call: &Call,
        kind: &'static Kind,
        key: &Key,
        part: Part,
    ) -> Result<Arc<Object>, Refusal> {
        let options = call.options();
        if call.method == Method::PUT {
            let value = call.value()?;
            return self.update(&call.user, kind, key, part, value, options.dry_run);
        }
        let how = PatchKind::of(&call.content_type).ok_or_else(|| {
            let message = format!(
                "the body of the request was in an unknown format: {:?}",
                call.content_type
            );
            Refusal::new(415, "UnsupportedMediaType", message)
        })?;
        self.patch(&call.user, kind, key, part, (how, &call.value()?), &options)
    }

    fn subresource(
        &self,
        call: &Call,
        kind: &'static Kind,
        key: &Key,
        sub: &str,
    ) -> Result<Response<Body>, Refusal> {
        if !kind.has(sub) {
            return Err(Refusal::no_such_path());
        }
        match (sub, &call.method) {
            ("status" | "approval", &Method::GET) => {
                Ok(self.object_answer(call, 200, kind, &self.get(kind, key)?))
            }
            ("status" | "approval", &(Method::PUT | Method::PATCH)) => {
                let part = if sub == "status" {
                    Part::Status
                } else {
                    Part::Approval
                };
                let object = self.written(call, kind, key, part)?;
                Ok(self.object_answer(call, 200, kind, &object))
            }
            ("scale", method) => {
                let method = method.clone();
                let value = call.value().unwrap_or(Value::Null);
                let how = PatchKind::of(&call.content_type);
                let scale =
                    super::scale::answer(self, &call.user, kind, key, &method, how, &value)?;
                Ok(json_answer(200, &scale))
            }
            ("eviction", &Method::POST) => {
                let done = self.evict(&call.user, key, &call.value()?)?;
                Ok(json_answer(201, &done))
            }
            ("token", &Method::POST) => {
                let made = reviews::token(self, key, call.value()?)?;
                Ok(json_answer(201, &made))
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    fn start_watch(&self, call: &Call, target: &PathTarget) -> Result<Response<Body>, Refusal> {
        let seconds = call
            .query
            .get("timeoutSeconds")
            .and_then(|s| s.parse().ok());
        let query = WatchQuery {
            list: call.list_query(target)?,
            revision: call
                .query
                .get("resourceVersion")
                .cloned()
                .unwrap_or_default(),
            bookmarks: call.flag("allowWatchBookmarks"),
            initial: call.query.get("sendInitialEvents").map(|v| v == "true"),
            timeout: seconds.map(Duration::from_secs),
            as_table: call.table,
        };
        let lines = self
            .watch(target.kind, query)?
            .map(|line| Ok(Frame::data(line)));
        let body = BodyExt::boxed_unsync(StreamBody::new(lines));
        let response = Response::builder()
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        response.map_err(|e| Refusal::bad_request(e.to_string()))
    }

    /// An object's JSON, in the shape that this view of its kind has.
    pub(crate) fn encoded(&self, kind: &Kind, object: &Arc<Object>) -> Bytes {
        if kind.group != "events.k8s.io" {
            return object.json().clone();
        }
        let mut value = object.value.clone();
        super::events::to_own(&mut value);
        serde_json::to_vec(&value).unwrap_or_default().into()
    }

    fn object_answer(
        &self,
        call: &Call,
        code: u16,
        kind: &Kind,
        object: &Arc<Object>,
    ) -> Response<Body> {
        if call.table {
            let meta = json!({"resourceVersion": object.revision.to_string()});
            let now = self.clock().now();
            return json_answer(
                code,
                &table::of(kind, std::slice::from_ref(object), meta, now),
            );
        }
        bytes_answer(code, self.encoded(kind, object))
    }

    fn list_answer(&self, kind: &Kind, items: &[Arc<Object>], meta: &Value) -> Response<Body> {
        let head = format!(
            "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[",
            kind.kind,
            kind.api_version()
        );
        let mut body = head.into_bytes();
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&self.encoded(kind, item));
        }
        body.extend_from_slice(b"]}\n");
        bytes_answer(200, body.into())
    }
}

struct PipeDial {
    server: ApiServer,
    tls: Option<Arc<ServerConfig>>,
}

impl Dial for PipeDial {
    fn dial(&self, _authority: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let server = self.server.clone();
        let tls = self.tls.clone();
        Box::pin(async move {
            if !server.inner.available.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                match tls {
                    Some(config) => server.serve_tls(ours, config).await,
                    None => server.serve_connection(ours, None).await,
                }
            });
            Ok(Box::new(theirs) as BoxIo)
        })
    }
}

impl Call {
    fn flag(&self, name: &str) -> bool {
        self.query
            .get(name)
            .is_some_and(|v| matches!(v.as_str(), "true" | "1" | ""))
    }

    fn options(&self) -> WriteOptions {
        WriteOptions {
            dry_run: self.query.get("dryRun").is_some_and(|d| d == "All"),
            manager: self.query.get("fieldManager").cloned().unwrap_or_default(),
        }
    }

    fn value(&self) -> Result<Value, Refusal> {
        let bad = |e: &dyn std::fmt::Display| Refusal::bad_request(e.to_string());
        if self.content_type.contains("yaml") {
            let text = std::str::from_utf8(&self.body).map_err(|e| bad(&e))?;
            return dormer_profile::yaml::from_str(text).map_err(|e| bad(&e));
        }
        if self.content_type.contains("protobuf") {
            let message = "the simulated server reads JSON and YAML, no protobuf";
            return Err(Refusal::new(415, "UnsupportedMediaType", message));
        }
        serde_json::from_slice(&self.body).map_err(|e| bad(&e))
    }

    fn list_query(&self, target: &PathTarget) -> Result<ListQuery, Refusal> {
        let text = |name: &str| self.query.get(name).map(String::as_str).unwrap_or_default();
        let mut fields = text("fieldSelector").to_owned();
        if let (Some(name), true) = (&target.name, target.sub.is_none()) {
            fields = format!("metadata.name={name}");
        }
        let after = text("continue")
            .split_once('/')
            .map(|(ns, name)| Key::new(ns, name));
        Ok(ListQuery {
            namespace: target.namespace.clone(),
            labels: Labels::parse(text("labelSelector")).map_err(Refusal::bad_request)?,
            fields: Fields::parse(&fields).map_err(Refusal::bad_request)?,
            limit: text("limit").parse().unwrap_or(0),
            after,
        })
    }
}

fn target(path: &str) -> Option<PathTarget> {
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..]
            if !rest.is_empty() && !matches!(rest, ["status" | "finalize"]) =>
        {
            (Some((*namespace).to_owned()), rest)
        }
        rest => (None, rest),
    };
    let owned = |s: &&str| (*s).to_owned();
    let kind = kinds::find(group, version, rest.first()?)?;
    let name = rest.get(1).map(owned);
    let sub = rest.get(2).map(owned);
    let fits = rest.len() <= 3 && kind.namespaced | namespace.is_none();
    let needs_namespace = kind.namespaced && name.is_some() && namespace.is_none();
    (fits && !needs_namespace).then_some(PathTarget {
        kind,
        namespace,
        name,
        sub,
    })
}

fn query(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter(|p| !p.is_empty());
    let pair = |p: &str| {
        let (name, value) = p.split_once('=').unwrap_or((p, ""));
        (decode(name), decode(value))
    };
    pairs.map(pair).collect()
}

/// Percent decoding; what cannot be decoded stays as it is.
fn decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

fn full(bytes: Bytes) -> Body {
    BodyExt::boxed_unsync(Full::new(bytes))
}

fn bytes_answer(code: u16, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = code.try_into().unwrap_or_default();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn json_answer(code: u16, value: &Value) -> Response<Body> {
    bytes_answer(code, serde_json::to_vec(value).unwrap_or_default().into())
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = json_answer(refusal.code, &refusal.to_value());
    if let Some(seconds) = refusal.details["retryAfterSeconds"].as_u64() {
        response
            .headers_mut()
            .insert(hyper::header::RETRY_AFTER, seconds.into());
    }
    response
}

fn text(text: &'static str) -> Response<Body> {
    Response::new(full(Bytes::from_static(text.as_bytes())))
}

/// An empty document, which decodes as one that knows no kind: kubectl skips its own checks.
fn no_openapi_v2() -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    let kind = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Binds the loopback address for an API server; port 0 takes a free one.
///
/// # Errors
/// When the address cannot be bound.
pub async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}
