//! Engines of the bench as processes of their own, and the streams on NATS that they share.

use crate::usage::cpu_seconds;
use anyhow::{Context, ensure};
use dormer_engine::{
    any::AnyPorts,
    engine,
    nats::{self, NatsStore},
    shard::Counters,
};
use dormer_nats::signing::{Keys, make};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
    sync::watch,
};

/// Time after the start in which engines distribute the partitions of the inbox. Nothing is measured in it.
pub(super) const WARM_UP: Duration = Duration::from_secs(5);

/// Role of the bench's engines and of its load. An engine's key signs what any other sends.
const ROLE: &str = "engine";

/// Streams of the bench on a server, with a prefix of their own.
pub(super) struct Streams {
    /// Store of this process.
    pub(super) store: Arc<NatsStore>,
    /// Prefix of streams and subjects.
    pub(super) prefix: String,
    url: String,
    /// Folder with the keys that sign every message; none: messages are not signed.
    keys: Option<PathBuf>,
}

impl Streams {
    /// Makes the streams at `url`. With `signed`, every message on them has a signature.
    pub(super) async fn make(url: &str, signed: bool) -> anyhow::Result<Self> {
        let prefix = format!("bench-{:08x}", rand::random::<u32>());
        let folder = std::env::temp_dir().join(format!("dormer-{prefix}"));
        let keys = signed.then_some(folder);
        if let Some(folder) = &keys {
            make(folder, &[ROLE], None)?;
        }
        let store = open(url, &prefix, keys.as_deref()).await?;
        Ok(Self {
            store,
            prefix,
            url: url.to_owned(),
            keys,
        })
    }

    /// Deletes them.
    pub(super) async fn delete(self) -> anyhow::Result<()> {
        self.store.close().await;
        if let Some(folder) = &self.keys {
            std::fs::remove_dir_all(folder)?;
        }
        let js = async_nats::jetstream::new(async_nats::connect(&self.url).await?);
        let names: Vec<String> = js.stream_names().try_collect().await?;
        for name in names
            .into_iter()
            .filter(|name| name.starts_with(&self.prefix))
        {
            js.delete_stream(name).await?;
        }
        Ok(())
    }
}

async fn open(url: &str, prefix: &str, keys: Option<&Path>) -> anyhow::Result<Arc<NatsStore>> {
    let keys = keys.map(|folder| Keys::open(folder, &[ROLE], false));
    let settings = nats::Options {
        servers: url.to_owned(),
        prefix: Some(prefix.to_owned()),
        durability: nats::Durability::LazyAccepted,
        keys: keys.transpose()?.map(Arc::new),
        ..nats::Options::default()
    };
    Ok(Arc::new(NatsStore::open(&settings).await?))
}

/// Figures of one engine, reported at its end.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct EngineFigures {
    records: u64,
    conflicts: u64,
    dropped: u64,
    cpu_seconds: f64,
    /// Whether it takes signed messages alone.
    signed: bool,
}

/// What all engines did.
#[derive(Debug, Clone, Default)]
pub(super) struct AllEngineFigures(Vec<EngineFigures>);

/// Figures of several engines.
#[derive(Debug, Clone, Serialize)]
pub(super) struct EnginesFigures {
    /// Engines that ended by themselves.
    pub(super) count: usize,
    /// Records and conflicts of all engines for each message that the load sent. 1 is one append for each message; a
    /// record that holds several messages makes it less, a race between engines more.
    pub(super) appends_per_message: f64,
    /// Appends for which another engine was faster.
    pub(super) conflicts: u64,
    /// Messages that the engines dropped: repeats.
    pub(super) dropped: u64,
    /// Records of each engine, ascending.
    pub(super) records: Vec<u64>,
    /// Processors in use by all engines.
    pub(super) cpu_cores: f64,
    /// Whether each of them took signed messages alone.
    pub(super) signed: bool,
}

