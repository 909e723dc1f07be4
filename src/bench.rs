//! `dormer bench`: figures with their conditions, taken together with a calibration of the machine.

mod calibration;
mod desk;
mod engine;
mod idle;
mod steps;

use clap::Subcommand;
use std::process::ExitCode;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Durable steps a second: runs of six steps each (decide, task, report), tasks that do nothing
    Engine(engine::Options),
    /// What an idle run costs in memory, and how soon an engine with many of them works
    Idle(idle::Options),
}

/// Measures.
pub(crate) async fn run(bench: Bench) -> anyhow::Result<ExitCode> {
    match bench {
        Bench::Engine(options) => engine::run(options).await,
        Bench::Idle(options) => idle::run(options).await,
    }
}
