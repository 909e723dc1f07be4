//! Runs as JSON: camelCase keys, times in RFC 3339, UIDs with the names that people know.

use super::{lacks, run_cache::SharedRun};
use crate::live::Live;
use dormer_engine_core::{OpenTask, Run, TaskPhase, Workflow};
use dormer_proto::{
    id::{TaskId, Timestamp},
    message::Heartbeat,
};
use dormer_views::moment::time;
use dormer_workflows::{Dormer, State};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What a machine waits for while dormer lacks something; what that is is told once, for all.
const LACKING: &str = "what dormer itself lacks";

/// A machine, by the clock `now`. `None`: the run is not a machine's.
pub fn machine(run: &Run<Dormer>, live: &Live, now: Timestamp) -> Option<Value> {
    let State::Machine(state) = &run.state else {
        return None;
    };
    let view = state.view();
    let mut shown = camel(&view);
    shown.append(&mut run_status(run, now));
    shown.insert("created".into(), view.created.map(time).into());
    shown.insert("served".into(), state.served.into());
    shown.insert("attempt".into(), attempt(run).into());
    shown.insert("tasks".into(), tasks(run, live, now).into());
    let lacks = lacks::of(run, live);
    if lacks.is_some() {
        shown.insert("waitingFor".into(), LACKING.into());
    }
    shown.insert("lacks".into(), lacks.into());
    Some(shown.into())
}

/// A pool's rollout. `None`: the run is not a rollout's.
pub fn rollout(
    run: &Run<Dormer>,
    names: &BTreeMap<String, String>,
    now: Timestamp,
) -> Option<Value> {
    let State::Rollout(state) = &run.state else {
        return None;
    };
    let name = |uid: &str| names.get(uid).map_or(uid, String::as_str).to_owned();
    let mut shown = camel(&state.view_with(&name));
    shown.insert("pool".into(), run.id.key().into());
    shown.append(&mut run_status(run, now));
    for list in ["away", "queue", "slots", "gaps"] {
        for item in shown
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            with_name(item, &name);
        }
    }
    for list in ["awaited", "turnedAway"] {
        for item in shown
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            *item = item.as_str().map(&name).into();
        }
    }
    Some(shown.into())
}

/// Names of the machines that have runs, by their UIDs.
pub fn names(runs: &[SharedRun]) -> BTreeMap<String, String> {
    let named = runs.iter().filter_map(|run| match &run.state {
        State::Machine(state) => Some((run.id.key().to_owned(), state.machine_ref().name)),
        _ => None,
    });
    named.collect()
}

/// Any run, in a line.
pub(crate) fn run(run: &Run<Dormer>, now: Timestamp) -> Value {
    let mut shown = run_status(run, now);
    shown.insert("workflow".into(), run.id.workflow().into());
    let called = name(&run.state).unwrap_or_else(|| run.id.key().to_owned());
    shown.insert("name".into(), called.into());
    shown.insert("state".into(), Dormer::label(&run.state).into());
    shown.insert("tasks".into(), run.tasks.len().into());
    shown.insert("deadline".into(), run.deadline().map(time).into());
    shown.into()
}

/// A run's tasks that are not finished, with what is heard of them.
pub(crate) fn tasks(run: &Run<Dormer>, live: &Live, now: Timestamp) -> Vec<Value> {
    let beats = live.of(&run.id);
    let one = |task: &OpenTask<Dormer>| {
        let id = run.task_id(task.key);
        let beat = beats
            .iter()
            .find(|beat| beat.task == id && beat.attempt == task.attempt);
        let mut shown = open_task(&id, task, now);
        shown["machine"] = name(&run.state).into();
        shown["heartbeat"] = beat.map_or(Value::Null, heartbeat);
        shown
    };
    run.tasks.iter().map(one).collect()
}

fn open_task(id: &TaskId, task: &OpenTask<Dormer>, now: Timestamp) -> Value {
    let (phase, since, until, failure) = match &task.phase {
        TaskPhase::InFlight { at, .. } => ("inFlight", Some(*at), task.deadline(), None),
        TaskPhase::Waiting { until, failure } => ("waiting", None, *until, Some(failure)),
    };
    json!({
        "task": id.to_string(),
        "run": id.run.as_str(),
        "name": task.body.name(),
        "attempt": task.attempt.0,
        "attemptsMax": task.policy.attempts_max,
        "phase": phase,
        "since": since.map(time),
        "sinceSeconds": since.map(|since| now.since_ms(since) / 1_000),
        "until": time(until),
        "failure": failure.map(|failure| json!({"code": failure.code, "message": failure.message})),
    })
}

fn heartbeat(beat: &Heartbeat) -> Value {
    json!({
        "worker": beat.worker, "step": beat.step,
        "done": beat.done, "of": beat.of, "unit": beat.unit,
    })
}

/// What people call a run: a machine's name, a rollout's pool.
fn name(state: &State) -> Option<String> {
    match state {
        State::Machine(state) => Some(state.machine_ref().name),
        _ => None,
    }
}

/// A pool's settings, as its rollout knows them. `None`: the run is not a rollout's.
pub(crate) fn pool(run: &Run<Dormer>) -> Option<Value> {
    let State::Rollout(state) = &run.state else {
        return None;
    };
    let view = state.view();
    Some(json!({
        "pool": run.id.key(),
        "maxUnavailable": view.max_unavailable,
        "approval": if view.manual_approval { "manual" } else { "automatic" },
        "paused": view.paused,
        "members": view.members,
    }))
}

/// What the engine knows of every run.
fn run_status(run: &Run<Dormer>, now: Timestamp) -> Map<String, Value> {
    let episode = run.episodes.back();
    let shown = json!({
        "run": run.id.as_str(),
        "seq": run.seq.0,
        "enteredSeq": run.entered.seq.0,
        "began": time(run.began),
        "since": time(run.entered.at),
        "sinceSeconds": now.since_ms(run.entered.at) / 1_000,
        "closed": run.closed.map(time),
        "episode": episode.map(|episode| json!({
            "kind": episode.kind,
            "seq": episode.seq.0,
            "from": time(episode.from),
            "to": episode.to.map(time),
            "result": episode.result,
        })),
    });
    match shown {
        Value::Object(shown) => shown,
        _ => Map::new(),
    }
}

/// The attempt of the task that is at it, if any.
fn attempt(run: &Run<Dormer>) -> Option<u64> {
    run.tasks.iter().map(|task| task.attempt.0).max()
}

fn with_name(item: &mut Value, name: &dyn Fn(&str) -> String) {
    let uid = item
        .get("uid")
        .or_else(|| item.get("holder"))
        .and_then(Value::as_str);
    let called = uid.map(name);
    let since = item
        .get("since")
        .and_then(Value::as_u64)
        .map(Timestamp)
        .map(time);
    if let Some(item) = item.as_object_mut() {
        item.insert("name".into(), called.into());
        if let Some(since) = since {
            item.insert("since".into(), since.into());
        }
    }
}

/// A value's fields, their names in camelCase.
fn camel(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value).map(recased) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn recased(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (camel_word(&key), recased(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(recased).collect(),
        other => other,
    }
}

fn camel_word(word: &str) -> String {
    let mut parts = word.split('_');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut messages = part.chars();
        whole.extend(messages.next().map(|first| first.to_ascii_uppercase()));
        whole.push_str(messages.as_str());
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_json_has_them() {
        assert_eq!(camel_word("max_unavailable"), "maxUnavailable");
        assert_eq!(camel_word("waitingFor"), "waitingFor");
    }
}
