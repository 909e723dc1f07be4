//! `dormer fleet`: simulated cluster as a process of its own, for `kubectl` and for dormer's roles.

use anyhow::Context;
use clap::Args;
use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{Meta as _, Object, kinds},
    faults::{self, Aim, FaultOrder},
    manifest,
    world::{SSH_PORT, Tally, WorldError},
};
use dormer_profile::payload::MANIFEST_FILE;
use dormer_run::{outside::StopSignals, usage_error::checked};
use dormer_workers::kubernetes::keys::VERSION;
use futures::future::LocalBoxFuture;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};
use tokio::io::AsyncWriteExt;

/// Initial pool.
const POOL: &str = include_str!("../../deploy/pool.yaml");

/// Arguments of `dormer fleet`.
#[derive(Debug, Args)]
pub struct Options {
    /// Windows machines, spread over the Windows MachineSets
    #[arg(long, default_value_t = 3)]
    machines: u32,
    /// Manifest with MachineSets instead of the built-in ones (may be given several times)
    #[arg(long)]
    manifest: Vec<PathBuf>,
    /// Value of a placeholder in the manifests: KEY=VALUE (may be given several times)
    #[arg(long = "set")]
    sets: Vec<String>,
    /// Faults, comma-separated or in several flags, such as disk-full=1,dead=2: `NAME[=MACHINES][xTIMES][@MACHINE]`
    ///
    /// MACHINES: how many machines are struck, 1 if not given. TIMES: how often each of them. MACHINE: which one, by its
    /// number in the order in which machines are made, by the beginning of its name, or * for all. --list-faults has the names.
    #[arg(long, alias = "fault", value_delimiter = ',')]
    faults: Vec<String>,
    /// List the available faults, and exit
    #[arg(long)]
    list_faults: bool,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds of the simulated world per real second
    #[arg(long, default_value_t = 10.0)]
    speed: f64,
    /// Listening address of the API server
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// File to write the kubeconfig to
    #[arg(long, default_value = "dormer-fleet.kubeconfig")]
    kubeconfig: PathBuf,
    /// Folder to write simulated payloads to, for `dormer run --payload`
    #[arg(long, value_name = "DIR")]
    payload: Option<PathBuf>,
    /// File to write the stand-in for dormer-host.exe to, which simulated hosts take for it; for `dormer run
    /// --host-program` [default: with --payload, dormer-host.exe beside the kubeconfig]
    #[arg(long, value_name = "FILE")]
    host_program: Option<PathBuf>,
}

/// Summary of the world, printed at its end as one line of JSON.
#[derive(Debug, Serialize)]
struct Account {
    /// Most nodes out of service at one moment after they had served.
    max_unavailable_observed: usize,
    /// Names of those nodes.
    max_unavailable_nodes: Vec<String>,
    /// Nodes that serve at the end.
    serving: usize,
    /// Nodes at the end by the version that dormer wrote on them.
    versions: BTreeMap<String, usize>,
    /// Changes that more than one attempt of a task made on a host, by Machine, as `TASK ITEM`. Empty is correct.
    changed_twice: BTreeMap<String, Vec<String>>,
    /// Commands that Windows hosts do not know.
    unknown_commands: u64,
    /// Number of events by kind.
    #[serde(flatten)]
    tally: Tally,
}

impl Account {
    fn of(world: &World) -> Self {
        let mut account = Self {
            max_unavailable_observed: world.record.max_unavailable_observed(),
            max_unavailable_nodes: world.record.max_unavailable_nodes(),
            serving: world.record.serving_now(),
            versions: BTreeMap::new(),
            changed_twice: BTreeMap::new(),
            unknown_commands: 0,
            tally: world.record.tally(),
        };
        for node in world.all(&kinds::NODE) {
            if let Some(version) = node.value["metadata"]["annotations"][VERSION].as_str() {
                *account.versions.entry(version.to_owned()).or_default() += 1;
            }
        }
        for (machine, counts) in world.hosts.iter().flat_map(|hosts| hosts.counts()) {
            account.unknown_commands += counts.unknown_commands;
            let twice = counts.changed_twice();
            if !twice.is_empty() {
                let twice = twice
                    .into_iter()
                    .map(|(task, item)| format!("{task} {item}"));
                account
                    .changed_twice
                    .entry(machine)
                    .or_default()
                    .extend(twice);
            }
        }
        account
    }
}

