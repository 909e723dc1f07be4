//! Timeline of a run from its history alone: episodes, their phases, their tasks, and each task's attempts and waits.
//! `dormer trace` draws it without a trace collector.
//!
//! An attempt begins when its order is stored and ends when its report is stored. The history does not know what the
//! worker did in between; traces do.

use dormer_engine_core::{HistoryEvent, OpenTask, Record, TaskKey, TaskPhase};
use dormer_proto::id::{Seq, Timestamp};
use dormer_views::{
    explain::cause,
    timeline::{Attempt, AttemptResult, BETWEEN, Episode, Phase, Task},
};
use dormer_workflows::{Dormer, State};
use std::collections::BTreeMap;

/// Fold of a history into episodes.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    /// Episodes, oldest first.
    episodes: Vec<Episode>,
    /// Position of each open task: episode, phase, index.
    open: BTreeMap<TaskKey, (usize, usize, usize)>,
    /// The first record that was passed. Of a long history it is not the run's first.
    first: Option<Seq>,
}

impl Fold {
    /// Adds the next record. Records are passed in order.
    pub(crate) fn take(&mut self, record: &Record<Dormer>) {
        self.first.get_or_insert(record.run.seq);
        self.reported(record);
        self.ended(record);
        self.moved_on(record);
        for task in &record.run.tasks {
            self.update(record.at, task);
        }
        if let Some(closed) = record.run.closed {
            self.end_episode(closed, None);
        }
    }

    /// The first record that was passed, 0 without any.
    pub(crate) fn first_record(&self) -> u64 {
        self.first.map_or(0, |seq| seq.0)
    }

    /// Episodes after the last record.
    pub(crate) fn done(self) -> Vec<Episode> {
        self.episodes
    }

    /// Ends the attempts that the record reports.
    fn reported(&mut self, record: &Record<Dormer>) {
        for event in &record.events {
            let (key, attempt, worker, result, detail) = match event {
                HistoryEvent::TaskFinished {
                    seq,
                    ordinal,
                    attempt,
                    worker,
                    outcome,
                } => {
                    let detail = super::story::what_came(outcome);
                    let detail = detail.trim_start_matches(": ").to_owned();
                    (
                        TaskKey {
                            seq: *seq,
                            ordinal: *ordinal,
                        },
                        attempt,
                        worker,
                        AttemptResult::Succeeded,
                        detail,
                    )
                }
                HistoryEvent::TaskFailed {
                    seq,
                    ordinal,
                    attempt,
                    worker,
                    failure,
                } => {
                    let detail = cause(&failure.code, &failure.message);
                    (
                        TaskKey {
                            seq: *seq,
                            ordinal: *ordinal,
                        },
                        attempt,
                        worker,
                        AttemptResult::Failed,
                        detail,
                    )
                }
                _ => continue,
            };
            if let Some(task) = self.task(key)
                && let Some(last) = task.attempts.iter_mut().find(|it| it.attempt == attempt.0)
            {
                last.to = Some(record.at.0);
                last.result = Some(result.into());
                last.worker = Some(worker.clone()).filter(|worker| !worker.is_empty());
                last.detail = Some(detail).filter(|detail| !detail.is_empty());
            }
        }
    }

    /// Ends the tasks that the record closes.
    fn ended(&mut self, record: &Record<Dormer>) {
        let gone: Vec<TaskKey> = self
            .open
            .keys()
            .filter(|key| record.run.task(**key).is_none())
            .copied()
            .collect();
        for key in gone {
            if let Some(task) = self.task(key) {
                task.to = Some(record.at.0);
                if let Some(last) = task.attempts.last_mut().filter(|it| it.to.is_none()) {
                    last.to = Some(record.at.0);
                    last.result = Some(AttemptResult::Cancelled.into());
                }
            }
            self.open.remove(&key);
        }
    }

    /// Updates episode, phase and tasks to the run after the record.
    fn moved_on(&mut self, record: &Record<Dormer>) {
        let at = record.at;
        let known = self.episodes.last().map_or(0, |episode| episode.seq);
        for episode in record.run.episodes.iter().filter(|it| it.seq.0 >= known) {
            if self
                .episodes
                .last()
                .is_none_or(|last| last.seq != episode.seq.0)
            {
                self.begin_episode(&episode.kind, episode.seq, episode.from);
            }
            if let (Some(to), Some(last)) = (episode.to, self.episodes.last())
                && last.to.is_none()
                && last.kind == episode.kind
            {
                self.end_episode(to, Some(&episode.result));
            }
        }
        if self.episodes.last().is_none_or(|last| last.to.is_some()) && record.run.closed.is_none()
        {
            self.begin_episode(BETWEEN, record.run.seq, at);
        }
        self.enter(record);
    }

    fn begin_episode(&mut self, kind: &str, seq: Seq, from: Timestamp) {
        self.end_episode(from, None);
        self.episodes.push(Episode {
            kind: kind.to_owned(),
            seq: seq.0,
            from: from.0,
            to: None,
            result: String::new(),
            phases: Vec::new(),
        });
    }

    fn end_episode(&mut self, at: Timestamp, result: Option<&str>) {
        let Some(last) = self.episodes.last_mut().filter(|last| last.to.is_none()) else {
            return;
        };
        last.to = Some(at.0);
        last.result = result.unwrap_or_default().to_owned();
        if let Some(phase) = last.phases.last_mut() {
            phase.to.get_or_insert(at.0);
        }
    }

