//! `dormer bench engine`: the production loop under load, on a selectable store.

use super::calibration::{Calibration, calibrate};
use crate::usage::{cpu_seconds, rss_mib};
use anyhow::Context;
use clap::Args;
use dormer_engine::{
    any::AnyPorts,
    engine,
    local::{Local, deliver_due_timers},
    memory::MemoryStore,
    nats,
    port::SystemClock,
};
use dormer_load::{Load, WorkerQueue, workflow::PAYLOAD_BYTES};
use dormer_proto::id::Incarnation;
use dormer_run::{embedded::OwnStore, usage::checked};
use futures::TryStreamExt;
use serde::Serialize;
use std::{
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
        other => checked(Err(anyhow::anyhow!(
            "--store {other}: it must be memory, embedded or nats://HOST:PORT"
        ))),
    };
    std::fs::remove_dir_all(&folder).ok();
    print(&figures?, options.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures on a store of this process, with queues and alarms in memory.
async fn measure<S: OwnStore>(
    store: Arc<S>,
    options: &Options,
    folder: &Path,
    calibration: Calibration,
) -> anyhow::Result<Figures> {
    let incarnation = store.incarnation();
    let ports = Arc::new(Local::new(store, SystemClock));
    let delivering = tokio::spawn(deliver_due_timers(
        Arc::clone(&ports.alarms),
        Arc::clone(&ports.inbox),
        SystemClock,
        incarnation,
    ));
    let queue = WorkerQueue::Local(Arc::clone(&ports.tasks));
    let ports = S::any(&ports);
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
    let ports = AnyPorts::nats(Arc::clone(&store));
    let figures = measure_on(ports, queue, options, folder, calibration).await;
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

async fn measure_on(
    ports: AnyPorts,
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
    let engine = tokio::spawn(dormer_load::engine(ports.clone(), settings, stopped));
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
    Ok(figures(load, options, &spent, calibration))
}

/// Cost of the load.
struct Spent {
    seconds: f64,
    cpu: f64,
    rss_mib: f64,
    disk: u64,
}

async fn under_load(
    mut load: Load,
    in_flight: usize,
    span: Duration,
    folder: PathBuf,
) -> anyhow::Result<(Load, Spent)> {
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

fn figures(mut load: Load, options: &Options, spent: &Spent, calibration: Calibration) -> Figures {
    let Spent {
        seconds,
        cpu,
        rss_mib,
        disk,
    } = *spent;
    let steps = load.steps();
    let latencies_us = load.latencies_us();
    let at = |share: f64| {
        let rank = (latencies_us.len() as f64 * share) as usize;
        latencies_us
            .get(rank)
            .map_or(0.0, |us| f64::from(*us) / 1_000.0)
    };
    Figures {
        store: options.store.clone(),
        in_flight: options.in_flight,
        seconds,
        steps,
        steps_per_s: steps as f64 / seconds,
        step_p50_ms: at(0.5),
        step_p99_ms: at(0.99),
        cpu_cores: cpu / seconds,
        rss_mib,
        disk_bytes_per_step: disk as f64 / steps.max(1) as f64,
        payload_bytes: PAYLOAD_BYTES,
        calibration,
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
