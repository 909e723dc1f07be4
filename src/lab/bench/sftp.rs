//! `dormer bench sftp`: dormer's uploader compared with OpenSSH's `sftp`, to a real sshd over a link with delay.

mod relay;
mod server;

use anyhow::{Context, ensure};
use clap::Args;
use dormer_profile::sha256_hex;
use dormer_workers::ssh::{Dialer, FILES_AT_ONCE, Key, Limits, Session, TcpDial, Upload, at_once};
use relay::Relay;
use serde::Serialize;
use server::Sshd;
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::process::Command;

const HERE: &str = "127.0.0.1";

/// Arguments of the benchmark.
#[derive(Debug, Args)]
pub struct Options {
    /// Total size in MiB
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    mib: u64,
    /// Files of equal size
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    files: u64,
    /// Round-trip time of the link, half in each direction; its rate is unlimited
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=5_000))]
    delay_ms: u64,
    /// Number of rounds in which both send everything, in turn
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Parent folder of both sides' files
    #[arg(long)]
    folder: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Figures {
    mib: u64,
    files: u64,
    delay_ms: u64,
    /// Description of the link.
    link: &'static str,
    openssh: String,
    /// Time of each round, from the connect to the last file in place.
    openssh_s: Vec<f64>,
    dormer_s: Vec<f64>,
    openssh_mib_per_s: f64,
    dormer_mib_per_s: f64,
    /// dormer's time divided by OpenSSH's: 1 is equal, less is faster.
    time_ratio: f64,
}

/// File that both sides copy.
struct SourceFile {
    path: PathBuf,
    name: String,
    size: u64,
    sha256: String,
}

/// Both sides of the link, and the relay between them.
struct TestLink {
    server: Sshd,
    relay: Relay,
    sources: Vec<SourceFile>,
    folder: PathBuf,
}

/// Runs the benchmark, and removes its files afterwards.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let base = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = base.join(format!("dormer-bench-sftp-{}", std::process::id()));
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let figures = measure(&options, &folder).await;
    std::fs::remove_dir_all(&folder).ok();
    print(&figures?, options.json)?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(options: &Options, folder: &Path) -> anyhow::Result<Figures> {
    let server = Sshd::start(folder).await?;
    let half = Duration::from_millis(options.delay_ms) / 2;
    let relay = Relay::before(server.port, half).await?;
    let sources = sources(options, folder)?;
    let stage = TestLink {
        server,
        relay,
        sources,
        folder: folder.to_path_buf(),
    };
    let mut openssh_s = Vec::new();
    let mut dormer_s = Vec::new();
    for round in 0..options.rounds {
        // The order alternates, because the disk may be busier for the first.
        for turn in [round % 2, (round + 1) % 2] {
            let into = folder.join(format!("to-{round}-{turn}"));
            std::fs::create_dir(&into)?;
            let begun = Instant::now();
            if turn == 0 {
                openssh(&stage, &into).await?;
                openssh_s.push(begun.elapsed().as_secs_f64());
            } else {
                dormer(&stage, &into).await?;
                dormer_s.push(begun.elapsed().as_secs_f64());
            }
            check(&stage.sources, &into)?;
            std::fs::remove_dir_all(&into)?;
        }
    }
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let theirs = mean(&openssh_s);
    let ours = mean(&dormer_s);
    Ok(Figures {
        mib: options.mib,
        files: options.files,
        delay_ms: options.delay_ms,
        link: "a relay that holds every byte for half of the delay each way, and limits no rate",
        openssh: stage.server.version.clone(),
        openssh_s,
        dormer_s,
        openssh_mib_per_s: options.mib as f64 / theirs,
        dormer_mib_per_s: options.mib as f64 / ours,
        time_ratio: ours / theirs,
    })
}

