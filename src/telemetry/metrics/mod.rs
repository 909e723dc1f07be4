//! `GET /metrics`: counters of this process and, if it reads the store, gauges of the fleet. No label names a
//! machine.

mod certificates;
pub mod fleet;
#[cfg(test)]
mod generated;
#[cfg(test)]
mod node_rules;
mod page;
pub(crate) mod process;
mod registry;

pub use certificates::Certificates;

use crate::{
    Telemetry,
    health::{Health, RoleStatus},
};
use axum::{
    Router, extract::State, http::header::CONTENT_TYPE, response::IntoResponse, routing::get,
};
use dormer_workers::watcher::Status;
use fleet::FleetMetrics;
use futures::future::BoxFuture;
use opentelemetry_sdk::Resource;
use process::{EngineMetrics, SpanMetrics, WorkerMetrics};
use prometheus_client::registry::Unit;
use registry::{LabelledCounter, LabelledGauge, MetricsRegistry};
use std::{sync::Arc, time::Duration};

/// Content type of the page.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Longest wait of a scrape for the store. Without the store, the page shows this process's own metrics.
const FLEET_WITHIN: Duration = Duration::from_secs(5);

/// All metrics of this process.
pub struct Metrics {
    pub(crate) registry: MetricsRegistry,
    pub(crate) engine: EngineMetrics,
    pub(crate) worker: WorkerMetrics,
    pub(crate) spans: Arc<SpanMetrics>,
    fleet: FleetMetrics,
    watcher: Watcher,
    role_up: LabelledGauge<1>,
    refused: LabelledCounter<1>,
    unsigned: LabelledCounter<0>,
    background_panics: LabelledCounter<1>,
    /// Expiry of the certificates that this process uses.
    pub certificates: Certificates,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(Resource::builder_empty().build())
    }
}

impl Metrics {
    /// Metrics of the process that `resource` names.
    pub(crate) fn new(resource: Resource) -> Self {
        let mut registry = MetricsRegistry::new(resource);
        let engine = EngineMetrics::new(&mut registry);
        let worker = WorkerMetrics::new(&mut registry);
        let watcher = Watcher::new(&mut registry);
        let fleet = FleetMetrics::new(&mut registry);
        registry.role("every");
        let spans = Arc::new(SpanMetrics::new(&mut registry));
        let role_up = registry.gauge(
            "role_up",
            ["role"],
            None,
            "Whether a role of this process works: 1 or 0",
        );
        let refused = registry.counter(
            "messages_refused",
            ["reason"],
            None,
            "Messages over NATS without a right signature: unsigned, malformed, unknown_key, wrong_role, wrong_signature, wrong_subject, stale",
        );
        let unsigned = registry.counter(
            "messages_unsigned",
            [],
            None,
            "Messages over NATS that were taken without a signature, under --nats-accept-unsigned",
        );
        let background_panics = registry.counter(
            "background_panics",
            ["work"],
            None,
            "Panics of background work of this process, which is a bug in dormer; the work begins again",
        );
        let certificates = Certificates::new(&mut registry);
        let build = registry.gauge(
            "build_info",
            ["version"],
            None,
            "Build of this process; always 1",
        );
        build.set([env!("CARGO_PKG_VERSION").into()], 1.0);
        let help = "Start time of this process, in seconds since 1970";
        let started = registry.gauge("start_time", [], Some(Unit::Seconds), help);
        started.set([], jiff::Timestamp::now().as_millisecond() as f64 / 1_000.0);
        Self {
            registry,
            engine,
            worker,
            spans,
            fleet,
            watcher,
            role_up,
            refused,
            unsigned,
            background_panics,
            certificates,
        }
    }

    /// Shows every reason for which a message may be refused, before the first one is: a series that begins with its
    /// first refusals has no increase, and no alert.
    pub fn messages_refusable(&self, reasons: impl IntoIterator<Item = &'static str>) {
        for reason in reasons {
            self.refused.add([reason.into()], 0);
        }
    }

    /// Counts a message whose signature is not right.
    pub fn message_refused(&self, reason: &'static str) {
        self.refused.add([reason.into()], 1);
    }

