//! Spans and metrics on their way out: OTLP over HTTP, as JSON. Whatever cannot be sent is dropped and counted: nothing
//! waits for a collector.

use super::spans::Span;
use crate::metrics::deeds::SpanDeeds;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, Uri, header::CONTENT_TYPE};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// Spans that may wait to be sent.
const WAITING_MAX: usize = 16_384;
/// Spans in one message.
const BATCH_MAX: usize = 512;
/// How long a span waits for company.
const COMPANY: Duration = Duration::from_millis(250);
/// How long a collector may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The pause before the one second try.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Where OTLP over HTTP takes traces.
const TRACES: &str = "/v1/traces";
/// Where it takes metrics.
const METRICS: &str = "/v1/metrics";

/// What is put into the way out.
enum Item {
    Span(Box<Span>),
    /// Say when everything before is sent.
    Flush(oneshot::Sender<()>),
}

/// The way to a collector.
#[derive(Clone)]
pub(crate) struct Exporter {
    way: mpsc::Sender<Item>,
    deeds: Arc<SpanDeeds>,
}

impl Exporter {
    /// The way to the collector at `endpoint`, `http://HOST:PORT`; `name` is this process's.
    ///
    /// # Errors
    /// The endpoint is no plain HTTP URL.
    pub(crate) fn to(endpoint: &str, name: &str, deeds: Arc<SpanDeeds>) -> anyhow::Result<Self> {
        let collector = Collector::at(endpoint, TRACES)?;
        let (way, items) = mpsc::channel(WAITING_MAX);
        let sending = Sending {
            collector,
            resource: resource(name),
            deeds: Arc::clone(&deeds),
        };
        tokio::spawn(sending.run(items));
        Ok(Self { way, deeds })
    }

    /// Sends spans, or drops those for which there is no room.
    pub(crate) fn send(&self, spans: impl IntoIterator<Item = Span>) {
        for span in spans {
            if self.way.try_send(Item::Span(Box::new(span))).is_err() {
                self.deeds.dropped(1);
            }
        }
    }

    /// Waits until everything is sent that was put in before.
    pub(crate) async fn flush(&self) {
        let (told, done) = oneshot::channel();
        if self.way.send(Item::Flush(told)).await.is_ok() {
            // The other end is gone only with the whole process.
            let _ = done.await;
        }
    }
}

/// One of a collector's endpoints.
struct Collector {
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
}

impl Collector {
    fn at(endpoint: &str, path: &str) -> anyhow::Result<Self> {
        let base = endpoint.trim_end_matches('/').trim_end_matches(TRACES);
        let uri: Uri = format!("{base}{path}").parse()?;
        anyhow::ensure!(
            uri.scheme_str() == Some("http") && uri.authority().is_some(),
            "--otlp-endpoint {endpoint}: it is http://HOST:PORT of a collector nearby, which may speak TLS onwards"
        );
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
            uri,
        })
    }

    async fn post(&self, body: Bytes) -> anyhow::Result<()> {
        let request = Request::post(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let answer = timeout(ANSWER_MAX, self.client.request(request)).await??;
        let status = answer.status();
        timeout(ANSWER_MAX, answer.into_body().collect()).await??;
        anyhow::ensure!(status == StatusCode::OK, "the collector says {status}");
        Ok(())
    }
}

/// The way of metrics to a collector.
pub struct Meter {
    collector: Collector,
    resource: Value,
}

impl Meter {
    /// The way to the collector at `endpoint`, `http://HOST:PORT`; `name` is this process's.
    ///
    /// # Errors
    /// The endpoint is no plain HTTP URL.
    pub fn to(endpoint: &str, name: &str) -> anyhow::Result<Self> {
        Ok(Self {
            collector: Collector::at(endpoint, METRICS)?,
            resource: resource(name),
        })
    }

    /// Sends `metrics`, each as OTLP/JSON has it.
    ///
    /// # Errors
    /// The collector did not take them; the next ones hold all that these did, as sums go on growing.
    pub(crate) async fn send(&self, metrics: Vec<Value>) -> anyhow::Result<()> {
        let message = json!({"resourceMetrics": [{
            "resource": self.resource,
            "scopeMetrics": [{"scope": {"name": "dormer"}, "metrics": metrics}],
        }]});
        self.collector.post(Bytes::from(message.to_string())).await
    }
}

struct Sending {
    collector: Collector,
    resource: Value,
    deeds: Arc<SpanDeeds>,
}

impl Sending {
    async fn run(self, mut items: mpsc::Receiver<Item>) {
        while let Some(first) = items.recv().await {
            let mut spans = Vec::new();
            let mut told = Vec::new();
            sort(first, &mut spans, &mut told);
            let company = async {
                while told.is_empty() && spans.len() < BATCH_MAX {
                    let Some(next) = items.recv().await else {
                        return;
                    };
                    sort(next, &mut spans, &mut told);
                }
            };
            // What was sorted before the time was up stays sorted: `recv` loses nothing when it is dropped.
            let _ = timeout(COMPANY, company).await;
            self.send(&spans).await;
            for told in told {
                let _ = told.send(());
            }
        }
    }

    async fn send(&self, spans: &[Span]) {
        if spans.is_empty() {
            return;
        }
        let body = Bytes::from(message(&self.resource, spans).to_string());
        let mut sent = self.collector.post(body.clone()).await;
        if sent.is_err() {
            tokio::time::sleep(AGAIN_AFTER).await;
            sent = self.collector.post(body).await;
        }
        match sent {
            Ok(()) => self.deeds.sent(spans.len() as u64),
            Err(error) => {
                tracing::debug!(%error, spans = spans.len(), "spans are lost");
                self.deeds.dropped(spans.len() as u64);
            }
        }
    }
}

fn sort(item: Item, spans: &mut Vec<Span>, told: &mut Vec<oneshot::Sender<()>>) {
    match item {
        Item::Span(span) => spans.push(*span),
        Item::Flush(tell) => told.push(tell),
    }
}

pub(super) fn resource(name: &str) -> Value {
    json!({"attributes": [
        attribute("service.name", "dormer"),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
        attribute("service.instance.id", name),
    ]})
}

/// An attribute as OTLP/JSON has it.
pub(crate) fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// An `ExportTraceServiceRequest` as OTLP/JSON: ids in hex, times as decimal strings.
pub(super) fn message(resource: &Value, spans: &[Span]) -> Value {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": resource,
        "scopeSpans": [{"scope": {"name": "dormer"}, "spans": spans}],
    }]})
}

fn span(span: &Span) -> Value {
    let nanos = |ms: u64| ms.saturating_mul(1_000_000).to_string();
    let attributes: Vec<Value> = span
        .attributes
        .iter()
        .map(|(key, value)| attribute(key, value))
        .collect();
    let mut told = json!({
        "traceId": span.trace.to_string(),
        "spanId": span.id.to_string(),
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": nanos(span.from),
        "endTimeUnixNano": nanos(span.to),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        told["parentSpanId"] = parent.to_string().into();
    }
    if let Some(error) = &span.error {
        told["status"] = json!({"code": 2, "message": error});
    }
    if let Some((trace, root)) = span.link {
        told["links"] = json!([{"traceId": trace.to_string(), "spanId": root.to_string()}]);
    }
    told
}
