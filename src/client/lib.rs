//! Commands that use a running dormer over its HTTP API.

mod absent;
mod action_commands;
mod answer;
mod change_line;
mod cluster;
mod connector;
mod console;
mod dead_letters;
mod describe;
mod export;
mod failure;
pub mod file;
mod filter;
mod forwarded_pod;
mod get;
mod history;
mod items;
mod listing;
mod logs;
mod machines;
mod names;
mod outage;
pub mod output;
mod plan;
pub mod plugin;
#[cfg(test)]
mod samples;
pub mod server;
mod server_clock;
mod short_names;
mod sse;
mod status;
pub mod terminal;
mod trace;
mod unquarantine;
mod wait;
mod watch;
mod why;

pub use failure::{EXIT_CODES, Failure, finish};
pub use machines::uid_of_machine;
pub use short_names::one_that_ends_in;

use clap::{Args, Subcommand};
use dormer_views::{
    actions::{self, Action},
    machine::Machine,
};
use futures::future::LocalBoxFuture;
use output::OutputFormat;
use serde::Serialize;
use server::Server;
use std::process::ExitCode;

/// Text below an action's help: its terms from the table of actions.
fn help(action: &Action) -> String {
    format!("{}\n\n{EXIT_CODES}", action.terms())
}

/// Text of an action that machines and pools have.
fn either(machine: &Action, pool: &Action) -> String {
    let mut of_pool = pool.what.to_owned();
    of_pool[..1].make_ascii_lowercase();
    format!("{}; with --pool: {of_pool}", machine.what)
}

fn help_on_either(machine: &Action, pool: &Action) -> String {
    format!(
        "On a machine: {} On a pool: {}\n\n{EXIT_CODES}",
        machine.terms(),
        pool.terms()
    )
}

/// Command with which shell completions read names.
pub const COMPLETE: &str = "__complete";

/// Commands for a running dormer.
#[derive(Debug, Subcommand)]
pub enum ApiCommand {
    /// Show on one screen what is stuck, what waits for a person, and what is in progress
    #[command(after_help = EXIT_CODES)]
    Status(status::Status),
    /// List machines, runs, rollouts, tasks, pools or quarantined runs
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", get::COLUMNS_HELP))]
    Get(get::Get),
    /// Show all fields of one machine or rollout
    #[command(after_help = EXIT_CODES)]
    Describe(describe::Describe),
    /// Show the history of a machine or rollout, record by record
    #[command(after_help = EXIT_CODES)]
    History(history::HistoryArgs),
    /// Draw an episode of a machine's life to scale: phases, tasks, attempts and waits
    #[command(after_help = EXIT_CODES)]
    Trace(trace::Trace),
    /// Watch machines or rollouts change, until you press Ctrl-C; a terminal is redrawn in place
    #[command(after_help = EXIT_CODES)]
    Watch(watch::Watch),
    /// Wait until machines are in a state, for scripts
    #[command(after_help = EXIT_CODES)]
    Wait(wait::Wait),
    /// Show a machine's tasks, attempt by attempt: the worker, the result, and the latest remote commands
    ///
    /// Attempts come from the history: order time, report time, worker, and outcome or error. Remote commands, with the
    /// first and last 2 KiB of their output, and connections and uploads that failed come from the memory of the dormer
    /// process that answers: the latest 64 of a task and 8 MiB in all, of those that it received since it started. Secrets are removed. For each step in a
    /// worker's log, set DORMER_LOG=dormer_workers=debug.
    #[command(after_help = EXIT_CODES)]
    Logs(logs::Logs),
    /// Explain a machine's state: what it waits for, what failed, and what to do next
    #[command(after_help = EXIT_CODES)]
    Why(why::Why),
    /// Try a failed step again
    #[command(about = actions::RETRY.what, after_help = help(&actions::RETRY))]
    Retry(action_commands::MachineArgs),
    /// Stop at the next safe point
    #[command(about = either(&actions::PAUSE, &actions::PAUSE_POOL), after_help = help_on_either(&actions::PAUSE, &actions::PAUSE_POOL))]
    Pause(action_commands::MachineOrPool),
    /// Continue after a pause
    #[command(about = either(&actions::RESUME, &actions::RESUME_POOL), after_help = help_on_either(&actions::RESUME, &actions::RESUME_POOL))]
    Resume(action_commands::MachineOrPool),
    /// Keep a machine as it is
    #[command(about = actions::HOLD.what, after_help = help(&actions::HOLD))]
    Hold(action_commands::MachineArgs),
    /// Empty a node
    #[command(about = actions::DRAIN.what, after_help = help(&actions::DRAIN))]
    Drain(action_commands::MachineArgs),
    /// Replace a machine
    #[command(about = actions::RECREATE.what, after_help = help(&actions::RECREATE))]
    Recreate(action_commands::MachineArgs),
    /// Approve a change of a machine
    #[command(about = actions::APPROVE.what, after_help = help(&actions::APPROVE))]
    Approve(action_commands::MachineArgs),
    /// Abort a change
    #[command(about = actions::ABORT.what, after_help = help(&actions::ABORT))]
    Abort(action_commands::MachineArgs),
    /// Forget a machine
    #[command(about = actions::REMOVE.what, after_help = help(&actions::REMOVE))]
    Remove(action_commands::MachineArgs),
    /// Trust a host's new key
    #[command(about = actions::TRUST_HOST_KEY.what, after_help = help(&actions::TRUST_HOST_KEY))]
    TrustHostKey(action_commands::TrustHostKey),
    /// Reset a run to an earlier record
    #[command(about = actions::RESET.what, after_help = help(&actions::RESET))]
    Reset(action_commands::Reset),
    /// Release quarantined runs; engines then try them again
    #[command(after_help = EXIT_CODES)]
    Unquarantine(unquarantine::Unquarantine),
    /// Show which nodes would change, what on them, and how: with the present settings, or with a candidate
    #[command(after_help = EXIT_CODES)]
    Plan(plan::Plan),
    /// Roll back to an earlier payload
    #[command(about = actions::ROLLBACK.what, after_help = help(&actions::ROLLBACK),
        override_usage = "dormer rollback --pool <POOL> [--to <VERSION> | --end] [OPTIONS]")]
    Rollback(action_commands::Rollback),
    /// List, show or requeue dead letters: messages that no engine could read
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLetters),
    /// Print a link that logs a browser in to the console under your name; kubectl dormer also forwards a port
    #[command(after_help = EXIT_CODES)]
    Console(console::Console),
    /// Print the names that may stand at the end of a command line, for the completion of a shell
    #[command(name = COMPLETE, hide = true)]
    Names(names::Names),
}

