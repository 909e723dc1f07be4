//! `dormer bench failover`: one of several engines is killed under load, or frozen and thawed.

use super::{
    calibration::{Calibration, calibrate},
    engines::{Engines, EnginesFigures, Streams, WARM_UP},
};
use anyhow::ensure;
use clap::Args;
use dormer_engine::any::AnyPorts;
use dormer_load::{Load, WatchedRuns, WorkerQueue, workflow::Bench};
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
    /// Freeze the engine with SIGSTOP for so many seconds instead of killing it
    #[arg(long, value_name = "SECONDS")]
    freeze: Option<u64>,
    /// Sign every message and compare its signature, as dormer does beyond loopback
    #[arg(long)]
    signed: bool,
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
    /// Longest time, from the kill on, in which a partition of the inbox with a run in flight was not served. It counts also
    /// what the engines do to share the partitions again.
    unserved_s_max: f64,
    /// Runs that never went on.
    left_behind: usize,
    frozen: Option<Frozen>,
    /// Work of the engines that ended by themselves, from their start to the end.
    work: EnginesFigures,
    calibration: Calibration,
}

/// Figures of an engine that was frozen, after it went on.
#[derive(Debug, Serialize)]
struct Frozen {
    seconds: u64,
    /// Time from then until every run in flight went on.
    all_went_on_s: f64,
    /// Runs whose histories were compared record by record at the end.
    runs: usize,
    /// Faults in them: gaps, and records that do not follow the one before.
    faults: usize,
}

/// Runs the benchmark and prints its figures.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let calibration = calibrate(&std::env::temp_dir())?;
    let streams = Streams::make(&options.store, options.signed).await?;
    let figures = measure(&options, &streams, calibration).await;
    streams.delete().await?;
    let figures = figures?;
    print(&figures, options.json)?;
    ensure!(
        figures.left_behind == 0,
        "{} runs never went on",
        figures.left_behind
    );
    let faults = figures.frozen.as_ref().map_or(0, |frozen| frozen.faults);
    ensure!(faults == 0, "{faults} faults in the histories");
    Ok(ExitCode::SUCCESS)
}

async fn measure(
    options: &Options,
    streams: &Streams,
    calibration: Calibration,
) -> anyhow::Result<Figures> {
    let started = Instant::now();
    let queue = WorkerQueue::nats(&options.store, &streams.prefix).await?;
    let mut engines = Engines::start(options.engines, streams, 2)?;
    let mut load = Load::new(AnyPorts::nats(Arc::clone(&streams.store)), queue);
    let span = Duration::from_secs(options.seconds);
    load.begin(options.in_flight).await?;
    load.until(Instant::now() + WARM_UP).await?;
    let steps_per_s_before = rate(&mut load, span).await?;
    match options.freeze {
        None => engines.kill_one().await?,
        Some(_) => engines.signal_one("STOP").await?,
    }
    let begun = Instant::now();
    load.partitions().forget(begun);
    let (watched, mut left_behind) = go_on(&mut load).await?;
    let mut frozen = None;
    if let Some(seconds) = options.freeze {
        load.until(begun + Duration::from_secs(seconds)).await?;
        engines.signal_one("CONT").await?;
        let (watched, left) = go_on(&mut load).await?;
        left_behind += left;
        frozen = Some(Frozen {
            seconds,
            all_went_on_s: last_s(&watched),
            runs: 0,
            faults: 0,
        });
    }
    let steps_per_s_after = rate(&mut load, span).await?;
    let unserved_s_max = load.partitions().longest(Instant::now()).as_secs_f64();
    let messages = load.messages();
    let work = engines.stop().await?.figures(messages, started.elapsed());
    if let Some(frozen) = &mut frozen {
        let checked = streams.store.check::<Bench>().await?;
        (frozen.runs, frozen.faults) = (checked.runs, checked.faults.len());
    }
    let gaps_ms = &watched.gaps_ms;
    let median = gaps_ms.get(gaps_ms.len() / 2).copied();
    Ok(Figures {
        engines: options.engines,
        in_flight: options.in_flight,
        steps_per_s_before,
        steps_per_s_after,
        all_went_on_s: last_s(&watched),
        paused_runs: gaps_ms.iter().filter(|gap| **gap > PAUSED_MS).count() + left_behind,
        pause_p50_ms: median.unwrap_or_default(),
        unserved_s_max,
        left_behind,
        frozen,
        work,
        calibration,
    })
}

/// Watches the runs in flight until each went on.
async fn go_on(load: &mut Load) -> anyhow::Result<(WatchedRuns, usize)> {
    load.watch();
    load.until_all_went_on(Instant::now() + WAIT_MAX).await
}

/// When the last run went on, in seconds.
fn last_s(watched: &WatchedRuns) -> f64 {
    watched.gaps_ms.last().copied().unwrap_or_default() / 1_000.0
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
    let how = match &figures.frozen {
        None => "killed".to_owned(),
        Some(frozen) => format!("frozen for {} s", frozen.seconds),
    };
    println!(
        "{} engines, {} runs in flight; one engine is {how}",
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
        "{:12.1} s at most in which a partition was not served",
        figures.unserved_s_max
    );
    println!(
        "{:12.0} durable steps/s before, {:.0} after",
        figures.steps_per_s_before, figures.steps_per_s_after
    );
    if let Some(frozen) = &figures.frozen {
        println!(
            "{:12.1} s from the thaw until every run went on; {} histories compared, {} faults",
            frozen.all_went_on_s, frozen.runs, frozen.faults
        );
    }
    println!("{}", figures.work);
    println!(
        "machine: {:.0} fdatasync/s, {:.0} cpu loops/s",
        figures.calibration.fdatasync_per_s, figures.calibration.cpu_loops_per_s
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use dormer_load::Partitions;
    use std::time::{Duration, Instant};

    #[test]
    fn a_partition_is_unserved_from_its_last_order_on_while_a_run_is_in_flight() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut partitions = Partitions::default();
        let longest = |partitions: &Partitions, ms| partitions.longest(at(ms)).as_millis();
        assert_eq!(longest(&partitions, 50), 0);
        partitions.begins(1, at(100));
        partitions.begins(1, at(150));
        assert_eq!(longest(&partitions, 400), 300, "its first order is awaited");
        partitions.gave_an_order(1, false, at(400));
        partitions.gave_an_order(1, true, at(450));
        partitions.forget(at(500));
        assert_eq!(longest(&partitions, 600), 100, "what was is forgotten");
        // The other run ends, and nothing is awaited until the next one comes.
        partitions.gave_an_order(1, true, at(700));
        assert_eq!(longest(&partitions, 5_000), 200);
        partitions.begins(1, at(6_000));
        partitions.begins(2, at(6_100));
        partitions.gave_an_order(1, false, at(6_250));
        assert_eq!(longest(&partitions, 6_250), 250);
        assert_eq!(
            longest(&partitions, 6_600),
            500,
            "the other partition waits"
        );
    }
}
