//! `dormer describe`: all fields of one object, including those that only a newer server knows.

mod objects;
mod sections;

use super::{Failure, ServerArgs, absent, answer::Answer, items::Kind, machines, server::Server};
use clap::{Args, ValueEnum};
use dormer_profile::suggestion::question;
use dormer_proto::id::Timestamp;
use dormer_views::{
    explain,
    machine::{Machine, Machines},
    problem::word_among,
    rollout::{Pool, Rollout},
    run::DeadLetter,
};
use sections::Section;
use serde::Serialize;

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
    let variants = Described::value_variants().iter();
    let names = variants.filter_map(|it| Some(it.to_possible_value()?.get_name().to_owned()));
    let kinds: Vec<String> = names.collect();
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
        if let Some(Described::Rollout | Described::Pool) = kind {
            let answered = server.get(&Kind::Rollouts.one(&name)).await;
            let found = absent::explained(&server, Kind::Rollouts, &name, answered).await?;
            return self.rollout(&server, found).await;
        }
        match machines::answer(&server, &name).await {
            Ok(found) => self.machine(&server, &found),
            Err(absent @ Failure::Absent { .. }) if kind.is_none() => {
                let found = server.get(&Kind::Rollouts.one(&name)).await;
                let found = found.map_err(|_| absent)?;
                self.rollout(&server, found).await
            }
            Err(failure) => Err(failure),
        }
    }

    fn machine(&self, server: &Server, found: &Answer<Machine>) -> Result<String, Failure> {
        let programs = self.to.programs(found)?;
        Ok(programs.unwrap_or_else(|| {
            let mut lines = vec![machine_text(found)];
            lines.append(&mut next_steps(server, &found.view));
            lines.join("\n")
        }))
    }

    /// A rollout with what its machines say of it, as `dormer get rollouts` has them.
    async fn rollout(
        &self,
        server: &Server,
        mut found: Answer<Rollout>,
    ) -> Result<String, Failure> {
        let machines = server.get::<Machines>("/machines").await.ok();
        let machines = machines.as_ref().map(|it| it.items.as_slice());
        let word = word_among(&found.view, machines.unwrap_or_default()).to_owned();
        found.derive("state", &word);
        if let Some(programs) = self.to.programs(&found)? {
            return Ok(programs);
        }
        // Who may not read pools sees the rest.
        let pool = server.get::<Pool>(&Kind::Pools.one(&found.view.pool)).await;
        let back = pool.map_or_else(|_| Vec::new(), |it| it.rollback_to);
        Ok(rollout_text(&found, machines, &back))
    }
}

/// Section with the next steps, as `dormer why` has them; none for a machine that serves.
fn next_steps(server: &Server, machine: &Machine) -> Vec<String> {
    let mut steps = explain::steps(machine, None);
    server.address().reach(&mut steps);
    do_now(explain::before_steps(&[machine]), &steps)
}

fn machine_text(found: &Answer<Machine>) -> String {
    let now = objects::now(&found.view.status);
    text(objects::of_machine(&found.view), found, now)
}

/// Description of a rollout whose pool may go back to the payloads `back`.
fn rollout_text(found: &Answer<Rollout>, machines: Option<&[Machine]>, back: &[String]) -> String {
    let now = objects::now(&found.view.status);
    text(objects::of_rollout(&found.view, machines, back), found, now)
}

/// Description of a dead letter.
pub(super) fn dead_letter_text(found: &Answer<DeadLetter>) -> String {
    text(objects::of_dead_letter(&found.view), found, found.view.at.0)
}

/// The sections, and what only a newer server knows.
fn text<T: Serialize>(mut sections: Vec<Section>, found: &Answer<T>, now: Timestamp) -> String {
    let known = serde_json::to_value(&found.view).unwrap_or_default();
    sections.push(sections::more(found.raw(), &known, now));
    sections::text(&sections)
}

