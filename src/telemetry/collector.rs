//! Connection to a collector: HTTP over rustls, and one log line when exports begin or cease to fail.

use bytes::Bytes;
use dormer_proto::lock::Locked as _;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_sdk::error::OTelSdkResult;
use rustls::ClientConfig;
use std::{
    error::Error,
    io,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::timeout;

/// Largest answer, in bytes. A collector's answer is short.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Telemetry signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtlpSignal {
    /// Spans.
    Traces,
    Metrics,
    /// Lines of the audit.
    Logs,
}

impl OtlpSignal {
    /// Name in log lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }

    /// Name in environment variables.
    pub(super) fn variable(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }

    /// Path in OTLP over HTTP.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
            Self::Logs => "/v1/logs",
        }
    }
}

/// HTTP client of `opentelemetry-otlp` for one signal's endpoint.
#[derive(Debug)]
pub(crate) struct Collector {
    signal: OtlpSignal,
    /// Endpoint without user, password and query.
    address: String,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
    /// Cause of the last failure, which the libraries do not report. Lock held for an assignment, never across an
    /// await.
    cause: Mutex<Option<String>>,
    /// Whether the last export failed.
    failing: AtomicBool,
}

impl Collector {
    /// Client of the collector at `endpoint`. `timeout` limits each request.
    pub(super) fn new(
        signal: OtlpSignal,
        endpoint: &Uri,
        tls: ClientConfig,
        timeout: Duration,
    ) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        let scheme = endpoint.scheme_str().unwrap_or("http");
        let host = endpoint.host().unwrap_or_default();
        let port = endpoint.port().map(|port| format!(":{port}"));
        let path = endpoint.path();
        Self {
            signal,
            address: format!("{scheme}://{host}{}{path}", port.unwrap_or_default()),
            client: Client::builder(TokioExecutor::new()).build(connector),
            timeout,
            cause: Mutex::default(),
            failing: AtomicBool::new(false),
        }
    }

    /// Logs an export's result if it differs from the previous one.
    pub(crate) fn note(&self, exported: &OTelSdkResult) {
        let failed = exported.is_err();
        if self.failing.swap(failed, Ordering::Relaxed) == failed {
            return;
        }
        let address = &self.address;
        let signal = self.signal.name();
        match exported {
            Ok(()) => tracing::info!("the collector at {address} accepts {signal} again"),
            Err(error) => {
                let cause = self.cause().take().unwrap_or_else(|| error.to_string());
                tracing::warn!("the collector at {address} does not accept {signal}: {cause}");
            }
        }
    }

    fn cause(&self) -> MutexGuard<'_, Option<String>> {
        self.cause.locked()
    }

    async fn post(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let request = Request::from_parts(head, Full::new(body));
        let (head, body) = self.client.request(request).await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

impl HttpClient for Collector {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> BoxFuture<'b, Result<Response<Bytes>, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = timeout(self.timeout, self.post(request)).await;
            let answer = answer.unwrap_or_else(|_| {
                let limit = self.timeout.as_secs_f64();
                Err(format!("no answer within {limit} s").into())
            });
            let cause = match &answer {
                Ok(answer) if answer.status().is_success() => None,
                Ok(answer) => Some(format!("it answered {}", answer.status())),
                Err(error) => Some(sentence(error.as_ref())),
            };
            *self.cause() = cause;
            answer
        })
    }
}

/// Error with its causes and a remedy.
fn sentence(error: &(dyn Error + 'static)) -> String {
    let unconnected = error.downcast_ref().is_some_and(legacy::Error::is_connect);
    let mut text = if unconnected {
        "no connection".to_owned()
    } else {
        error.to_string()
    };
    let mut certificate = false;
    let mut next = error.source();
    while let Some(cause) = next {
        certificate |= is_certificate(cause);
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    if certificate {
        text.push_str(
            "; set OTEL_EXPORTER_OTLP_CERTIFICATE to a file with the CA of the collector's \
             certificate",
        );
    }
    text
}

/// Whether the collector's certificate was rejected. `source` of an IO error skips the wrapped error, so it is
/// unwrapped here.
fn is_certificate(error: &(dyn Error + 'static)) -> bool {
    if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
        return true;
    }
    let inner = error.downcast_ref().and_then(io::Error::get_ref);
    inner.is_some_and(|inner| is_certificate(inner))
}
