//! A machine in a few words, for a column of a table.

use super::problem::{MachineProblem, Urgency, problem, usual_of_late};
use crate::{
    machine::{Machine, PendingRequest},
    moment::span,
};
use dormer_proto::machine::NAMED_ITEMS_MAX;

/// Length of a cause, in characters, up to which a column shows it whole.
const SHORT_MAX: usize = 60;

/// Summary of a machine in a few words: its trouble, its planned changes, or the condition that it waits for.
pub fn in_short(machine: &Machine) -> Option<String> {
    summary(machine, ", see dormer plan")
}

/// The same for a page, which has a plan of its own.
pub fn in_short_on_page(machine: &Machine) -> Option<String> {
    summary(machine, "")
}

/// As [`in_short`]. `see` says where several changes are listed.
fn summary(machine: &Machine, see: &str) -> Option<String> {
    if machine.lacks.is_some() {
        // The same for all machines: lists say it once, above.
        return Some("waits for what dormer lacks".to_owned());
    }
    let changes = match machine.differs.as_slice() {
        [] => None,
        [one] => Some(format!("{one} differs")),
        // A worker names no more.
        many if many.len() >= NAMED_ITEMS_MAX => {
            Some(format!("{NAMED_ITEMS_MAX} or more items differ{see}"))
        }
        many => Some(format!("{} items differ{see}", many.len())),
    };
    let slow = |problem: &MachineProblem| {
        let usual = usual_of_late(machine).filter(|_| problem.urgency == Urgency::Slow)?;
        // The phase stands beside it.
        Some(format!(
            "slow: usually {}, now {}",
            span(usual),
            span(machine.phase_seconds())
        ))
    };
    let problem = problem(machine);
    let problem = problem.map(|it| slow(&it).unwrap_or_else(|| shortened(&it)));
    let waits = || {
        let what = machine.waiting_for.as_ref()?;
        Some(format!("waits for {what}"))
    };
    match (problem, changes) {
        (Some(problem), Some(changes)) => Some(format!("{problem}: {changes}")),
        (Some(only), None) | (None, Some(only)) => Some(only),
        (None, None) => {
            let asked = machine.asked.as_ref().map(PendingRequest::text);
            asked
                .into_iter()
                .chain(waits())
                .reduce(|one, two| format!("{one}, {two}"))
        }
    }
}

/// A cause that fits a column: the first clause of a long one, with its code. `why` has the rest.
fn shortened(problem: &MachineProblem) -> String {
    let MachineProblem { cause, shown, .. } = problem;
    match cause.split_once(": ") {
        Some((clause, _)) if cause.chars().count() > SHORT_MAX => format!("{clause} ({shown})"),
        _ => cause.clone(),
    }
}
