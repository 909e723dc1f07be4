//! Shell integration: the program's name, completions, and man pages.
//!
//! Where a command takes the name of a machine, a pool or a version, the completions of bash, zsh and fish ask the running
//! dormer for the names.

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use dormer_client::{
    COMPLETE,
    plugin::{PLUGIN, names_completions, names_plugin},
};
use std::{
    ffi::{OsStr, OsString},
    io::Write,
    path::PathBuf,
    process::ExitCode,
};

/// How the completions are loaded.
pub(crate) const LOADED_BY: &str =
    "Load them in the running shell, and write the line into the file to have them in each:
  bash        source <(dormer completions bash)                          ~/.bashrc
  zsh         source <(dormer completions zsh)                           ~/.zshrc, after compinit
  fish        dormer completions fish | source                           ~/.config/fish/config.fish
  powershell  dormer completions powershell | Out-String | Invoke-Expression   $PROFILE
  elvish      eval (dormer completions elvish | slurp)                   ~/.config/elvish/rc.elv
For kubectl dormer (kubectl 1.26 and later): ln -s kubectl-dormer kubectl_complete-dormer, in the folder of kubectl-dormer";

/// Flags that say how dormer is reached. Each command has them, and kubectl's users write them before it.
pub(crate) const CONNECTION: [&str; 10] = [
    "--server",
    "--token",
    "--token-file",
    "--ca-file",
    "--kubeconfig",
    "--context",
    "--namespace",
    "-n",
    "--as-account",
    "--audience",
];

/// Command of a shell that prints the names of the demonstration's faults.
const FAULTS: &str = r"dormer demo --list-faults | sed -n 's/^  \([a-z0-9-]*\) .*/\1/p'";

/// Arguments of `dormer completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell
    shell: Shell,
}

