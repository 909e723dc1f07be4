//! `dormer bench fleet`: time until a whole fleet serves, on a virtual clock, so that processor time costs no
//! simulated time and the ratios measure waiting.

mod chaos;
mod over_nats;
#[cfg(test)]
mod scenarios;
mod stage;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use stage::{Measured, StagePlan};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, ExitCode},
};

/// Most bring-ups of one machine on the idle system. Their mean divides every ratio.
const ALONE_MAX: u32 = 100;
/// Fewest of them.
const ALONE_LEAST: u32 = 10;
/// Machines in the part over real sockets and the real clock.
const REAL_MACHINES: u32 = 50;
/// Nodes that may be taken at once: the default of `maxUnavailable`, which the bench's pool does not set.
const TAKEN_MAX: usize = 1;
/// WMCO's remote work for one fresh node (docs/field-notes.md, What a bring-up by WMCO costs): commands run one after
/// another, most of them PowerShell.
const WMCO_COMMANDS: f64 = 84.0;
/// Duration of one of those commands in seconds (assumed: a PowerShell start takes 400 to 800 ms).
const WMCO_COMMAND_S: f64 = 0.6;
/// Time that WMCO loses per node to its own polling, in seconds (the same notes: 75 to 120 s).
const WMCO_POLLING_S: f64 = 97.0;

/// Arguments of the benchmark.
#[derive(Debug, Args)]
pub struct Options {
    /// Windows machines
    #[arg(long, default_value_t = 100)]
    machines: u32,
    /// Share of the machines whose hosts never answer, 0 to 0.9
    #[arg(long, default_value_t = 0.1)]
    dead: f64,
    /// Machines upgraded one after another, to measure the gap between two upgrades
    #[arg(long, default_value_t = 10)]
    upgrades: u32,
    /// Skip the part over real sockets and the real clock
    #[arg(long)]
    virtual_only: bool,
    /// Attempts that the single worker executes at once
    #[arg(long, default_value_t = 2_000)]
    slots: usize,
    /// A nats-server program; also measure the bring-up over NATS with 1, 2 and 4 worker processes
    #[arg(long, value_name = "FILE")]
    nats_server: Option<PathBuf>,
    /// Attempts that each of those worker processes executes at once
    #[arg(long, default_value_t = 2)]
    worker_slots: usize,
    /// Play what other people and the network do to a fleet for days, by seed, and nothing else; fail if more serving
    /// nodes are taken at once than the limit allows
    #[arg(long)]
    trouble: bool,
    /// With --trouble: number of seeds
    #[arg(long, default_value_t = 15, requires = "trouble")]
    seeds: u64,
    /// With --trouble: first seed
    #[arg(long, default_value_t = 1, requires = "trouble")]
    first_seed: u64,
    /// With --trouble: simulated days of each seed
    #[arg(long, default_value_t = 2, requires = "trouble")]
    days: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    machines: u32,
    one_machine_s: f64,
    makespan_s: f64,
    makespan_ratio: f64,
    /// The slowest of the same number of machines, each alone: boots take 90 to 180 s in any case.
    slowest_alone_s: f64,
    makespan_ratio_to_slowest: f64,
    own_wait_share: f64,
    /// Parts of that share, in seconds per machine.
    own_wait_s: BTreeMap<&'static str, f64>,
    remote_commands_per_node: f64,
    powershell_starts_per_node: f64,
    sftp_sessions_per_node: f64,
    dead_share: f64,
    healthy_delay_share: Option<f64>,
    upgrade_gap_p99_s: Option<f64>,
    /// Most nodes that were taken at one moment, by the world's own record: nodes that served when an upgrade began on
    /// them, and were not back yet, nor replaced. The bench fails above `maxUnavailable`, which is 1.
    max_taken_observed: usize,
    /// A model, not a measurement: WMCO's work, one machine after another, with this world's latencies.
    wmco_model_makespan_ratio: f64,
    cpu_s_per_node: Option<f64>,
    rss_mib: Option<f64>,
    over_nats: Vec<over_nats::Measured>,
    /// Real seconds that the virtual part took.
    took_s: f64,
}

