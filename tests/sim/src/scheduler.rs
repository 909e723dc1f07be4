//! The scheduler: one seed decides who is polled, who dies, and what happens meanwhile; then the faults end.

use crate::{
    build::{Build, ShardTurn, SimShard},
    ports::Sim,
    toy,
    world::{InTransit, World, fault},
};
use dormer_engine::{
    engine::sweep,
    port::{Delivery, StoreError},
};
use dormer_engine_core::limit::{self, CountLimit};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// Every kind of fault.
pub const FAULTS_ALL: u32 = (1 << FAULTS) - 1;
/// Records of single runs are deleted, and engines end or sleep.
pub const FAULTS_OF_LOST_RECORDS: u32 = fault::RECORD_LOST | fault::DIE;
/// How many kinds there are.
const FAULTS: u32 = 21;
/// Steps after the end of the faults within which everything must rest.
const CALM_STEPS_MAX: usize = 20_000;
/// Runs that a simulated engine keeps in memory: fewer than there are, so that some are shed.
const CACHED_FEW: usize = 3;
/// With so many in memory none is shed.
const CACHED_ALL: usize = toy::RUNS as usize;
/// Lanes of one engine are fewer.
const SHARDS_MAX: usize = 8;
/// How long past due a deadline is before the sweep rings for it, in milliseconds.
const GRACE_MS: u64 = 2_000;

/// Pause before a pass that ended early begins again, in milliseconds.
const PASS_AGAIN_MS: u64 = 1_000;
/// Interval at which a worker repeats a report without a receipt, in milliseconds.
const REPORT_AGAIN_MS: u64 = 3_000;
/// A minute, within which the sweep finds what is overdue.
const SWEPT_WITHIN_MS: u64 = 60_000;

/// What a seed is run with.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Steps with faults.
    pub steps: usize,
    /// Which faults, one bit each.
    pub faults: u32,
    /// Limits of counts that are lowered.
    pub limits: Limits,
}

/// Limits of counts; those that are none are as in production, where no simulated run reaches them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub outbox: Option<usize>,
    pub facts: Option<usize>,
    pub events: Option<usize>,
}

impl Limits {
    fn lower(self) {
        limit::lower(CountLimit::Outbox, self.outbox);
        limit::lower(CountLimit::Facts, self.facts);
        limit::lower(CountLimit::Events, self.events);
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            steps: 160,
            faults: FAULTS_ALL,
            limits: Limits::default(),
        }
    }
}

/// What came of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimOutcome {
    /// The first law that did not hold.
    pub violation: Option<String>,
    /// Hash of every record, in the order of storing.
    pub digest: u64,
    /// The history, a record a line.
    pub history: Vec<String>,
    /// Orders that a worker took after their tasks had ended: the engine stopped before it took them away, or could not.
    pub left_over: u64,
    /// How often the limits of outbox, facts and events were reached.
    pub reached: [u64; 3],
}

/// What a shard is at.
enum At {
    Idle(SimShard),
    Busy(ShardTurn, bool),
    Gone,
}

/// One shard of an engine, with the messages that were sorted to it.
struct ShardSlot {
    at: At,
    waiting: Vec<Delivery>,
}

/// One engine: its shards, and what goes over all runs beside them.
struct Engine {
    build: Build,
    shards: Vec<ShardSlot>,
    passes: [Option<Pin<Box<dyn Future<Output = ()>>>>; 2],
    /// Steps that it sleeps through.
    asleep: u64,
}

/// The place of the sweep's pass.
const SWEEP: usize = 0;
/// The place of the pass that carries out again what is outstanding.
const REVISIT: usize = 1;

