//! API over a store in memory, with a running engine and failing executors: what people see, request, and are refused.

use super::{openapi::faults, site::Site};
use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use dormer_engine::port::{DeadLetter, DeadLetters, Ports, Quarantine, QuarantineNote};
use dormer_proto::{
    envelope,
    id::{Seq, Timestamp},
    machine,
    message::{Ask, Inbound, InboxMessage, Request as PersonRequest},
    work::{RequestMessage, SCHEMA, Signal, machine_run},
};
use dormer_telemetry::health::{Health, RoleStatus, router};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
use tower::ServiceExt;

const IN_TIME: Duration = Duration::from_secs(20);

/// Error answers say what, and what to do.
fn refused((status, body): (StatusCode, Value), expected: u16, word: &str) {
    assert_eq!(status.as_u16(), expected, "{body}");
    assert!(
        body["error"]
            .as_str()
            .is_some_and(|error| error.contains(word)),
        "{word}: {body}"
    );
    assert!(
        body["whatToDo"]
            .as_str()
            .is_some_and(|what| !what.is_empty()),
        "{body}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_is_shown_by_name_uid_and_namespace_with_its_tasks_and_its_story() {
    let site = Site::new().await;
    for called in ["win-u1", "u1", "openshift-machine-api%2Fwin-u1"] {
        let (status, machine) = site.get(&format!("/machines/{called}")).await;
        assert_eq!(status, StatusCode::OK, "{machine}");
        assert_eq!(
            (&machine["name"], &machine["run"]),
            (&json!("win-u1"), &json!("machine/u1"))
        );
        assert_eq!(machine["state"], "Provisioned");
        assert!(
            machine["since"]
                .as_str()
                .is_some_and(|since| since.ends_with('Z')),
            "{machine}"
        );
        assert_eq!(machine["tasks"][0]["name"], "probe");
    }
    let (_, listed) = site.get("/machines").await;
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    let (_, tasks) = site.get("/tasks").await;
    assert_eq!(tasks["items"][0]["machine"], "win-u1", "{tasks}");
    let (_, runs) = site.get("/runs").await;
    assert_eq!(runs["items"][0]["run"], "machine/u1", "{runs}");

    let (_, page) = site.get("/machines/win-u1/history?limit=1").await;
    assert_eq!(page["items"][0]["events"][0]["text"], "the run began");
    assert!(
        page["items"][0]["events"][1]["text"]
            .as_str()
            .is_some_and(|it| it.contains("observed the Machine"))
    );
    assert_eq!(page["items"][0]["asks"], json!(["probe"]));
    let failed = timeout(IN_TIME, async {
        loop {
            let (_, page) = site.get("/machines/win-u1/history?from=2").await;
            let records = page["items"].as_array().into_iter().flatten();
            let mut events = records
                .filter_map(|record| record["events"].as_array())
                .flatten();
            let probe = |event: &&Value| event["task"] == "probe";
            if let Some(event) = events.find(probe) {
                return event.clone();
            }
            tokio::task::yield_now().await;
        }
    });
    let failed = failed.await.expect("in time");
    assert_eq!(
        failed,
        json!({
            "kind": "task-failed", "task": "probe", "code": "NotToday", "attempt": 1, "message": "these hands do nothing",
            "text": "probe failed at attempt 1: these hands do nothing (NotToday)",
        })
    );
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_answered_once_it_is_history_and_a_repeat_is_confirmed() {
    let site = Site::new().await;
    let wish = json!({"id": "r1", "why": "maintenance"});
    for _ in 0..2 {
        let (status, machine) = site.post("/machines/win-u1/actions/pause", &wish).await;
        assert_eq!(status, StatusCode::OK, "{machine}");
        assert_eq!(machine["halt"]["text"], "paused by ann: maintenance");
    }
    let (_, history) = site.get("/runs/machine/u1/history").await;
    let text = history.to_string();
    assert_eq!(
        text.matches("ann asked: pause (“maintenance”)").count(),
        1,
        "{text}"
    );
    let hold = json!({"why": "a disk"});
    let (_, machine) = site.post("/machines/u1/actions/hold", &hold).await;
    assert_eq!(machine["alsoHalted"][0]["text"], "held by ann: a disk");
    let (_, machine) = site.post("/machines/u1/actions/resume", &json!({})).await;
    assert_eq!(machine["halt"], Value::Null, "{machine}");
    let ended = json!(["paused by ann: maintenance", "held by ann: a disk"]);
    assert_eq!(machine["ended"], ended, "one resume ends both, and says so");

    let dry = json!({"dryRun": true});
    let (status, machine) = site.post("/machines/u1/actions/remove", &dry).await;
    assert_eq!(status, StatusCode::OK, "{machine}");
    refused(
        site.post("/machines/u1/actions/approve", &dry).await,
        409,
        "needs no approval",
    );
    let typed = json!({"why": "it was set up again", "fingerprint": "FINGERPRINT"});
    refused(
        site.post("/machines/u1/actions/trust-host-key", &typed)
            .await,
        400,
        "\"FINGERPRINT\" is not the fingerprint of a host key",
    );
    let far = json!({"dryRun": true, "to": 999});
    refused(site.post("/runs/machine/u1/reset", &far).await, 404, "999");
    let (_, history) = site.get("/runs/machine/u1/history").await;
    let text = history.to_string();
    assert!(!text.contains("asked: remove"), "{text}");

    let (_, machine) = site.post("/runs/machine/u1/reset", &json!({"to": 1})).await;
    assert_eq!(machine["name"], "win-u1", "{machine}");
    refused(
        site.post("/runs/machine/u1/reset", &json!({"to": 999}))
            .await,
        404,
        "999",
    );
    refused(
        site.post("/runs/machine/u1/reset", &json!({})).await,
        400,
        "to",
    );
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_is_removed_until_a_reset_takes_that_back() {
    let site = Site::new().await;
    let why = json!({"why": "it is handed over"});
    let (status, machine) = site.post("/machines/u1/actions/remove", &why).await;
    assert_eq!(status, StatusCode::OK, "{machine}");
    assert_eq!(machine["removed"], true, "{machine}");
    let (status, back) = site.post("/runs/machine/u1/reset", &json!({"to": 1})).await;
    assert_eq!(status, StatusCode::OK, "{back}");
    let (_, machine) = site.get("/machines/u1").await;
    assert_eq!(machine["removed"], Value::Null, "{machine}");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_refused_with_what_to_do() {
    let site = Site::new().await;
    refused(site.get("/machines/nobody").await, 404, "nobody");
    refused(site.get("/rollouts/linux").await, 404, "linux");
    refused(site.get("/dead-letters/7").await, 404, "7");
    refused(site.get("/nonsense").await, 404, "nonsense");
    refused(
        site.post("/machines/win-u1/actions/explode", &json!({}))
            .await,
        404,
        "explode",
    );
    refused(
        site.post("/machines/win-u1/actions/approve", &json!({}))
            .await,
        409,
        "needs no approval",
    );
    let old = json!({"against": 99});
    refused(
        site.post("/machines/win-u1/actions/hold", &old).await,
        409,
        "has left",
    );
    let form = Request::post("/api/v1/machines/win-u1/actions/remove")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from("why=x"));
    refused(
        site.ask(form.expect("a request")).await,
        415,
        "application/json",
    );
    let foreign = Request::post("/api/v1/machines/win-u1/actions/remove")
        .header("content-type", "application/json")
        .header("origin", "https://elsewhere.example")
        .header("host", "127.0.0.1:7340")
        .body(Body::from("{}"));
    refused(
        site.ask(foreign.expect("a request")).await,
        403,
        "elsewhere",
    );
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_shown_and_goes_back_to_the_inbox() {
    let site = Site::new().await;
    let message = DeadLetter {
        id: 0,
        run: machine_run("u1").ok(),
        reason: "it says nothing that this build knows".into(),
        at: Timestamp(1_000),
        origin: "inbox 1".into(),
        bytes: b"nonsense".to_vec(),
    };
    DeadLetters::put(site.ports.dead(), message)
        .await
        .expect("put");
    let (_, listed) = site.get("/dead-letters").await;
    let id = listed["items"][0]["id"].as_u64().expect("an id");
    let (_, shown) = site.get(&format!("/dead-letters/{id}")).await;
    assert!(
        shown["message"]
            .as_str()
            .is_some_and(|it| it.contains("cannot be read")),
        "{shown}"
    );
    assert_eq!(shown["run"], "machine/u1");
    let (status, answer) = site
        .post(&format!("/dead-letters/{id}/requeue"), &json!({}))
        .await;
    assert_eq!(
        (status, &answer["requeued"]),
        (StatusCode::OK, &json!(true))
    );
    refused(
        site.get(&format!("/dead-letters/{id}")).await,
        404,
        "dead letter",
    );
    site.end().await;
}

/// Who can write dead letters could otherwise have a person's name under what that person never asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_that_is_a_request_does_not_go_back() {
    let site = Site::new().await;
    let run = machine_run("u1").expect("a run");
    let request = PersonRequest {
        id: "r1".into(),
        who: "alice@bank".into(),
        why: "approved change".into(),
        against: Seq(0),
        ask: Ask::Signal(Signal::Machine(machine::Signal::Drain)),
    };
    let message: RequestMessage = InboxMessage {
        run: run.clone(),
        incarnation: None,
        body: Inbound::Requested(request),
    };
    let (bytes, _) = envelope::encode(&message, SCHEMA).expect("a message");
    let letter = DeadLetter {
        id: 0,
        run: Some(run),
        reason: "requeue it once the store is back".into(),
        at: Timestamp(1_000),
        origin: "inbox 1".into(),
        bytes,
    };
    DeadLetters::put(site.ports.dead(), letter)
        .await
        .expect("put");
    let (_, listed) = site.get("/dead-letters").await;
    let id = listed["items"][0]["id"].as_u64().expect("an id");
    let requeued = site
        .post(&format!("/dead-letters/{id}/requeue"), &json!({}))
        .await;
    refused(requeued, 409, "is a person's request");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantined_run_is_shown_refuses_requests_at_once_and_is_released() {
    let site = Site::new().await;
    let note = QuarantineNote {
        run: machine_run("u1").expect("a run"),
        code: "RecordRefused".into(),
        why: "record message has 2000000 bytes".into(),
        at: Timestamp(1_000),
        builds: vec!["dormer 1".into()],
        released: None,
        missed: None,
        version: 0,
    };
    Quarantine::put(site.ports.quarantine(), note)
        .await
        .expect("put");
    let (status, listed) = site.get("/quarantine").await;
    assert_eq!(status, StatusCode::OK, "{listed}");
    assert_eq!(faults("/quarantine", &listed), Vec::<String>::new());
    let one = &listed["items"][0];
    assert_eq!(
        (&one["run"], &one["name"], &one["code"]),
        (
            &json!("machine/u1"),
            &json!("win-u1"),
            &json!("RecordRefused")
        )
    );
    let (_, machine) = site.get("/machines/win-u1").await;
    assert_eq!(
        faults("/machines/{machine}", &machine),
        Vec::<String>::new()
    );
    assert_eq!(machine["quarantine"]["builds"], json!(["dormer 1"]));
    let waits_for = machine["waitingFor"].as_str().unwrap_or_default();
    assert!(
        waits_for.contains("dormer unquarantine machine/u1"),
        "{machine}"
    );
    let (_, run) = site.get("/runs/machine/u1").await;
    assert_eq!(run["quarantine"]["code"], "RecordRefused");
    let asked = site
        .post("/machines/win-u1/actions/pause", &json!({}))
        .await;
    refused(asked, 409, "quarantined");

    let path = "/runs/machine/u1/unquarantine";
    let (status, answer) = site.post(path, &json!({})).await;
    assert_eq!(
        (status, &answer["released"]),
        (StatusCode::OK, &json!(true))
    );
    let (_, machine) = site.get("/machines/win-u1").await;
    assert_eq!(machine["quarantine"], Value::Null, "{machine}");
    let (status, machine) = site
        .post("/machines/win-u1/actions/pause", &json!({}))
        .await;
    assert_eq!(status, StatusCode::OK, "{machine}");
    refused(
        site.post("/runs/machine/nobody/unquarantine", &json!({}))
            .await,
        409,
        "not",
    );
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_stream_sends_every_run_and_then_each_change() {
    let site = Site::new().await;
    let request = Request::get("/api/v1/changes")
        .body(Body::empty())
        .expect("a request");
    let answer = site
        .router
        .clone()
        .oneshot(request)
        .await
        .expect("an answer");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut stream = answer.into_body();
    let mut received = String::new();
    receive_until(&mut stream, &mut received, "event: complete").await;
    assert!(received.starts_with("event: reset\n"), "{received}");
    assert!(received.contains("\"name\":\"win-u1\""), "{received}");
    site.post(
        "/machines/win-u1/actions/pause",
        &json!({"why": "a freeze"}),
    )
    .await;
    receive_until(&mut stream, &mut received, "paused by ann: a freeze").await;
    site.end().await;
}

/// Reads a stream until `word` was in it.
async fn receive_until(stream: &mut Body, received: &mut String, word: &str) {
    use http_body_util::BodyExt;
    while !received.contains(word) {
        let frame = timeout(IN_TIME, stream.frame()).await.expect("in time");
        let frame = frame.expect("the stream goes on").expect("a frame");
        received.push_str(&String::from_utf8_lossy(
            &frame.into_data().unwrap_or_default(),
        ));
    }
}

/// Every list and every thing, as the document says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_as_the_document_says() {
    let site = Site::new().await;
    site.post("/machines/win-u1/actions/pause", &json!({}))
        .await;
    let message = DeadLetter {
        id: 0,
        run: machine_run("u1").ok(),
        reason: "it says nothing that this build knows".into(),
        at: Timestamp(1_000),
        origin: "inbox 1".into(),
        bytes: b"nonsense".to_vec(),
    };
    DeadLetters::put(site.ports.dead(), message)
        .await
        .expect("put");
    for (path, asked) in [
        ("/machines", "/machines?all=true"),
        ("/machines/{machine}", "/machines/win-u1"),
        ("/machines/{machine}/commands", "/machines/win-u1/commands"),
        ("/machines/{machine}/history", "/machines/win-u1/history"),
        ("/runs", "/runs"),
        ("/runs/{workflow}/{key}", "/runs/machine/u1"),
        (
            "/runs/{workflow}/{key}/history",
            "/runs/machine/u1/history?envelopes=true",
        ),
        (
            "/runs/{workflow}/{key}/timeline",
            "/runs/machine/u1/timeline",
        ),
        ("/rollouts", "/rollouts"),
        ("/pools", "/pools"),
        ("/tasks", "/tasks"),
        ("/dead-letters", "/dead-letters"),
        ("/openapi.json", "/openapi.json"),
    ] {
        let (status, answer) = site.get(asked).await;
        assert_eq!(status, StatusCode::OK, "{asked}: {answer}");
        let faults = faults(path, &answer);
        assert!(faults.is_empty(), "{asked}: {faults:#?}");
    }
    let (_, exported) = site.get("/runs/machine/u1/history?envelopes=true").await;
    assert!(
        exported["items"][0]["envelope"]
            .as_str()
            .is_some_and(|it| !it.is_empty())
    );
    assert_eq!(exported["incarnation"], "0000000000000003");
    let (_, life) = site.get("/runs/machine/u1/timeline").await;
    let task = &life["episodes"][0]["phases"][0]["tasks"][0];
    assert_eq!(
        (&life["episodes"][0]["kind"], &task["name"]),
        (&json!("bring-up"), &json!("probe"))
    );
    site.end().await;
}

/// Health is beside the API, and its document says so.
#[tokio::test]
async fn health_is_answered_as_the_document_says() {
    let health = Arc::new(Health::default());
    health.set("engine", RoleStatus::Up);
    health.set("watcher", RoleStatus::Waiting("the first list".into()));
    for (path, expected) in [
        ("/healthz", StatusCode::OK),
        ("/readyz", StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let router = router(Arc::clone(&health));
        let answer = router.oneshot(request).await.expect("an answer");
        assert_eq!(answer.status(), expected);
        let body = to_bytes(answer.into_body(), usize::MAX)
            .await
            .expect("a body");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["watcher"]["why"], "the first list");
        assert_eq!(faults(path, &body), Vec::<String>::new());
    }
}
