//! `dormer why`: one paragraph about one machine, for a person on call.

use super::{
    Failure, To,
    act::run_of,
    get::list,
    output::span,
    server::{Server, segment},
};
use clap::Args;
use serde_json::{Value, json};

/// How many records are searched for what was tried last.
const LOOK_BACK: u64 = 30;

/// Of which machine.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The machine: its name, NAMESPACE/NAME, or its UID
    machine: String,
    #[command(flatten)]
    to: To,
}

impl Why {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let machine = server.get(&format!("/machines/{}", segment(&self.machine))).await?;
        let last = last_failure(&server, &machine).await?;
        let why = paragraph(&machine, last.as_deref());
        let told = json!({"name": machine["name"], "uid": machine["uid"], "why": why});
        Ok(self.to.output.for_programs(&told)?.unwrap_or(why))
    }
}

/// The last thing that failed among the latest records, with its time. What serves has got over it.
async fn last_failure(server: &Server, machine: &Value) -> Result<Option<String>, Failure> {
    let (Some(run), Some(seq)) = (word(machine, "run"), machine["seq"].as_u64()) else {
        return Ok(None);
    };
    let from = seq.saturating_sub(LOOK_BACK).max(1);
    let run = run_of(server, run).await?;
    let page = server.get(&format!("{run}/history?from={from}&limit={}", LOOK_BACK + 1)).await?;
    Ok(failure_in(&list(page), machine))
}

fn failure_in(records: &[Value], machine: &Value) -> Option<String> {
    if word(machine, "state") == Some("Joined") && word(machine, "waitingFor").is_none() {
        return None;
    }
    let mut told = records.iter().rev().flat_map(|record| {
        let events = record["events"].as_array().into_iter().flatten().rev();
        events.filter_map(Value::as_str).map(|event| (event, word(record, "at")))
    });
    let (event, at) = told.find(|(event, _)| event.contains(" failed ("))?;
    Some(sentence(&format!("Last, at {}, {event}", at.unwrap_or("some time"))))
}

/// The whole paragraph.
fn paragraph(machine: &Value, last_failure: Option<&str>) -> String {
    let mut sentences = vec![where_it_is(machine)];
    sentences.extend(word(machine, "waitingFor").map(|what| format!("It waits for {what}.")));
    sentences.extend(word(machine, "reason").map(|why| sentence(&format!("Reason: {why}"))));
    for task in machine["tasks"].as_array().into_iter().flatten() {
        sentences.extend(tried(task));
    }
    // A task that waits for its next attempt, and a machine that failed, have told it already.
    if !sentences
        .iter()
        .any(|said| said.contains(" failed at attempt ") || said.starts_with("Reason:"))
    {
        sentences.extend(last_failure.map(str::to_owned));
    }
    if let Some(phase) = word(machine, "machinePhase").filter(|phase| *phase != "Running") {
        sentences.push(format!("Its Machine is in phase {phase}."));
    }
    if let Some(error) = word(machine, "machineError") {
        sentences.push(sentence(&format!("The Machine says: {error}")));
    }
    sentences.push(next_step(machine));
    sentences.join(" ")
}

fn word<'a>(thing: &'a Value, key: &str) -> Option<&'a str> {
    thing[key].as_str().filter(|text| !text.is_empty())
}

fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

fn where_it_is(machine: &Value) -> String {
    let name = word(machine, "name").or_else(|| word(machine, "uid")).unwrap_or("It");
    let mut text = format!("{name} is {}", word(machine, "state").unwrap_or("somewhere"));
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
    let of = task["attemptsMax"].as_u64().filter(|max| *max < u64::from(u16::MAX));
    let of = of.map_or_else(String::new, |max| format!(" of {max}"));
    let attempt = task["attempt"].as_u64().unwrap_or_default();
    let mut told = Vec::new();
    if let Some(code) = word(&task["failure"], "code") {
        let message = word(&task["failure"], "message").unwrap_or_default();
        let until = word(task, "until")
            .map_or_else(String::new, |at| format!("; the next attempt is due {at}"));
        told.push(sentence(&format!(
            "{name} failed at attempt {attempt}{of} ({code}: {message}){until}"
        )));
    } else {
        let long =
            task["sinceSeconds"].as_u64().map_or_else(String::new, |s| format!(" for {}", span(s)));
        told.push(format!(
            "{name} is under way{long}, attempt {attempt}{of}{}.",
            progress(&task["heartbeat"])
        ));
    }
    told
}

fn progress(beat: &Value) -> String {
    let Some(step) = word(beat, "step") else { return String::new() };
    let (done, of) = (beat["done"].as_u64().unwrap_or(0), beat["of"].as_u64().unwrap_or(0));
    let unit = word(beat, "unit").unwrap_or_default();
    let worker = word(beat, "worker").unwrap_or("a worker");
    let amount = if of > 0 { format!(", {done} of {of} {unit}") } else { String::new() };
    format!(", at {worker}, step {step}{amount}")
}

