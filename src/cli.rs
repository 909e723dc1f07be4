//! Command line of `dormer`: subcommands, and their dispatch.

use crate::{logs, shell};
use clap::{
    CommandFactory, FromArgMatches, Parser, Subcommand,
    error::{ContextKind, ContextValue},
};
use dormer_client::EXIT_CODES;
use dormer_lab::bench;
use dormer_profile::suggestion::near;
use dormer_views::actions::{ACTIONS, Action};
use std::{
    ffi::OsString,
    io::{IsTerminal, Write as _},
    process::ExitCode,
};

/// Durable workflows for the Windows nodes of Kubernetes and OpenShift.
#[derive(Debug, Parser)]
#[command(name = "dormer", version, long_version = crate::version::LONG.as_str())]
pub(crate) struct Cli {
    /// Format of the log on standard error: text or json (DORMER_LOG_FORMAT); DORMER_LOG filters it (`info`)
    #[arg(
        long,
        global = true,
        env = "DORMER_LOG_FORMAT",
        hide_env = true,
        value_enum,
        default_value = "text",
        hide_default_value = true,
        hide_possible_values = true,
        display_order = 900
    )]
    log_format: logs::Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run dormer for a cluster, with all roles or some of them
    #[command(after_help = EXIT_CODES)]
    Run(Box<dormer_run::Options>),
    /// Commands to a running dormer
    #[command(flatten)]
    Ask(dormer_client::ApiCommand),
    /// Replay recorded histories with this build, and report where it decides differently
    #[command(after_help = crate::replay::EXIT_CODES)]
    Replay(crate::replay::Options),
    /// Check, dump and restore a store, and change its keys
    #[command(subcommand)]
    Store(Box<crate::store_command::StoreCommand>),
    /// Show profiles: the configuration of a Windows node
    #[command(subcommand)]
    Profile(crate::profile_command::Profile),
    /// Make, check and list payloads: the files that are installed on Windows nodes
    #[command(subcommand)]
    Payload(crate::payload_command::PayloadCommand),
    /// Make the keys by which dormer's roles sign their messages over NATS
    #[command(subcommand)]
    Keys(crate::keys_command::Keys),
    /// Replace the private key of the Windows hosts, while they and their pods run
    #[command(subcommand)]
    SshKey(Box<crate::ssh_key::SshKeyCommand>),
    /// Convert an earlier build's settings into a WindowsPool
    #[command(subcommand)]
    Pool(crate::pool_command::PoolCommand),
    /// Remove everything that dormer wrote from a cluster: annotations, conditions, tokens, RuntimeClasses and its own kinds
    Uninstall(crate::uninstall::Options),
    /// Move the nodes of the Windows Machine Config Operator to dormer, and back
    #[command(subcommand)]
    Migrate(Box<crate::migrate::Migrate>),
    /// Check manifests of Windows machines and their workloads, with the fix of each mistake; it needs no cluster
    #[command(after_help = crate::lint_command::AFTER_HELP)]
    Lint(crate::lint_command::Options),
    /// Inspect a Windows host before dormer configures it: changes nothing, and prints a report
    Preflight(Box<crate::preflight::Options>),
    /// Check whether a node serves: versions, labels, taints, certificate, pods of DaemonSets; changes nothing
    Verify(crate::verify_command::Options),
    /// Write a support archive without secrets: state, histories, remote commands, in one file
    SupportBundle(crate::support_bundle::Options),
    /// Print which build this is: version, commit, target, and the formats that it reads
    #[command(after_help = EXIT_CODES)]
    Version(crate::version::VersionArgs),
    /// Print completions for a shell
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", shell::LOADED_BY))]
    Completions(shell::Completions),
    /// Write man pages, one for each command, into a folder
    #[command(after_help = EXIT_CODES)]
    Man(shell::Man),
    /// Run benchmarks on this computer
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run a demonstration on this computer: a simulated fleet starts, a failure is retried, all machines are
    /// upgraded
    #[command(after_help = EXIT_CODES)]
    #[cfg(feature = "demo")]
    Demo(dormer_lab::demo::Options),
    /// Simulate a cluster with Windows machines, for experiments
    #[command(after_help = EXIT_CODES)]
    #[cfg(feature = "demo")]
    Fleet(dormer_lab::fleet::Options),
}

