//! The scheduler: one seed decides who is polled, who dies, and what happens meanwhile; then the faults end.

use crate::{
    ports::Sim,
    toy::{self, Toy},
    world::{World, fault},
};
use dormer_engine::{lane::Lane, port::StoreError};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// Every kind of fault.
pub const FAULTS_ALL: u16 = 2_047;
/// Steps after the end of the faults within which everything must rest.
const CALM_STEPS_MAX: usize = 20_000;
/// Runs that a simulated lane keeps in memory: fewer than there are, so that some are shed.
const CACHED_MAX: usize = 3;

/// What a seed is run with.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Steps with faults.
    pub steps: usize,
    /// Which faults, one bit each.
    pub faults: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self { steps: 160, faults: FAULTS_ALL }
    }
}

/// What came of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The first law that did not hold.
    pub violation: Option<String>,
    /// Hash of every record, in the order of storing.
    pub digest: u64,
    /// The history, a record a line.
    pub history: Vec<String>,
}

type Busy = Pin<Box<dyn Future<Output = (Lane<Toy, Sim>, Result<(), StoreError>)>>>;

enum Engine {
    Idle(Lane<Toy, Sim>),
    Busy(Busy, bool),
    Gone,
}

struct Scheduler {
    sim: Sim,
    engines: Vec<Engine>,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Outcome {
    let exclusive = seed % 5 == 4;
    let sim = Sim::new(World::new(seed, options.faults, exclusive));
    let count = if exclusive { 1 } else { 1 + seed % 3 };
    let mut scheduler = Scheduler { engines: (0..count).map(|_| Engine::Gone).collect(), sim };
    for _ in 0..options.steps {
        scheduler.step();
        if scheduler.sim.world().violation.is_some() {
            break;
        }
    }
    scheduler.calm();
    let world = scheduler.sim.world();
    let line = |e: &crate::world::Entry| {
        format!("{}@{} at {}: {:?}", e.run, e.record.run.seq, e.record.at.0, e.record.events)
    };
    let history = world.entries.iter().map(line).collect();
    Outcome { violation: world.violation.clone(), digest: world.digest, history }
}

impl Scheduler {
    fn step(&mut self) {
        let (dice, engine) = {
            let mut world = self.sim.world();
            (world.chance.below(100), world.chance.index(self.engines.len()))
        };
        match dice {
            0..68 => self.advance(engine),
            68..80 => self.sim.world().work(),
            80..87 => self.sim.world().happen(),
            87..95 => self.sim.world().pass_time(),
            _ => self.trouble(engine),
        }
    }

    fn trouble(&mut self, engine: usize) {
        let mut world = self.sim.world();
        if world.strikes(fault::DIE, 50) {
            drop(world);
            self.die(engine);
        } else if world.strikes(fault::TAIL, 5) {
            let reuse = world.exclusive || world.chance.percent(50);
            world.rewind(false, reuse);
            drop(world);
            if reuse {
                self.die_all();
            }
        } else if world.strikes(fault::RESTORE, 5) {
            world.rewind(true, true);
            drop(world);
            self.die_all();
        }
    }

    fn die_all(&mut self) {
        for engine in 0..self.engines.len() {
            self.die(engine);
        }
    }

    /// The engine ends where it stands; what it held comes again.
    fn die(&mut self, engine: usize) {
        self.engines[engine] = Engine::Gone;
        self.release(engine);
    }

    /// What an engine held and did not settle comes again.
    fn release(&self, engine: usize) {
        for letter in &mut self.sim.world().letters {
            if letter.holder == Some(engine) {
                letter.holder = None;
            }
        }
    }

    /// One poll of one engine, or its next turn.
    fn advance(&mut self, at: usize) {
        self.sim.world().polled = at;
        self.engines[at] = match std::mem::replace(&mut self.engines[at], Engine::Gone) {
            Engine::Gone => Engine::Idle(Lane::new(Arc::new(self.sim.clone()), "sim", CACHED_MAX)),
            Engine::Idle(lane) => self.begin(lane),
            Engine::Busy(mut turn, revisits) => {
                match turn.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => Engine::Busy(turn, revisits),
                    Poll::Ready((lane, Ok(()))) => {
                        self.release(at);
                        if revisits {
                            self.sim.world().revisit = false;
                        }
                        Engine::Idle(lane)
                    }
                    Poll::Ready((lane, Err(StoreError::Unavailable(_)))) => Engine::Idle(lane),
                    Poll::Ready((_, Err(StoreError::Broken(_)))) => return self.die(at),
                }
            }
        };
    }

    fn begin(&self, mut lane: Lane<Toy, Sim>) -> Engine {
        let mut world = self.sim.world();
        if world.revisit {
            let runs = (0..toy::RUNS).map(toy::id).collect();
            return Engine::Busy(
                Box::pin(async move {
                    let result = lane.revisit(runs).await;
                    (lane, result)
                }),
                true,
            );
        }
        let max = 1 + world.chance.index(4);
        let batch = world.take(max);
        if batch.is_empty() {
            return Engine::Idle(lane);
        }
        Engine::Busy(
            Box::pin(async move {
                let result = lane.turn(batch).await;
                (lane, result)
            }),
            false,
        )
    }

    fn idle(&self) -> bool {
        self.engines.iter().all(|engine| !matches!(engine, Engine::Busy(..)))
    }

    /// The faults end: everything must come to rest.
    fn calm(&mut self) {
        self.sim.world().faults = 0;
        let mut again = true;
        for step in 0..CALM_STEPS_MAX {
            let now = self.sim.world().now;
            if self.sim.world().violation.is_some() {
                return;
            }
            let ripe = self.sim.world().letters.iter().any(|l| l.after <= now);
            if ripe || !self.idle() || self.sim.world().revisit {
                self.advance(step % self.engines.len());
                continue;
            }
            let mut world = self.sim.world();
            if !world.orders.is_empty() {
                world.work();
                continue;
            }
            match world.next_moment() {
                Some(moment) => {
                    world.now = world.now.max(moment);
                    world.sweep();
                }
                // The watcher repeats what it knows once a minute (design.md §2).
                None if std::mem::take(&mut again) => world.repeat(),
                None => return world.check_rest(),
            }
        }
        self.sim.world().check_rest();
        self.sim.world().violated(format!("no rest within {CALM_STEPS_MAX} steps"));
    }
}

/// A failing seed as a text: the law, the options that still show it, and the shortest history found.
#[must_use]
pub fn report(seed: u64, options: Options) -> Option<String> {
    run(seed, options).violation?;
    let mut least = options;
    for bit in 0..11 {
        let fewer = Options { faults: least.faults & !(1 << bit), ..least };
        if run(seed, fewer).violation.is_some() {
            least = fewer;
        }
    }
    let shorter = (1..least.steps).map(|steps| Options { steps, ..least });
    let least = shorter.into_iter().find(|o| run(seed, *o).violation.is_some()).unwrap_or(least);
    let outcome = run(seed, least);
    let law = outcome.violation.unwrap_or_default();
    Some(format!("seed {seed}, {least:?}: {law}\n{}", outcome.history.join("\n")))
}
