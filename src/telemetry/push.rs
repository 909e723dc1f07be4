//! The page of metrics once more, as OTLP: what a scrape would be answered goes to a collector once a minute.
//!
//! It is read off the page rather than off the registry, so both say the same by their making.

use crate::{
    Telemetry,
    health::Health,
    metrics,
    otlp::{Meter, attribute},
};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::{MissedTickBehavior, interval};

/// How often metrics are sent: OpenTelemetry's own default.
const EVERY: Duration = Duration::from_secs(60);
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;

/// What is pushed, and whereto.
pub struct Pushing {
    telemetry: Arc<Telemetry>,
    health: Arc<Health>,
    meter: Meter,
    /// When the process started, which is when every sum began.
    since: u64,
}

impl Pushing {
    /// Metrics of this process for `meter`.
    pub fn new(telemetry: Arc<Telemetry>, health: Arc<Health>, meter: Meter) -> Arc<Self> {
        Arc::new(Self {
            telemetry,
            health,
            meter,
            since: nanos(),
        })
    }

    /// Sends everything once a minute.
    pub async fn for_ever(self: Arc<Self>) -> std::convert::Infallible {
        let mut again = interval(EVERY);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silent = false;
        loop {
            again.tick().await;
            let sent = self.once().await;
            if let (Err(error), false) = (&sent, silent) {
                tracing::warn!("the collector does not take metrics: {error:#}");
            }
            silent = sent.is_err();
        }
    }

    /// Sends everything, now.
    ///
    /// # Errors
    /// The collector did not take it.
    pub async fn once(&self) -> anyhow::Result<()> {
        let page = metrics::whole(&self.telemetry, &self.health).await;
        self.meter.send(metrics(&page, self.since, nanos())).await
    }
}

fn nanos() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Every metric of a page, as OTLP/JSON has it. `since` and `now` in nanoseconds of Unix time.
fn metrics(page: &str, since: u64, now: u64) -> Vec<Value> {
    let mut all: Vec<Family> = Vec::new();
    for line in page.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let what = words.next();
            let name = words.next();
            let rest = words.next().unwrap_or_default();
            let Some(name) = name else { continue };
            if all.last().is_none_or(|family| family.name != name) {
                all.push(Family {
                    name: name.to_owned(),
                    ..Family::default()
                });
            }
            let Some(family) = all.last_mut() else {
                continue;
            };
            match what {
                Some("TYPE") => rest.clone_into(&mut family.kind),
                Some("UNIT") => rest.clone_into(&mut family.unit),
                Some("HELP") => rest.clone_into(&mut family.help),
                _ => {}
            }
        } else if let (Some(family), Some(sample)) = (all.last_mut(), Sample::read(line)) {
            family.samples.push(sample);
        }
    }
    all.iter()
        .filter_map(|family| family.otlp(since, now))
        .collect()
}

/// Metrics of one name.
#[derive(Debug, Default)]
struct Family {
    name: String,
    kind: String,
    unit: String,
    help: String,
    samples: Vec<Sample>,
}

/// A line of the page.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    /// `name{label="value",…} 1.5`; our own encoder puts nothing behind the value.
    fn read(line: &str) -> Option<Self> {
        let (head, value) = line.rsplit_once(' ')?;
        let (name, labels) = match head.split_once('{') {
            Some((name, rest)) => (name, labels(rest.strip_suffix('}')?)),
            None => (head, Vec::new()),
        };
        Some(Self {
            name: name.to_owned(),
            labels,
            value: value.parse().ok()?,
        })
    }

    fn label(&self, key: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }
}

/// `a="1",b="say \"x\""`.
fn labels(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut escaped = false;
        let mut end = after.len();
        for (at, c) in after.char_indices() {
            match (escaped, c) {
                (true, 'n') => value.push('\n'),
                (true, c) => value.push(c),
                (false, '\\') => {}
                (false, '"') => {
                    end = at;
                    break;
                }
                (false, c) => value.push(c),
            }
            escaped = !escaped && c == '\\';
        }
        all.push((key.trim_start_matches(',').to_owned(), value));
        rest = after.get(end + 1..).unwrap_or_default();
    }
    all
}

