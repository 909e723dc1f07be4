//! Replay of recorded histories: this build decides each record's events again, and the result is compared with the
//! record.
//!
//! A run's *decision* is its state and phase, its tasks, timers and signals, its episodes, and its end. A newer build
//! may remember more in its state than an older one wrote. That alone is no different decision. So the fold continues
//! from this build's state as long as the decisions agree, and from the record once they differ.

use crate::story::Story;
use dormer_engine_core::{Divergence, Record, Run, Workflow, replay_record};
use dormer_proto::{
    envelope::{self, DecodeError},
    id::{RunId, Seq, Sum},
    machine::{CsrExpectation, Task},
    work::SCHEMA,
};
use dormer_views::record::Event;
use dormer_workflows::{Dormer, State};
use serde::Serialize;
use std::fmt::{self, Debug};

/// Most differences listed for one record.
const DIFFERENCES_MAX: usize = 20;
/// Longest printed value of a difference, in characters.
const VALUE_CHARS_MAX: usize = 160;

/// Record at which this build decides differently.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DivergentRecord {
    /// Id of the run.
    pub run: String,
    /// Name for people: a machine's name, a rollout's pool.
    pub name: String,
    /// Number of the record.
    pub seq: u64,
    /// Time of the record, in RFC 3339.
    pub at: String,
    /// Build that wrote it.
    pub build: String,
    /// Events of the record, in sentences.
    pub events: Vec<String>,
    /// Recorded decision.
    pub recorded: String,
    /// Decision of this build.
    pub today: String,
    /// Fields in which the two runs differ, the first `DIFFERENCES_MAX`.
    pub differences: Vec<Difference>,
}

impl fmt::Display for DivergentRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            run,
            name,
            seq,
            at,
            build,
            ..
        } = self;
        writeln!(f, "{run} ({name}) record {seq}, {at}, written by {build}")?;
        for event in &self.events {
            writeln!(f, "  happened  {event}")?;
        }
        writeln!(f, "  recorded  {}", self.recorded)?;
        write!(f, "  today     {}", self.today)?;
        for it in &self.differences {
            write!(
                f,
                "\n  differs   {}: {} was recorded, {} today",
                it.field, it.recorded, it.today
            )?;
        }
        Ok(())
    }
}

/// Field that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Path of the field, such as `state.phase`.
    pub field: String,
    /// Recorded value.
    pub recorded: String,
    /// Value of this build.
    pub today: String,
}

/// Result for one record.
#[derive(Debug)]
pub enum Judgement {
    /// This build decides the same.
    Same,
    /// The decision is the same, and the state differs in these fields.
    Remembers(Vec<Difference>),
    /// The record is the first one kept of a longer history, so its state before is unknown.
    First,
    /// This build decides differently.
    DivergentRecord(Box<DivergentRecord>),
    /// The record cannot be judged.
    Fault(String),
}

/// Fold of one run after another.
#[derive(Default)]
pub struct Fold {
    before: Option<Run<Dormer>>,
    story: Story,
    /// The run's last record could not be read, so the next one has no state before it.
    broken: Option<RunId>,
}

impl Fold {
    /// Folds the next record. The records of a run are passed in order.
    pub fn next(&mut self, run: &RunId, seq: Seq, bytes: &[u8]) -> Judgement {
        if self.before.as_ref().is_some_and(|before| before.id != *run) {
            *self = Self::default();
        }
        let (record, sum) = match envelope::decode::<Record<Dormer>>(bytes, SCHEMA) {
            Ok(read) => read,
            Err(error) => {
                *self = Self {
                    broken: Some(run.clone()),
                    ..Self::default()
                };
                return Judgement::Fault(unreadable(&error));
            }
        };
        let mut recorded = record.run.clone();
        recorded.set_sum(sum);
        let (judgement, goes_on) = match self.follows(run, seq, &record) {
            Err(fault) => (Judgement::Fault(fault), recorded),
            Ok(false) => (Judgement::First, recorded),
            Ok(true) => self.judge(&record, recorded, sum),
        };
        self.story.learn(&record);
        self.before = Some(goes_on);
        self.broken = None;
        judgement
    }

