//! Explanation of a machine's state in one paragraph, for a person on call. `dormer why` and the machine's page show
//! it.
//!
//! The first sentence names the cause, the last ones the next step. A failure's code follows its words.

mod advice;
mod common;
mod cures;
mod drain_steps;
mod failing;
pub(crate) mod groups;
mod join_steps;
mod other_name;
mod outdated;
pub mod problem;
pub(crate) mod rollout_among;
mod rollout_why;
mod rollout_words;
mod shared_steps;
pub(crate) mod short;
mod situation;
mod step;
mod usual;

pub use advice::steps;
pub use cures::{host_cure, is_connection};
pub use drain_steps::{to_continue, to_end_rollback};
pub use failing::{LastFailure, cause, failure_in, step_text};
pub use outdated::{OutdatedMachines, outdated};
pub use rollout_why::{HoldsUp, RolloutExplanation, rollout_explanation};
pub use situation::{condition_text, machine_set, numbers_text, situation};
pub use step::{Outside, Step, step_lines};
pub use usual::as_usual;

use crate::{
    machine::{Machine, MachineKind},
    moment::{Moment, age, span},
    open_enum::OpenEnum,
    rollout::Rollout,
    run::TaskFailure,
};
use dormer_proto::{
    id::Timestamp,
    phase::{MachinePhase, MachineState},
};
use failing::{Failing, failing, in_few_words, is_time_up};
use problem::{MachineProblem, Urgency};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use situation::waits_for;

/// Number of latest records searched for the last failure.
pub const RECORDS_BACK: u64 = 30;

/// Explanation in parts, for lines and for programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Kind of its object.
    #[serde(default)]
    pub kind: Option<OpenEnum<MachineKind>>,
    /// Name of the machine.
    pub name: String,
    pub uid: String,
    /// State, with the phase.
    pub state: String,
    /// State alone.
    #[serde(default)]
    pub state_word: String,
    /// Phase in words, where it says more than the state; of a failed machine, the phase in which it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Name, state, its age, and the cause in a few words: one sentence.
    #[serde(default)]
    pub headline: String,
    /// Cause of the state; null for a machine that serves.
    pub cause: Option<String>,
    /// Code of the failure at the end of the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause_code: Option<String>,
    /// When the next attempt is due, in sentences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// End of the log of the service at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Stable code of its trouble; null if it has none.
    pub code: Option<String>,
    /// Time at which the state was entered.
    pub since: Moment,
    /// Seconds since then, by the server's clock.
    pub since_seconds: u64,
    /// Whether it is paused, held or ignored: `since` is that of the state, which may be older.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub halted: bool,
    /// Seconds for which it is paused, held or ignored, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted_seconds: Option<u64>,
    /// Seconds in its phase, where the phase is younger than the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_seconds: Option<u64>,
    /// How urgently it needs a person; absent without trouble.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgency: Option<OpenEnum<Urgency>>,
    /// That its step lasts as long as usual, with the time by which it usually ends. There is nothing to do then, and the steps
    /// are for a time after that. Absent: not known, or it is in trouble.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_usual: Option<String>,
    /// Next steps, in their order.
    #[serde(rename = "do")]
    pub steps: Vec<Step>,
    /// Limit of its phase: until then dormer continues by itself, and the steps are for after that. It is no forecast: most
    /// are done long before. Absent: the steps are due now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heals_by: Option<Moment>,
    /// Everything else that is known, one sentence each.
    pub details: Vec<String>,
    /// All of it in one paragraph.
    pub why: String,
}