/// Runs the benchmark and prints its figures.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(options.machines > 0, "--machines 0: it must be at least 1");
    if options.trouble {
        return chaos::run(&options);
    }
    anyhow::ensure!(
        (0.0..=0.9).contains(&options.dead),
        "--dead {}: it must be between 0 and 0.9",
        options.dead
    );
    let real = if options.virtual_only {
        None
    } else {
        Some(over_sockets()?)
    };
    let over_nats = match &options.nats_server {
        None => Vec::new(),
        Some(server) => {
            let machines = options.machines;
            let slots = options.worker_slots;
            let server = over_nats::server(server)?;
            over_nats::simulate(&over_nats::NatsPlan {
                server,
                machines,
                slots,
            })
            .await?
        }
    };
    let figures = Figures {
        over_nats,
        ..measure(&options, real)?
    };
    print(&figures, options.json)?;
    let taken = figures.max_taken_observed;
    anyhow::ensure!(
        taken <= TAKEN_MAX,
        "{taken} nodes were taken at once, and at most {TAKEN_MAX} may be"
    );
    Ok(ExitCode::SUCCESS)
}

fn measure(options: &Options, real: Option<Real>) -> anyhow::Result<Figures> {
    let begun = std::time::Instant::now();
    let plan = |machines| StagePlan {
        machines,
        dead: 0,
        upgrade: false,
        slots: options.slots,
        seed: 1,
    };
    let mut alone = Vec::new();
    for seed in 1..=options.machines.clamp(ALONE_LEAST, ALONE_MAX) {
        alone.push(stage::simulate(StagePlan {
            seed: seed.into(),
            ..plan(1)
        })?);
    }
    let slowest = alone.iter().map(|came| came.makespan_s).fold(0.0, f64::max);
    let one = alone.iter().map(|came| came.makespan_s).sum::<f64>() / alone.len() as f64;
    let own_wait = alone.iter().map(|came| came.own_wait_share).sum::<f64>() / alone.len() as f64;
    let all = stage::simulate(plan(options.machines))?;
    let dead = (f64::from(options.machines) * options.dead).round() as u32;
    let with_dead = match dead {
        0 => None,
        dead => Some(stage::simulate(StagePlan {
            dead,
            ..plan(options.machines)
        })?),
    };
    let upgraded = match options.upgrades {
        0 => None,
        n => Some(stage::simulate(StagePlan {
            upgrade: true,
            ..plan(n)
        })?),
    };
    let simulated = [Some(&all), with_dead.as_ref(), upgraded.as_ref()];
    let taken = simulated.into_iter().flatten().map(|came| came.max_taken);
    Ok(Figures {
        max_taken_observed: taken.max().unwrap_or(0),
        machines: options.machines,
        one_machine_s: one,
        makespan_s: all.makespan_s,
        makespan_ratio: all.makespan_s / one,
        slowest_alone_s: slowest,
        makespan_ratio_to_slowest: all.makespan_s / slowest,
        own_wait_share: own_wait,
        own_wait_s: all.own_wait_s.clone(),
        remote_commands_per_node: all.remote_commands,
        powershell_starts_per_node: all.powershell_starts,
        sftp_sessions_per_node: all.sftp_sessions,
        dead_share: options.dead,
        healthy_delay_share: with_dead.map(|came| healthy_delay(&all, &came)),
        upgrade_gap_p99_s: upgraded.and_then(|came| came.gap_p99_s),
        wmco_model_makespan_ratio: wmco(&all, options.machines, one),
        cpu_s_per_node: real.as_ref().map(|real| real.cpu_s_per_node),
        rss_mib: real.as_ref().map(|real| real.rss_mib),
        over_nats: Vec::new(),
        took_s: begun.elapsed().as_secs_f64(),
    })
}