struct Scheduler {
    sim: Sim,
    /// Runs that an engine keeps in memory.
    cached_max: usize,
    engines: Vec<Engine>,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> SimOutcome {
    options.limits.lower();
    let exclusive = seed % 5 == 4;
    let mixed = seed % 4 == 3;
    let sim = Sim::new(World::new(seed, options.faults, exclusive, mixed));
    let count = if exclusive { 1 } else { 1 + seed % 3 };
    let shards = 1 + (seed / 3) % 2;
    let slot = |_| ShardSlot {
        at: At::Gone,
        waiting: Vec::new(),
    };
    let engine = |n| Engine {
        build: if mixed && n % 2 == 0 {
            Build::Older
        } else {
            Build::Newer
        },
        shards: (0..shards).map(slot).collect(),
        passes: [None, None],
        asleep: 0,
    };
    let mut world = sim.world();
    // What an engine sheds it need not know.
    let roomy = world.chance.percent(50);
    world.forgets = !roomy;
    drop(world);
    let mut scheduler = Scheduler {
        cached_max: if roomy { 2 * CACHED_ALL } else { CACHED_FEW },
        engines: (0..count).map(engine).collect(),
        sim,
    };
    for _ in 0..options.steps {
        scheduler.step();
        if scheduler.sim.world().violation.is_some() {
            break;
        }
    }
    scheduler.calm();
    let world = scheduler.sim.world();
    let line = |e: &crate::world::RecordEntry| {
        format!(
            "{}@{} at {}: {:?}",
            e.run, e.record.run.seq, e.record.at.0, e.record.events
        )
    };
    let history = world.entries.iter().map(line).collect();
    let reached = [CountLimit::Outbox, CountLimit::Facts, CountLimit::Events];
    let reached = reached.map(limit::times_reached);
    Limits::default().lower();
    SimOutcome {
        violation: world.violation.clone(),
        digest: world.digest,
        history,
        left_over: world.left_over,
        reached,
    }
}

/// Who holds a message: an engine's shard.
fn holder(engine: usize, shard: usize) -> usize {
    engine * SHARDS_MAX + shard
}

impl Scheduler {
    fn step(&mut self) {
        let (dice, engine) = {
            let mut world = self.sim.world();
            (
                world.chance.below(100),
                world.chance.index(self.engines.len()),
            )
        };
        match dice {
            0..66 => self.advance(engine),
            66..68 => self.begin_sweep(engine),
            68..70 => self.begin_revisit(engine),
            70..80 => self.sim.world().work(),
            80..87 => self.sim.world().happen(),
            87..95 => self.sim.world().pass_time(),
            _ => self.trouble(engine),
        }
        let mut world = self.sim.world();
        world.answer_people();
        world.check_alarms();
    }

    fn trouble(&mut self, engine: usize) {
        let mut world = self.sim.world();
        if !world.exclusive && world.strikes(fault::RECORD_LOST, 4) {
            world.lose_last_record();
        } else if world.strikes(fault::DIE, 50) {
            drop(world);
            self.die(engine);
        } else if !world.exclusive && world.strikes(fault::DIE, 80) {
            drop(world);
            self.fall_asleep(engine);
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
        } else if world.strikes(fault::MONTH, 4) {
            world.pass_month();
        } else if !world.exclusive && world.strikes(fault::INBOX_LOST, 5) {
            world.lose_inbox();
        } else if !world.exclusive && world.strikes(fault::TASKS_LOST, 5) {
            world.orders.clear();
            world.revisit = world.chance.percent(50);
        } else if world.strikes(fault::SKEW, 15) {
            world.skew_clock(engine);
        } else if world.mixed && world.strikes(fault::BUILD, 60) {
            drop(world);
            // An upgrade, or a roll-back.
            self.become_build(engine, self.engines[engine].build.other());
        }
    }

    fn become_build(&mut self, engine: usize, build: Build) {
        self.die(engine);
        self.engines[engine].build = build;
    }

    fn die_all(&mut self) {
        for engine in 0..self.engines.len() {
            self.die(engine);
        }
    }

    /// The engine ends where it stands; what it held comes again.
    fn die(&mut self, engine: usize) {
        self.engines[engine].passes = [None, None];
        self.wake(engine);
        for shard in 0..self.engines[engine].shards.len() {
            self.engines[engine].shards[shard] = ShardSlot {
                at: At::Gone,
                waiting: Vec::new(),
            };
            self.release(holder(engine, shard));
        }
        let mut world = self.sim.world();
        for (_, by) in world.alarms.values_mut() {
            *by = by.filter(|by| *by != engine);
        }
        world.acknowledged.retain(|(by, _), _| *by != engine);
    }

    /// The engine stops where it stands, and continues later as if nothing had been: its claims lapse meanwhile.
    fn fall_asleep(&mut self, engine: usize) {
        self.engines[engine].asleep = self.sim.world().chance.below(60);
        self.sim.world().asleep.insert(engine);
        for shard in 0..self.engines[engine].shards.len() {
            self.release(holder(engine, shard));
        }
    }

