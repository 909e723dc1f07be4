//! Bring-up over NATS with several worker processes of few slots each. Twice the processes should take half the time.

use crate::usage::cpu_seconds_of;
use anyhow::Context;
use dormer_client::server::Server;
use dormer_proto::phase::MachineState;
use dormer_views::machine::{Machine, Machines};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fs::File,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Speed of this world relative to real time. It is slow enough that two cores do not become the bottleneck.
const SPEED: f64 = 20.0;
/// Numbers of worker processes to measure.
const WORKERS: [u32; 3] = [1, 2, 4];
/// Time limit of one simulation.
const SIMULATION_MAX: Duration = Duration::from_secs(1_800);
/// Poll interval of dormer's API.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// Plan of the simulations, one for each number of workers.
pub(super) struct NatsPlan {
    pub(super) server: PathBuf,
    pub(super) machines: u32,
    pub(super) slots: usize,
}

/// Result of one simulation.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    workers: u32,
    slots_each: usize,
    /// Real seconds until all machines are Joined, in a world 20 times as fast as real time.
    seconds: f64,
    /// Speed relative to one worker.
    times_as_fast: f64,
    /// Processor seconds of each process, by its name.
    processor_seconds: BTreeMap<String, f64>,
}

impl Measured {
    pub(super) fn line(&self) -> String {
        let Self {
            workers,
            slots_each,
            seconds,
            times_as_fast,
            processor_seconds,
        } = self;
        let spent: Vec<String> = processor_seconds
            .iter()
            .map(|(name, seconds)| format!("{name} {seconds:.1}"))
            .collect();
        format!(
            "{workers} workers of {slots_each} slots over NATS: {seconds:.0} s, {times_as_fast:.2} times as fast as one; \
             processor seconds: {}",
            spent.join(", ")
        )
    }
}

/// Simulates with one, two and four workers.
pub(super) async fn simulate(plan: &NatsPlan) -> anyhow::Result<Vec<Measured>> {
    let mut all: Vec<Measured> = Vec::new();
    for workers in WORKERS {
        let (seconds, processor_seconds) = bring_up(plan, workers).await?;
        let first = all.first().map_or(seconds, |came| came.seconds);
        let times_as_fast = first / seconds;
        all.push(Measured {
            workers,
            slots_each: plan.slots,
            seconds,
            times_as_fast,
            processor_seconds,
        });
    }
    Ok(all)
}

/// Seconds until all machines are Joined, and the processor seconds of each process.
async fn bring_up(plan: &NatsPlan, workers: u32) -> anyhow::Result<(f64, BTreeMap<String, f64>)> {
    let scratch = ScratchFolder::make()?;
    let port = free_port()?;
    let folder = scratch.path("jetstream");
    let mut nats = Command::new(&plan.server);
    nats.args([
        "-a",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "-js",
        "-sd",
        &folder,
    ]);
    let mut running = vec![ChildProcess::start("nats-server", nats, &scratch)?];
    let kubeconfig = scratch.path("kubeconfig");
    let payloads = scratch.path("payloads");
    // The fleet writes it beside the kubeconfig.
    let host_program = scratch.path("dormer-host.exe");
    let console = format!("127.0.0.1:{}", free_port()?);
    let store = format!("nats://127.0.0.1:{port}");
    let dormer = |name: &str, listen: &str, role: &str| {
        let mut run = own();
        run.args([
            "run", "--name", name, "--role", role, "--listen", listen, "--store", &store,
        ]);
        run.args([
            "--kubeconfig",
            &kubeconfig,
            "--payload",
            &payloads,
            "--payload-unsigned",
            "--host-program",
            &host_program,
            "--ssh-port",
            "2222",
        ]);
        run.args(["--slots", &plan.slots.to_string()]);
        ChildProcess::start(name, run, &scratch)
    };
    let mut fleet = own();
    fleet.args([
        "fleet",
        "--machines",
        &plan.machines.to_string(),
        "--speed",
        &SPEED.to_string(),
    ]);
    fleet.args(["--kubeconfig", &kubeconfig, "--payload", &payloads]);
    running.push(ChildProcess::start("fleet", fleet, &scratch)?);
    scratch.until("fleet", "Ctrl-C ends it").await?;
    let begun = Instant::now();
    running.push(dormer(
        "dormer",
        &console,
        "watcher,engine,approver,console",
    )?);
    for n in 1..=workers {
        running.push(dormer(&format!("worker-{n}"), "127.0.0.1:0", "worker")?);
    }
    let server =
        Server::at(&format!("http://{console}")).map_err(|why| anyhow::anyhow!("{why}"))?;
    while joined(&server).await != plan.machines as usize {
        for process in &mut running {
            process.still_runs(&scratch)?;
        }
        anyhow::ensure!(
            begun.elapsed() < SIMULATION_MAX,
            "not all machines joined in time"
        );
        tokio::time::sleep(POLL_EVERY).await;
    }
    let spent = running.iter().map(|process| {
        let seconds = cpu_seconds_of(&process.child.id().to_string());
        (process.name.clone(), seconds)
    });
    Ok((begun.elapsed().as_secs_f64(), spent.collect()))
}

/// Number of Joined machines; 0 while the API does not answer.
async fn joined(server: &Server) -> usize {
    let Ok(machines) = server.get::<Machines>("/machines").await else {
        return 0;
    };
    let joined = |machine: &&Machine| machine.state == MachineState::Joined;
    machines.items.iter().filter(joined).count()
}

fn own() -> Command {
    Command::new(std::env::current_exe().unwrap_or_else(|_| "dormer".into()))
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Temporary folder, removed on drop.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn make() -> anyhow::Result<Self> {
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_nanos();
        let folder = std::env::temp_dir().join(format!("dormer-bench-{nanos}"));
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self(folder))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.0.join(name).with_extension("log")
    }

    async fn until(&self, name: &str, says: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !self.output_of(name).contains(says) {
            anyhow::ensure!(
                begun.elapsed() < Duration::from_secs(60),
                "{}",
                self.output_of(name)
            );
            tokio::time::sleep(POLL_EVERY).await;
        }
        Ok(())
    }

    fn output_of(&self, name: &str) -> String {
        std::fs::read_to_string(self.log(name)).unwrap_or_default()
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // A leftover is only a folder in the system's temporary one.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Child process, ended on drop.
struct ChildProcess {
    name: String,
    child: Child,
}

impl ChildProcess {
    fn start(name: &str, mut command: Command, scratch: &ScratchFolder) -> anyhow::Result<Self> {
        let log = File::create(scratch.log(name))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command
            .spawn()
            .with_context(|| format!("{name} cannot be started"))?;
        Ok(Self {
            name: name.into(),
            child,
        })
    }

    fn still_runs(&mut self, scratch: &ScratchFolder) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        anyhow::ensure!(
            ended.is_none(),
            "{} ended: {}",
            self.name,
            scratch.output_of(&self.name)
        );
        Ok(())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The given server program, if it exists.
pub(super) fn server(named: &Path) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(
        named.is_file(),
        "--nats-server {}: there is no such file",
        named.display()
    );
    Ok(named.to_owned())
}
