//! `dormer describe`: all fields of one object, including those that only a newer server knows.

use super::{
    Failure, To, absent,
    items::{Kind, Target, TargetParser},
    machines,
    output::one_line,
};
use clap::{Args, ValueEnum};
use dormer_views::{
    explain::{self, Step},
    machine::Machine,
    moment::span,
};
use serde_json::Value;

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Described {
    /// A machine
    #[value(aliases = ["machines", "m"])]
    Machine,
    /// A pool's rollout
    #[value(aliases = ["rollouts", "pool"])]
    Rollout,
}

/// Arguments of `dormer describe`.
#[derive(Debug, Args)]
pub struct Describe {
    /// Kind of object, or KIND/NAME
    #[arg(value_name = "KIND", value_parser = TargetParser::<Described>::new())]
    target: Target<Described>,
    /// Name; a machine also goes by the end of its name, or its UID
    name: Option<String>,
    #[command(flatten)]
    to: To,
}

impl Describe {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let name = match (self.target.name, self.name) {
            (Some(name), None) | (None, Some(name)) => name,
            _ => {
                return Err(Failure::Usage(
                    "give one name: KIND NAME, or KIND/NAME".into(),
                ));
            }
        };
        let server = self.to.server()?;
        let mut steps = Vec::new();
        let found: Value = match self.target.kind {
            Described::Machine => {
                let answer = machines::answer(&server, &name).await?;
                steps = do_now(&answer.view);
                answer.raw().clone()
            }
            Described::Rollout => {
                let answered = server.get(&Kind::Rollouts.one(&name)).await;
                absent::explained(&server, Kind::Rollouts, &name, answered).await?
            }
        };
        let programs = self.to.programs(&found)?;
        Ok(programs.unwrap_or_else(|| {
            let mut lines = vec![described(&found)];
            lines.append(&mut steps);
            lines.join("\n")
        }))
    }
}

/// Section with the next steps, as `dormer why` has them; none for a machine that serves.
fn do_now(machine: &Machine) -> Vec<String> {
    let steps = explain::steps(machine, None);
    let lines = steps.iter().flat_map(Step::lines);
    let lines: Vec<String> = lines.map(|line| format!("  {line}")).collect();
    match lines.is_empty() {
        true => lines,
        false => std::iter::once("Do now:".to_owned()).chain(lines).collect(),
    }
}

/// Sections of a description: heading and fields. Fields of no section are in the last one.
const SECTIONS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "name",
            "kind",
            "namespace",
            "uid",
            "pool",
            "owner",
            "created",
            "payload",
        ],
    ),
    (
        "State",
        &[
            "state",
            "phaseText",
            "since",
            "reason",
            "failure",
            "waitingFor",
            "halt",
            "halted",
            "held",
            "refused",
            "paused",
            "lacks",
            "neighbour",
            "rollback",
            "deleting",
        ],
    ),
    (
        "Version",
        &["version", "desiredVersion", "differs", "templateDiffers"],
    ),
    (
        "Node and Machine",
        &[
            "node",
            "expectedNode",
            "address",
            "zone",
            "served",
            "certificateRefused",
            "notCompared",
            "unserved",
            "machinePhase",
            "machineError",
            "machineConditions",
        ],
    ),
    (
        "Machines",
        &[
            "members",
            "joined",
            "failed",
            "unavailable",
            "maxUnavailable",
            "manualApproval",
            "machineSets",
        ],
    ),
    (
        "Lease",
        &[
            "token",
            "drain",
            "slots",
            "queue",
            "away",
            "gaps",
            "awaited",
            "turnedAway",
        ],
    ),
    ("Tasks", &["attempt", "tasks"]),
    ("History", &["began", "closed"]),
    ("More", &[]),
];
/// Fields that repeat others, or that are for programs: `-o json` has them.
const SAID: &[&str] = &[
    "phase",
    "sinceSeconds",
    "run",
    "seq",
    "enteredSeq",
    "episode",
];
/// Words that are written otherwise than their fields.
const WORDS: &[(&str, &str)] = &[("uid", "UID"), ("phaseText", "Phase")];

