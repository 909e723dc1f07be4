//! How far an attempt has come: told to people with each heartbeat, and to the worker, which ends what stands still.

use dormer_proto::{
    id::{Attempt, TaskId},
    message::Heartbeat,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// A handle on one attempt's progress. Clones are handles on the same.
#[derive(Debug, Clone)]
pub struct Progress(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    step: String,
    done: u64,
    of: u64,
    unit: &'static str,
    moved: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        let moved = Instant::now();
        Self(Arc::new(Mutex::new(Inner { step: "start".into(), done: 0, of: 0, unit: "", moved })))
    }
}

impl Progress {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a step of `of` `unit`s (0: unknown).
    pub fn step(&self, name: impl Into<String>, of: u64, unit: &'static str) {
        *self.inner() = Inner { step: name.into(), done: 0, of, unit, moved: Instant::now() };
    }

    /// `more` units of the present step are done. 0 counts as a sign of life, too.
    pub fn advance(&self, more: u64) {
        let mut inner = self.inner();
        inner.done = inner.done.saturating_add(more);
        inner.moved = Instant::now();
    }

    /// How long nothing has moved.
    #[must_use]
    pub fn still_for(&self) -> Duration {
        self.inner().moved.elapsed()
    }

    /// The name of the present step.
    #[must_use]
    pub fn step_name(&self) -> String {
        self.inner().step.clone()
    }

    /// What people are told.
    #[must_use]
    pub fn heartbeat(&self, task: &TaskId, attempt: Attempt, worker: &str) -> Heartbeat {
        let inner = self.inner();
        Heartbeat {
            task: task.clone(),
            attempt,
            worker: worker.to_owned(),
            step: inner.step.clone(),
            done: inner.done,
            of: inner.of,
            unit: inner.unit.to_owned(),
        }
    }
}