impl Completions {
    /// Prints completions of the `whole` command.
    pub(crate) fn run(self, mut whole: Command) -> anyhow::Result<ExitCode> {
        let mut generated = Vec::new();
        let commands = commands_with_names(&whole);
        clap_complete::generate(self.shell, &mut whole, "dormer", &mut generated);
        let generated = String::from_utf8_lossy(&generated);
        let named = with_names(self.shell, &generated, &commands);
        let text = explained(self.shell, &named);
        let mut out = std::io::stdout();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match written {
            // A reader that closes the pipe early is no failure.
            Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => {
                anyhow::bail!("the output was not written: {why}")
            }
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

/// The completions with a comment that says how they are loaded. zsh reads its own first line.
fn explained(shell: Shell, text: &str) -> String {
    let name = shell.to_string();
    let mut lines = LOADED_BY.lines();
    let line = lines.find_map(|line| line.trim_start().strip_prefix(&name));
    let line = line.unwrap_or_default().trim_start();
    let comment = format!("# To load these completions: {line}\n");
    match text
        .split_once('\n')
        .filter(|(first, _)| first.starts_with("#compdef"))
    {
        Some((first, rest)) => format!("{first}\n{comment}{rest}"),
        None => format!("{comment}{text}"),
    }
}

/// Commands of a running dormer: their arguments are names that it knows.
fn commands_with_names(whole: &Command) -> Vec<String> {
    let named = [
        "machine", "machines", "name", "names", "node", "pool", "of_pool",
    ];
    let takes = |command: &&Command| {
        let mut arguments = command.get_arguments();
        command.get_name() != "run" && arguments.any(|it| named.contains(&it.get_id().as_str()))
    };
    let commands = whole.get_subcommands().filter(takes);
    commands.map(|it| it.get_name().to_owned()).collect()
}

/// Completions `text`, with the names that a running dormer knows, for the commands that take one.
fn with_names(shell: Shell, text: &str, commands: &[String]) -> String {
    let ask = format!("dormer {COMPLETE} --");
    let any = commands.join("|");
    let valued = CONNECTION.join("|");
    match shell {
        // The generated function completes words; this one puts names in their place where a name belongs.
        Shell::Bash => format!(
            r#"{text}
_dormer_with_names() {{
    _dormer "$@"
    local word="${{COMP_WORDS[COMP_CWORD]}}" one names="" value=""
    [[ "${{word}}" == -* ]] && return 0
    # Connection flags may stand before the command, and their values be called like one.
    for one in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        if [[ -n "${{value}}" ]]; then
            [[ "${{one}}" == "=" ]] || value=""
            continue
        fi
        case "${{one}}" in
            {valued}) value=awaited ;;
            demo)
                [[ "${{COMP_WORDS[COMP_CWORD-1]}}" == --faults ]] && names="$({FAULTS})"
                break
                ;;
            {any})
                names="$({ask} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null)"
                break
                ;;
        esac
    done
    [[ "${{word}}" == "=" ]] && word=""
    names="$(compgen -W "${{names}}" -- "${{word}}")"
    [[ -n "${{names}}" ]] && COMPREPLY=( ${{names}} )
    return 0
}}
complete -F _dormer_with_names -o bashdefault -o default dormer
"#
        ),
        // `_arguments` has an action for each argument: that of a name becomes our own. A command's `words` begin with it.
        Shell::Zsh => {
            let takes_name = |line: &str| {
                let argument = line.trim_start().trim_start_matches(['\'', '*', ':']);
                let plain = [
                    "machine -- ",
                    "machines -- ",
                    "name -- ",
                    "names -- ",
                    "node -- ",
                    "pool -- ",
                ];
                let flags = ["--pool=", "--to="];
                let value =
                    line.contains("]:POOL:_default'") || line.contains("]:VERSION:_default'");
                plain.iter().any(|it| argument.starts_with(it))
                    || value && flags.iter().any(|it| argument.starts_with(it))
            };
            let lines = text.lines().map(|line| match takes_name(line) {
                true => line.replace(":_default'", ":_dormer_names'"),
                false => line.replace("]:FAULTS:_default'", "]:FAULTS:_dormer_faults'"),
            });
            let lines: Vec<String> = lines.collect();
            let body = lines.join("\n");
            let names = format!(
                "_dormer_names() {{\n    local -a names\n    names=(${{(f)\"$({ask} \"${{(@)words[1,CURRENT]}}\" \
                 2>/dev/null)\"}})\n    compadd -a names\n}}\n\n\
                 _dormer_faults() {{\n    local -a names\n    names=(${{(f)\"$({FAULTS})\"}})\n    \
                 compadd -a names\n}}\n"
            );
            body.replacen("\n_dormer() {", &format!("\n{names}\n_dormer() {{"), 1)
        }
        Shell::Fish => {
            let seen = format!("__fish_seen_subcommand_from {}", commands.join(" "));
            let ask = format!("({ask} (commandline -opc)[2..] (commandline -ct) 2>/dev/null)");
            format!(
                "{text}complete -c dormer -n \"{seen}\" -f -a \"{ask}\"\n\
                 complete -c dormer -n \"{seen}\" -l pool -x -a \"{ask}\"\n\
                 complete -c dormer -n \"__fish_seen_subcommand_from rollback\" -l to -x -a \"{ask}\"\n\
                 complete -c dormer -n \"__fish_seen_subcommand_from demo\" -l faults -x -a \"({FAULTS})\"\n"
            )
        }
        _ => text.to_owned(),
    }
}

/// The `line` of this process. kubectl asks for completions by a program's name, with the words behind `kubectl dormer` up to
/// the cursor, and takes each line of the output as a candidate.
///
/// # Errors
/// The cursor is at the command: the names of the commands, one on a line.
pub(crate) fn asked_by_kubectl(
    line: Vec<OsString>,
    whole: &Command,
) -> Result<Vec<OsString>, String> {
    let Some((called, words)) = line.split_first() else {
        return Ok(line);
    };
    if !names_completions(called) {
        return Ok(line);
    }
    let before = words.split_last().map_or(words, |(_, before)| before);
    if ends_at_command(before) {
        let shown = whole.get_subcommands().filter(|it| !it.is_hide_set());
        let names: Vec<&str> = shown.map(Command::get_name).collect();
        return Err(names.join("\n"));
    }
    let ask = [PLUGIN, COMPLETE, "--"].map(OsString::from);
    Ok([&ask[..], words].concat())
}

/// Whether a command comes next: so far there are only flags, each with its value.
fn ends_at_command(before: &[OsString]) -> bool {
    let mut words = before.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if !text.starts_with('-') {
            return false;
        }
        let takes_value = CONNECTION.contains(&&*text) || text == "--log-format";
        if takes_value && words.next().is_none() {
            return false;
        }
    }
    true
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
