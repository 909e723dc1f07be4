//! `dormer run`: the real thing, all roles in one process or some of them.

mod nats;
mod outside;
pub(crate) mod roles;

use crate::config::{Config, Settings};
use clap::Args;
use std::path::PathBuf;

/// What is run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A TOML file with settings under the names of these flags; flags and variables win over it
    #[arg(long, env = "DORMER_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Prints the settings that result, without secrets, as such a file, and ends
    #[arg(long)]
    print_config: bool,

    #[command(flatten)]
    settings: Settings,
}
