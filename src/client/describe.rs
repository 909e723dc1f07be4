//! `dormer describe`: all fields of one object, including those that only a newer server knows.

use super::{Failure, ServerArgs, absent, items::Kind, machines, output::one_line, server::Server};
use clap::{Args, ValueEnum};
use dormer_profile::suggestion::question;
use dormer_proto::id::Timestamp;
use dormer_views::{
    explain,
    machine::{Machine, Machines},
    moment::{Moment, span},
    numbers::Numbers,
};
use serde_json::Value;

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Described {
    /// A machine
    #[value(aliases = ["machines", "m"])]
    Machine,
    /// A pool's rollout
    #[value(aliases = ["rollouts"])]
    Rollout,
    /// The same
    #[value(aliases = ["pools"])]
    Pool,
}

/// Arguments of `dormer describe`.
#[derive(Debug, Args)]
pub struct Describe {
    /// Kind of object (machine, rollout or pool), KIND/NAME, or the name alone
    #[arg(value_name = "KIND|NAME")]
    target: String,
    /// Name; a machine also goes by the end of its name, or its UID
    name: Option<String>,
    #[command(flatten)]
    to: ServerArgs,
}

/// Kind and name in the words of the command line. No kind: a machine, or else a pool.
fn chosen(first: &str, second: Option<&str>) -> Result<(Option<Described>, String), Failure> {
    let kind = |word: &str| Described::from_str(word, true).ok();
    let of_kind = first.split_once('/').filter(|(_, name)| !name.is_empty());
    let of_kind = of_kind.and_then(|(word, name)| Some((kind(word)?, name)));
    match (of_kind, kind(first), second) {
        (Some((kind, name)), _, None) | (None, Some(kind), Some(name)) => {
            Ok((Some(kind), name.to_owned()))
        }
        (None, None, None) => Ok((None, first.to_owned())),
        (None, None, Some(_)) => Err(no_kind(first)),
        (Some(_), _, Some(_)) | (None, Some(_), None) => {
            let message = "give one name: KIND NAME, or KIND/NAME, or NAME alone";
            Err(Failure::Usage(message.into()))
        }
    }
}

/// Failure for a word that is no kind, with the near one.
fn no_kind(word: &str) -> Failure {
    let kinds = Described::value_variants().iter();
    let kinds = kinds.filter_map(|it| Some(it.to_possible_value()?.get_name().to_owned()));
    let kinds: Vec<String> = kinds.collect();
    let near = question(word, kinds.iter().map(String::as_str));
    Failure::Usage(format!(
        "{word} is no kind of object{near}\nthe kinds are: {}",
        kinds.join(", ")
    ))
}

impl Describe {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let (kind, name) = chosen(&self.target, self.name.as_deref())?;
        let server = self.to.server()?;
        let mut steps = Vec::new();
        let found: Value = match kind {
            Some(Described::Rollout | Described::Pool) => rollout(&server, &name).await?,
            Some(Described::Machine) | None => {
                let machine = machines::answer(&server, &name).await;
                match (machine, kind) {
                    (Ok(answer), _) => {
                        steps = do_now(&answer.view);
                        answer.raw().clone()
                    }
                    (Err(absent @ Failure::Absent { .. }), None) => {
                        let pool = server.get(&Kind::Rollouts.one(&name)).await;
                        pool.map_err(|_| absent)?
                    }
                    (Err(failure), _) => return Err(failure),
                }
            }
        };
        let programs = self.to.programs(&found)?;
        let found = match found.get("members") {
            Some(_) => with_numbers(&server, found).await,
            None => found,
        };
        Ok(programs.unwrap_or_else(|| {
            let mut lines = vec![described(&found)];
            lines.append(&mut steps);
            lines.join("\n")
        }))
    }
}

/// A rollout with the numbers of its machines, as `dormer get rollouts` has them.
async fn with_numbers(server: &Server, mut rollout: Value) -> Value {
    let pool = rollout["pool"].as_str().unwrap_or_default();
    if let Ok(Machines { items, .. }) = server.get("/machines").await {
        let Numbers {
            machines,
            serving,
            updated,
            ..
        } = Numbers::of_pool(&items, pool);
        rollout["machines"] = machines.into();
        rollout["serving"] = serving.into();
        rollout["updated"] = updated.into();
    }
    rollout
}

/// The rollout of a pool.
async fn rollout(server: &Server, pool: &str) -> Result<Value, Failure> {
    let answered = server.get(&Kind::Rollouts.one(pool)).await;
    absent::explained(server, Kind::Rollouts, pool, answered).await
}

