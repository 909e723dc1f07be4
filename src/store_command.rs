//! `dormer store check|key|dump|restore`: maintenance of a store, embedded or on NATS.

use anyhow::Context;
use clap::{Args, Subcommand};
use dormer_client::EXIT_CODES;
use dormer_engine::{
    embedded::{self, EmbeddedStore},
    keyed::{self, Proof},
    local::Local,
    nats::NatsStore,
    port::SystemClock,
    prove_dump,
};
use dormer_nats::history_keys::HistoryKeys;
use dormer_run::{
    config::{Config, Settings, StoreLocation},
    nats,
    usage_error::checked,
};
use dormer_workflows::Dormer;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

/// Subcommands for a store. Exactly one process uses an embedded store: stop dormer first.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Read every record, and list damaged ones; the exit code is 1 if there is any. With --history-keys also compare
    /// each record's MAC, and list the wrong ones
    #[command(after_help = EXIT_CODES)]
    Check(Check),
    /// Write the last record of each run again with a MAC by the first of --history-keys, if it has none or an older one:
    /// the last step of an introduction of keys, and of a rotation
    ///
    /// On NATS engines may run meanwhile. What has no MAC is refused without --history-accept-unkeyed. With it, it is
    /// believed as it is now: run `dormer store check` before.
    #[command(after_help = EXIT_CODES)]
    Key(StoreArgs),
    /// Write the whole history as JSON lines, one record per line. Embedded and NATS stores have the same lines, so a
    /// dump of one can be restored into the other
    ///
    /// The first line is `{"store":{"layout":2,"incarnation":I,"epoch":E}}`. Then come the records, grouped by run
    /// and in order:
    /// `{"record":{"run":R,"seq":N,"head":[revision,seq,deadline,end],"record":{...},"envelope":"..."}}`. The last
    /// record of each run has `head` (times are milliseconds since 1970, 0 means none), `record` is for people, and
    /// `envelope` is the stored record in base64. Then come dead letters, `{"dead_letter":{...}}`, and the last line,
    /// `{"end":{"records":N,"dead_letters":M}}`, without which the dump is cut and is not restored.
    #[command(after_help = EXIT_CODES)]
    Dump(Dump),
    /// Create a new store from a dump of either kind; the new store ignores orders of the old one
    #[command(after_help = EXIT_CODES)]
    Restore(Restore),
}

/// Arguments that select the store: the flags of `dormer run`, of which only those about the store matter here.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// TOML file with settings under the names of these flags
    #[arg(long, value_name = "FILE", env = "DORMER_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Arguments of a check.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Compare the MACs in this dump instead of those in the store, without connecting to one
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
    #[command(flatten)]
    which: StoreArgs,
}

/// Arguments of a dump.
#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// File to write, which appears when it is complete; - is standard output
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    which: StoreArgs,
}

/// Arguments of a restore.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// File to read; - is standard input
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    #[command(flatten)]
    which: StoreArgs,
}

impl StoreArgs {
    fn resolve(self) -> anyhow::Result<Config> {
        let settings = match &self.config {
            Some(path) => self.settings.over(checked(Settings::read(path))?),
            None => self.settings,
        };
        checked(Config::new(settings))
    }
}

/// Runs the subcommand.
pub(crate) async fn run(asked: StoreCommand) -> anyhow::Result<ExitCode> {
    // Every TLS library here installs ring. A second installation fails, which is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match asked {
        StoreCommand::Check(Check { dump, which }) => match dump {
            Some(dump) => check_dump(&which.resolve()?, &dump),
            None => check(&which.resolve()?).await,
        },
        StoreCommand::Key(which) => key(&which.resolve()?).await,
        StoreCommand::Dump(asked) => dump(&asked.which.resolve()?, &asked.to).await,
        StoreCommand::Restore(asked) => restore(&asked.which.resolve()?, &asked.from).await,
    }
}

/// Refuses a folder without a store. A path with a mistake in it is no damage.
fn is_there(folder: &Path) -> anyhow::Result<()> {
    let named = || format!("--store {}", folder.display());
    let read = || {
        anyhow::ensure!(folder.is_dir(), "there is no such folder");
        let empty = folder.read_dir()?.next().is_none();
        anyhow::ensure!(!empty, "the folder is empty, so it has no store");
        Ok(())
    };
    checked(read().with_context(named))
}

