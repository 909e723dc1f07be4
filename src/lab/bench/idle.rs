//! `dormer bench idle`: memory of an idle run, and startup time of an engine with many of them.

use anyhow::Context;
use clap::Args;
use dormer_engine::{
    any::AnyPorts,
    embedded::{CACHE_BYTES_MAX, EmbeddedStore},
    engine,
    local::{Local, deliver_due_timers},
    port::{History, HistoryReader, Inbox, SystemClock},
};
use dormer_load::workflow::{Payload, WAITING};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, RunId},
    message::{Inbound, InboxMessage, NoSignal, ObjectRef, Observation, Version},
};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Messages put into the inbox at once.
const BATCH: u64 = 5_000;

/// Arguments of the benchmark.
#[derive(Debug, Args)]
pub struct Options {
    /// Runs that wait for a distant timer
    #[arg(long, default_value_t = 100_000)]
    runs: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Parent folder of the store
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Folder with such runs, to measure the start on it
    #[arg(long, hide = true)]
    start_on: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Figures {
    runs: u64,
    start_to_first_input_ms: f64,
    start_to_all_known_ms: f64,
    rss_before_mib: f64,
    rss_after_mib: f64,
    /// Growth of resident memory by an engine that knows every run, including its share of the store's page cache.
    bytes_per_idle_run: f64,
    /// Limit of the page cache, independent of the number of runs.
    page_cache_mib_max: f64,
}

/// Creates the runs, then measures in a child process with fresh memory.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &options.start_on {
        let figures = measure(folder, options.runs).await?;
        println!("{}", serde_json::to_string(&figures)?);
        return Ok(ExitCode::SUCCESS);
    }
    let base = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = base.join(format!("dormer-bench-idle-{}", std::process::id()));
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    make_runs(&folder, options.runs).await?;
    let child = Command::new(std::env::current_exe()?)
        .args([
            "bench",
            "idle",
            "--runs",
            &options.runs.to_string(),
            "--start-on",
        ])
        .arg(&folder)
        .output()?;
    std::fs::remove_dir_all(&folder).ok();
    let said = String::from_utf8_lossy(&child.stderr);
    anyhow::ensure!(
        child.status.success(),
        "the measuring process failed: {said}"
    );
    let figures: Figures = serde_json::from_slice(&child.stdout)?;
    print(&figures, options.json)?;
    Ok(ExitCode::SUCCESS)
}

fn print(figures: &Figures, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    println!("{} idle runs on the embedded store", figures.runs);
    println!(
        "{:12.0} ms from opening to the first new input",
        figures.start_to_first_input_ms
    );
    println!(
        "{:12.0} ms until every run's alarm is set again",
        figures.start_to_all_known_ms
    );
    let cache = figures.page_cache_mib_max;
    println!(
        "{:12.0} bytes of memory per idle run, including the page cache",
        figures.bytes_per_idle_run
    );
    println!("{cache:12.0} MiB of page cache at most, independent of the number of runs");
    Ok(())
}

type Ports = Local<EmbeddedStore>;

/// Running engine on the store in `folder`.
struct Engine {
    ports: Arc<Ports>,
    stop: watch::Sender<bool>,
    running: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Engine {
    fn start(folder: &Path) -> anyhow::Result<Self> {
        let store = Arc::new(EmbeddedStore::open(folder)?);
        let ports = Arc::new(Local::new(store, SystemClock));
        let (stop, stopped) = watch::channel(false);
        let own = Arc::clone(&ports);
        let running = tokio::spawn(async move {
            let incarnation = own.store.incarnation();
            let alarms = Arc::clone(&own.alarms);
            let inbox = Arc::clone(&own.inbox);
            let delivering =
                tokio::spawn(deliver_due_timers(alarms, inbox, SystemClock, incarnation));
            let ports = AnyPorts::embedded(&own);
            let result = dormer_load::engine(ports, engine::Options::default(), stopped).await;
            delivering.abort();
            result.map(drop).map_err(anyhow::Error::from)
        });
        Ok(Self {
            ports,
            stop,
            running,
        })
    }

    async fn end(self) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        self.running.await?
    }