/// Section with the next steps, as `dormer why` has them; none for a machine that serves.
fn do_now(machine: &Machine) -> Vec<String> {
    let steps = explain::steps(machine, None);
    let lines = explain::step_lines(&steps).into_iter();
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
            "phaseSince",
            "usualSeconds",
            "reason",
            "failure",
            "waitingFor",
            "asked",
            "retried",
            "quarantine",
            "downSince",
            "halt",
            "alsoHalted",
            "halted",
            "held",
            "heldCure",
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
        &[
            "version",
            "desiredVersion",
            "differs",
            "templateDiffers",
            "approval",
            "rollbackTo",
        ],
    ),
    (
        "Node and Machine",
        &[
            "node",
            "expectedNode",
            "address",
            "zone",
            "served",
            "cordonedBy",
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
            "machines",
            "serving",
            "updated",
            "failed",
            "unavailable",
            "maxUnavailable",
            "manualApproval",
            "typicalTurnSeconds",
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
    "members",
    "joined",
    "phase",
    "sinceSeconds",
    "run",
    "seq",
    "enteredSeq",
    "episode",
    "eroded",
];
/// Words that are written otherwise than their fields.
const WORDS: &[(&str, &str)] = &[
    ("uid", "UID"),
    ("phaseText", "Phase"),
    ("slots", "Holders"),
    ("away", "Unavailable machines"),
    ("gaps", "Deleted by others"),
    ("turnedAway", "Beyond the limit"),
    ("rollbackTo", "Can go back to"),
    ("typicalTurnSeconds", "Usual turn"),
    ("usualSeconds", "Usual step"),
];
/// The same in a table of things.
const ITEM_WORDS: &[(&str, &str)] = &[
    ("away", "Already unavailable"),
    ("marked", "Over the limit"),
];
/// Fields with durations in seconds, which are shown as `2m48s`.
const DURATIONS: &[&str] = &["typicalTurnSeconds", "usualSeconds"];
/// First columns of such a table.
const FIRST: &[&str] = &[
    "position", "name", "type", "status", "reason", "why", "since",
];
/// Fields of things that are for programs.
const OF_PROGRAMS: &[&str] = &["uid", "holder", "seq", "token"];

/// Fields in sections, without those that have no value.
pub(super) fn described(thing: &Value) -> String {
    let thing = with_times(thing, now(thing));
    let Value::Object(fields) = &thing else {
        return plain(&thing);
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
                let items = match is_table(value) {
                    true => rows(items),
                    false => items.iter().map(in_a_line).collect(),
                };
                lines.extend(items.iter().map(|item| format!("{indent}  {item}")));
                continue;
            }
            lines.push(format!("{indent}{label:width$}{}", plain(value)));
        }
    }
    lines.join("\n")
}

/// Time of the server at which it answered.
fn now(thing: &Value) -> Option<Timestamp> {
    let Moment(since) = moment(thing.get("since")?)?;
    let seconds = thing.get("sinceSeconds").and_then(Value::as_u64)?;
    Some(Timestamp(since.0 + seconds.saturating_mul(1_000)))
}

fn moment(value: &Value) -> Option<Moment> {
    serde_json::from_value(value.clone()).ok()
}

