//! Telemetry of engine and worker: metrics, log lines, traces, and health.

mod audit;
mod collector;
mod exporter;
pub mod health;
mod lines;
pub mod metrics;
pub mod otlp;
mod push;
pub mod spans;
#[cfg(test)]
mod tests;
mod traces;
mod transition;

pub use audit::{AuditExport, AuditLine};
pub use push::Pushing;
pub use traces::{MissingSpans, missing};
pub use transition::StateBefore;

use crate::metrics::{Metrics, SnapshotSource};
use dormer_engine::{
    observer::Appended,
    port::{Clock, Ports, SystemClock},
};
use dormer_engine_core::{Record, Run};
use dormer_proto::{
    id::{RunId, Timestamp},
    machine::Outcome,
    message::Failure,
    work::Order,
};
use dormer_workers::{
    observer::{AttemptRef, Operation, OperationEnd},
    watcher::Status,
};
use dormer_workflows::Dormer;
use exporter::Exporter;
use opentelemetry::InstrumentationScope;
use otlp::Export;
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::watch;
use traces::Traces;

/// Time that shutdown waits for the collector.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// Instrumentation scope of dormer's spans and metrics.
pub(crate) fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("dormer")
        .with_version(env!("CARGO_PKG_VERSION"))
        .build()
}

/// Observer of this process's roles.
pub struct Telemetry {
    metrics: Metrics,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    /// Milliseconds of the engine's clock in one millisecond of real time.
    factor: f64,
    traces: Option<Traces>,
    source: OnceLock<Arc<dyn SnapshotSource>>,
    watcher: OnceLock<watch::Receiver<Status>>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::by(SystemClock)
    }
}

impl Telemetry {
    /// Observer that measures by the engine's `clock`.
    pub fn by(clock: impl Clock) -> Self {
        let minute = Duration::from_secs(60);
        Self {
            metrics: Metrics::default(),
            factor: minute.as_secs_f64() / clock.wait(60_000).as_secs_f64().max(f64::EPSILON),
            now: Box::new(move || clock.now()),
            traces: None,
            source: OnceLock::new(),
            watcher: OnceLock::new(),
        }
    }

    /// Adds an exporter: it names this process to the collector, and sends spans if `export` enables them. No metric
    /// may have been counted before.
    ///
    /// # Errors
    /// The exporter refuses its settings.
    pub fn exported(mut self, export: &Export) -> anyhow::Result<Self> {
        self.metrics = Metrics::new(export.resource());
        if let Some((exporter, collector)) = export.spans()? {
            let counts = Arc::clone(&self.metrics.spans);
            self.traces = Some(Traces::new(Exporter::new(exporter, collector, counts)));
        }
        Ok(self)
    }

    /// Metrics of this process.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Sets the `source` of fleet gauges for scrapes.
    pub fn asks(&self, source: Arc<dyn SnapshotSource>) {
        // A process has one store, so a second source would give the same values.
        let _ = self.source.set(source);
    }

    /// Sets the watcher whose status scrapes show.
    pub fn follow_watcher(&self, watcher: watch::Receiver<Status>) {
        let _ = self.watcher.set(watcher);
    }

    /// Sets the store from which traces read records of other processes.
    pub fn reads<P: Ports>(&self, ports: Arc<P>) {
        if let Some(traces) = &self.traces {
            traces.reads(ports);
        }
    }

    /// Notes whether the store answered.
    pub fn store_answered(&self, answered: bool) {
        self.metrics.engine.store_answered(answered);
    }

    /// Counts a panic of background work, which begins again.
    pub fn background_panicked(&self, work: &'static str) {
        self.metrics.background_panicked(work);
    }

    /// Waits until the collector has all spans, at most `FLUSH_MAX`.
    pub async fn flush(&self) {
        if let Some(traces) = &self.traces
            && tokio::time::timeout(FLUSH_MAX, traces.flush())
                .await
                .is_err()
        {
            tracing::warn!("the collector of traces does not answer; the last spans are lost");
        }
    }

    pub(crate) fn source(&self) -> Option<Arc<dyn SnapshotSource>> {
        self.source.get().cloned()
    }

    pub(crate) fn watcher(&self) -> Option<Status> {
        self.watcher.get().map(|status| status.borrow().clone())
    }

    /// `took`, by the engine's clock.
    fn scaled(&self, took: Duration) -> u64 {
        u64::try_from(took.mul_f64(self.factor).as_millis()).unwrap_or(u64::MAX)
    }
}

impl dormer_engine::observer::EngineObserver<Dormer> for Telemetry {
    type StateBefore = StateBefore;

    fn state_before(&self, run: &Run<Dormer>) -> StateBefore {
        StateBefore::at(run)
    }

    fn stored(&self, before: Option<StateBefore>, record: &Record<Dormer>) {
        transition::count(&self.metrics.engine, before.as_ref(), record);
        lines::log(before.as_ref(), record);
        if let Some(traces) = &self.traces {
            traces.stored(before.as_ref(), record);
        }
    }

    fn appended(&self, took: Duration, what: Appended) {
        self.metrics.engine.appended(took, what);
    }

    fn quarantined(&self, run: &RunId, code: &str, why: &str) {
        self.metrics.engine.quarantined(run.workflow(), code);
        tracing::error!(
            %run, code, why, advice = "docs/runbook.md, DormerRunQuarantined",
            "the run is quarantined until a person releases it"
        );
    }

    fn background_panicked(&self, work: &'static str) {
        Telemetry::background_panicked(self, work);
    }

    fn dropped(&self, messages: u64, unknown: u64) {
        self.metrics.engine.dropped(messages, unknown);
    }

    fn dead_lettered(&self) {
        self.metrics.engine.dead_lettered();
    }
}

impl dormer_workers::observer::WorkerObserver for Telemetry {
    fn began(&self, at: &AttemptRef, order: &Order) {
        let now = (self.now)();
        self.metrics
            .worker
            .began(at.name, Duration::from_millis(now.since_ms(order.at)));
        if let Some(traces) = &self.traces {
            traces.queued(at, order.at, now);
        }
    }

    fn ended(&self, at: &AttemptRef, took: Duration, result: Option<&Result<Outcome, Failure>>) {
        let outcome = match result {
            Some(Ok(_)) => "finished",
            Some(Err(_)) => "failed",
            None => "cut_off",
        };
        self.metrics.worker.ended(at.name, outcome, took);
        if let Some(traces) = &self.traces {
            traces.executed(at, (self.now)(), self.scaled(took), outcome);
        }
    }

    fn operation_ended(
        &self,
        at: &AttemptRef,
        operation: Operation,
        took: Duration,
        end: OperationEnd,
    ) {
        self.metrics.worker.operation_ended(operation, took, end);
        if let Some(traces) = &self.traces {
            traces.operation_ended(at, operation, (self.now)(), self.scaled(took), end);
        }
    }

    fn connections(&self, by: i64) {
        self.metrics.worker.connections(by);
    }
}
