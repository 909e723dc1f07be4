//! `dormer demo`: the whole product on a laptop. A simulated fleet comes up, a machine fails and is retried, and all
//! are upgraded one by one; engine, worker and watcher are the very ones that `dormer run` runs.

mod board;
mod outcome;
#[cfg(test)]
mod scenarios;
mod script;
mod show;
mod stage;

use crate::fleet;
use anyhow::Context;
use clap::{Args, ValueEnum};
use dormer_fleet::manifest;
use dormer_run::outside::asked_to_stop;
use futures::future::LocalBoxFuture;
use std::{
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Windows machines when nobody says how many.
const MACHINES: u32 = 6;
/// Trouble that is ordered when nobody orders any: one machine's configuration fails until a retry.
const DEFAULT_FAULT: &str = "configure-fails=1";

/// As long as anybody holds a demonstration.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 3_600);

/// What is demonstrated.
#[derive(Debug, Args)]
pub struct Options {
    /// Windows machines, spread over the Windows MachineSets [default: 6, or as the manifests say]
    #[arg(long)]
    machines: Option<u32>,
    /// The last line on standard output is one JSON object; no bars
    #[arg(long)]
    json: bool,
    /// A manifest with MachineSets in place of the built-in ones (may be given several times)
    #[arg(long)]
    manifest: Vec<PathBuf>,
    /// Fills a placeholder of the manifests: KEY=VALUE (may be given several times)
    #[arg(long = "set")]
    sets: Vec<String>,
    /// Trouble, comma-separated: `NAME[=MACHINES][xTIMES][@MACHINE]`, or `none`; see --list-faults.
    /// By default one machine's configuration fails until it is retried
    #[arg(long, alias = "fault", value_delimiter = ',')]
    faults: Vec<String>,
    /// Prints the faults that can be ordered, and ends
    #[arg(long)]
    list_faults: bool,
    /// Where chance comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seconds of the world pass in one second
    #[arg(long, default_value_t = 150.0)]
    speed: f64,
    /// How machines are upgraded
    #[arg(long, value_enum, default_value_t = Strategy::Recreate)]
    strategy: Strategy,
    /// How many machines may be away at once
    #[arg(long, default_value_t = 1)]
    max_unavailable: usize,
    /// Where the store's folder is made; a temporary one by default
    #[arg(long)]
    store: Option<PathBuf>,
    /// Where dormer's API answers meanwhile
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A collector that takes traces by OTLP over HTTP, http://HOST:PORT or https://HOST:PORT; their times are the
    /// world's
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Machines that fail are left to you: mend them in the browser, or with dormer retry
    #[arg(long)]
    leave_failed: bool,
    /// Keeps everything alive afterwards, until Ctrl-C
    #[arg(long)]
    hold: bool,
}

/// How machines are upgraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strategy {
    /// Drain, delete the Machine, wait for its replacement
    Recreate,
    /// Drain, tear the host down, configure it again
    InPlace,
}

impl Strategy {
    /// As the pool's spec has it.
    pub(crate) fn in_spec(self) -> &'static str {
        match self {
            Self::Recreate => "Recreate",
            Self::InPlace => "InPlace",
        }
    }

    /// As the command line and the JSON of the outcome have it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Recreate => "recreate",
            Self::InPlace => "in-place",
        }
    }
}

impl Options {
    fn faults(&self) -> Vec<String> {
        match self.faults.as_slice() {
            [] => vec![DEFAULT_FAULT.to_owned()],
            [none] if none == "none" => Vec::new(),
            given => given.to_vec(),
        }
    }
}

/// Shows everything, and says how it went.
pub fn run(options: Options) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    // Boxed here, so that this package compiles the future, and not whoever awaits it once more.
    Box::pin(demonstrate(options))
}

async fn demonstrate(options: Options) -> anyhow::Result<ExitCode> {
    if options.list_faults {
        fleet::list_faults();
        return Ok(ExitCode::SUCCESS);
    }
    check(&options)?;
    let begun = Instant::now();
    let sets = manifest::sets(&options.sets)?;
    let mut stage = stage::Stage::set(&options, sets).await?;
    let show = show::Show::new(stage.machines() as u64, options.json);
    let mut script = script::Script::new(&mut stage, &show, begun, options.leave_failed);
    let outcome = tokio::select! {
        outcome = script.run() => outcome,
        signal = asked_to_stop() => Err(anyhow::anyhow!("interrupted by {}", signal?)),
    };
    show.end();
    let result = finish(&options, outcome, &script);
    if options.hold && result.is_ok() {
        println!("{}", stage.invitation()?);
        tokio::select! {
            signal = asked_to_stop() => { signal?; }
            ended = stage.pause(FOR_EVER) => ended?,
        }
    }
    stage.clear().await?;
    result
}

fn check(options: &Options) -> anyhow::Result<()> {
    anyhow::ensure!(
        options.machines != Some(0),
        "--machines 0: at least one is needed"
    );
    anyhow::ensure!(
        options.max_unavailable > 0,
        "--max-unavailable 0: at least one is needed"
    );
    anyhow::ensure!(
        options.speed.is_finite() && options.speed > 0.0,
        "--speed {}: it must be a number above 0",
        options.speed
    );
    Ok(())
}

fn finish(
    options: &Options,
    outcome: anyhow::Result<outcome::Outcome>,
    script: &script::Script<'_>,
) -> anyhow::Result<ExitCode> {
    let outcome = outcome.with_context(|| script.progress_report())?;
    if !options.json {
        println!("{}", outcome::table(script.machines()));
        println!("{}", outcome.sentence());
    } else {
        println!("{}", serde_json::to_string(&outcome)?);
    }
    let good = outcome.good(options.max_unavailable);
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
