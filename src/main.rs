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

use dormer_run::usage_error::UsageError;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

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
    // What the command made for itself goes before the end: its folders, its processes.
    let done = catch_unwind(AssertUnwindSafe(|| runtime.block_on(cli::run(arguments))));
    let done = match done {
        Ok(done) => done,
        Err(_) if UNREAD.load(Ordering::Relaxed) => std::process::exit(BY_SIGPIPE),
        // The hook has printed the panic.
        Err(_) => std::process::exit(PANICKED),
    };
    match done {
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

/// Exit status of a program that panicked, as Rust's own.
const PANICKED: i32 = 101;

/// Whether the reader of the output has gone.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Ends the program quietly when its reader closes the pipe, as in `dormer … | head`. Rust ignores SIGPIPE, and the next
/// print then panics. On the main thread that unwinds to [`main`].
fn end_when_nobody_reads() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let what = panic.payload_as_str().unwrap_or_default();
        if what.starts_with("failed printing to std") && what.contains("Broken pipe") {
            UNREAD.store(true, Ordering::Relaxed);
            if std::thread::current().name() != Some("main") {
                std::process::exit(BY_SIGPIPE);
            }
            return;
        }
        default_hook(panic);
    }));
}
