//! `dormer demo`: the whole product on a laptop. A simulated fleet starts, a machine fails and is retried, and all
//! machines are upgraded one by one. Engine, worker and watcher are the same as in `dormer run`.

mod environment;
mod machine_runs;
mod missed;
mod outcome;
mod people;
mod progress;
#[cfg(test)]
mod scenarios;
mod sequence;
mod unfinished;

use crate::fleet;
use clap::{Args, ValueEnum};
use dormer_client::terminal;
use dormer_fleet::{
    faults::{End, FaultOrder},
    manifest,
};
use dormer_run::{outside::StopSignals, usage_error::checked};
use futures::future::LocalBoxFuture;
use std::{
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Default number of Windows machines.
const MACHINES: u32 = 6;
/// Default fault: one machine's configuration fails until a retry.
const DEFAULT_FAULT: &str = "configure-fails=1";

/// Longest hold of a demonstration.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Arguments of `dormer demo`.
#[derive(Debug, Args)]
pub struct Options {
    /// Windows machines, spread over the Windows MachineSets [default: 6, or the manifests' replicas]
    #[arg(long)]
    machines: Option<u32>,
    /// Print one JSON object as the last line; show no progress bars
    #[arg(long)]
    json: bool,
    /// Manifest with MachineSets instead of the built-in ones (may be given several times)
    #[arg(long)]
    manifest: Vec<PathBuf>,
    /// Value of a placeholder in the manifests: KEY=VALUE (may be given several times)
    #[arg(long = "set")]
    sets: Vec<String>,
    /// Faults, comma-separated or in several flags, such as disk-full=1,dead=2: `NAME[=MACHINES][xTIMES][@MACHINE]`, or `none`
    ///
    /// MACHINES: how many machines are struck, 1 if not given. TIMES: how often each of them. MACHINE: which one, by its
    /// number in the order in which machines are made, by the beginning of its name, or * for all. So disk-full=2x3 fills the
    /// disks of two machines three times each, and dead@4 takes the fourth machine away. Without the flag one machine's
    /// configuration fails until it is retried. --list-faults has the names, and says which heal by themselves.
    #[arg(long, alias = "fault", value_delimiter = ',')]
    faults: Vec<String>,
    /// List the available faults, and exit
    #[arg(long)]
    list_faults: bool,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds of the simulated world per real second
    #[arg(long, default_value_t = 150.0)]
    speed: f64,
    /// Upgrade strategy
    #[arg(long, value_enum, default_value_t = Strategy::Recreate)]
    strategy: Strategy,
    /// Most machines unavailable at once
    #[arg(long, default_value_t = 1)]
    max_unavailable: usize,
    /// New or empty folder, in which the store stays for dormer store and replay [default: a temporary one]
    #[arg(long)]
    store: Option<PathBuf>,
    /// Listening address of dormer's API, HOST:PORT with an IP address
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT", value_parser = listener)]
    listen: SocketAddr,
    /// Collector that receives traces by OTLP over HTTP, http://HOST:PORT or https://HOST:PORT; their times are the
    /// simulated world's
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Do not retry failed machines: you retry them in the browser, or with dormer retry. A fault that heals by itself
    /// leaves none
    #[arg(long)]
    leave_failed: bool,
    /// Keep everything running afterwards, until Ctrl-C
    #[arg(long)]
    hold: bool,
}

/// Listening address. A port alone is refused: loopback, or all addresses of the computer, is a person's decision.
fn listener(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().unwrap_or_default();
        let port = port.parse::<u16>().unwrap_or(7080);
        format!(
            "the form is HOST:PORT with an IP address: 127.0.0.1:{port} for this computer alone, 0.0.0.0:{port} for \
             everyone who reaches it"
        )
    })
}

/// Upgrade strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strategy {
    /// Drain, delete the Machine, wait for its replacement
    Recreate,
    /// Drain, remove the configuration from the host, configure it again
    InPlace,
}

impl Strategy {
    /// Value in the pool's spec.
    pub(crate) fn in_spec(self) -> &'static str {
        match self {
            Self::Recreate => "Recreate",
            Self::InPlace => "InPlace",
        }
    }

    /// Name on the command line and in the outcome's JSON.
    pub(crate) fn as_str(self) -> &'static str {
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

