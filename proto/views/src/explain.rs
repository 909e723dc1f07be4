//! One paragraph about one machine, for a person on call: what `dormer why` and the console say.

mod advice;

pub use advice::{next_step, word};

use crate::moment::span;
use serde_json::Value;

/// Number of latest records that are searched for the last failure.
pub const RECORDS_BACK: u64 = 30;
/// Differences that a change is told with.
const DIFFERENCES: usize = 3;

/// Last failure among `records`, with its time. `None` once the machine serves.
pub fn failure_in(records: &[Value], machine: &Value) -> Option<String> {
    if word(machine, "state") == Some("Joined") && word(machine, "waitingFor").is_none() {
        return None;
    }
    let mut events = records.iter().rev().flat_map(|record| {
        let events = record["events"].as_array().into_iter().flatten().rev();
        events
            .filter_map(Value::as_str)
            .map(|event| (event, word(record, "at")))
    });
    // What succeeded since has been got over.
    let mut over: Vec<&str> = Vec::new();
    let (event, at) = events.find(|(event, _)| {
        if let Some((task, _)) = event.split_once(" succeeded") {
            over.push(task);
        }
        event
            .split_once(" failed (")
            .is_some_and(|(task, _)| !over.contains(&task))
    })?;
    Some(sentence(&format!(
        "Last, at {}, {event}",
        at.unwrap_or("some time")
    )))
}

/// The whole paragraph.
pub fn paragraph(machine: &Value, last_failure: Option<&str>, rollout: Option<&Value>) -> String {
    let mut sentences = vec![where_it_is(machine)];
    if let Some(what) = word(machine, "lacks") {
        sentences.push(format!(
            "It waits for one thing, as all machines do: {what}."
        ));
        sentences.push("dormer goes on by itself when that is mended.".into());
        return sentences.join(" ");
    }
    sentences.extend(word(machine, "waitingFor").map(|what| format!("It waits for {what}.")));
    // What a drain waits for names the one pod that stays, and why.
    let waiting = word(machine, "waitingFor").unwrap_or_default();
    let reason_said = word(machine, "reason").is_some_and(|why| waiting.contains(why));
    sentences.extend(word(machine, "reason").filter(|_| !reason_said).map(reason));
    for task in machine["tasks"].as_array().into_iter().flatten() {
        sentences.extend(tried(task));
    }
    // A task that waits for its next attempt, and a machine that failed, have told it already.
    let says = |said: &String| said.contains(" failed at attempt ") || said.starts_with("Reason:");
    if !reason_said && !sentences.iter().any(says) {
        sentences.extend(last_failure.map(str::to_owned));
    }
    sentences.extend(machines_words(machine));
    sentences.extend(rollout.and_then(|rollout| numbers(machine, rollout)));
    sentences.push(next_step(machine, rollout));
    sentences.join(" ")
}

/// What the Machine object itself says.
fn machines_words(machine: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    if let Some(phase) = word(machine, "machinePhase").filter(|phase| *phase != "Running") {
        texts.push(format!("Its Machine is in phase {phase}."));
    }
    if let Some(error) = word(machine, "machineError") {
        texts.push(sentence(&format!("The Machine says: {error}")));
    }
    for condition in machine["machineConditions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        texts.push(sentence(&format!(
            "Its condition {}",
            condition_text(condition)
        )));
    }
    texts
}

/// `MachineCreation is False (MachineCreationFailed): no room`.
pub fn condition_text(condition: &Value) -> String {
    let said = |key| word(condition, key);
    let mut text = format!(
        "{} is {}",
        said("kind").unwrap_or_default(),
        said("status").unwrap_or("not as it should be")
    );
    text += &said("reason").map_or_else(String::new, |reason| format!(" ({reason})"));
    text + &said("message").map_or_else(String::new, |message| format!(": {message}"))
}

/// The numbers of its MachineSet, where they are not as wished and the machine waits.
fn numbers(machine: &Value, rollout: &Value) -> Option<String> {
    word(machine, "waitingFor")?;
    let set = machine_set(machine, rollout)?;
    let wanted = set["replicas"].as_u64()?;
    let short = ["machines", "ready", "available"];
    let short = short
        .iter()
        .any(|key| set[*key].as_u64().is_some_and(|it| it != wanted));
    short.then(|| format!("Its MachineSet {}.", numbers_text(set)))
}

/// The machine's own MachineSet among its rollout's.
pub fn machine_set<'a>(machine: &Value, rollout: &'a Value) -> Option<&'a Value> {
    let owner = word(machine, "owner")?.strip_prefix("MachineSet/")?;
    rollout["machineSets"]
        .as_array()?
        .iter()
        .find(|set| word(set, "name") == Some(owner))
}

/// `windows has 2 of 3 Machines, 1 ready, 1 available`.
pub fn numbers_text(set: &Value) -> String {
    let number = |key: &str| {
        set[key]
            .as_u64()
            .map_or_else(|| "?".into(), |it| it.to_string())
    };
    format!(
        "{} has {} of {} Machines, {} ready, {} available",
        word(set, "name").unwrap_or_default(),
        number("machines"),
        number("replicas"),
        number("ready"),
        number("available")
    )
}

/// Why it is where it is; of a long list of differences the first ones.
fn reason(why: &str) -> String {
    let Some(list) = why.strip_prefix("to change: ") else {
        return sentence(&format!("Reason: {why}"));
    };
    let all: Vec<&str> = list.split(", ").collect();
    let more = all.len().saturating_sub(DIFFERENCES);
    let named = all[..all.len() - more].join(", ");
    let more = if more > 0 {
        format!(" and {more} more (dormer plan)")
    } else {
        String::new()
    };
    format!("What is to change: {named}{more}.")
}

fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

fn where_it_is(machine: &Value) -> String {
    let name = word(machine, "name")
        .or_else(|| word(machine, "uid"))
        .unwrap_or("It");
    let mut text = format!(
        "{name} is {}",
        word(machine, "state").unwrap_or("somewhere")
    );
    if let Some(phase) =
        word(machine, "phase").filter(|phase| !text.to_lowercase().ends_with(*phase))
    {
        text += &format!(" ({phase})");
    }
    if let Some(seconds) = machine["sinceSeconds"].as_u64() {
        text += &format!(" since {}", span(seconds));
    }
    if let Some(since) = word(machine, "since") {
        text += &format!(", {since}");
    }
    text + &versions(machine) + "."
}

fn versions(machine: &Value) -> String {
    match (word(machine, "version"), word(machine, "desiredVersion")) {
        (Some(version), Some(desired)) if version == desired => {
            format!(", and carries {version} as it should")
        }
        (Some(version), Some(desired)) => {
            format!(", and carries {version} where it should carry {desired}")
        }
        (None, Some(desired)) => format!(", and is to carry {desired}"),
        _ => String::new(),
    }
}

/// What is being tried, or was.
fn tried(task: &Value) -> Vec<String> {
    let name = word(task, "name").unwrap_or("a task");
    let of = task["attemptsMax"]
        .as_u64()
        .filter(|max| *max < u64::from(u16::MAX));
    let of = of.map_or_else(String::new, |max| format!(" of {max}"));
    let attempt = task["attempt"].as_u64().unwrap_or_default();
    let mut texts = Vec::new();
    if let Some(code) = word(&task["failure"], "code") {
        let message = word(&task["failure"], "message").unwrap_or_default();
        let until = word(task, "until")
            .map_or_else(String::new, |at| format!("; the next attempt is due {at}"));
        texts.push(sentence(&format!(
            "{name} failed at attempt {attempt}{of} ({code}: {message}){until}"
        )));
    } else {
        let long = task["sinceSeconds"]
            .as_u64()
            .map_or_else(String::new, |s| format!(" for {}", span(s)));
        texts.push(format!(
            "{name} is under way{long}, attempt {attempt}{of}{}.",
            progress(&task["heartbeat"])
        ));
    }
    texts
}

fn progress(beat: &Value) -> String {
    let Some(step) = word(beat, "step") else {
        return String::new();
    };
    let done = beat["done"].as_u64().unwrap_or(0);
    let of = beat["of"].as_u64().unwrap_or(0);
    let unit = word(beat, "unit").unwrap_or_default();
    let worker = word(beat, "worker").unwrap_or("a worker");
    let amount = if of > 0 {
        format!(", {done} of {of} {unit}")
    } else {
        String::new()
    };
    format!(", at {worker}, step {step}{amount}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_failure_is_explained_with_its_cause_and_the_next_step() {
        let machine = json!({
            "name": "win-1", "state": "Failed", "phase": "failed", "sinceSeconds": 312,
            "since": "2026-11-21T07:00:00.000Z", "desiredVersion": "v2", "machinePhase": "Provisioned",
            "reason": "AuthRejected while probing: the key is not accepted.",
            "waitingFor": "a retry (dormer retry), or a change that gives a reason", "tasks": [],
        });
        assert_eq!(
            paragraph(&machine, None, None),
            "win-1 is Failed since 5m12s, 2026-11-21T07:00:00.000Z, and is to carry v2. \
             It waits for a retry (dormer retry), or a change that gives a reason. \
             Reason: AuthRejected while probing: the key is not accepted. \
             Its Machine is in phase Provisioned. \
             Let the host accept dormer's key: the user, the public key in its user data, and \
             administrators_authorized_keys open to Administrators and SYSTEM alone; then: \
             dormer retry win-1. Or replace it: dormer recreate win-1."
        );
    }

    #[test]
    fn a_running_attempt_is_explained_with_its_progress() {
        let task = json!({"name": "converge-host", "attempt": 2, "attemptsMax": 60, "sinceSeconds": 75,
            "heartbeat": {"worker": "w1", "step": "upload", "done": 3, "of": 9, "unit": "bytes"}});
        assert_eq!(
            tried(&task),
            [
                "converge-host is under way for 1m15s, attempt 2 of 60, at w1, step upload, 3 of 9 bytes."
            ]
        );
        let task = json!({"name": "probe", "attempt": 1, "until": "2026-11-21T07:00:00.000Z",
            "failure": {"code": "ConnectRefused", "message": "10.0.0.9:22 refuses"}});
        assert_eq!(
            tried(&task),
            [
                "probe failed at attempt 1 (ConnectRefused: 10.0.0.9:22 refuses); the next attempt is due \
              2026-11-21T07:00:00.000Z."
            ]
        );
    }

    #[test]
    fn the_last_failure_is_shown_until_the_machine_serves() {
        let records = [
            json!({"at": "t1", "events": ["probe failed (NoAnswer), attempt 1: nobody"]}),
            json!({"at": "t2", "events": ["the Machine is seen: Provisioned"]}),
        ];
        let probing = json!({"name": "m", "state": "Provisioned", "waitingFor": "SSH"});
        let last = failure_in(&records, &probing);
        assert_eq!(
            last.as_deref(),
            Some("Last, at t1, probe failed (NoAnswer), attempt 1: nobody.")
        );
        assert!(paragraph(&probing, last.as_deref(), None).contains("NoAnswer"));
        assert_eq!(failure_in(&records, &json!({"state": "Joined"})), None);
    }
}
