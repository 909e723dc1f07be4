//! The recording rules for OpenShift's pages about nodes, computed by Prometheus's own tool from a scrape of windows_exporter
//! as it has to look: names and labels are those of its release 0.31 (`tools/e2e-output.txt` and the collectors' sources), the
//! values are made up.

use super::generated::node_rules;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, process::Command};

const SAMPLE: &str = include_str!("samples/windows_exporter.txt");
/// Seconds between two scrapes, and how many there are.
const EVERY: u32 = 30;
const SCRAPES: u32 = 40;
/// A node's name: the relabelling of `deploy/monitoring/windows-exporter.yaml` makes it the instance.
const NODE: &str = "win-a";

/// What a counter of the sample gains in a second.
fn gain(series: &str) -> f64 {
    match series.split(['{', ' ']).next() {
        Some("windows_cpu_time_total") if series.contains("idle") => 0.75,
        Some("windows_cpu_time_total") if series.contains("user") => 0.25,
        Some("windows_container_cpu_usage_seconds_total") => 0.5,
        Some("windows_net_bytes_received_total") => 1_000.0,
        _ => 0.0,
    }
}

/// A line of the sample as a series of scrapes, with the label that Prometheus adds.
fn scraped(line: &str) -> Value {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let value: f64 = value.parse().expect("a number");
    let labelled = match series.strip_suffix('}') {
        Some(open) => format!("{open},instance=\"{NODE}\"}}"),
        None => format!("{series}{{instance=\"{NODE}\"}}"),
    };
    let step = gain(series) * f64::from(EVERY);
    json!({"series": labelled, "values": format!("{value}+{step}x{SCRAPES}")})
}

/// What kube-state-metrics says of the containers.
fn containers() -> Vec<Value> {
    [("8f1a", "shop", "web-0"), ("8f1b", "shop", "web-0"), ("77c0", "batch", "job-1")]
        .map(|(id, namespace, pod)| {
            let series = format!(
                "kube_pod_container_info{{container_id=\"containerd://{id}\",namespace=\"{namespace}\",pod=\"{pod}\"}}"
            );
            json!({"series": series, "values": format!("1x{SCRAPES}")})
        })
        .to_vec()
}

/// What each rule has to come to, with its labels.
fn expected() -> Vec<(&'static str, Vec<(&'static str, f64)>)> {
    let disk = |c: f64, boot: f64| {
        vec![
            (r#"instance="win-a",volume="C:""#, c),
            (r#"instance="win-a",volume="HarddiskVolume2""#, boot),
        ]
    };
    let net = |inner: f64, outer: f64| {
        vec![
            (r#"instance="win-a",nic="vEthernet (Ethernet)""#, inner),
            (
                r#"instance="win-a",nic="Microsoft Hyper-V Network Adapter""#,
                outer,
            ),
        ]
    };
    let node = |value: f64| vec![(r#"instance="win-a""#, value)];
    let pods = |shop: f64, batch: f64| {
        vec![
            (r#"namespace="shop",pod="web-0""#, shop),
            (r#"namespace="batch",pod="job-1""#, batch),
        ]
    };
    // At the last scrape but ten: 900 seconds after the first.
    let received = 900.0 * 1_000.0;
    vec![
        ("instance:node_cpu:rate:sum", node(0.5)),
        ("instance:node_cpu_utilisation:rate1m", node(0.25)),
        ("instance:node_num_cpu:sum", node(2.0)),
        ("node_memory_MemTotal_bytes", node(17_179_869_184.0)),
        ("node_memory_MemAvailable_bytes", node(6_442_450_944.0)),
        (
            "node_filesystem_size_bytes",
            disk(137_438_953_472.0, 104_857_600.0),
        ),
        (
            "node_filesystem_avail_bytes",
            disk(85_899_345_920.0, 5_242_880.0),
        ),
        (
            "node_filesystem_free_bytes",
            disk(85_899_345_920.0, 5_242_880.0),
        ),
        (
            "node_network_receive_bytes_total",
            net(3_000_000.0 + received, 5_000_000.0 + received),
        ),
        (
            "node_network_transmit_bytes_total",
            net(1_000_000.0, 2_000_000.0),
        ),
        ("pod:container_cpu_usage:sum", pods(1.0, 0.5)),
        (
            "container_memory_working_set_bytes",
            pods(629_145_600.0, 209_715_200.0),
        ),
    ]
}

#[test]
fn the_rules_for_node_pages_come_to_what_a_scrape_of_windows_exporter_says() {
    let folder = dormer_testkit::test_dir("node-rules");
    let rules = node_rules();
    let named: BTreeSet<&str> = rules["spec"]["groups"][0]["rules"]
        .as_array()
        .expect("rules")
        .iter()
        .map(|rule| rule["record"].as_str().expect("a name"))
        .collect();
    let expected = expected();
    assert_eq!(
        named,
        expected.iter().map(|(name, _)| *name).collect(),
        "each rule has its result"
    );
    let tests: Vec<Value> = expected
        .iter()
        .map(|(name, samples)| {
            let samples: Vec<Value> = samples
                .iter()
                .map(|(labels, value)| json!({"labels": format!("{name}{{{labels}}}"), "value": value}))
                .collect();
            json!({"expr": name, "eval_time": "15m", "exp_samples": samples})
        })
        .collect();
    let lines = SAMPLE.lines().filter(|line| !line.starts_with('#'));
    let series: Vec<Value> = lines.map(scraped).chain(containers()).collect();
    let test = json!({"rule_files": ["rules.yaml"], "evaluation_interval": format!("{EVERY}s"),
        "tests": [{"interval": format!("{EVERY}s"), "input_series": series, "promql_expr_test": tests}]});
    fs::write(folder.path().join("rules.yaml"), rules["spec"].to_string()).expect("written");
    fs::write(folder.path().join("test.yaml"), test.to_string()).expect("written");
    let done = Command::new("promtool")
        .args(["test", "rules", "test.yaml"])
        .current_dir(folder.path())
        .output();
    let done = match done {
        Ok(done) => done,
        Err(error) => {
            let server = "promtool".into();
            let reason = error.to_string();
            dormer_testkit::skip!(dormer_testkit::Skipped { server, reason });
        }
    };
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
}