/// Commands by what one wants to do, in the order of the help.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "See what happens",
        &["status", "get", "describe", "watch", "wait", "console"],
    ),
    (
        "Understand a machine",
        &[
            "why",
            "trace",
            "history",
            "logs",
            "plan",
            "verify",
            "support-bundle",
        ],
    ),
    (
        "Mend and change",
        &[
            "retry",
            "approve",
            "pause",
            "resume",
            "hold",
            "drain",
            "recreate",
            "abort",
            "rollback",
            "reset",
            "trust-host-key",
            "remove",
            "unquarantine",
            "dead-letters",
        ],
    ),
    (
        "Install and prepare",
        &[
            "run",
            "lint",
            "preflight",
            "migrate",
            "profile",
            "payload",
            "pool",
            "keys",
            "ssh-key",
            "store",
            "uninstall",
        ],
    ),
    ("Try and measure", &["demo", "fleet", "bench", "replay"]),
    ("Your shell", &["completions", "man", "version", "help"]),
];

/// Words that are easily confused; shown below the commands. docs/glossary.md has them, too.
const WORDS: &str = "To hold a machine is to keep it as it is, out of upgrades; an upgrade that runs continues. To pause is to \
    stop work: of a machine after its present step, of a pool before the next lease. A rollout is halted by dormer itself: a machine or \
    every replacement failed, or several hosts cannot be compared.";

/// Column of a command's description.
const ABOUT_AT: usize = 18;

/// The command, with a help that groups its subcommands.
fn command() -> clap::Command {
    let whole = Cli::command();
    let known = |name: &str| whole.get_subcommands().find(|it| it.get_name() == name);
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let lines: Vec<String> = names
            .iter()
            .filter_map(|name| {
                let about = match known(name) {
                    Some(it) => it.get_about().map(ToString::to_string).unwrap_or_default(),
                    None if *name == "help" => "Print help of a command".to_owned(),
                    // A build without the demonstration.
                    None => return None,
                };
                // The first clause is enough here; the command's own help has the rest.
                let short = about.split(['\n', ';', ':']).next().unwrap_or_default();
                Some(format!("  {name:width$}{short}\n", width = ABOUT_AT - 2))
            })
            .collect();
        if !lines.is_empty() {
            text += &format!("{heading}:\n{}\n", lines.concat());
        }
    }
    let words = dormer_client::terminal::fitted(WORDS);
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{text}{words}\n\nOptions:\n{{options}}"
    );
    whole.help_template(template)
}

/// Part of the default log filter. The client of Kubernetes logs each answer with an error status, without the request
/// and its object. dormer reports such an answer itself, with the object, and asks again: an eviction that two budgets
/// forbid would be a line every few seconds.
const REPEATED: &str = "kube_client::client::builder=off";

impl Cli {
    /// Default log filter. A long-running process also logs what it does.
    fn logged(&self) -> String {
        let level = match self.command {
            Command::Run(_) => "warn,dormer=info",
            _ => "warn",
        };
        format!("{level},{REPEATED}")
    }
}

