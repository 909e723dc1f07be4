//! Push of metrics: at an interval, OpenTelemetry's exporter sends the values of a scrape to a collector.

use crate::{Telemetry, collector::Collector, health::Health, metrics, otlp::Export};
use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use std::{sync::Arc, time::Duration};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Time that shutdown waits for the last export.
const LAST_MAX: Duration = Duration::from_secs(5);

/// Metrics to push, and their exporter.
pub struct Pushing {
    telemetry: Arc<Telemetry>,
    health: Arc<Health>,
    exporter: MetricExporter,
    collector: Arc<Collector>,
    every: Duration,
}

impl Pushing {
    /// Push of this process's metrics, if it is enabled.
    ///
    /// # Errors
    /// The exporter rejects its settings.
    pub fn new(
        telemetry: Arc<Telemetry>,
        health: Arc<Health>,
        export: &Export,
    ) -> anyhow::Result<Option<Arc<Self>>> {
        let exporter = export.metrics()?;
        Ok(exporter.map(|(exporter, collector)| {
            Arc::new(Self {
                telemetry,
                health,
                exporter,
                collector,
                every: export.interval(),
            })
        }))
    }

    /// Exports all metrics at each interval.
    pub async fn run(self: Arc<Self>) -> std::convert::Infallible {
        let mut again = interval(self.every);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            again.tick().await;
            self.once().await;
        }
    }

    /// Exports all metrics a last time, within `LAST_MAX`.
    pub async fn last(&self) {
        if timeout(LAST_MAX, self.once()).await.is_err() {
            tracing::warn!("the collector did not answer within 5 s; the last metrics are lost");
        }
    }

    /// Exports all metrics now. A failed export loses nothing, because the sums are cumulative.
    async fn once(&self) {
        metrics::refresh(&self.telemetry, &self.health).await;
        let collected = self.telemetry.metrics().registry.collect();
        let exported = self.exporter.export(&collected).await;
        self.collector.note(&exported);
    }
}