    async fn known(&self, run: &RunId) -> anyhow::Result<bool> {
        let records = self
            .ports
            .store
            .records(run, dormer_proto::id::Seq(1), 1)
            .await?;
        Ok(!records.is_empty())
    }

    /// Waits until `done`.
    async fn until(&self, mut done: impl FnMut(&Ports) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(300);
        while !done(&self.ports) {
            anyhow::ensure!(Instant::now() < deadline, "the engine makes no progress");
            anyhow::ensure!(!self.running.is_finished(), "the engine ended");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        Ok(())
    }
}

async fn make_runs(folder: &Path, runs: u64) -> anyhow::Result<()> {
    let engine = Engine::start(folder)?;
    let incarnation = engine.ports.store.incarnation();
    let mut at = 0;
    while at < runs {
        let upto = (at + BATCH).min(runs);
        let messages = (at..upto).map(|n| message(n, incarnation));
        engine
            .ports
            .inbox
            .put(messages.collect::<anyhow::Result<_>>()?)
            .await?;
        engine
            .until(|ports| ports.inbox.depth() < BATCH as usize)
            .await?;
        at = upto;
    }
    engine.until(|ports| ports.inbox.depth() == 0).await?;
    engine.end().await
}

/// Starts an engine with one run first, so that its fixed cost is not measured.
async fn warm_up(folder: &Path) -> anyhow::Result<()> {
    let folder = folder.join("warm-up");
    std::fs::create_dir_all(&folder)?;
    make_runs(&folder, 1).await?;
    Ok(std::fs::remove_dir_all(&folder)?)
}

async fn measure(folder: &Path, runs: u64) -> anyhow::Result<Figures> {
    warm_up(folder).await?;
    let rss_before_mib = crate::usage::rss_mib();
    let start = Instant::now();
    let engine = Engine::start(folder)?;
    let (new, bytes) = message(runs, engine.ports.store.incarnation())?;
    engine.ports.inbox.put(vec![(new.clone(), bytes)]).await?;
    while !engine.known(&new).await? {
        anyhow::ensure!(
            start.elapsed() < Duration::from_secs(60),
            "the new run never began"
        );
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    let start_to_first_input_ms = start.elapsed().as_secs_f64() * 1_000.0;
    engine
        .until(|ports| ports.alarms.set_for() as u64 > runs)
        .await?;
    let start_to_all_known_ms = start.elapsed().as_secs_f64() * 1_000.0;
    let rss_after_mib = crate::usage::rss_mib();
    let bytes = (rss_after_mib - rss_before_mib).max(0.0) * 1_048_576.0;
    engine.end().await?;
    Ok(Figures {
        runs,
        start_to_first_input_ms,
        start_to_all_known_ms,
        rss_before_mib,
        rss_after_mib,
        bytes_per_idle_run: bytes / runs.max(1) as f64,
        page_cache_mib_max: CACHE_BYTES_MAX as f64 / 1_048_576.0,
    })
}

fn message(n: u64, incarnation: Incarnation) -> anyhow::Result<(RunId, Vec<u8>)> {
    let run = RunId::new(WAITING, &format!("{n:032x}"))?;
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Bench".into(),
        uid: run.key().into(),
    };
    let version = Version {
        epoch: Epoch(1),
        resource: 1,
    };
    let body: Inbound<u64, Payload, NoSignal> = Inbound::Observed(Observation {
        object,
        version,
        fact: Some(n),
        may_start: true,
    });
    let message = InboxMessage {
        run: run.clone(),
        incarnation: Some(incarnation),
        body,
    };
    Ok((run, envelope::encode(&message, 1)?.0))
}
