//! `dormer bench overload`: more comes than the engines can take, first at once and then for a minute.

use super::{
    calibration::{Calibration, calibrate},
    engines::{Engines, EnginesFigures, Streams, WARM_UP},
};
use anyhow::ensure;
use clap::Args;
use dormer_engine::any::AnyPorts;
use dormer_load::{Flood, Gatherer, WorkerQueue, workflow::GATHERED};
use dormer_run::usage_error::checked;
use serde::Serialize;
use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, time::MissedTickBehavior};

/// Interval at which the flood rises, and over which throughput is counted.
const TICK: Duration = Duration::from_millis(250);
/// Longest time until every run rests after the last fact.
const REST_MAX: Duration = Duration::from_secs(600);

/// Arguments of the benchmark.
#[derive(Debug, Args)]
pub struct Options {
    /// Server, where the bench creates and deletes its own streams
    #[arg(long, value_name = "nats://HOST:PORT")]
    store: String,
    /// Engines
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    engines: u16,
    /// Runs whose three facts come at once
    #[arg(long, default_value_t = 20_000)]
    at_once: u64,
    /// Duration of the flood afterwards, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Rate of the flood, as a multiple of the rate at which the runs that came at once were taken
    #[arg(long, default_value_t = 2.0)]
    times: f64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    engines: u16,
    at_once: u64,
    /// Messages a second while the runs that came at once were taken.
    burst_messages_per_s: f64,
    /// Messages a second that came during the flood, and that were taken in it.
    offered_messages_per_s: f64,
    taken_messages_per_s: f64,
    /// Throughput in the overload, relative to that before it: above 0.8 overload costs no throughput.
    of_peak: f64,
    /// Time from the flood's end until the last run rested.
    rest_s: f64,
    runs: u64,
    left_behind: u64,
    /// Work of the engines, from their start to the end.
    work: EnginesFigures,
    calibration: Calibration,
}

/// Runs the benchmark and prints its figures.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    if options.times <= 0.0 {
        let why = format!("--times {}: it must be above 0", options.times);
        return checked(Err(anyhow::anyhow!(why)));
    }
    let calibration = calibrate(&std::env::temp_dir())?;
    let streams = Streams::make(&options.store, false).await?;
    let figures = measure(&options, &streams, calibration).await;
    streams.delete().await?;
    let figures = figures?;
    print(&figures, options.json)?;
    ensure!(
        figures.left_behind == 0,
        "{} runs never came to rest",
        figures.left_behind
    );
    Ok(ExitCode::SUCCESS)
}

async fn measure(
    options: &Options,
    streams: &Streams,
    calibration: Calibration,
) -> anyhow::Result<Figures> {
    let queue = WorkerQueue::nats(&options.store, &streams.prefix).await?;
    let engines = Engines::start(options.engines, streams, 2)?;
    let ports = AnyPorts::nats(Arc::clone(&streams.store));
    let (sender, mut count) = watch::channel(0);
    let mut worker = Gatherer::new(ports.clone(), queue);
    let working = tokio::spawn(async move {
        loop {
            match worker.turn().await {
                Ok(runs) => drop(sender.send_replace(runs)),
                Err(error) => return error,
            }
        }
    });
    let started = Instant::now();
    tokio::time::sleep(WARM_UP).await;
    let mut flood = Flood::new(ports);
    let last = Instant::now() + REST_MAX;
    let begun = Instant::now();
    flood.send(options.at_once, last).await?;
    all(&mut count, flood.begun(), last).await;
    let per_run = f64::from(GATHERED);
    let burst = flood.begun() as f64 * per_run / begun.elapsed().as_secs_f64();

    let before = *count.borrow();
    let begun = Instant::now();
    let end = begun + Duration::from_secs(options.seconds);
    let rate = burst * options.times / per_run;
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut offered = 0;
    while Instant::now() < end {
        tick.tick().await;
        let due = (rate * begun.elapsed().as_secs_f64()) as u64;
        flood
            .send(due.saturating_sub(offered), end + REST_MAX)
            .await?;
        offered = due.max(offered);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let taken = (*count.borrow() - before) as f64 * per_run / seconds;
    let ended = Instant::now();
    all(&mut count, flood.begun(), ended + REST_MAX).await;
    let rested = *count.borrow();
    working.abort();
    let seconds_in_all = started.elapsed();
    let done = engines.stop().await?;
    // Each run's facts, and the report of its task.
    let messages = flood.begun() * (u64::from(GATHERED) + 1);
    Ok(Figures {
        engines: options.engines,
        at_once: options.at_once,
        burst_messages_per_s: burst,
        offered_messages_per_s: offered as f64 * per_run / seconds,
        taken_messages_per_s: taken,
        of_peak: taken / burst,
        rest_s: ended.elapsed().as_secs_f64(),
        runs: flood.begun(),
        left_behind: flood.begun() - rested,
        work: done.figures(messages, seconds_in_all),
        calibration,
    })
}

/// Waits until `count` is `all`, at most until `end`, and no longer than the worker works.
async fn all(count: &mut watch::Receiver<u64>, all: u64, end: Instant) {
    let end = tokio::time::Instant::from_std(end);
    let _ = tokio::time::timeout_at(end, count.wait_for(|count| *count >= all)).await;
}

fn print(figures: &Figures, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    println!(
        "{} engines; {} runs with {GATHERED} facts each at once",
        figures.engines, figures.at_once
    );
    println!(
        "{:12.0} messages/s taken of them",
        figures.burst_messages_per_s
    );
    println!(
        "{:12.0} messages/s offered afterwards, {:.0} taken: {:.0} %",
        figures.offered_messages_per_s,
        figures.taken_messages_per_s,
        figures.of_peak * 100.0
    );
    println!(
        "{:12.1} s until the last of {} runs came to rest; {} never did",
        figures.rest_s, figures.runs, figures.left_behind
    );
    println!("{}", figures.work);
    println!(
        "machine: {:.0} fdatasync/s, {:.0} cpu loops/s",
        figures.calibration.fdatasync_per_s, figures.calibration.cpu_loops_per_s
    );
    Ok(())
}