/// Fields in sections, without those that have no value.
pub(super) fn described(thing: &Value) -> String {
    let Value::Object(fields) = thing else {
        return plain(thing);
    };
    let named = |key: &str| SECTIONS.iter().any(|(_, keys)| keys.contains(&key));
    let mut lines = Vec::new();
    for (heading, keys) in SECTIONS {
        let found: Vec<(&str, &Value)> = if keys.is_empty() {
            let rest = fields
                .iter()
                .filter(|(key, _)| !named(key) && !SAID.contains(&key.as_str()));
            rest.map(|(key, value)| (key.as_str(), value)).collect()
        } else {
            let found = keys
                .iter()
                .filter_map(|key| Some((*key, fields.get(*key)?)));
            found.collect()
        };
        // The reason has its code and its message.
        let said =
            |key: &str| key == "failure" && fields.get("reason").is_some_and(|it| !is_empty(it));
        let found: Vec<(&str, &Value)> = found
            .into_iter()
            .filter(|(key, it)| !is_empty(it) && !said(key))
            .collect();
        if found.is_empty() {
            continue;
        }
        let indent = if heading.is_empty() { "" } else { "  " };
        if !heading.is_empty() {
            lines.push(format!("{heading}:"));
        }
        let width = found
            .iter()
            .map(|(key, _)| self::heading(key).len())
            .max()
            .unwrap_or(0)
            + 2;
        for (key, value) in found {
            let label = format!("{}:", self::heading(key));
            if holds_things(value) {
                lines.push(format!("{indent}{label}"));
                let items = value.as_array().map(Vec::as_slice);
                let items = items.unwrap_or(std::slice::from_ref(value));
                lines.extend(
                    items
                        .iter()
                        .map(|item| format!("{indent}  {}", in_a_line(item))),
                );
                continue;
            }
            let mut text = plain(value);
            if key == "since"
                && let Some(seconds) = fields.get("sinceSeconds").and_then(Value::as_u64)
            {
                text += &format!(" ({} ago)", span(seconds));
            }
            lines.push(format!("{indent}{label:width$}{text}"));
        }
    }
    lines.join("\n")
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

fn holds_things(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(Value::is_object),
        other => other.is_object(),
    }
}

fn in_a_line(thing: &Value) -> String {
    let Value::Object(fields) = thing else {
        return plain(thing);
    };
    // The phase in words replaces its id.
    let said = |key: &str| key == "phase" && fields.contains_key("phaseText");
    let described = fields
        .iter()
        .filter(|(key, value)| !is_empty(value) && !said(key));
    described
        .map(|(key, value)| format!("{} {}", heading(key).to_lowercase(), plain(value)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Value on one line: a dash for null, a list as its items.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => one_line(""),
        Value::String(text) => one_line(text),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Array(items) if items.is_empty() => one_line(""),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(_) | Value::Number(_) => value.to_string(),
    }
}

/// `waitingFor` as `Waiting for`.
fn heading(key: &str) -> String {
    if let Some((_, word)) = WORDS.iter().find(|(known, _)| *known == key) {
        return (*word).to_owned();
    }
    let mut words = String::new();
    for (at, character) in key.chars().enumerate() {
        if at == 0 {
            words.extend(character.to_uppercase());
        } else if character.is_uppercase() {
            words.push(' ');
            words.extend(character.to_lowercase());
        } else {
            words.push(character);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::machine_with;
    use serde_json::json;

    #[test]
    fn a_machine_that_failed_is_described_with_what_to_do() {
        let failed = machine_with(json!({"state": "Failed", "phase": "failed", "failure":
            {"code": "AuthRejected", "message": "", "phase": "probing", "phaseText": "probing"}}));
        let lines = do_now(&failed);
        assert_eq!(lines[0], "Do now:");
        assert!(
            lines.contains(&"    dormer retry win-1".to_owned()),
            "{lines:?}"
        );
        let serving = json!({"state": "Joined", "phase": "serving", "phaseText": "serving"});
        assert_eq!(do_now(&machine_with(serving)), Vec::<String>::new());
    }

    #[test]
    fn a_description_has_sections_without_what_has_no_value() {
        let thing = json!({"waitingFor": null, "name": "a", "state": "Failed", "phase": "failed",
            "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 312, "halt": {"kind": "paused", "by": "ada"},
            "failure": {"code": "NoAnswer", "phase": "probing", "phaseText": "probing"},
            "tasks": [{"task": "probe", "of": null}], "colourOfTomorrow": "blue", "differs": []});
        let text = described(&thing);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "Name: a",
                "State:",
                "  State:   Failed",
                "  Since:   2026-11-21T07:00:00.000Z (5m12s ago)",
                "  Failure:",
                "    code NoAnswer, phase probing",
                "  Halt:",
                "    by ada, kind paused",
                "Tasks:",
                "  Tasks:",
                "    task probe",
                "More:",
                "  Colour of tomorrow: blue",
            ]
        );
    }
}
