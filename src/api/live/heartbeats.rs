//! Latest heartbeat of every task that runs.

use super::of_run;
use dormer_proto::{
    id::{Attempt, RunId, TaskId},
    lock::Locked as _,
    message::Heartbeat,
};
use std::{collections::BTreeMap, sync::Mutex, time::Duration};
use tokio::time::Instant;

/// Age after which a heartbeat is no longer shown. Its worker has ended, or cannot reach this process.
pub(super) const SHOWN_FOR: Duration = Duration::from_secs(45);
/// Most heartbeats kept. Beyond it stale ones are dropped, then heartbeats of new tasks; those of known tasks are kept.
const LIVE_MAX: usize = 20_000;

/// Heartbeats of all tasks, each with the time at which it came.
#[derive(Debug, Default)]
pub(super) struct AllBeats {
    /// Lock held for one map operation, never across an await.
    of: Mutex<BTreeMap<TaskId, (Instant, Heartbeat)>>,
}

impl AllBeats {
    pub(super) fn put(&self, heartbeat: Heartbeat) {
        let now = Instant::now();
        let mut beats = self.of.locked();
        let known = beats.contains_key(&heartbeat.task);
        if !known && beats.len() >= LIVE_MAX {
            beats.retain(|_, (at, _)| now.duration_since(*at) < SHOWN_FOR);
        }
        if known || beats.len() < LIVE_MAX {
            beats.insert(heartbeat.task.clone(), (now, heartbeat));
        }
    }

    /// Removes the heartbeat of a task that has ended.
    pub(super) fn remove(&self, task: &TaskId) {
        self.of.locked().remove(task);
    }

    /// Whether a worker sends heartbeats for this attempt.
    pub(super) fn is_alive(&self, task: &TaskId, attempt: Attempt) -> bool {
        let beats = self.of.locked();
        let beat = beats.get(task);
        beat.is_some_and(|(at, beat)| beat.attempt == attempt && at.elapsed() < SHOWN_FOR)
    }

    /// Heartbeats of one run that are not stale.
    pub(super) fn of(&self, run: &RunId) -> Vec<Heartbeat> {
        let beats = self.of.locked();
        let current = of_run(&beats, run).filter(|(_, (at, _))| at.elapsed() < SHOWN_FOR);
        current.map(|(_, (_, beat))| beat.clone()).collect()
    }
}