/// Parses the arguments of `dormer …` or `kubectl dormer …`. Invalid ones print help and end the process.
pub(crate) fn arguments() -> Cli {
    let by = std::env::args_os().next();
    let mut whole = shell::called(command(), by.as_deref());
    if !std::io::stdout().is_terminal() {
        // Lines in a file or a pipe are searched, not read: none is broken.
        whole = whole.term_width(0);
    }
    let line = match shell::asked_by_kubectl(std::env::args_os().collect(), &whole) {
        Ok(line) => connection_last(line),
        Err(candidates) => {
            let written = writeln!(std::io::stdout(), "{candidates}");
            std::process::exit(i32::from(written.is_err()));
        }
    };
    let spoken: Vec<String> = line
        .iter()
        .map(|it| it.to_string_lossy().into_owned())
        .collect();
    let parsed = whole.try_get_matches_from(line);
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| {
        let code = error.exit_code();
        match mistake(error, spoken.into_iter()) {
            Ok(text) => {
                dormer_client::terminal::warn(text);
                std::process::exit(code)
            }
            Err(error) => error.exit(),
        }
    })
}

/// The line with the connection flags that stand before the command behind everything else, where the command takes them.
fn connection_last(line: Vec<OsString>) -> Vec<OsString> {
    let mut words = line.into_iter();
    let mut kept: Vec<OsString> = words.next().into_iter().collect();
    let mut moved: Vec<OsString> = Vec::new();
    let mut rest: Vec<OsString> = Vec::new();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let name = text.split_once('=').map_or(text.as_str(), |(name, _)| name);
        if shell::CONNECTION.contains(&name) {
            let whole = text.contains('=');
            moved.push(word);
            if !whole {
                moved.extend(words.next());
            }
        } else if text.starts_with('-') {
            kept.push(word);
            // The only other flag with a value.
            if text == "--log-format" {
                kept.extend(words.next());
            }
        } else {
            rest.push(word);
            rest.extend(words.by_ref());
        }
    }
    // Behind `--` nothing is a flag.
    let end = rest.iter().position(|it| it == "--").unwrap_or(rest.len());
    let behind = rest.split_off(end);
    [kept, rest, moved, behind].concat()
}

