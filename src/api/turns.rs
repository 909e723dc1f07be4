//! Turns with the lease: those in a rollout's records, and how long one usually takes.

use super::{Api, ApiError, planned, run_cache::SharedRun};
use dormer_engine_core::Record;
use dormer_proto::{
    id::{RunId, Timestamp},
    work::machine_run,
};
use dormer_views::rollout::Rollout;
use dormer_workflows::{Dormer, State};
use std::collections::BTreeMap;
use tokio::sync::Mutex;

/// Age at which an estimate is made again, in milliseconds by the engine's clock: it reads a rollout's records and the
/// histories of some machines.
const ESTIMATED_FOR: u64 = 60_000;

/// Result of an episode whose change was given up.
const GIVEN_UP: &str = "given up";

/// A machine's turn with the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Token of the lease.
    pub token: u64,
    /// UID of the machine that held the lease.
    pub holder: String,
    /// Time of the grant, in milliseconds by the engine's clock.
    pub from: u64,
    /// Time at which the turn ended. `None`: the machine still holds the lease.
    pub to: Option<u64>,
    /// Whether its change was given up: the machine left it as it was, as its own run says.
    pub given_up: bool,
}

/// Median of these values, the upper one of two. `None`: there is none.
pub(super) fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Median duration of the turns that ended with their change done, in milliseconds. `None`: there is none. One that was
/// given up tells how long a person waited, and not how long a change takes.
#[must_use]
pub fn median_turn_ms(turns: &[Turn]) -> Option<u64> {
    let took = turns
        .iter()
        .filter(|turn| !turn.given_up)
        .filter_map(|turn| turn.to.map(|to| to.saturating_sub(turn.from)));
    median(took.collect())
}

/// Usual durations of turns by rollout, each with the time of its estimate. Lock held during an estimate, so that
/// concurrent readers cause one.
pub(super) type Estimates = Mutex<BTreeMap<RunId, (Timestamp, Option<TurnEstimate>)>>;

/// Usual duration of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TurnEstimate {
    seconds: u64,
    /// Whether no turn has ended, and it is the sum of the steps' durations.
    expected: bool,
}

impl Api {
    /// Turns with the lease in a rollout's stored records, oldest first.
    ///
    /// # Errors
    /// As [`Api::timeline_of`].
    pub async fn turns_of(&self, run: &RunId) -> Result<Vec<Turn>, ApiError> {
        let mut turns = BTreeMap::new();
        self.each_record(run, |record| turned(&mut turns, record))
            .await?;
        let mut turns: Vec<Turn> = turns.into_values().collect();
        let runs = self.run_cache.all().await?;
        for turn in &mut turns {
            turn.given_up = was_given_up(turn, &runs);
        }
        Ok(turns)
    }

    /// Notes in the rollout how long a turn usually takes.
    pub async fn note_typical_turn(&self, run: &RunId, shown: &mut Rollout) {
        let estimate = self.typical_turn(run, shown).await;
        shown.typical_turn_seconds = estimate.map(|it| it.seconds);
        shown.typical_turn_expected = estimate.is_some_and(|it| it.expected);
    }

    /// Usual duration of a turn, at most a minute old; until a turn has ended, the sum of its steps' last
    /// durations. A failed estimate is logged, and the rollout is still shown. `None` in three cases:
    ///
    /// - no machine waits for the lease or holds it;
    /// - a step has not run yet;
    /// - the records cannot be read.
    async fn typical_turn(&self, run: &RunId, of: &Rollout) -> Option<TurnEstimate> {
        if of.queue.is_empty() && of.slots.is_empty() {
            return None;
        }
        let mut estimates = self.estimates.lock().await;
        let now = self.now();
        let known = estimates.get(run);
        // A clock that was set back makes it anew, too.
        if let Some((_, known)) = known.filter(|(at, _)| now.0.abs_diff(at.0) < ESTIMATED_FOR) {
            return *known;
        }
        let estimate = self.estimate(run, &of.pool).await;
        let estimate = estimate.unwrap_or_else(|error| {
            let why = error.what_and_remedy().0;
            tracing::warn!(%run, why, "the usual duration of a turn is not known");
            None
        });
        estimates.insert(run.clone(), (now, estimate));
        estimate
    }

