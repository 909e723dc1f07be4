//! `dormer bench console`: lag and cost of the console's streams.
//!
//! A child process holds a store with many machines, changes some of them continuously, and serves the console. This
//! process is the browsers: it reads like an `EventSource`, by HTTP over loopback.

mod reader;
mod server;

use super::calibration::{Calibration, calibrate};
use crate::usage::cpu_seconds_of;
use anyhow::Context;
use clap::Args;
use dormer_proto::lock::Locked as _;
use reader::{Received, StreamKind, follow};
use serde::Serialize;
use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::{Duration, Instant},
};

/// Warm-up, until the first contents are read and the figures are steady.
const REST: Duration = Duration::from_secs(4);
/// Limits: lag of a change in milliseconds, and processors used.
const LAG_MS_MAX: f64 = 1_000.0;
const CORES_MAX: f64 = 1.0;
/// Time after which a change that no reader received counts as lost, in milliseconds.
const LOST_MS: f64 = 30_000.0;

/// Arguments of the benchmark.
#[derive(Debug, Args)]
pub struct Options {
    /// Machines in the store
    #[arg(long, default_value_t = 5_000)]
    machines: u64,
    /// Records added per second, spread over the machines
    #[arg(long, default_value_t = 200)]
    changes: u64,
    /// Number of open pages, and afterwards of readers of the API's changes
    #[arg(long, default_value_t = 20)]
    browsers: usize,
    /// Duration of each measurement
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Parent folder of the store
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Child process that is measured: serves, and prints each batch of changes
    #[arg(long, hide = true)]
    serve: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    machines: u64,
    browsers: usize,
    seconds: u64,
    /// Records added per second, as measured.
    changes_per_s: f64,
    /// Processors used by the child process without readers.
    cores_without_readers: f64,
    /// Fleet page, as browsers follow it.
    pages: Lag,
    /// `GET /api/v1/changes`.
    changes: Lag,
    within: bool,
    debug_build: bool,
    calibration: Calibration,
}

/// Lag of readers over every batch of changes and every reader.
#[derive(Debug, Serialize)]
struct Lag {
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Batches that a reader never received.
    lost: usize,
    /// Processors used by the child process, including the changes.
    cores: f64,
    kib_per_s_and_reader: f64,
}

impl Lag {
    fn within(&self) -> bool {
        self.lost == 0 && self.max_ms <= LAG_MS_MAX && self.cores <= CORES_MAX
    }
}