    /// Begins the record's phase if it differs from the last one.
    fn enter(&mut self, record: &Record<Dormer>) {
        let State::Machine(state) = &record.run.state else {
            return;
        };
        let phase = state.phase.id();
        let Some(episode) = self.episodes.last_mut() else {
            return;
        };
        // Where the records before it are no longer stored, the state's begin is the earliest that is known.
        let cut = self.first == Some(record.run.seq) && record.run.seq > Seq(1);
        let at = if cut {
            record.run.entered.at.0.max(episode.from)
        } else {
            record.at.0
        };
        let entered = record.run.entered.seq == record.run.seq;
        let same = episode
            .phases
            .last()
            .is_some_and(|last| last.phase == phase && !entered);
        if same || episode.to.is_some() {
            return;
        }
        if let Some(last) = episode.phases.last_mut() {
            last.to.get_or_insert(at);
        }
        episode.phases.push(Phase {
            state: phase.state().into(),
            phase: phase.into(),
            text: phase.text().to_owned(),
            from: at,
            to: None,
            tasks: Vec::new(),
        });
    }

    fn task(&mut self, key: TaskKey) -> Option<&mut Task> {
        let (episode, phase, position) = *self.open.get(&key)?;
        self.episodes
            .get_mut(episode)?
            .phases
            .get_mut(phase)?
            .tasks
            .get_mut(position)
    }

    /// Updates an open task's attempts.
    fn update(&mut self, at: Timestamp, open: &OpenTask<Dormer>) {
        if !self.open.contains_key(&open.key) && self.insert(open).is_none() {
            return;
        }
        let Some(task) = self.task(open.key) else {
            return;
        };
        match &open.phase {
            TaskPhase::InFlight { at, .. } => {
                if task
                    .attempts
                    .last()
                    .is_none_or(|last| last.attempt != open.attempt.0)
                {
                    task.attempts.push(Attempt {
                        attempt: open.attempt.0,
                        from: at.0,
                        to: None,
                        result: None,
                        worker: None,
                        detail: None,
                        wait: None,
                    });
                }
            }
            TaskPhase::Waiting { until, failure } => {
                if let Some(last) = task.attempts.last_mut() {
                    last.wait = Some(until.0);
                    if last.to.is_none() {
                        // There is no report: the engine ended the attempt.
                        last.to = Some(at.0);
                        last.result = Some(AttemptResult::TimedOut.into());
                        last.detail = Some(cause(&failure.code, &failure.message));
                    }
                }
            }
        }
    }

    /// Adds a new task to the phase that ordered it.
    fn insert(&mut self, open: &OpenTask<Dormer>) -> Option<()> {
        let episode = self.episodes.len().checked_sub(1)?;
        let phases = &mut self.episodes[episode].phases;
        let phase = phases.len().checked_sub(1)?;
        let tasks = &mut phases[phase].tasks;
        tasks.push(Task {
            id: format!("{}.{}", open.key.seq, open.key.ordinal),
            name: open.body.name().to_owned(),
            from: open.first_at.0,
            to: None,
            attempts: Vec::new(),
        });
        self.open
            .insert(open.key, (episode, phase, tasks.len() - 1));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use dormer_proto::{envelope, work::SCHEMA};
    use serde_json::Value;

    /// Records of an upgrade in place, as an earlier build stored them.
    fn upgrade() -> Vec<Record<Dormer>> {
        let text = include_str!("../../tests/histories/0.1/upgrade-in-place.jsonl");
        let lines = text.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let bytes = STANDARD.decode(line["record"]["envelope"].as_str()?);
            Some(
                envelope::decode(&bytes.expect("base64"), SCHEMA)
                    .expect("a record")
                    .0,
            )
        });
        lines.collect()
    }

    fn folded(records: &[Record<Dormer>]) -> Fold {
        let mut fold = Fold::default();
        for record in records {
            fold.take(record);
        }
        fold
    }

    /// A blocked drain makes more records than a store keeps; its phase still begins with its state.
    #[test]
    fn a_history_without_its_beginning_has_no_shorter_phases() {
        let records = upgrade();
        let tearing_down = |episodes: &[Episode]| {
            let last = episodes
                .iter()
                .rfind(|it| it.kind == "upgrade")
                .expect("an upgrade");
            let text = "tearing down";
            let begins = last.from;
            let phase = last
                .phases
                .iter()
                .find(|it| it.text == text)
                .expect("the phase");
            (begins, phase.from, phase.to)
        };
        let phase_of = |record: &Record<Dormer>| match &record.run.state {
            State::Machine(state) => state.phase.id().text(),
            _ => "",
        };
        let second = records
            .iter()
            .rposition(|it| phase_of(it) == "tearing down")
            .expect("a record in that phase");
        let whole = folded(&records);
        assert_eq!(whole.first_record(), 1);
        let (begins, from, to) = tearing_down(&whole.done());
        let cut = folded(&records[second..]);
        assert_eq!(cut.first_record(), records[second].run.seq.0);
        let state_begins = records[second].run.entered.at.0;
        assert!(begins <= state_begins && state_begins <= from);
        let begun_later = records[second].at.0;
        assert!(
            state_begins < begun_later,
            "the record is not the state's first"
        );
        assert_eq!(tearing_down(&cut.done()), (begins, state_begins, to));
    }
}