/// Runs the demonstration, and returns the exit code.
pub fn run(options: Options) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    // Boxed here, so that this package compiles the future and its callers do not compile it again.
    Box::pin(demonstrate(options))
}

async fn demonstrate(options: Options) -> anyhow::Result<ExitCode> {
    if options.list_faults {
        fleet::list_faults();
        return Ok(ExitCode::SUCCESS);
    }
    checked(check(&options))?;
    if options.leave_failed
        && let Some(note) = nothing_left(&options.faults())
    {
        eprintln!("{note}");
    }
    if let Some(warning) = environment::reached_by_others(options.listen) {
        terminal::warn(warning);
    }
    let begun = Instant::now();
    let sets = checked(manifest::sets(&options.sets))?;
    let mut environment = environment::Environment::set(&options, sets).await?;
    if options.hold {
        eprintln!("{}", environment.invitation());
    }
    let machines = environment.machines();
    for note in missed::at_the_start(&options.faults(), machines, options.strategy) {
        eprintln!("{note}");
    }
    let bars = progress::DemoProgress::new(environment.machines() as u64, options.json);
    let mut sequence =
        sequence::Sequence::new(&mut environment, &bars, begun, options.leave_failed);
    let mut ended_by = None;
    let mut signals = StopSignals::listen()?;
    let outcome = tokio::select! {
        outcome = sequence.run() => outcome,
        signal = signals.next() => {
            ended_by = Some(signal);
            Err(anyhow::anyhow!("interrupted by {signal}"))
        }
    };
    bars.end();
    if outcome.is_ok() && !options.json {
        match sequence.table().await {
            Ok(table) => println!("{table}"),
            // The demonstration ends as it would with the table.
            Err(error) => terminal::warn(format_args!("the machines cannot be shown: {error:#}")),
        }
    }
    let interrupted = ended_by.is_some();
    let result = finish(&options, outcome, &sequence, interrupted);
    if !interrupted {
        for note in environment.missed(&options.faults()) {
            eprintln!("{note}");
        }
    }
    // A demonstration that got stuck stays up for inspection as well.
    if options.hold && !interrupted {
        if let Err(error) = &result {
            eprintln!("{error:#}");
        }
        eprintln!("The world keeps running; Ctrl-C ends it.");
        tokio::select! {
            _ = signals.next() => {}
            ended = environment.pause(FOR_EVER) => ended?,
        }
    }
    environment.clear().await?;
    match (ended_by, result) {
        (Some(signal), Err(error)) => {
            terminal::warn(format_args!("{error:#}"));
            Ok(ExitCode::from(status_after(signal)))
        }
        (_, result) => result,
    }
}

/// Exit status of a program that this signal ended, as shells have it.
fn status_after(signal: &str) -> u8 {
    match signal {
        "SIGINT" => 128 + 2,
        _ => 128 + 15,
    }
}

/// Note on `--leave-failed` where each fault heals by itself. `None`: one stays, or cannot be read, which is reported later.
fn nothing_left(faults: &[String]) -> Option<String> {
    let orders: Vec<FaultOrder> = faults.iter().filter_map(|it| it.parse().ok()).collect();
    if orders.len() < faults.len() || orders.iter().any(|it| it.end() == End::Person) {
        return None;
    }
    let names: Vec<&str> = orders.iter().map(|it| it.fault.name()).collect();
    let counted = orders.iter().find(|it| it.end() == End::Count);
    let example = counted.map_or("configure-fails=1".to_owned(), |it| {
        format!("{}=1x9999", it.fault)
    });
    Some(match names.as_slice() {
        [] => "--leave-failed: no machine will fail, as no fault is ordered".to_owned(),
        names => format!(
            "--leave-failed: no machine will stay failed, as dormer gets over {} by itself\n--faults {example} stays \
             until you mend it; --list-faults says which do",
            names.join(", ")
        ),
    })
}

fn check(options: &Options) -> anyhow::Result<()> {
    anyhow::ensure!(
        options.machines != Some(0),
        "--machines 0: it must be at least 1"
    );
    anyhow::ensure!(
        options.max_unavailable > 0,
        "--max-unavailable 0: it must be at least 1"
    );
    anyhow::ensure!(
        options.speed.is_finite() && options.speed > 0.0,
        "--speed {}: it must be a number above 0",
        options.speed
    );
    fleet::check_faults(&options.faults())
}

