//! `dormer bench engine`: the production loop under load, on a selectable store.

use super::{
    calibration::{Calibration, calibrate},
    steps::{PAYLOAD_BYTES, Payload, STEPS, Steps},
    worker_queue::WorkerQueue,
};
use crate::usage::{cpu_seconds, rss_mib};
use anyhow::Context;
use clap::Args;
use dormer_engine::{
    engine,
    local::{Local, deliver_due_timers},
    memory::MemoryStore,
    nats,
    port::{DeadLetters, History, HistoryReader, Inbox, Ports, Quarantine, SystemClock},
};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, RunId},
    message::{
        Inbound, InboxMessage, NoSignal, ObjectRef, Observation, TaskOrder, TaskReport, Version,
    },
};
use futures::TryStreamExt;
use serde::Serialize;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Arguments of the benchmark.
#[derive(Debug, Args)]
pub struct Options {
    /// Store: `memory`, `embedded` (a new folder in the system's temporary one) or `nats://HOST:PORT`, where the
    /// bench creates and deletes its own streams; that server's settings decide how they are synced
    #[arg(long, default_value = "embedded")]
    store: String,
    /// Runs open at once
    #[arg(long, default_value_t = 256)]
    in_flight: usize,
    /// Duration in seconds, after a warm-up of one second
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Shards of the engine
    #[arg(long, default_value_t = 2)]
    shards: usize,
    /// Parent folder of the embedded store
    #[arg(long)]
    folder: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Figures {
    store: String,
    in_flight: usize,
    seconds: f64,
    steps: u64,
    steps_per_s: f64,
    step_p50_ms: f64,
    step_p99_ms: f64,
    cpu_cores: f64,
    rss_mib: f64,
    disk_bytes_per_step: f64,
    payload_bytes: usize,
    calibration: Calibration,
}

/// Runs the benchmark and prints its figures.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let base = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = base.join(format!("dormer-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let calibration = calibrate(&folder)?;
    let figures = match options.store.as_str() {
        "memory" => {
            let store = Arc::new(MemoryStore::new(Incarnation(rand::random())));
            measure(store, &options, &folder, calibration).await
        }
        "embedded" => {
            let store = dormer_engine::embedded::EmbeddedStore::open(&folder)?;
            measure(Arc::new(store), &options, &folder, calibration).await
        }
        url if url.starts_with("nats://") => measure_nats(&options, &folder, calibration).await,
        other => Err(anyhow::anyhow!(
            "--store {other}: it must be memory, embedded or nats://HOST:PORT"
        )),
    };
    std::fs::remove_dir_all(&folder).ok();
    print(&figures?, options.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures on a store of this process, with queues and alarms in memory.
async fn measure<S>(
    store: Arc<S>,
    options: &Options,
    folder: &Path,
    calibration: Calibration,
) -> anyhow::Result<Figures>
where
    S: History + HistoryReader + DeadLetters + Quarantine,
{
    let incarnation = store.incarnation();
    let ports = Arc::new(Local::new(store, SystemClock));
    let delivering = tokio::spawn(deliver_due_timers(
        Arc::clone(&ports.alarms),
        Arc::clone(&ports.inbox),
        SystemClock,
        incarnation,
    ));
    let queue = WorkerQueue::Local(Arc::clone(&ports.tasks));
    let figures = measure_on(ports, queue, options, folder, calibration).await;
    delivering.abort();
    figures
}

/// Measures on NATS, under a prefix of the bench's own.
async fn measure_nats(
    options: &Options,
    folder: &Path,
    calibration: Calibration,
) -> anyhow::Result<Figures> {
    let prefix = format!("bench-{:08x}", rand::random::<u32>());
    let settings = nats::Options {
        servers: options.store.clone(),
        prefix: Some(prefix.clone()),
        sync: nats::Sync::LazyAccepted,
        ..nats::Options::default()
    };
    let store = Arc::new(nats::NatsStore::open(&settings).await?);
    let queue = WorkerQueue::nats(&options.store, &prefix).await?;
    let figures = measure_on(Arc::clone(&store), queue, options, folder, calibration).await;
    store.close().await;
    delete_streams(&options.store, &prefix).await?;
    figures
}

async fn delete_streams(url: &str, prefix: &str) -> anyhow::Result<()> {
    let js = async_nats::jetstream::new(async_nats::connect(url).await?);
    let names: Vec<String> = js.stream_names().try_collect().await?;
    for name in names.into_iter().filter(|name| name.starts_with(prefix)) {
        js.delete_stream(name).await?;
    }
    Ok(())
}

async fn measure_on<P: Ports>(
    ports: Arc<P>,
    queue: WorkerQueue,
    options: &Options,
    folder: &Path,
    calibration: Calibration,
) -> anyhow::Result<Figures> {
    let (stop, stopped) = watch::channel(false);
    let settings = engine::Options {
        shards: options.shards,
        ..engine::Options::default()
    };
    let engine = tokio::spawn(engine::run::<Steps, _>(
        Arc::clone(&ports),
        settings,
        stopped,
    ));
    // Runs on the runtime's own threads, as workers do. This thread only waits.
    let span = Duration::from_secs(options.seconds);
    let loading = under_load(
        Load::new(ports, queue),
        options.in_flight,
        span,
        folder.to_owned(),
    );
    let (load, spent) = tokio::spawn(loading).await??;
    stop.send_replace(true);
    engine.await??;
    Ok(load.figures(options, &spent, calibration))
}

/// Cost of the load.
struct Spent {
    seconds: f64,
    cpu: f64,
    rss_mib: f64,
    disk: u64,
}

async fn under_load<P: Ports>(
    mut load: Load<P>,
    in_flight: usize,
    span: Duration,
    folder: PathBuf,
) -> anyhow::Result<(Load<P>, Spent)> {
    load.begin(in_flight).await?;
    load.until(Instant::now() + Duration::from_secs(1)).await?;
    load.forget_figures();
    let start = Instant::now();
    let cpu = cpu_seconds();
    let disk = bytes_in(&folder);
    load.until(start + span).await?;
    let spent = Spent {
        seconds: start.elapsed().as_secs_f64(),
        cpu: cpu_seconds() - cpu,
        rss_mib: rss_mib(),
        disk: bytes_in(&folder).saturating_sub(disk),
    };
    Ok((load, spent))
}

/// Load generator: executes the runs' tasks, and starts a new run for each that ends.
struct Load<P> {
    ports: Arc<P>,
    queue: WorkerQueue,
    incarnation: Incarnation,
    begun: u64,
    reported: HashMap<RunId, (u8, Instant)>,
    steps: u64,
    latencies_us: Vec<u32>,
}

impl<P: Ports> Load<P> {
    fn new(ports: Arc<P>, queue: WorkerQueue) -> Self {
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
            latencies_us,
        }
    }

    fn forget_figures(&mut self) {
        self.steps = 0;
        self.latencies_us.clear();
    }

    async fn begin(&mut self, count: usize) -> anyhow::Result<()> {
        let mut messages = Vec::with_capacity(count);
        for _ in 0..count {
            self.begun += 1;
            let run = RunId::new("steps", &self.begun.to_string())?;
            let object = ObjectRef {
                cluster: String::new(),
                kind: "Bench".into(),
                uid: run.key().into(),
            };
            let version = Version {
                epoch: Epoch(1),
                resource: self.begun,
            };
            let body: Inbound<u64, Payload, NoSignal> = Inbound::Observed(Observation {
                object,
                version,
                fact: Some(self.begun),
                may_start: true,
            });
            self.reported.insert(run.clone(), (0, Instant::now()));
            messages.push(self.message(run, body)?);
        }
        self.ports.inbox().put(messages).await?;
        Ok(())
    }

    fn message(
        &self,
        run: RunId,
        body: Inbound<u64, Payload, NoSignal>,
    ) -> anyhow::Result<(RunId, Vec<u8>)> {
        let message = InboxMessage {
            run: run.clone(),
            incarnation: Some(self.incarnation),
            body,
        };
        Ok((run, envelope::encode(&message, 1)?.0))
    }

    async fn until(&mut self, end: Instant) -> anyhow::Result<()> {
        while Instant::now() < end {
            let orders = self.queue.take().await?;
            let mut messages = Vec::with_capacity(orders.len());
            let mut ended = 0;
            for order in orders {
                let (order, _) = envelope::decode::<TaskOrder<Payload>>(&order, 1)?;
                ended += usize::from(self.done(&order.task.run));
                messages.push(self.report(order)?);
            }
            // Repeats each report until it is receipted, as workers do.
            self.ports.inbox().tell(messages).await?;
            self.begin(ended).await?;
        }
        Ok(())
    }

    /// Handles an order, which proves that the step before it is durable. The answer is whether the run's last step
    /// has begun.
    fn done(&mut self, run: &RunId) -> bool {
        let Some((step, since)) = self.reported.get_mut(run) else {
            return false;
        };
        self.steps += 1;
        self.latencies_us
            .push(u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX));
        (*step, *since) = (*step + 1, Instant::now());
        let last = *step == STEPS;
        if last {
            self.reported.remove(run);
        }
        last
    }