    /// Whether the state before the record is known.
    fn follows(&self, run: &RunId, seq: Seq, record: &Record<Dormer>) -> Result<bool, String> {
        let says = &record.run;
        if says.id != *run || says.seq != seq {
            return Err(format!(
                "it claims to be record {} of {}",
                says.seq, says.id
            ));
        }
        let Some(before) = &self.before else {
            let broken = self.broken.as_ref() == Some(run);
            if seq == Seq(1) && record.prev != Sum(0) {
                return Err("it is the first record, but names one before it".into());
            }
            return Ok(seq == Seq(1) && !broken);
        };
        if seq != before.seq.next() {
            return Err(format!("a gap: the record before is {}", before.seq));
        }
        if record.prev != before.sum {
            return Err(format!("it does not follow from record {}", before.seq));
        }
        Ok(true)
    }

    /// Judgement of the record, and the run from which the next record is decided.
    fn judge(
        &self,
        record: &Record<Dormer>,
        recorded: Run<Dormer>,
        sum: Sum,
    ) -> (Judgement, Run<Dormer>) {
        let (ours, divergence) = replay_record(self.before.as_ref(), record, sum);
        let Some(divergence) = divergence else {
            return (Judgement::Same, ours);
        };
        if same_decision(&ours, &recorded) {
            return (Judgement::Remembers(differences(&recorded, &ours)), ours);
        }
        (
            Judgement::DivergentRecord(Box::new(self.describe(record, &divergence))),
            recorded,
        )
    }

    fn describe(&self, record: &Record<Dormer>, found: &Divergence<Dormer>) -> DivergentRecord {
        let mut differences = differences(&found.recorded, &found.ours);
        differences.truncate(DIFFERENCES_MAX);
        DivergentRecord {
            run: record.run.id.to_string(),
            name: name(&record.run),
            seq: found.seq.0,
            at: dormer_views::moment::time(record.at),
            build: record.build.clone(),
            events: texts(self.story.events(record)),
            recorded: decided(&found.recorded),
            today: decided(&found.ours),
            differences,
        }
    }
}

fn unreadable(error: &DecodeError) -> String {
    match error {
        DecodeError::Newer { .. } => {
            format!("a newer build wrote it ({error}): replay it with that build")
        }
        _ => format!("it cannot be read: {error}"),
    }
}

/// Whether two runs have the same decision, whatever else they remember. Some things do not count, because earlier
/// builds knew less: what a worker compares a certificate request with, what it checks before a tear-down or a reboot,
/// whether a drain is followed by a deletion and how long it may last, whether a comparison renews what ends, and the
/// failure of a task's attempt before the present one.
fn same_decision(ours: &Run<Dormer>, recorded: &Run<Dormer>) -> bool {
    phase(ours) == phase(recorded) && asked(ours) == asked(recorded)
}

fn asked(run: &Run<Dormer>) -> Run<Dormer> {
    let mut run = Run {
        state: State::None,
        ..run.clone()
    };
    for task in &mut run.tasks {
        task.last = None;
        match &mut task.body {
            Task::ApproveCsr { expect, .. } => *expect = CsrExpectation::default(),
            Task::TearDown { guard, .. } => (guard.token, guard.begun) = (None, false),
            Task::Evict { guard, .. } => (guard.deletes, guard.drain_ms) = (false, None),
            Task::Reboot { token, .. } => *token = None,
            Task::Plan { renew, .. } => *renew = false,
            Task::Probe { .. }
            | Task::Converge { .. }
            | Task::MarkNode { .. }
            | Task::OpenFence { .. }
            | Task::CloseFence { .. }
            | Task::SetPayload { .. }
            | Task::FindNode { .. }
            | Task::ForgetHost { .. }
            | Task::DeleteMachine { .. } => {}
        }
    }
    run
}

/// Events in sentences.
fn texts(events: Vec<Event>) -> Vec<String> {
    events.into_iter().map(|event| event.text).collect()
}