    fn wake(&mut self, engine: usize) {
        self.engines[engine].asleep = 0;
        self.sim.world().asleep.remove(&engine);
    }

    /// What a shard held and did not acknowledge comes again.
    fn release(&self, holder: usize) {
        let held = |message: &InTransit| message.holder == Some(holder);
        self.sim.world().release(held);
    }

    fn begin_sweep(&mut self, engine: usize) {
        let sim = self.sim.of(engine);
        let pass = async move { drop(sweep(&sim, GRACE_MS).await) };
        self.engines[engine].passes[SWEEP].get_or_insert_with(|| Box::pin(pass));
    }

    /// As at an engine's start, and after the loss of a queue that can be rebuilt.
    fn begin_revisit(&mut self, engine: usize) {
        let Engine { build, passes, .. } = &mut self.engines[engine];
        passes[REVISIT].get_or_insert_with(|| build.pass(&self.sim.of(engine)));
    }

    /// One poll of an engine's passes, of those that are under way.
    fn pass_on(&mut self, engine: usize) {
        for pass in &mut self.engines[engine].passes {
            let Some(future) = pass else { continue };
            if future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready()
            {
                *pass = None;
            }
        }
    }

    /// One poll of one engine: of its passes, or of a shard.
    fn advance(&mut self, engine: usize) {
        if self.engines[engine].asleep > 0 {
            self.engines[engine].asleep -= 1;
            return;
        }
        let shard = {
            let mut world = self.sim.world();
            let passes = self.engines[engine].passes.iter().any(Option::is_some);
            if passes && world.chance.percent(30) {
                drop(world);
                return self.pass_on(engine);
            }
            world.chance.index(self.engines[engine].shards.len())
        };
        self.advance_shard(engine, shard);
        // What it was at when it fell asleep is done.
        let busy = |slot: &ShardSlot| matches!(slot.at, At::Busy(..));
        if !self.engines[engine].shards.iter().any(busy) {
            self.wake(engine);
        }
    }

    /// One poll of one shard, or its next turn.
    fn advance_shard(&mut self, engine: usize, shard: usize) {
        let was = std::mem::replace(&mut self.engines[engine].shards[shard].at, At::Gone);
        let now = match was {
            At::Gone => {
                let cached = self.cached_max / self.engines[engine].shards.len();
                let Engine { build, .. } = &self.engines[engine];
                At::Busy(build.begin(&self.sim.of(engine), cached), false)
            }
            At::Idle(idle) => self.begin(engine, shard, idle),
            At::Busy(mut turn, revisits) => {
                match turn.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => At::Busy(turn, revisits),
                    Poll::Ready((idle, Ok(()))) => {
                        self.turn_ended(engine, shard);
                        if revisits {
                            self.sim.world().revisit = false;
                        }
                        At::Idle(idle)
                    }
                    Poll::Ready((idle, Err(StoreError::Unavailable(_)))) => {
                        // Its claims lapse.
                        self.turn_ended(engine, shard);
                        if revisits {
                            // A pass begins again a little later.
                            let mut world = self.sim.world();
                            world.now = world.now.plus_ms(PASS_AGAIN_MS);
                        }
                        At::Idle(idle)
                    }
                    Poll::Ready((_, Err(StoreError::Broken(why)))) => {
                        let mut world = self.sim.world();
                        if !world.went_back() {
                            world.violated(format!("an engine ended on a sound store: {why}"));
                        }
                        drop(world);
                        return self.die(engine);
                    }
                }
            }
        };
        self.engines[engine].shards[shard].at = now;
    }

    /// A turn has ended: what it held and did not acknowledge comes again, but for what waits for the shard's next one.
    fn turn_ended(&self, engine: usize, shard: usize) {
        let waiting: Vec<u64> = self.engines[engine].shards[shard]
            .waiting
            .iter()
            .map(|message| message.token)
            .collect();
        let held = |message: &InTransit| {
            message.holder == Some(holder(engine, shard)) && !waiting.contains(&message.token)
        };
        self.sim.world().release(held);
    }

    fn begin(&mut self, engine: usize, at: usize, shard: SimShard) -> At {
        if self.sim.world().revisit {
            return At::Busy(shard.revisit((0..toy::RUNS).map(toy::id).collect()), true);
        }
        self.take_in(engine);
        let batch = std::mem::take(&mut self.engines[engine].shards[at].waiting);
        if batch.is_empty() {
            return At::Idle(shard);
        }
        At::Busy(shard.turn_deliveries(batch), false)
    }

