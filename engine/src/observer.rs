//! The observer: told what an engine did, for metrics, logs and traces. Nothing is decided by it.

use dormer_engine_core::{Record, Run, Workflow};
use dormer_proto::id::RunId;
use std::time::Duration;

/// What became of one round of appends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Appended {
    /// Records stored.
    pub stored: u64,
    /// Records that somebody else was faster with.
    pub conflicts: u64,
    /// Records of which nobody knows whether they are stored.
    pub unknown: u64,
    /// Records that the store refuses.
    pub refused: u64,
}

/// Who is told what an engine did.
///
/// # Contract
/// Calls come from the shards, between their awaits: an implementation answers at once, never blocks, never fails.
pub trait EngineObserver<W: Workflow>: Send + Sync + 'static {
    /// What is kept of a run from before a transition until after it.
    type StateBefore: Send;

    /// Looks at a run before a transition, which may come to nothing.
    fn state_before(&self, run: &Run<W>) -> Self::StateBefore;

    /// A record is stored. `before` is `None` if it is the run's first.
    fn stored(&self, before: Option<Self::StateBefore>, record: &Record<W>);

    /// One round of appends took so long.
    fn appended(&self, took: Duration, what: Appended);

    /// Nobody will ever store this run's next record (too large, or not to be written down): it stands still until a
    /// person acts. Told once a run; how often it was tried, [`EngineObserver::appended`] counts.
    fn refused(&self, run: &RunId, why: &str) {
        let _ = (run, why);
    }

    /// Messages changed nothing; `unknown` of them belong to another incarnation, or to a lost tail of the store.
    fn dropped(&self, messages: u64, unknown: u64);

    /// A message went to the dead letters.
    fn dead_lettered(&self);
}

/// Nobody is told.
impl<W: Workflow> EngineObserver<W> for () {
    type StateBefore = ();

    fn state_before(&self, _: &Run<W>) {}
    fn stored(&self, _: Option<()>, _: &Record<W>) {}
    fn appended(&self, _: Duration, _: Appended) {}
    fn dropped(&self, _: u64, _: u64) {}
    fn dead_lettered(&self) {}
}
