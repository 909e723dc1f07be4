//! `dormer bench`: benchmarks. Each prints its figures with their conditions and a calibration of the computer.

mod burst;
mod calibration;
mod console;
mod engine;
mod engines;
mod failover;
#[cfg(feature = "demo")]
mod fleet;
mod idle;
mod overload;
mod sftp;

use clap::Subcommand;
use futures::future::LocalBoxFuture;
use std::process::ExitCode;

/// Text about exit codes in `--help`.
const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage";

/// Subcommands of `dormer bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Time until many machines that appear at once are decided, on NATS, and what engines cost while nothing happens
    #[command(after_help = EXIT_CODES)]
    Burst(burst::Options),
    /// Lag and cost of the console's streams, with many machines, changes and browsers
    #[command(after_help = EXIT_CODES)]
    Console(console::Options),
    /// Durable steps per second: runs of six steps each (decide, task, report), with empty tasks
    #[command(after_help = EXIT_CODES)]
    Engine(engine::Options),
    /// Time until every run continues after one of several engines was killed or frozen, on NATS
    #[command(after_help = EXIT_CODES)]
    Failover(failover::Options),
    /// Time until a simulated fleet serves, on a virtual clock: the ratios measure waiting
    #[cfg(feature = "demo")]
    #[command(after_help = EXIT_CODES)]
    Fleet(fleet::Options),
    /// Memory of an idle run, and startup time of an engine with many of them
    #[command(after_help = EXIT_CODES)]
    Idle(idle::Options),
    /// Throughput while more comes than the engines can take, on NATS; fails if a run is left behind
    #[command(after_help = EXIT_CODES)]
    Overload(overload::Options),
    /// dormer's uploader compared with OpenSSH's sftp, to a real sshd over a link with delay
    #[command(after_help = EXIT_CODES)]
    Sftp(sftp::Options),
}

/// Runs one benchmark.
pub fn run(bench: Bench) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    // Boxed here, so that this package compiles the future and its callers do not compile it again.
    Box::pin(measure(bench))
}

async fn measure(bench: Bench) -> anyhow::Result<ExitCode> {
    match bench {
        Bench::Burst(options) => burst::run(options).await,
        Bench::Console(options) => console::run(options).await,
        Bench::Engine(options) => engine::run(options).await,
        Bench::Failover(options) => failover::run(options).await,
        #[cfg(feature = "demo")]
        Bench::Fleet(options) => fleet::run(options).await,
        Bench::Idle(options) => idle::run(options).await,
        Bench::Overload(options) => overload::run(options).await,
        Bench::Sftp(options) => sftp::run(options).await,
    }
}
