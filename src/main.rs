//! The `dormer` program.

mod cli;
mod cluster_access;
mod keys_command;
mod lint_command;
mod logs;
mod migrate;
mod payload_command;
mod pool_command;
mod preflight;
mod profile_command;
mod replay;
mod shell;
mod ssh_key;
mod store_command;
mod support_bundle;
mod uninstall;
mod verify_command;
mod version;

use dormer_run::usage::UsageError;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit status of a program that SIGPIPE ended.
const BY_SIGPIPE: i32 = 128 + 13;

/// Exit status of a mistake on the command line, as clap's own.
const USAGE: u8 = 2;

/// Stack of each thread of the runtime, in bytes, as large as the main thread's. A development build keeps the states of
/// nested futures on the stack, and a worker's task overflows Tokio's 2 MiB.
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    end_when_nobody_reads();
    let arguments = cli::arguments();
    cli::log_to_stderr(&arguments);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("dormer: cannot start the async runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(cli::run(arguments)) {
        Ok(code) => code,
        Err(error) => {
            dormer_client::terminal::warn(format_args!("{error:#}"));
            match error.downcast_ref::<UsageError>() {
                Some(_) => ExitCode::from(USAGE),
                None => ExitCode::FAILURE,
            }
        }
    }
}

/// Ends the program when its reader closes the pipe, as in `dormer … | head`. Rust ignores SIGPIPE, and the next
/// print then panics.
fn end_when_nobody_reads() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let what = panic.payload_as_str().unwrap_or_default();
        if what.starts_with("failed printing to stdout") && what.contains("Broken pipe") {
            std::process::exit(BY_SIGPIPE);
        }
        default_hook(panic);
    }));
}
