//! Share of an engine: which partitions of the inbox it reads, and for which it stands by.
//!
//! Engines tell each other once a second that they live, and each computes the same shares from who lives. Of every
//! partition one engine is the first and another the second; the server gives the second a message only while the first
//! does not ask. Two engines may disagree for a moment. Then both read a partition, and the condition on each append
//! decides: a share makes them fast, not right.
//!
//! A frozen engine (SIGSTOP, a virtual machine that stands still) leaves its requests open on a connection that nothing
//! closes. The server prefers the next reader of its partitions to these open requests, until they expire: each takeover
//! takes the next priority ([`super::silent`]).
//!
//! Due timers have no such priorities. All engines read them, and a request for them ends soon ([`requests::TIMERS_EXPIRE`]).
//! Another engine gets its messages after the claim of ten seconds.
//!
//! An engine that met a message for a newer build yields its partition for a while: while another engine lives that does
//! not yield it, that one reads it. Else the server would give the message to the same engine again and again.

use super::{
    link::Link,
    silent::{Live, Passed, Priority, STANDS_BY, SilentBeat, SilentEngines, reader_priority},
};
use dormer_nats::signing::{Refusal, SignedAt};
use dormer_proto::{address::Origin, id::hash64};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior},
};

/// Interval at which an engine says that it lives.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Silence after which an engine counts as gone.
const GONE_AFTER: Duration = Duration::from_millis(3_500);
/// Time for which an engine listens before it takes a share. Until then it stands by for every partition.
const LISTEN_FIRST: Duration = Duration::from_millis(1_500);

/// Time for which an engine yields a partition after a message for a newer build. It then reads it again, and yields it
/// again if such messages still come: each time, one of them waits for its redelivery.
pub(super) const YIELD: Duration = Duration::from_secs(60);

/// Partitions that this engine yields, each until when.
pub(super) type YieldDeadlines = BTreeMap<u64, Instant>;

/// Rank of an engine for a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It reads the partition, and its requests have this priority.
    First(Priority),
    /// It stands by.
    Second,
}

impl Rank {
    /// Whether the engine reads the partition as long as it lives.
    pub(super) fn reads(self) -> bool {
        self != Self::Second
    }

    /// Priority of its requests.
    pub(super) fn priority(self) -> Priority {
        match self {
            Self::First(priority) => priority,
            Self::Second => STANDS_BY,
        }
    }
}

/// Ranks of one engine for all partitions, by number. `None`: it does not read the partition.
pub(super) type Ranks = Arc<Vec<Option<Rank>>>;

/// What engines tell each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct EngineHeartbeat {
    /// Number that an engine process chose for itself.
    engine: u64,
    /// Whether it ends.
    #[serde(default)]
    leaves: bool,
    /// Partitions that it leaves to engines of a newer build.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    yields: BTreeSet<u64>,
    /// Engines that fell silent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    silent: Vec<SilentBeat>,
}

/// Time at which each engine's last heartbeat was signed. A replayed heartbeat of an engine that is gone would keep its
/// partitions unread. Only a holder of an engine's key makes entries here.
#[derive(Debug, Default)]
struct Latest(BTreeMap<u64, SignedAt>);

impl Latest {
    /// Takes a heartbeat.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: it is not later than the last one of this engine.
    fn take(&mut self, engine: u64, at: SignedAt) -> Result<(), Refusal> {
        match self.0.insert(engine, at) {
            Some(last) if last >= at => {
                self.0.insert(engine, last);
                Err(Refusal::Stale)
            }
            _ => Ok(()),
        }
    }
}

/// Ranks of an engine that does not know the others yet.
pub(super) fn in_reserve(partitions: u64) -> Ranks {
    Arc::new((0..partitions).map(|_| Some(Rank::Second)).collect())
}

/// Whether an engine with these ranks has learned who else lives.
pub(super) fn is_known(ranks: &Ranks) -> bool {
    ranks.iter().any(|rank| *rank != Some(Rank::Second))
}

fn weight(engine: u64, partition: u64) -> u64 {
    hash64(&[engine.to_be_bytes(), partition.to_be_bytes()].concat())
}

