//! A running dormer, as the commands reach it: JSON over HTTP.

use super::Failure;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, StatusCode, Uri,
    body::Incoming,
    header::{ACCEPT, CONTENT_TYPE},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use std::time::Duration;

/// The server waits for an engine to take a request; this is longer than it does.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How long a connection may take to stand.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The largest answer that is read, in bytes: thousands of machines, each of about a kilobyte.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Where the API begins.
const API: &str = "/api/v1";

/// A server and the way to it.
pub(crate) struct Server {
    base: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Server {
    /// The server at `url`, such as `http://127.0.0.1:7080`.
    ///
    /// # Errors
    /// The URL is none, or not plain HTTP.
    pub(crate) fn at(url: &str) -> Result<Self, Failure> {
        let base = url.trim_end_matches('/').to_owned();
        let parsed: Uri =
            base.parse().map_err(|why| Failure::Usage(format!("--server {url}: {why}")))?;
        if parsed.scheme_str() != Some("http") || parsed.authority().is_none() {
            let what =
                "it is http://HOST:PORT; to a cluster, forward the port (kubectl port-forward)";
            return Err(Failure::Usage(format!("--server {url}: {what}")));
        }
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_MAX));
        Ok(Self { base, client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    /// Asks for what is at `path` under the API.
    ///
    /// # Errors
    /// [`Failure`]: nobody answers, or the answer is no.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// [`Failure`]: nobody answers, or the answer is no.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.ask(Method::POST, path, body.to_string().into()).await
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Value, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{API}{path}", self.base))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|why| Failure::Usage(format!("{path}: {why}")))?;
        let answered = tokio::time::timeout(ANSWER_MAX, self.exchange(request)).await;
        let (status, body) = match answered {
            Ok(answer) => answer?,
            Err(_) => return Err(self.unreachable("it took too long")),
        };
        if !status.is_success() {
            return Err(Failure::from_answer(status.as_u16(), &body));
        }
        let error = |why: serde_json::Error| Failure::Refused {
            error: format!("the answer of {} cannot be read: {why}", self.base),
            what_to_do: "is it dormer that answers there?".into(),
        };
        serde_json::from_slice(&body).map_err(error)
    }

    /// Listens to the stream of events at `path` under the API.
    ///
    /// # Errors
    /// [`Failure`]: nobody answers, or the answer is no.
    pub(crate) async fn listen(&self, path: &str) -> Result<Incoming, Failure> {
        let request = Request::get(format!("{}{API}{path}", self.base))
            .header(ACCEPT, "text/event-stream")
            .body(Full::new(Bytes::new()))
            .map_err(|why| Failure::Usage(format!("{path}: {why}")))?;
        let asked = tokio::time::timeout(ANSWER_MAX, self.client.request(request)).await;
        let answer = asked.map_err(|_| self.unreachable("it took too long"))?;
        let answer = answer.map_err(|why| self.unreachable(why))?;
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|why| self.unreachable(why))?;
        Err(Failure::from_answer(status, &body.to_bytes()))
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let answer = self.client.request(request).await.map_err(|why| self.unreachable(why))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|why| self.unreachable(why))?;
        Ok((status, body.to_bytes()))
    }

    fn unreachable(&self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
        let why = why.into();
        // The outer errors only say that something failed; the innermost says what.
        let mut innermost: &dyn std::error::Error = why.as_ref();
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Failure::Unreachable { server: self.base.clone(), why: innermost.to_string() }
    }
}

/// `text` as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
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
    fn a_name_of_any_letters_is_one_segment() {
        assert_eq!(segment("ns/win-1 ü"), "ns%2Fwin-1%20%C3%BC");
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_form_it_should_have() {
        for url in ["127.0.0.1:7080", "https://dormer", "http://", "nats://x"] {
            let Err(Failure::Usage(why)) = Server::at(url) else { panic!("{url} is taken") };
            assert!(why.contains("--server"), "{why}");
        }
        assert!(Server::at("http://localhost:7080/").is_ok());
    }
}
