//! Retry policy: exponential backoff with a jitter that is a function of task and attempt.

use dormer_proto::id::{Attempt, TaskId, hash64};
use serde::{Deserialize, Serialize};

/// Number of attempts, delays and limits of a task. All times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Most attempts, at least 1.
    pub attempts_max: u64,
    /// Delay before the second attempt; each later one doubles.
    pub first_ms: u64,
    /// Longest delay.
    pub delay_ms_max: u64,
    /// Limit of one attempt, from its start by a worker. The worker enforces it.
    pub attempt_ms_max: u64,
    /// Extra time for an order in the queue and its answer in transit, beyond the attempt's own limit, before the
    /// engine gives up the attempt. It is generous, because the queue redelivers an order whose worker died.
    pub queue_ms_max: u64,
    /// Limit over all attempts, from the first order.
    pub overall_ms_max: u64,
}

impl RetryPolicy {
    /// Policy for short work on a reliable dependency: 6 attempts within 10 minutes.
    pub const PROMPT: Self = Self {
        attempts_max: 6,
        first_ms: 500,
        delay_ms_max: 30_000,
        attempt_ms_max: 60_000,
        queue_ms_max: 300_000,
        overall_ms_max: 600_000,
    };

    /// Policy for work that external causes may delay for long: 60 attempts within 2 hours.
    pub const PATIENT: Self = Self {
        attempts_max: 60,
        first_ms: 1_000,
        delay_ms_max: 120_000,
        attempt_ms_max: 1_800_000,
        queue_ms_max: 3_600_000,
        overall_ms_max: 7_200_000,
    };

    /// Delay after attempt `attempt` of `task` failed: exponential, minus a jitter of up to half, which replay
    /// reproduces exactly.
    #[must_use]
    pub fn delay_ms(&self, task: &TaskId, attempt: Attempt) -> u64 {
        let doublings = attempt.0.saturating_sub(1).min(32) as u32;
        let full = self
            .first_ms
            .saturating_mul(1 << doublings)
            .min(self.delay_ms_max);
        let noise = hash64(format!("{task}#{attempt}").as_bytes());
        let jitter = u128::from(full / 2) * u128::from(noise % 1_000) / 1_000;
        full - u64::try_from(jitter).unwrap_or(full / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::id::{RunId, Seq};

    #[test]
    fn delays_grow_to_the_cap_and_repeat_exactly() {
        let task = TaskId {
            run: RunId::new("m", "x").unwrap(),
            seq: Seq(1),
            ordinal: 0,
        };
        let policy = RetryPolicy {
            first_ms: 100,
            delay_ms_max: 5_000,
            ..RetryPolicy::PROMPT
        };
        for attempt in 1..60 {
            let full = (100u64 << (attempt - 1).min(10)).min(5_000);
            let delay = policy.delay_ms(&task, Attempt(attempt));
            assert!(
                delay <= full && delay >= full / 2,
                "{attempt}: {delay} of {full}"
            );
            assert_eq!(delay, policy.delay_ms(&task, Attempt(attempt)));
        }
        let other = TaskId {
            ordinal: 1,
            ..task.clone()
        };
        assert_ne!(
            policy.delay_ms(&task, Attempt(9)),
            policy.delay_ms(&other, Attempt(9))
        );
    }

    #[test]
    fn limits_do_not_overflow() {
        let task = TaskId {
            run: RunId::new("m", "x").unwrap(),
            seq: Seq(1),
            ordinal: 0,
        };
        let policy = RetryPolicy {
            first_ms: u64::MAX,
            delay_ms_max: u64::MAX,
            ..RetryPolicy::PROMPT
        };
        for attempt in [1, 2, u64::MAX] {
            let delay = policy.delay_ms(&task, Attempt(attempt));
            assert!(delay >= u64::MAX / 2, "attempt {attempt}: {delay}");
        }
    }
}
