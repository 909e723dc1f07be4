//! Registry of metrics. Each is registered once, with its unit, its labels, and the role that shows it.
//!
//! OpenTelemetry's SDK holds the values. Scrapes ([`super::page`]) and pushes to a collector use the same collection,
//! so both show the same values.

use super::page::{self, Described, MetricKind};
use dormer_proto::lock::Locked as _;
use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, Meter, MeterProvider},
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    metrics::{
        Instrument, InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Stream, Temporality,
        data::ResourceMetrics, reader::MetricReader,
    },
};
use prometheus_client::registry::Unit;
use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Most series of a metric, by its number of labels. Further values are counted together under empty labels. The SDK
/// allocates all series at registration; its own limit of 2,000 for each metric would cost 10 MB.
const SERIES_MAX: [usize; 3] = [1, 250, 1_000];

pub(crate) type LabelValue = Cow<'static, str>;

/// Description of a metric for alerts, the dashboard and the documentation, which a test generates.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "read by the test that generates")
)]
#[derive(Debug, Clone)]
pub(crate) struct RegisteredMetric {
    /// Name in a scrape; of a histogram without `_bucket`, `_sum`, `_count`.
    pub(crate) name: String,
    pub(crate) kind: MetricKind,
    pub(crate) labels: Vec<&'static str>,
    /// Roles whose processes show it.
    pub(crate) role: &'static str,
    /// Help text.
    pub(crate) help: &'static str,
}

/// All metrics of a process.
pub(crate) struct MetricsRegistry {
    /// Provider that keeps the values alive.
    _provider: SdkMeterProvider,
    reader: RegistryReader,
    meter: Meter,
    /// Series limit of the metric that is registered next.
    series_max: Arc<AtomicUsize>,
    listed: Vec<RegisteredMetric>,
    described: Vec<Described>,
    role: &'static str,
}

impl MetricsRegistry {
    /// Empty registry of the process that `resource` names.
    pub(super) fn new(resource: Resource) -> Self {
        let reader = RegistryReader(Arc::default());
        let series_max = Arc::new(AtomicUsize::new(1));
        let limit = Arc::clone(&series_max);
        let limited = move |_: &Instrument| {
            let limit = limit.load(Ordering::Relaxed);
            Stream::builder().with_cardinality_limit(limit).build().ok()
        };
        let provider = SdkMeterProvider::builder()
            .with_resource(resource)
            .with_reader(reader.clone())
            .with_view(limited)
            .build();
        Self {
            meter: provider.meter_with_scope(crate::scope()),
            _provider: provider,
            reader,
            series_max,
            listed: Vec::new(),
            described: Vec::new(),
            role: "",
        }
    }

    /// Sets the role whose processes show the metrics that are registered from here on.
    pub(super) fn role(&mut self, role: &'static str) {
        self.role = role;
    }