/// Mean delay of the healthy machines compared with a fleet without dead hosts.
fn healthy_delay(without: &Measured, with: &Measured) -> f64 {
    with.mean_join_s / without.mean_join_s - 1.0
}

/// Model of WMCO: machines boot in parallel, then each is configured alone: its commands, its polling, and the
/// world's own part.
fn wmco(all: &Measured, machines: u32, one: f64) -> f64 {
    let world = (one - all.boot_s).max(0.0);
    let each = world + WMCO_COMMANDS * WMCO_COMMAND_S + WMCO_POLLING_S;
    (all.boot_s + f64::from(machines) * each) / one
}

#[derive(Debug)]
struct Real {
    cpu_s_per_node: f64,
    rss_mib: f64,
}

/// Runs the demonstration in a child process: real sockets, the real clock, the embedded store.
fn over_sockets() -> anyhow::Result<Real> {
    let machines = REAL_MACHINES.to_string();
    let child = Command::new(std::env::current_exe()?)
        .args([
            "demo",
            "--machines",
            &machines,
            "--faults",
            "none",
            "--strategy",
            "in-place",
        ])
        .args(["--max-unavailable", &machines, "--json"])
        .output()?;
    let said = String::from_utf8_lossy(&child.stderr);
    anyhow::ensure!(
        child.status.success(),
        "the part over real sockets failed: {said}"
    );
    let text = String::from_utf8_lossy(&child.stdout);
    let last = text.lines().last().context("it said nothing")?;
    let outcome: serde_json::Value = serde_json::from_str(last)?;
    let number = |name: &str| {
        outcome[name]
            .as_f64()
            .with_context(|| format!("its answer has no number {name}"))
    };
    // Every machine was brought up once and configured again.
    let configured = 2.0 * f64::from(REAL_MACHINES);
    Ok(Real {
        cpu_s_per_node: number("cpu_s")? / configured,
        rss_mib: number("rss_mib")?,
    })
}

fn print(figures: &Figures, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    let line = |value: f64, what: &str| println!("{value:12.3} {what}");
    println!(
        "{} machines, virtual clock, {:.1} s of real time",
        figures.machines, figures.took_s
    );
    line(figures.one_machine_s, "s until one machine alone serves");
    line(figures.makespan_s, "s until all serve");
    line(figures.makespan_ratio, "times as long as one alone");
    line(
        figures.makespan_ratio_to_slowest,
        "times as long as the slowest of the same number, each alone",
    );
    line(
        figures.own_wait_share,
        "share of one machine's time spent waiting for dormer alone",
    );
    for (phase, seconds) in &figures.own_wait_s {
        line(*seconds, &format!("s of it per machine: {phase}"));
    }
    line(figures.remote_commands_per_node, "remote commands per node");
    line(
        figures.powershell_starts_per_node,
        "PowerShell starts per node",
    );
    line(figures.sftp_sessions_per_node, "SFTP sessions per node");
    if let Some(delay) = figures.healthy_delay_share {
        line(
            delay,
            &format!("later, with {} of the hosts dead", figures.dead_share),
        );
    }
    if let Some(gap) = figures.upgrade_gap_p99_s {
        line(
            gap,
            "s between one upgrade's end and the next one's start (p99)",
        );
    }
    println!(
        "{:12} nodes taken at once, at most, of {TAKEN_MAX} that may be",
        figures.max_taken_observed
    );
    line(
        figures.wmco_model_makespan_ratio,
        "times as long as one alone: a model of WMCO",
    );
    if let (Some(cpu), Some(rss)) = (figures.cpu_s_per_node, figures.rss_mib) {
        line(
            cpu,
            "processor seconds per node over real sockets, including the simulated world",
        );
        line(rss, "MiB resident, including the simulated world");
    }
    for came in &figures.over_nats {
        println!("{}", came.line());
    }
    Ok(())
}