    async fn estimate(&self, run: &RunId, pool: &str) -> Result<Option<TurnEstimate>, ApiError> {
        let turns = self.turns_of(run).await?;
        let measured = median_turn_ms(&turns);
        let ms = match measured {
            Some(ms) => Some(ms),
            None => planned::expected_turn(self, pool).await?,
        };
        Ok(ms.map(|ms| TurnEstimate {
            seconds: ms / 1_000,
            expected: measured.is_none(),
        }))
    }
}

/// Whether the holder's run, of `runs` by their ids, has an episode that was given up and ended within the turn. A run that
/// is no longer stored has none.
fn was_given_up(turn: &Turn, runs: &[SharedRun]) -> bool {
    let at = machine_run(&turn.holder).ok();
    let at = at.and_then(|id| runs.binary_search_by(|run| run.id.cmp(&id)).ok());
    let within = |at: Timestamp| (turn.from..=turn.to.unwrap_or(u64::MAX)).contains(&at.0);
    let episodes = at.into_iter().flat_map(|at| &runs[at].episodes);
    let mut ended = episodes.filter(|it| it.to.is_some_and(within));
    ended.any(|it| it.result == GIVEN_UP)
}

/// Updates `turns` from a record: new slots begin a turn, missing slots end one.
fn turned(turns: &mut BTreeMap<u64, Turn>, record: &Record<Dormer>) {
    let State::Rollout(state) = &record.run.state else {
        return;
    };
    let slots = state.view().slots;
    for turn in turns.values_mut().filter(|turn| turn.to.is_none()) {
        if slots.iter().all(|slot| slot.token.0 != turn.token) {
            turn.to = Some(record.at.0);
        }
    }
    for slot in slots {
        let token = slot.token.0;
        let from = slot.since.0;
        let holder = slot.holder;
        turns.entry(token).or_insert(Turn {
            token,
            holder,
            from,
            to: None,
            given_up: false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{live::Live, reads};
    use axum::extract::State as Of;
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use dormer_engine::{
        local::Local,
        memory::MemoryStore,
        port::{Append, Clock, Expected, History as _},
    };
    use dormer_engine_core::Episode;
    use dormer_proto::{
        envelope,
        id::{Incarnation, Revision},
        work::SCHEMA,
    };
    use serde_json::Value;
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    #[derive(Clone, Default)]
    struct SetClock(Arc<AtomicU64>);

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }
    }

    /// Rollout whose first machine holds the lease, and the records after that.
    struct Site {
        store: Arc<MemoryStore>,
        clock: SetClock,
        api: Arc<Api>,
        run: RunId,
        last: Revision,
        later: Vec<(Record<Dormer>, Vec<u8>)>,
    }

    fn holds(record: &Record<Dormer>) -> bool {
        matches!(&record.run.state, State::Rollout(state) if !state.view().slots.is_empty())
    }

    /// Records of an exported history.
    fn recorded(text: &str) -> Vec<(Record<Dormer>, Vec<u8>)> {
        let records = text.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let bytes = STANDARD.decode(line["record"]["envelope"].as_str()?);
            let bytes = bytes.expect("base64");
            let (record, _) = envelope::decode(&bytes, SCHEMA).expect("a record");
            Some((record, bytes))
        });
        records.collect()
    }

    impl Site {
        async fn new() -> Self {
            let text = include_str!("../../tests/histories/0.1/rollout-in-place.jsonl");
            let mut records = recorded(text);
            let granted = records.iter().position(|(it, _)| holds(it));
            let later = records.split_off(granted.expect("a grant") + 1);
            let store = Arc::new(MemoryStore::new(Incarnation(1)));
            let clock = SetClock::default();
            let ports = Arc::new(Local::new(Arc::clone(&store), clock.clone()));
            let mut site = Self {
                store,
                clock,
                api: Api::over(ports, Arc::<Live>::default(), None),
                run: records[0].0.run.id.clone(),
                last: Revision(0),
                later,
            };
            for (record, bytes) in &records {
                site.append(record, bytes.clone()).await;
            }
            site
        }

        async fn append(&mut self, record: &Record<Dormer>, bytes: Vec<u8>) {
            let first = record.run.seq.0 == 1;
            let expected = match first {
                true => Expected::Nothing,
                false => Expected::At(self.last),
            };
            self.last = self.stored(record, bytes, expected).await;
        }

        async fn stored(
            &self,
            record: &Record<Dormer>,
            bytes: Vec<u8>,
            expected: Expected,
        ) -> Revision {
            let append = Append {
                run: record.run.id.clone(),
                expected,
                bytes,
                seq: record.run.seq,
                deadline: None,
                closed: None,
                quiet: true,
            };
            let appended = self.store.append(vec![append]).await;
            appended[0].clone().expect("appended")
        }

        /// Stores the holder's run, with an episode that ended in its turn with `result`.
        async fn ended(&self, turn: &Turn, result: &str) {
            let text = include_str!("../../tests/histories/0.1/upgrade-in-place.jsonl");
            let (mut record, _) = recorded(text).swap_remove(0);
            record.run.id = machine_run(&turn.holder).expect("an id");
            record.run.episodes = vec![Episode {
                kind: "upgrade".into(),
                seq: record.run.seq,
                from: Timestamp(turn.from),
                to: turn.to.map(Timestamp),
                result: result.into(),
            }]
            .into();
            let (bytes, _) = envelope::encode(&record, SCHEMA).expect("bytes");
            self.stored(&record, bytes, Expected::Nothing).await;
        }

        async fn turns(&self) -> Vec<Turn> {
            self.api.turns_of(&self.run).await.expect("turns")
        }

        async fn shown(&self) -> Rollout {
            let listed = reads::rollouts(Of(Arc::clone(&self.api))).await;
            listed.expect("an answer").0.items.remove(0)
        }
    }

    #[tokio::test]
    async fn an_estimate_is_made_again_after_a_minute() {
        let mut site = Site::new().await;
        assert_eq!(
            site.shown().await.typical_turn_seconds,
            None,
            "no turn has ended"
        );
        // Until a turn has ended and another machine holds the lease.
        for (record, bytes) in std::mem::take(&mut site.later) {
            site.append(&record, bytes).await;
            let turns = site.turns().await;
            if median_turn_ms(&turns).is_some() && holds(&record) {
                break;
            }
        }
        assert_eq!(site.shown().await.typical_turn_seconds, None, "a minute");
        site.clock.0.store(ESTIMATED_FOR, Ordering::Relaxed);
        let shown = site.shown().await;
        let turns = site.turns().await;
        assert_eq!(
            shown.typical_turn_seconds,
            median_turn_ms(&turns).map(|ms| ms / 1_000)
        );
        assert!(shown.typical_turn_seconds.is_some());
        assert!(!shown.typical_turn_expected, "a turn has ended");
    }

    #[tokio::test]
    async fn a_turn_whose_change_was_given_up_tells_no_usual_duration() {
        for (result, counts) in [("upgraded", true), (GIVEN_UP, false)] {
            let mut site = Site::new().await;
            for (record, bytes) in std::mem::take(&mut site.later) {
                site.append(&record, bytes).await;
                if site.turns().await[0].to.is_some() {
                    break;
                }
            }
            let turns = site.turns().await;
            site.ended(&turns[0], result).await;
            let turns = site.turns().await;
            assert_eq!(turns[0].given_up, !counts, "{result}");
            assert_eq!(median_turn_ms(&turns).is_some(), counts, "{result}");
        }
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_hides_the_estimate_and_not_the_rollout() {
        let mut site = Site::new().await;
        let (record, bytes) = site.later.remove(0);
        site.append(&record, b"no envelope".to_vec()).await;
        let (next, bytes_of_next) = site.later.remove(0);
        drop(bytes);
        site.append(&next, bytes_of_next).await;
        let shown = site.shown().await;
        assert_eq!(shown.pool, "windows");
        assert_eq!(shown.typical_turn_seconds, None);
    }
}