/// State and phase of a run.
fn phase(run: &Run<Dormer>) -> (&'static str, &'static str) {
    let label = Dormer::label(&run.state);
    match &run.state {
        State::Machine(state) => (label, state.phase.name()),
        _ => (label, label),
    }
}

/// Name of a run for people.
fn name(run: &Run<Dormer>) -> String {
    match &run.state {
        State::Machine(state) => state.machine_ref().name,
        _ => run.id.key().to_owned(),
    }
}

/// Decision of a record in one line: state, phase, tasks and timers.
fn decided(run: &Run<Dormer>) -> String {
    let (label, phase) = phase(run);
    let mut text = label.to_owned();
    if !phase.eq_ignore_ascii_case(label) {
        text += &format!(" ({phase})");
    }
    let asks = run.tasks.iter().filter(|task| task.key.seq == run.seq);
    let asks: Vec<&str> = asks.map(|task| task.body.name()).collect();
    text += &match asks.as_slice() {
        [] => "; asks for nothing".to_owned(),
        asks => format!("; asks for {}", asks.join(", ")),
    };
    let signals = run.outbox.iter().filter(|out| out.id.seq == run.seq);
    let signals: Vec<String> = signals.map(|out| out.to.to_string()).collect();
    if !signals.is_empty() {
        text += &format!("; tells {}", signals.join(", "));
    }
    if run.closed.is_some() {
        text += "; ends";
    }
    text
}

/// All fields in which two runs differ.
fn differences(recorded: &Run<Dormer>, today: &Run<Dormer>) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut part = |field: &str, recorded: serde_json::Value, today: serde_json::Value| {
        compare(field, &recorded, &today, &mut found);
    };
    part("state", value(&recorded.state), value(&today.state));
    part("entered", value(&recorded.entered), value(&today.entered));
    part("tasks", value(&recorded.tasks), value(&today.tasks));
    part("timers", timers(recorded), timers(today));
    part("outbox", value(&recorded.outbox), value(&today.outbox));
    part("taken", value(&recorded.taken), value(&today.taken));
    part(
        "requests",
        value(&recorded.requests),
        value(&today.requests),
    );
    part("facts", facts(recorded), facts(today));
    part(
        "episodes",
        value(&recorded.episodes),
        value(&today.episodes),
    );
    part("closed", value(&recorded.closed), value(&today.closed));
    found
}

/// Timers with text keys, because JSON has no others.
fn timers(run: &Run<Dormer>) -> serde_json::Value {
    let timers = run.timers.iter();
    timers
        .map(|(timer, at)| (format!("{timer:?}"), serde_json::json!(at)))
        .collect()
}

fn facts(run: &Run<Dormer>) -> serde_json::Value {
    let facts = run.facts.iter();
    facts
        .map(|(object, mark)| (format!("{}/{}", object.kind, object.uid), value(mark)))
        .collect()
}

fn value<T: Serialize + Debug>(of: &T) -> serde_json::Value {
    serde_json::to_value(of).unwrap_or_else(|_| format!("{of:?}").into())
}

fn compare(
    field: &str,
    recorded: &serde_json::Value,
    today: &serde_json::Value,
    found: &mut Vec<Difference>,
) {
    use serde_json::Value;
    if recorded == today || found.len() > DIFFERENCES_MAX {
        return;
    }
    match (recorded, today) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: std::collections::BTreeSet<&String> =
                one.keys().chain(other.keys()).collect();
            for key in keys {
                let one = one.get(key);
                let other = other.get(key);
                let nothing = &Value::Null;
                let one = one.unwrap_or(nothing);
                let other = other.unwrap_or(nothing);
                compare(&format!("{field}.{key}"), one, other, found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{field}[{at}]"), one, other, found);
            }
        }
        _ => found.push(Difference {
            field: field.to_owned(),
            recorded: short(recorded),
            today: short(today),
        }),
    }
}

fn short(value: &serde_json::Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= VALUE_CHARS_MAX {
        return text;
    }
    text.chars().take(VALUE_CHARS_MAX).chain(['…']).collect()
}
