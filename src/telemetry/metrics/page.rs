//! Page of a scrape: collected metrics in the OpenMetrics text format, encoded by `prometheus-client`.

use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, HistogramDataPoint, Metric, MetricData, ResourceMetrics, ScopeMetrics,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use std::{collections::BTreeMap, fmt};

/// How a metric counts: only upwards, up and down, or by size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// Counter: only grows.
    Counter,
    /// Gauge: goes up and down.
    Gauge,
    /// Histogram: counts by size.
    Histogram,
}

/// Parts of a metric's name, for the page of a scrape.
#[derive(Debug, Clone)]
pub(super) struct Described {
    /// Name in a collection: with the unit, without `_total`.
    pub(super) name: String,
    /// Name without the unit.
    pub(super) base: String,
    pub(super) unit: Option<Unit>,
    pub(super) kind: MetricKind,
    pub(super) labels: Vec<&'static str>,
    pub(super) help: &'static str,
}

/// Page of `collected`, in the order of `described`. A metric without a value is left out.
pub(super) fn page(described: Vec<Described>, collected: ResourceMetrics) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collection {
        described,
        collected,
    }));
    let mut page = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut page, &registry);
    page
}

#[derive(Debug)]
struct Collection {
    described: Vec<Described>,
    collected: ResourceMetrics,
}

impl Collector for Collection {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let scopes = self.collected.scope_metrics();
        let metrics = scopes.flat_map(ScopeMetrics::metrics);
        let metrics: BTreeMap<&str, &Metric> =
            metrics.map(|metric| (metric.name(), metric)).collect();
        for described in &self.described {
            if let Some(metric) = metrics.get(described.name.as_str()) {
                let kind = match described.kind {
                    MetricKind::Counter => MetricType::Counter,
                    MetricKind::Gauge => MetricType::Gauge,
                    MetricKind::Histogram => MetricType::Histogram,
                };
                let help = format!("{}.", described.help);
                let unit = described.unit.as_ref();
                let family = encoder.encode_descriptor(&described.base, &help, unit, kind)?;
                samples(family, &described.labels, metric.data())?;
            }
        }
        Ok(())
    }
}

fn samples(
    mut family: MetricEncoder<'_>,
    labels: &[&'static str],
    data: &AggregatedMetrics,
) -> fmt::Result {
    match data {
        AggregatedMetrics::U64(MetricData::Sum(sum)) => {
            for point in sum.data_points() {
                let labels = words(labels, point.attributes());
                let mut sample = family.encode_family(&labels)?;
                sample.encode_counter::<NoLabelSet, _, f64>(&point.value(), None)?;
            }
        }
        AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
            for point in gauge.data_points() {
                let labels = words(labels, point.attributes());
                let mut sample = family.encode_family(&labels)?;
                sample.encode_gauge(&point.value())?;
            }
        }
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
            for point in histogram.data_points() {
                let labels = words(labels, point.attributes());
                let mut sample = family.encode_family(&labels)?;
                let count = point.count();
                sample.encode_histogram::<NoLabelSet>(point.sum(), count, &buckets(point), None)?;
            }
        }
        // The registry creates no other kind.
        _ => {}
    }
    Ok(())
}

/// Upper bounds, each with the count since the bound before. The last bucket has no bound.
fn buckets(point: &HistogramDataPoint<f64>) -> Vec<(f64, u64)> {
    let bounds = point.bounds().chain([f64::INFINITY]);
    bounds.zip(point.bucket_counts()).collect()
}