impl Family {
    fn otlp(&self, since: u64, now: u64) -> Option<Value> {
        let since = since.to_string();
        let now = now.to_string();
        let point = |sample: &Sample| {
            json!({
                "attributes": attributes(&sample.labels), "asDouble": sample.value,
                "startTimeUnixNano": since, "timeUnixNano": now,
            })
        };
        let points = || self.samples.iter().map(point).collect::<Vec<_>>();
        let mut metric = json!({"name": self.name, "description": self.help});
        if !self.unit.is_empty() {
            // UCUM's words, as OpenTelemetry's conventions have them.
            metric["unit"] = if self.unit == "seconds" {
                "s"
            } else {
                &*self.unit
            }
            .into();
        }
        let (key, data) = match self.kind.as_str() {
            _ if self.samples.is_empty() => return None,
            "counter" => (
                "sum",
                json!({
                    "dataPoints": points(), "isMonotonic": true,
                    "aggregationTemporality": CUMULATIVE,
                }),
            ),
            "histogram" => (
                "histogram",
                json!({
                    "dataPoints": self.spreads(&since, &now),
                    "aggregationTemporality": CUMULATIVE,
                }),
            ),
            _ => ("gauge", json!({"dataPoints": points()})),
        };
        metric[key] = data;
        Some(metric)
    }

    /// Points of a histogram: the page counts up to each bound, OTLP between two.
    fn spreads(&self, since: &str, now: &str) -> Vec<Value> {
        let without = |sample: &Sample| -> Vec<(String, String)> {
            sample
                .labels
                .iter()
                .filter(|(key, _)| key != "le")
                .cloned()
                .collect()
        };
        let sums = self
            .samples
            .iter()
            .filter(|sample| sample.name.ends_with("_sum"));
        let point = |sum: &Sample| {
            let own =
                |sample: &&Sample| sample.label("le").is_some() && without(sample) == sum.labels;
            let mut bounds = Vec::new();
            let mut counts = Vec::new();
            let mut before = 0.0;
            for bucket in self.samples.iter().filter(own) {
                let bound = bucket.label("le").and_then(|le| le.parse::<f64>().ok());
                bounds.extend(bound.filter(|bound| bound.is_finite()));
                counts.push(format!("{:.0}", bucket.value - before));
                before = bucket.value;
            }
            json!({
                "attributes": attributes(&sum.labels), "sum": sum.value,
                "count": format!("{before:.0}"), "bucketCounts": counts, "explicitBounds": bounds,
                "startTimeUnixNano": since, "timeUnixNano": now,
            })
        };
        sums.map(point).collect()
    }
}

fn attributes(labels: &[(String, String)]) -> Vec<Value> {
    labels
        .iter()
        .map(|(key, value)| attribute(key, value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_told_as_sums_gauges_and_histograms() {
        let page = "# HELP dormer_a What it counts.\n# TYPE dormer_a counter\n\
            dormer_a_total{role=\"x\\\"y\",kind=\"b\"} 3\n\
            # HELP dormer_s_seconds Took.\n# TYPE dormer_s_seconds histogram\n# UNIT dormer_s_seconds seconds\n\
            dormer_s_seconds_sum{task=\"p\"} 2.5\ndormer_s_seconds_count{task=\"p\"} 4\n\
            dormer_s_seconds_bucket{le=\"0.5\",task=\"p\"} 1\ndormer_s_seconds_bucket{le=\"+Inf\",task=\"p\"} 4\n\
            # TYPE dormer_g gauge\ndormer_g 0.5\n# TYPE dormer_none counter\n# EOF\n";
        let told = metrics(page, 1, 2);
        assert_eq!(told.len(), 3, "{told:#?}");
        assert_eq!(told[0]["name"], "dormer_a");
        let point = &told[0]["sum"]["dataPoints"][0];
        assert_eq!(
            (point["asDouble"].as_f64(), &point["timeUnixNano"]),
            (Some(3.0), &json!("2"))
        );
        assert_eq!(point["attributes"][0], attribute("role", "x\"y"));
        let spread = &told[1]["histogram"]["dataPoints"][0];
        assert_eq!(told[1]["unit"], "s");
        assert_eq!(spread["bucketCounts"], json!(["1", "3"]));
        assert_eq!(spread["explicitBounds"], json!([0.5]));
        assert_eq!(
            (
                &spread["count"],
                spread["attributes"].as_array().map(Vec::len)
            ),
            (&json!("4"), Some(1))
        );
        assert_eq!(told[2]["gauge"]["dataPoints"][0]["asDouble"], 0.5);
    }
}
