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
