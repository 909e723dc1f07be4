//! `dormer bench engine`: the production loop under load, on a selectable store.

use super::{
    calibration::{Calibration, calibrate},
    engines::{self, Engines, EnginesFigures, Streams},
};
use crate::usage::{cpu_seconds, rss_mib};
use anyhow::Context;
use clap::Args;
use dormer_engine::{
    any::AnyPorts,
    engine,
    local::{Local, deliver_due_timers},
    memory::MemoryStore,
    port::SystemClock,
};
use dormer_load::{Load, WorkerQueue, workflow::PAYLOAD_BYTES};
use dormer_proto::id::Incarnation;
use dormer_run::{embedded::OwnStore, usage_error::checked};
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
    /// Engines as processes of their own, which share the inbox; with `--store nats://HOST:PORT` only. Without it one
    /// engine runs in the process of the load
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    engines: Option<u16>,
    /// Sign every message and compare its signature, as dormer does beyond loopback; with `--store nats://HOST:PORT` only
    #[arg(long)]
    signed: bool,
    /// Is such an engine: runs until its standard input ends, on the streams with this prefix
    #[arg(long, hide = true)]
    engine_on: Option<String>,
    /// Folder with its keys
    #[arg(long, hide = true)]
    engine_keys: Option<PathBuf>,
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
    /// Whether every message had a signature.
    signed: bool,
    /// Steps for each append with fdatasync, and for each loop of the processor, of the calibration: what is left of a
    /// comparison with a run on another computer, or at another hour.
    steps_per_fdatasync: f64,
    steps_per_cpu_loop: f64,
    /// Engines as processes of their own, and what they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    engines: Option<EnginesFigures>,
    calibration: Calibration,
}

/// Runs the benchmark and prints its figures.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    if let Some(prefix) = &options.engine_on {
        let keys = options.engine_keys.as_deref();
        engines::serve(&options.store, prefix, options.shards, keys).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.signed && !options.store.starts_with("nats://") {
        return checked(Err(anyhow::anyhow!(
            "--signed needs a store with messages between processes: give --store nats://HOST:PORT"
        )));
    }
    if options.engines.is_some() && !options.store.starts_with("nats://") {
        return checked(Err(anyhow::anyhow!(
            "--engines needs a store that several processes share: give --store nats://HOST:PORT"
        )));
    }
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
    let streams = Streams::make(&options.store, options.signed).await?;
    let queue = WorkerQueue::nats(&options.store, &streams.prefix).await?;
    let ports = AnyPorts::nats(Arc::clone(&streams.store));
    let figures = match options.engines {
        None => measure_on(ports, queue, options, folder, calibration).await,
        Some(count) => {
            let engines = Engines::start(count, &streams, options.shards)?;
            measure_engines(
                engines,
                Load::new(ports, queue),
                options,
                folder,
                calibration,
            )
            .await
        }
    };
    streams.delete().await?;
    figures
}

/// Measures engines of other processes.
async fn measure_engines(
    engines: Engines,
    mut load: Load,
    options: &Options,
    folder: &Path,
    calibration: Calibration,
) -> anyhow::Result<Figures> {
    load.begin(options.in_flight).await?;
    load.until(Instant::now() + engines::WARM_UP).await?;
    let begun = Instant::now();
    let span = Duration::from_secs(options.seconds);
    let folder = folder.to_owned();
    let measured = tokio::spawn(async move {
        let spent = spent_until(&mut load, begun + span, &folder).await?;
        anyhow::Ok((load, spent))
    });
    let (load, spent) = measured.await??;
    let seconds = engines::WARM_UP + begun.elapsed();
    let messages = load.messages();
    let done = engines.stop().await?;
    let mut figures = figures(load, options, &spent, calibration);
    figures.engines = Some(done.figures(messages, seconds));
    Ok(figures)
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

struct LoadCost {
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
) -> anyhow::Result<(Load, LoadCost)> {
    load.begin(in_flight).await?;
    load.until(Instant::now() + Duration::from_secs(1)).await?;
    let spent = spent_until(&mut load, Instant::now() + span, &folder).await?;
    Ok((load, spent))
}

/// Measures from now until `end`.
async fn spent_until(load: &mut Load, end: Instant, folder: &Path) -> anyhow::Result<LoadCost> {
    load.forget_figures();
    let start = Instant::now();
    let cpu = cpu_seconds();
    let disk = bytes_in(folder);
    load.until(end).await?;
    Ok(LoadCost {
        seconds: start.elapsed().as_secs_f64(),
        cpu: cpu_seconds() - cpu,
        rss_mib: rss_mib(),
        disk: bytes_in(folder).saturating_sub(disk),
    })
}

fn figures(
    mut load: Load,
    options: &Options,
    spent: &LoadCost,
    calibration: Calibration,
) -> Figures {
    let LoadCost {
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
    let steps_per_s = steps as f64 / seconds;
    Figures {
        store: options.store.clone(),
        in_flight: options.in_flight,
        seconds,
        steps,
        steps_per_s,
        step_p50_ms: at(0.5),
        step_p99_ms: at(0.99),
        cpu_cores: cpu / seconds,
        rss_mib,
        disk_bytes_per_step: disk as f64 / steps.max(1) as f64,
        payload_bytes: PAYLOAD_BYTES,
        signed: options.signed,
        steps_per_fdatasync: steps_per_s / calibration.fdatasync_per_s,
        steps_per_cpu_loop: steps_per_s / calibration.cpu_loops_per_s,
        engines: None,
        calibration,
    }
}

fn print(figures: &Figures, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    println!(
        "store {}, {} in flight, {:.1} s{}",
        figures.store,
        figures.in_flight,
        figures.seconds,
        if figures.signed { ", signed" } else { "" }
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
    if figures.store == "embedded" {
        println!(
            "{:12.0} bytes on disk per step of {} bytes",
            figures.disk_bytes_per_step, figures.payload_bytes
        );
    }
    if let Some(engines) = &figures.engines {
        println!("{engines}");
    }
    println!(
        "machine: {:.0} fdatasync/s, {:.0} cpu loops/s; {:.2} steps per fdatasync, {:.2} per cpu loop",
        figures.calibration.fdatasync_per_s,
        figures.calibration.cpu_loops_per_s,
        figures.steps_per_fdatasync,
        figures.steps_per_cpu_loop
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
