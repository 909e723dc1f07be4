//! The commands that ask a running dormer, over its HTTP API.

mod act;
mod dead;
mod export;
mod failure;
mod get;
mod history;
mod logs;
pub(crate) mod output;
pub(crate) mod server;
mod sse;
mod trace;
mod watch;
mod why;

pub(crate) use failure::{EXIT_CODES, Failure};

use clap::{Args, Subcommand};
use output::Output;
use server::Server;
use std::{io::Write, process::ExitCode};

/// What may be asked of a running dormer.
#[derive(Debug, Subcommand)]
pub(crate) enum Ask {
    /// List machines, runs, rollouts, tasks or pools
    #[command(after_help = EXIT_CODES)]
    Get(get::Get),
    /// Everything that is known of one machine or rollout
    #[command(after_help = EXIT_CODES)]
    Describe(get::Describe),
    /// What happened to a machine or rollout, record by record
    #[command(after_help = EXIT_CODES)]
    History(history::History),
    /// An episode of a machine's life as a tree: phases, tasks, attempts and waits, to scale
    #[command(after_help = EXIT_CODES)]
    Trace(trace::Trace),
    /// Machines or rollouts as they change, until you end it; redrawn in place on a terminal
    #[command(after_help = EXIT_CODES)]
    Watch(watch::Watch),
    /// A machine's tasks, attempt by attempt: who tried, how it ended, and what is going on now
    #[command(after_help = EXIT_CODES)]
    Logs(logs::Logs),
    /// Where a machine is, what it waits for, what was tried, and what to do next
    #[command(after_help = EXIT_CODES)]
    Why(why::Why),
    /// Go on from the step that failed
    #[command(after_help = EXIT_CODES)]
    Retry(act::Machine),
    /// Start nothing new on a machine, or grant nothing new in a pool
    #[command(after_help = EXIT_CODES)]
    Pause(act::MachineOrPool),
    /// End a pause, a hold or a drain
    #[command(after_help = EXIT_CODES)]
    Resume(act::MachineOrPool),
    /// Leave a machine as it is, out of the rollout, until it is resumed
    #[command(after_help = EXIT_CODES)]
    Hold(act::Machine),
    /// Cordon and drain a machine's node until it is resumed, when the rollout lets it
    #[command(after_help = EXIT_CODES)]
    Drain(act::Machine),
    /// Replace a machine by a new one, when the rollout lets it
    #[command(after_help = EXIT_CODES)]
    Recreate(act::Machine),
    /// Let a machine be upgraded in a pool whose upgrades need approval
    #[command(after_help = EXIT_CODES)]
    Approve(act::Machine),
    /// Give up an upgrade that is going on
    #[command(after_help = EXIT_CODES)]
    Abort(act::Machine),
    /// Close a machine's run; the Machine stays, and dormer touches it no more
    #[command(after_help = EXIT_CODES)]
    Remove(act::Machine),
    /// Go back to an earlier record of a run, and go on from there
    #[command(after_help = EXIT_CODES)]
    Reset(act::Reset),
    /// Go back one step, to a payload that the present one may follow
    #[command(after_help = EXIT_CODES)]
    Rollback(act::Rollback),
    /// Letters that could not be understood
    #[command(subcommand)]
    Dead(dead::Dead),
}

/// Whom to ask, and how to print the answer.
#[derive(Debug, Args)]
pub(crate) struct To {
    /// Where dormer's API answers
    #[arg(
        long,
        env = "DORMER_SERVER",
        default_value = "http://127.0.0.1:7080",
        value_name = "URL"
    )]
    server: String,
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl To {
    fn server(&self) -> Result<Server, Failure> {
        Server::at(&self.server)
    }

    fn wide(&self) -> bool {
        self.output == Output::Wide
    }
}

/// Asks, prints, and says by the exit code how it went.
pub(crate) async fn run(ask: Ask) -> ExitCode {
    match answer(ask).await {
        Ok(text) => {
            // A reader that has seen enough closes the pipe: no failure of ours.
            if !text.is_empty() {
                let _ = writeln!(std::io::stdout(), "{text}");
            }
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("dormer: {failure}");
            failure.exit_code()
        }
    }
}

async fn answer(ask: Ask) -> Result<String, Failure> {
    match ask {
        Ask::Get(get) => get.run().await,
        Ask::Describe(describe) => describe.run().await,
        Ask::History(history) => history.run().await,
        Ask::Trace(trace) => trace.run().await,
        Ask::Watch(watch) => watch.run().await,
        Ask::Logs(logs) => logs.run().await,
        Ask::Why(why) => why.run().await,
        Ask::Retry(on) => on.run("retry", act::Risk::None).await,
        Ask::Pause(on) => on.run("pause").await,
        Ask::Resume(on) => on.run("resume").await,
        Ask::Hold(on) => on.run("hold", act::Risk::None).await,
        Ask::Drain(on) => on.run("drain", act::Risk::Moves("pods on its node are evicted")).await,
        Ask::Recreate(on) => on.run("recreate", act::Risk::Moves("its Machine is deleted")).await,
        Ask::Approve(on) => on.run("approve", act::Risk::None).await,
        Ask::Abort(on) => on.run("abort", act::Risk::None).await,
        Ask::Remove(on) => on.run("remove", act::Risk::Moves("dormer forgets it")).await,
        Ask::Reset(reset) => reset.run().await,
        Ask::Rollback(rollback) => rollback.run().await,
        Ask::Dead(dead) => dead.run().await,
    }
}
