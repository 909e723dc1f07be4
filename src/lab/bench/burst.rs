//! `dormer bench burst`: many machines appear at once, before real engines on NATS; then nothing happens for a while.

use super::{
    calibration::{Calibration, calibrate},
    engines::{Streams, WARM_UP},
};
use anyhow::{Context, ensure};
use clap::Args;
use dormer_engine::port::{HistoryReader, Inbox, Ports};
use dormer_engine_core::{InboxMessageOf, Workflow};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, RunId},
    machine::{self, MachineFact, MachineRef, Owner},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
    subject::Names,
    work::{Fact, machine_run},
};
use dormer_run::usage_error::checked;
use dormer_workflows::Dormer;
use futures::StreamExt;
use serde::Serialize;
use std::{
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
    time::{MissedTickBehavior, interval},
};

/// Facts of one publish.
const BATCH: usize = 1_024;
/// Interval at which decisions are counted.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// Longest time until every machine is decided.
const DECIDED_MAX: Duration = Duration::from_secs(600);
/// Heads of one page.
const PAGE: usize = 5_000;
/// Time in which timers and changes that follow the burst end. Nothing is counted in it.
const REST: Duration = Duration::from_secs(30);

/// Arguments of the benchmark.
#[derive(Debug, Args)]
pub struct Options {
    /// Server, where the bench creates and deletes its own streams
    #[arg(long, value_name = "nats://HOST:PORT")]
    store: String,
    /// Monitoring page of the server, to count what it receives while nothing happens
    #[arg(long, value_name = "http://HOST:PORT")]
    monitor: Option<String>,
    /// Engines: processes of `dormer run --role engine`
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    engines: u16,
    /// Machines that appear at once
    #[arg(long, default_value_t = 20_000)]
    machines: usize,
    /// Machines have no address yet, so that nothing can be done to them
    #[arg(long)]
    without_addresses: bool,
    /// Duration of the count while nothing happens, in seconds
    #[arg(long, default_value_t = 0)]
    idle: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    engines: u16,
    machines: usize,
    /// Time until every fact was in the inbox, and until every machine was decided: it has a record, and with an
    /// address an order of its first task.
    put_s: f64,
    decided_s: f64,
    /// Batches of facts that the inbox refused, and that were sent again.
    refused: u64,
    /// Most memory of one engine.
    engine_rss_mib_max: f64,
    idle: Option<Idle>,
    calibration: Calibration,
}

/// What engines cost while nothing happens.
#[derive(Debug, Serialize)]
struct Idle {
    seconds: f64,
    /// Messages that the server received in a minute, of all engines: requests, acknowledgements, heartbeats.
    messages_per_minute: f64,
    /// Those of them that are heartbeats between engines, which have no answer.
    heartbeats_per_minute: f64,
    /// Processors in use by all engines.
    cores: f64,
}

