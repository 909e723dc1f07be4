//! `dormer bench failover`: one of several engines is killed under load.

use super::{
    calibration::{Calibration, calibrate},
    engines::{Engines, Streams, WARM_UP},
};
use anyhow::ensure;
use clap::Args;
use dormer_engine::any::AnyPorts;
use dormer_load::{Load, WorkerQueue};
use serde::Serialize;
use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

/// Longest wait for the runs of the killed engine. Runs without progress by then count as left behind.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// Pause of a run that counts as one of the killed engine's, in milliseconds: more than a busy engine needs for a step.
const PAUSED_MS: f64 = 1_000.0;

/// Arguments of the benchmark.
#[derive(Debug, Args)]
pub struct Options {
    /// Server, where the bench creates and deletes its own streams
    #[arg(long, value_name = "nats://HOST:PORT")]
    store: String,
    /// Engines before one is killed
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    engines: u16,
    /// Runs open at once
    #[arg(long, default_value_t = 1_000)]
    in_flight: usize,
    /// Duration of the load before the kill, and of the load after it, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    engines: u16,
    in_flight: usize,
    /// Steps a second before the kill, and after every run went on.
    steps_per_s_before: f64,
    steps_per_s_after: f64,
    /// Time until every run in flight went on.
    all_went_on_s: f64,
    /// Runs that waited for longer than a second.
    paused_runs: usize,
    /// Pause of the median run: those of other engines do not wait.
    pause_p50_ms: f64,
    /// Runs that never went on.
    left_behind: usize,
    calibration: Calibration,
}

/// Runs the benchmark and prints its figures.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let calibration = calibrate(&std::env::temp_dir())?;
    let streams = Streams::make(&options.store).await?;
    let figures = measure(&options, &streams, calibration).await;
    streams.delete().await?;
    let figures = figures?;
    print(&figures, options.json)?;
    ensure!(
        figures.left_behind == 0,
        "{} runs never went on",
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
    let mut engines = Engines::start(options.engines, &options.store, &streams.prefix, 2)?;
    let mut load = Load::new(AnyPorts::nats(Arc::clone(&streams.store)), queue);
    let span = Duration::from_secs(options.seconds);
    load.begin(options.in_flight).await?;
    load.until(Instant::now() + WARM_UP).await?;
    let steps_per_s_before = rate(&mut load, span).await?;
    engines.kill_one().await?;
    load.watch();
    let (watched, left_behind) = load.until_all_went_on(Instant::now() + WAIT_MAX).await?;
    let steps_per_s_after = rate(&mut load, span).await?;
    engines.stop().await?;
    let gaps_ms = watched.gaps_ms;
    let median = gaps_ms.get(gaps_ms.len() / 2).copied();
    Ok(Figures {
        engines: options.engines,
        in_flight: options.in_flight,
        steps_per_s_before,
        steps_per_s_after,
        all_went_on_s: gaps_ms.last().copied().unwrap_or_default() / 1_000.0,
        paused_runs: gaps_ms.iter().filter(|gap| **gap > PAUSED_MS).count() + left_behind,
        pause_p50_ms: median.unwrap_or_default(),
        left_behind,
        calibration,
    })
}

async fn rate(load: &mut Load, span: Duration) -> anyhow::Result<f64> {
    load.forget_figures();
    let begun = Instant::now();
    load.until(begun + span).await?;
    Ok(load.steps() as f64 / begun.elapsed().as_secs_f64())
}

fn print(figures: &Figures, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    println!(
        "{} engines, {} runs in flight; one engine is killed",
        figures.engines, figures.in_flight
    );
    println!(
        "{:12.1} s until every run went on; {} waited for more than a second, {} never went on",
        figures.all_went_on_s, figures.paused_runs, figures.left_behind
    );
    println!(
        "{:12.0} ms is the pause of the median run",
        figures.pause_p50_ms
    );
    println!(
        "{:12.0} durable steps/s before, {:.0} after",
        figures.steps_per_s_before, figures.steps_per_s_after
    );
    println!(
        "machine: {:.0} fdatasync/s, {:.0} cpu loops/s",
        figures.calibration.fdatasync_per_s, figures.calibration.cpu_loops_per_s
    );
    Ok(())
}
