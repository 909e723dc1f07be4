//! The push of metrics: what a scrape would be answered goes to a collector at an interval, by OpenTelemetry's exporter.

use crate::{Telemetry, collector::Collector, health::Health, metrics, otlp::Export};
use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use std::{sync::Arc, time::Duration};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How long the end of a process waits for the last metrics to be taken.
const LAST_MAX: Duration = Duration::from_secs(5);

/// What is pushed, and where it goes.
pub struct Pushing {
    telemetry: Arc<Telemetry>,
    health: Arc<Health>,
    exporter: MetricExporter,
    collector: Arc<Collector>,
    every: Duration,
}

impl Pushing {
    /// The push of this process' metrics, if they leave it.
    ///
    /// # Errors
    /// The exporter refuses its settings.
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

    /// Sends everything at each interval.
    pub async fn for_ever(self: Arc<Self>) -> std::convert::Infallible {
        let mut again = interval(self.every);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            again.tick().await;
            self.once().await;
        }
    }

    /// Sends everything a last time, though it does not wait long.
    pub async fn last(&self) {
        if timeout(LAST_MAX, self.once()).await.is_err() {
            tracing::warn!("the collector does not answer in time; the last metrics are lost");
        }
    }

    /// Sends everything, now. What is not taken is not lost: sums go on growing.
    async fn once(&self) {
        metrics::refresh(&self.telemetry, &self.health).await;
        let collected = self.telemetry.metrics().registry.collect();
        let exported = self.exporter.export(&collected).await;
        self.collector.note(&exported);
    }
}
