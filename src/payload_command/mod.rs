//! `dormer payload`: makes, lists and copies payload folders, and checks their files against the manifests.

mod collect;
mod copy;
mod list;
mod make;
mod pause;
mod verify;

use clap::{Args, Subcommand};
use dormer_client::{EXIT_CODES, Failure, file::unreadable, finish, output::OutputFormat};
use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Subcommands for payloads.
#[derive(Debug, Subcommand)]
pub(crate) enum PayloadCommand {
    /// Compare every file of a payload's folder with its manifest: checksums, sizes, missing and extra files
    #[command(after_help = EXIT_CODES)]
    Verify(verify::Verify),
    /// List the payloads in folders: version, kubelet, Windows builds, and which versions each may follow
    #[command(after_help = EXIT_CODES)]
    List(list::PayloadList),
    /// Write a payload's manifest: checksums, sizes, destinations; checks that every program is one for these hosts
    #[command(after_help = EXIT_CODES)]
    Make(Box<make::Make>),
    /// Copy a payload into another folder, checked by checksum
    #[command(after_help = EXIT_CODES)]
    Copy(copy::Copy),
}

/// Output format.
#[derive(Debug, Args)]
struct Form {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// Runs the subcommand, and returns the exit code.
pub(crate) async fn run(asked: PayloadCommand) -> ExitCode {
    // Checksums of gigabytes would block the async runtime, so they run on a thread of their own.
    let done = tokio::task::spawn_blocking(move || match asked {
        PayloadCommand::Verify(verify) => verify.run(),
        PayloadCommand::List(list) => list.run(),
        PayloadCommand::Make(make) => make.run().map(|text| (text, true)),
        PayloadCommand::Copy(copy) => copy.run().map(|text| (text, true)),
    });
    finish(
        done.await
            .unwrap_or_else(|error| Err(Failure::refused(error.to_string(), ""))),
    )
}

/// Payload folders at `folder`: itself, or those in it.
///
/// # Errors
/// The folder cannot be read, or has no payload.
fn folders(folder: &std::path::Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |why: String| unreadable("DIR", folder, why);
    let found = dormer_run::payloads::manifests(folder).map_err(|e| failed(e.to_string()))?;
    if found.is_empty() {
        let file = dormer_profile::payload::MANIFEST_FILE;
        return Err(failed(format!(
            "neither this folder nor a folder in it has a {file}"
        )));
    }
    let mut found: Vec<PathBuf> = found.into_iter().map(|(folder, _)| folder).collect();
    found.sort();
    Ok(found)
}

/// Refuses a folder of the command line without a manifest that can be read.
///
/// # Errors
/// [`Failure::Usage`], with the flag or argument that named it.
fn has_manifest(flag: &str, folder: &Path) -> Result<(), Failure> {
    let file = dormer_profile::payload::MANIFEST_FILE;
    // A named pipe would hold who opens it.
    let why = match std::fs::metadata(folder.join(file)) {
        Ok(_) => return Ok(()),
        Err(error) if folder.is_dir() && error.kind() == io::ErrorKind::NotFound => format!(
            "the folder has no {file}\ndormer payload list DIR finds the payloads below a folder"
        ),
        Err(error) => error.to_string(),
    };
    Err(unreadable(flag, folder, why))
}

/// Ending of a manifest that is being written.
const UNFINISHED: &str = "unfinished";

/// Writes a file so that a reader finds all of it or none: under another name, then renamed.
///
/// # Errors
/// The file cannot be written.
fn whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension(UNFINISHED);
    std::fs::write(&unfinished, bytes)?;
    std::fs::rename(&unfinished, path)
}

/// Bytes in a readable unit.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
