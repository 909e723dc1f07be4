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
    /// Its seconds per second of tokio's clock.
    rate: f64,
}

impl WorldClock {
    /// A clock that says `base` now.
    pub fn starting_at(base: Timestamp) -> Self {
        Self {
            base,
            start: Instant::now(),
            rate: 1.0,
        }
    }

    /// A clock that agrees with the system's now, and continues as fast: for programs outside of the world.
    pub fn system() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// A clock that agrees with the system's now, and from then on counts the seconds of a world of this pace. It is
    /// for worlds in which all that is dated follows this clock.
    pub fn of_pace(pace: Pace) -> Self {
        Self {
            rate: 1.0 / pace.scale(),
            ..Self::system()
        }
    }

    /// What time it is in the world.
    pub fn now(&self) -> Timestamp {
        self.after(self.elapsed().mul_f64(self.rate))
    }

    /// What time it would be if the clock were as fast as the system's. Hosts have this time, because dormer compares
    /// it with the system's: a few milliseconds on the way would be seconds of a fast world.
    pub fn system_now(&self) -> Timestamp {
        self.after(self.elapsed())
    }

    fn after(&self, lasted: Duration) -> Timestamp {
        let lasted = SignedDuration::try_from(lasted).unwrap_or(SignedDuration::MAX);
        self.base.checked_add(lasted).unwrap_or(Timestamp::MAX)
    }

    /// How long ago it said `then`, on tokio's clock.
    pub fn since(&self, then: Timestamp) -> Duration {
        let lasted = Duration::try_from(self.now().duration_since(then));
        lasted.unwrap_or_default().div_f64(self.rate)
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

    #[tokio::test(start_paused = true)]
    async fn a_clock_of_a_pace_counts_the_seconds_of_the_world() {
        let pace = Pace::times_faster(100.0);
        let clock = WorldClock::of_pace(pace);
        let began = clock.now();
        let of_system = clock.system_now();
        pace.sleep(Duration::from_secs(3_600)).await;
        let lasted = clock.now().duration_since(began).as_secs_f64();
        assert!((lasted - 3_600.0).abs() < 0.1, "{lasted}");
        let of_system = clock.system_now().duration_since(of_system).as_secs_f64();
        assert!((of_system - 36.0).abs() < 0.1, "{of_system}");
        let since = clock.since(began).as_secs_f64();
        assert!((since - 36.0).abs() < 0.1, "{since}");
    }
}
