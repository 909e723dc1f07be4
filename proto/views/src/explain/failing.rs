//! Failed attempts in words: which step failed, how often, when last, and why.

use super::{cures::code_of_host, dotless, now};
use crate::{
    machine::{Machine, PhaseFailure},
    moment::{Moment, age, span},
    older_texts,
    record::{EventKind, Record},
    run::{Task, TaskFailure},
};
use dormer_proto::{
    code,
    id::Timestamp,
    message,
    phase::{MachinePhase, MachineState},
};

/// Code of a task without a report within its limits, or whose host was silent for too long.
const TIME_UP: &str = "NoAnswer";
/// Length, in characters, up to which a headline holds a whole cause.
const SHORT_MAX: usize = 60;
/// Length of a clause up to which a headline holds it whole.
const CLAUSE_MAX: usize = 120;

/// Last failed attempt among a run's latest records.
#[derive(Debug, Clone, PartialEq)]
pub struct LastFailure {
    /// Time of its record.
    pub at: Moment,
    /// Name of the task, such as `probe`.
    pub task: String,
    /// Number of the attempt, from 1.
    pub attempt: u64,
    /// Why it failed.
    pub failure: TaskFailure,
}

/// Last failure among `records`. `None` once the machine serves, or the task succeeded.
pub fn failure_in(records: &[Record], machine: &Machine) -> Option<LastFailure> {
    if machine.state == MachineState::Joined && machine.waiting_for.is_none() {
        return None;
    }
    let mut succeeded: Vec<&str> = Vec::new();
    let mut unreported = None;
    for record in records.iter().rev() {
        for event in record.events.iter().rev() {
            let Some(task) = event.task.as_deref() else {
                continue;
            };
            if event.kind == EventKind::TaskSucceeded {
                succeeded.push(task);
            } else if event.kind == EventKind::TaskFailed && !succeeded.contains(&task) {
                let last = LastFailure {
                    at: record.at,
                    task: task.to_owned(),
                    attempt: event.attempt.unwrap_or(1),
                    failure: TaskFailure {
                        code: event.code.clone().unwrap_or_default(),
                        message: event.message.clone().unwrap_or_default(),
                        log: event.log.clone(),
                    },
                };
                // A time-out is less specific than the failure before it.
                if last.failure.code != TIME_UP {
                    return Some(last);
                }
                unreported.get_or_insert(last);
            }
        }
    }
    unreported
}

/// Failed attempt that explains the machine's state.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failing {
    /// Step, number of attempts, age and cause, without a full stop.
    pub(super) cause: String,
    /// Why it failed.
    pub(super) failure: TaskFailure,
    /// When the next attempt is due, and when the step ends; one sentence each.
    pub(super) next: Option<String>,
}

/// The failed attempt of a machine whose step waits for its next attempt, or whose last attempt failed. For a failed
/// machine only where that says more than its failure.
pub(super) fn failing(machine: &Machine, last: Option<&LastFailure>) -> Option<Failing> {
    let at = now(machine);
    let waiting = machine.tasks.iter().find_map(|task| {
        let failure = task.failure.as_ref()?;
        Some((task, failure))
    });
    if let Some((task, failure)) = waiting {
        let same = |it: &&LastFailure| it.task == task.name && it.attempt == task.attempt;
        return Some(Failing {
            cause: attempts_text(task, failure, last.filter(same), at),
            failure: failure.clone(),
            next: Some(next_attempt(task, at)),
        });
    }
    // An attempt runs, and the one before it failed.
    let running = machine.tasks.iter().find_map(|task| {
        let failure = task.last_failure.as_ref()?;
        Some((task, failure))
    });
    if let Some((task, failure)) = running {
        let before = Task {
            attempt: task.attempt.saturating_sub(1),
            ..task.clone()
        };
        let same = |it: &&LastFailure| it.task == before.name && it.attempt == before.attempt;
        return Some(Failing {
            cause: attempts_text(&before, failure, last.filter(same), at),
            failure: failure.clone(),
            next: Some(format!("Attempt {} runs.", task.attempt)),
        });
    }
    let known = machine.failure.as_ref();
    let last = last.filter(|_| known.is_none_or(|it| it.code == TIME_UP))?;
    let LastFailure { task, attempt, .. } = last;
    let times = match attempt {
        1 => String::new(),
        attempt => format!(" (attempt {attempt})"),
    };
    let ago = age(seconds_since(last.at, at));
    let cause = cause(&last.failure.code, &last.failure.message);
    Some(Failing {
        cause: format!("{} failed {ago} ago{times}: {cause}", step_text(task)),
        failure: last.failure.clone(),
        next: None,
    })
}

fn seconds_since(moment: Moment, now: Timestamp) -> u64 {
    now.0.saturating_sub(moment.0.0) / 1_000
}

