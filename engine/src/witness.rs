//! The witness: told what an engine did, for metrics, logs and traces. Nothing is decided by it.

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
/// Calls come from the lanes, between their awaits: an implementation answers at once, never blocks, never fails.
pub trait Witness<W: Workflow>: Send + Sync + 'static {
    /// What is kept of a run from before a transition until after it.
    type Glance: Send;

    /// Looks at a run before a transition, which may come to nothing.
    fn glance(&self, run: &Run<W>) -> Self::Glance;

    /// A record is stored. `before` is `None` if it is the run's first.
    fn stored(&self, before: Option<Self::Glance>, record: &Record<W>);

    /// One round of appends took so long.
    fn appended(&self, took: Duration, what: Appended);

    /// Nobody will ever store this run's next record (too large, or not to be written down): it stands still until a
    /// person acts. Told once a run; how often it was tried, [`Witness::appended`] counts.
    fn refused(&self, run: &RunId, why: &str) {
        let _ = (run, why);
    }

    /// Letters changed nothing; `unknown` of them belong to another incarnation, or to a lost tail of the store.
    fn dropped(&self, letters: u64, unknown: u64);

    /// A letter went to the dead letters.
    fn buried(&self);
}

/// Nobody is told.
impl<W: Workflow> Witness<W> for () {
    type Glance = ();

    fn glance(&self, _: &Run<W>) {}
    fn stored(&self, _: Option<()>, _: &Record<W>) {}
    fn appended(&self, _: Duration, _: Appended) {}
    fn dropped(&self, _: u64, _: u64) {}
    fn buried(&self) {}
}
