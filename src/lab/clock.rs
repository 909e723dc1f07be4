//! Clock of a simulated world: a multiple of tokio's clock, paused or not.

use dormer_engine::port::{Clock, SystemClock};
use dormer_proto::id::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// Time that passes `factor` times as fast as tokio's clock. All of dormer's own waits (retries, soak, deadlines)
/// follow it, so that they stay in proportion to the world's latencies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacedClock {
    base: Timestamp,
    start: Instant,
    factor: f64,
}

impl PacedClock {
    /// Clock that starts at the system's present time.
    pub(crate) fn times_faster(factor: f64) -> Self {
        Self {
            base: SystemClock.now(),
            start: Instant::now(),
            factor,
        }
    }
}

impl Clock for PacedClock {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "milliseconds of a demonstration; the cast saturates"
    )]
    fn now(&self) -> Timestamp {
        self.base
            .plus_ms((self.start.elapsed().as_secs_f64() * self.factor * 1_000.0) as u64)
    }

    fn wait(&self, ms: u64) -> Duration {
        Duration::from_millis(ms).div_f64(self.factor)
    }
}
