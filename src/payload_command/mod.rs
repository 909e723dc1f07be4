//! `dormer payload`: what lies in payload folders, and whether it is what their manifests say.

mod list;
mod verify;

use clap::{Args, Subcommand};
use dormer_client::{EXIT_CODES, Failure, finish, output::Output};
use std::{path::PathBuf, process::ExitCode};

/// What may be asked about payloads.
#[derive(Debug, Subcommand)]
pub(crate) enum Payload {
    /// Compare every file of a payload's folder with its manifest: sums, sizes, what is missing and what is too much
    #[command(after_help = EXIT_CODES)]
    Verify(verify::Verify),
    /// List the payloads in folders: versions, kubelets, Windows builds, and what each may follow
    #[command(after_help = EXIT_CODES)]
    List(list::List),
}

/// In which form an answer is printed.
#[derive(Debug, Args)]
struct Form {
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Does what was asked, and says by the exit code how it went.
pub(crate) async fn run(asked: Payload) -> ExitCode {
    // Sums of gigabytes are taken: not on a thread that others wait for.
    let done = tokio::task::spawn_blocking(move || match asked {
        Payload::Verify(verify) => verify.run(),
        Payload::List(list) => list.run().map(|text| (text, true)),
    });
    finish(
        done.await
            .unwrap_or_else(|error| Err(Failure::refused(error.to_string(), ""))),
    )
}

/// The payload folders at `folder`: itself, or those in it.
///
/// # Errors
/// It cannot be read, or has no payload.
fn folders(folder: &std::path::Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |why: String| Failure::refused(format!("{}: {why}", folder.display()), "");
    let found = dormer_run::payloads::manifests(folder).map_err(|e| failed(e.to_string()))?;
    if found.is_empty() {
        let file = dormer_profile::payload::MANIFEST_FILE;
        return Err(failed(format!(
            "neither it nor a folder in it has a {file}"
        )));
    }
    let mut found: Vec<PathBuf> = found.into_iter().map(|(folder, _)| folder).collect();
    found.sort();
    Ok(found)
}

/// Bytes as people tell them.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
