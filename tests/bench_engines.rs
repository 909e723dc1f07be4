//! `dormer bench` with engines as processes of their own, on a real nats-server.

use dormer_testkit::{NatsOptions, NatsServer, started};
use serde_json::Value;
use std::process::Command;

/// Figures of a benchmark that succeeds.
fn bench(server: &NatsServer, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .arg("bench")
        .args(arguments)
        .args(["--store", &server.url(), "--json"])
        .output()
        .expect("dormer runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(figures: &Value, field: &str) -> f64 {
    let found = figures.pointer(field).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{field} in {figures}"))
}

#[test]
fn engines_of_several_processes_share_a_load_and_leave_no_stream_behind() {
    dormer_testkit::full!();
    let server = started!(NatsServer::start(NatsOptions::default()));
    let load = [
        "engine",
        "--engines",
        "2",
        "--seconds",
        "2",
        "--in-flight",
        "64",
        "--signed",
    ];
    let figures = bench(&server, &load);
    assert_eq!(number(&figures, "/engines/count"), 2.0, "{figures}");
    assert_eq!(figures["engines"]["signed"], true, "{figures}");
    assert!(number(&figures, "/steps_per_cpu_loop") > 0.0, "{figures}");
    for engine in ["0", "1"] {
        let records = number(&figures, &format!("/engines/records/{engine}"));
        assert!(records > 0.0, "{figures}");
    }
    let load = ["overload", "--at-once", "200", "--seconds", "1"];
    let figures = bench(&server, &load);
    assert!(number(&figures, "/runs") > 200.0, "{figures}");
    assert_eq!(number(&figures, "/left_behind"), 0.0, "{figures}");
    let names = tokio::runtime::Runtime::new()
        .expect("a runtime")
        .block_on(async {
            use futures::TryStreamExt;
            let client = async_nats::connect(server.url()).await.expect("a client");
            let js = async_nats::jetstream::new(client);
            js.stream_names()
                .try_collect::<Vec<String>>()
                .await
                .expect("names")
        });
    assert_eq!(names, Vec::<String>::new());
}

#[test]
fn every_run_goes_on_after_an_engine_was_killed_and_after_a_flood() {
    let part = dormer_testkit::long!("engines");
    let server = started!(NatsServer::start(NatsOptions::default()));
    let failover = bench(&server, &["failover", "--engines", "4"]);
    let overload = bench(&server, &["overload"]);
    assert_eq!(number(&failover, "/left_behind"), 0.0, "{failover}");
    assert_eq!(number(&overload, "/left_behind"), 0.0, "{overload}");
    part.passed(&[
        (
            "until every run went on, s",
            format!("{:.1}", number(&failover, "/all_went_on_s")),
        ),
        (
            "a partition unserved for at most, s",
            format!("{:.1}", number(&failover, "/unserved_s_max")),
        ),
        ("runs of the flood", number(&overload, "/runs").to_string()),
        (
            "throughput in the flood, of what it was before",
            format!("{:.2}", number(&overload, "/of_peak")),
        ),
    ]);
}

#[test]
fn an_engine_that_was_frozen_for_longer_than_its_claims_comes_back_and_takes_nothing_twice() {
    let part = dormer_testkit::long!("engines");
    let server = started!(NatsServer::start(NatsOptions::default()));
    // Claims end after 10 s, and a silent engine loses its share after 3.5 s.
    let load = [
        "failover",
        "--engines",
        "3",
        "--freeze",
        "25",
        "--in-flight",
        "200",
    ];
    let figures = bench(&server, &load);
    assert_eq!(number(&figures, "/left_behind"), 0.0, "{figures}");
    assert_eq!(number(&figures, "/frozen/faults"), 0.0, "{figures}");
    assert!(number(&figures, "/frozen/runs") > 0.0, "{figures}");
    // The frozen engine ends by itself, and has its share again.
    assert_eq!(number(&figures, "/work/count"), 3.0, "{figures}");
    let appends = number(&figures, "/work/appends_per_message");
    assert!(appends < 1.02, "{figures}");
    part.passed(&[
        (
            "until every run went on without it, s",
            format!("{:.1}", number(&figures, "/all_went_on_s")),
        ),
        (
            "and with it again, s",
            format!("{:.1}", number(&figures, "/frozen/all_went_on_s")),
        ),
        (
            "histories without a fault",
            number(&figures, "/frozen/runs").to_string(),
        ),
        ("conflicts", number(&figures, "/work/conflicts").to_string()),
    ]);
}

#[test]
fn machines_that_appear_at_once_are_decided() {
    dormer_testkit::full!();
    let server = started!(NatsServer::start(NatsOptions::default()));
    let figures = bench(&server, &["burst", "--engines", "2", "--machines", "300"]);
    assert_eq!(number(&figures, "/refused"), 0.0, "{figures}");
    assert!(number(&figures, "/engine_rss_mib_max") > 1.0, "{figures}");
}
