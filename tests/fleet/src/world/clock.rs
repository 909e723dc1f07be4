//! The world's time: what the clock on the wall says, and how fast everything happens.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The world's clock: a base time plus what tokio's clock has run since. On tokio's paused clock
/// it stands still with it, so object timestamps keep their order and their distance.
#[derive(Debug, Clone, Copy)]
pub struct WorldClock {
    base: Timestamp,
    start: Instant,
}

impl WorldClock {
    /// A clock that says `base` now.
    pub fn starting_at(base: Timestamp) -> Self {
        Self {
            base,
            start: Instant::now(),
        }
    }

    /// A clock that agrees with the system's now.
    pub fn system() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// What time it is in the world.
    pub fn now(&self) -> Timestamp {
        let run = SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::MAX);
        self.base.checked_add(run).unwrap_or(Timestamp::MAX)
    }

    /// How long the world has been running, on tokio's clock.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The time as Kubernetes' `metav1.Time` has it: whole seconds, UTC.
    pub fn stamp(&self) -> String {
        stamp(self.now())
    }

    /// The time as Kubernetes' `metav1.MicroTime` has it.
    pub fn stamp_micro(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    }
}

/// A time as Kubernetes' `metav1.Time` has it: whole seconds, UTC.
pub fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// How fast the world runs. Every latency in the fleet goes through it, so a world that takes ten
/// minutes runs in seconds and the latencies keep their proportions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Seconds of tokio's clock per second of the world; 1.0 is life-size, 0.01 a hundred times
    /// as fast.
    scale: f64,
}

impl Pace {
    /// Life-size: what the bench uses, on the paused clock.
    pub const LIFE: Pace = Pace { scale: 1.0 };

    /// A pace at which one second of the world takes `scale` seconds. Not positive, or not a
    /// number, counts as life-size.
    pub fn of(scale: f64) -> Self {
        if scale.is_finite() && scale > 0.0 {
            Self { scale }
        } else {
            Self::LIFE
        }
    }

    /// A pace `factor` times as fast as life.
    pub fn times_faster(factor: f64) -> Self {
        Self::of(1.0 / factor)
    }

    /// Seconds of tokio's clock per second of the world.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// How long a duration of the world takes on tokio's clock.
    pub fn real(&self, simulated: Duration) -> Duration {
        simulated.mul_f64(self.scale)
    }

    /// What a duration on tokio's clock means in the world.
    pub fn simulated(&self, real: Duration) -> Duration {
        real.div_f64(self.scale)
    }

    /// Waits for a duration of the world.
    pub async fn sleep(&self, simulated: Duration) {
        tokio::time::sleep(self.real(simulated)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pace_keeps_proportions() {
        let start = Instant::now();
        Pace::times_faster(100.0)
            .sleep(Duration::from_secs(100))
            .await;
        assert_eq!(start.elapsed(), Duration::from_secs(1));
        assert_eq!(Pace::of(f64::NAN), Pace::LIFE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_tokio() {
        let clock = WorldClock::starting_at("2026-11-21T01:00:00Z".parse().expect("a time"));
        tokio::time::advance(Duration::from_millis(61_500)).await;
        assert_eq!(clock.stamp(), "2026-11-21T01:01:01Z");
        assert_eq!(clock.stamp_micro(), "2026-11-21T01:01:01.500000Z");
    }
}
