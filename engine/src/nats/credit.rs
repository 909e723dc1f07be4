//! Credit: how many messages an engine may have asked for or hold at one time.
//!
//! An engine pulls only what its shards can begin soon. A message that waits longer lies under its claim for nothing,
//! and its repeats cost reads of the store's leader, which make a slow store slower. So the partitions of each history
//! stream have a budget, and so each of four shards. A request for a message takes credit from it, the message's
//! acknowledgement gives it back. The budget's window follows the store: it shrinks by half when messages are held for
//! long, and grows while they are not. A history stream without a leader uses up its own budget only.
//!
//! Bytes cost credit as well: one for each [`UNIT`] of a message.

use dormer_proto::{
    lock::Locked as _,
    subject::{HISTORY_STREAMS, PARTITIONS},
};
use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};
use tokio::{sync::Semaphore, time::Instant};

/// Largest window of a budget: two turns of a shard.
const WINDOW_MAX: usize = 1_024;
/// Smallest window, and the first one: every partition has a request open, and most of the credit is left for those with
/// messages.
const WINDOW_MIN: usize = 64;
/// Time from a message's arrival to its acknowledgement above which the window shrinks: a quarter of the claim.
const SLOW: Duration = Duration::from_millis(2_500);
/// The same, below which it grows.
const FAST: Duration = Duration::from_millis(1_000);
/// Bytes for which a message costs one more.
const UNIT: usize = 16 << 10;

/// Budgets of the partitions.
const BUDGETS: u64 = HISTORY_STREAMS;

/// Most messages that an engine holds.
pub(super) const HELD_MAX: usize = WINDOW_MAX * (BUDGETS as usize + 1);

/// Which budget a message takes credit from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreditPool {
    /// Messages of a partition.
    Partition(u64),
    /// Due timers, and messages of the inbox of earlier builds. Both come for all partitions together.
    Shared,
}

impl CreditPool {
    fn index(self) -> usize {
        let index = match self {
            // The history stream of a partition's runs.
            Self::Partition(partition) => partition % BUDGETS,
            Self::Shared => BUDGETS,
        };
        usize::try_from(index).unwrap_or(0)
    }
}

/// Credit of an engine.
pub(super) struct Credit(Vec<Budget>);

struct Budget {
    free: Semaphore,
    window: Mutex<Window>,
}

/// Window of a budget. Lock held for some arithmetic, never across an await.
struct Window {
    size: usize,
    /// Credit that is withheld when it comes back: the window has shrunk, or a message cost more than was free.
    owed: usize,
    shrunk: Option<Instant>,
}

impl Window {
    /// What of `credit` becomes free.
    fn free(&mut self, credit: usize) -> usize {
        let kept = self.owed.min(credit);
        self.owed -= kept;
        credit - kept
    }

    /// Follows the time for which a message was held. Returns what the window grew by.
    fn follow(&mut self, held: Duration, now: Instant) -> usize {
        let soon = |at: Instant| now.duration_since(at) < SLOW;
        if held > SLOW && !self.shrunk.is_some_and(soon) {
            let smaller = (self.size / 2).max(WINDOW_MIN);
            self.owed += self.size - smaller;
            self.size = smaller;
            self.shrunk = Some(now);
        }
        let grown = usize::from(held < FAST && self.size < WINDOW_MAX);
        self.size += grown;
        grown
    }
}

impl Default for Credit {
    fn default() -> Self {
        let budget = || Budget {
            free: Semaphore::new(WINDOW_MIN),
            window: Mutex::new(Window {
                size: WINDOW_MIN,
                owed: 0,
                shrunk: None,
            }),
        };
        Self((0..=BUDGETS).map(|_| budget()).collect())
    }
}

impl Credit {
    fn budget(&self, pool: CreditPool) -> (&Semaphore, MutexGuard<'_, Window>) {
        let Budget { free, window } = &self.0[pool.index()];
        (free, window.locked())
    }

    /// Messages of one request, if it may ask for at most `most` with the largest window.
    pub(super) fn portion(&self, pool: CreditPool, most: usize) -> usize {
        let (_, window) = self.budget(pool);
        (window.size * most / WINDOW_MAX).clamp(1, most.max(1))
    }

    /// Takes credit for one request, and waits until there is some.
    pub(super) async fn ask(&self, pool: CreditPool, most: usize) -> usize {
        let portion = self.portion(pool, most);
        let wanted = u32::try_from(portion).unwrap_or(1);
        match self.0[pool.index()].free.acquire_many(wanted).await {
            Ok(permits) => permits.forget(),
            Err(_) => std::future::pending().await,
        }
        portion
    }

