//! `dormer bench fleet --trouble`: dormer's own workflows in a cluster whose people and network leave nothing out, for
//! simulated days and by seed. The world's own record judges: at no moment are more serving nodes taken than may be.
//!
//! Nothing here speaks HTTP, because a thousand simulated weeks of lease renewals every ten seconds would take too long.
//! The runs are the real ones and pass the real fences. The cluster, the workers and the people are models (`world.rs`,
//! `worker.rs`, `people.rs`). One seed gives one simulation, to the last message.

mod engine;
mod event;
mod people;
mod worker;
mod world;

use super::Options;
use dormer_proto::pool::Strategy;
use event::Event;
use serde::Serialize;
use std::{
    fmt,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use world::{DAY, HOUR, MINUTE, Shape, World};

/// Parameters of a simulation.
#[derive(Debug, Clone, Copy)]
struct Plan {
    machines: u32,
    days: u64,
}

/// What one seed came to, or several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Simulated {
    seeds: u64,
    /// Things that happened: messages, tasks, kubelets, people.
    events: u64,
    /// Records that runs made.
    steps: u64,
    /// Leases that were granted.
    grants: u64,
    max_taken_observed: usize,
    #[serde(skip)]
    digest: u64,
}

impl Simulated {
    fn and(self, other: Self) -> Self {
        Self {
            seeds: self.seeds + other.seeds,
            events: self.events + other.events,
            steps: self.steps + other.steps,
            grants: self.grants + other.grants,
            max_taken_observed: self.max_taken_observed.max(other.max_taken_observed),
            digest: self.digest ^ other.digest,
        }
    }
}

/// A seed in which more nodes were taken than permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Violation {
    seed: u64,
    machines: u32,
    days: u64,
    at_ms: u64,
    taken: usize,
    limit: usize,
    nodes: Vec<String>,
}

impl std::error::Error for Violation {}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            machines,
            days,
            taken,
            limit,
            ..
        } = self;
        let minutes = self.at_ms / MINUTE;
        write!(
            f,
            "seed {seed}: {taken} nodes were taken at once after {} h {} min, and at most {limit} may be: {}; play it \
             again: dormer bench fleet --trouble --first-seed {seed} --seeds 1 --machines {machines} --days {days}",
            minutes / 60,
            minutes % 60,
            self.nodes.join(", "),
        )
    }
}

/// Strategy, sets and limit follow from the seed, so that a few successive seeds cover all of them. Each machine gets
/// trouble equally often, whatever the fleet's size. But a small fleet has quiet hours, while in one of 200 some 30
/// nodes are out of service at any time. There a limit below that would permit no upgrade, and one far above would
/// never be reached.
fn shape(seed: u64, plan: Plan) -> Shape {
    Shape {
        seed,
        machines: plan.machines,
        sets: if seed.is_multiple_of(2) { 2 } else { 1 },
        strategy: if (seed / 2).is_multiple_of(2) {
            Strategy::Recreate
        } else {
            Strategy::InPlace
        },
        limit: [1, 1, 2, 3][(seed / 4 % 4) as usize] * (plan.machines / 20).max(1)
            + if plan.machines > 40 {
                plan.machines / 8
            } else {
                0
            },
    }
}

/// Plays one seed.
fn simulate(seed: u64, plan: Plan) -> Result<Simulated, Violation> {
    let shape = shape(seed, plan);
    let limit = shape.limit as usize;
    let mut world = World::new(&shape);
    let start = world.now;
    world.later(HOUR, Event::Chaos);
    world.later(2 * HOUR, Event::Payload);
    world.later(HOUR, Event::Attend);
    let mut events = 0;
    while let Some(event) = world.next(start + plan.days * DAY) {
        world.happen(event);
        events += 1;
        let taken = world.record.max_taken_observed();
        if taken > limit {
            return Err(Violation {
                seed,
                machines: plan.machines,
                days: plan.days,
                at_ms: world.now - start,
                taken,
                limit,
                nodes: world.record.max_taken_nodes(),
            });
        }
    }
    Ok(Simulated {
        seeds: 1,
        events,
        steps: world.engine.steps,
        grants: world.engine.grants,
        max_taken_observed: world.record.max_taken_observed(),
        digest: world.engine.digest,
    })
}

