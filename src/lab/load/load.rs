//! Load generators: as many runs as are asked for, each of which continues once its task is done; or facts at a fixed
//! rate.

use crate::{
    WorkerQueue,
    workflow::{GATHERED, GATHERING, Payload, STEPPING, STEPS},
};
use dormer_engine::{
    any::AnyPorts,
    port::{History, Inbox, Ports},
};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, RunId},
    message::{
        Inbound, InboxMessage, NoSignal, ObjectRef, Observation, Reporter, TaskOrder, TaskReport,
        Version,
    },
    subject::partition_of,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, Instant},
};

/// Messages of one publish of a flood.
const BATCH: usize = 1_024;
/// Pause before a refused batch is sent again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Load generator: executes the runs' tasks, and starts a new run for each that ends.
pub struct Load {
    ports: AnyPorts,
    queue: WorkerQueue,
    incarnation: Incarnation,
    begun: u64,
    reported: HashMap<RunId, (u8, Instant)>,
    steps: u64,
    messages: u64,
    latencies_us: Vec<u32>,
    watched: WatchedRuns,
    partitions: Partitions,
}

/// Partitions of the inbox, and how long each with a run in flight gave no order.
#[derive(Debug, Default)]
pub struct Partitions(BTreeMap<u64, Partition>);

/// One of them.
#[derive(Debug)]
struct Partition {
    /// Runs in flight.
    runs: usize,
    /// Its last order, or when its first run came.
    since: Instant,
    longest: Duration,
}

impl Partitions {
    /// A run of this partition begins.
    pub fn begins(&mut self, partition: u64, now: Instant) {
        let idle = Partition {
            runs: 0,
            since: now,
            longest: Duration::ZERO,
        };
        let partition = self.0.entry(partition).or_insert(idle);
        if partition.runs == 0 {
            partition.since = now;
        }
        partition.runs += 1;
    }

    /// An order of one of its runs came; `last`: the run ends with it.
    pub fn gave_an_order(&mut self, partition: u64, last: bool, now: Instant) {
        if let Some(it) = self.0.get_mut(&partition) {
            it.longest = it.longest.max(now.saturating_duration_since(it.since));
            it.since = now;
            it.runs -= usize::from(last);
        }
    }

    /// Forgets what was until now.
    pub fn forget(&mut self, now: Instant) {
        for it in self.0.values_mut() {
            (it.since, it.longest) = (now, Duration::ZERO);
        }
    }

    /// Longest time in which a partition with a run in flight gave no order.
    #[must_use]
    pub fn longest(&self, now: Instant) -> Duration {
        let of = |it: &Partition| match it.runs {
            0 => it.longest,
            _ => it.longest.max(now.saturating_duration_since(it.since)),
        };
        self.0.values().map(of).max().unwrap_or_default()
    }
}

/// Runs that were in flight at one moment, and how long each took from then until it went on.
#[derive(Debug, Default)]
pub struct WatchedRuns {
    since: Option<Instant>,
    left: HashSet<RunId>,
    /// Milliseconds until each run went on, in that order.
    pub gaps_ms: Vec<f64>,
}

impl WatchedRuns {
    fn went_on(&mut self, run: &RunId) {
        if let Some(since) = self.since
            && self.left.remove(run)
        {
            self.gaps_ms.push(since.elapsed().as_secs_f64() * 1_000.0);
        }
    }
}

impl Load {
    /// Load on the engine behind `ports`, whose orders come out of `queue`.
    pub fn new(ports: AnyPorts, queue: WorkerQueue) -> Self {
        let reported = HashMap::new();
        let latencies_us = Vec::new();
        let incarnation = ports.history().incarnation();
        Self {
            ports,
            queue,
            incarnation,
            begun: 0,
            reported,
            steps: 0,
            messages: 0,
            latencies_us,
            watched: WatchedRuns::default(),
            partitions: Partitions::default(),
        }
    }

    /// Partitions of the runs in flight.
    pub fn partitions(&mut self) -> &mut Partitions {
        &mut self.partitions
    }

    /// Watches every run that is in flight now.
    pub fn watch(&mut self) {
        self.watched = WatchedRuns {
            since: Some(Instant::now()),
            left: self.reported.keys().cloned().collect(),
            gaps_ms: Vec::new(),
        };
    }

    /// Executes tasks until every watched run has continued, at most until `end`. Returns the watched runs, and the
    /// number of those without progress.
    ///
    /// # Errors
    ///
    /// As [`Self::until`].
    pub async fn until_all_went_on(
        &mut self,
        end: Instant,
    ) -> anyhow::Result<(WatchedRuns, usize)> {
        while !self.watched.left.is_empty() && Instant::now() < end {
            self.turn().await?;
        }
        let watched = std::mem::take(&mut self.watched);
        let left = watched.left.len();
        Ok((watched, left))
    }

    /// Messages that this load has sent.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Discards the figures of the warm-up.
    pub fn forget_figures(&mut self) {
        self.steps = 0;
        self.latencies_us.clear();
    }

