//! Spans as messages, an endpoint that is silent, and counts.

use super::{Telemetry, otlp, spans::Span};
use dormer_engine::witness::Witness;
use dormer_proto::{
    id::Seq,
    span::{SpanId, TraceId},
    work::machine_run,
};
use dormer_workflows::Dormer;

#[test]
fn a_message_is_as_otlp_has_it_in_json() {
    let run = machine_run("u1").expect("a run");
    let trace = TraceId::of(&run, None, Seq(1));
    let id = SpanId::transition(&run, Seq(2));
    let mut span = Span::new(trace, id, "transition Joined", 1_000, 1_007)
        .below(SpanId::episode(&run, Seq(1)))
        .with("dormer.seq", 2);
    span.error = Some("no".into());
    span.link = Some((trace, id));
    let told = otlp::message(&otlp::resource("pod-1"), &[span]);
    let span = &told["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"], trace.to_string());
    assert_eq!(span["traceId"].as_str().map(str::len), Some(32));
    assert_eq!(span["spanId"].as_str().map(str::len), Some(16));
    assert_eq!(span["startTimeUnixNano"], "1000000000");
    assert_eq!(span["endTimeUnixNano"], "1007000000");
    assert_eq!(
        span["status"],
        serde_json::json!({"code": 2, "message": "no"})
    );
    assert_eq!(span["attributes"][0]["value"]["stringValue"], "2");
    assert_eq!(span["links"][0]["spanId"], id.to_string());
    let resource = &told["resourceSpans"][0]["resource"]["attributes"];
    assert_eq!(resource[0]["value"]["stringValue"], "dormer");
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_spoken_to_is_refused_and_one_that_is_silent_costs_spans_alone()
{
    for wrong in ["https://collector:4318", "collector", "grpc://c:1"] {
        assert!(
            Telemetry::default().traced_to(Some(wrong), "w").is_err(),
            "{wrong}"
        );
    }
    // Nobody listens there: a port that was ours and is closed again.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let endpoint = format!("http://{}", closed.expect("a port"));
    let telemetry = Telemetry::default()
        .traced_to(Some(&endpoint), "w")
        .expect("a URL");
    let run = machine_run("u1").expect("a run");
    let trace = TraceId::of(&run, None, Seq(1));
    let span = Span::new(trace, SpanId::episode(&run, Seq(1)), "bring-up", 0, 1);
    telemetry.traces.as_ref().expect("traces").send([span]);
    telemetry.flush().await;
    let page = telemetry.metrics().page();
    assert!(
        page.contains(r#"dormer_spans_total{result="dropped"} 1"#),
        "{page}"
    );
}

#[test]
fn a_run_that_the_store_refuses_is_counted_for_its_workflow() {
    let telemetry = Telemetry::default();
    let run = machine_run("u1").unwrap();
    Witness::<Dormer>::refused(&telemetry, &run, "the record has 2,000,000 bytes");
    let page = telemetry.metrics().page();
    assert!(
        page.contains("dormer_runs_refused_total{workflow=\"machine\"} 1"),
        "{page}"
    );
}