/// Runs the benchmark and prints its figures.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    if options.idle > 0 && options.monitor.is_none() {
        let why = "--idle counts what the server received: give --monitor http://HOST:PORT";
        return checked(Err(anyhow::anyhow!(why)));
    }
    let calibration = calibrate(&std::env::temp_dir())?;
    let streams = Streams::make(&options.store, false).await?;
    let figures = measure(&options, &streams, calibration).await;
    streams.delete().await?;
    print(&figures?, options.json)?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(
    options: &Options,
    streams: &Streams,
    calibration: Calibration,
) -> anyhow::Result<Figures> {
    let start = |_| engine(&options.store, &streams.prefix);
    let engines = (0..options.engines).map(start);
    let engines = engines.collect::<anyhow::Result<Vec<Child>>>()?;
    tokio::time::sleep(WARM_UP).await;
    let incarnation = streams.store.incarnation();
    let facts = (0..options.machines).map(|at| fact(incarnation, at, !options.without_addresses));
    let facts = facts.collect::<anyhow::Result<Vec<_>>>()?;
    let begun = Instant::now();
    let mut refused = 0;
    for batch in facts.chunks(BATCH) {
        while streams.store.inbox().put(batch.to_vec()).await.is_err() {
            refused += 1;
            ensure!(begun.elapsed() < DECIDED_MAX, "the inbox takes nothing");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let put_s = begun.elapsed().as_secs_f64();
    let mut poll = interval(POLL_EVERY);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        poll.tick().await;
        let decided = decided(options, streams).await?;
        if decided >= options.machines {
            break;
        }
        let waited = begun.elapsed();
        ensure!(
            waited < DECIDED_MAX,
            "{decided} machines decided in {waited:?}"
        );
    }
    let decided_s = begun.elapsed().as_secs_f64();
    let idle = match &options.monitor {
        Some(monitor) if options.idle > 0 => {
            Some(idle(options, monitor, &streams.prefix, &engines).await?)
        }
        _ => None,
    };
    let sizes = engines.iter().map(|engine| of_process(engine, "VmHWM:"));
    Ok(Figures {
        engines: options.engines,
        machines: options.machines,
        put_s,
        decided_s,
        refused,
        engine_rss_mib_max: sizes.fold(0.0, f64::max) / 1_024.0,
        idle,
        calibration,
    })
}

/// Starts an engine.
fn engine(url: &str, prefix: &str) -> anyhow::Result<Child> {
    let listen = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([
            "run",
            "--role",
            "engine",
            "--store",
            url,
            "--nats-prefix",
            prefix,
        ])
        .args(["--nats-insecure", "--nats-accept-lazy-sync"])
        .args(["--listen", &listen.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command.spawn().context("an engine cannot be started")
}

/// Number of machines that are decided.
async fn decided(options: &Options, streams: &Streams) -> anyhow::Result<usize> {
    if !options.without_addresses {
        let js = async_nats::jetstream::new(async_nats::connect(&options.store).await?);
        let names = Names::with_prefix(&streams.prefix);
        let orders = js.get_stream(names.task_stream()).await?;
        let orders = orders.cached_info().state.messages;
        // One message is the canary of the stream.
        return Ok(usize::try_from(orders.saturating_sub(1))?);
    }
    let mut count = 0;
    let mut after: Option<RunId> = None;
    loop {
        let page = streams.store.reader().heads(after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(count);
        };
        after = Some(last.run.clone());
        count += page.len();
    }
}

/// Fact about a machine, as a watcher sends it.
fn fact(ours: Incarnation, at: usize, address: bool) -> anyhow::Result<(RunId, Vec<u8>)> {
    let uid = format!("{at:08x}-9003-49ff-8ec4-b416090ac595");
    let name = format!("demo-x7k2p-windows-worker-us-east-1a-{at:05}");
    let [_, _, high, low] = u32::try_from(at)?.to_be_bytes();
    let fact = MachineFact {
        machine: MachineRef {
            namespace: "openshift-machine-api".into(),
            name,
            uid: uid.clone(),
            ..MachineRef::default()
        },
        phase: Some("Provisioned".into()),
        addresses: address
            .then(|| format!("10.0.{high}.{low}"))
            .into_iter()
            .collect(),
        owner: Some(Owner {
            kind: "MachineSet".into(),
            name: "demo-x7k2p-windows-worker-us-east-1a".into(),
            uid: "0d0c3a52-3c1a-4f51-8f0a-2f0a7c1d9e11".into(),
        }),
        platform: "AWS".into(),
        ..MachineFact::default()
    };
    let observed = Observation {
        object: ObjectRef {
            cluster: String::new(),
            kind: "Machine".into(),
            uid: uid.clone(),
        },
        version: Version {
            epoch: Epoch(1),
            resource: 1,
        },
        fact: Some(Fact::Machine(machine::Fact::Machine(fact))),
        may_start: true,
    };
    let message: InboxMessageOf<Dormer> = InboxMessage {
        run: machine_run(&uid)?,
        incarnation: Some(ours),
        body: Inbound::Observed(observed),
    };
    let (bytes, _) = envelope::encode(&message, Dormer::SCHEMA)?;
    Ok((message.run, bytes))
}

/// Counts what the server receives while nothing happens.
async fn idle(
    options: &Options,
    monitor: &str,
    prefix: &str,
    engines: &[Child],
) -> anyhow::Result<Idle> {
    tokio::time::sleep(REST).await;
    let client = async_nats::connect(&options.store).await?;
    let beats = client.subscribe(Names::with_prefix(prefix).engines());
    let beats = beats.await?;
    client.flush().await?;
    let cpu = || engines.iter().map(cpu_ticks).sum::<f64>() / 100.0;
    let begun = Instant::now();
    let messages = received(monitor).await?;
    let used = cpu();
    let end = tokio::time::sleep(Duration::from_secs(options.idle));
    let heartbeats = beats.take_until(end).count().await;
    let messages = received(monitor).await? - messages;
    let seconds = begun.elapsed().as_secs_f64();
    let a_minute = |count: f64| count * 60.0 / seconds;
    Ok(Idle {
        seconds,
        messages_per_minute: a_minute(messages),
        heartbeats_per_minute: a_minute(f64::from(u32::try_from(heartbeats)?)),
        cores: (cpu() - used) / seconds,
    })
}

/// Messages that the server received from clients so far.
async fn received(monitor: &str) -> anyhow::Result<f64> {
    let host = monitor.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).await?;
    let request = format!("GET /varz HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (_, body) = text.split_once("\r\n\r\n").context("no page")?;
    let page: serde_json::Value = serde_json::from_str(body)?;
    page["in_msgs"].as_f64().context("a page without in_msgs")
}

/// Value of a line in `/proc/PID/status`, in KiB.
fn of_process(child: &Child, line: &str) -> f64 {
    let id = child.id().unwrap_or_default();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let value = status.lines().find_map(|it| it.strip_prefix(line));
    let value = value.and_then(|it| it.split_whitespace().next());
    value.and_then(|it| it.parse().ok()).unwrap_or_default()
}

/// Processor time of a process, in hundredths of a second.
fn cpu_ticks(child: &Child) -> f64 {
    let id = child.id().unwrap_or_default();
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace().skip(11).take(2);
    fields.filter_map(|it| it.parse::<f64>().ok()).sum()
}

fn print(figures: &Figures, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    println!(
        "{} engines; {} machines at once",
        figures.engines, figures.machines
    );
    println!(
        "{:12.1} s until all were in the inbox; {} refusals",
        figures.put_s, figures.refused
    );
    println!("{:12.1} s until all were decided", figures.decided_s);
    println!(
        "{:12.0} MiB at most in one engine",
        figures.engine_rss_mib_max
    );
    if let Some(idle) = &figures.idle {
        println!(
            "{:12.0} messages a minute while nothing happens, {:.0} of them heartbeats; {:.3} cores",
            idle.messages_per_minute, idle.heartbeats_per_minute, idle.cores
        );
    }
    println!(
        "machine: {:.0} fdatasync/s, {:.0} cpu loops/s",
        figures.calibration.fdatasync_per_s, figures.calibration.cpu_loops_per_s
    );
    Ok(())
}