impl AllEngineFigures {
    /// Figures of a load of `messages` in `span`.
    pub(super) fn figures(mut self, messages: u64, span: Duration) -> EnginesFigures {
        self.0.sort_unstable_by_key(|done| done.records);
        let sum = |of: fn(&EngineFigures) -> u64| self.0.iter().map(of).sum::<u64>();
        let conflicts = sum(|done| done.conflicts);
        let appends = sum(|done| done.records) + conflicts;
        EnginesFigures {
            count: self.0.len(),
            appends_per_message: appends as f64 / messages.max(1) as f64,
            conflicts,
            dropped: sum(|done| done.dropped),
            records: self.0.iter().map(|done| done.records).collect(),
            cpu_cores: self.0.iter().map(|done| done.cpu_seconds).sum::<f64>() / span.as_secs_f64(),
            signed: self.0.iter().all(|done| done.signed),
        }
    }
}

impl fmt::Display for EnginesFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:12} engines, {:.2} cores, messages {}, records of each: {:?}",
            self.count,
            self.cpu_cores,
            if self.signed { "signed" } else { "not signed" },
            self.records
        )?;
        write!(
            f,
            "{:12.3} appends per message, {} conflicts, {} repeats dropped",
            self.appends_per_message, self.conflicts, self.dropped
        )
    }
}

/// Engines as child processes. They end with this process, because their standard input does.
pub(super) struct Engines(Vec<Child>);

impl Engines {
    /// Starts `count` engines on these streams.
    pub(super) fn start(count: u16, streams: &Streams, shards: usize) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?;
        let start = |_| {
            let mut engine = Command::new(&program);
            engine
                .args(["bench", "engine", "--store", &streams.url])
                .args(["--engine-on", &streams.prefix])
                .args(["--shards", &shards.to_string()]);
            if let Some(folder) = &streams.keys {
                engine.arg("--engine-keys").arg(folder);
            }
            engine
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .context("an engine cannot be started")
        };
        Ok(Self((0..count).map(start).collect::<anyhow::Result<_>>()?))
    }

    /// Kills one engine with SIGKILL.
    pub(super) async fn kill_one(&mut self) -> anyhow::Result<()> {
        let mut child = self.0.pop().context("no engine is left")?;
        child.kill().await.context("the engine cannot be killed")
    }

    /// Sends one engine a signal by its name: `STOP` freezes it, `CONT` thaws it.
    pub(super) async fn signal_one(&self, name: &str) -> anyhow::Result<()> {
        let id = self.0.last().and_then(Child::id);
        let id = id.context("no engine is left")?.to_string();
        let done = Command::new("kill").args(["-s", name, &id]).status().await;
        let done = done.context("kill cannot be started")?;
        ensure!(done.success(), "kill -s {name} {id}: {done}");
        Ok(())
    }

    /// Stops the engines that are left.
    pub(super) async fn stop(self) -> anyhow::Result<AllEngineFigures> {
        let mut all = Vec::new();
        for mut child in self.0 {
            drop(child.stdin.take());
            let mut text = String::new();
            if let Some(mut out) = child.stdout.take() {
                out.read_to_string(&mut text).await?;
            }
            let ended = child.wait().await?;
            ensure!(ended.success(), "an engine failed: {ended}");
            all.push(serde_json::from_str(&text).context("an engine told no figures")?);
        }
        Ok(AllEngineFigures(all))
    }
}

/// Runs as an engine until the standard input ends, and prints its figures.
pub(super) async fn serve(
    url: &str,
    prefix: &str,
    shards: usize,
    keys: Option<&Path>,
) -> anyhow::Result<()> {
    let store = open(url, prefix, keys).await?;
    let (stop, stopped) = watch::channel(false);
    let settings = engine::Options {
        shards,
        ..engine::Options::default()
    };
    let ports = AnyPorts::nats(Arc::clone(&store));
    let engine = tokio::spawn(dormer_load::engine(ports, settings, stopped));
    let until_end = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    tokio::task::spawn_blocking(until_end).await??;
    stop.send_replace(true);
    let Counters {
        records,
        conflicts,
        dropped,
        ..
    } = engine.await??;
    store.close().await;
    let done = EngineFigures {
        records,
        conflicts,
        dropped,
        cpu_seconds: cpu_seconds(),
        signed: keys.is_some(),
    };
    println!("{}", serde_json::to_string(&done)?);
    Ok(())
}
