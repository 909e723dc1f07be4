//! `dormer bench`: figures with their conditions, taken together with a calibration of the machine.

mod calibration;
mod console;
mod engine;
#[cfg(feature = "demo")]
mod fleet;
mod idle;
mod sftp;
mod steps;
mod worker_queue;

use clap::Subcommand;
use futures::future::LocalBoxFuture;
use std::process::ExitCode;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// How far the console's streams lag behind the truth, and what they cost: many machines, changes and browsers
    Console(console::Options),
    /// Durable steps a second: runs of six steps each (decide, task, report), tasks that do nothing
    Engine(engine::Options),
    /// How long a simulated fleet takes to come up, on a virtual clock: the ratios measure waiting
    #[cfg(feature = "demo")]
    Fleet(fleet::Options),
    /// What an idle run costs in memory, and how soon an engine with many of them works
    Idle(idle::Options),
    /// dormer's uploader beside OpenSSH's own sftp, to a real sshd over a link with delay
    Sftp(sftp::Options),
}

/// Measures.
pub fn run(bench: Bench) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    // Boxed here, so that this package compiles the future, and not whoever awaits it once more.
    Box::pin(measure(bench))
}

async fn measure(bench: Bench) -> anyhow::Result<ExitCode> {
    match bench {
        Bench::Console(options) => console::run(options).await,
        Bench::Engine(options) => engine::run(options).await,
        #[cfg(feature = "demo")]
        Bench::Fleet(options) => fleet::run(options).await,
        Bench::Idle(options) => idle::run(options).await,
        Bench::Sftp(options) => sftp::run(options).await,
    }
}