/// Server, and output format of its answer.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    address: server::ServerAddress,
}

impl ServerArgs {
    pub(crate) fn server(&self) -> Result<Server, Failure> {
        Ok(self.address.server())
    }

    /// Text of `value` for programs. `None`: the output is for people.
    pub(crate) fn programs(&self, value: &impl Serialize) -> Result<Option<String>, Failure> {
        self.output.for_programs(value)
    }

    pub(crate) fn is_for_people(&self) -> bool {
        matches!(self.output, OutputFormat::Table | OutputFormat::Wide)
    }

    pub(crate) fn wide(&self) -> bool {
        self.output == OutputFormat::Wide
    }
}

/// Table of machines as `dormer get machines` prints it, for the terminal's width.
#[must_use]
pub fn machines_table(machines: Vec<Machine>) -> String {
    let form = listing::TableForm {
        wide: false,
        namespaces: false,
        columns: terminal::columns(),
    };
    listing::fitted(machines, form).join("\n")
}

/// Runs a command, prints its answer, and returns the exit code.
pub fn run(ask: ApiCommand) -> LocalBoxFuture<'static, ExitCode> {
    // Boxed here, so that this package compiles the future and its callers do not compile it again.
    Box::pin(ask_and_print(ask))
}

async fn ask_and_print(ask: ApiCommand) -> ExitCode {
    finish(answer(ask).await.map(|text| (text, true)))
}

/// Runs a command, and returns its answer as text.
///
/// # Errors
/// [`Failure`]: the command line is invalid, or the server does not answer or refuses.
pub async fn answer(ask: ApiCommand) -> Result<String, Failure> {
    match ask {
        ApiCommand::Status(status) => status.run().await,
        ApiCommand::Wait(wait) => wait.run().await,
        ApiCommand::Get(get) => get.run().await,
        ApiCommand::Describe(describe) => describe.run().await,
        ApiCommand::History(history) => history.run().await,
        ApiCommand::Trace(trace) => trace.run().await,
        ApiCommand::Watch(watch) => watch.run().await,
        ApiCommand::Logs(logs) => logs.run().await,
        ApiCommand::Why(why) => why.run().await,
        ApiCommand::Retry(on) => on.run(&actions::RETRY).await,
        ApiCommand::Pause(on) => on.run(&actions::PAUSE).await,
        ApiCommand::Resume(on) => on.run(&actions::RESUME).await,
        ApiCommand::Hold(on) => on.run(&actions::HOLD).await,
        ApiCommand::Drain(on) => on.run(&actions::DRAIN).await,
        ApiCommand::Recreate(on) => on.run(&actions::RECREATE).await,
        ApiCommand::Approve(on) => on.run(&actions::APPROVE).await,
        ApiCommand::Abort(on) => on.run(&actions::ABORT).await,
        ApiCommand::Remove(on) => on.run(&actions::REMOVE).await,
        ApiCommand::TrustHostKey(trust) => trust.run().await,
        ApiCommand::Reset(reset) => reset.run().await,
        ApiCommand::Unquarantine(release) => release.run().await,
        ApiCommand::Plan(plan) => plan.run().await,
        ApiCommand::Rollback(rollback) => rollback.run().await,
        ApiCommand::DeadLetters(dead) => dead.run().await,
        ApiCommand::Console(console) => console.run().await,
        ApiCommand::Names(names) => names.run().await,
    }
}
