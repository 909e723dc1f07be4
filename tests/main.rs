//! The integration tests of the binary, one module for each subject. One test binary links once.

#![allow(
    clippy::too_many_lines,
    reason = "a story or a table reads from top to bottom"
)]

#[cfg(feature = "demo")]
mod api;
#[cfg(feature = "demo")]
mod auth;
mod bench_engines;
mod bench_sftp;
#[cfg(feature = "demo")]
mod browser;
#[cfg(feature = "demo")]
mod changes_nats;
mod chart;
mod cli;
mod dependencies;
mod exit_codes;
mod image;
mod in_process;
#[cfg(feature = "demo")]
mod key;
#[cfg(feature = "demo")]
mod kill;
#[cfg(feature = "demo")]
mod life;
mod lint;
#[cfg(feature = "demo")]
mod metrics;
#[cfg(feature = "demo")]
mod migrate;
mod nats_users;
mod olm;
mod payload;
#[cfg(feature = "demo")]
mod plan;
#[cfg(feature = "demo")]
mod preflight;
mod profile;
#[cfg(feature = "demo")]
mod real;
mod release;
mod replay;
#[cfg(feature = "demo")]
mod run;
#[cfg(feature = "demo")]
mod scenarios;
mod settings;
mod stores;
#[cfg(feature = "demo")]
mod telemetry;
mod tidy;
mod tidy_causes;
mod tidy_circles;
mod tidy_docs;
mod tidy_locals;
mod tidy_pages;
mod tidy_paths;
mod tidy_prose;
mod tidy_untested;
mod tidy_words;
#[cfg(feature = "demo")]
mod windows;

/// A file in `folder` with the stand-in for `dormer-host.exe` that simulated hosts take, as `--host-program` names it.
#[cfg(feature = "demo")]
fn host_program(folder: &std::path::Path) -> String {
    let file = folder.join("dormer-host.exe");
    // A process of dormer may read it just now.
    if !file.exists() {
        std::fs::write(&file, dormer_fleet::host::stand_in()).expect("written");
    }
    file.display().to_string()
}
