//! Observer of an engine, for metrics, logs and traces. It decides nothing.

use dormer_engine_core::{Record, Run, Workflow};
use dormer_proto::id::RunId;
use std::time::Duration;

/// Result of one round of appends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Appended {
    /// Records stored.
    pub stored: u64,
    /// Records for which another engine was faster.
    pub conflicts: u64,
    /// Records that may or may not be stored.
    pub unknown: u64,
    /// Records that the store refuses.
    pub refused: u64,
}

/// Observer of what an engine did.
///
/// # Contract
/// The shards call it between their awaits. An implementation returns at once, never blocks, and never fails. If
/// `state_before` panics, the run is quarantined. A panic of the others is logged.
pub trait EngineObserver<W: Workflow>: Send + Sync + 'static {
    /// Data about a run before a transition, kept until after it.
    type StateBefore: Send;

    /// Captures a run before a transition, which may turn out empty.
    fn state_before(&self, run: &Run<W>) -> Self::StateBefore;

    /// A record was stored. `before` is `None` for the run's first record.
    fn stored(&self, before: Option<Self::StateBefore>, record: &Record<W>);

    /// A round of appends ended after `took`.
    fn appended(&self, took: Duration, what: Appended);

    /// A run was quarantined: engines leave it alone until it is released. `code` is stable.
    fn quarantined(&self, run: &RunId, code: &str, why: &str) {
        let _ = (run, code, why);
    }

    /// Background work of the engine panicked, and begins again.
    fn background_panicked(&self, work: &'static str) {
        let _ = work;
    }

    /// Messages changed nothing; `unknown` of them belong to another incarnation, or to a lost tail of the store.
    fn dropped(&self, messages: u64, unknown: u64);

    /// A message was dead-lettered.
    fn dead_lettered(&self);
}

/// Observer that does nothing.
impl<W: Workflow> EngineObserver<W> for () {
    type StateBefore = ();

    fn state_before(&self, _: &Run<W>) {}
    fn stored(&self, _: Option<()>, _: &Record<W>) {}
    fn appended(&self, _: Duration, _: Appended) {}
    fn dropped(&self, _: u64, _: u64) {}
    fn dead_lettered(&self) {}
}