/// Formats a usage error like dormer's other messages. Adds the nearest known word, else the flags of the command of
/// `line`.
///
/// # Errors
/// The text is help.
fn mistake(
    mut error: clap::Error,
    line: impl Iterator<Item = String>,
) -> Result<String, clap::Error> {
    let line: Vec<String> = line.collect();
    let (name, mut asked) = asked(line.iter().cloned());
    if error.kind() == clap::error::ErrorKind::UnknownArgument
        && let Some(meant) = one_dash(&line, &asked)
    {
        let typed = meant[1..].to_owned();
        error.insert(ContextKind::InvalidArg, ContextValue::String(typed));
        error.insert(ContextKind::SuggestedArg, ContextValue::String(meant));
    }
    if error.get(ContextKind::Usage).is_some() {
        // clap shows a flag whose value is from a variable as if it were required.
        let usage = asked.render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    // `dormer profile list` is not what `dormer list` would be.
    let elsewhere = elsewhere(&error)
        .filter(|_| name == "dormer" || error.get(ContextKind::InvalidSubcommand).is_none())
        .or_else(|| find_by_other_name(&error, &asked));
    if elsewhere.is_some() {
        error.remove(ContextKind::SuggestedSubcommand);
    }
    // "To pass '--colour' as a value, use '-- --colour'": no user wants that.
    error.remove(ContextKind::Suggested);
    let pairs = [
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ];
    for (invalid, suggested) in pairs {
        let typed = words(error.get(invalid)).into_iter().next();
        let known = words(error.get(suggested));
        let commands = suggested == ContextKind::SuggestedSubcommand;
        let near = typed.and_then(|typed| {
            let near = near(&typed, known.iter().map(String::as_str))?;
            (!commands || may_be_meant(&typed, near)).then_some(near)
        });
        match near.map(str::to_owned) {
            _ if known.is_empty() => {}
            Some(near) if commands => {
                error.insert(suggested, ContextValue::Strings(vec![near]));
            }
            Some(near) => {
                error.insert(suggested, ContextValue::String(near));
            }
            None => {
                error.remove(suggested);
            }
        }
    }
    let text = error.render().to_string();
    match text.strip_prefix("error: ") {
        Some(text) if elsewhere.is_some() => {
            let elsewhere = elsewhere.unwrap_or_default();
            Ok(format!("{}\n{elsewhere}", text.trim_end()))
        }
        Some(text) if without_near_flag(&error) => {
            Ok(format!("{}\n{}", text.trim_end(), flags(&name, &asked)))
        }
        Some(text) if let Some(values) = missing_values(&error, &asked) => {
            Ok(format!("{}\n{values}", text.trim_end()))
        }
        Some(text) if name != "dormer" && without_near_command(&error) => {
            Ok(format!("{}\n{}", text.trim_end(), commands(&name, &asked)))
        }
        Some(text) => Ok(text.trim_end().to_owned()),
        None => Err(error),
    }
}

/// Whether a command may be suggested for what was typed. One that deletes or disturbs something is suggested only for a
/// slip of the keyboard, and never for another word that resembles it: `uninstall` is no answer to `install`.
fn may_be_meant(typed: &str, command: &str) -> bool {
    let dangerous = |it: &Action| it.name == command && it.danger.is_some();
    if command != "uninstall" && !ACTIONS.iter().any(dangerous) {
        return true;
    }
    let same_start = typed.chars().next() == command.chars().next();
    same_start && typed.len().abs_diff(command.len()) <= 1
}

/// The flag that a word of `line` would be with a second dash: `--to` for `-to`.
fn one_dash(line: &[String], asked: &clap::Command) -> Option<String> {
    line.iter().find_map(|word| {
        let name = word.strip_prefix('-')?.split('=').next()?;
        let mut flags = asked.get_arguments().filter_map(clap::Arg::get_long);
        (name.len() > 1 && flags.any(|it| it == name)).then(|| format!("--{name}"))
    })
}

/// Whether the mistake is a flag that no known one is near to, or a word too many, which may be the value of one.
fn without_near_flag(error: &clap::Error) -> bool {
    error.kind() == clap::error::ErrorKind::UnknownArgument
        && error.get(ContextKind::SuggestedArg).is_none()
}

/// Whether the mistake is a command that no known one is near to.
fn without_near_command(error: &clap::Error) -> bool {
    error.get(ContextKind::InvalidSubcommand).is_some()
        && error.get(ContextKind::SuggestedSubcommand).is_none()
}

/// Sentence with the values of an argument that is missing. `None`: none is, or it may be anything.
fn missing_values(error: &clap::Error, asked: &clap::Command) -> Option<String> {
    if error.kind() != clap::error::ErrorKind::MissingRequiredArgument {
        return None;
    }
    let missing = words(error.get(ContextKind::InvalidArg));
    let mut arguments = asked.get_positionals();
    let argument = arguments.find(|it| missing.contains(&it.to_string()))?;
    let possible = argument.get_possible_values();
    let shown = possible.iter().filter(|it| !it.is_hide_set());
    let values: Vec<&str> = shown.map(clap::builder::PossibleValue::get_name).collect();
    (!values.is_empty()).then(|| format!("{argument} is one of: {}", values.join(", ")))
}

/// Flag of the `asked` command for a flag that other programs have.
fn find_by_other_name(error: &clap::Error, asked: &clap::Command) -> Option<&'static str> {
    let typed = words(error.get(ContextKind::InvalidArg)).into_iter().next();
    let has = |flag: &str| asked.get_arguments().any(|it| it.get_long() == Some(flag));
    match typed?.as_str() {
        "--json" | "--yaml" if has("output") => {
            Some("-o json and -o yaml choose the output format")
        }
        "-m" | "--message" if has("why") => Some("--why REASON is recorded with the request"),
        _ => None,
    }
}