/// Explanation of the machine's state.
pub fn explanation(
    machine: &Machine,
    last_failure: Option<&LastFailure>,
    rollout: Option<&Rollout>,
) -> Explanation {
    let problem = problem::problem(machine).or_else(|| problem::in_rollout(machine, rollout?));
    let failing = failing(machine, last_failure);
    let known = known_cause(machine, problem.as_ref(), failing.as_ref());
    let phase = match &machine.failure {
        Some(failure) => Some(format!("while {}", failure.phase_text)),
        None => machine.phase_beside_state().map(str::to_owned),
    };
    let state = match &phase {
        Some(phase) => format!("{}, {phase}", machine.state),
        None => machine.state.to_string(),
    };
    let waits = || waits_for(machine).map(|text| dotless(&text).to_owned());
    let gone = machine.reason.clone();
    let gone = gone.filter(|_| machine.state == MachineState::Gone);
    let cause = known.as_ref().map(|it| it.text.clone());
    let cause = cause.or_else(waits).or(gone);
    // Headline, cause and next attempt already contain the first sentences.
    let mut details = situation(machine, last_failure, rollout).split_off(1);
    let next = known.as_ref().and_then(|it| it.next.clone());
    let is_cause = |text: &str| {
        let cause = cause.as_deref().unwrap_or_default();
        dotless(text).eq_ignore_ascii_case(cause)
    };
    details.retain(|text| !is_cause(text) && Some(text) != next.as_ref());
    // A retry that is the cause is no detail.
    let retry = machine.retried.as_ref();
    let text = retry.map(|it| problem::retried_text(machine, it));
    let retried = text.filter(|it| cause.as_deref() == Some(dotless(it)));
    if retried.is_some() {
        let sentence = situation::retried(machine);
        details.retain(|text| Some(text) != sentence.as_ref());
    }
    // Of a step that failed the cause is the failure.
    if let Some(usual) = problem::usual_of_late(machine)
        && !known.as_ref().is_some_and(|it| it.says_usual)
    {
        details.push(format!("This step usually takes {}.", span(usual)));
    }
    let halted_seconds = problem
        .as_ref()
        .filter(|_| machine.halt.is_some())
        .and_then(|it| it.seconds(machine));
    if let Some(text) = stopped_for(machine, halted_seconds) {
        details.insert(0, text);
    }
    Explanation {
        kind: machine.kind.clone(),
        name: machine.name.clone(),
        uid: machine.uid.clone(),
        state,
        state_word: machine.state.to_string(),
        phase,
        headline: headline(machine, known.as_ref()),
        log: failing::log(machine, failing.as_ref()),
        cause_code: known.and_then(|it| it.code),
        cause,
        next,
        urgency: problem.as_ref().map(|it| it.urgency.into()),
        since: machine.status.since,
        since_seconds: machine.status.since_seconds,
        halted: machine.halt.is_some(),
        halted_seconds,
        // A check of a serving machine ends its phase for a moment, and no break of its service.
        phase_seconds: machine
            .phase_since
            .filter(|_| machine.phase != MachinePhase::Serving)
            .map(|_| machine.phase_seconds())
            .filter(|seconds| *seconds < machine.status.since_seconds),
        code: problem.map(|it| it.code),
        as_usual: as_usual(machine),
        steps: steps(machine, rollout),
        heals_by: problem::heals_by(machine),
        details,
        why: paragraph(machine, last_failure, rollout),
    }
}

/// Known cause of a machine's state.
struct KnownCause {
    /// The cause, without a full stop.
    text: String,
    /// Code at its end.
    code: Option<String>,
    /// The cause in a few words, without its code.
    short: String,
    /// When the next attempt is due, in sentences.
    next: Option<String>,
    /// Whether the text says how long the step usually takes.
    says_usual: bool,
}

/// The cause of the state: its trouble; of a step that is only late, its failed attempt. `None`: it serves, or only
/// waits.
fn known_cause(
    machine: &Machine,
    problem: Option<&MachineProblem>,
    failing: Option<&Failing>,
) -> Option<KnownCause> {
    // A phase that waits for a person has a cause of its own.
    let is_late = |it: &&MachineProblem| {
        problem::is_late(machine) && problem::problem(machine).as_ref() == Some(*it)
    };
    // The present attempt says more than the failure before the retry.
    let attempted = machine
        .tasks
        .iter()
        .any(|task| task.newest_failure().is_some());
    let is_retried = problem::is_retried(machine);
    let failing = failing.filter(|_| attempted || !is_retried);
    let retried_first = !is_retried || !attempted;
    let problem_first = problem.filter(|it| !is_late(it) && !is_time_up(machine) && retried_first);
    let of_problem = |it: &MachineProblem| KnownCause {
        text: match &it.beneath {
            Some(beneath) => format!("{}; without that: {beneath}", it.cause),
            None => it.cause.clone(),
        },
        code: it
            .cause
            .ends_with(&format!("({})", it.code))
            .then(|| it.code.clone()),
        short: match is_late(&it) {
            // The phase stands before it.
            true => String::new(),
            false => in_few_words(&it.cause, &it.code).to_owned(),
        },
        next: None,
        says_usual: is_late(&it) && problem::says_usual(machine),
    };
    let of_attempt = |it: &Failing| {
        let TaskFailure { code, message, .. } = &it.failure;
        KnownCause {
            text: it.cause.clone(),
            code: Some(code.clone()),
            short: in_few_words(&cause(code, message), code).to_owned(),
            next: it.next.clone(),
            says_usual: false,
        }
    };
    problem_first
        .map(of_problem)
        .or_else(|| failing.map(of_attempt))
        .or_else(|| problem.map(of_problem))
}

