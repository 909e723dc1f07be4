//! What dormer itself lacks: the one thing that many machines wait for, told once and not machine by machine.

use super::shelf::Shown;
use crate::live::Live;
use dormer_engine_core::{Run, TaskPhase};
use dormer_workflows::{Dormer, State};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What the machine of `run` waits for among dormer's own things, in one sentence. A worker says it with the heartbeats
/// of an attempt that waits, and where such attempts are too many, as the reason for which they come again.
pub(crate) fn of(run: &Run<Dormer>, live: &Live) -> Option<String> {
    let mut beats = None;
    run.tasks.iter().find_map(|task| match &task.phase {
        TaskPhase::Waiting { failure, .. } => failure
            .uncounted
            .then(|| failure.message.trim_end_matches('.').to_owned()),
        TaskPhase::InFlight { .. } => {
            let id = run.task_id(task.key);
            let heard = beats.get_or_insert_with(|| live.of(&run.id));
            let beat = heard
                .iter()
                .find(|beat| beat.task == id && beat.attempt == task.attempt)?;
            beat.lacks.clone()
        }
    })
}

/// One thing, and who waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lack {
    /// One sentence: what it is, and what to do. No full stop.
    pub(crate) what: String,
    /// Machines that wait for it.
    pub(crate) waiting: usize,
    /// Machines in all.
    pub(crate) machines: usize,
}

impl Lack {
    /// All of it, for people.
    pub(crate) fn sentence(&self) -> String {
        sentence(self.waiting, self.machines, &self.what)
    }

    /// As the API has it.
    pub(crate) fn json(&self) -> Value {
        json!({"what": self.what, "waiting": self.waiting, "machines": self.machines})
    }
}

/// What is told of one thing that is lacking.
pub(crate) fn sentence(waiting: usize, machines: usize, what: &str) -> String {
    let who = match (waiting, machines) {
        (1, 1) => "The one machine waits".to_owned(),
        (waiting, machines) if waiting == machines => format!("All {machines} machines wait"),
        (1, machines) => format!("1 of {machines} machines waits"),
        (waiting, machines) => format!("{waiting} of {machines} machines wait"),
    };
    format!("{who} for one thing: {what}. dormer goes on by itself when that is mended.")
}

/// What is lacking, the one that most machines wait for first.
pub(crate) fn all(runs: &[Shown], live: &Live) -> Vec<Lack> {
    let ours = |run: &&Shown| run.closed.is_none() && matches!(run.state, State::Machine(_));
    let mut machines = 0;
    let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
    for run in runs.iter().filter(ours) {
        machines += 1;
        if let Some(what) = of(run, live) {
            *waiting.entry(what).or_default() += 1;
        }
    }
    let mut all: Vec<Lack> = waiting
        .into_iter()
        .map(|(what, waiting)| Lack {
            what,
            waiting,
            machines,
        })
        .collect();
    all.sort_by_key(|lack| std::cmp::Reverse(lack.waiting));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_in_numbers() {
        for (waiting, machines, begins) in [
            (1, 1, "The one machine waits for"),
            (9, 9, "All 9 machines wait for"),
            (1, 9, "1 of 9 machines waits for"),
            (2, 9, "2 of 9 machines wait for"),
        ] {
            let told = sentence(waiting, machines, "the key is encrypted");
            assert!(told.starts_with(begins), "{told}");
            assert!(
                told.contains("one thing: the key is encrypted. dormer"),
                "{told}"
            );
        }
    }
}