/// The command that `line` calls, with its name.
fn asked(mut line: impl Iterator<Item = String>) -> (String, clap::Command) {
    let by = line.next().map(std::ffi::OsString::from);
    let mut asked = shell::called(command(), by.as_deref());
    asked.build();
    let mut name = "dormer".to_owned();
    while let Some(word) = line.next() {
        if word.starts_with('-') {
            // Its value may be called like a command.
            if shell::CONNECTION.contains(&word.as_str()) || word == "--log-format" {
                line.next();
            }
            continue;
        }
        // Behind a word that is no command there is none: `rollout status` is not `status`.
        let Some(inner) = asked.find_subcommand(&word).cloned() else {
            break;
        };
        name = format!("{name} {}", inner.get_name());
        asked = inner;
    }
    (name, asked)
}

/// Sentence with the flags of the command.
fn flags(name: &str, asked: &clap::Command) -> String {
    let shown = asked.get_arguments().filter(|it| !it.is_hide_set());
    let long = shown.filter_map(|it| it.get_long().map(|long| format!("--{long}")));
    let flags: Vec<String> = long.collect();
    match flags.as_slice() {
        [] => format!("{name} has no flags of its own"),
        flags => format!("the flags of {name} are: {}", flags.join(", ")),
    }
}

/// Sentence with the commands below a command.
fn commands(name: &str, asked: &clap::Command) -> String {
    let shown = asked.get_subcommands().filter(|it| !it.is_hide_set());
    let shown: Vec<&str> = shown.map(clap::Command::get_name).collect();
    format!("the commands of {name} are: {}", shown.join(", "))
}

/// dormer's equivalent of a command or output format that other programs have.
fn elsewhere(error: &clap::Error) -> Option<&'static str> {
    let typed = |kind| words(error.get(kind)).into_iter().next();
    if let Some(command) = typed(ContextKind::InvalidSubcommand) {
        return command_elsewhere(&command);
    }
    let value = typed(ContextKind::InvalidValue)?;
    let of_kind = match value.as_str() {
        "node" | "nodes" => Some(
            "dormer get machines -o wide shows the Node of each machine, dormer verify NODE checks one",
        ),
        "worker" | "workers" => Some(
            "dormer get tasks -o wide shows which worker has which task; a worker without a task is in no list",
        ),
        "event" | "events" => Some(
            "dormer history MACHINE shows what happened to one, dormer get machines -w what happens",
        ),
        "all" => Some("dormer status shows everything on one screen"),
        _ => None,
    };
    if of_kind.is_some() {
        return of_kind;
    }
    let templates = ["jsonpath", "go-template", "custom-columns"];
    let template = templates.iter().any(|it| value.starts_with(it));
    template
        .then_some("single fields come out of JSON: dormer get machines -o json | jq -r '.[].name'")
}