/// First engine of each partition: rendezvous hashing, in which no engine gets more than its share, rounded up.
fn firsts(live: &BTreeSet<u64>, partitions: u64) -> BTreeMap<u64, u64> {
    let engines = live.len().max(1) as u64;
    let least = partitions / engines;
    let mut larger = partitions % engines;
    let all = live
        .iter()
        .flat_map(|engine| (0..partitions).map(move |at| (weight(*engine, at), *engine, at)));
    let mut pairs: Vec<(u64, u64, u64)> = all.collect();
    pairs.sort_unstable_by(|a, b| b.cmp(a));
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut firsts = BTreeMap::new();
    for (_, engine, partition) in pairs {
        let count = counts.entry(engine).or_default();
        let room = *count < least || (*count == least && larger > 0);
        if !room || firsts.contains_key(&partition) {
            continue;
        }
        larger -= u64::from(*count == least);
        *count += 1;
        firsts.insert(partition, engine);
    }
    firsts
}

/// Ranks of the engine `ours` among those that live, itself included. `passed`: requests before which a partition's
/// reader must be served.
fn ranks(ours: u64, live: &Live, passed: &Passed, partitions: u64) -> Ranks {
    let engines: BTreeSet<u64> = live.keys().copied().collect();
    let firsts = firsts(&engines, partitions);
    let rank = |partition: u64| {
        // Engines that yield the partition come last.
        let stays = |engine: &u64| !live.get(engine).is_some_and(|it| it.contains(&partition));
        let best = |but: Option<u64>| {
            let others = engines.iter().filter(|engine| Some(**engine) != but);
            others.max_by_key(|engine| (stays(engine), weight(**engine, partition)))
        };
        let first = firsts.get(&partition).copied();
        let first = first.filter(stays).or_else(|| best(None).copied());
        let second = best(first);
        match () {
            () if first == Some(ours) => Some(Rank::First(reader_priority(passed, partition))),
            () if second == Some(&ours) => Some(Rank::Second),
            () => None,
        }
    };
    Arc::new((0..partitions).map(rank).collect())
}

/// Other engines: when the last message of each came, and what it yields.
type OtherEngines = BTreeMap<u64, (Instant, BTreeSet<u64>)>;

/// Takes engines that fell silent from the others.
fn fell_silent(others: &mut OtherEngines, now: Instant) -> Vec<u64> {
    let is_silent = |(at, _): &(Instant, _)| now.duration_since(*at) >= GONE_AFTER;
    let found = others.iter().filter(|(_, other)| is_silent(other));
    let found: Vec<u64> = found.map(|(engine, _)| *engine).collect();
    for engine in &found {
        others.remove(engine);
    }
    found
}

fn live(ours: (u64, BTreeSet<u64>), others: &OtherEngines) -> Live {
    let others = others.iter();
    let others = others.map(|(engine, (_, yields))| (*engine, yields.clone()));
    others.chain([ours]).collect()
}

/// Partitions that an engine reads, each with the priority of its requests.
fn read_by(engine: u64, live: &Live, passed: &Passed, partitions: u64) -> Passed {
    let its = ranks(engine, live, passed, partitions);
    let its = (0..).zip(its.iter());
    let read = its.filter_map(|(partition, rank)| Some((partition, (*rank)?)));
    let read = read.filter(|(_, rank)| rank.reads());
    read.map(|(partition, rank)| (partition, rank.priority()))
        .collect()
}

/// Tells other engines that this one ends.
pub(super) async fn announce_end(link: &Link, ours: u64) {
    let beat = EngineHeartbeat {
        engine: ours,
        leaves: true,
        ..EngineHeartbeat::default()
    };
    publish_heartbeat(link, &beat).await;
}

async fn publish_heartbeat(link: &Link, beat: &EngineHeartbeat) {
    let body = serde_json::to_vec(beat).unwrap_or_default();
    let subject = link.names.engines();
    // Without it the others take this one for gone.
    link.send(Origin::Engine, subject, body.into()).await;
}

/// Partitions whose time is not over.
fn present(deadlines: &BTreeMap<u64, Instant>, now: Instant) -> BTreeSet<u64> {
    let present = deadlines.iter().filter(|(_, until)| **until > now);
    present.map(|(partition, _)| *partition).collect()
}

