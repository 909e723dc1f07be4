//! Spans derived from records: an episode, its transitions, their tasks, and the tasks' attempts.
//!
//! Every process derives the same spans with the same ids from the same records. So the engine that ends an episode
//! also sends the spans of records that another engine appended, or this one before a restart. A span that is sent
//! twice is the same span.

use super::transition::{AttemptEnd, StateBefore, TaskBefore, ended_episodes};
use dormer_engine_core::{Episode, HistoryEvent, Record, Run, Workflow};
use dormer_proto::{
    code,
    id::{Seq, TaskId, Timestamp},
    span::{SpanId, TraceId},
    work::ROLLOUT,
};
use dormer_workflows::Dormer;
use opentelemetry_semantic_conventions::trace::ERROR_TYPE;

/// A span to export. Its ids follow from run and record, so that every engine exports the same trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub trace: TraceId,
    pub id: SpanId,
    /// Parent span. `None`: the root.
    pub parent: Option<SpanId>,
    pub name: String,
    /// Start, in milliseconds since 1970.
    pub from: u64,
    /// End, in milliseconds since 1970.
    pub to: u64,
    /// Attributes by name.
    pub attributes: Vec<(&'static str, String)>,
    /// Error message.
    pub error: Option<String>,
    /// Link to the previous episode: its trace and root span.
    pub link: Option<(TraceId, SpanId)>,
}

impl Span {
    /// Span without parent, attributes, error or link.
    pub(crate) fn new(
        trace: TraceId,
        id: SpanId,
        name: impl Into<String>,
        from: u64,
        to: u64,
    ) -> Self {
        let attributes = Vec::new();
        let name = name.into();
        Self {
            trace,
            id,
            parent: None,
            name,
            from,
            to,
            attributes,
            error: None,
            link: None,
        }
    }

    /// Sets the parent.
    pub(crate) fn below(mut self, parent: SpanId) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.attributes.push((key, value.to_string()));
        self
    }
}

pub(crate) fn trace(run: &Run<Dormer>, episode: Seq) -> TraceId {
    // A rollout's id contains only the pool's name, which is the same in many clusters.
    let began = (run.id.workflow() == ROLLOUT).then_some(run.began);
    TraceId::of(&run.id, began, episode)
}

/// Trace id of a record: that of the last episode. `None`: the run has no episode.
pub(crate) fn trace_of_record(record: &Record<Dormer>) -> Option<TraceId> {
    record
        .run
        .episodes
        .back()
        .map(|episode| trace(&record.run, episode.seq))
}

/// Spans that `record` completes.
pub fn of(before: Option<&StateBefore>, record: &Record<Dormer>) -> Vec<Span> {
    let run = &record.run;
    let ended: Vec<&Episode> = ended_episodes(before, record).collect();
    let mut spans: Vec<Span> = Vec::new();
    let goes_on = run.episode().map(|episode| episode.seq);
    let touched = ended.iter().map(|episode| episode.seq).chain(goes_on);
    // A record may end one episode and begin the next. It is then in both traces.
    spans.extend(touched.map(|episode| transition(before, record, episode)));
    if let Some(before) = before {
        for (task, change) in before
            .changes(record)
            .filter(|(task, _)| task.episode > Seq(0))
        {
            if let (Some(end), Some(ordered)) = (change.attempt, task.ordered) {
                spans.push(attempt(record, task, end, ordered));
            }
            if let Some(outcome) = change.task {
                spans.push(whole_task(record, task, outcome));
            }
        }
    }
    spans.extend(ended.into_iter().map(|episode| whole_episode(run, episode)));
    spans
}

fn transition(before: Option<&StateBefore>, record: &Record<Dormer>, episode: Seq) -> Span {
    let run = &record.run;
    let at = record.at.0;
    let state = Dormer::label(&run.state);
    let id = SpanId::transition(&run.id, run.seq);
    let span = Span::new(
        trace(run, episode),
        id,
        format!("transition {state}"),
        at,
        at,
    )
    .below(SpanId::episode(&run.id, episode))
    .with("dormer.run", &run.id)
    .with("dormer.seq", run.seq)
    .with("dormer.state", state)
    .with("dormer.events", record.events.len());
    match before {
        Some(before) => span.with("dormer.state.before", before.state()),
        None => span,
    }
}

fn attempt(
    record: &Record<Dormer>,
    task: &TaskBefore,
    end: AttemptEnd<'_>,
    ordered: Timestamp,
) -> Span {
    let run = &record.run;
    let id = task_id(run, task);
    let trace = trace(run, task.episode);
    let name = format!("attempt {}", task.attempt);
    let mut span = Span::new(
        trace,
        SpanId::attempt(&id, task.attempt),
        name,
        ordered.0,
        record.at.0,
    )
    .below(SpanId::task(&id))
    .with("dormer.task", &id)
    .with("dormer.attempt", task.attempt)
    .with("dormer.outcome", end.name());
    if let Some((worker, failure)) = report(record, task) {
        span = span.with("dormer.worker", worker);
        span.error = failure.map(str::to_owned);
    }
    if let AttemptEnd::Failed(code) = end {
        span = span.with(ERROR_TYPE, code::shown(code));
    }
    span
}

/// Worker that reported an attempt, and the failure.
fn report<'a>(record: &'a Record<Dormer>, task: &TaskBefore) -> Option<(&'a str, Option<&'a str>)> {
    let ours = |seq: Seq, ordinal: u16| task.key.seq == seq && task.key.ordinal == ordinal;
    record.events.iter().find_map(|event| match event {
        HistoryEvent::TaskFinished {
            seq,
            ordinal,
            worker,
            ..
        } if ours(*seq, *ordinal) => Some((worker.as_str(), None)),
        HistoryEvent::TaskFailed {
            seq,
            ordinal,
            worker,
            failure,
            ..
        } if ours(*seq, *ordinal) => Some((worker.as_str(), Some(failure.message.as_str()))),
        _ => None,
    })
}

fn whole_task(record: &Record<Dormer>, task: &TaskBefore, outcome: &'static str) -> Span {
    let run = &record.run;
    let id = task_id(run, task);
    let trace = trace(run, task.episode);
    let mut span = Span::new(
        trace,
        SpanId::task(&id),
        task.name,
        task.first_at.0,
        record.at.0,
    )
    .below(SpanId::transition(&run.id, task.key.seq))
    .with("dormer.task", &id)
    .with("dormer.attempts", task.attempt)
    .with("dormer.outcome", outcome);
    span.error = (outcome == "exhausted").then(|| "exhausted".to_owned());
    span
}

fn whole_episode(run: &Run<Dormer>, episode: &Episode) -> Span {
    let to = episode.to.unwrap_or(episode.from).0;
    let id = SpanId::episode(&run.id, episode.seq);
    let mut span = Span::new(
        trace(run, episode.seq),
        id,
        &*episode.kind,
        episode.from.0,
        to,
    )
    .with("dormer.run", &run.id)
    .with("dormer.episode", episode.seq)
    .with("dormer.result", &episode.result);
    let earlier = run
        .episodes
        .iter()
        .rfind(|earlier| earlier.seq < episode.seq);
    span.link = earlier.map(|earlier| {
        (
            trace(run, earlier.seq),
            SpanId::episode(&run.id, earlier.seq),
        )
    });
    span
}

fn task_id(run: &Run<Dormer>, task: &TaskBefore) -> TaskId {
    run.task_id(task.key)
}
