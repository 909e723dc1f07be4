//! Runs whose record nobody will ever store: each stands still until a person acts, and that is said once.

use dormer_proto::id::RunId;
use std::collections::HashSet;

/// Runs that are remembered. Beyond, all are forgotten: some are told of twice.
const RUNS_MAX: usize = 20_000;

/// The runs that were told of.
#[derive(Default)]
pub(super) struct Refused(HashSet<RunId>);

impl Refused {
    /// Whether `run` was not told of before.
    pub(super) fn first(&mut self, run: &RunId) -> bool {
        if self.0.len() >= RUNS_MAX {
            self.0.clear();
        }
        self.0.insert(run.clone())
    }

    /// A record of `run` is stored after all.
    pub(super) fn stored(&mut self, run: &RunId) {
        if !self.0.is_empty() {
            self.0.remove(run);
        }
    }
}
