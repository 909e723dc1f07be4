//! dormer in a shell: under which name it was called, completions, and man pages.

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use dormer_client::plugin::{PLUGIN, names_plugin};
use std::{ffi::OsStr, io::Write, path::PathBuf, process::ExitCode};

/// For which shell.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints completions of the `whole` command.
    pub(crate) fn run(self, mut whole: Command) -> anyhow::Result<ExitCode> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut whole, "dormer", &mut text);
        // A reader that has seen enough closes the pipe: no failure of ours.
        let _ = std::io::stdout().write_all(&text);
        Ok(ExitCode::SUCCESS)
    }
}

/// Where man pages go.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The folder; it is made if it is not there. `man -l DIR/dormer.1` shows the first page
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

/// `whole` under the name by which this process was called: help and errors speak of what a person types.
pub(crate) fn called(whole: Command, by: Option<&OsStr>) -> Command {
    if by.is_some_and(names_plugin) {
        whole.name(PLUGIN).bin_name("kubectl dormer")
    } else {
        whole
    }
}