    /// The intake: takes messages and sorts them to the shards that own their runs.
    fn take_in(&mut self, engine: usize) {
        let mut world = self.sim.world();
        let max = 1 + world.chance.index(4);
        for delivery in world.take(max) {
            let Engine { build, shards, .. } = &mut self.engines[engine];
            let shard = build.shard_of(delivery.clone(), shards.len());
            world.hold(delivery.token, holder(engine, shard));
            shards[shard].waiting.push(delivery);
        }
    }

    /// Nothing is under way.
    fn idle(&self) -> bool {
        let rests = |slot: &ShardSlot| !matches!(slot.at, At::Busy(..)) && slot.waiting.is_empty();
        self.engines.iter().all(|engine| {
            engine.passes.iter().all(Option::is_none) && engine.shards.iter().all(rests)
        })
    }

    /// The faults end: everything must come to rest. Where no alarm was lost, alarms alone find what is due. Elsewhere
    /// none rings any more: the sweep alone does.
    fn calm(&mut self) {
        {
            let mut world = self.sim.world();
            world.faults &= fault::PENDING;
            world.skew.clear();
            world.land();
        }
        for engine in 0..self.engines.len() {
            self.wake(engine);
            if self.engines[engine].build == Build::Older {
                self.become_build(engine, Build::Newer);
            }
        }
        let mut again = true;
        for step in 0..CALM_STEPS_MAX {
            let now = self.sim.world().now;
            if self.sim.world().violation.is_some() {
                return;
            }
            let engine = step % self.engines.len();
            let ripe = {
                let world = self.sim.world();
                world.messages.iter().any(|l| l.after <= now) && !world.delivers_no_more()
            };
            if ripe || !self.idle() || self.sim.world().revisit {
                self.pass_on(engine);
                let shards = self.engines[engine].shards.len();
                self.advance_shard(engine, step / self.engines.len() % shards);
                continue;
            }
            let mut world = self.sim.world();
            world.calm = true;
            // A person releases every run.
            if world.release_all() {
                world.revisit = true;
                continue;
            }
            if !world.orders.is_empty() && !world.delivers_no_more() {
                let waits = world.messages.iter().any(|message| message.after > now);
                world.work();
                if waits || !world.record_lost.is_empty() {
                    // The run may take no report before its own signals are receipted, or before its record counts as
                    // lost. Its worker repeats the report, and other messages come in the meantime.
                    world.now = world.now.plus_ms(REPORT_AGAIN_MS);
                }
                continue;
            }
            world.check_alarms();
            if world.punctual && world.deliver_due_alarms() {
                continue;
            }
            match if world.punctual {
                world.next_event()
            } else {
                world.next_moment()
            } {
                Some(moment) if world.punctual => world.now = moment,
                Some(moment) => {
                    world.now = world.now.max(moment).plus_ms(GRACE_MS);
                    drop(world);
                    self.begin_sweep(engine);
                }
                None if !world.orphaned.is_empty() => {
                    world.orphaned.clear();
                    world.now = world.now.plus_ms(SWEPT_WITHIN_MS);
                    drop(world);
                    self.begin_sweep(engine);
                }
                // The watcher repeats what it knows once a minute.
                None if std::mem::take(&mut again) => world.repeat_what_lives(),
                None => return world.check_rest(),
            }
        }
        self.sim.world().check_rest();
        self.sim
            .world()
            .violated(format!("no rest within {CALM_STEPS_MAX} steps"));
    }
}

/// A failing seed as a text: the law, the options that still show it, and the shortest history found.
#[must_use]
pub fn report(seed: u64, options: Options) -> Option<String> {
    run(seed, options).violation?;
    let mut least = options;
    for bit in 0..FAULTS {
        let fewer = Options {
            faults: least.faults & !(1 << bit),
            ..least
        };
        if run(seed, fewer).violation.is_some() {
            least = fewer;
        }
    }
    let shorter = (1..least.steps).map(|steps| Options { steps, ..least });
    let least = shorter
        .into_iter()
        .find(|o| run(seed, *o).violation.is_some())
        .unwrap_or(least);
    let outcome = run(seed, least);
    let law = outcome.violation.unwrap_or_default();
    Some(format!(
        "seed {seed}, {least:?}: {law}\n{}",
        outcome.history.join("\n")
    ))
}
