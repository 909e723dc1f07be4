//! Shell integration: the program's name, completions, and man pages.
//!
//! Where a command takes a machine, the completions of bash, zsh and fish ask the running dormer for the names.

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use dormer_client::{
    COMPLETE,
    plugin::{PLUGIN, names_plugin},
};
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
        let of_machines = machine_commands(&whole);
        clap_complete::generate(self.shell, &mut whole, "dormer", &mut text);
        let text = with_names(self.shell, &String::from_utf8_lossy(&text), &of_machines);
        // A reader that closes the pipe early is no failure.
        let _ = std::io::stdout().write_all(text.as_bytes());
        Ok(ExitCode::SUCCESS)
    }
}

/// Commands whose first argument is a machine.
fn machine_commands(whole: &Command) -> Vec<String> {
    let takes = |command: &&Command| {
        let first = command.get_positionals().next();
        first.is_some_and(|it| ["machine", "machines"].contains(&it.get_id().as_str()))
    };
    let commands = whole.get_subcommands().filter(takes);
    commands.map(|it| it.get_name().to_owned()).collect()
}

/// Completions `text`, with names of machines for the commands that take one.
fn with_names(shell: Shell, text: &str, commands: &[String]) -> String {
    let ask = format!("dormer {COMPLETE} 2>/dev/null");
    let any = commands.join("|");
    match shell {
        // The generated function completes words; this one adds names where the word is no option.
        Shell::Bash => format!(
            r#"{text}
_dormer_with_machines() {{
    _dormer "$@"
    local word="${{COMP_WORDS[COMP_CWORD]}}"
    case "${{COMP_WORDS[1]}}" in
        {any})
            if [[ ${{COMP_CWORD}} -gt 1 && "${{word}}" != -* ]]; then
                COMPREPLY+=( $(compgen -W "$({ask})" -- "${{word}}") )
            fi
            ;;
    esac
}}
complete -F _dormer_with_machines -o bashdefault -o default dormer
"#
        ),
        // `_arguments` has an action for each argument: that of a machine becomes our own.
        Shell::Zsh => {
            let of_machine = |line: &str| {
                let argument = line.trim_start().trim_start_matches(['\'', '*', ':']);
                argument.starts_with("machine -- ") || argument.starts_with("machines -- ")
            };
            let lines = text.lines().map(|line| match of_machine(line) {
                true => line.replace(":_default'", ":_dormer_machines'"),
                false => line.to_owned(),
            });
            let lines: Vec<String> = lines.collect();
            let body = lines.join("\n");
            let machines = format!(
                "_dormer_machines() {{\n    local -a names\n    names=(${{(f)\"$({ask})\"}})\n    compadd -a names\n}}\n"
            );
            body.replacen("\n_dormer() {", &format!("\n{machines}\n_dormer() {{"), 1)
        }
        Shell::Fish => {
            let seen = commands.join(" ");
            format!(
                "{text}complete -c dormer -n \"__fish_seen_subcommand_from {seen}\" -f -a \"({ask})\"\n"
            )
        }
        _ => text.to_owned(),
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
        std::fs::create_dir_all(&self.folder).with_context(|| format!("DIR {shown}"))?;
        clap_mangen::generate_to(whole, &self.folder).with_context(|| format!("DIR {shown}"))?;
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
