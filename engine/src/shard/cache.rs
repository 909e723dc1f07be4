//! Cache of a shard's runs, only at revisions that it read or appended itself.

use dormer_engine_core::{Run, Workflow};
use dormer_proto::id::{Revision, RunId, Seq};
use std::collections::HashMap;

/// Run with the revision of its last record.
pub(super) struct Cached<W: Workflow> {
    pub(super) run: Run<W>,
    pub(super) revision: Revision,
}

/// Cache of at most `max` runs. When it is full, the least recently used half is dropped.
pub(super) struct Cache<W: Workflow> {
    runs: HashMap<RunId, (u64, Cached<W>)>,
    /// Acknowledged revisions of runs that are in use or were recently in memory, each with its record's seq.
    newest: HashMap<RunId, (Revision, Seq)>,
    tick: u64,
    max: usize,
}

impl<W: Workflow> Cache<W> {
    pub(super) fn new(max: usize) -> Self {
        Self {
            runs: HashMap::new(),
            newest: HashMap::new(),
            tick: 0,
            max: max.max(1),
        }
    }

    pub(super) fn take(&mut self, run: &RunId) -> Option<Cached<W>> {
        let cached = self.runs.remove(run)?.1;
        self.newest
            .insert(run.clone(), (cached.revision, cached.run.seq));
        Some(cached)
    }

    pub(super) fn put(&mut self, cached: Cached<W>) {
        let id = cached.run.id.clone();
        if cached.run.closed.is_some() {
            // A closed run's records are deleted eventually. That is not a lost tail.
            self.newest.remove(&id);
            return;
        }
        self.newest
            .insert(id.clone(), (cached.revision, cached.run.seq));
        self.tick += 1;
        self.runs.insert(id, (self.tick, cached));
        if self.runs.len() > self.max {
            self.shed();
        }
    }

    pub(super) fn forget(&mut self, run: &RunId) {
        self.runs.remove(run);
    }

    /// Checks that the store has not lost records that it acknowledged. The answer says what contradicts. A run that
    /// is gone is a contradiction once: another engine may have deleted it.
    pub(super) fn check(&mut self, run: &RunId, found: Option<Revision>) -> Result<(), String> {
        let Some((newest, _)) = self.newest.get(run).copied() else {
            return Ok(());
        };
        let found = match found {
            Some(found) if found >= newest => return Ok(()),
            Some(found) => found.to_string(),
            None => {
                self.newest.remove(run);
                "nothing".to_owned()
            }
        };
        Err(format!(
            "{run} was acknowledged at revision {newest}; the store now has {found}"
        ))
    }

    /// Seq of the newest record of `run` that this shard knows, if it is above `found`: an older record was put at
    /// the end. Reported once: after a person's release the run must be accepted.
    pub(super) fn beyond(&mut self, run: &RunId, found: Seq) -> Option<Seq> {
        let (_, known) = self.newest.get(run).copied()?;
        if known <= found {
            return None;
        }
        self.newest.remove(run);
        Some(known)
    }

    fn shed(&mut self) {
        let mut ticks: Vec<u64> = self.runs.values().map(|(tick, _)| *tick).collect();
        let middle = ticks.len() / 2;
        let (_, median, _) = ticks.select_nth_unstable(middle);
        let median = *median;
        self.runs.retain(|_, (tick, _)| *tick >= median);
        self.newest.retain(|run, _| self.runs.contains_key(run));
    }
}