/// Runs the world until Ctrl-C or SIGTERM, then prints its summary.
pub fn run(options: Options) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    // Boxed here, so that this package compiles the future and its callers do not compile it again.
    Box::pin(run_until_stopped(options))
}

async fn run_until_stopped(options: Options) -> anyhow::Result<ExitCode> {
    if options.list_faults {
        list_faults();
        return Ok(ExitCode::SUCCESS);
    }
    checked(check(&options))?;
    checked(check_faults(&options.faults))?;
    let orders = options.faults;
    let config = WorldConfig {
        machines: Some(options.machines),
        manifests: options.manifest,
        sets: checked(manifest::sets(&options.sets))?,
        faults: orders.clone(),
        seed: options.seed,
        pace: Pace::times_faster(options.speed),
        listen: Some(options.listen),
        ..WorldConfig::default()
    };
    let world = started(config).await?;
    checked(check_aims(&world, &orders))?;
    if world.all(&kinds::WINDOWS_POOL).is_empty() {
        // Creates the pool as a person would: without one nothing is upgraded.
        let pool = dormer_profile::yaml::documents(POOL)?;
        for mut pool in pool {
            pool["metadata"]["namespace"] = "dormer".into();
            world.create(pool)?;
        }
    }
    world
        .write_kubeconfig(&options.kubeconfig)
        .with_context(|| format!("cannot write {}", options.kubeconfig.display()))?;
    println!(
        "A simulated cluster at {}, {} times as fast as real time.",
        world.api_url, options.speed
    );
    println!(
        "It imitates the Machine API, nodes, pods, budgets and certificates; nothing in it is real."
    );
    println!("Its Windows machines boot, answer SSH on loopback, and wait to be configured.");
    println!(
        "\n  kubectl --kubeconfig {} get machinesets,machines,nodes -A\n",
        options.kubeconfig.display()
    );
    let beside = options.kubeconfig.with_file_name("dormer-host.exe");
    let program = options.host_program.as_ref();
    let program = program.or_else(|| options.payload.as_ref().map(|_| &beside));
    if let Some(file) = program {
        let written = tokio::fs::write(file, dormer_fleet::host::stand_in()).await;
        written.with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let (Some(folder), Some(program)) = (&options.payload, program) {
        write_payload(&folder.join("11.0.0"), 0).await?;
        write_payload(&folder.join("later").join("11.1.0"), 1).await?;
        let kubeconfig = options.kubeconfig.display();
        let folder = folder.display();
        let program = program.display();
        println!(
            "dormer turns them into nodes, and upgrades them when the second payload appears:\n"
        );
        // The path as typed, because dormer may not be in PATH.
        let dormer = std::env::args().next().unwrap_or_else(|| "dormer".into());
        println!(
            "  {dormer} run --kubeconfig {kubeconfig} --payload {folder} --payload-unsigned --host-program {program} \
             --ssh-port {SSH_PORT}\n  mv {folder}/later/11.1.0 {folder}/\n"
        );
    }
    println!("Ctrl-C ends it, and prints one line of JSON about what happened in the world.");
    StopSignals::listen()?.next().await;
    let account = Account::of(&world);
    world.stop();
    println!("{}", serde_json::to_string(&account)?);
    Ok(ExitCode::SUCCESS)
}

fn check(options: &Options) -> anyhow::Result<()> {
    anyhow::ensure!(
        options.speed.is_finite() && options.speed > 0.0,
        "--speed {}: it must be a number above 0",
        options.speed
    );
    Ok(())
}

/// The world, where a manifest or a fault that cannot be used is a mistake on the command line.
pub(crate) async fn started(config: WorldConfig) -> anyhow::Result<World> {
    match World::start(config).await {
        Err(error @ (WorldError::Manifest(_) | WorldError::Fault(_) | WorldError::NoMachines)) => {
            checked(Err(error))
        }
        world => Ok(world?),
    }
}

/// Writes the demonstration's payload number `n` as a folder, and replaces an existing one.
async fn write_payload(folder: &Path, n: usize) -> anyhow::Result<()> {
    let payload = crate::payload::payload(n);
    let failed = || format!("cannot write the payload {}", folder.display());
    tokio::fs::create_dir_all(folder)
        .await
        .with_context(failed)?;
    for file in &payload.manifest.files {
        let mut bytes = payload.open(&file.name).await?;
        let mut written = tokio::fs::File::create(folder.join(&file.name)).await?;
        tokio::io::copy(&mut bytes, &mut written)
            .await
            .with_context(failed)?;
        written.flush().await.with_context(failed)?;
    }
    // The manifest is written last: a folder without one is no payload yet.
    let text = dormer_profile::yaml::to_string(&payload.manifest)?;
    tokio::fs::write(folder.join(MANIFEST_FILE), text)
        .await
        .with_context(failed)
}

/// Refuses an order of a fault that cannot be understood, before anything is started.
pub(crate) fn check_faults(orders: &[String]) -> anyhow::Result<()> {
    for order in orders {
        anyhow::ensure!(
            order != "none",
            "--faults: none stands alone, without other faults"
        );
        let FaultOrder { fault, .. } = order.parse()?;
        anyhow::ensure!(
            fault.can_be_ordered(),
            "--faults {order}: only dormer's own tests can bring that about\n--list-faults has the names"
        );
    }
    Ok(())
}

/// Refuses an order for a machine that no MachineSet of the world will ever have: it would strike nothing, without
/// a word.
pub(crate) fn check_aims(world: &World, orders: &[String]) -> anyhow::Result<()> {
    let name = |it: &std::sync::Arc<Object>| it.value.name().to_owned();
    let os = "machine.openshift.io/os-id";
    let labels = |it: &Object| it.value["spec"]["template"]["metadata"]["labels"].clone();
    let all = world.all(&kinds::MACHINE_SET);
    let windows = all.iter().filter(|it| labels(it)[os] == "Windows");
    let sets: Vec<String> = windows.map(name).collect();
    check_names(&sets, orders)
}

fn check_names(sets: &[String], orders: &[String]) -> anyhow::Result<()> {
    for order in orders {
        let Aim::Named(wanted) = order.parse::<FaultOrder>()?.aim else {
            continue;
        };
        let fits = |set: &String| {
            let begin = format!("{set}-");
            begin.starts_with(&wanted) || wanted.starts_with(&begin)
        };
        anyhow::ensure!(
            sets.iter().any(fits),
            "--faults {order}: no machine's name begins with {wanted:?}\nname it by its number, such as @3, or by the \
             beginning of its name: the MachineSets are {}",
            sets.join(", ")
        );
    }
    Ok(())
}

pub(crate) fn list_faults() {
    println!("{}", faults::listed());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_for_a_machine_that_can_never_be_is_refused() {
        let sets = ["demo-windows-a".to_owned(), "demo-windows-b".to_owned()];
        let refused = |order: &str| {
            let checked = check_names(&sets, &[order.to_owned()]);
            checked.err().map(|it| it.to_string())
        };
        for order in [
            "dead@demo-windows-a-x7k2p",
            "dead@demo",
            "dead@3",
            "dead@*",
            "dead=2",
        ] {
            assert_eq!(refused(order), None, "{order}");
        }
        let why = refused("dead@nosuch").expect("refused");
        assert!(
            why.contains("\"nosuch\"") && why.contains("demo-windows-a, demo-windows-b"),
            "{why}"
        );
    }
}