    /// Whether no credit is left.
    pub(super) fn is_used_up(&self, pool: CreditPool) -> bool {
        self.0[pool.index()].free.available_permits() == 0
    }

    /// A message of this size came, for which one was taken. Returns what it costs in all.
    pub(super) fn came(&self, pool: CreditPool, bytes: usize) -> usize {
        let more = bytes / UNIT;
        if more > 0 {
            let (free, mut window) = self.budget(pool);
            window.owed += more - free.forget_permits(more);
        }
        1 + more
    }

    /// Takes credit for one message, also if there is none.
    pub(super) fn owe(&self, pool: CreditPool) {
        let (free, mut window) = self.budget(pool);
        window.owed += 1 - free.forget_permits(1);
    }

    /// Gives credit back that brought no message.
    pub(super) fn give_back(&self, pool: CreditPool, credit: usize) {
        let (free, mut window) = self.budget(pool);
        free.add_permits(window.free(credit));
    }

    /// Gives the credit of a message back that was held for this time.
    pub(super) fn acknowledged(&self, pool: CreditPool, cost: usize, held: Duration, now: Instant) {
        let (free, mut window) = self.budget(pool);
        let grown = window.follow(held, now);
        free.add_permits(window.free(cost + grown));
    }
}

/// Partitions ask each on its own, so their budget must have credit for all of them.
const _: () = assert!(PARTITIONS / BUDGETS * 2 < WINDOW_MIN as u64);

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const POOL: CreditPool = CreditPool::Partition(0);
    const OTHER: CreditPool = CreditPool::Partition(1);

    /// Takes all credit of a budget, in requests for at most `most`.
    fn take_all(credit: &Credit, pool: CreditPool, most: usize) -> usize {
        let mut taken = 0;
        while let Some(portion) = credit.ask(pool, most).now_or_never() {
            taken += portion;
        }
        taken
    }

    #[test]
    fn a_budget_is_its_own_and_no_more_until_messages_are_acknowledged() {
        let credit = Credit::default();
        assert_eq!(take_all(&credit, POOL, 16), WINDOW_MIN);
        assert!(credit.is_used_up(POOL) && !credit.is_used_up(OTHER));
        let held = (FAST + SLOW) / 2;
        credit.acknowledged(POOL, 1, held, Instant::now());
        assert_eq!(take_all(&credit, POOL, 1), 1, "neither fast nor slow");
        assert_eq!(take_all(&credit, OTHER, 16), WINDOW_MIN);
    }

    /// Messages that are acknowledged at once.
    fn fast(credit: &Credit, count: usize) {
        for _ in 0..count {
            assert!(credit.ask(POOL, 1).now_or_never().is_some());
            credit.acknowledged(POOL, 1, Duration::ZERO, Instant::now());
        }
    }

    #[test]
    fn the_window_grows_while_the_store_is_fast_and_shrinks_to_a_rest_while_it_is_slow() {
        let credit = Credit::default();
        fast(&credit, WINDOW_MAX * 2);
        assert_eq!(take_all(&credit, POOL, 16), WINDOW_MAX);
        let now = Instant::now();
        for at in 0..u32::try_from(WINDOW_MAX).unwrap() {
            credit.acknowledged(POOL, 1, SLOW * 2, now + SLOW / 100 * at);
        }
        assert_eq!(take_all(&credit, POOL, 16), WINDOW_MIN);
    }

    #[test]
    fn one_slow_turn_halves_the_window_once() {
        let credit = Credit::default();
        fast(&credit, WINDOW_MIN * 3);
        let taken = take_all(&credit, POOL, 1);
        assert_eq!(taken, WINDOW_MIN * 4);
        for _ in 0..taken {
            credit.acknowledged(POOL, 1, SLOW * 2, Instant::now());
        }
        assert_eq!(take_all(&credit, POOL, 1), WINDOW_MIN * 2);
    }

    #[test]
    fn large_messages_cost_by_their_bytes_also_when_no_credit_is_left() {
        let credit = Credit::default();
        assert_eq!(credit.ask(POOL, 1).now_or_never(), Some(1));
        let cost = credit.came(POOL, 40 * UNIT);
        assert_eq!(cost, 41);
        assert_eq!(take_all(&credit, POOL, 1), WINDOW_MIN - cost);
        let more = credit.came(POOL, 20 * UNIT);
        let held = (FAST + SLOW) / 2;
        credit.acknowledged(POOL, cost, held, Instant::now());
        assert_eq!(take_all(&credit, POOL, 1), cost + 1 - more);
        credit.give_back(POOL, 3);
        assert_eq!(take_all(&credit, POOL, 1), 3);
    }
}
