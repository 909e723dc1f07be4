//! What is being done just now: the latest heartbeat of every attempt, for people. Nothing is decided by it.

use dormer_proto::{
    id::{Attempt, RunId, Seq, TaskId},
    message::Heartbeat,
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// A heartbeat older than this is shown no more: its worker has ended, or lies elsewhere and is not heard.
const SHOWN_FOR: Duration = Duration::from_secs(45);
/// Heartbeats kept; beyond it the stale ones go, and new tasks find no place.
const LIVE_MAX: usize = 20_000;

/// The heartbeats that this process knows of.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// A lock: held for a map operation, never across an await.
    beats: Mutex<BTreeMap<TaskId, (Instant, Heartbeat)>>,
}

impl Live {
    fn beats(&self) -> MutexGuard<'_, BTreeMap<TaskId, (Instant, Heartbeat)>> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a heartbeat in.
    pub(crate) fn beat(&self, heartbeat: Heartbeat) {
        let now = Instant::now();
        let mut beats = self.beats();
        if beats.len() >= LIVE_MAX {
            beats.retain(|_, (at, _)| now.duration_since(*at) < SHOWN_FOR);
        }
        if beats.len() < LIVE_MAX {
            beats.insert(heartbeat.task.clone(), (now, heartbeat));
        }
    }

    /// The task has ended.
    pub(crate) fn ended(&self, task: &TaskId) {
        self.beats().remove(task);
    }

    /// Whether a worker is heard that executes this very attempt.
    pub(crate) fn hears(&self, task: &TaskId, attempt: Attempt) -> bool {
        let beats = self.beats();
        let heard = beats.get(task);
        heard.is_some_and(|(at, beat)| beat.attempt == attempt && at.elapsed() < SHOWN_FOR)
    }

    /// What is going on for one run.
    pub(crate) fn of(&self, run: &RunId) -> Vec<Heartbeat> {
        let first = TaskId { run: run.clone(), seq: Seq(0), ordinal: 0 };
        let beats = self.beats();
        let ours = beats.range(first..).take_while(|(task, _)| task.run == *run);
        ours.filter(|(_, (at, _))| at.elapsed() < SHOWN_FOR)
            .map(|(_, (_, heartbeat))| heartbeat.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(run: &str, seq: u64, done: u64) -> Heartbeat {
        Heartbeat {
            task: TaskId { run: RunId::new("machine", run).unwrap(), seq: Seq(seq), ordinal: 0 },
            attempt: Attempt(1),
            worker: "w".into(),
            step: "upload".into(),
            done,
            of: 10,
            unit: "bytes".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_shows_its_own_latest_heartbeats_until_they_are_stale() {
        let live = Live::default();
        for heartbeat in [beat("a", 1, 1), beat("a", 1, 4), beat("b", 7, 2)] {
            live.beat(heartbeat);
        }
        let of = |run: &str| -> Vec<u64> {
            let beats = live.of(&RunId::new("machine", run).unwrap());
            beats.iter().map(|beat| beat.done).collect()
        };
        assert_eq!((of("a"), of("b"), of("c")), (vec![4], vec![2], Vec::new()));
        let task = beat("b", 7, 0).task;
        assert!(live.hears(&task, Attempt(1)) && !live.hears(&task, Attempt(2)));
        live.ended(&beat("b", 7, 0).task);
        assert_eq!((of("a"), of("b")), (vec![4], Vec::new()));
        tokio::time::advance(SHOWN_FOR).await;
        assert!(of("a").is_empty());
    }
}