/// Files of incompressible bytes.
fn sources(options: &Options, folder: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let from = folder.join("from");
    std::fs::create_dir(&from)?;
    let size = (options.mib << 20) / options.files;
    let length = usize::try_from(size)?;
    (0..options.files)
        .map(|at| {
            let name = format!("file-{at:04}");
            let path = from.join(&name);
            let bytes = noise(at, length);
            std::fs::write(&path, &bytes)?;
            Ok(SourceFile {
                path,
                name,
                size,
                sha256: sha256_hex(&bytes),
            })
        })
        .collect()
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// OpenSSH's `sftp` with its defaults.
async fn openssh(stage: &TestLink, into: &Path) -> anyhow::Result<()> {
    let mut batch = String::new();
    for source in &stage.sources {
        writeln!(
            batch,
            "put {} {}/{}",
            source.path.display(),
            into.display(),
            source.name
        )?;
    }
    let file = stage.folder.join("batch");
    std::fs::write(&file, batch)?;
    let known = stage.folder.join("known");
    let port = stage.relay.port;
    std::fs::write(
        &known,
        format!("[{HERE}]:{port} {}\n", stage.server.host_key),
    )?;
    let output = Command::new("sftp")
        .args(["-q", "-F", "none", "-b"])
        .arg(&file)
        .args(["-P", &port.to_string(), "-i"])
        .arg(&stage.server.key_file)
        .args(["-o", "IdentitiesOnly=yes", "-o"])
        .arg(format!("UserKnownHostsFile={}", known.display()))
        .arg(format!("{}@{HERE}", stage.server.user))
        .kill_on_drop(true)
        .output()
        .await
        .context("OpenSSH's sftp cannot be started")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "OpenSSH's sftp failed: {}",
        said.trim()
    );
    Ok(())
}

/// dormer's uploader, with the checks that a worker makes before.
async fn dormer(stage: &TestLink, into: &Path) -> anyhow::Result<()> {
    let key = Key::read(&std::fs::read_to_string(&stage.server.key_file)?)?;
    let dialer: Dialer = Arc::new(TcpDial {
        port: stage.relay.port,
    });
    let pin = stage.server.host_key.as_str();
    let user = stage.server.user.as_str();
    let opened = Session::open(&dialer, HERE, user, Some(pin), &key, Limits::default());
    let session = opened.await?;
    let sftp = session.sftp().await?;
    let mut works = Vec::with_capacity(stage.sources.len());
    for source in &stage.sources {
        let sftp = &sftp;
        let path = into.join(&source.name).display().to_string();
        works.push(async move {
            ensure!(sftp.size(&path).await?.is_none(), "{path} already exists");
            let from = tokio::fs::File::open(&source.path).await?;
            let part = format!("{path}.1.part");
            let size = source.size;
            let sha256 = source.sha256.as_str();
            let what = Upload {
                path: &path,
                part: &part,
                size,
                sha256,
            };
            Ok(sftp.upload(what, from, |_| {}).await?)
        });
    }
    at_once(FILES_AT_ONCE, works).await
}

/// Checks that every file arrived intact.
fn check(sources: &[SourceFile], into: &Path) -> anyhow::Result<()> {
    for source in sources {
        let bytes = std::fs::read(into.join(&source.name))?;
        ensure!(
            sha256_hex(&bytes) == source.sha256,
            "{} was damaged in transit",
            source.name
        );
    }
    Ok(())
}

fn print(figures: &Figures, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    let Figures {
        mib,
        files,
        delay_ms,
        link,
        openssh,
        ..
    } = figures;
    println!("{mib} MiB in {files} files to {openssh}, {delay_ms} ms round trip ({link})");
    let line = |who: &str, rounds: &[f64], rate: f64| {
        let rounds: Vec<String> = rounds.iter().map(|s| format!("{s:.2} s")).collect();
        println!("{who:14} {:30} {rate:8.1} MiB/s", rounds.join(", "));
    };
    line(
        "OpenSSH's sftp",
        &figures.openssh_s,
        figures.openssh_mib_per_s,
    );
    line("dormer", &figures.dormer_s, figures.dormer_mib_per_s);
    println!("dormer takes {:.2} of OpenSSH's time", figures.time_ratio);
    Ok(())
}
