//! Tests: spans in the SDK's form, a silent collector, and counters.

use super::{Telemetry, exporter, otlp::Export, spans::Span};
use dormer_engine::observer::EngineObserver;
use dormer_proto::{
    id::Seq,
    span::{SpanId, TraceId},
    work::machine_run,
};
use dormer_workflows::Dormer;
use opentelemetry::{KeyValue, trace::Status};
use std::time::{Duration, UNIX_EPOCH};

#[test]
fn a_span_goes_out_with_its_derived_ids_and_its_times() {
    let run = machine_run("u1").expect("a run");
    let trace = TraceId::of(&run, None, Seq(1));
    let id = SpanId::transition(&run, Seq(2));
    let root = SpanId::episode(&run, Seq(1));
    let mut span = Span::new(trace, id, "transition Joined", 1_000, 1_007)
        .below(root)
        .with("dormer.seq", 2);
    span.error = Some("no".into());
    span.link = Some((trace, id));
    let data = exporter::data(span, &super::scope());
    let context = &data.span_context;
    assert_eq!(context.trace_id().to_string(), trace.to_string());
    assert_eq!(context.trace_id().to_string().len(), 32);
    assert_eq!(context.span_id().to_string(), id.to_string());
    assert_eq!(context.span_id().to_string().len(), 16);
    assert_eq!(data.parent_span_id.to_string(), root.to_string());
    let at = |milliseconds| UNIX_EPOCH + Duration::from_millis(milliseconds);
    assert_eq!(data.start_time, at(1_000));
    assert_eq!(data.end_time, at(1_007));
    assert_eq!(data.status, Status::error("no"));
    assert_eq!(data.attributes, [KeyValue::new("dormer.seq", "2")]);
    assert_eq!(
        data.links[0].span_context.span_id().to_string(),
        id.to_string()
    );
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_spoken_to_is_refused_and_one_that_is_silent_costs_spans_alone()
{
    for wrong in ["collector", "collector:4318", "grpc://c:1", "https://"] {
        assert!(Export::new(Some(wrong), "w").is_err(), "{wrong}");
    }
    // Nothing listens there: the port was bound and closed again.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let endpoint = format!("http://{}", closed.expect("a port"));
    let export = Export::new(Some(&endpoint), "w").expect("a URL");
    let telemetry = Telemetry::default().exported(&export).expect("settings");
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
fn a_quarantined_run_is_counted_for_its_workflow_and_its_cause() {
    let telemetry = Telemetry::default();
    let run = machine_run("u1").unwrap();
    let why = "the record has 2,000,000 bytes";
    EngineObserver::<Dormer>::quarantined(&telemetry, &run, "RecordRefused", why);
    let page = telemetry.metrics().page();
    assert!(
        page.contains(
            "dormer_runs_quarantined_total{workflow=\"machine\",code=\"RecordRefused\"} 1"
        ),
        "{page}"
    );
}