/// Keeps this engine's share until cancelled.
pub(super) async fn run_partition_share(
    link: Arc<Link>,
    ours: u64,
    share: watch::Sender<Ranks>,
    mut yielded: watch::Receiver<YieldDeadlines>,
) {
    let partitions = share.borrow().len() as u64;
    let mut others = OtherEngines::new();
    let mut latest = Latest::default();
    let mut silent = SilentEngines::default();
    let mut before = (Live::new(), Passed::new());
    let begun = Instant::now();
    let mut tick = tokio::time::interval(BEAT_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let Ok(mut beats) = link.client.subscribe(link.names.engines()).await else {
            tick.tick().await;
            continue;
        };
        loop {
            let due = tokio::select! {
                _ = tick.tick() => true,
                changed = yielded.changed() => match changed {
                    Ok(()) => true,
                    Err(_) => return,
                },
                beat = beats.next() => {
                    let Some(beat) = beat else { break };
                    let message = (beat.payload.as_ref(), beat.headers.as_ref());
                    let Ok(at) = link.verify(Origin::Engine, &beat.subject, message) else {
                        continue;
                    };
                    let Ok(said) = serde_json::from_slice::<EngineHeartbeat>(&beat.payload) else {
                        continue;
                    };
                    if let (Some(at), Some(keys)) = (at, &link.keys) {
                        let fresh = at.within(GONE_AFTER, SignedAt::now());
                        if let Err(refusal) = fresh.and_then(|()| latest.take(said.engine, at)) {
                            keys.refused(refusal, &beat.subject);
                            continue;
                        }
                    }
                    match said {
                        EngineHeartbeat { engine, leaves: true, .. } => drop(others.remove(&engine)),
                        EngineHeartbeat { engine, yields, silent: said, .. } => {
                            let now = Instant::now();
                            others.insert(engine, (now, yields));
                            silent.receive(said, now);
                        }
                    }
                    false
                }
            };
            let now = Instant::now();
            let yields = present(&yielded.borrow_and_update(), now);
            if due {
                let beat = EngineHeartbeat {
                    engine: ours,
                    leaves: false,
                    yields: yields.clone(),
                    silent: silent.said(now),
                };
                publish_heartbeat(&link, &beat).await;
            }
            for engine in fell_silent(&mut others, now) {
                let passed = silent.passed_lately(&before.0, now);
                silent.note(engine, read_by(engine, &before.0, &passed, partitions), now);
            }
            if now.duration_since(begun) < LISTEN_FIRST {
                continue;
            }
            let live = live((ours, yields), &others);
            if before.0.is_empty() && others.is_empty() {
                silent.note_unknown(partitions, now);
            }
            let passed = silent.passed(&live, now);
            let members = (live, passed);
            if members == before {
                continue;
            }
            let (live, passed) = &members;
            let own = ranks(ours, live, passed, partitions);
            let read = own.iter().flatten().filter(|rank| rank.reads()).count();
            tracing::info!(
                engines = live.len(),
                partitions = read,
                "this engine's share of the inbox"
            );
            share.send_replace(own);
            before = members;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::silent::READS, *};

    const PARTITIONS: u64 = 64;
    const FIRST: Option<Rank> = Some(Rank::First(READS));

    fn engines(count: u64) -> Live {
        (1..=count)
            .map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15), BTreeSet::new()))
            .collect()
    }

    fn numbers(live: &Live) -> BTreeSet<u64> {
        live.keys().copied().collect()
    }

    #[test]
    fn shares_differ_by_one_at_most_and_each_partition_has_a_second() {
        for count in 1..=70 {
            let live = engines(count);
            let mut firsts = vec![0; 64];
            let mut seconds = vec![0; 64];
            let mut shares = Vec::new();
            for engine in live.keys() {
                let ranks = ranks(*engine, &live, &Passed::new(), PARTITIONS);
                for (at, rank) in ranks.iter().enumerate() {
                    firsts[at] += u64::from(*rank == FIRST);
                    seconds[at] += u64::from(*rank == Some(Rank::Second));
                }
                shares.push(ranks.iter().filter(|rank| **rank == FIRST).count());
            }
            assert_eq!(firsts, [1; 64], "{count} engines");
            assert_eq!(seconds, [u64::from(count > 1); 64], "{count} engines");
            let least = shares.iter().min();
            let most = shares.iter().max();
            assert!(most.unwrap() - least.unwrap() <= 1, "{shares:?}");
        }
    }

    #[test]
    fn an_engine_that_goes_moves_few_partitions_beside_its_own() {
        for count in 2..=16 {
            let live = numbers(&engines(count));
            let mut fewer = live.clone();
            let gone = fewer.pop_first().unwrap();
            let before = firsts(&live, PARTITIONS);
            let after = firsts(&fewer, PARTITIONS);
            let moved = before
                .iter()
                .filter(|(at, engine)| **engine != gone && after.get(at) != Some(engine));
            let moved = moved.count();
            assert!(moved <= 24, "{count} engines: {moved} moved");
        }
    }

    #[test]
    fn who_is_silent_is_gone_and_who_is_alone_reads_all() {
        let now = Instant::now();
        let none = BTreeSet::new;
        let mut others = OtherEngines::from([(1, (now, none())), (2, (now + GONE_AFTER, none()))]);
        assert_eq!(fell_silent(&mut others, now + GONE_AFTER), [1]);
        let live = live((3, none()), &others);
        assert_eq!(numbers(&live), BTreeSet::from([2, 3]));
        let alone = Live::from([(3, none())]);
        assert!(
            ranks(3, &alone, &Passed::new(), PARTITIONS)
                .iter()
                .all(|rank| *rank == FIRST)
        );
    }

    #[test]
    fn the_partitions_of_a_silent_engine_are_taken_over_with_the_next_priority() {
        let now = Instant::now();
        let before = engines(3);
        let silent = *before.keys().next().unwrap();
        let its = read_by(silent, &before, &Passed::new(), PARTITIONS);
        let firsts = firsts(&numbers(&before), PARTITIONS);
        let firsts = firsts.into_iter().filter(|(_, engine)| *engine == silent);
        let firsts = firsts.map(|(partition, _)| (partition, READS));
        assert_eq!(its, firsts.collect());
        let mut known = SilentEngines::default();
        known.note(silent, its.clone(), now);
        let mut after = before.clone();
        after.remove(&silent);
        let passed = known.passed(&after, now);
        for partition in 0..PARTITIONS {
            let wanted = READS - u8::from(its.contains_key(&partition));
            let at = usize::try_from(partition).unwrap();
            let rank = |engine: &u64| ranks(*engine, &after, &passed, PARTITIONS)[at];
            let mut both: Vec<Option<Rank>> = after.keys().map(rank).collect();
            both.sort_unstable();
            assert_eq!(both, [Some(Rank::First(wanted)), Some(Rank::Second)]);
        }
        assert!(Rank::First(READS).priority() < Rank::Second.priority());
    }

    #[test]
    fn a_yielded_partition_goes_to_an_engine_that_does_not_yield_it() {
        let mut live = engines(3);
        let [old, older, newer] = numbers(&live).into_iter().collect::<Vec<_>>()[..] else {
            panic!("three engines");
        };
        for partition in 0..PARTITIONS {
            let rank = |live: &Live, engine| {
                ranks(engine, live, &Passed::new(), PARTITIONS)[usize::try_from(partition).unwrap()]
            };
            for engine in [old, older] {
                live.insert(engine, BTreeSet::from([partition]));
            }
            assert_eq!(rank(&live, newer), FIRST);
            let seconds = [old, older].map(|engine| rank(&live, engine));
            assert!(seconds.contains(&Some(Rank::Second)) && seconds.contains(&None));
            // Where all yield, one reads: messages for its build come there, too.
            live.insert(newer, BTreeSet::from([partition]));
            let mut all = [old, older, newer].map(|engine| rank(&live, engine));
            all.sort_unstable();
            assert_eq!(all, [None, FIRST, Some(Rank::Second)]);
            live = engines(3);
        }
    }

    #[test]
    fn beats_of_a_build_that_yields_nothing_are_read() {
        let beat: EngineHeartbeat = serde_json::from_str(r#"{"engine":7,"leaves":false}"#).unwrap();
        assert_eq!(beat.engine, 7);
        assert_eq!(beat.yields, BTreeSet::new());
        assert_eq!(
            serde_json::to_string(&beat).unwrap(),
            r#"{"engine":7,"leaves":false}"#
        );
    }

    #[test]
    fn a_partition_is_yielded_for_a_while() {
        let now = Instant::now();
        let yielded = YieldDeadlines::from([(1, now), (2, now + YIELD)]);
        assert_eq!(present(&yielded, now), BTreeSet::from([2]));
    }

    #[test]
    fn a_sign_of_life_that_comes_again_counts_no_more() {
        let early = SignedAt::now();
        let late = loop {
            let at = SignedAt::now();
            if at > early {
                break at;
            }
        };
        let mut latest = Latest::default();
        assert_eq!(latest.take(1, late), Ok(()));
        assert_eq!(latest.take(1, late), Err(Refusal::Stale));
        assert_eq!(latest.take(1, early), Err(Refusal::Stale));
        assert_eq!(
            latest.take(2, early),
            Ok(()),
            "each engine by its own clock"
        );
        assert_eq!(latest.take(2, late), Ok(()));
    }
}
