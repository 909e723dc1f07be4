//! dormer in a shell: under which name it was called, completions, and man pages.

use crate::cli::Cli;
use anyhow::Context;
use clap::{Args, Command, CommandFactory, FromArgMatches};
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
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "dormer", &mut text);
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
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let shown = self.folder.display();
        std::fs::create_dir_all(&self.folder).with_context(|| format!("{shown}"))?;
        clap_mangen::generate_to(Cli::command(), &self.folder)
            .with_context(|| format!("{shown}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What was asked for, as `dormer …` or as `kubectl dormer …`; ends the process with help where it makes no sense.
pub(crate) fn arguments() -> Cli {
    let called = std::env::args_os().next();
    let matches = command(called.as_deref()).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The command under the name by which it was called: help and errors speak of what a person types.
fn command(called: Option<&OsStr>) -> Command {
    if called.is_some_and(names_plugin) {
        Cli::command().name(PLUGIN).bin_name("kubectl dormer")
    } else {
        Cli::command()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_speaks_of_the_name_that_was_called() {
        let usage = |called: &str| {
            let mut command = command(Some(OsStr::new(called)));
            command.render_usage().to_string()
        };
        assert!(usage("/usr/bin/dormer").contains("dormer [OPTIONS] <COMMAND>"));
        assert!(!usage("/usr/bin/dormer").contains("kubectl"));
        assert!(usage("/usr/bin/kubectl-dormer").contains("kubectl dormer [OPTIONS] <COMMAND>"));
        assert!(usage("C:/tools/kubectl-dormer.exe").contains("kubectl dormer [OPTIONS]"));
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
