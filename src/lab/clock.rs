//! Clock of dormer in a simulated world: the world's own.

use dormer_engine::port::Clock;
use dormer_fleet::World;
use dormer_fleet::world::{Pace, WorldClock};
use dormer_proto::id::Timestamp;
use std::time::Duration;

/// The clock of a world, by which dormer dates its records and waits. All of its own waits (retries, soak, deadlines)
/// follow it, so that they stay in proportion to the world's latencies, and every time that a person reads is of one
/// clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacedClock {
    world: WorldClock,
    pace: Pace,
}

impl PacedClock {
    /// Clock of a world that has a clock of its own, or runs at life's pace.
    pub(crate) fn of(world: &World) -> Self {
        Self {
            world: world.clock,
            pace: world.pace,
        }
    }
}

impl Clock for PacedClock {
    fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.world.now().as_millisecond()).unwrap_or_default())
    }

    fn wait(&self, ms: u64) -> Duration {
        self.pace.real(Duration::from_millis(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_fleet::world::WorldConfig;

    #[tokio::test(start_paused = true)]
    async fn dormer_and_the_cluster_have_one_clock_at_any_pace() {
        let config = WorldConfig {
            pace: Pace::times_faster(150.0),
            own_clock: true,
            ..WorldConfig::in_memory(0)
        };
        let world = World::start(config).await.expect("a world");
        let clock = PacedClock::of(&world);
        let began = clock.now();
        tokio::time::advance(clock.wait(3_600_000)).await;
        let lasted = clock.now().since_ms(began);
        assert!(lasted.abs_diff(3_600_000) < 1_000, "{lasted}");
        let cluster = u64::try_from(world.api.clock().now().as_millisecond());
        assert_eq!(cluster, Ok(clock.now().0));
    }
}