    /// Starts `count` runs.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn begin(&mut self, count: usize) -> anyhow::Result<()> {
        let mut messages = Vec::with_capacity(count);
        for _ in 0..count {
            self.begun += 1;
            let run = RunId::new(STEPPING, &self.begun.to_string())?;
            let fact = fact(run.key(), self.begun);
            self.reported.insert(run.clone(), (0, Instant::now()));
            self.partitions.begins(partition_of(&run), Instant::now());
            messages.push(message(self.incarnation, run, fact)?);
        }
        self.messages += messages.len() as u64;
        self.ports.inbox().put(messages).await?;
        Ok(())
    }

    /// Executes tasks until `end`.
    ///
    /// # Errors
    /// Errors of the store, and an engine that makes no progress.
    pub async fn until(&mut self, end: Instant) -> anyhow::Result<()> {
        while Instant::now() < end {
            self.turn().await?;
        }
        Ok(())
    }

    /// Executes the next tasks, at least one.
    async fn turn(&mut self) -> anyhow::Result<()> {
        let orders = self.queue.take().await?;
        let mut messages = Vec::with_capacity(orders.len());
        let mut ended = 0;
        for order in orders {
            let (order, _) = envelope::decode::<TaskOrder<Payload>>(&order, 1)?;
            ended += usize::from(self.done(&order.task.run));
            messages.push(report(self.incarnation, order)?);
        }
        self.messages += messages.len() as u64;
        // Repeats each report until it is receipted, as workers do.
        self.ports.inbox().put_unconfirmed(messages).await?;
        self.begin(ended).await
    }

    /// Handles an order, which proves that the step before it is durable. Returns whether the run's last step
    /// has begun.
    fn done(&mut self, run: &RunId) -> bool {
        let Some((step, since)) = self.reported.get_mut(run) else {
            return false;
        };
        self.steps += 1;
        self.watched.went_on(run);
        self.latencies_us
            .push(u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX));
        (*step, *since) = (*step + 1, Instant::now());
        let last = *step == STEPS;
        self.partitions
            .gave_an_order(partition_of(run), last, Instant::now());
        if last {
            self.reported.remove(run);
        }
        last
    }

    /// Steps since the figures were forgotten.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Time from a step's report to the next order, in microseconds, ascending.
    pub fn latencies_us(&mut self) -> &[u32] {
        self.latencies_us.sort_unstable();
        &self.latencies_us
    }
}

fn fact(uid: &str, resource: u64) -> Inbound<u64, Payload, NoSignal> {
    Inbound::Observed(Observation {
        object: ObjectRef {
            cluster: String::new(),
            kind: "Bench".into(),
            uid: uid.into(),
        },
        version: Version {
            epoch: Epoch(1),
            resource,
        },
        fact: Some(resource),
        may_start: true,
    })
}

fn message(
    incarnation: Incarnation,
    run: RunId,
    body: Inbound<u64, Payload, NoSignal>,
) -> anyhow::Result<(RunId, Vec<u8>)> {
    let message = InboxMessage {
        run: run.clone(),
        incarnation: Some(incarnation),
        body,
    };
    Ok((run, envelope::encode(&message, 1)?.0))
}

fn report(incarnation: Incarnation, order: TaskOrder<Payload>) -> anyhow::Result<(RunId, Vec<u8>)> {
    let TaskOrder {
        task,
        attempt,
        issued,
        ..
    } = order;
    let run = task.run.clone();
    let report = TaskReport {
        task,
        attempt,
        issued,
        worker: "bench".to_owned(),
        by: Reporter::default(),
        result: Ok(Payload::full()),
    };
    message(incarnation, run, Inbound::Reported(report))
}

/// Runs that gather facts which come whether or not the engine keeps up.
pub struct Flood {
    ports: AnyPorts,
    incarnation: Incarnation,
    begun: u64,
}

impl Flood {
    /// Flood of the engines behind `ports`.
    #[must_use]
    pub fn new(ports: AnyPorts) -> Self {
        let incarnation = ports.history().incarnation();
        Self {
            ports,
            incarnation,
            begun: 0,
        }
    }

    /// Runs begun so far.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Sends every fact of `count` new runs at once. A refused batch is sent again, as a watcher does, until `end`.
    ///
    /// # Errors
    /// The store takes nothing until `end`.
    pub async fn send(&mut self, count: u64, end: Instant) -> anyhow::Result<()> {
        let mut messages = Vec::new();
        for number in self.begun + 1..=self.begun + count {
            let run = RunId::new(GATHERING, &number.to_string())?;
            for part in 0..GATHERED {
                let body = fact(&format!("{number}-{part}"), number);
                messages.push(message(self.incarnation, run.clone(), body)?);
            }
        }
        self.begun += count;
        for batch in messages.chunks(BATCH) {
            while let Err(error) = self.ports.inbox().put(batch.to_vec()).await {
                anyhow::ensure!(Instant::now() < end, "the inbox takes nothing: {error}");
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
        Ok(())
    }
}

/// Worker of a flood: counts the runs whose only task was ordered, and reports it.
pub struct Gatherer {
    ports: AnyPorts,
    queue: WorkerQueue,
    incarnation: Incarnation,
    ordered: HashSet<RunId>,
}

impl Gatherer {
    /// Worker on the engines behind `ports`, whose orders come out of `queue`.
    #[must_use]
    pub fn new(ports: AnyPorts, queue: WorkerQueue) -> Self {
        let incarnation = ports.history().incarnation();
        Self {
            ports,
            queue,
            incarnation,
            ordered: HashSet::new(),
        }
    }

    /// Executes the next tasks, at least one. Returns the number of runs so far that have all their facts.
    ///
    /// # Errors
    /// Errors of the store, and no order for 10 s.
    pub async fn turn(&mut self) -> anyhow::Result<u64> {
        let orders = self.queue.take().await?;
        let mut messages = Vec::with_capacity(orders.len());
        for order in orders {
            let (order, _) = envelope::decode::<TaskOrder<Payload>>(&order, 1)?;
            self.ordered.insert(order.task.run.clone());
            messages.push(report(self.incarnation, order)?);
        }
        self.queue.acknowledge_all().await?;
        self.ports.inbox().put_unconfirmed(messages).await?;
        Ok(self.ordered.len() as u64)
    }
}
