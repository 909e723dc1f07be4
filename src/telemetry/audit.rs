//! Copies of the audit's lines for OpenTelemetry's exporter. The audit log is written first; a copy that cannot be sent is
//! dropped, and the next one says how many are missing.

use crate::{collector::Collector, otlp::Export};
use dormer_proto::id::Timestamp;
use opentelemetry::{
    InstrumentationScope,
    logs::{AnyValue, LogRecord, Logger, LoggerProvider, Severity},
};
use opentelemetry_otlp::LogExporter;
use opentelemetry_sdk::logs::{
    LogBatch, LogExporter as _, SdkLogRecord, SdkLogger, SdkLoggerProvider,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// Most lines that wait to be sent.
const QUEUE_MAX: usize = 4_096;
/// Most lines in one request.
const BATCH_MAX: usize = 512;
/// Name of every record.
const EVENT: &str = "dormer.audit";
/// Attribute with the number of lines before this one that were not sent.
const UNSENT: &str = "dormer.audit.unsent";

/// A line of the audit log.
#[derive(Debug)]
pub struct AuditLine {
    pub at: Timestamp,
    /// Whether the line is about a request that was refused.
    pub refused: bool,
    /// The JSON object, without the end of the line.
    pub text: String,
}

/// Queue entry.
enum AuditInput {
    Line(AuditLine),
    /// Flush request, answered once everything before it is sent or dropped.
    Flush(oneshot::Sender<()>),
}

/// Sending end of the queue.
#[derive(Debug, Clone)]
pub struct AuditExport {
    queue: mpsc::Sender<AuditInput>,
    /// Lines not sent since the last one that was.
    unsent: Arc<AtomicU64>,
}

impl AuditExport {
    /// Queue in front of the collector of logs, if `export` has one. A task of its own empties it, so this needs a runtime.
    ///
    /// # Errors
    /// The exporter refuses its settings.
    pub fn new(export: &Export) -> anyhow::Result<Option<Self>> {
        let Some((exporter, collector)) = export.logs()? else {
            return Ok(None);
        };
        let (queue, items) = mpsc::channel(QUEUE_MAX);
        let unsent = Arc::<AtomicU64>::default();
        let scope = super::scope();
        let sending = Sending {
            exporter,
            collector,
            // Only a logger makes records. This one sends none itself.
            logger: SdkLoggerProvider::builder()
                .build()
                .logger_with_scope(scope.clone()),
            scope,
            unsent: Arc::clone(&unsent),
        };
        tokio::spawn(sending.run(items));
        Ok(Some(Self { queue, unsent }))
    }

    /// Queues a line. Without room it is dropped.
    pub fn send(&self, line: AuditLine) {
        if self.queue.try_send(AuditInput::Line(line)).is_err() {
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the collector has all lines that were queued before, at most `FLUSH_MAX`.
    pub async fn flush(&self) {
        let (answer, answered) = oneshot::channel();
        let flushed = async {
            if self.queue.send(AuditInput::Flush(answer)).await.is_ok() {
                // The receiver exists as long as the process.
                let _ = answered.await;
            }
        };
        if timeout(super::FLUSH_MAX, flushed).await.is_err() {
            tracing::warn!(
                "the collector of logs does not answer; the last lines are in the audit log alone"
            );
        }
    }
}

/// Receiving end of the queue.
struct Sending {
    exporter: LogExporter,
    collector: Arc<Collector>,
    logger: SdkLogger,
    scope: InstrumentationScope,
    unsent: Arc<AtomicU64>,
}

impl Sending {
    async fn run(self, mut items: mpsc::Receiver<AuditInput>) {
        let mut batch = Vec::new();
        while items.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let mut lines = Vec::new();
            let mut flushes = Vec::new();
            for item in batch.drain(..) {
                match item {
                    AuditInput::Line(line) => lines.push(line),
                    AuditInput::Flush(answer) => flushes.push(answer),
                }
            }
            self.send(lines).await;
            for answer in flushes {
                let _ = answer.send(());
            }
        }
    }

    async fn send(&self, lines: Vec<AuditLine>) {
        if lines.is_empty() {
            return;
        }
        let count = lines.len() as u64;
        let unsent = self.unsent.swap(0, Ordering::Relaxed);
        let mut records = Vec::new();
        for line in lines {
            let unsent = if records.is_empty() { unsent } else { 0 };
            records.push(record(&self.logger, line, unsent));
        }
        let batch: Vec<(&SdkLogRecord, &InstrumentationScope)> =
            records.iter().map(|record| (record, &self.scope)).collect();
        let exported = self.exporter.export(LogBatch::new(&batch)).await;
        self.collector.note(&exported);
        if exported.is_err() {
            self.unsent.fetch_add(unsent + count, Ordering::Relaxed);
        }
    }
}

/// Record of a line. `unsent`: lines before it that were not sent.
fn record(logger: &SdkLogger, line: AuditLine, unsent: u64) -> SdkLogRecord {
    let at = UNIX_EPOCH + Duration::from_millis(line.at.0);
    let severity = if line.refused {
        Severity::Warn
    } else {
        Severity::Info
    };
    let mut record = logger.create_log_record();
    record.set_event_name(EVENT);
    record.set_timestamp(at);
    record.set_observed_timestamp(at);
    record.set_severity_number(severity);
    record.set_severity_text(severity.name());
    record.set_body(AnyValue::from(line.text));
    if unsent > 0 {
        record.add_attribute(UNSENT, i64::try_from(unsent).unwrap_or(i64::MAX));
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_testkit::{OtlpReceiver, started};
    use serde_json::Value;

    fn line(text: &str, refused: bool) -> AuditLine {
        AuditLine {
            at: Timestamp(1_000),
            refused,
            text: text.into(),
        }
    }

    fn export(endpoint: &str) -> AuditExport {
        let export = Export::new(Some(endpoint), "c").expect("a URL");
        AuditExport::new(&export).expect("settings").expect("logs")
    }

    #[tokio::test]
    async fn a_copy_for_a_collector_that_is_not_there_is_counted() {
        // Nothing listens there: the port was bound and closed again.
        let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let copies = export(&format!("http://{}", closed.expect("a port")));
        copies.send(line("{}", false));
        copies.flush().await;
        assert_eq!(copies.unsent.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_copy_has_the_line_its_time_and_how_many_are_missing_before_it() {
        dormer_testkit::full!();
        let collector = started!(OtlpReceiver::start());
        let copies = export(&collector.url());
        copies.unsent.store(3, Ordering::Relaxed);
        copies.send(line(r#"{"id":"1"}"#, true));
        copies.send(line(r#"{"id":"2"}"#, false));
        copies.flush().await;
        assert_eq!(collector.refused(), Vec::<String>::new());
        let mut records = Vec::new();
        for message in collector.received() {
            let message: Value = serde_json::from_str(&message).expect("JSON");
            let scope = &message["resourceLogs"][0]["scopeLogs"][0];
            assert_eq!(scope["scope"]["name"], "dormer", "{message}");
            records.extend(scope["logRecords"].as_array().expect("records").clone());
        }
        let [first, second] = &records[..] else {
            panic!("two lines: {records:?}");
        };
        assert_eq!(first["body"]["stringValue"], r#"{"id":"1"}"#);
        assert_eq!(first["eventName"], "dormer.audit");
        assert_eq!(first["timeUnixNano"], "1000000000");
        assert_eq!(first["severityText"], "WARN");
        assert_eq!(first["attributes"][0]["key"], "dormer.audit.unsent");
        assert_eq!(first["attributes"][0]["value"]["intValue"], "3");
        assert_eq!(second["severityText"], "INFO");
        assert!(second.get("attributes").is_none(), "{second}");
    }
}
