//! Runs whose next record the store will never accept. Each is blocked until a person acts, and is reported once.

use dormer_proto::id::RunId;
use std::collections::HashSet;

/// Most remembered runs. Beyond it all are forgotten, and some are reported twice.
const RUNS_MAX: usize = 20_000;

/// Runs that were reported.
#[derive(Default)]
pub(super) struct Refused(HashSet<RunId>);

impl Refused {
    /// Whether `run` was not reported before.
    pub(super) fn first(&mut self, run: &RunId) -> bool {
        if self.0.len() >= RUNS_MAX {
            self.0.clear();
        }
        self.0.insert(run.clone())
    }

    /// Forgets `run`, because a record of it was stored.
    pub(super) fn stored(&mut self, run: &RunId) {
        if !self.0.is_empty() {
            self.0.remove(run);
        }
    }
}