    fn report(&self, order: TaskOrder<Payload>) -> anyhow::Result<(RunId, Vec<u8>)> {
        let TaskOrder {
            task,
            attempt,
            issued,
            ..
        } = order;
        let run = task.run.clone();
        let worker = "bench".to_owned();
        let report = TaskReport {
            task,
            attempt,
            issued,
            worker,
            result: Ok(Payload::new()),
        };
        self.message(run, Inbound::Reported(report))
    }

    fn figures(mut self, options: &Options, spent: &Spent, calibration: Calibration) -> Figures {
        let Spent {
            seconds,
            cpu,
            rss_mib,
            disk,
        } = *spent;
        self.latencies_us.sort_unstable();
        let at = |share: f64| {
            let rank = (self.latencies_us.len() as f64 * share) as usize;
            self.latencies_us
                .get(rank)
                .map_or(0.0, |us| f64::from(*us) / 1_000.0)
        };
        Figures {
            store: options.store.clone(),
            in_flight: options.in_flight,
            seconds,
            steps: self.steps,
            steps_per_s: self.steps as f64 / seconds,
            step_p50_ms: at(0.5),
            step_p99_ms: at(0.99),
            cpu_cores: cpu / seconds,
            rss_mib,
            disk_bytes_per_step: disk as f64 / self.steps.max(1) as f64,
            payload_bytes: PAYLOAD_BYTES,
            calibration,
        }
    }
}

fn print(figures: &Figures, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    println!(
        "store {}, {} in flight, {:.1} s",
        figures.store, figures.in_flight, figures.seconds
    );
    println!("{:12.0} durable steps/s", figures.steps_per_s);
    println!(
        "{:12.3} ms per step (p50), {:.3} ms (p99)",
        figures.step_p50_ms, figures.step_p99_ms
    );
    println!(
        "{:12.2} cores, {:.0} MiB resident",
        figures.cpu_cores, figures.rss_mib
    );
    println!(
        "{:12.0} bytes on disk per step",
        figures.disk_bytes_per_step
    );
    println!(
        "machine: {:.0} fdatasync/s, {:.0} cpu loops/s",
        figures.calibration.fdatasync_per_s, figures.calibration.cpu_loops_per_s
    );
    Ok(())
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|meta| meta.len())
        .sum()
}
