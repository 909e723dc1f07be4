//! HTTP client of a running dormer: JSON over HTTP or HTTPS, on this computer, elsewhere, or in a cluster.

use super::{
    Failure,
    cluster::{self, ClusterTarget},
    connector::{Connector, Dial, tls},
};
use crate::plugin;
use bytes::Bytes;
use clap::Args;
pub use dormer_views::address::segment;
use dormer_views::{explain::Step, secret::Secret};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, StatusCode, Uri,
    body::Incoming,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{path::PathBuf, time::Duration};
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
pub struct Address {
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
}

/// Client of one server. It resolves the connection at the first request.
pub struct Server {
    address: Address,
    ready: OnceCell<Ready>,
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

/// The flags that have a value, each with it.
fn given<const N: usize>(flags: [(&str, Option<String>); N]) -> Vec<String> {
    let given = flags.into_iter();
    let given = given.filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    given.flatten().collect()
}

impl Address {
    /// Client for this address. It sends nothing yet.
    pub fn server(&self) -> Server {
        Server {
            address: self.clone(),
            ready: OnceCell::new(),
        }
    }

    /// Makes commands of dormer's ones for this address. What a variable says still holds for them, and a token is never shown.
    pub(crate) fn reach<'a>(&self, steps: impl IntoIterator<Item = &'a mut Step>) {
        self.reach_as(plugin::is_plugin(), steps);
    }

    fn reach_as<'a>(&self, plugin: bool, steps: impl IntoIterator<Item = &'a mut Step>) {
        let target = &self.target;
        let kubeconfig = target
            .kubeconfig
            .as_ref()
            .map(|it| it.display().to_string());
        let cluster = [
            ("--kubeconfig", kubeconfig),
            ("--context", target.context.clone()),
        ];
        let cluster = given(cluster);
        let mut flags = given([("--server", self.server.clone())]);
        flags.extend_from_slice(&cluster);
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
            None => self.in_cluster().await,
        }
    }

    /// URL of the server, or `None` for the dormer in a cluster. A flag overrides the `variable`.
    fn route(&self, variable: Option<String>, plugin: bool) -> Result<Option<String>, Failure> {
        match (&self.server, self.target.named()) {
            (Some(_), true) => Err(Failure::Usage(
                "give either --server or a cluster (--kubeconfig, --context, -n, --as-account), not both".into(),
            )),
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
            dial: Dial::Tcp(bare, parsed.port_u16().unwrap_or(port)),
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
        let address = Address {
            server: Some(url.to_owned()),
            ..Address::default()
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
        let (status, body) = match answered {
            Ok(answer) => answer?,
            Err(_) => return Err(ready.unreachable("no answer within 60 s")),
        };
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

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let answer = self
            .client
            .request(request)
            .await
            .map_err(|why| self.unreachable(why))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        let body = body.map_err(|why| self.unreachable(why))?;
        Ok((status, body.to_bytes()))
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
        let why = why.into();
        // The outer errors only say that something failed. The innermost names the cause.
        let mut innermost: &dyn std::error::Error = why.as_ref();
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let mut text = innermost.to_string();
        let tls = innermost.downcast_ref::<rustls::Error>();
        if let Some(rustls::Error::InvalidMessage(_)) = tls {
            // What answers does not speak TLS.
            text =
                "the port speaks no TLS; if it is dormer's, use http:// instead of https://".into();
        }
        Failure::Unreachable {
            server: self.called.clone(),
            why: text,
        }
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
    fn a_suggested_command_goes_to_the_dormer_that_was_asked() {
        use clap::Parser as _;
        #[derive(Debug, clap::Parser)]
        struct Command {
            #[command(flatten)]
            address: Address,
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
        let recreate = json!({"say": "Replace it", "argv": ["dormer", "recreate", "win-1"]});
        let mut step: Step = serde_json::from_value(recreate).expect("a step");
        Address::default().reach_as(true, [&mut step]);
        assert!(step.takes_away(), "{:?}", step.line());
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
        let with = |server: Option<&str>, target: &ClusterTarget| Address {
            server: server.map(str::to_owned),
            target: target.clone(),
            ..Address::default()
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
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_form_it_should_have() {
        let at = |url: &str| Address::default().at(url);
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
        let address = Address {
            token: "a-token".parse().ok(),
            ..Address::default()
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