    /// Registers a counter. `name` has no prefix, unit or `_total`.
    pub(super) fn counter<const N: usize>(
        &mut self,
        name: &'static str,
        labels: [&'static str; N],
        unit: Option<Unit>,
        help: &'static str,
    ) -> LabelledCounter<N> {
        let described = self.register(name, &labels, unit, help, MetricKind::Counter);
        let counter = self
            .meter
            .u64_counter(described.name)
            .with_description(help)
            .with_unit(ucum(described.unit.as_ref()))
            .build();
        LabelledCounter { labels, counter }
    }

    /// Registers a gauge. `name` has no prefix or unit.
    pub(super) fn gauge<const N: usize>(
        &mut self,
        name: &'static str,
        labels: [&'static str; N],
        unit: Option<Unit>,
        help: &'static str,
    ) -> LabelledGauge<N> {
        let described = self.register(name, &labels, unit, help, MetricKind::Gauge);
        let values = Arc::<Values<N>>::default();
        let observed = Arc::clone(&values);
        // The SDK's own gauge never forgets a series. An observable gauge reports only the present ones.
        self.meter
            .f64_observable_gauge(described.name)
            .with_description(help)
            .with_unit(ucum(described.unit.as_ref()))
            .with_callback(move |observer| {
                for (words, value) in observed.lock().iter() {
                    observer.observe(*value, &attributes(labels, words.clone()));
                }
            })
            .build();
        LabelledGauge { values }
    }

    /// Registers a histogram of seconds. `name` has no prefix or unit.
    pub(super) fn histogram<const N: usize>(
        &mut self,
        name: &'static str,
        labels: [&'static str; N],
        buckets: &'static [f64],
        help: &'static str,
    ) -> LabelledHistogram<N> {
        let unit = Some(Unit::Seconds);
        let described = self.register(name, &labels, unit, help, MetricKind::Histogram);
        let histogram = self
            .meter
            .f64_histogram(described.name)
            .with_description(help)
            .with_unit(ucum(described.unit.as_ref()))
            .with_boundaries(buckets.to_vec())
            .build();
        LabelledHistogram { labels, histogram }
    }

    fn register(
        &mut self,
        name: &'static str,
        labels: &[&'static str],
        unit: Option<Unit>,
        help: &'static str,
        kind: MetricKind,
    ) -> Described {
        let [.., most] = SERIES_MAX;
        let limit = SERIES_MAX.get(labels.len()).copied().unwrap_or(most);
        self.series_max.store(limit, Ordering::Relaxed);
        let base = format!("dormer_{name}");
        let whole = match &unit {
            Some(unit) => format!("{base}_{}", unit.as_str()),
            None => base.clone(),
        };
        let total = if kind == MetricKind::Counter {
            "_total"
        } else {
            ""
        };
        self.listed.push(RegisteredMetric {
            name: format!("{whole}{total}"),
            kind,
            labels: labels.to_vec(),
            role: self.role,
            help,
        });
        let described = Described {
            name: whole,
            base,
            unit,
            kind,
            labels: labels.to_vec(),
            help,
        };
        self.described.push(described.clone());
        described
    }

    /// All metrics, in the order of their registration.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> &[RegisteredMetric] {
        &self.listed
    }

    /// Page of a scrape. A metric without a value is left out.
    pub(super) fn page(&self) -> String {
        page::page(self.described.clone(), self.collect())
    }

    /// Present values. Counters and histograms count from the start of the process.
    pub(crate) fn collect(&self) -> ResourceMetrics {
        let mut collected = ResourceMetrics::default();
        if let Err(error) = self.reader.collect(&mut collected) {
            tracing::error!(%error, "metrics cannot be collected");
        }
        collected
    }
}

/// Unit in UCUM, as OpenTelemetry's conventions require.
fn ucum(unit: Option<&Unit>) -> String {
    match unit {
        None => String::new(),
        Some(Unit::Seconds) => "s".to_owned(),
        Some(Unit::Bytes) => "By".to_owned(),
        Some(other) => other.as_str().to_owned(),
    }
}

fn attributes<const N: usize>(labels: [&'static str; N], values: [LabelValue; N]) -> [KeyValue; N] {
    let mut values = values.into_iter();
    labels.map(|label| KeyValue::new(label, values.next().unwrap_or_default()))
}

/// Reader of the SDK, shared by its provider and the registry.
#[derive(Debug, Clone)]
struct RegistryReader(Arc<ManualReader>);

impl MetricReader for RegistryReader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, into: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(into)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}

pub(crate) struct LabelledCounter<const N: usize> {
    labels: [&'static str; N],
    counter: Counter<u64>,
}

impl<const N: usize> LabelledCounter<N> {
    pub(crate) fn add(&self, values: [LabelValue; N], more: u64) {
        self.counter.add(more, &attributes(self.labels, values));
    }
}

/// Values of a gauge. Lock held for one map operation, never across an await.
struct Values<const N: usize>(Mutex<HashMap<[LabelValue; N], f64>>);

impl<const N: usize> Default for Values<N> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<const N: usize> Values<N> {
    fn lock(&self) -> MutexGuard<'_, HashMap<[LabelValue; N], f64>> {
        self.0.locked()
    }
}

pub(crate) struct LabelledGauge<const N: usize> {
    values: Arc<Values<N>>,
}

impl<const N: usize> LabelledGauge<N> {
    pub(crate) fn set(&self, values: [LabelValue; N], value: f64) {
        self.values.lock().insert(values, value);
    }

    pub(crate) fn add(&self, values: [LabelValue; N], by: f64) {
        *self.values.lock().entry(values).or_default() += by;
    }

    /// Removes all series.
    pub(crate) fn clear(&self) {
        self.values.lock().clear();
    }
}

/// Histogram of seconds.
pub(crate) struct LabelledHistogram<const N: usize> {
    labels: [&'static str; N],
    histogram: Histogram<f64>,
}

impl<const N: usize> LabelledHistogram<N> {
    /// Records a duration.
    pub(crate) fn observe(&self, values: [LabelValue; N], took: Duration) {
        let attributes = attributes(self.labels, values);
        self.histogram.record(took.as_secs_f64(), &attributes);
    }
}
