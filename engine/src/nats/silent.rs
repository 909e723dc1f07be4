//! Engines that fell silent: which partitions they read, and before whose requests their successors must be served.
//!
//! A silent engine may be dead or frozen. If it is frozen, its requests stay open until they expire, and the server serves
//! them in turn with others of their priority. So who takes a partition over asks with the next priority. Engines tell
//! each other of silent ones with each heartbeat: one that begins later passes them too, and one that takes over from a
//! successor knows how low that one's priority was.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// Time after which a request for a partition's messages ends.
pub(super) const PARTITION_EXPIRES: Duration = Duration::from_secs(120);

/// Engines that live, this one included, each with the partitions that it yields.
pub(super) type Live = BTreeMap<u64, BTreeSet<u64>>;

/// Priority of requests: the server serves the lowest number first (NATS ADR-42, `prioritized`), from 0 to 9.
pub(super) type Priority = u8;

/// Priority of an engine that stands by.
pub(super) const STANDS_BY: Priority = 9;
/// Priority of an engine that reads a partition, while no earlier reader of it fell silent. Eight engines may fall silent
/// one after the other, while the requests of the first one are open, before two have the same priority.
pub(super) const READS: Priority = 8;
/// Difference below which another engine's word of a silent one changes no time: on its way the word becomes old, and
/// would keep itself alive.
const HEARSAY: Duration = Duration::from_secs(3);
/// Most engines that are remembered.
const SILENT_MAX: usize = 64;
/// In the place of engines that no living one knows.
const UNKNOWN: u64 = 0;

/// Partitions with the priority of requests that may be open and have no living reader.
pub(super) type Passed = BTreeMap<u64, Priority>;

/// Priority of the reader of a partition, served before requests without a living reader.
pub(super) fn reader_priority(passed: &Passed, partition: u64) -> Priority {
    let passed = passed.get(&partition);
    passed.map_or(READS, |priority| priority.saturating_sub(1))
}

/// Word of a silent engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SilentBeat {
    /// Number of the engine.
    engine: u64,
    /// Time for which its requests may be open, in milliseconds.
    left_ms: u64,
    /// Partitions that it read, each with the priority of its requests.
    read: Passed,
}

/// What an engine that fell silent may still have open.
#[derive(Debug, PartialEq, Eq)]
struct SilentEngine {
    /// Time at which its last requests expire.
    until: Instant,
    read: Passed,
}

/// Engines that fell silent, by number.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SilentEngines(BTreeMap<u64, SilentEngine>);

impl SilentEngines {
    /// Notes that an engine fell silent, which read these partitions.
    pub(super) fn note(&mut self, engine: u64, read: Passed, now: Instant) {
        let until = now + PARTITION_EXPIRES;
        self.insert(engine, SilentEngine { until, read });
    }

    /// An engine that begins and knows of no other may follow one that is frozen.
    pub(super) fn note_unknown(&mut self, partitions: u64, now: Instant) {
        let read = (0..partitions).map(|partition| (partition, READS));
        self.note(UNKNOWN, read.collect(), now);
    }

    fn insert(&mut self, engine: u64, silent: SilentEngine) {
        // Those whose requests expired so long ago that no successor's priority comes from them.
        let oldest = |it: &SilentEngine| it.until + PARTITION_EXPIRES < silent.until;
        self.0.retain(|_, it| !oldest(it));
        if self.0.len() < SILENT_MAX || self.0.contains_key(&engine) {
            self.0.insert(engine, silent);
        }
    }

    /// Takes another engine's word.
    pub(super) fn receive(&mut self, said: Vec<SilentBeat>, now: Instant) {
        for SilentBeat {
            engine,
            left_ms,
            mut read,
        } in said
        {
            // Another build may know other numbers. The server refuses a request above nine.
            for priority in read.values_mut() {
                *priority = READS.min(*priority);
            }
            let left = Duration::from_millis(left_ms).min(PARTITION_EXPIRES);
            let until = now + left;
            let Some(known) = self.0.get_mut(&engine) else {
                self.insert(engine, SilentEngine { until, read });
                continue;
            };
            if known.until + HEARSAY < until {
                known.until = until;
            }
            for (partition, priority) in read {
                let lowest = known.read.entry(partition).or_insert(priority);
                *lowest = priority.min(*lowest);
            }
        }
    }

    /// What to tell the others.
    pub(super) fn said(&self, now: Instant) -> Vec<SilentBeat> {
        let open = self.0.iter().filter(|(_, it)| it.until > now);
        let said = open.map(|(engine, it)| SilentBeat {
            engine: *engine,
            left_ms: u64::try_from((it.until - now).as_millis()).unwrap_or(u64::MAX),
            read: it.read.clone(),
        });
        said.collect()
    }

