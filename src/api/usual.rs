//! How long a step usually takes on the machines of a pool: the basis of *slow*. The histories of a few machines are read
//! again after some minutes at most, and only while a step may be slow.

use super::{Api, planned, run_cache::SharedRun, turns::median};
use crate::{durations::Medians, plan::Times};
use dormer_proto::phase::MachinePhase;
use dormer_views::timing::PhaseTiming;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// Fewest machines that took a step. Of fewer nothing is said.
const SAMPLES_MIN: usize = 3;
/// Most histories that are read for a pool: those of the machines that changed last.
const HISTORIES_MAX: usize = 24;
/// Most pools whose histories one read of the machines waits for.
const POOLS_MAX: usize = 8;
/// Age of a step in milliseconds before which it is not slow in any case: then nothing is read.
const YOUNG: u64 = 60_000;

impl Api {
    /// Whether a machine's step may be slow while its usual duration is unknown, or old.
    pub(crate) fn usual_is_due(&self, run: &SharedRun) -> bool {
        self.due_pool(run).is_some()
    }

    /// Pool of the machine, if [`Api::usual_is_due`].
    fn due_pool(&self, run: &SharedRun) -> Option<String> {
        let state = planned::machine(run).filter(|_| run.closed.is_none())?;
        PhaseTiming::of(state.phase.id()).limits?;
        let now = self.now();
        let known = || self.live.begins(&run.id)?.phase_since;
        let since = state.phase_since.or_else(known)?;
        if now.since_ms(since) < YOUNG {
            return None;
        }
        let pool = state.view().pool;
        self.live.usual.is_due(&pool, now).then_some(pool)
    }

    /// Reads the histories of the pools in which a step of these machines may be slow. One caller reads, and the others
    /// continue with what is known. A history that cannot be read is no reason to refuse the machines themselves.
    pub(crate) async fn learn_usual(&self, runs: &[SharedRun]) {
        let Ok(_reading) = self.live.usual.reading.try_lock() else {
            return;
        };
        let due: BTreeSet<String> = runs.iter().filter_map(|run| self.due_pool(run)).collect();
        for pool in due.into_iter().take(POOLS_MAX) {
            let medians = self.medians_of(&pool, runs).await;
            let now = self.now();
            self.live.usual.put(pool, now, medians);
        }
    }

    async fn medians_of(&self, pool: &str, runs: &[SharedRun]) -> Medians {
        // A machine that has not served yet has not taken most steps.
        let has_served = |run: &&SharedRun| {
            let state = planned::machine(run);
            state
                .is_some_and(|it| (it.in_service || run.closed.is_some()) && it.view().pool == pool)
        };
        let mut ours: Vec<&SharedRun> = runs.iter().filter(has_served).collect();
        ours.sort_by_key(|run| Reverse(run.entered.at));
        ours.truncate(HISTORIES_MAX);
        match planned::last_times(self, ours).await {
            Ok(times) => medians(times.values()),
            Err(error) => {
                let why = error.what_and_remedy().0;
                tracing::warn!(pool, why, "the usual durations of steps are not known");
                Medians::new()
            }
        }
    }
}

/// Median of each step's last durations on these machines, in seconds. A step that fewer than three took is left out.
fn medians<'a>(machines: impl Iterator<Item = &'a Times>) -> Medians {
    let mut took: BTreeMap<MachinePhase, Vec<u64>> = BTreeMap::new();
    for (phase, last) in machines.flatten() {
        took.entry(*phase).or_default().push(last.ms);
    }
    let enough = took.into_iter().filter(|(_, it)| it.len() >= SAMPLES_MIN);
    let median = |(phase, took)| Some((phase, median(took)? / 1_000));
    enough.filter_map(median).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{live::Live, plan::StepDuration};
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use dormer_engine::{
        local::Local,
        memory::MemoryStore,
        port::{Append, Expected, History as _, SystemClock},
    };
    use dormer_engine_core::Record;
    use dormer_proto::{
        envelope,
        id::{Incarnation, Revision},
        work::SCHEMA,
    };
    use dormer_workflows::Dormer;
    use serde_json::Value;
    use std::sync::Arc;

    /// Appends a recorded history.
    async fn store(store: &MemoryStore, history: &str) {
        let mut last = Revision(0);
        for line in history.lines() {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let Some(bytes) = line["record"]["envelope"].as_str() else {
                continue;
            };
            let bytes = STANDARD.decode(bytes).expect("base64");
            let (record, _): (Record<Dormer>, _) =
                envelope::decode(&bytes, SCHEMA).expect("a record");
            let append = Append {
                run: record.run.id.clone(),
                expected: match record.run.seq.0 {
                    1 => Expected::Nothing,
                    _ => Expected::At(last),
                },
                bytes,
                seq: record.run.seq,
                deadline: None,
                closed: record.run.closed,
                quiet: true,
            };
            let appended = store.append(vec![append]).await;
            last = appended[0].clone().expect("appended");
        }
    }

    #[tokio::test]
    async fn three_histories_tell_what_a_bring_up_usually_takes() {
        let histories = [
            include_str!("../../tests/histories/0.1/bring-up.jsonl"),
            include_str!("../../tests/histories/0.1/failure-and-retry.jsonl"),
            include_str!("../../tests/histories/0.1/upgrade-by-recreate.jsonl"),
        ];
        let memory = Arc::new(MemoryStore::new(Incarnation(1)));
        let ports = Arc::new(Local::new(Arc::clone(&memory), SystemClock));
        let api = Api::over(ports, Arc::<Live>::default(), None);
        let mut known = Vec::new();
        for history in histories {
            store(&memory, history).await;
            let runs = api.run_cache.all().await.expect("runs");
            let medians = api.medians_of("windows", &runs).await;
            known.push(medians.get(&MachinePhase::Probing).copied());
            assert!(api.medians_of("other", &runs).await.is_empty());
        }
        let [None, None, Some(seconds)] = known[..] else {
            panic!("{known:?}");
        };
        assert!((1..600).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_median_needs_three_machines() {
        type Seconds<'s> = &'s [u64];
        let machine = |steps: &[(MachinePhase, u64)]| -> Times {
            let took = steps.iter().map(|(phase, seconds)| {
                let took = StepDuration {
                    ms: seconds * 1_000 + 500,
                    at: 1,
                    machine: String::new(),
                };
                (*phase, took)
            });
            took.collect()
        };
        use MachinePhase::{Evicting, Probing};
        // Seconds of the host's start on each machine, and of the drain; and the medians.
        let table: [([Seconds<'_>; 2], [Option<u64>; 2]); 4] = [
            ([&[], &[]], [None, None]),
            ([&[100, 200], &[5, 6, 7]], [None, Some(6)]),
            ([&[900, 100, 120], &[]], [Some(120), None]),
            ([&[1, 2, 3, 4], &[9]], [Some(3), None]),
        ];
        for ([probing, evicting], expected) in table {
            let machines: Vec<Times> = probing
                .iter()
                .map(|it| machine(&[(Probing, *it)]))
                .chain(evicting.iter().map(|it| machine(&[(Evicting, *it)])))
                .collect();
            let medians = medians(machines.iter());
            let found = [Probing, Evicting].map(|it| medians.get(&it).copied());
            assert_eq!(found, expected, "{probing:?} {evicting:?}");
        }
    }
}
