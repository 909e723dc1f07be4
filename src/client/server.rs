//! HTTP client of a running dormer: JSON over HTTP or HTTPS, on this computer, elsewhere, or in a cluster.

use super::{
    Failure,
    cluster::{self, ClusterTarget},
    connector::{Connector, DialTarget, tls},
};
use crate::plugin;
use bytes::Bytes;
use clap::Args;
pub use dormer_views::address::segment;
use dormer_views::{address::KUBECONFIG_HEADER, explain::Step, secret::Secret};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    HeaderMap, Method, Request, StatusCode, Uri,
    body::Incoming,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
    http::response::Parts,
};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};
use tokio::sync::OnceCell;

/// Time limit of an answer. It is longer than the server's own wait for an engine.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Largest answer, in bytes: enough for thousands of machines of about one kilobyte each.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Path prefix of the API.
const API: &str = "/api/v1";

/// Arguments for the server's address and the caller's token.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection, the same for all commands (all of it: --help)")]
pub struct ServerAddress {
    /// URL of dormer's API, or the variable DORMER_SERVER, overridden by -n, --context or --kubeconfig [default:
    /// http://127.0.0.1:7080; for kubectl dormer: the one in the cluster]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Bearer token of the caller; prefer the environment or a file to the command line
    #[arg(
        long,
        env = "DORMER_TOKEN",
        hide_env_values = true,
        hide_short_help = true,
        value_name = "TOKEN"
    )]
    token: Option<Secret>,
    /// File with the bearer token
    #[arg(
        long,
        env = "DORMER_TOKEN_FILE",
        hide_short_help = true,
        value_name = "FILE",
        conflicts_with = "token"
    )]
    token_file: Option<PathBuf>,
    /// File with CA certificates (PEM) for https, instead of the system's
    #[arg(
        long,
        env = "DORMER_CA_FILE",
        hide_short_help = true,
        value_name = "FILE"
    )]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    target: ClusterTarget,
    /// Kubeconfig of the server's cluster, as a server on this computer named it.
    #[arg(skip)]
    kubeconfig_of_server: Option<String>,
}

/// Client of one server. It resolves the connection at the first request.
pub struct Server {
    address: ServerAddress,
    ready: OnceCell<Ready>,
    /// Kubeconfig of its cluster, as an answer named it.
    kubeconfig: OnceLock<String>,
}

/// Resolved connection to a server.
struct Ready {
    /// Base URL.
    base: String,
    /// Name in error messages.
    called: String,
    /// Host of the server, or of the cluster's API server.
    host: String,
    client: Client<Connector, Full<Bytes>>,
    token: Option<HeaderValue>,
    /// Connector, if the connection goes through an API server.
    forwarded: Option<Connector>,
    /// Advice for a 401.
    hint: &'static str,
}

/// Variable with the URL of dormer's API.
const SERVER: &str = "DORMER_SERVER";
/// Address of a dormer on this computer.
const HERE: &str = "http://127.0.0.1:7080";
/// Advice for a kubeconfig without a token.
const NO_TOKEN: &str = "your kubeconfig has no bearer token, and a client certificate does not \
pass through a forwarded port: give --as-account NAMESPACE/NAME to use a short-lived token of \
that service account, or --token-file";

/// Meaning of `-n`.
const NAMESPACE_MEANS: &str = "-n names the namespace in which dormer itself runs in a cluster. Leave it out with --server. \
dormer lists the machines of all namespaces; -l namespace=NAME chooses one.";

/// The flags that have a value, each with it.
fn given<const N: usize>(flags: [(&str, Option<String>); N]) -> Vec<String> {
    let given = flags.into_iter();
    let given = given.filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    given.flatten().collect()
}

impl ServerAddress {
    /// Client for this address. It sends nothing yet.
    pub fn server(&self) -> Server {
        Server {
            address: self.clone(),
            ready: OnceCell::new(),
            kubeconfig: OnceLock::new(),
        }
    }

