//! Transitions as lines of the log.

use crate::{
    spans::trace_of_record,
    transition::{AttemptEnd, StateBefore},
};
use dormer_engine_core::{Record, Workflow};
use dormer_proto::{
    code,
    phase::{Listed as _, MachineState},
};
use dormer_workflows::Dormer;

/// Writes a transition as one log line, as a warning where the machine has failed. It lists the tasks and attempts that
/// ended, separated by commas, and names the machine as people do: the run has its UID only.
pub(crate) fn log(before: Option<&StateBefore>, record: &Record<Dormer>) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let run = &record.run;
    let ended = before.into_iter().flat_map(|before| before.changes(record));
    let ended = ended.filter_map(|(task, change)| change.attempt.map(|end| (task, end)));
    let mut tasks = Vec::new();
    let mut attempts = Vec::new();
    let mut outcomes = Vec::new();
    for (task, end) in ended {
        tasks.push(format!("{} ({})", run.task_id(task.key), task.name));
        attempts.push(task.attempt.to_string());
        outcomes.push(match end {
            AttemptEnd::Failed(code) => code::shown(code),
            end => end.name().to_owned(),
        });
    }
    let list = |words: &[String]| (!words.is_empty()).then(|| words.join(","));
    let outcome = (!outcomes.is_empty()).then(|| outcomes.join(","));
    let trace = trace_of_record(record).map(|trace| trace.to_string());
    let machine = run.state.machine().and_then(|it| it.machine.as_ref());
    let machine = machine.map(|it| it.machine.name.as_str());
    let state = Dormer::label(&run.state);
    let from = before.map(StateBefore::state);
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                machine, run = %run.id, seq = run.seq.0, state, from, events = record.events.len(),
                task = list(&tasks), attempt = list(&attempts), outcome, trace, "transition"
            )
        };
    }
    let failed = MachineState::Failed.id();
    if state == failed && from.is_some_and(|from| from != failed) {
        line!(warn);
    } else {
        line!(info);
    }
}
