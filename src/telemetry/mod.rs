//! What engine and worker did here, told onwards: to metrics, to the log, and to traces.

mod glance;

use crate::metrics::{Metrics, Source};
use dormer_engine::{
    port::{Clock, SystemClock},
    witness::Appended,
};
use dormer_engine_core::{Record, Run};
use dormer_proto::{id::Timestamp, machine::Outcome, message::Failure, work::Order};
use dormer_workers::{
    watcher::Status,
    witness::{At, Deed, End},
};
use dormer_workflows::Dormer;
use glance::Glance;
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::watch;

/// The witness of this process's roles.
pub(crate) struct Telemetry {
    metrics: Metrics,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    source: OnceLock<Arc<dyn Source>>,
    watcher: OnceLock<watch::Receiver<Status>>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::by(SystemClock)
    }
}

impl Telemetry {
    /// A witness that looks at the engine's `clock`.
    pub(crate) fn by(clock: impl Clock) -> Self {
        Self {
            metrics: Metrics::default(),
            now: Box::new(move || clock.now()),
            source: OnceLock::new(),
            watcher: OnceLock::new(),
        }
    }

    /// Its metrics.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// From here on a scrape asks `source` how everything stands.
    pub(crate) fn asks(&self, source: Arc<dyn Source>) {
        // A process has one store: whoever comes second would say the same.
        let _ = self.source.set(source);
    }

    /// From here on a scrape looks at this watcher.
    pub(crate) fn looks_at(&self, watcher: watch::Receiver<Status>) {
        let _ = self.watcher.set(watcher);
    }

    /// The store did, or did not, answer.
    pub(crate) fn store_answered(&self, answered: bool) {
        self.metrics.engine.store_answered(answered);
    }

    pub(crate) fn source(&self) -> Option<Arc<dyn Source>> {
        self.source.get().cloned()
    }

    pub(crate) fn watcher(&self) -> Option<Status> {
        self.watcher.get().map(|status| status.borrow().clone())
    }
}

impl dormer_engine::witness::Witness<Dormer> for Telemetry {
    type Glance = Glance;

    fn glance(&self, run: &Run<Dormer>) -> Glance {
        Glance::at(run)
    }

    fn stored(&self, before: Option<Glance>, record: &Record<Dormer>) {
        glance::count(&self.metrics.engine, before.as_ref(), record);
        glance::log(record);
    }

    fn appended(&self, took: Duration, what: Appended) {
        self.metrics.engine.appended(took, what);
    }

    fn dropped(&self, letters: u64, unknown: u64) {
        self.metrics.engine.dropped(letters, unknown);
    }

    fn buried(&self) {
        self.metrics.engine.buried();
    }
}

impl dormer_workers::witness::Witness for Telemetry {
    fn began(&self, at: &At, order: &Order) {
        let waited = Duration::from_millis((self.now)().since_ms(order.at));
        self.metrics.worker.began(at.name, waited);
    }

    fn ended(&self, at: &At, took: Duration, result: Option<&Result<Outcome, Failure>>) {
        let outcome = match result {
            Some(Ok(_)) => "finished",
            Some(Err(_)) => "failed",
            None => "cut_off",
        };
        self.metrics.worker.ended(at.name, outcome, took);
    }

    fn did(&self, _: &At, deed: Deed, took: Duration, end: End) {
        self.metrics.worker.did(deed, took, end);
    }

    fn connections(&self, by: i64) {
        self.metrics.worker.connections(by);
    }
}