async fn check(config: &Config) -> anyhow::Result<ExitCode> {
    if let StoreLocation::Folder(folder) = &config.store {
        is_there(folder)?;
    }
    let (runs, records, faults, named) = match &config.store {
        StoreLocation::Folder(folder) => {
            let found = embedded::check(folder)?;
            let named = found
                .named
                .iter()
                .map(|f| format!("{} {}: {}", f.run, f.seq, f.what));
            (
                found.runs,
                found.records,
                found.faults,
                named.collect::<Vec<_>>(),
            )
        }
        StoreLocation::Nats(servers) => {
            let found = nats::open(config, servers).await?.check::<Dormer>().await?;
            let faults = found.faults.len() as u64;
            (
                found.runs as u64,
                found.records as u64,
                faults,
                found.faults,
            )
        }
    };
    for fault in &named {
        println!("{fault}");
    }
    println!("{runs} runs, {records} records, {faults} faults");
    let proven = match &config.history_keys {
        Some(keys) => {
            let proof = match &config.store {
                StoreLocation::Folder(folder) => {
                    keyed::prove(&local(config, folder)?, keys).await?
                }
                StoreLocation::Nats(servers) => {
                    keyed::prove(&*nats::open(config, servers).await?, keys).await?
                }
            };
            proven(&proof, keys)
        }
        None => true,
    };
    Ok(if faults == 0 && proven {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Folder store with the keys of the history.
fn local(config: &Config, folder: &Path) -> anyhow::Result<Local<EmbeddedStore>> {
    let store = Arc::new(EmbeddedStore::open(folder)?);
    Ok(Local::new(store, SystemClock).keyed_by(config.history_keys.clone()))
}

/// Keys of the history, without which the subcommand has nothing to do.
fn keys_of(config: &Config) -> anyhow::Result<&HistoryKeys> {
    let keys = config.history_keys.as_deref();
    checked(keys.context("name the keys of the history with --history-keys"))
}

/// Prints what the MACs say. Returns whether engines with these keys believe every run.
fn proven(proof: &Proof, keys: &HistoryKeys) -> bool {
    for wrong in &proof.wrong {
        println!("{wrong}");
    }
    let strict = !keys.accepts_unkeyed();
    for run in proof.last_unkeyed.iter().filter(|_| strict) {
        println!("{run}: no record of it has a MAC");
    }
    for (id, records) in &proof.keyed {
        println!("{records} records with a MAC by the key {id}");
    }
    println!(
        "{} records without a MAC, {} runs with no other; {} wrong",
        proof.unkeyed,
        proof.last_unkeyed.len(),
        proof.wrong.len()
    );
    proof.wrong.is_empty() && (proof.last_unkeyed.is_empty() || !strict)
}

fn check_dump(config: &Config, dump: &Path) -> anyhow::Result<ExitCode> {
    let named = || format!("--dump {}", dump.display());
    let keys = keys_of(config)?;
    let mut lines = BufReader::new(checked(File::open(dump).with_context(named))?);
    let proof = prove_dump(&mut lines, keys).with_context(named)?;
    Ok(if proven(&proof, keys) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn key(config: &Config) -> anyhow::Result<ExitCode> {
    let keys = keys_of(config)?;
    let (written, runs) = match &config.store {
        StoreLocation::Folder(folder) => {
            is_there(folder)?;
            keyed::key_last_records(&local(config, folder)?, keys).await?
        }
        StoreLocation::Nats(servers) => {
            keyed::key_last_records(&*nats::open(config, servers).await?, keys).await?
        }
    };
    println!(
        "{runs} runs; the last record of {written} got a MAC by the key {}",
        keys.writes_as()
    );
    Ok(ExitCode::SUCCESS)
}

async fn dump(config: &Config, to: &Path) -> anyhow::Result<ExitCode> {
    if let StoreLocation::Folder(folder) = &config.store {
        is_there(folder)?;
    }
    if to == Path::new("-") {
        write(config, &mut io::stdout()).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if to.exists() {
        anyhow::bail!(
            "--to {}: it is there already, and is not overwritten: give another name",
            to.display()
        );
    }
    let mut unfinished = to.as_os_str().to_owned();
    unfinished.push(".part");
    let unfinished = PathBuf::from(unfinished);
    let named = || format!("--to {}", to.display());
    let mut out = BufWriter::new(File::create(&unfinished).with_context(named)?);
    let records = write(config, &mut out).await?;
    out.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()
        .with_context(named)?;
    std::fs::rename(&unfinished, to).with_context(named)?;
    println!("wrote {records} records to {}", to.display());
    Ok(ExitCode::SUCCESS)
}

async fn write(config: &Config, out: &mut (impl Write + Send)) -> anyhow::Result<u64> {
    Ok(match &config.store {
        StoreLocation::Folder(folder) => embedded::dump(folder, out)?,
        StoreLocation::Nats(servers) => nats::open(config, servers).await?.dump(out).await? as u64,
    })
}

async fn restore(config: &Config, from: &Path) -> anyhow::Result<ExitCode> {
    let named = || format!("--from {}", from.display());
    let mut dump: Box<dyn BufRead + Send> = match from.to_str() {
        Some("-") => Box::new(BufReader::new(io::stdin())),
        _ => Box::new(BufReader::new(checked(
            File::open(from).with_context(named),
        )?)),
    };
    match &config.store {
        StoreLocation::Folder(folder) => {
            let records = embedded::restore(&mut dump, folder, config.history_keys.as_deref())?;
            println!("restored {records} records into {}", folder.display());
        }
        StoreLocation::Nats(servers) => {
            let options = nats::store_options(config, servers);
            NatsStore::restore(&options, &mut dump).await?.close().await;
            println!("restored the dump into {}", config.store);
        }
    }
    Ok(ExitCode::SUCCESS)
}