/// Runs the benchmark.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let folder = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    if options.serve {
        server::serve(&folder, options.machines, options.changes).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let folder = folder.join(format!("dormer-bench-console-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let figures = measure(&options, &folder).await;
    std::fs::remove_dir_all(&folder).ok();
    let figures = figures?;
    print(&figures, options.json)?;
    Ok(if figures.within {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn measure(options: &Options, folder: &std::path::Path) -> anyhow::Result<Figures> {
    let calibration = calibrate(folder)?;
    let server = ConsoleProcess::start(options, folder)?;
    let (cores_without_readers, _) = server.cores(Duration::from_secs(5)).await;
    let (pages, added) = server.lag(StreamKind::Page, options).await?;
    let (changes, _) = server.lag(StreamKind::Changes, options).await?;
    Ok(Figures {
        machines: options.machines,
        browsers: options.browsers,
        seconds: options.seconds,
        changes_per_s: added / options.seconds as f64,
        cores_without_readers,
        within: pages.within() && changes.within(),
        pages,
        changes,
        debug_build: cfg!(debug_assertions),
        calibration,
    })
}

/// Child process, and the true state that it prints.
struct ConsoleProcess {
    child: Child,
    url: String,
    /// Number of records after each batch, with the time.
    truth: Arc<Mutex<Vec<(u64, Instant)>>>,
}

impl Drop for ConsoleProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ConsoleProcess {
    fn start(options: &Options, folder: &std::path::Path) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "console", "--serve"])
            .args(["--machines", &options.machines.to_string()])
            .args(["--changes", &options.changes.to_string()])
            .arg("--folder")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child
            .stdout
            .take()
            .context("no output of the measured process")?;
        let mut lines = BufReader::new(stdout).lines();
        let url = lines.next().context("the measured process ended")??;
        let truth = Arc::<Mutex<Vec<(u64, Instant)>>>::default();
        let ours = Arc::clone(&truth);
        std::thread::spawn(move || {
            // A pipe takes microseconds, so the time of reading counts as the time of the change.
            for records in lines
                .map_while(Result::ok)
                .filter_map(|line| line.parse().ok())
            {
                let mut truth = ours.locked();
                truth.push((records, Instant::now()));
            }
        });
        Ok(Self { child, url, truth })
    }

    /// Processors that the child uses during `during`, and the start time.
    async fn cores(&self, during: Duration) -> (f64, Instant) {
        let process = self.child.id().to_string();
        let before = cpu_seconds_of(&process);
        let begun = Instant::now();
        tokio::time::sleep(during).await;
        (
            (cpu_seconds_of(&process) - before) / begun.elapsed().as_secs_f64(),
            begun,
        )
    }

    /// Has all browsers read `what`. The answer is their lag and the number of changes.
    async fn lag(&self, what: StreamKind, options: &Options) -> anyhow::Result<(Lag, f64)> {
        let stop = Arc::<AtomicBool>::default();
        let readers: Vec<_> = (0..options.browsers)
            .map(|_| tokio::spawn(follow(self.url.clone(), what, Arc::clone(&stop))))
            .collect();
        tokio::time::sleep(REST).await;
        let during = Duration::from_secs(options.seconds);
        let (cores, begun) = self.cores(during).await;
        let ended = Instant::now();
        // The last changes are still in transit.
        tokio::time::sleep(REST).await;
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let truth = self.truth.locked().clone();
        let measured: Vec<(u64, Instant)> = truth
            .into_iter()
            .filter(|(_, at)| (begun..ended).contains(at))
            .collect();
        let mut lags = Vec::new();
        let mut lost = 0;
        let mut bytes = 0;
        for reader in readers {
            let received = reader.await??;
            bytes += received.bytes;
            lost += late(&measured, &received, &mut lags);
        }
        lags.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let index = (lags.len() as f64 * part) as usize;
            lags.get(index.min(lags.len().saturating_sub(1)))
                .copied()
                .unwrap_or(LOST_MS)
        };
        let whole = (during + 2 * REST).as_secs_f64() * options.browsers as f64;
        let kib_per_s_and_reader = bytes as f64 / 1_024.0 / whole;
        let lag = Lag {
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: at(1.0),
            lost,
            cores,
            kib_per_s_and_reader,
        };
        let records = |at: Option<&(u64, Instant)>| at.map_or(0, |it| it.0);
        Ok((
            lag,
            (records(measured.last()) - records(measured.first())) as f64,
        ))
    }
}

/// Adds a reader's lag for each batch. Returns the number of batches that it never received.
fn late(truth: &[(u64, Instant)], received: &Received, lags: &mut Vec<f64>) -> usize {
    let mut changes = received.changes.iter().peekable();
    let mut lost = 0;
    for (records, at) in truth {
        while changes.next_if(|(known, _)| known < records).is_some() {}
        match changes.peek() {
            Some((_, then)) => lags.push(then.saturating_duration_since(*at).as_secs_f64() * 1e3),
            None => lost += 1,
        }
    }
    lost
}

fn print(figures: &Figures, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    println!(
        "{} machines, {:.0} changes a second, {} readers; {:.2} processors without readers",
        figures.machines, figures.changes_per_s, figures.browsers, figures.cores_without_readers
    );
    for (name, lag) in [("pages", &figures.pages), ("changes", &figures.changes)] {
        println!(
            "{name:>8}: {:.0} ms behind (p50), {:.0} (p99), {:.0} at most, {} lost; {:.2} processors, {:.0} KiB/s each",
            lag.p50_ms, lag.p99_ms, lag.max_ms, lag.lost, lag.cores, lag.kib_per_s_and_reader
        );
    }
    if figures.debug_build {
        println!("This is a debug build: its figures are meaningless.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_as_late_as_the_first_event_that_has_it() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let truth = [(10, at(0)), (20, at(50)), (30, at(100)), (40, at(150))];
        let received = Received {
            changes: vec![(9, at(1)), (10, at(30)), (35, at(300))],
            bytes: 0,
        };
        let mut lags = Vec::new();
        assert_eq!(
            late(&truth, &received, &mut lags),
            1,
            "the last one never arrived"
        );
        let lags: Vec<u64> = lags.iter().map(|ms| ms.round() as u64).collect();
        assert_eq!(lags, [30, 250, 200]);
    }
}
