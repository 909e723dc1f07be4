//! Recorded histories, folded by this build: every record of a released version gives the same decision. The root
//! package's test `replay` checks the command `dormer replay`; this one needs only the workflows.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_engine_core::{Record, Run, replay_record};
use dormer_proto::{
    envelope,
    machine::{CsrExpectation, Task},
    work::SCHEMA,
};
use dormer_workflows::{Dormer, State};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

fn recorded() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/histories");
    let entries = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let versions = entries(folder).filter(|path| path.is_dir());
    versions.flat_map(entries).collect()
}

/// Where a run stands and what it asks for, whatever else its state remembers.
fn decided(run: &Run<Dormer>) -> (Option<&'static str>, Run<Dormer>) {
    let phase = match &run.state {
        State::Machine(state) => Some(state.phase.name()),
        State::Rollout(_) | State::None => None,
    };
    let state = State::None;
    let mut run = Run {
        state,
        ..run.clone()
    };
    // Expected content of a certificate request, the lease of a tear-down or reboot, whether a Machine is deleted after its
    // drain, the limit of a drain, and whether a comparison renews what ends: earlier builds gave the worker less.
    for task in &mut run.tasks {
        // Memory for a task that runs out of time: earlier builds had none.
        task.last = None;
        match &mut task.body {
            Task::ApproveCsr { expect, .. } => *expect = CsrExpectation::default(),
            Task::TearDown { guard, .. } => guard.token = None,
            Task::Evict { guard, .. } => (guard.deletes, guard.drain_ms) = (false, None),
            Task::Reboot { token, .. } => *token = None,
            Task::Plan { renew, .. } => *renew = false,
            _ => {}
        }
    }
    (phase, run)
}

#[test]
fn every_recorded_history_is_decided_as_it_was() {
    let mut records = 0;
    for file in recorded() {
        let text = fs::read_to_string(&file).unwrap();
        let mut before: Option<Run<Dormer>> = None;
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let Some(bytes) = line["record"]["envelope"].as_str() else {
                continue;
            };
            let bytes = STANDARD.decode(bytes).unwrap();
            let (record, sum) = envelope::decode::<Record<Dormer>>(&bytes, SCHEMA).unwrap();
            let (ours, divergence) = replay_record(before.as_ref(), &record, sum);
            if let Some(found) = divergence {
                let seq = found.seq;
                let today = decided(&found.ours);
                let then = decided(&found.recorded);
                assert_eq!(today, then, "{} record {seq}", file.display());
            }
            before = Some(ours);
            records += 1;
        }
    }
    assert!(records > 100, "{records} records were found");
}