/// What a person may do next.
fn next_step(machine: &Value) -> String {
    let name = word(machine, "name").unwrap_or("MACHINE");
    let phase = word(machine, "phase").unwrap_or_default();
    let pool = word(machine, "pool").unwrap_or("windows");
    let halted = word(machine, "halted");
    let code = word(machine, "reason").and_then(|reason| reason.split_whitespace().next());
    match (word(machine, "state"), halted, phase) {
        (Some("Gone"), ..) => "Nothing is left to do.".into(),
        (_, Some(halted), _) if halted.starts_with("hands off") => {
            "To go on, take that label off the Machine.".into()
        }
        (_, Some(_), _) => format!("To go on: dormer resume {name}."),
        (Some("Failed"), ..) => failed(name, code.unwrap_or_default()),
        (_, _, "waiting for approval") => format!("To let it be upgraded: dormer approve {name}."),
        (_, _, "waiting for the lease") => {
            format!("Who has the lease, and what the next grant waits for: dormer describe rollout {pool}.")
        }
        (_, _, "waiting for an owner") => {
            "A Machine without a MachineSet is not replaced: give it one, or choose the strategy in-place.".into()
        }
        (_, _, "waiting for the key to be accepted") => {
            "If it stays so: the private key does not belong to the public key in the machines' user data.".into()
        }
        (_, _, "drained") => format!("To give the node back: dormer resume {name}."),
        (_, _, "evicting") if word(machine, "reason").is_some() => {
            format!("Mend what holds those pods, or give up: dormer abort {name}.")
        }
        (_, _, "waiting for an address") => {
            "The cloud makes it; its MachineSet and the machine API's controllers say more if it stays so.".into()
        }
        (Some("Joined"), _, "serving") if word(machine, "waitingFor").is_none() => "There is nothing to do.".into(),
        _ => format!("dormer goes on by itself; dormer history {name} tells what was done."),
    }
}

fn failed(name: &str, code: &str) -> String {
    let first = match code {
        "AuthRejected" => {
            "Let the host accept dormer's key (the user, and the public key in its user data)"
        }
        "HostKeyChanged" => {
            "Find out why the host shows another key: a host rebuilt under the same Machine is to be recreated"
        }
        "DiskFull" => "Make room on the host's disk",
        "ClockSkew" => "Set the host's clock",
        "NameMismatch" => "Let the Machine's name and the host's agree",
        "ProfileUnusable" | "DocumentUnusable" | "Invalid" => "Mend the profile",
        "VersionNotHere" | "PayloadUnreadable" | "PayloadDamaged" => "Install the payload anew",
        "BootstrapUnusable" => "Mend the bootstrap kubeconfig in its Secret",
        "Forbidden" => "Grant dormer's ServiceAccount what the message names",
        "NodeOverdue" | "NotReadyOverdue" => {
            "Look at kubelet's log on the host, and at the Node's conditions"
        }
        "MachineFailed" => "The cloud has given the Machine up: recreate it",
        _ => "Mend the cause",
    };
    format!("{first}; then: dormer retry {name}. Or replace it: dormer recreate {name}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_with_its_cause_and_the_next_step() {
        let machine = json!({
            "name": "win-1", "state": "Failed", "phase": "failed", "sinceSeconds": 312,
            "since": "2026-11-21T07:00:00.000Z", "desiredVersion": "v2", "machinePhase": "Provisioned",
            "reason": "AuthRejected while probing: the key is not accepted.",
            "waitingFor": "a retry (dormer retry), or a change that gives a reason", "tasks": [],
        });
        assert_eq!(
            paragraph(&machine, None),
            "win-1 is Failed since 5m12s, 2026-11-21T07:00:00.000Z, and is to carry v2. \
             It waits for a retry (dormer retry), or a change that gives a reason. \
             Reason: AuthRejected while probing: the key is not accepted. \
             Its Machine is in phase Provisioned. \
             Let the host accept dormer's key (the user, and the public key in its user data); then: \
             dormer retry win-1. Or replace it: dormer recreate win-1."
        );
    }

    #[test]
    fn what_is_tried_is_told_with_how_far_it_is() {
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
    fn what_failed_last_is_told_until_the_machine_serves() {
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
        assert!(paragraph(&probing, last.as_deref()).contains("NoAnswer"));
        assert_eq!(failure_in(&records, &json!({"state": "Joined"})), None);
    }

    #[test]
    fn each_way_to_stand_still_has_its_own_next_step() {
        let next = |state: &str, phase: &str, halted: Option<&str>| {
            next_step(&json!({"name": "m", "state": state, "phase": phase, "halted": halted}))
        };
        assert!(next("Joined", "serving", None).contains("nothing to do"));
        assert!(next("Joined", "waiting for approval", None).contains("dormer approve m"));
        assert!(next("Joined", "waiting for the lease", None).contains("describe rollout windows"));
        assert!(next("Reachable", "rebooting", Some("paused by x")).contains("dormer resume m"));
        assert!(next("Reachable", "rebooting", None).contains("by itself"));
    }
}