/// The value with its times for people: time of day and age.
fn with_times(value: &Value, now: Option<Timestamp>) -> Value {
    let Some(at) = now else { return value.clone() };
    match value {
        Value::String(_) => match moment(value) {
            Some(moment) => Value::String(moment.with_age(at)),
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(|item| with_times(item, now)).collect(),
        Value::Object(fields) => {
            let shown = fields.iter().map(|(key, value)| {
                let seconds = value.as_u64().filter(|_| DURATIONS.contains(&key.as_str()));
                let shown = match seconds {
                    Some(seconds) => Value::String(span(seconds)),
                    None => with_times(value, now),
                };
                (key.clone(), shown)
            });
            Value::Object(shown.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
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

/// Whether a value is a list of things with plain fields, which is written as a table.
fn is_table(value: &Value) -> bool {
    let plain = |item: &Value| {
        let fields = item.as_object();
        fields.is_some_and(|fields| !fields.values().any(Value::is_object))
    };
    value
        .as_array()
        .is_some_and(|items| items.iter().all(plain))
}

/// Table of things, as kubectl's describe has them: a line of headings, and a line for each thing. Columns without any
/// value are left out, and so are those for programs where the things have names.
fn rows(items: &[Value]) -> Vec<String> {
    let mut keys: Vec<&str> = Vec::new();
    for (key, value) in items.iter().filter_map(Value::as_object).flatten() {
        if !is_empty(value) && !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    if keys.contains(&"name") {
        keys.retain(|key| !OF_PROGRAMS.contains(key));
    }
    keys.sort_by_key(|key| FIRST.iter().position(|it| it == key).unwrap_or(FIRST.len()));
    let column = |key: &&str| -> Vec<String> {
        let word = ITEM_WORDS.iter().find(|(known, _)| known == key);
        let heading = word.map_or_else(|| heading(key), |(_, word)| (*word).to_owned());
        let cells = items.iter().map(|item| plain(&item[*key]));
        std::iter::once(heading).chain(cells).collect()
    };
    let columns: Vec<Vec<String>> = keys.iter().map(column).collect();
    let width = |column: &Vec<String>| column.iter().map(|it| it.chars().count()).max();
    let widths: Vec<usize> = columns.iter().filter_map(width).collect();
    let row = |at: usize| -> String {
        let cells = columns.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(column, width)| format!("{:width$}", column[at]))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    (0..=items.len()).map(row).collect()
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
    use dormer_views::rollout::{Pool, Rollout};
    use serde_json::json;

    #[test]
    fn a_machine_that_failed_is_described_with_what_to_do() {
        let failed = machine_with(json!({"state": "Failed", "phase": "failed", "failure":
            {"code": "AuthRejected", "message": "", "phase": "probing", "phaseText": "probing"}}));
        let lines = do_now(&failed);
        assert_eq!(lines[0], "Do now:");
        assert!(
            lines.contains(&"       dormer retry win-1".to_owned()),
            "{lines:?}"
        );
        let serving = json!({"state": "Joined", "phase": "serving", "phaseText": "serving"});
        assert_eq!(do_now(&machine_with(serving)), Vec::<String>::new());
    }

    /// Fields of a view, as the API answers it.
    fn fields<T: schemars::JsonSchema>() -> Vec<String> {
        let schema = schemars::schema_for!(T);
        let fields = schema.get("properties").and_then(Value::as_object);
        fields.expect("an object").keys().cloned().collect()
    }

    #[test]
    fn every_named_field_is_one_of_the_views() {
        let mut known = fields::<Machine>();
        known.extend(fields::<Rollout>());
        known.extend(fields::<Pool>());
        // Of the machines of a rollout.
        known.extend(["machines", "serving", "updated"].map(str::to_owned));
        let sections = SECTIONS.iter().flat_map(|(_, keys)| keys.iter());
        let stale: Vec<&&str> = sections
            .chain(SAID)
            .filter(|key| !known.iter().any(|field| field == *key))
            .collect();
        assert_eq!(stale, [&""; 0], "of {known:?}");
    }

    #[test]
    fn an_object_is_named_with_its_kind_or_without() {
        let machine = Some(Described::Machine);
        for (first, second, kind, name) in [
            ("win-1", None, None, "win-1"),
            ("ns/win-1", None, None, "ns/win-1"),
            ("machine", Some("win-1"), machine, "win-1"),
            ("machine", Some("ns/win-1"), machine, "ns/win-1"),
            ("machine/win-1", None, machine, "win-1"),
            ("pool/windows", None, Some(Described::Pool), "windows"),
            (
                "rollouts",
                Some("windows"),
                Some(Described::Rollout),
                "windows",
            ),
        ] {
            assert_eq!(
                chosen(first, second),
                Ok((kind, name.to_owned())),
                "{first}"
            );
        }
        for (first, second, said) in [
            ("machnie", Some("win-1"), "did you mean machine?"),
            (
                "node",
                Some("win-1"),
                "the kinds are: machine, rollout, pool",
            ),
            ("machine", None, "give one name"),
            ("machine/a", Some("b"), "give one name"),
        ] {
            let failed = chosen(first, second).expect_err(first).to_string();
            assert!(failed.contains(said), "{failed}");
        }
    }

    #[test]
    fn every_field_of_the_views_has_its_section() {
        let mut known = fields::<Machine>();
        known.extend(fields::<Rollout>());
        known.extend(fields::<Pool>());
        let named = |key: &String| {
            SECTIONS
                .iter()
                .any(|(_, keys)| keys.contains(&key.as_str()))
        };
        // An answer to an action has the last one.
        let rest = known
            .iter()
            .filter(|key| !named(key) && !SAID.contains(&key.as_str()) && *key != "ended");
        assert_eq!(rest.collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn durations_are_written_as_people_say_them() {
        let thing = json!({"pool": "windows", "typicalTurnSeconds": 168,
            "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 5});
        let text = described(&thing);
        assert!(text.contains("Usual turn: 2m48s"), "{text}");
    }

    #[test]
    fn a_rollout_is_described_in_tables_without_what_is_for_programs() {
        let rollout = json!({"pool": "windows", "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 120,
            "away": [{"uid": "u1", "name": "win-a", "why": "holds the lease"}],
            "queue": [{"uid": "u2", "name": "win-b", "position": 1, "away": false},
                {"uid": "u3", "name": "win-long-c", "position": 2, "away": true}],
            "slots": [{"token": 5, "holder": "u1", "name": "win-a", "marked": false, "seq": 20,
                "since": "2026-11-21T07:00:00.000Z", "waitsFor": null}]});
        let text = described(&rollout);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "Pool: windows",
                "State:",
                "  Since: 07:00:00 UTC (2m ago)",
                "Lease:",
                "  Holders:",
                "    Name   Since                  Over the limit",
                "    win-a  07:00:00 UTC (2m ago)  no",
                "  Queue:",
                "    Position  Name        Already unavailable",
                "    1         win-b       no",
                "    2         win-long-c  yes",
                "  Unavailable machines:",
                "    Name   Why",
                "    win-a  holds the lease",
            ]
        );
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
                "  Since:   07:00:00 UTC (5m12s ago)",
                "  Failure:",
                "    code NoAnswer, phase probing",
                "  Halt:",
                "    by ada, kind paused",
                "Tasks:",
                "  Tasks:",
                "    Task",
                "    probe",
                "More:",
                "  Colour of tomorrow: blue",
            ]
        );
    }
}
