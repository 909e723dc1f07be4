//! Replay of recorded histories by this build: histories of every released version give the same decisions, and
//! different, damaged or newer records are reported as such.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_engine::embedded::{self, EmbeddedStore};
use dormer_engine_core::{HistoryEvent, Record};
use dormer_proto::{
    envelope::{self, DecodeError},
    work::SCHEMA,
};
use dormer_workflows::{
    Dormer, State,
    rollout::{Rollback, RollbackStep},
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What a command said: its exit code, and what it printed.
struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

fn replay(arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormer"));
    let output = command.arg("replay").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said {
        code: output.status.code(),
        out: text(output.stdout),
        error: text(output.stderr),
    }
}

fn recorded() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories");
    let versions = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = versions
        .filter(|it| it.is_dir())
        .flat_map(|it| fs::read_dir(it).unwrap());
    let mut files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn history(name: &str) -> Vec<String> {
    let file = recorded()
        .into_iter()
        .find(|file| file.ends_with(format!("0.1/{name}.jsonl")));
    fs::read_to_string(file.unwrap())
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// A file of those lines in a folder of its own.
fn file(lines: &[String]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    let name = path.to_str().unwrap().to_owned();
    (folder, name)
}

fn record(line: &str) -> Option<Record<Dormer>> {
    let line: Value = serde_json::from_str(line).unwrap();
    let bytes = STANDARD
        .decode(line["record"]["envelope"].as_str()?)
        .unwrap();
    Some(envelope::decode(&bytes, SCHEMA).unwrap().0)
}

/// The line with another record in it.
fn with(line: &str, record: &Record<Dormer>, schema: u16) -> String {
    let mut line: Value = serde_json::from_str(line).unwrap();
    line["record"]["envelope"] = STANDARD
        .encode(envelope::encode(record, schema).unwrap().0)
        .into();
    line.to_string()
}

#[test]
fn every_recorded_history_is_decided_as_it_was() {
    let files = recorded();
    for kind in [
        "bring-up",
        "upgrade-by-recreate",
        "upgrade-in-place",
        "failure-and-retry",
    ] {
        assert!(
            files
                .iter()
                .any(|file| file.ends_with(format!("0.1/{kind}.jsonl"))),
            "{kind}"
        );
    }
    let names: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let said = replay(&names);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.error);
    assert!(
        said.out.contains(&format!("of {} runs", files.len())),
        "{}",
        said.out
    );
    assert!(
        said.out
            .contains(": this build decides everything as recorded."),
        "{}",
        said.out
    );
}

#[test]
fn a_record_that_says_otherwise_is_reported_with_both_decisions() {
    let mut lines = history("bring-up");
    let failure = |record: &Record<Dormer>| {
        record
            .events
            .iter()
            .any(|event| matches!(event, HistoryEvent::TaskFailed { .. }))
    };
    let at = lines
        .iter()
        .position(|line| record(line).as_ref().is_some_and(failure))
        .unwrap();
    let mut altered = record(&lines[at]).unwrap();
    for event in &mut altered.events {
        if let HistoryEvent::TaskFailed { failure, .. } = event {
            failure.retry = false;
        }
    }
    lines[at] = with(&lines[at], &altered, SCHEMA);
    let (_folder, name) = file(&lines);
    let said = replay(&[&name]);
    assert_eq!(said.code, Some(1), "{}", said.out);
    let run = altered.run.id.to_string();
    let seq = altered.run.seq.0;
    for part in [
        &format!("{run} (") as &str,
        &format!(" record {seq}, "),
        "written by dormer 0.1.0",
        "happened  probe failed at attempt ",
        "recorded  Provisioned (probing); asks for nothing",
        "today     Failed",
        "differs   state.Machine.phase",
        // What follows stood on the record as it was.
        &format!("record {}: it does not follow from record {seq}", seq + 1),
        "1 differently, 1 not judged",
    ] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
    let said = replay(&[&name, "-o", "json"]);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let found = &report["decidedOtherwise"][0];
    assert_eq!((&found["run"], &found["seq"]), (&json!(run), &json!(seq)));
    let same = report["same"].as_u64().unwrap() + report["remembers"].as_u64().unwrap();
    assert_eq!(
        same,
        lines.len() as u64 - 3,
        "all but the head, and two records"
    );
}

#[test]
fn damaged_newer_and_divergent_records_are_distinguished() {
    let lines = history("bring-up");
    let output = |lines: &[String], code: i32, part: &str| {
        let (_folder, name) = file(lines);
        let said = replay(&[&name]);
        assert_eq!(said.code, Some(code), "{part}: {}{}", said.out, said.error);
        assert!(said.out.contains(part), "{part}: {}", said.out);
    };
    let last = lines.len() - 1;
    let first = &lines[..1];
    let mut cut = lines.clone();
    cut[last].truncate(200);
    output(&cut, 1, "is not a line of a history (EOF while parsing");
    let mut flipped = lines.clone();
    flipped[last] = flipped[last].replace("\"envelope\":\"haF2", "\"envelope\":\"haF3");
    output(&flipped, 1, "it cannot be read: not an envelope");
    let gap: Vec<String> = first
        .iter()
        .chain(&lines[2..4])
        .chain(&lines[5..])
        .cloned()
        .collect();
    output(&gap, 1, "a gap: the record before is 3");
    output(
        &gap,
        1,
        "1 begin a history whose earlier records are no longer stored",
    );
    let mut newer = lines.clone();
    newer[last] = with(&lines[last], &record(&lines[last]).unwrap(), SCHEMA + 1);
    output(&newer, 1, "a newer build wrote it");
    output(
        &[r#"{"history":{"format":2}}"#.into()],
        1,
        "replay it with a newer dormer",
    );
    output(&lines[1..], 1, "has no header line");
    output(&[], 1, "is empty");
    let said = replay(&["/nonexistent/history"]);
    assert_eq!(said.code, Some(2));
    assert!(said.error.contains("No such file"), "{}", said.error);
}

/// Schema number of version 0.1.
const SCHEMA_0_1: u16 = 1;

/// 0.1 knows no end of a rollback. It would quarantine a run of whose last record it cannot read the body.
#[test]
fn what_0_1_cannot_read_is_left_to_a_newer_build() {
    let lines = history("rollout-in-place");
    let mut last = lines.iter().rev().find_map(|line| record(line)).unwrap();
    let State::Rollout(state) = &mut last.run.state else {
        panic!("a rollout's history: {:?}", last.run.id)
    };
    state.rollback = Some(Rollback {
        from: "windows-b".into(),
        to: "windows-a".into(),
        by: "ann".into(),
        at: last.at,
        step: RollbackStep::Ending("ann".into()),
        instead: Some("windows-b".into()),
    });
    let (bytes, _) = envelope::encode(&last, SCHEMA).unwrap();
    let by_0_1 = envelope::decode::<Record<Dormer>>(&bytes, SCHEMA_0_1);
    assert!(matches!(by_0_1, Err(DecodeError::Newer { .. })));
    let (read, _) = envelope::decode::<Record<Dormer>>(&bytes, SCHEMA).unwrap();
    assert_eq!(read, last);
}

#[test]
fn a_store_is_replayed_whole_unless_it_is_in_use() {
    let mut lines = vec![json!({"store": {"layout": 1, "incarnation": 7, "epoch": 1}})];
    for name in ["bring-up", "failure-and-retry"] {
        let history = history(name);
        for (at, line) in history.iter().enumerate().skip(1) {
            let line: Value = serde_json::from_str(line).unwrap();
            let run = &line["record"]["run"];
            let seq = &line["record"]["seq"];
            let mut record = json!({"run": run, "seq": seq, "record": null,
                "envelope": line["record"]["envelope"]});
            if at + 1 == history.len() {
                record["head"] = json!([at, seq, 0, 0]);
            }
            lines.push(json!({ "record": record }));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let dump: Vec<String> = lines.iter().map(Value::to_string).collect();
    let written = embedded::restore(&mut dump.join("\n").as_bytes(), &store, None).unwrap();
    let name = store.to_str().unwrap();
    let said = replay(&["--store", name]);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.error);
    assert!(
        said.out
            .starts_with(&format!("{written} records of 2 runs: ")),
        "{}",
        said.out
    );
    let open = EmbeddedStore::open(&store).unwrap();
    let said = replay(&["--store", name]);
    assert_eq!(said.code, Some(2), "{}", said.out);
    assert!(
        said.error.contains("in use by another dormer"),
        "{}",
        said.error
    );
    drop(open);
}
