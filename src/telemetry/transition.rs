//! Changes of a transition: the relevant part of the run before it, compared with the stored record.

use crate::metrics::process::EngineMetrics;
use dormer_engine_core::{HistoryEvent, Record, Run, TaskKey, TaskPhase, Workflow};
use dormer_proto::id::{Attempt, LeaseToken, Seq, Timestamp};
use dormer_workflows::{Dormer, State};
use std::time::Duration;

/// Run before a transition.
#[derive(Debug, Clone)]
pub struct StateBefore {
    state: &'static str,
    since: Timestamp,
    tasks: Vec<TaskBefore>,
    /// Open episode.
    episode: Option<Seq>,
    /// Slots of a rollout: token and time of the grant.
    slots: Vec<(LeaseToken, Timestamp)>,
}

/// Task before a transition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskBefore {
    pub(crate) key: TaskKey,
    pub(crate) name: &'static str,
    pub(crate) episode: Seq,
    pub(crate) first_at: Timestamp,
    pub(crate) attempt: Attempt,
    /// Time of the attempt's order. `None`: the task waited for its next attempt.
    pub(crate) ordered: Option<Timestamp>,
}

/// Change of a task in a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskChange<'a> {
    /// End of the attempt that was in flight.
    pub(crate) attempt: Option<AttemptEnd<'a>>,
    /// End of the task itself: `finished`, `exhausted`, `cancelled`.
    pub(crate) task: Option<&'static str>,
}

/// End of an attempt, as the engine sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptEnd<'a> {
    /// A worker reported success.
    Finished,
    /// A worker reported a failure of this code.
    Failed(&'a str),
    /// No report came in time.
    Lost,
    /// Its task was cancelled.
    Cancelled,
}

impl AttemptEnd<'_> {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed(_) => "failed",
            Self::Lost => "lost",
            Self::Cancelled => "cancelled",
        }
    }
}

impl StateBefore {
    /// Captures a run.
    pub fn at(run: &Run<Dormer>) -> Self {
        let task = |task: &dormer_engine_core::OpenTask<Dormer>| TaskBefore {
            key: task.key,
            name: task.body.name(),
            episode: task.episode,
            first_at: task.first_at,
            attempt: task.attempt,
            ordered: match task.phase {
                TaskPhase::InFlight { at, .. } => Some(at),
                TaskPhase::Waiting { .. } => None,
            },
        };
        let slots = match &run.state {
            State::Rollout(state) => state
                .slots
                .iter()
                .map(|slot| (slot.token, slot.at))
                .collect(),
            _ => Vec::new(),
        };
        Self {
            state: Dormer::label(&run.state),
            since: run.entered.at,
            tasks: run.tasks.iter().map(task).collect(),
            episode: run.episode().map(|episode| episode.seq),
            slots,
        }
    }

    /// State of the run.
    pub(crate) fn state(&self) -> &'static str {
        self.state
    }

    /// Tasks that this record changed.
    pub(crate) fn changes<'a>(
        &'a self,
        record: &'a Record<Dormer>,
    ) -> impl Iterator<Item = (&'a TaskBefore, TaskChange<'a>)> {
        self.tasks.iter().map(|task| (task, change(task, record)))
    }
}

/// Episodes that ended in this record: open before, or begun and ended here.
pub(crate) fn ended_episodes<'a>(
    before: Option<&StateBefore>,
    record: &'a Record<Dormer>,
) -> impl Iterator<Item = &'a dormer_engine_core::Episode> {
    let open = before.and_then(|before| before.episode);
    let here = record.run.seq;
    let episodes = record
        .run
        .episodes
        .iter()
        .filter(|episode| episode.to.is_some());
    episodes.filter(move |episode| Some(episode.seq) == open || episode.seq == here)
}

fn change<'a>(task: &TaskBefore, record: &'a Record<Dormer>) -> TaskChange<'a> {
    let reported = record.events.iter().find_map(|event| match event {
        HistoryEvent::TaskFinished {
            seq,
            ordinal,
            attempt,
            ..
        } if is(task, *seq, *ordinal, *attempt) => Some(AttemptEnd::Finished),
        HistoryEvent::TaskFailed {
            seq,
            ordinal,
            attempt,
            failure,
            ..
        } if is(task, *seq, *ordinal, *attempt) => Some(AttemptEnd::Failed(&failure.code)),
        _ => None,
    });
    let after = record.run.task(task.key);
    let goes_on = after.is_some_and(|after| {
        after.attempt == task.attempt && matches!(after.phase, TaskPhase::InFlight { .. })
    });
    let due = record
        .events
        .iter()
        .any(|event| matches!(event, HistoryEvent::TimerDue));
    let silent = match after {
        _ if task.ordered.is_none() || goes_on => None,
        Some(_) => Some(AttemptEnd::Lost),
        None if due => Some(AttemptEnd::Lost),
        None => Some(AttemptEnd::Cancelled),
    };
    let attempt = reported.or(silent);
    let task = match (after, attempt) {
        (Some(_), _) => None,
        (None, Some(AttemptEnd::Finished)) => Some("finished"),
        (None, Some(AttemptEnd::Failed(_) | AttemptEnd::Lost)) => Some("exhausted"),
        (None, _) => Some("cancelled"),
    };
    TaskChange { attempt, task }
}

fn is(task: &TaskBefore, seq: Seq, ordinal: u16, attempt: Attempt) -> bool {
    task.key == TaskKey { seq, ordinal } && task.attempt == attempt
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_millis(to.since_ms(from))
}

/// Counts a transition.
pub(super) fn count(
    metrics: &EngineMetrics,
    before: Option<&StateBefore>,
    record: &Record<Dormer>,
) {
    let run = &record.run;
    let at = record.at;
    let workflow = run.id.workflow();
    let state = Dormer::label(&run.state);
    metrics.transition(workflow, state);
    for episode in ended_episodes(before, record) {
        let to = episode.to.unwrap_or(at);
        metrics.episode(&episode.kind, &episode.result, between(episode.from, to));
    }
    let Some(before) = before else { return };
    if before.state != state {
        metrics.left(workflow, before.state, between(before.since, at));
    }
    for (task, change) in before.changes(record) {
        if let Some(end) = change.attempt {
            metrics.attempt(task.name, end.name());
            if let AttemptEnd::Failed(code) = end {
                metrics.failure(task.name, code);
            }
        }
        if let Some(outcome) = change.task {
            metrics.task(task.name, outcome, between(task.first_at, at));
        }
    }
    if let State::Rollout(rollout) = &run.state {
        let held = |token| rollout.slots.iter().any(|slot| slot.token == token);
        for (_, granted) in before.slots.iter().filter(|(token, _)| !held(*token)) {
            metrics.lease_ended(between(*granted, at));
        }
    }
}