impl Explanation {
    /// What follows the age of the state: the phase, with its age if it is younger than the state.
    pub fn times(&self) -> String {
        let phase = self.phase.iter();
        let mut text: String = phase.map(|phase| format!(", {phase}")).collect();
        if let Some(seconds) = self.phase_seconds {
            text += &format!(" for {}", span(seconds));
        }
        text
    }
}

/// Since when a person, or a label, stops it.
fn stopped_for(machine: &Machine, seconds: Option<u64>) -> Option<String> {
    machine.halt.as_ref()?;
    Some(match seconds {
        Some(seconds) => format!("It has been stopped for {}.", span(seconds)),
        None => format!("dormer history {} shows when it was stopped.", machine.name),
    })
}

/// Width of the headings of an explanation's lines.
const HEADING: usize = 9;

impl Explanation {
    /// Lines for people: the cause in a few words, then Cause, Do now, State, Details.
    pub fn lines(&self) -> String {
        let now = Timestamp(self.since.0.0 + self.since_seconds.saturating_mul(1_000));
        let mut lines = vec![self.headline.clone()];
        // A short cause is in the headline, and is written once.
        let cause = self.cause.as_ref();
        if let Some(cause) = cause.filter(|it| !self.headline.contains(it.as_str())) {
            let next = self.next.as_ref();
            let next = next.map_or_else(String::new, |next| format!(". {next}"));
            lines.push(row("Cause", &format!("{cause}{next}")));
        }
        let log = self.log.iter().flat_map(|log| log.lines());
        let log: Vec<String> = log.map(str::to_owned).collect();
        if !log.is_empty() {
            lines.extend(block("Log", log.into_iter(), ""));
        }
        if let Some(usual) = &self.as_usual {
            lines.push(row("Do now", &format!("Nothing: {usual}.")));
        } else {
            let first = first_line(self.heals_by, now, self.steps.is_empty());
            let steps = first.into_iter().chain(step_lines(&self.steps));
            lines.extend(block("Do now", steps, "Nothing."));
        }
        let since = self.since.clock(now);
        let long = span(self.since_seconds);
        let times = self.times();
        let state = format!("{} since {since}, for {long}{times}", self.state_word);
        lines.push(row("State", &state));
        if !self.details.is_empty() {
            lines.extend(block("Details", self.details.iter().cloned(), ""));
        }
        lines.join("\n")
    }
}

fn row(heading: &str, text: &str) -> String {
    format!("{:HEADING$}{text}", format!("{heading}:"))
}

/// Lines below one heading.
fn block(heading: &str, texts: impl Iterator<Item = String>, none: &str) -> Vec<String> {
    let mut texts: Vec<String> = texts.collect();
    if texts.is_empty() {
        texts.push(none.to_owned());
    }
    let rows = texts.iter().enumerate();
    rows.map(|(at, text)| match at {
        0 => row(heading, text),
        _ => format!("{:HEADING$}{text}", ""),
    })
    .collect()
}

/// What comes before the steps of a machine that continues by itself.
fn first_line(heals_by: Option<Moment>, now: Timestamp, no_steps: bool) -> Option<String> {
    let by = heals_by?.clock(now);
    Some(if no_steps {
        format!("Nothing: dormer continues by itself. It counts as stuck at {by}.")
    } else {
        format!("Nothing yet: dormer continues by itself. It counts as stuck at {by}; then:")
    })
}

