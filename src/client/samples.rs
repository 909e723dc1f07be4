//! Answers of the API with the fields that a test is about.

use dormer_views::{machine::Machine, rollout::Rollout};
use serde_json::{Value, json};

/// `fields` beside what every run has.
fn run_with(run: &str, mut common: Value, fields: Value) -> Value {
    let status = json!({"run": run, "seq": 9, "enteredSeq": 7, "began": "2026-11-21T06:00:00.000Z",
        "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 61});
    for more in [status, fields] {
        for (key, value) in more.as_object().expect("fields") {
            common[key] = value.clone();
        }
    }
    common
}

/// A machine's JSON with these fields.
pub(super) fn machine_json(fields: Value) -> Value {
    let common = json!({
        "name": "win-1", "namespace": "", "uid": "u", "state": "Reachable", "phase": "converging-host",
        "phaseText": "converging the host", "differs": [], "pool": "windows", "deleting": false,
        "machineConditions": [], "served": false, "tasks": [],
    });
    run_with("machine/u", common, fields)
}

/// A machine with these fields as JSON.
pub(super) fn machine_with(fields: Value) -> Machine {
    serde_json::from_value(machine_json(fields)).expect("a machine")
}

/// A rollout's JSON with these fields.
pub(super) fn rollout_json(fields: Value) -> Value {
    let common = json!({
        "pool": "windows", "state": "Open", "members": 3, "joined": 2, "failed": 0, "unavailable": 1,
        "manualApproval": false, "token": 4, "away": [], "queue": [], "slots": [], "gaps": [], "awaited": [],
        "turnedAway": [], "machineSets": [],
    });
    run_with("rollout/windows", common, fields)
}

/// A rollout with these fields as JSON.
pub(super) fn rollout_with(fields: Value) -> Rollout {
    serde_json::from_value(rollout_json(fields)).expect("a rollout")
}

/// A server that answers each request for a path with this JSON, and its address.
pub(super) async fn server_with(answer: impl Fn(&str) -> Value + Send + 'static) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut request = [0; 4_096];
            let length = stream.read(&mut request).await.expect("a request");
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let body = answer(path).to_string();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.expect("sent");
        }
    });
    format!("http://{address}")
}