    /// Makes commands of dormer's ones for this address. What a variable says still holds for them, and a token is never shown.
    pub(crate) fn reach<'a>(&self, steps: impl IntoIterator<Item = &'a mut Step>) {
        self.reach_as(plugin::is_plugin(), steps);
    }

    /// Command of dormer's for this address, as a line to copy.
    pub(crate) fn line(&self, argv: &[&str]) -> String {
        let mut step = Step::of_command(argv);
        self.reach([&mut step]);
        step.line().unwrap_or_default()
    }

    fn reach_as<'a>(&self, plugin: bool, steps: impl IntoIterator<Item = &'a mut Step>) {
        let target = &self.target;
        let kubeconfig = target
            .kubeconfig
            .as_ref()
            .map(|it| it.display().to_string());
        let context = target.context.clone();
        let of_server = self.kubeconfig_of_server.clone();
        let of_server = of_server.filter(|_| !target.named());
        let mut flags = given([("--server", self.server.clone())]);
        flags.extend(given([
            ("--kubeconfig", kubeconfig.clone()),
            ("--context", context.clone()),
        ]));
        let cluster = given([
            ("--kubeconfig", kubeconfig.or(of_server)),
            ("--context", context),
        ]);
        flags.extend(given([
            ("--namespace", target.namespace.clone()),
            ("--as-account", target.as_account.clone()),
        ]));
        let program: &[&str] = if plugin {
            &["kubectl", "dormer"]
        } else {
            &["dormer"]
        };
        for step in steps {
            step.reach(program, &flags, &cluster);
        }
    }

    fn token(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(self
                .token
                .as_ref()
                .map(|token| token.reveal().trim().to_owned()));
        };
        let text = std::fs::read_to_string(path);
        let text =
            text.map_err(|why| Failure::Usage(format!("--token-file {}: {why}", path.display())))?;
        Ok(Some(text.trim().to_owned()))
    }

    async fn ready(&self) -> Result<Ready, Failure> {
        let variable = std::env::var(SERVER).ok().filter(|url| !url.is_empty());
        match self.route(variable, plugin::is_plugin())? {
            Some(url) => self.at(&url),
            None => self
                .in_cluster()
                .await
                .map_err(|failure| self.with_meaning_of_namespace(failure)),
        }
    }

    /// The failure to find a dormer in a cluster, with what `-n` means: kubectl's users give it to name machines.
    fn with_meaning_of_namespace(&self, failure: Failure) -> Failure {
        match self.target.namespace {
            Some(_) => failure.explained(NAMESPACE_MEANS),
            None => failure,
        }
    }

    /// URL of the server, or `None` for the dormer in a cluster. A flag overrides the `variable`.
    fn route(&self, variable: Option<String>, plugin: bool) -> Result<Option<String>, Failure> {
        match (&self.server, self.target.named()) {
            (Some(_), true) => Err(self.with_meaning_of_namespace(Failure::Usage(
                "give either --server or a cluster (--kubeconfig, --context, -n, --as-account), not both".into(),
            ))),
            (Some(url), false) => Ok(Some(url.clone())),
            (None, true) => Ok(None),
            (None, false) if plugin => Ok(variable),
            (None, false) => Ok(variable.or_else(|| Some(HERE.to_owned()))),
        }
    }

    async fn in_cluster(&self) -> Result<Ready, Failure> {
        // The first user of TLS in a process chooses its crypto provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let given = self.token()?;
        let found = cluster::find(&self.target, self.ca_file.as_deref(), given.is_none()).await?;
        let scheme = if found.tls { "https" } else { "http" };
        let token = given.or(found.token);
        Ok(Ready {
            // Forwarded requests come from within the pod, so the host name is the pod's own.
            base: format!("{scheme}://localhost"),
            called: found.called,
            host: found.cluster,
            forwarded: Some(found.connector.clone()),
            client: Client::builder(TokioExecutor::new()).build(found.connector),
            hint: if token.is_none() { NO_TOKEN } else { "" },
            token: header_of(token)?,
        })
    }

    fn at(&self, url: &str) -> Result<Ready, Failure> {
        let base = url.trim_end_matches('/').to_owned();
        let wrong = |why: &str| Failure::Usage(format!("--server {url}: {why}"));
        let parsed: Uri = base.parse().map_err(|why| wrong(&format!("{why}")))?;
        let host = parsed.host().unwrap_or_default();
        let bare = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let (tls, port) = match parsed.scheme_str() {
            Some("http") if !host.is_empty() => (None, 80),
            Some("https") if !host.is_empty() => (Some(tls(&bare, self.ca_file.as_deref())?), 443),
            _ => {
                let what = "the URL must be http://HOST:PORT or https://HOST; kubectl dormer \
                finds a dormer in a cluster by itself";
                return Err(wrong(what));
            }
        };
        let token = self.token()?;
        if token.is_some() && tls.is_none() && !is_here(&bare) {
            return Err(wrong(
                "refusing to send a token over plain http, where anyone on the network can read \
                 it: use https or a forwarded port",
            ));
        }
        let connector = Connector {
            dial: DialTarget::Tcp(bare, parsed.port_u16().unwrap_or(port)),
            tls,
        };
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let token = header_of(token)?;
        Ok(Ready {
            called: base.clone(),
            host: host.to_owned(),
            base,
            client,
            token,
            forwarded: None,
            hint: "",
        })
    }
}