fn finish(
    options: &Options,
    outcome: anyhow::Result<outcome::DemoOutcome>,
    sequence: &sequence::Sequence<'_>,
    interrupted: bool,
) -> anyhow::Result<ExitCode> {
    let outcome = outcome.map_err(|error| unfinished(options, &error, sequence, interrupted))?;
    if !options.json {
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

/// The error of a demonstration that did not finish, with its causes and, unless a person ended it, one command to look
/// further.
fn unfinished(
    options: &Options,
    error: &anyhow::Error,
    sequence: &sequence::Sequence<'_>,
    interrupted: bool,
) -> anyhow::Error {
    let machines: Vec<_> = sequence
        .machines()
        .filter_map(unfinished::UnfinishedMachine::of)
        .collect();
    let address = sequence.address().to_string();
    let afterwards = match () {
        () if interrupted => unfinished::Afterwards::Interrupted,
        () if options.hold => unfinished::Afterwards::Held(&address),
        () => unfinished::Afterwards::Ends,
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    anyhow::anyhow!(unfinished::summary(
        &format!("{error:#}"),
        machines,
        |first| { unfinished::next_command(afterwards, first, &arguments) }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// Options of a command line.
    pub(super) fn options(line: &[&std::ffi::OsStr]) -> Options {
        Line::try_parse_from(line).expect("a command line").options
    }

    fn checked_line(arguments: &[&str]) -> Result<Vec<String>, String> {
        let line = Line::try_parse_from(["demo"].iter().chain(arguments));
        let options = line.expect("a command line").options;
        check(&options).map_err(|error| error.to_string())?;
        Ok(options.faults())
    }

    #[test]
    fn a_port_without_an_address_is_refused_with_the_form() {
        for text in ["7081", ":7081", "localhost:7081"] {
            let refused = listener(text).expect_err("refused");
            assert!(
                refused.contains("127.0.0.1:7081 for this computer alone"),
                "{refused}"
            );
        }
        assert!(
            listener("localhost")
                .expect_err("refused")
                .contains("127.0.0.1:7080")
        );
        assert!(listener("[::1]:0").is_ok() && listener("127.0.0.1:7081").is_ok());
    }

    #[test]
    fn several_faults_stand_in_one_flag_or_in_several_and_a_wrong_one_is_named_at_once() {
        let all = Ok(["disk-full=1", "dead=2", "auth-refused@3"]
            .map(str::to_owned)
            .to_vec());
        assert_eq!(
            checked_line(&[
                "--faults",
                "disk-full=1,dead=2",
                "--faults",
                "auth-refused@3"
            ]),
            all
        );
        assert_eq!(
            checked_line(&["--fault=disk-full=1", "--fault=dead=2,auth-refused@3"]),
            all
        );
        let refused = |faults: &str| checked_line(&["--faults", faults]).expect_err(faults);
        let near = refused("dead=1,disk-ful=1");
        assert!(
            near.contains(
                "--faults disk-ful=1: there is no fault \"disk-ful\"; did you mean disk-full?"
            ),
            "{near}"
        );
        let count = refused("dead=1,disk-full=many");
        assert!(count.contains("\"many\" is no count"), "{count}");
        let tests = refused("holder-dies");
        assert!(tests.contains("only dormer's own tests"), "{tests}");
        let alone = refused("none,dead");
        assert!(alone.contains("none stands alone"), "{alone}");
        assert_eq!(checked_line(&["--faults", "none"]), Ok(Vec::new()));
    }

    #[test]
    fn a_fault_that_heals_by_itself_leaves_no_failed_machine_and_the_demo_says_so() {
        let note = |faults: &[&str]| {
            let faults: Vec<String> = faults.iter().map(|it| (*it).to_owned()).collect();
            nothing_left(&faults)
        };
        let disk = note(&["disk-full"]).expect("a note");
        assert!(
            disk.contains("gets over disk-full by itself")
                && disk.contains("--faults disk-full=1x9999"),
            "{disk}"
        );
        assert_eq!(note(&["disk-full=1x9999"]), None);
        assert_eq!(note(&["configure-fails=1", "disk-full"]), None);
        assert!(note(&["flapping"]).is_some_and(|it| it.contains("configure-fails=1")));
        assert!(note(&[]).is_some_and(|it| it.contains("no fault is ordered")));
        assert_eq!(note(&["earthquake"]), None);
    }
}
