//! Cache of a shard's runs, only at revisions that it read or appended itself.

use crate::port::MissedRecord;
use dormer_engine_core::{Run, Workflow};
use dormer_proto::id::{Revision, RunId, Seq, Timestamp};
use std::collections::HashMap;

/// Time after which a run's last record counts as lost, in milliseconds. A leader that was deposed answers for less: it
/// finds out within 20 s that it has no majority (nats-server 2.12, `server/raft.go`, `lostQuorumCheck`).
const LOST_AFTER_MS: u64 = 60_000;
/// Reads in a row that must miss a run's last record before it counts as lost.
const LOST_READS_MIN: u32 = 8;

/// Run with the revision of its last record.
pub(super) struct Cached<W: Workflow> {
    pub(super) run: Run<W>,
    pub(super) revision: Revision,
}

/// Newest known record of a run.
struct Newest {
    revision: Revision,
    seq: Seq,
    /// Reads in a row that did not find it, and the time of the first one.
    missed: Option<(u32, Timestamp)>,
}

impl Newest {
    fn of<W: Workflow>(cached: &Cached<W>) -> Self {
        Self {
            revision: cached.revision,
            seq: cached.run.seq,
            missed: None,
        }
    }

    /// Notes a read that did not find it. Returns whether it is lost.
    fn miss(&mut self, now: Timestamp) -> bool {
        let (before, since) = self.missed.unwrap_or((0, now));
        let reads = before.saturating_add(1);
        self.missed = Some((reads, since));
        reads >= LOST_READS_MIN && now.since_ms(since) >= LOST_AFTER_MS
    }
}

/// Contradiction between a read and what this shard knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Contradiction {
    /// It may pass.
    Doubt(String),
    /// It has stayed.
    Lost(String),
}

/// Cache of at most `max` runs. When it is full, the least recently used half is dropped.
pub(super) struct Cache<W: Workflow> {
    runs: HashMap<RunId, (u64, Cached<W>)>,
    /// Acknowledged records of runs that are in use or were recently in memory.
    newest: HashMap<RunId, Newest>,
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
        self.newest.insert(run.clone(), Newest::of(&cached));
        Some(cached)
    }

    pub(super) fn put(&mut self, cached: Cached<W>) {
        let id = cached.run.id.clone();
        if cached.run.closed.is_some() {
            // A closed run's records are deleted eventually. That is not a lost tail.
            self.newest.remove(&id);
            return;
        }
        self.newest.insert(id.clone(), Newest::of(&cached));
        self.tick += 1;
        self.runs.insert(id, (self.tick, cached));
        if self.runs.len() > self.max {
            self.drop_older_half();
        }
    }

    pub(super) fn forget(&mut self, run: &RunId) {
        self.runs.remove(run);
    }

    /// Forgets what is known of a run. After a person's release whatever the store has must be accepted.
    pub(super) fn forget_entirely(&mut self, run: &RunId) {
        self.runs.remove(run);
        self.newest.remove(run);
    }

    /// Checks that the store has not lost records that it acknowledged. A run that is gone is a contradiction once:
    /// another engine may have deleted it.
    pub(super) fn check(
        &mut self,
        run: &RunId,
        found: Option<Revision>,
        now: Timestamp,
    ) -> Result<(), Contradiction> {
        let Some(newest) = self.newest.get_mut(run) else {
            return Ok(());
        };
        let revision = newest.revision;
        let what = |found: &dyn std::fmt::Display| {
            format!("{run} was acknowledged at revision {revision}; the store now has {found}")
        };
        let Some(found) = found else {
            self.newest.remove(run);
            return Err(Contradiction::Doubt(what(&"nothing")));
        };
        if found >= revision {
            newest.missed = None;
            return Ok(());
        }
        Err(match newest.miss(now) {
            true => Contradiction::Lost(what(&found)),
            false => Contradiction::Doubt(what(&found)),
        })
    }

    /// The record of `run` that the last read did not find.
    pub(super) fn missed(&self, run: &RunId) -> Option<MissedRecord> {
        let newest = self.newest.get(run).filter(|it| it.missed.is_some())?;
        Some(MissedRecord {
            revision: newest.revision,
            seq: newest.seq,
        })
    }

    /// Takes the word of an engine that did not find this record at that time. `false`: the run has a newer one.
    pub(super) fn suspect(&mut self, run: &RunId, record: MissedRecord, since: Timestamp) -> bool {
        let MissedRecord { revision, seq } = record;
        if let Some(known) = self.newest.get(run)
            && known.revision >= revision
        {
            return known.revision == revision;
        }
        self.runs.remove(run);
        let newest = Newest {
            revision,
            seq,
            missed: Some((0, since)),
        };
        self.newest.insert(run.clone(), newest);
        true
    }

    /// Seq of the newest record of `run` that this shard knows, if it is above `found`: an older record was put at
    /// the end.
    pub(super) fn newer_than(&self, run: &RunId, found: Seq) -> Option<Seq> {
        let known = self.newest.get(run)?.seq;
        (known > found).then_some(known)
    }

    fn drop_older_half(&mut self) {
        let mut ticks: Vec<u64> = self.runs.values().map(|(tick, _)| *tick).collect();
        let middle = ticks.len() / 2;
        let (_, median, _) = ticks.select_nth_unstable(middle);
        let median = *median;
        self.runs.retain(|_, (tick, _)| *tick >= median);
        // A run in doubt is not in memory. Without what is known of it, its older record would pass for its last one.
        self.newest
            .retain(|run, newest| newest.missed.is_some() || self.runs.contains_key(run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newest() -> Newest {
        Newest {
            revision: Revision(2),
            seq: Seq(2),
            missed: None,
        }
    }

    #[test]
    fn a_record_is_lost_after_a_time_and_several_reads() {
        let mut soon = newest();
        assert!((0..100).all(|_| !soon.miss(Timestamp(LOST_AFTER_MS - 1))));
        let mut seldom = newest();
        let hours = (1..).map(|hour| Timestamp(hour * 3_600_000));
        let mut reads = hours.map(|at| seldom.miss(at));
        assert_eq!(reads.position(|lost| lost), Some(7));
    }
}
