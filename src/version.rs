//! `dormer version`: which build this is, and which formats it reads and writes.

use clap::Args;
use dormer_client::{EXIT_CODES, Failure, finish, output::OutputFormat};
use dormer_engine::{DUMP_LAYOUT, embedded};
use dormer_profile::document::DOCUMENT_SCHEMA;
use dormer_proto::{envelope, work};
use dormer_views::export;
use dormer_workers::kubernetes::OLDEST_MINOR;
use serde::Serialize;
use std::{process::ExitCode, sync::LazyLock};

/// Commit that the build was made from, as the build's environment or the repository says it (`build.rs`). A build from
/// an archive has no repository to ask.
const COMMIT: Option<&str> = option_env!("DORMER_COMMIT");

/// The build in words, as `dormer --version` prints it after the name.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| BuildVersion::of_this_build().text());

/// Arguments of `dormer version`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct VersionArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

impl VersionArgs {
    /// Prints the version, and returns the exit code.
    pub(crate) fn run(&self) -> ExitCode {
        finish(self.text().map(|text| (text, true)))
    }

    fn text(&self) -> Result<String, Failure> {
        let version = BuildVersion::of_this_build();
        let programs = self.output.for_programs(&version)?;
        Ok(programs.unwrap_or_else(|| format!("dormer {}", version.text())))
    }
}

/// A build, and the formats that it knows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BuildVersion {
    version: &'static str,
    /// `None`: the build had no commit.
    commit: Option<&'static str>,
    target: String,
    features: Vec<&'static str>,
    /// Oldest minor of Kubernetes 1 that it works with.
    oldest_kubernetes: String,
    schemas: Schemas,
}

/// Numbers of the formats that outlive a process. A build reads those of its own number and of smaller ones.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Schemas {
    envelope: u16,
    workflows: u16,
    embedded_store: u64,
    dump: u64,
    export: u64,
    converge_document: u32,
}

impl BuildVersion {
    fn of_this_build() -> Self {
        let features = [
            ("demo", cfg!(feature = "demo")),
            ("nats-creds", cfg!(feature = "nats-creds")),
        ];
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: COMMIT.filter(|commit| !commit.is_empty()),
            target: target(),
            features: features
                .iter()
                .filter_map(|(name, on)| on.then_some(*name))
                .collect(),
            oldest_kubernetes: format!("1.{OLDEST_MINOR}"),
            schemas: Schemas {
                envelope: envelope::VERSION,
                workflows: work::SCHEMA,
                embedded_store: embedded::LAYOUT,
                dump: DUMP_LAYOUT,
                export: export::FORMAT,
                converge_document: DOCUMENT_SCHEMA,
            },
        }
    }

    /// One fact a line, the version first.
    fn text(&self) -> String {
        let features = match self.features.is_empty() {
            true => "none".to_owned(),
            false => self.features.join(", "),
        };
        let schemas = &self.schemas;
        [
            self.version.to_owned(),
            format!("commit: {}", self.commit.unwrap_or("not recorded")),
            format!("target: {}", self.target),
            format!("features: {features}"),
            format!("Kubernetes: {} or newer", self.oldest_kubernetes),
            format!(
                "schemas: envelope {}, workflows {}, embedded store {}, dump {}, export {}, \
                 converge document {}",
                schemas.envelope,
                schemas.workflows,
                schemas.embedded_store,
                schemas.dump,
                schemas.export,
                schemas.converge_document
            ),
        ]
        .join("\n")
    }
}

/// This build for programs.
pub(crate) fn json() -> serde_json::Value {
    serde_json::to_value(BuildVersion::of_this_build()).unwrap_or_default()
}

/// Processor, system and C library that the program was built for, such as `x86_64-linux-musl`.
fn target() -> String {
    let library = if cfg!(target_env = "musl") {
        "-musl"
    } else if cfg!(target_env = "gnu") {
        "-gnu"
    } else if cfg!(target_env = "msvc") {
        "-msvc"
    } else {
        ""
    };
    format!(
        "{}-{}{library}",
        std::env::consts::ARCH,
        std::env::consts::OS
    )
}