/// Plays several seeds, on all processors; the first violation that is found ends it.
fn simulate_all(first: u64, seeds: u64, plan: Plan) -> Result<Simulated, Violation> {
    let next = AtomicU64::new(first);
    let all = Mutex::new(Ok(Simulated::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return;
            }
            let played = simulate(seed, plan);
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            *all = match (all.clone(), played) {
                (Ok(so_far), Ok(played)) => Ok(so_far.and(played)),
                (Ok(_), Err(violation)) | (Err(violation), _) => Err(violation),
            };
            if all.is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Plays, prints, and fails with the command that plays the failing seed again.
pub(super) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        options.machines >= 4 && options.days > 0 && options.seeds > 0,
        "--trouble needs at least 4 machines, a day and a seed"
    );
    let plan = Plan {
        machines: options.machines,
        days: options.days,
    };
    let played = simulate_all(options.first_seed, options.seeds, plan)?;
    if options.json {
        println!("{}", serde_json::to_string(&played)?);
    } else {
        println!(
            "{} seeds of {} machines for {} days: {} events, {} steps, {} leases granted; never more nodes were taken \
             at once than may be (at most {})",
            played.seeds,
            plan.machines,
            plan.days,
            played.events,
            played.steps,
            played.grants,
            played.max_taken_observed,
        );
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_testkit::long;

    const SMALL: Plan = Plan {
        machines: 8,
        days: 1,
    };
    /// Fleet of the issue that required this simulation.
    const TWO_DAYS: Plan = Plan {
        machines: 20,
        days: 2,
    };
    const A_WEEK: Plan = Plan {
        machines: 200,
        days: 7,
    };

    fn simulated(first: u64, seeds: u64, plan: Plan) -> Simulated {
        let played =
            simulate_all(first, seeds, plan).unwrap_or_else(|violation| panic!("{violation}"));
        println!("{played:?}");
        assert_eq!(played.seeds, seeds);
        // A simulation without upgrades proves nothing.
        assert!(played.grants >= 10 * seeds, "{played:?}");
        assert!(played.max_taken_observed > 0, "{played:?}");
        played
    }

    #[test]
    fn never_more_nodes_are_taken_than_may_be_whatever_people_do() {
        dormer_testkit::full!();
        simulated(1, 60, SMALL);
    }

    /// Seeds in which more nodes were taken than permitted, before the cause was fixed.
    #[test]
    fn what_was_found_once_stays_mended() {
        // A worker that slept tore a host down, after its lease had ended.
        simulated(911, 1, TWO_DAYS);
        // The judge held dormer to a host that had died, and that a person had labelled to be ignored.
        simulated(179, 1, TWO_DAYS);
    }

    #[test]
    fn one_seed_gives_the_same_simulation_twice() {
        let once = simulate(3, SMALL);
        assert_eq!(once, simulate(3, SMALL));
        assert_ne!(
            once.map(|it| it.digest),
            simulate(7, SMALL).map(|it| it.digest)
        );
    }

    #[test]
    fn a_violation_names_the_command_that_repeats_it() {
        let violation = Violation {
            seed: 7,
            machines: 20,
            days: 2,
            at_ms: 27 * HOUR + 5 * MINUTE,
            taken: 2,
            limit: 1,
            nodes: vec!["a".into(), "b".into()],
        };
        assert_eq!(
            violation.to_string(),
            "seed 7: 2 nodes were taken at once after 27 h 5 min, and at most 1 may be: a, b; play it again: dormer \
             bench fleet --trouble --first-seed 7 --seeds 1 --machines 20 --days 2"
        );
    }

    /// A hundred seeds of two days, or two of a week. An interrupted test continues at the first seed that has not
    /// passed.
    macro_rules! parts {
        ($($name:ident: $first:literal, $seeds:literal, $plan:ident;)*) => {
            $(#[test]
            fn $name() {
                let part = long!("trouble");
                let played = simulated($first, $seeds, $plan);
                part.passed(&[
                    ("seeds", played.seeds.to_string()),
                    ("events", played.events.to_string()),
                    ("steps", played.steps.to_string()),
                    ("leases", played.grants.to_string()),
                ]);
            })*
        };
    }

    parts! {
        two_days_from_seed_1: 1, 100, TWO_DAYS;
        two_days_from_seed_101: 101, 100, TWO_DAYS;
        two_days_from_seed_201: 201, 100, TWO_DAYS;
        two_days_from_seed_301: 301, 100, TWO_DAYS;
        two_days_from_seed_401: 401, 100, TWO_DAYS;
        two_days_from_seed_501: 501, 100, TWO_DAYS;
        two_days_from_seed_601: 601, 100, TWO_DAYS;
        two_days_from_seed_701: 701, 100, TWO_DAYS;
        two_days_from_seed_801: 801, 100, TWO_DAYS;
        two_days_from_seed_901: 901, 100, TWO_DAYS;
        a_week_from_seed_1: 1, 2, A_WEEK;
        a_week_from_seed_3: 3, 2, A_WEEK;
        a_week_from_seed_5: 5, 2, A_WEEK;
        a_week_from_seed_7: 7, 2, A_WEEK;
        a_week_from_seed_9: 9, 2, A_WEEK;
    }
}