/// Labels in the order of their registration.
fn words<'a>(
    labels: &[&'static str],
    attributes: impl Iterator<Item = &'a KeyValue>,
) -> Vec<(&'static str, String)> {
    let known: BTreeMap<&str, &Value> = attributes
        .map(|attribute| (attribute.key.as_str(), &attribute.value))
        .collect();
    let word = |label: &&'static str| {
        let value = known.get(label).map(|value| value.as_str().into_owned());
        (*label, value.unwrap_or_default())
    };
    labels.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::super::registry::MetricsRegistry;
    use opentelemetry_sdk::{
        Resource,
        metrics::data::{AggregatedMetrics, Metric, MetricData, ScopeMetrics},
    };
    use prometheus_client::registry::Unit;
    use std::time::Duration;

    #[test]
    fn a_scrape_and_a_push_have_the_same_sums_gauges_and_histograms() {
        let mut registry = MetricsRegistry::new(Resource::builder_empty().build());
        let counter = registry.counter("a", ["role", "kind"], None, "What it counts");
        counter.add(["x\"y".into(), "b".into()], 3);
        let histogram = registry.histogram("s", ["task"], &[0.5, 1.0], "Took");
        for milliseconds in [500, 600, 700, 5_000] {
            histogram.observe(["p".into()], Duration::from_millis(milliseconds));
        }
        let gauge = registry.gauge("g", [], Some(Unit::Bytes), "Stands");
        gauge.add([], 2.0);
        gauge.add([], -0.5);
        let gone = registry.gauge("gone", ["pool"], None, "Cleared");
        gone.set(["windows".into()], 1.0);
        gone.clear();
        registry.counter("none", [], None, "Never counted");

        let page = registry.page();
        assert_eq!(
            page,
            "# HELP dormer_a What it counts.\n# TYPE dormer_a counter\n\
             dormer_a_total{role=\"x\\\"y\",kind=\"b\"} 3\n\
             # HELP dormer_s_seconds Took.\n# TYPE dormer_s_seconds histogram\n# UNIT dormer_s_seconds seconds\n\
             dormer_s_seconds_sum{task=\"p\"} 6.8\ndormer_s_seconds_count{task=\"p\"} 4\n\
             dormer_s_seconds_bucket{le=\"0.5\",task=\"p\"} 1\ndormer_s_seconds_bucket{le=\"1.0\",task=\"p\"} 3\n\
             dormer_s_seconds_bucket{le=\"+Inf\",task=\"p\"} 4\n\
             # HELP dormer_g_bytes Stands.\n# TYPE dormer_g_bytes gauge\n# UNIT dormer_g_bytes bytes\n\
             dormer_g_bytes{} 1.5\n# EOF\n"
        );

        let collected = registry.collect();
        let scopes = collected.scope_metrics();
        let metrics: Vec<&Metric> = scopes.flat_map(ScopeMetrics::metrics).collect();
        let names = metrics.iter().map(|metric| (metric.name(), metric.unit()));
        let expected = [
            ("dormer_a", ""),
            ("dormer_s_seconds", "s"),
            ("dormer_g_bytes", "By"),
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        let AggregatedMetrics::U64(MetricData::Sum(sum)) = metrics[0].data() else {
            panic!("no sum: {:?}", metrics[0]);
        };
        assert!(sum.is_monotonic());
        let AggregatedMetrics::F64(MetricData::Histogram(histogram)) = metrics[1].data() else {
            panic!("no histogram: {:?}", metrics[1]);
        };
        let point = histogram.data_points().next().expect("a point");
        assert_eq!(point.bounds().collect::<Vec<_>>(), [0.5, 1.0]);
        assert_eq!(point.bucket_counts().collect::<Vec<_>>(), [1, 2, 1]);
        let AggregatedMetrics::F64(MetricData::Gauge(gauge)) = metrics[2].data() else {
            panic!("no gauge: {:?}", metrics[2]);
        };
        assert_eq!(
            gauge.data_points().next().map(|point| point.value()),
            Some(1.5)
        );
    }

    #[test]
    fn more_series_than_a_metric_may_have_are_counted_together() {
        let mut registry = MetricsRegistry::new(Resource::builder_empty().build());
        let counter = registry.counter("a", ["pool"], None, "What it counts");
        for pool in 0..1_000 {
            counter.add([pool.to_string().into()], 1);
        }
        let page = registry.page();
        let samples = page
            .lines()
            .filter(|line| line.starts_with("dormer_a_total{"));
        assert!(samples.count() <= 251, "{page}");
        let rest = page
            .lines()
            .find_map(|line| line.strip_prefix("dormer_a_total{pool=\"\"} "));
        assert_eq!(rest, Some("750"), "{page}");
    }
}
