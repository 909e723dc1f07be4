//! Queue of spans in front of OpenTelemetry's exporter. Spans that cannot be sent are dropped and counted, so that no
//! work waits for a collector.

use super::{collector::Collector, spans::Span};
use crate::metrics::process::SpanMetrics;
use opentelemetry::{
    InstrumentationScope, KeyValue,
    trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState},
};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::{
    Config, SamplingDecision, ShouldSample, SpanData, SpanEvents, SpanExporter as _, SpanLinks,
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// Most spans that wait to be sent.
const QUEUE_MAX: usize = 16_384;
/// Spans in one request.
const BATCH_MAX: usize = 512;
/// How long an incomplete batch waits for more spans.
const BATCH_DELAY: Duration = Duration::from_millis(250);

/// Queue entry.
enum ExporterInput {
    Span(Box<Span>),
    /// Flush request, answered once everything before it is sent or dropped.
    Flush(oneshot::Sender<()>),
}

/// Sending end of the queue.
#[derive(Clone)]
pub(super) struct Exporter {
    queue: mpsc::Sender<ExporterInput>,
    /// Sampler. It decides by the trace id, so every process decides alike.
    sampler: Arc<dyn ShouldSample>,
    counts: Arc<SpanMetrics>,
}

impl Exporter {
    /// Queue in front of `exporter`, emptied by a task of its own.
    pub(super) fn new(
        exporter: SpanExporter,
        collector: Arc<Collector>,
        counts: Arc<SpanMetrics>,
    ) -> Self {
        let (queue, items) = mpsc::channel(QUEUE_MAX);
        let sending = Sending {
            exporter,
            collector,
            scope: super::scope(),
            counts: Arc::clone(&counts),
        };
        tokio::spawn(sending.run(items));
        Self {
            queue,
            sampler: Arc::from(Config::default().sampler),
            counts,
        }
    }

    /// Queues the spans of traces that are sampled. Drops those for which there is no room.
    pub(super) fn send(&self, spans: impl IntoIterator<Item = Span>) {
        for span in spans.into_iter().filter(|span| self.samples(span)) {
            if self
                .queue
                .try_send(ExporterInput::Span(Box::new(span)))
                .is_err()
            {
                self.counts.dropped(1);
            }
        }
    }

    fn samples(&self, span: &Span) -> bool {
        let trace = TraceId::from_bytes(span.trace.0);
        let kind = SpanKind::Internal;
        let result = self
            .sampler
            .should_sample(None, trace, &span.name, &kind, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }

    /// Waits until everything that was queued before is sent or dropped.
    pub(super) async fn flush(&self) {
        let (answer, answered) = oneshot::channel();
        if self.queue.send(ExporterInput::Flush(answer)).await.is_ok() {
            // The receiver exists as long as the process.
            let _ = answered.await;
        }
    }
}

/// Receiving end of the queue.
struct Sending {
    exporter: SpanExporter,
    collector: Arc<Collector>,
    scope: InstrumentationScope,
    counts: Arc<SpanMetrics>,
}

impl Sending {
    async fn run(self, mut items: mpsc::Receiver<ExporterInput>) {
        while let Some(first) = items.recv().await {
            let mut batch = Batch::default();
            batch.add(first);
            let more = async {
                while !batch.is_complete() {
                    let Some(next) = items.recv().await else {
                        return;
                    };
                    batch.add(next);
                }
            };
            // Spans received before the timeout stay in the batch: `recv` is cancel-safe.
            let _ = timeout(BATCH_DELAY, more).await;
            self.send(batch.spans).await;
            for answer in batch.flushes {
                let _ = answer.send(());
            }
        }
    }

    async fn send(&self, spans: Vec<Span>) {
        if spans.is_empty() {
            return;
        }
        let count = spans.len() as u64;
        let batch = spans.into_iter().map(|span| data(span, &self.scope));
        let exported = self.exporter.export(batch.collect()).await;
        self.collector.note(&exported);
        match exported {
            Ok(()) => self.counts.sent(count),
            Err(_) => self.counts.dropped(count),
        }
    }
}

/// Spans for one request.
#[derive(Default)]
struct Batch {
    spans: Vec<Span>,
    flushes: Vec<oneshot::Sender<()>>,
}

impl Batch {
    fn add(&mut self, item: ExporterInput) {
        match item {
            ExporterInput::Span(span) => self.spans.push(*span),
            ExporterInput::Flush(answer) => self.flushes.push(answer),
        }
    }

    fn is_complete(&self) -> bool {
        !self.flushes.is_empty() || self.spans.len() >= BATCH_MAX
    }
}

/// Span in the SDK's form with dormer's derived ids. The SDK's tracer would generate random ones.
pub(super) fn data(span: Span, scope: &InstrumentationScope) -> SpanData {
    let attributes = span.attributes.into_iter();
    let attributes = attributes.map(|(key, value)| KeyValue::new(key, value));
    let mut links = SpanLinks::default();
    links.links.extend(span.link.map(|(trace, root)| {
        let before = context(trace.0, root.0);
        Link::with_context(before)
    }));
    SpanData {
        span_context: context(span.trace.0, span.id.0),
        parent_span_id: span
            .parent
            .map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.0)),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: span.name.into(),
        start_time: time(span.from),
        end_time: time(span.to),
        attributes: attributes.collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status: span.error.map_or(Status::Unset, Status::error),
        instrumentation_scope: scope.clone(),
    }
}

fn context(trace: [u8; 16], span: [u8; 8]) -> SpanContext {
    let trace = TraceId::from_bytes(trace);
    let span = SpanId::from_bytes(span);
    SpanContext::new(
        trace,
        span,
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    )
}

/// Time from milliseconds since 1970.
fn time(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds)
}
