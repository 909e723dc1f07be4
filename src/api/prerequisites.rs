//! Prerequisites that dormer itself lacks. Many machines may wait for the same one, so it is reported once.

use super::run_cache::SharedRun;
use crate::live::Live;
use dormer_engine_core::{Run, TaskPhase};
use dormer_profile::answer::FailureCode;
use dormer_views::prerequisites::MissingPrerequisite;
use dormer_workflows::{Dormer, State};
use std::collections::BTreeMap;

/// Prerequisite that the machine of `run` waits for, in one sentence. A worker reports it in the heartbeats of a
/// waiting attempt. If too many attempts wait, the worker gives some back with it as the reason.
pub fn of(run: &Run<Dormer>, live: &Live) -> Option<String> {
    let mut beats = None;
    run.tasks.iter().find_map(|task| match &task.phase {
        TaskPhase::Waiting { failure, .. } => (failure.uncounted && !is_the_hosts(&failure.code))
            .then(|| failure.message.trim_end_matches('.').to_owned()),
        TaskPhase::InFlight { .. } => {
            let id = run.task_id(task.key);
            let heartbeats = beats.get_or_insert_with(|| live.of(&run.id));
            let beat = heartbeats
                .iter()
                .find(|beat| beat.task == id && beat.attempt == task.attempt)?;
            beat.lacks.clone()
        }
    })
}

/// Whether the attempt waits for its own host, which lacks nothing.
fn is_the_hosts(code: &str) -> bool {
    code == FailureCode::HostBusy.as_str()
}

/// All lacking prerequisites, the one with the most waiting machines first.
pub fn all(runs: &[SharedRun], live: &Live) -> Vec<MissingPrerequisite> {
    let ours = |run: &&SharedRun| run.closed.is_none() && matches!(run.state, State::Machine(_));
    let mut machines = 0;
    let mut waiting: BTreeMap<String, u64> = BTreeMap::new();
    for run in runs.iter().filter(ours) {
        machines += 1;
        if let Some(what) = of(run, live) {
            *waiting.entry(what).or_default() += 1;
        }
    }
    let mut all: Vec<MissingPrerequisite> = waiting
        .into_iter()
        .map(|(what, waiting)| MissingPrerequisite {
            what,
            waiting,
            machines,
        })
        .collect();
    all.sort_by_key(|lack| std::cmp::Reverse(lack.waiting));
    all
}