/// What comes before the steps of machines with one cause, on every page and in every command. `None`: the steps are due now.
pub fn before_steps(machines: &[&Machine]) -> Option<String> {
    let now = now(machines.first()?);
    let limits: Option<Vec<Moment>> = machines.iter().map(|it| problem::heals_by(it)).collect();
    let first = limits?.into_iter().min_by_key(|it| it.0.0)?;
    match machines {
        [_] => first_line(Some(first), now, false),
        _ => Some(format!(
            "Nothing yet: dormer continues by itself. The first counts as stuck at {}; then:",
            first.clock(now)
        )),
    }
}

/// Complete paragraph: the machine's state with its cause, and what to do.
pub fn paragraph(
    machine: &Machine,
    last_failure: Option<&LastFailure>,
    rollout: Option<&Rollout>,
) -> String {
    let mut sentences = situation(machine, last_failure, rollout);
    sentences.push(next_step(machine, rollout));
    sentences.join(" ")
}

/// The next steps in prose.
fn next_step(machine: &Machine, rollout: Option<&Rollout>) -> String {
    let steps = steps(machine, rollout);
    let serves = machine.phase == MachinePhase::Serving && machine.waiting_for.is_none();
    if serves && steps.is_empty() || machine.state == MachineState::Gone {
        return "There is nothing to do.".into();
    }
    if let Some(usual) = as_usual(machine) {
        return format!("dormer continues by itself, {usual}.");
    }
    let heals_by = problem::heals_by(machine);
    let sentences: Vec<String> = steps.iter().map(Step::prose).collect();
    let prose = sentences.join(" ");
    match (heals_by, steps.is_empty()) {
        (Some(by), false) => format!(
            "dormer continues by itself. It counts as stuck at {}; then: {prose}",
            by.clock(now(machine))
        ),
        (_, true) => format!(
            "dormer continues by itself; dormer history {} shows what was done.",
            machine.name
        ),
        (None, false) => prose,
    }
}

/// Its state, and since when; for a failed machine, the cause.
fn state_sentence(machine: &Machine) -> String {
    match &machine.failure {
        Some(failure) => {
            let cause = cause(&failure.code, &failure.message);
            format!("{}: {cause}.", since_when(machine))
        }
        None => format!("{}.", since_when(machine)),
    }
}

/// Its state, since when, and the known cause in a few words; with its code where nothing more follows.
fn headline(machine: &Machine, known: Option<&KnownCause>) -> String {
    let begin = since_when(machine);
    let Some(known) = known.filter(|it| !it.short.is_empty()) else {
        return format!("{begin}.");
    };
    let whole = match &known.code {
        Some(code) => format!("{} ({code})", known.short),
        None => known.short.clone(),
    };
    let shown = if whole == known.text {
        &known.text
    } else {
        &known.short
    };
    format!("{begin}: {shown}.")
}

/// `win-a failed 8 minutes ago (08:02 UTC) while probing`.
fn since_when(machine: &Machine) -> String {
    let name = &machine.name;
    let long = age(machine.status.since_seconds);
    let since = machine.status.since.clock(now(machine));
    if let Some(failure) = &machine.failure {
        let phase = &failure.phase_text;
        return format!("{name} failed {long} ago ({since}) while {phase}");
    }
    let state = &machine.state;
    let phase = machine.phase_beside_state();
    let phase = phase.map_or_else(String::new, |phase| format!(" ({phase})"));
    format!("{name} has been {state}{phase} for {long}, since {since}")
}

/// Time of the server when it rendered the machine.
fn now(machine: &Machine) -> Timestamp {
    let Moment(since) = machine.status.since;
    Timestamp(since.0 + machine.status.since_seconds * 1_000)
}

fn sentence(text: &str) -> String {
    format!("{}.", dotless(text))
}

fn dotless(text: &str) -> &str {
    text.trim_end_matches('.')
}

#[cfg(test)]
mod command_tests;
#[cfg(test)]
pub(crate) mod tests;
