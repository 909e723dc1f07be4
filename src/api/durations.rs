//! Usual durations of steps, as they were read last.

use dormer_proto::{id::Timestamp, lock::Locked as _, phase::MachinePhase};
use dormer_views::timing::PhaseTiming;
use std::{
    collections::BTreeMap,
    sync::{Mutex as StdMutex, MutexGuard},
};
use tokio::sync::Mutex;

/// Age at which a pool's durations are read again, in milliseconds by the engine's clock.
const KNOWN_FOR: u64 = 600_000;
/// Median durations of steps, in seconds.
pub(crate) type Medians = BTreeMap<MachinePhase, u64>;

/// Usual durations of steps by pool, each with the time at which they were read.
#[derive(Debug, Default)]
pub(crate) struct Usual {
    /// Lock held for one map operation, never across an await.
    pools: StdMutex<BTreeMap<String, (Timestamp, Medians)>>,
    /// Lock held during a read of histories. Other callers do not wait for it.
    pub(crate) reading: Mutex<()>,
}

impl Usual {
    /// Usual duration of a step in a pool. `None`: unknown.
    pub(crate) fn seconds(&self, pool: &str, phase: MachinePhase) -> Option<u64> {
        PhaseTiming::of(phase).limits?;
        self.pools().get(pool)?.1.get(&phase).copied()
    }

    /// Whether the durations of a pool are unknown, or old. A clock that was set back makes them old, too.
    pub(crate) fn is_due(&self, pool: &str, now: Timestamp) -> bool {
        let pools = self.pools();
        let known = pools.get(pool);
        known.is_none_or(|(at, _)| now.0.abs_diff(at.0) >= KNOWN_FOR)
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<String, (Timestamp, Medians)>> {
        self.pools.locked()
    }

    /// Replaces what is known of a pool.
    pub(crate) fn put(&self, pool: String, at: Timestamp, medians: Medians) {
        self.pools().insert(pool, (at, medians));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_again_after_ten_minutes_and_are_for_phases_with_a_limit() {
        let usual = Usual::default();
        let at = Timestamp(1_000_000);
        assert!(usual.is_due("windows", at));
        let known = Medians::from([(MachinePhase::Probing, 120), (MachinePhase::Serving, 7)]);
        usual.put("windows".to_owned(), at, known);
        assert!(!usual.is_due("windows", Timestamp(at.0 + KNOWN_FOR - 1)));
        assert!(usual.is_due("windows", Timestamp(at.0 + KNOWN_FOR)));
        assert!(usual.is_due("windows", Timestamp(0)) && usual.is_due("other", at));
        assert_eq!(usual.seconds("windows", MachinePhase::Probing), Some(120));
        assert_eq!(usual.seconds("windows", MachinePhase::Serving), None);
        assert_eq!(usual.seconds("other", MachinePhase::Probing), None);
    }
}
