//! Shell integration: the program's name, completions, and man pages.

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use dormer_client::plugin::{PLUGIN, names_plugin};
use std::{ffi::OsStr, io::Write, path::PathBuf, process::ExitCode};

/// Arguments of `dormer completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell
    shell: Shell,
}

impl Completions {
    /// Prints completions of the `whole` command.
    pub(crate) fn run(self, mut whole: Command) -> anyhow::Result<ExitCode> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut whole, "dormer", &mut text);
        // A reader that closes the pipe early is no failure.
        let _ = std::io::stdout().write_all(&text);
        Ok(ExitCode::SUCCESS)
    }
}

/// Arguments of `dormer man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder, created if missing; `man -l DIR/dormer.1` shows the first page
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    /// Writes the pages of the `whole` command.
    pub(crate) fn run(self, whole: Command) -> anyhow::Result<ExitCode> {
        let shown = self.folder.display();
        std::fs::create_dir_all(&self.folder).with_context(|| format!("{shown}"))?;
        clap_mangen::generate_to(whole, &self.folder).with_context(|| format!("{shown}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Command `whole` under the name by which this process was called, so that help and errors show what a person typed.
pub(crate) fn called(whole: Command, by: Option<&OsStr>) -> Command {
    if by.is_some_and(names_plugin) {
        whole.name(PLUGIN).bin_name("kubectl dormer")
    } else {
        whole
    }
}