/// dormer's equivalent of a command that other programs have.
fn command_elsewhere(command: &str) -> Option<&'static str> {
    Some(match command {
        "install" | "setup" | "deploy" | "init" | "apply" => {
            "its Helm chart installs dormer in a cluster: helm install dormer deploy/chart -n dormer, as docs/install.md \
             describes it step by step\ndormer demo shows everything on this computer, dormer preflight --cluster \
             checks a cluster before"
        }
        "upgrade" | "update" => {
            "an upgrade starts when the pool's spec.payload names another installed payload: kubectl -n dormer edit \
             windowspool windows\ndormer plan shows what would change, dormer get rollouts how far it is"
        }
        "list" | "ls" | "show" => {
            "lists: dormer get machines; one object: dormer describe machine/NAME"
        }
        "rollout" => {
            "dormer get rollouts shows how far each is, and with -w follows it; dormer history rollout/POOL shows what \
             happened\n\
             dormer pause --pool POOL and dormer resume --pool POOL stop it and let it continue\n\
             dormer rollback --pool POOL shows what it can go back to; with --end it goes forward again"
        }
        "check" | "validate" | "test" => {
            "dormer verify NODE checks a Node, dormer preflight --cluster a cluster, dormer lint FILE manifests"
        }
        "event" | "events" => {
            "dormer history MACHINE shows what happened, dormer watch machines what happens"
        }
        "cordon" => {
            "dormer drain MACHINE cordons and empties a node, dormer hold MACHINE only keeps it out of upgrades; dormer \
             resume MACHINE ends either"
        }
        "unhold" | "unpause" | "undrain" | "continue" | "unfreeze" => {
            "dormer resume MACHINE ends a hold, a pause and a drain of a machine, dormer resume --pool POOL the pause of a \
             pool"
        }
        "uncordon" => {
            "dormer resume MACHINE ends a hold, a pause and a drain of a machine; a cordon that a person set ends by kubectl \
             uncordon NODE"
        }
        "release" => {
            "dormer unquarantine MACHINE releases a quarantined run; dormer resume MACHINE ends a hold"
        }
        "cancel" | "stop" | "halt" => {
            "dormer abort MACHINE ends an upgrade that runs or waits, dormer hold MACHINE keeps a machine out of the next \
             one\ndormer pause --pool POOL lets no further machine of a pool begin"
        }
        "undo" | "revert" => {
            "dormer rollback --pool POOL shows what a pool can go back to, dormer reset MACHINE --to RECORD takes a run \
             back to a record of dormer history MACHINE"
        }
        "restart" | "reboot" | "replace" => {
            "dormer retry MACHINE continues a step that failed, dormer recreate MACHINE replaces the machine"
        }
        "log" => "dormer logs MACHINE shows what ran on its host",
        "explain" | "diagnose" | "debug" => {
            "dormer why MACHINE explains a machine's state; the fields of a pool: kubectl explain windowspool.spec"
        }
        "edit" | "scale" | "patch" | "create" => {
            "pools and MachineSets are objects of the cluster, which kubectl changes; dormer plan shows what a payload or a \
             profile would change"
        }
        "delete" | "rm" => {
            "dormer recreate replaces a machine, dormer remove forgets it; a Machine is deleted by kubectl delete"
        }
        _ => return None,
    })
}

/// Words in the context of a mistake.
fn words(value: Option<&ContextValue>) -> Vec<String> {
    match value {
        Some(ContextValue::String(one)) => vec![one.clone()],
        Some(ContextValue::Strings(all)) => all.clone(),
        _ => Vec::new(),
    }
}

/// Starts the log on standard error.
pub(crate) fn log_to_stderr(cli: &Cli) {
    logs::to_stderr(&cli.logged(), cli.log_format);
}

