//! A running dormer, as the commands reach it: JSON over HTTP or HTTPS, on this machine, elsewhere, or in a cluster.

use super::{
    Failure,
    cluster::{self, ClusterTarget},
    connector::{Connector, Dial, tls},
};
use crate::plugin;
use bytes::Bytes;
use clap::Args;
use dormer_views::secret::Secret;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, StatusCode, Uri,
    body::Incoming,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::{Serialize, de::DeserializeOwned};
use std::{path::PathBuf, time::Duration};
use tokio::sync::OnceCell;

/// The server waits for an engine to take a request; this is longer than it does.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The largest answer that is read, in bytes: thousands of machines, each of about a kilobyte.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Where the API begins.
const API: &str = "/api/v1";

/// Which server is asked, and as whom.
#[derive(Debug, Clone, Default, Args)]
pub struct Address {
    /// Where dormer's API answers [default: http://127.0.0.1:7080; of kubectl dormer: the one in the cluster]
    #[arg(long, env = "DORMER_SERVER", value_name = "URL")]
    server: Option<String>,
    /// A bearer token that says who asks; better in the environment or a file than on the command line
    #[arg(
        long,
        env = "DORMER_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    token: Option<Secret>,
    /// A file with that token
    #[arg(
        long,
        env = "DORMER_TOKEN_FILE",
        value_name = "FILE",
        conflicts_with = "token"
    )]
    token_file: Option<PathBuf>,
    /// Authorities (PEM) for https, in place of the system's
    #[arg(long, env = "DORMER_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    target: ClusterTarget,
}

/// A server; the way to it is found when it is asked for the first time.
pub struct Server {
    address: Address,
    ready: OnceCell<Ready>,
}

/// The way to a server.
struct Ready {
    /// What URLs begin with.
    base: String,
    /// What it is called when it does not answer.
    called: String,
    client: Client<Connector, Full<Bytes>>,
    token: Option<HeaderValue>,
    /// The way, where it leads through an API server.
    forwarded: Option<Connector>,
    /// What is said beside a 401.
    hint: &'static str,
}

/// The address of a dormer on this machine.
const HERE: &str = "http://127.0.0.1:7080";
/// What somebody reads whose kubeconfig shows no token.
const NO_TOKEN: &str = "your kubeconfig shows no bearer token (a client certificate is seen by the API server alone, \
     not through a forwarded port): say --as-account NAMESPACE/NAME to ask by a short token of that service account, \
     or --token-file";

impl Address {
    /// The server; nothing is sent yet.
    pub fn server(&self) -> Server {
        Server {
            address: self.clone(),
            ready: OnceCell::new(),
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
        let in_cluster = self.target.named() || plugin::is_plugin();
        match (&self.server, in_cluster) {
            (None, true) => self.in_cluster().await,
            (Some(_), true) if self.target.named() => Err(Failure::Usage(
                "--server (or DORMER_SERVER) and a place in a cluster: one of them is enough"
                    .into(),
            )),
            (server, _) => self.at(server.as_deref().unwrap_or(HERE)),
        }
    }

    async fn in_cluster(&self) -> Result<Ready, Failure> {
        // Whoever speaks TLS first here says which library does it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let given = self.token()?;
        let found = cluster::find(&self.target, self.ca_file.as_deref(), given.is_none()).await?;
        let scheme = if found.tls { "https" } else { "http" };
        let token = given.or(found.token);
        Ok(Ready {
            // Under the pod's own name for itself: what is forwarded comes from there.
            base: format!("{scheme}://localhost"),
            called: found.called,
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
                let what = "it is http://HOST:PORT or https://HOST; kubectl dormer finds the one in a cluster";
                return Err(wrong(what));
            }
        };
        let token = self.token()?;
        if token.is_some() && tls.is_none() && !is_here(&bare) {
            return Err(wrong(
                "a token would go over the network for everybody to read: ask by https, or through a forwarded port",
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
            base,
            client,
            token,
            forwarded: None,
            hint: "",
        })
    }
}

/// Whether a host is this machine.
fn is_here(host: &str) -> bool {
    let address = host.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|it| it.to_canonical().is_loopback())
}

fn header_of(token: Option<String>) -> Result<Option<HeaderValue>, Failure> {
    let Some(token) = token else { return Ok(None) };
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| Failure::Usage("the token has letters that no token has".into()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

impl Server {
    /// The server at `url`, which wants no token.
    ///
    /// # Errors
    /// The URL is none.
    pub fn at(url: &str) -> Result<Self, Failure> {
        let address = Address {
            server: Some(url.to_owned()),
            ..Address::default()
        };
        address.at(url)?;
        Ok(address.server())
    }

    /// What its URLs begin with; and the way to it, where no browser finds it by itself.
    ///
    /// # Errors
    /// As every question.
    pub(super) async fn forwarded(&self) -> Result<(&str, Option<Connector>), Failure> {
        let ready = self.ready().await?;
        Ok((&ready.base, ready.forwarded.clone()))
    }

    async fn ready(&self) -> Result<&Ready, Failure> {
        self.ready.get_or_try_init(|| self.address.ready()).await
    }

    /// Asks for what is at `path` under the API.
    ///
    /// # Errors
    /// [`Failure`]: nobody answers, the answer is no, or it is of another form than a `T`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// [`Failure`]: nobody answers, the answer is no, or it is of another form than a `T`.
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
            Err(_) => return Err(ready.unreachable("it took too long")),
        };
        if !status.is_success() {
            return Err(ready.refusal(status, &body));
        }
        read(&ready.called, &body)
    }

    /// Listens to the stream of events at `path` under the API.
    ///
    /// # Errors
    /// [`Failure`]: nobody answers, or the answer is no.
    pub(crate) async fn listen(&self, path: &str) -> Result<Incoming, Failure> {
        let ready = self.ready().await?;
        let request = ready.request(Method::GET, path, "text/event-stream", Bytes::new())?;
        let asked = tokio::time::timeout(ANSWER_MAX, ready.client.request(request)).await;
        let answer = asked.map_err(|_| ready.unreachable("it took too long"))?;
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
            other => other,
        }
    }

    fn unreachable(&self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
        let why = why.into();
        // The outer errors only say that something failed; the innermost says what.
        let mut innermost: &dyn std::error::Error = why.as_ref();
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Failure::Unreachable {
            server: self.called.clone(),
            why: innermost.to_string(),
        }
    }
}

/// Reads the answer of the server that is `called` so. What is no JSON at all may not be dormer's.
fn read<T: DeserializeOwned>(called: &str, body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|why| {
        if why.is_data() {
            return Failure::unreadable(why);
        }
        let error = format!("the answer of {called} cannot be read: {why}");
        Failure::refused(error, "is it dormer that answers there?")
    })
}

/// `text` as one segment of a path.
pub fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte))
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_one_path_segment() {
        assert_eq!(segment("ns/win-1 ü"), "ns%2Fwin-1%20%C3%BC");
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
                && other_version.ends_with("ask with the dormer command of the server's version"),
            "{other_version}"
        );
        let no_json = refused("<html>");
        assert!(
            no_json.contains("is it dormer that answers there?"),
            "{no_json}"
        );
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