/// Whether a host is this computer.
fn is_here(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|it| it.to_canonical().is_loopback())
}

fn header_of(token: Option<String>) -> Result<Option<HeaderValue>, Failure> {
    let Some(token) = token else { return Ok(None) };
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
        Failure::Usage("the token contains characters that are not allowed in a token".into())
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

impl Server {
    /// Client for `url` without a token.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn at(url: &str) -> Result<Self, Failure> {
        let address = ServerAddress {
            server: Some(url.to_owned()),
            ..ServerAddress::default()
        };
        address.at(url)?;
        Ok(address.server())
    }

    /// Base URL, and the connector if a browser cannot reach the server directly.
    ///
    /// # Errors
    /// As for every request.
    pub(super) async fn forwarded(&self) -> Result<(&str, Option<Connector>), Failure> {
        let ready = self.ready().await?;
        Ok((&ready.base, ready.forwarded.clone()))
    }

    /// Host of the server, or of the API server of the cluster that it is in.
    ///
    /// # Errors
    /// As for every request.
    pub async fn host(&self) -> Result<&str, Failure> {
        self.ready().await.map(|ready| ready.host.as_str())
    }

    async fn ready(&self) -> Result<&Ready, Failure> {
        self.ready.get_or_try_init(|| self.address.ready()).await
    }

    /// Address with what the answers said about the server's cluster, for suggested commands.
    pub(crate) fn address(&self) -> ServerAddress {
        ServerAddress {
            kubeconfig_of_server: self.kubeconfig.get().cloned(),
            ..self.address.clone()
        }
    }

    /// Remembers the kubeconfig that an answer names. A server elsewhere has other files, and could name one here that
    /// runs a program.
    fn learn(&self, ready: &Ready, headers: &HeaderMap) {
        let path = headers.get(KUBECONFIG_HEADER);
        let path = path.and_then(|path| path.to_str().ok());
        let here = ready.forwarded.is_none() && is_here(&ready.host);
        let is_ours = |path: &&str| Path::new(path).is_absolute() && Path::new(path).is_file();
        if let Some(path) = path.filter(|path| here && is_ours(path)) {
            let _ = self.kubeconfig.set(path.to_owned());
        }
    }

    /// Gets `path` under the API.
    ///
    /// # Errors
    /// [`Failure`]: no answer, an error answer, or an answer that is no `T`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Posts `body` to `path` under the API.
    ///
    /// # Errors
    /// [`Failure`]: no answer, an error answer, or an answer that is no `T`.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body);
        let body = body.map_err(|why| Failure::Usage(format!("{path}: {why}")))?;
        self.ask(Method::POST, path, body.into()).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, Failure> {
        let ready = self.ready().await?;
        let request = ready.request(method, path, "application/json", body)?;
        let answered = tokio::time::timeout(ANSWER_MAX, ready.exchange(request)).await;
        let (parts, body) = match answered {
            Ok(answer) => answer?,
            Err(_) => return Err(ready.unreachable("no answer within 60 s")),
        };
        self.learn(ready, &parts.headers);
        let status = parts.status;
        if !status.is_success() {
            return Err(ready.refusal(status, &body));
        }
        read(&ready.called, &body)
    }

    /// Opens the event stream at `path` under the API.
    ///
    /// # Errors
    /// [`Failure`]: no answer, or an error answer.
    pub(crate) async fn listen(&self, path: &str) -> Result<Incoming, Failure> {
        let ready = self.ready().await?;
        let request = ready.request(Method::GET, path, "text/event-stream", Bytes::new())?;
        let asked = tokio::time::timeout(ANSWER_MAX, ready.client.request(request)).await;
        let answer = asked.map_err(|_| ready.unreachable("no answer within 60 s"))?;
        let answer = answer.map_err(|why| ready.unreachable(why))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        let body = body.map_err(|why| ready.unreachable(why))?;
        Err(ready.refusal(status, &body.to_bytes()))
    }
}