/// Runs the command.
pub(crate) async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Run(options) => {
            let options = options.surveyed_by(crate::preflight::while_running);
            dormer_run::run(options).await
        }
        Command::Ask(ask) => Ok(dormer_client::run(ask).await),
        Command::Replay(options) => Ok(crate::replay::run(options)),
        Command::Store(asked) => crate::store_command::run(*asked).await,
        Command::Profile(asked) => Ok(crate::profile_command::run(asked).await),
        Command::Payload(asked) => Ok(crate::payload_command::run(asked).await),
        Command::Keys(asked) => Ok(crate::keys_command::run(asked)),
        Command::Pool(asked) => Ok(crate::pool_command::run(asked).await),
        Command::Uninstall(options) => Ok(crate::uninstall::run(options).await),
        Command::Migrate(asked) => Ok(crate::migrate::run(*asked).await),
        Command::SshKey(asked) => Ok(crate::ssh_key::run(*asked).await),
        Command::Lint(options) => Ok(crate::lint_command::run(&options)),
        Command::Preflight(options) => Ok(crate::preflight::run(*options).await),
        Command::Verify(options) => Ok(crate::verify_command::run(options).await),
        Command::SupportBundle(options) => Ok(crate::support_bundle::run(options).await),
        Command::Version(asked) => Ok(asked.run()),
        Command::Completions(asked) => asked.run(Cli::command()),
        Command::Man(asked) => asked.run(Cli::command()),
        Command::Bench(bench) => bench::run(bench).await,
        #[cfg(feature = "demo")]
        Command::Demo(options) => dormer_lab::demo::run(options).await,
        #[cfg(feature = "demo")]
        Command::Fleet(options) => dormer_lab::fleet::run(options).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn help_speaks_of_the_name_that_was_called() {
        let usage = |called: &str| {
            let mut command = shell::called(Cli::command(), Some(OsStr::new(called)));
            command.render_usage().to_string()
        };
        assert!(usage("/usr/bin/dormer").contains("dormer [OPTIONS] <COMMAND>"));
        assert!(!usage("/usr/bin/dormer").contains("kubectl"));
        assert!(usage("/usr/bin/kubectl-dormer").contains("kubectl dormer [OPTIONS] <COMMAND>"));
        assert!(usage("C:/tools/kubectl-dormer.exe").contains("kubectl dormer [OPTIONS]"));
    }

    #[test]
    fn connection_flags_may_stand_before_the_command() {
        let moved = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let words = connection_last(words).into_iter();
            let words: Vec<String> = words.filter_map(|it| it.into_string().ok()).collect();
            words.join(" ")
        };
        for (line, wanted) in [
            ("dormer --server u status -w", "dormer status -w --server u"),
            (
                "dormer --server=u -n a get machines",
                "dormer get machines --server=u -n a",
            ),
            (
                "dormer --log-format json --server u why m",
                "dormer --log-format json why m --server u",
            ),
            ("dormer status --server u", "dormer status --server u"),
            ("dormer --server u why -- m", "dormer why --server u -- m"),
            ("dormer --version", "dormer --version"),
            ("dormer --server", "dormer --server"),
        ] {
            assert_eq!(moved(line), wanted, "{line}");
        }
        let line = connection_last(
            ["dormer", "--server", "http://h", "status"]
                .map(OsString::from)
                .into(),
        );
        assert!(command().try_get_matches_from(line).is_ok());
    }

    #[test]
    fn the_help_has_each_command_in_one_group() {
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let mut whole = command();
        let all = Cli::command();
        for subcommand in all.get_subcommands().filter(|it| !it.is_hide_set()) {
            let name = subcommand.get_name();
            let times = grouped.iter().filter(|known| **known == name).count();
            assert_eq!(times, 1, "{name}");
        }
        let help = whole.render_help().to_string();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
        assert!(
            at("See what happens:") < at("  status") && at("  status") < at("Mend and change:")
        );
        let mut lines = help.lines().filter(|line| !line.starts_with("To hold"));
        assert!(lines.all(|line| line.chars().count() <= 110), "{help}");
    }

    #[test]
    fn a_mistake_reads_as_dormers_other_messages_and_a_tip_is_near() {
        let said = |line: &str| {
            let parsed = command().try_get_matches_from(line.split(' '));
            let line = line.split(' ').map(str::to_owned);
            mistake(parsed.expect_err("a mistake"), line)
        };
        let flags = said("dormer get --straegy x machines").expect("a mistake");
        assert!(
            flags.contains("the flags of dormer get are: ") && flags.contains("--sort-by"),
            "{flags}"
        );
        let near = said("dormer get machines --sort-bye name").expect("a mistake");
        assert!(!near.contains("the flags of"), "{near}");
        assert!(near.starts_with("unexpected argument"), "{near}");
        assert!(near.contains("'--sort-by'"), "{near}");
        let dash = said("dormer rollback windows -to 11.0.0").expect("a mistake");
        assert!(
            dash.contains("unexpected argument '-to'") && dash.contains("'--to'"),
            "{dash}"
        );
        let usage = said("dormer why").expect("a mistake");
        assert!(
            usage.contains("Usage: dormer why [OPTIONS] <MACHINE>"),
            "{usage}"
        );
        for (line, part) in [
            (
                "dormer upgrade",
                "spec.payload names another installed payload",
            ),
            ("dormer install", "helm install dormer"),
            ("dormer ls", "dormer get machines"),
            ("dormer events", "dormer history MACHINE"),
            ("dormer get nodes", "dormer get machines -o wide"),
            (
                "dormer get machines -o jsonpath={.x}",
                "dormer get machines -o json | jq",
            ),
        ] {
            let text = said(line).expect("a mistake");
            assert!(text.contains(part) && !text.contains("similar"), "{text}");
        }
        for (line, parts) in [
            ("dormer trace m --json", ["'--json'", "-o json"]),
            ("dormer get machines --yaml", ["'--yaml'", "-o yaml"]),
            ("dormer retry m -m x", ["'-m'", "--why REASON"]),
            (
                "dormer profile render openshift",
                ["'openshift'", "the flags of dormer profile render are: "],
            ),
            (
                "dormer profile list",
                ["'list'", "the commands of dormer profile are: "],
            ),
            ("dormer store check /nope", ["'/nope'", "--store"]),
            ("dormer preflight HOST", ["'HOST'", "--self-test"]),
            (
                "dormer replay",
                [
                    "<FILES>...",
                    "Usage: dormer replay [OPTIONS] <FILES>... | --store DIR",
                ],
            ),
            ("dormer unquarantine", ["<RUN>", "<RUN> | --all"]),
        ] {
            let text = said(line).expect("a mistake");
            for part in parts {
                assert!(text.contains(part), "{line}: {part}: {text}");
            }
        }
        for (line, meant) in [
            ("dormer recrate m", "'recreate'"),
            ("dormer uninstal", "'uninstall'"),
            ("dormer statsu", "'status'"),
            // And not 'reset', which is near as well, and disturbs.
            ("dormer set x", "'get'"),
            ("dormer restart m", "dormer retry MACHINE"),
            ("dormer explain m", "dormer why MACHINE"),
            (
                "dormer upgrade",
                "kubectl -n dormer edit windowspool windows",
            ),
        ] {
            let text = said(line).expect("a mistake");
            assert!(text.contains(meant), "{line}: {text}");
        }
        for line in [
            "dormer install",
            "dormer create m",
            "dormer rain m",
            "dormer move m",
            "dormer get machines --colour",
            "dormer pause m --force",
            "dormer frobnicate",
            "dormer profile list",
        ] {
            let far = said(line).expect("a mistake");
            assert!(!far.contains("tip:"), "{line}: {far}");
            assert!(!far.contains("dormer get machines"), "{line}: {far}");
            assert!(!far.contains("similar"), "{line}: {far}");
        }
        assert!(said("dormer --help").is_err(), "help is no mistake");
    }

    #[test]
    fn the_log_takes_two_lines_of_each_commands_help() {
        let mut why = command();
        let why = why.find_subcommand_mut("why").expect("a command");
        let help = why.render_long_help().to_string();
        let (_, log) = help.split_once("--log-format").unwrap_or_default();
        assert!(
            log.lines().take(4).all(|line| !line.contains("For people")),
            "{help}"
        );
    }

    #[test]
    fn answers_with_an_error_that_dormer_reports_itself_are_not_logged_again() {
        use tracing::Level;
        for line in ["dormer run", "dormer demo", "dormer status"] {
            let cli = Cli::try_parse_from(line.split(' ')).expect("a command line");
            let filter: tracing_subscriber::filter::Targets =
                cli.logged().parse().expect("a filter");
            assert!(
                !filter.would_enable("kube_client::client::builder", &Level::ERROR),
                "{line}"
            );
            assert!(
                filter.would_enable("kube_client::client", &Level::WARN),
                "{line}"
            );
            let run = line == "dormer run";
            assert_eq!(
                filter.would_enable("dormer_engine::shard", &Level::INFO),
                run,
                "{line}"
            );
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