    /// Counts a message that was taken without a signature.
    pub fn message_unsigned(&self) {
        self.unsigned.add([], 1);
    }

    /// Counts a panic of background work.
    pub(crate) fn background_panicked(&self, work: &'static str) {
        self.background_panics.add([work.into()], 1);
    }

    /// Page of a scrape without the fleet's gauges.
    pub fn page(&self) -> String {
        self.registry.page()
    }

    #[cfg(test)]
    pub(crate) fn registry(&self) -> &MetricsRegistry {
        &self.registry
    }
}

/// Source of the fleet's gauges.
pub trait SnapshotSource: Send + Sync + 'static {
    /// Sets the gauges in `to`.
    ///
    /// # Errors
    /// The store does not answer.
    fn set_gauges<'a>(&'a self, to: &'a FleetMetrics) -> BoxFuture<'a, anyhow::Result<()>>;
}

/// Gauges of this process's watcher.
struct Watcher {
    elected: LabelledGauge<0>,
    listed: LabelledGauge<0>,
    machines: LabelledGauge<0>,
    foreign_csrs: LabelledGauge<0>,
    unreadable: LabelledGauge<0>,
    pool_refused: LabelledGauge<0>,
}

impl Watcher {
    fn new(registry: &mut MetricsRegistry) -> Self {
        registry.role("watcher");
        let mut gauge = |name, unit, help| registry.gauge(name, [], unit, help);
        Self {
            elected: gauge(
                "watcher_elected",
                None,
                "Whether this watcher publishes: 1 or 0",
            ),
            listed: gauge(
                "watcher_last_list_timestamp",
                Some(Unit::Seconds),
                "Time of the last full list, in seconds since 1970; 0 if never",
            ),
            machines: gauge(
                "watcher_machines",
                None,
                "Windows Machines that the watcher observes",
            ),
            foreign_csrs: gauge(
                "watcher_foreign_csrs",
                None,
                "Pending CSRs of kubelets that do not belong to this dormer's machines",
            ),
            unreadable: gauge(
                "watcher_unreadable_objects",
                None,
                "Objects that the watcher could not parse, since the start",
            ),
            pool_refused: gauge(
                "watcher_pool_refused",
                None,
                "Whether the WindowsPool has invalid settings: 1 or 0",
            ),
        }
    }

    fn set_gauges(&self, status: &Status) {
        let flag = |flag: bool| f64::from(u8::from(flag));
        self.elected.set([], flag(status.elected));
        let listed = status
            .listed
            .map_or(0.0, |at| at.as_millisecond() as f64 / 1_000.0);
        self.listed.set([], listed);
        self.machines.set([], status.machines as f64);
        self.foreign_csrs.set([], status.foreign_csrs as f64);
        self.unreadable.set([], status.unreadable as f64);
        self.pool_refused
            .set([], flag(status.pool_refused.is_some()));
    }
}

/// `GET /metrics`.
pub fn router(telemetry: Arc<Telemetry>, health: Arc<Health>) -> Router {
    Router::new()
        .route("/metrics", get(answer))
        .with_state((telemetry, health))
}

async fn answer(
    State((telemetry, health)): State<(Arc<Telemetry>, Arc<Health>)>,
) -> impl IntoResponse {
    refresh(&telemetry, &health).await;
    let page = telemetry.metrics().registry.page();
    ([(CONTENT_TYPE, OPEN_METRICS)], page)
}

/// Sets the gauges that are read at a scrape.
pub(crate) async fn refresh(telemetry: &Telemetry, health: &Health) {
    let metrics = telemetry.metrics();
    metrics.role_up.clear();
    for (role, fleet) in health.all() {
        let works = matches!(fleet, RoleStatus::Up | RoleStatus::Hindered(_));
        metrics
            .role_up
            .set([role.into()], f64::from(u8::from(works)));
    }
    if let Some(status) = telemetry.watcher() {
        metrics.watcher.set_gauges(&status);
    }
    if let Some(source) = telemetry.source() {
        let filled = tokio::time::timeout(FLEET_WITHIN, source.set_gauges(&metrics.fleet)).await;
        if !matches!(filled, Ok(Ok(()))) {
            metrics.fleet.clear();
        }
    }
}