impl Ready {
    fn request(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{API}{path}", self.base))
            .header(ACCEPT, accept)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|why| Failure::Usage(format!("{path}: {why}")))?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        Ok(request)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(Parts, Bytes), Failure> {
        let answer = self
            .client
            .request(request)
            .await
            .map_err(|why| self.unreachable(why))?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|why| self.unreachable(why))?;
        Ok((parts, body.to_bytes()))
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> Failure {
        match Failure::from_answer(status.as_u16(), body) {
            Failure::Refused { error, .. }
                if status == StatusCode::UNAUTHORIZED && !self.hint.is_empty() =>
            {
                Failure::refused(error, self.hint)
            }
            // dormer's own 404 names the missing object, in JSON.
            Failure::Absent { error, what_to_do }
                if what_to_do.is_empty() && serde_json::from_slice::<Value>(body).is_err() =>
            {
                let error = format!("{error} at {}{API}", self.base);
                let to_do = "check the URL: it ends after the port, unless a proxy adds a path";
                Failure::Unready {
                    error,
                    what_to_do: to_do.to_owned(),
                }
            }
            other => other,
        }
    }

    fn unreachable(&self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
        Failure::Unreachable {
            server: self.called.clone(),
            why: cause_of(why.into().as_ref()),
        }
    }
}

/// Cause of a connection's failure. The outer errors only say that something failed; the innermost names the cause.
fn cause_of(why: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = why;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    // An error of IO passes over the error that it wraps, and names that one's source as its own.
    let wrapped = innermost.downcast_ref::<std::io::Error>();
    let wrapped = wrapped.and_then(|it| it.get_ref()?.downcast_ref::<rustls::Error>());
    match wrapped.or_else(|| innermost.downcast_ref()) {
        Some(rustls::Error::InvalidMessage(_)) => {
            "the port speaks no TLS; if it is dormer's, it speaks http there: use http:// instead of https://".to_owned()
        }
        _ => innermost.to_string(),
    }
}

