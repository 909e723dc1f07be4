//! The `dormer` command: arguments in, one of the product's jobs out.

mod api;
mod bench;
mod cli;
mod client;
mod config;
mod console;
#[cfg(feature = "demo")]
mod demo;
mod embedded;
#[cfg(feature = "demo")]
mod fleet;
mod health;
mod live;
mod logs;
mod metrics;
mod payload_command;
mod plan;
mod profile_command;
mod projection;
mod replay;
mod run;
mod shell;
mod store_command;
mod telemetry;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = shell::arguments();
    cli::log_to_stderr(&arguments);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("dormer: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(cli::run(arguments)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("dormer: {error:#}");
            ExitCode::FAILURE
        }
    }
}