/// `Configuring the host failed 3 times, last 2 minutes ago: the disk is full (DiskFull)`.
fn attempts_text(
    task: &Task,
    failure: &TaskFailure,
    last: Option<&LastFailure>,
    now: Timestamp,
) -> String {
    let step = step_text(&task.name);
    let ago = last.map(|last| age(seconds_since(last.at, now)));
    // Of its limits, the one that ends it first.
    let of = task.limit().filter(|_| task.ends.is_none());
    let of = of.map_or_else(String::new, |max| format!(" of at most {max}"));
    let times = match (task.attempt, ago) {
        (1, None) => String::new(),
        (1, Some(ago)) => format!(" {ago} ago"),
        (count, None) => format!(" {count} times{of}"),
        (count, Some(ago)) => format!(" {count} times{of}, last {ago} ago"),
    };
    let cause = cause(&failure.code, &failure.message);
    format!("{step} failed{times}: {cause}")
}

fn next_attempt(task: &Task, now: Timestamp) -> String {
    let due = task.until.0.0.saturating_sub(now.0) / 1_000;
    let next = match due {
        0 => "The next attempt is due now.".to_owned(),
        due => format!("The next attempt is due in {}.", span(due)),
    };
    let ends = task.ends.map_or_else(String::new, |ends| {
        let left = ends.0.0.saturating_sub(now.0) / 1_000;
        format!(
            " If none succeeds, the step fails at {}, in {}.",
            ends.clock(now),
            span(left)
        )
    });
    next + &ends
}

/// What a task does, at the beginning of a sentence. A task that this build does not know has its name.
pub fn step_text(task: &str) -> &str {
    match task {
        "probe" => "Probing the host",
        "converge-host" => "Configuring the host",
        "converge-node" => "Configuring the host for its Node",
        "reboot" => "Rebooting the host",
        "plan" => "Comparing the host",
        "tear-down" => "Removing dormer from the host",
        "approve-csr" => "Approving the certificate request",
        "mark-node" => "Marking the Node",
        "open-fence" => "Opening the fence",
        "close-fence" => "Closing the fence",
        "evict" => "Draining the Node",
        "delete-machine" => "Deleting the Machine",
        "set-payload" => "Setting the payload",
        "find-node" => "Finding the Node",
        "forget-host" => "Releasing the host",
        other => other,
    }
}

/// A failure in words, its code behind them: `access denied: cannot write C:\k (AccessDenied)`.
pub fn cause(code: &str, message: &str) -> String {
    let message = dotless(message);
    let taken = older_texts::taken_name(message);
    let message = taken.as_deref().unwrap_or(message);
    let code = &code::shown(code);
    match code_of_host(code) {
        Some(known) if !message::repeats(code, message) => match (known.text(), message) {
            (text, "") => format!("{text} ({code})"),
            (text, message) => format!("{text}: {message} ({code})"),
        },
        _ => message::cause(code, None, message),
    }
}

/// First clause of a long cause, the whole of a short one; without its code.
pub(super) fn in_few_words<'a>(cause: &'a str, code: &str) -> &'a str {
    let words = cause.strip_suffix(&format!(" ({code})")).unwrap_or(cause);
    let is_long = |text: &str, max: usize| text.chars().count() > max;
    match words.split_once(": ") {
        Some((clause, _)) if is_long(clause, CLAUSE_MAX) => {
            clause.split_once("; ").map_or(clause, |(clause, _)| clause)
        }
        Some((clause, _)) if is_long(words, SHORT_MAX) => clause,
        _ => words,
    }
}

/// End of the log of the service at fault, of the failure that explains the machine's state.
pub(super) fn log(machine: &Machine, failing: Option<&Failing>) -> Option<String> {
    let of_phase = |failure: &PhaseFailure| failure.log.clone();
    let known = machine.failure.as_ref().and_then(of_phase);
    known.or_else(|| failing?.failure.log.clone())
}

/// Whether the cause of the machine's failure is known better from an attempt before: its time was up.
pub(super) fn is_time_up(machine: &Machine) -> bool {
    machine.phase == MachinePhase::Failed
        && machine
            .failure
            .as_ref()
            .is_some_and(|it| it.code == TIME_UP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_foreign_node_has_is_one_cause() {
        let message = "no Node ip-10-0-0-7 appeared; a certificate request was not approved: the Node ip-10-0-0-7 is there, \
                       and belongs to old:///1, not aws:///a/i-1";
        let said = cause("NodeOverdue", message);
        assert_eq!(
            said,
            "its Node did not appear, because a foreign Node has its name: ip-10-0-0-7 belongs to old:///1, and the Machine \
             is aws:///a/i-1 (NodeOverdue)"
        );
        assert_eq!(
            in_few_words(&said, "NodeOverdue"),
            "its Node did not appear, because a foreign Node has its name"
        );
        let other = "no Node n appeared; a certificate request was not approved: it names the address 10.9.9.9";
        assert_eq!(
            cause("NodeOverdue", other),
            format!("{other} (NodeOverdue)")
        );
    }
}