/// Parses the answer of the server `called`. An answer that is not JSON may come from another program.
fn read<T: DeserializeOwned>(called: &str, body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|why| {
        if why.is_data() {
            return Failure::unreadable(why);
        }
        let error = format!("the answer of {called} cannot be read: {why}");
        Failure::refused(error, "check that dormer answers at that address")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_port_without_tls_differs_from_one_that_does_not_answer() {
        let tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        for error in [
            Box::new(std::io::Error::other(tls.clone())) as Box<dyn std::error::Error>,
            Box::new(tls),
        ] {
            let text = cause_of(error.as_ref());
            assert!(text.contains("it speaks http there"), "{text}");
        }
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(!cause_of(&refused).contains("http"));
    }

    #[test]
    fn a_suggested_command_goes_to_the_dormer_that_was_asked() {
        use clap::Parser as _;
        #[derive(Debug, clap::Parser)]
        struct Command {
            #[command(flatten)]
            address: ServerAddress,
        }
        let retry = json!({"say": "Try again", "argv": ["dormer", "retry", "win-1"]});
        let line = |flags: &[&str], plugin: bool, step: &Value| {
            let arguments = ["dormer"].iter().chain(flags);
            let address = Command::try_parse_from(arguments).expect("flags").address;
            let mut step: Step = serde_json::from_value(step.clone()).expect("a step");
            address.reach_as(plugin, [&mut step]);
            step.line().unwrap_or_default()
        };
        assert_eq!(line(&[], false, &retry), "dormer retry win-1");
        assert_eq!(
            line(&["--server", "http://h:7081"], false, &retry),
            "dormer retry win-1 --server http://h:7081"
        );
        assert_eq!(
            line(
                &["--context", "east", "-n", "dormer", "--token", "t"],
                true,
                &retry
            ),
            "kubectl dormer retry win-1 --context east --namespace dormer"
        );
        let fill = json!({"say": "Trust", "fill": ["dormer", "trust-host-key", "win-1"]});
        assert_eq!(
            line(&["--context", "east"], false, &fill),
            "dormer trust-host-key win-1 --context east"
        );
        let other = json!({"say": "See", "argv": ["kubectl", "get", "csr"]});
        assert_eq!(
            line(&["--context", "east", "-n", "dormer"], false, &other),
            "kubectl --context east get csr",
            "dormer's namespace is no namespace of the object"
        );
        let address = ServerAddress {
            server: Some("http://h:7081".into()),
            ..ServerAddress::default()
        };
        assert_eq!(
            address.line(&["dormer", "reset", "win-1", "--to", "6"]),
            "dormer reset win-1 --to 6 --server http://h:7081"
        );
        let recreate = json!({"say": "Replace it", "argv": ["dormer", "recreate", "win-1"]});
        let mut step: Step = serde_json::from_value(recreate).expect("a step");
        ServerAddress::default().reach_as(true, [&mut step]);
        assert!(step.takes_away(), "{:?}", step.line());
    }

    /// Answers one request with `response`, and returns the address.
    async fn answering(response: String) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = listener.await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut request = [0; 4_096];
            let _ = stream.read(&mut request).await.expect("a request");
            stream.write_all(response.as_bytes()).await.expect("sent");
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn commands_of_kubectl_go_to_the_cluster_that_a_dormer_here_names() {
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let csr = json!({"say": "See", "argv": ["kubectl", "get", "csr"]});
        for (named, expected) in [
            (here, format!("kubectl --kubeconfig {here} get csr")),
            ("/no/file", "kubectl get csr".to_owned()),
            ("Cargo.toml", "kubectl get csr".to_owned()),
        ] {
            let url = answering(format!(
                "HTTP/1.1 200 OK\r\n{KUBECONFIG_HEADER}: {named}\r\ncontent-length: 2\r\n\r\n{{}}"
            ));
            let server = Server::at(&url.await).expect("a server");
            let _: Value = server.get("/machines").await.expect("an answer");
            let mut step: Step = serde_json::from_value(csr.clone()).expect("a step");
            server.address().reach_as(false, [&mut step]);
            assert_eq!(step.line(), Some(expected), "{named}");
        }
        let mut step: Step = serde_json::from_value(csr).expect("a step");
        let address = ServerAddress {
            kubeconfig_of_server: Some(here.to_owned()),
            target: ClusterTarget {
                context: Some("east".into()),
                ..ClusterTarget::default()
            },
            ..ServerAddress::default()
        };
        address.reach_as(false, [&mut step]);
        let line = step.line();
        assert_eq!(line.as_deref(), Some("kubectl --context east get csr"));
    }

    #[test]
    fn an_answer_of_another_form_is_one_of_another_version() {
        use dormer_views::rollout::Pool;
        let refused = |body: &str| {
            let read = super::read::<Pool>("http://here", body.as_bytes());
            read.expect_err(body).to_string()
        };
        let other_version = refused(r#"{"pool":"windows"}"#);
        assert!(
            other_version.starts_with("the server's answer cannot be read: missing field")
                && other_version.ends_with("use the dormer command of the server's version"),
            "{other_version}"
        );
        let no_json = refused("<html>");
        assert!(
            no_json.contains("check that dormer answers at that address"),
            "{no_json}"
        );
    }

    #[test]
    fn a_flag_overrides_the_variable_and_two_flags_are_refused() {
        let variable = || Some("http://of-the-variable".to_owned());
        let in_namespace = ClusterTarget {
            namespace: Some("ns".into()),
            ..ClusterTarget::default()
        };
        let with = |server: Option<&str>, target: &ClusterTarget| ServerAddress {
            server: server.map(str::to_owned),
            target: target.clone(),
            ..ServerAddress::default()
        };
        let none = ClusterTarget::default();
        for (address, variable, plugin, wanted) in [
            (with(None, &none), None, false, Some(HERE)),
            (with(None, &none), None, true, None),
            (with(None, &none), variable(), true, variable().as_deref()),
            (with(None, &in_namespace), variable(), false, None),
            (
                with(Some("http://x"), &none),
                variable(),
                false,
                Some("http://x"),
            ),
        ] {
            let route = address.route(variable, plugin);
            assert_eq!(route, Ok(wanted.map(str::to_owned)));
        }
        let both = with(Some("http://x"), &in_namespace).route(None, false);
        assert!(both.is_err_and(|it| it.to_string().contains("not both")));
        // Users of kubectl mean the machines' namespace.
        let by_namespace = with(Some("http://x"), &in_namespace).route(None, false);
        let said = by_namespace.expect_err("two addresses").to_string();
        assert!(said.contains("-l namespace=NAME"), "{said}");
        let nowhere = with(None, &in_namespace);
        let said = nowhere.with_meaning_of_namespace(Failure::NoCluster("refused".into()));
        assert!(said.to_string().contains("-l namespace=NAME"), "{said}");
        let said =
            with(None, &none).with_meaning_of_namespace(Failure::NoCluster("refused".into()));
        assert!(!said.to_string().contains("-l namespace"), "{said}");
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_form_it_should_have() {
        let at = |url: &str| ServerAddress::default().at(url);
        for url in ["127.0.0.1:7080", "http://", "nats://x"] {
            let Err(Failure::Usage(why)) = at(url) else {
                panic!("{url} is taken")
            };
            assert!(why.contains("--server"), "{why}");
        }
        assert!(at("http://localhost:7080/").is_ok());
    }

    #[test]
    fn a_token_does_not_leave_this_machine_in_the_clear() {
        let address = ServerAddress {
            token: "a-token".parse().ok(),
            ..ServerAddress::default()
        };
        for near in [
            "http://localhost:7080",
            "http://127.0.0.1:7080",
            "http://[::1]:7080",
        ] {
            assert!(address.at(near).is_ok(), "{near}");
        }
        let Err(Failure::Usage(why)) = address.at("http://dormer.example:7080") else {
            panic!("it would be sent")
        };
        assert!(why.contains("https") && !why.contains("a-token"), "{why}");
    }
}
