//! `dormer fleet`: the simulated cluster as its own process, for `kubectl` and for dormer's roles.

use anyhow::Context;
use clap::Args;
use dormer_fleet::{Fault, Pace, World, WorldConfig, manifest};
use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

/// What world is simulated.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Windows machines, spread over the Windows MachineSets
    #[arg(long, default_value_t = 3)]
    machines: u32,
    /// A manifest with MachineSets in place of the built-in ones (may be given several times)
    #[arg(long)]
    manifest: Vec<PathBuf>,
    /// Fills a placeholder of the manifests: KEY=VALUE (may be given several times)
    #[arg(long = "set")]
    sets: Vec<String>,
    /// Trouble, comma-separated: `NAME[=MACHINES][xTIMES][@MACHINE]`; see --list-faults
    #[arg(long, alias = "fault", value_delimiter = ',')]
    faults: Vec<String>,
    /// Prints the faults that can be ordered, and ends
    #[arg(long)]
    list_faults: bool,
    /// Where chance comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seconds of the world pass in one second
    #[arg(long, default_value_t = 10.0)]
    speed: f64,
    /// Where the API server listens
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where the kubeconfig is written
    #[arg(long, default_value = "dormer-fleet.kubeconfig")]
    kubeconfig: PathBuf,
}

/// Runs the world until Ctrl-C.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    if options.list_faults {
        list_faults();
        return Ok(ExitCode::SUCCESS);
    }
    anyhow::ensure!(
        options.speed.is_finite() && options.speed > 0.0,
        "--speed {}: it must be a number above 0",
        options.speed
    );
    let config = WorldConfig {
        machines: Some(options.machines),
        manifests: options.manifest,
        sets: manifest::sets(&options.sets)?,
        faults: options.faults,
        seed: options.seed,
        pace: Pace::times_faster(options.speed),
        listen: Some(options.listen),
        ..WorldConfig::default()
    };
    let world = World::start(config).await?;
    world
        .write_kubeconfig(&options.kubeconfig)
        .with_context(|| format!("cannot write {}", options.kubeconfig.display()))?;
    println!("A simulated cluster at {}, {} times as fast as life.", world.api_url, options.speed);
    println!(
        "It imitates the Machine API, nodes, pods, budgets and certificates; nothing in it is real."
    );
    println!("Its Windows machines boot, answer SSH on loopback, and wait to be configured.");
    println!(
        "\n  kubectl --kubeconfig {} get machinesets,machines,nodes -A\n",
        options.kubeconfig.display()
    );
    println!("Ctrl-C ends it.");
    tokio::signal::ctrl_c().await?;
    world.stop();
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn list_faults() {
    for fault in Fault::ALL {
        println!("{:24} {}", fault.name(), fault.about());
    }
}
