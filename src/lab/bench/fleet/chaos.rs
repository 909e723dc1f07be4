//! `dormer bench fleet --trouble`: dormer's own workflows in a cluster whose people and network leave nothing out, for
//! simulated days and by seed. The world's own record judges: at no moment are more serving nodes taken than may be.
//!
//! Nothing here speaks HTTP, because a thousand simulated weeks of lease renewals every ten seconds would take too long.
//! The runs are the real ones and pass the real fences. The cluster, the workers and the people are models (`world.rs`,
//! `worker.rs`, `people.rs`). One seed gives one simulation, to the last message.

mod engine;
mod event;
mod people;
mod wmco;
mod wmco_steps;
mod worker;
mod world;

use super::Options;
use dormer_proto::{lock::Locked as _, pool::Strategy};
use event::{WmcoStep, WorldEvent};
use serde::Serialize;
use std::{
    fmt,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use world::{Beside, DAY, HOUR, MINUTE, Shape, World};

/// Parameters of a simulation.
#[derive(Debug, Clone, Copy)]
struct ChaosPlan {
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
    /// How often WMCO came.
    wmco: u64,
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
            wmco: self.wmco + other.wmco,
            digest: self.digest ^ other.digest,
        }
    }
}

/// A seed in which dormer broke a law.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Violation {
    seed: u64,
    machines: u32,
    days: u64,
    at_ms: u64,
    wrong: Wrong,
}

/// A broken law.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wrong {
    /// More nodes were taken at once than permitted.
    Taken {
        nodes: Vec<String>,
        /// Most that were permitted.
        limit: usize,
    },
    /// An order went to a host while WMCO ran.
    BesideWmco {
        /// Task and run.
        order: String,
    },
}

impl std::error::Error for Violation {}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { nodes, limit } => {
                let taken = nodes.len();
                let names = nodes.join(", ");
                write!(
                    f,
                    "{taken} nodes were taken at once, and at most {limit} may be: {names}"
                )
            }
            Self::BesideWmco { order } => {
                write!(f, "an order went to a host while WMCO ran: {order}")
            }
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            machines,
            days,
            wrong,
            ..
        } = self;
        let minutes = self.at_ms / MINUTE;
        write!(
            f,
            "seed {seed}, after {} h {} min: {wrong}; play it again: dormer bench fleet --trouble --first-seed {seed} \
             --seeds 1 --machines {machines} --days {days}",
            minutes / 60,
            minutes % 60,
        )
    }
}

/// Strategy, sets, limit and WMCO follow from the seed, so that a few successive seeds cover all of them. Each machine gets
/// trouble equally often, whatever the fleet's size. But a small fleet has quiet hours, while in one of 200 some 30
/// nodes are out of service at any time. There a limit below that would permit no upgrade, and one far above would
/// never be reached.
fn shape(seed: u64, plan: ChaosPlan) -> Shape {
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
        wmco: match seed % 3 {
            0 => Beside::Wmco,
            _ => Beside::Nothing,
        },
    }
}

/// Plays one seed.
fn simulate(seed: u64, plan: ChaosPlan) -> Result<Simulated, Violation> {
    simulate_shape(&shape(seed, plan), plan)
}

fn simulate_shape(shape: &Shape, plan: ChaosPlan) -> Result<Simulated, Violation> {
    let limit = shape.limit as usize;
    let mut world = World::new(shape);
    let start = world.now;
    world.later(HOUR, WorldEvent::Chaos);
    world.later(2 * HOUR, WorldEvent::Payload);
    world.later(HOUR, WorldEvent::Attend);
    if shape.wmco != Beside::Nothing {
        world.later(3 * HOUR, WorldEvent::Wmco(WmcoStep::Comes));
    }
    let mut events = 0;
    while let Some(event) = world.next(start + plan.days * DAY) {
        world.happen(event);
        events += 1;
        if let Some(wrong) = wrong(&world, limit) {
            return Err(Violation {
                seed: shape.seed,
                machines: plan.machines,
                days: plan.days,
                at_ms: world.now - start,
                wrong,
            });
        }
    }
    Ok(Simulated {
        seeds: 1,
        events,
        steps: world.engine.steps,
        grants: world.engine.grants,
        max_taken_observed: world.record.max_taken_observed(),
        wmco: world.wmco.came,
        digest: world.engine.digest,
    })
}

/// Law that is broken by now.
fn wrong(world: &World, limit: usize) -> Option<Wrong> {
    if world.record.max_taken_observed() > limit {
        let nodes = world.record.max_taken_nodes();
        return Some(Wrong::Taken { nodes, limit });
    }
    let order = world.wmco.disturbed.clone()?;
    Some(Wrong::BesideWmco { order })
}

/// Plays several seeds, on all processors; the first violation that is found ends it.
fn simulate_all(first: u64, seeds: u64, plan: ChaosPlan) -> Result<Simulated, Violation> {
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
            let mut all = all.locked();
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
    let plan = ChaosPlan {
        machines: options.machines,
        days: options.days,
    };
    let played = simulate_all(options.first_seed, options.seeds, plan)?;
    if options.json {
        println!("{}", serde_json::to_string(&played)?);
    } else {
        println!(
            "{} seeds of {} machines for {} days: {} events, {} steps, {} leases granted, WMCO came {} times; never \
             more nodes were taken at once than may be (at most {}), and no host was touched while WMCO ran",
            played.seeds,
            plan.machines,
            plan.days,
            played.events,
            played.steps,
            played.grants,
            played.wmco,
            played.max_taken_observed,
        );
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_testkit::long;

    const SMALL: ChaosPlan = ChaosPlan {
        machines: 8,
        days: 1,
    };
    /// Fleet of the issue that required this simulation.
    const TWO_DAYS: ChaosPlan = ChaosPlan {
        machines: 20,
        days: 2,
    };
    const A_WEEK: ChaosPlan = ChaosPlan {
        machines: 200,
        days: 7,
    };

    fn simulated(first: u64, seeds: u64, plan: ChaosPlan) -> Simulated {
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
        let played = simulated(1, 60, SMALL);
        assert!(played.wmco >= 20, "{played:?}");
    }

    /// The law about WMCO can fail: it does where no run gets a fact about it.
    #[test]
    fn hosts_are_touched_beside_wmco_where_no_run_knows_of_it() {
        let unseen = Shape {
            wmco: Beside::UnseenWmco,
            ..shape(3, SMALL)
        };
        let violation = simulate_shape(&unseen, SMALL).expect_err("the law cannot fail");
        let beside = matches!(violation.wrong, Wrong::BesideWmco { .. });
        assert!(beside, "{violation}");
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
            wrong: Wrong::Taken {
                nodes: vec!["a".into(), "b".into()],
                limit: 1,
            },
        };
        assert_eq!(
            violation.to_string(),
            "seed 7, after 27 h 5 min: 2 nodes were taken at once, and at most 1 may be: a, b; play it again: dormer \
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