fn do_now(before: Option<String>, steps: &[explain::Step]) -> Vec<String> {
    if steps.is_empty() {
        return Vec::new();
    }
    let lines = before.into_iter().chain(explain::step_lines(steps));
    let lines = lines.map(|line| format!("  {line}"));
    std::iter::once("Do now:".to_owned()).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{machine_json, machine_with, rollout_json};
    use serde_json::{Value, json};

    #[test]
    fn a_machine_that_failed_is_described_with_what_to_do() {
        let failed = machine_with(json!({"state": "Failed", "phase": "failed", "failure":
            {"code": "AuthRejected", "message": "", "phase": "probing", "phaseText": "probing"}}));
        let lines = do_now(
            explain::before_steps(&[&failed]),
            &explain::steps(&failed, None),
        );
        assert_eq!(lines[0], "Do now:");
        assert!(
            lines.contains(&"       dormer retry win-1".to_owned()),
            "{lines:?}"
        );
        let serving = json!({"state": "Joined", "phase": "serving", "phaseText": "serving"});
        let serving = explain::steps(&machine_with(serving), None);
        assert_eq!(do_now(None, &serving), Vec::<String>::new());
        let probing = machine_with(json!({"phase": "probing", "phaseText": "probing"}));
        let lines = do_now(
            explain::before_steps(&[&probing]),
            &explain::steps(&probing, None),
        );
        let first =
            "  Nothing yet: dormer continues by itself. It counts as stuck at 07:30 UTC; then:";
        assert_eq!(lines[1], first);
    }

    /// Fields of a view, as the API answers it.
    fn fields<T: schemars::JsonSchema>() -> Vec<String> {
        let schema = schemars::schema_for!(T);
        let fields = schema.get("properties").and_then(Value::as_object);
        fields.expect("an object").keys().cloned().collect()
    }

    fn described_machine(value: Value) -> String {
        machine_text(&serde_json::from_value(value).expect("a machine"))
    }

    fn described_rollout(value: Value) -> String {
        rollout_text(
            &serde_json::from_value(value).expect("a rollout"),
            None,
            &[],
        )
    }

    #[test]
    fn a_pool_is_described_with_the_payloads_that_it_may_go_back_to() {
        let found = serde_json::from_value(rollout_json(json!({"payload": "11.1.0"})));
        let text = rollout_text(&found.expect("a rollout"), None, &["11.0.0".to_owned()]);
        let first: Vec<&str> = text.lines().take(3).collect();
        assert_eq!(
            first,
            [
                "Pool:           windows",
                "Payload:        11.1.0",
                "May go back to: 11.0.0"
            ]
        );
    }

    /// Each field but those for programs changes the description.
    fn all_are_shown(
        known: &[String],
        samples: &Value,
        for_programs: &[&str],
        base: &Value,
        described: fn(Value) -> String,
    ) {
        let before = described(base.clone());
        for field in known {
            if for_programs.contains(&field.as_str()) {
                continue;
            }
            let sample = samples.get(field);
            let sample = sample.unwrap_or_else(|| panic!("no value for {field}"));
            let mut with = base.clone();
            with[field] = sample.clone();
            assert_ne!(described(with), before, "{field} is not shown");
        }
    }

    const AT: &str = "2026-11-21T07:00:30.000Z";

    #[test]
    fn every_field_of_a_machine_is_described() {
        let failure =
            json!({"code": "NoAnswer", "message": "m", "phase": "probing", "phaseText": "probing"});
        let halt = json!({"kind": "held", "by": "ann", "text": "held by ann"});
        let mut samples = json!({
            "kind": "WindowsHost.dormer.io", "name": "w", "namespace": "n", "uid": "u2", "state": "Failed",
            "phaseText": "probing", "phaseSince": AT, "usualSeconds": 168, "reason": "r", "waitingFor": "SSH",
            "differs": ["a"], "drain": {"evicted": 1, "left": 2, "blockers": [], "force": false}, "version": "v1",
            "desiredVersion": "v2", "node": "n1", "expectedNode": "n2", "address": "10.0.0.7", "pool": "p",
            "zone": "z", "templateDiffers": [{"field": "f"}], "token": 5, "deleting": true, "machinePhase": "Running",
            "machineError": "quota", "machineConditions": [{"kind": "k", "status": "False", "reason": "", "message": ""}],
            "owner": "MachineSet/a", "halt": halt, "alsoHalted": [halt], "asked": {"what": "drain"},
        });
        let more = json!({
            "notCompared": {"code": "c", "message": "m"}, "unserved": {"code": "c", "message": "m"}, "neighbour": "w",
            "refused": {"code": "c", "message": "m", "whatToDo": "d"}, "certificateRefused": "c",
            "cordonedBy": {"program": "kubectl"}, "downSince": AT, "created": AT, "served": true, "attempt": 3,
            "tasks": [{"task": "machine/u@9.0", "run": "machine/u", "name": "probe", "attempt": 1,
                "attemptsMax": 65_535, "phase": "inFlight", "until": AT}],
            "lacks": "a key", "seq": 10, "enteredSeq": 8, "began": AT, "since": AT, "sinceSeconds": 62, "closed": AT,
            "quarantine": {"code": "c", "why": "w", "since": AT, "builds": ["1"]}, "failure": failure,
            "retried": {"at": AT, "code": "c", "message": "m", "phase": "probing", "phaseText": "probing"},
        });
        let more = more.as_object().expect("fields").clone();
        samples.as_object_mut().expect("fields").extend(more);
        let held = json!([halt.clone()]);
        let mut newest = json!({"retries": 2, "failingSince": AT, "setAside": held, "replacedBy": "w", "deleted": AT, "removed": true});
        newest["certificates"] = json!([{"use": "client", "from": AT, "until": AT}]);
        newest["hostRemarks"] = json!(["Docker"]);
        newest["tornDown"] = json!(true);
        newest["neighbourStop"] = json!("kubectl");
        newest["labels"] = json!({"team": "blue"});
        let newest = newest.as_object().expect("fields").clone();
        samples.as_object_mut().expect("fields").extend(newest);
        // The phase's text is shown, the text of a hold says its cause, and that of a refusal names the foreign Node; what a
        // resume or a hold ended, or would end, is in its answer alone.
        let for_programs = [
            "phase",
            "run",
            "episode",
            "holdCode",
            "foreignNode",
            "ended",
            "wouldEnd",
        ];
        let base = machine_json(json!({}));
        all_are_shown(
            &fields::<Machine>(),
            &samples,
            &for_programs,
            &base,
            described_machine,
        );
    }

    #[test]
    fn every_field_of_a_rollout_is_described() {
        let samples = json!({
            "pool": "p", "payload": "11", "state": "Paused", "failed": 1, "unavailable": 2, "maxUnavailable": 2,
            "manualApproval": true, "token": 5, "away": [{"uid": "u", "name": "a", "why": "holds"}],
            "queue": [{"uid": "u", "name": "a", "position": 1, "away": false}],
            "slots": [{"token": 5, "holder": "u", "name": "a", "marked": false, "seq": 20, "since": AT}],
            "gaps": [{"uid": "u", "name": "a", "owner": "s", "seq": 3, "since": AT, "waitsFor": "w"}],
            "awaited": ["a"], "turnedAway": ["a"], "paused": "ann", "held": "h", "heldCure": "c", "waitsCure": "w", "refused": "r",
            "halted": "h", "rollback": "r", "overridden": {"specPayload": "12", "by": "ann"}, "machineSets": [{"name": "s", "replicas": 2}], "waitingFor": "w",
            "edited": {"program": "kubectl-edit", "at": AT, "fields": ["paused"]}, "typicalTurnSeconds": 168, "seq": 10, "enteredSeq": 8, "began": AT, "since": AT, "sinceSeconds": 62,
            "closed": AT, "quarantine": {"code": "c", "why": "w", "since": AT, "builds": ["1"]},
        });
        // Machines and serving are the numbers for people; eroded has its sentence in waitingFor, an expected turn is called so,
        // and a wait for the end of a pause is in the pause's line.
        let for_programs = [
            "waitsForResume",
            "members",
            "joined",
            "eroded",
            "run",
            "episode",
            "typicalTurnExpected",
        ];
        let base = rollout_json(json!({}));
        all_are_shown(
            &fields::<Rollout>(),
            &samples,
            &for_programs,
            &base,
            described_rollout,
        );
    }

    #[test]
    fn a_paused_rollout_is_described_with_its_pause_once() {
        let paused = json!({"state": "Paused", "paused": "ann: a look",
            "waitingFor": "a resume (paused by ann: a look)", "waitsForResume": true});
        let text = described_rollout(rollout_json(paused));
        assert_eq!(text.matches("ann: a look").count(), 1, "{text}");
        assert!(text.contains("Paused:"), "{text}");
        let other = json!({"state": "Paused", "paused": "ann: a look", "waitingFor": "a slot"});
        assert!(described_rollout(rollout_json(other)).contains("Waiting for:"));
    }

    #[test]
    fn a_halted_rollout_says_since_when() {
        let halted = |state: &str| {
            let fields =
                json!({"state": state, "halted": "win-a failed", "since": AT, "sinceSeconds": 62});
            described_rollout(rollout_json(fields))
        };
        let shown = halted("Halted");
        assert!(
            shown.contains("win-a failed, since 07:00:30 UTC (62s ago)"),
            "{shown}"
        );
        let open = halted("Open");
        assert!(!open.contains("win-a failed, since"), "{open}");
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
    fn a_rollout_is_described_in_tables_without_what_is_for_programs() {
        let rollout = rollout_json(json!({"sinceSeconds": 120, "typicalTurnSeconds": 168,
            "away": [{"uid": "u1", "name": "win-a", "why": "holds the lease"}],
            "queue": [{"uid": "u2", "name": "win-b", "position": 1, "away": false},
                {"uid": "u3", "name": "win-long-c", "position": 2, "away": true}],
            "slots": [{"token": 5, "holder": "u1", "name": "win-a", "marked": false, "seq": 20,
                "since": "2026-11-21T07:00:00.000Z", "waitsFor": null}]}));
        let text = described_rollout(rollout);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "Pool: windows",
                "State:",
                "  State: Running",
                "  Since: 07:00:00 UTC (2m ago)",
                "Machines:",
                "  Failed:          0",
                "  Unavailable:     1",
                "  Manual approval: no",
                "  Usual turn:      2m48s",
                "Lease:",
                "  Token:                4",
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
                "History:",
                "  Began:                   06:00:00 UTC (1h2m ago)",
                "  Records:                 9",
                "  State entered at record: 7",
            ]
        );
    }

    #[test]
    fn a_description_has_sections_without_what_has_no_value() {
        let machine = machine_json(
            json!({"name": "a", "state": "Failed", "phase": "failed", "phaseText": "failed",
            "sinceSeconds": 312, "halt": {"kind": "paused", "by": "ada", "text": "paused by ada"},
            "failure": {"code": "NoAnswer", "message": "", "phase": "probing", "phaseText": "probing"},
            "tasks": [{"task": "machine/u@9.0", "run": "machine/u", "name": "probe", "attempt": 2, "attemptsMax": 9,
                "phase": "waiting", "until": "2026-11-21T07:06:00.000Z", "heartbeat": null}],
            "colourOfTomorrow": "blue", "lateBloomer": false}),
        );
        let text = described_machine(machine);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "Name: a",
                "UID:  u",
                "Pool: windows",
                "State:",
                "  State:    Failed",
                "  Phase:    failed",
                "  Since:    07:00:00 UTC (5m12s ago)",
                "  Failure:  while probing: NoAnswer",
                "  Halt:     paused by ada",
                "  Deleting: no",
                "Node and Machine:",
                "  Served: no",
                "Tasks:",
                "  Tasks:",
                "    Task   Attempt  Phase    Until",
                "    probe  2 of 9   waiting  07:06:00 UTC (in 48s)",
                "History:",
                "  Began:                   06:00:00 UTC (1h5m ago)",
                "  Records:                 9",
                "  State entered at record: 7",
                "More:",
                "  Colour of tomorrow: blue",
            ]
        );
    }

    #[test]
    fn a_dead_letter_is_described() {
        let dead = json!({"id": 3, "run": null, "reason": "schema 9", "at": "2026-11-21T07:00:00.000Z",
            "origin": "watcher", "bytes": 12, "message": "{}", "colour": "blue"});
        let text = dead_letter_text(&serde_json::from_value(dead).expect("a dead letter"));
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "ID:      3",
            "Since:   2026-11-21T07:00:00.000Z",
            "From:    watcher",
            "Bytes:   12",
            "Reason:  schema 9",
            "Message: {}",
            "More:",
            "  Colour: blue",
        ];
        assert_eq!(lines, expected);
    }
}