    /// Partitions with the lowest priority of open requests without a living reader.
    pub(super) fn passed(&self, live: &Live, now: Instant) -> Passed {
        self.lowest(live, |it| it.until > now)
    }

    /// As [`SilentEngines::passed`], with the requests that expired lately: an engine that was served before them may
    /// still have requests open with the priority of that time.
    pub(super) fn passed_lately(&self, live: &Live, now: Instant) -> Passed {
        self.lowest(live, |it| it.until + PARTITION_EXPIRES > now)
    }

    fn lowest(&self, live: &Live, counts: impl Fn(&SilentEngine) -> bool) -> Passed {
        let mut passed = Passed::new();
        let silent = self
            .0
            .iter()
            .filter(|(engine, it)| !live.contains_key(engine) && counts(it));
        for (partition, priority) in silent.flat_map(|(_, it)| &it.read) {
            let lowest = passed.entry(*partition).or_insert(*priority);
            *lowest = (*priority).min(*lowest);
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(engines: &[u64]) -> Live {
        engines
            .iter()
            .map(|engine| (*engine, BTreeSet::new()))
            .collect()
    }

    fn read(priority: Priority) -> Passed {
        Passed::from([(5, priority)])
    }

    fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_takeover_takes_the_next_priority_until_the_last_requests_expire() {
        let now = Instant::now();
        let mut silent = SilentEngines::default();
        let priority =
            |silent: &SilentEngines, at| reader_priority(&silent.passed(&live(&[9]), at), 5);
        assert_eq!(priority(&silent, now), READS);
        silent.note(1, read(READS), now);
        assert_eq!(priority(&silent, now), READS - 1);
        let later = now + after(60);
        silent.note(2, read(READS - 1), later);
        assert_eq!(priority(&silent, later), READS - 2);
        // The first one's have expired, the second one's have not.
        assert_eq!(priority(&silent, now + after(130)), READS - 2);
        assert_eq!(priority(&silent, later + PARTITION_EXPIRES), READS);
        silent.note(3, read(0), later);
        assert_eq!(priority(&silent, later), 0, "there is none before");
    }

    #[test]
    fn an_engine_that_begins_knows_from_the_others_which_it_passes() {
        let now = Instant::now();
        let mut first = SilentEngines::default();
        first.note(1, read(READS - 1), now);
        let mut second = SilentEngines::default();
        second.receive(first.said(now + after(50)), now + after(50));
        assert_eq!(second, first);
        // It passes on what it received.
        let mut third = SilentEngines::default();
        third.receive(second.said(now + after(60)), now + after(60));
        assert_eq!(third, first);
    }

    #[test]
    fn word_of_a_silent_engine_does_not_keep_itself_alive() {
        let begun = Instant::now();
        let mut one = SilentEngines::default();
        let mut two = SilentEngines::default();
        one.note(1, read(READS), begun);
        for second in 0..120 {
            // Each message is half a second old when it is received.
            let said = begun + after(second);
            let by_one = one.said(said);
            let by_two = two.said(said);
            let received = said + Duration::from_millis(500);
            one.receive(by_two, received);
            two.receive(by_one, received);
        }
        let expired = begun + PARTITION_EXPIRES + Duration::from_millis(500);
        for silent in [one, two] {
            assert_eq!(silent.passed(&live(&[9]), expired), Passed::new());
        }
    }

    #[test]
    fn an_engine_that_lives_is_not_passed() {
        let now = Instant::now();
        let mut silent = SilentEngines::default();
        // As an engine says that was frozen itself, and has received no heartbeat since.
        silent.note(2, read(READS), now);
        assert_eq!(silent.passed(&live(&[2, 9]), now), Passed::new());
        assert_eq!(silent.passed(&live(&[9]), now), read(READS));
    }

    #[test]
    fn a_reader_whose_priority_comes_from_requests_that_expired_is_passed_too() {
        let now = Instant::now();
        let mut silent = SilentEngines::default();
        silent.note(1, read(READS), now);
        let expired = now + PARTITION_EXPIRES + after(1);
        assert_eq!(silent.passed(&live(&[9]), expired), Passed::new());
        assert_eq!(silent.passed_lately(&live(&[9]), expired), read(READS));
        let long_ago = now + PARTITION_EXPIRES * 2;
        assert_eq!(silent.passed_lately(&live(&[9]), long_ago), Passed::new());
    }

    #[test]
    fn no_more_engines_are_remembered_than_can_have_been() {
        let now = Instant::now();
        let mut silent = SilentEngines::default();
        for engine in 0..1_000 {
            silent.note(engine, read(READS), now);
        }
        assert_eq!(silent.said(now).len(), SILENT_MAX);
        silent.note(1_000, read(READS), now + PARTITION_EXPIRES * 3);
        assert_eq!(silent.0.len(), 1);
    }
}
