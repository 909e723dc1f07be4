//! The default shell of sshd, and its effect on a command (docs/field-notes.md, Default shells of sshd).

use std::time::Duration;

/// Longest line that cmd.exe takes, in characters.
pub const CMD_LINE_MAX: usize = 8_191;
/// Longest line that `CreateProcess` takes, in UTF-16 units.
pub const PROCESS_LINE_MAX: usize = 32_766;

/// Registry value `HKLM\SOFTWARE\OpenSSH\DefaultShell`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shell {
    /// Absent: `%SystemRoot%\system32\cmd.exe`.
    #[default]
    Cmd,
    /// Windows PowerShell 5.1.
    PowerShell,
    /// PowerShell 7.
    Pwsh,
}

/// A command before the shell reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedCommand {
    /// The text that the shell interprets.
    Text(String),
    /// cmd.exe refuses the line: exit 1.
    TooLongForCmd,
    /// `CreateProcess` fails: the exec request is answered with a failure.
    NoProcess,
    /// The shell gets a quote that is never closed: PowerShell ends with a parse error, exit 1.
    BrokenQuote,
}

impl Shell {
    /// Whether each command starts a PowerShell of its own.
    pub fn is_powershell(self) -> bool {
        !matches!(self, Self::Cmd)
    }

    /// The registry value; none for the default.
    pub fn registry_value(self) -> Option<&'static str> {
        match self {
            Self::Cmd => None,
            Self::PowerShell => Some(r"c:\windows\system32\windowspowershell\v1.0\powershell.exe"),
            Self::Pwsh => Some(r"c:\program files\powershell\7\pwsh.exe"),
        }
    }

    /// How long it takes to start; `draw` is any number.
    pub fn start_up(self, draw: u64) -> Duration {
        match self {
            Self::Cmd => Duration::from_millis(20 + draw % 20),
            Self::PowerShell | Self::Pwsh => powershell_start_up(draw),
        }
    }

    /// Passes a command on as sshd does and undoes what the shell's own command line reading does.
    pub fn parse(self, command: &str) -> ParsedCommand {
        let line = self.command_line(command);
        if line.encode_utf16().count() > PROCESS_LINE_MAX {
            return ParsedCommand::NoProcess;
        }
        match self {
            Self::Cmd if line.chars().count() > CMD_LINE_MAX => ParsedCommand::TooLongForCmd,
            Self::Cmd => ParsedCommand::Text(command.to_owned()),
            Self::PowerShell | Self::Pwsh => match arguments_after_option(&line) {
                Some(words) => ParsedCommand::Text(words.join(" ")),
                None => ParsedCommand::BrokenQuote,
            },
        }
    }

    /// The whole command line that sshd gives to `CreateProcess`.
    pub fn command_line(self, command: &str) -> String {
        match self.registry_value() {
            None => format!("\"c:\\windows\\system32\\cmd.exe\" /c \"{command}\""),
            Some(path) => format!("\"{path}\" -c {}", escape(command)),
        }
    }

    /// The exit status that the client sees when the command inside ended with `code`: PowerShell's `-Command` knows
    /// only 0 and 1, unless the text ends with `exit $LASTEXITCODE`.
    pub fn exit_status(self, command: &str, code: u32) -> u32 {
        let passes = command
            .trim_end()
            .to_lowercase()
            .ends_with("exit $lastexitcode");
        match self {
            Self::Cmd => code,
            Self::PowerShell | Self::Pwsh if passes => code,
            Self::PowerShell | Self::Pwsh => u32::from(code != 0),
        }
    }
}

/// How long one PowerShell takes to start: 400 to 800 ms.
fn powershell_start_up(draw: u64) -> Duration {
    Duration::from_millis(400 + draw % 401)
}

/// sshd's escaping for shells other than cmd: `"` becomes `\"`, backslashes are doubled only directly before a `"`,
/// and the whole is wrapped only if it holds a space and does not start with `'`. A trailing backslash is not
/// looked after.
fn escape(command: &str) -> String {
    let mut out = String::with_capacity(command.len() + 16);
    let mut slashes = 0;
    for c in command.chars() {
        match c {
            '\\' => slashes += 1,
            '"' => {
                out.extend(std::iter::repeat_n('\\', slashes + 1));
                slashes = 0;
            }
            _ => slashes = 0,
        }
        out.push(c);
    }
    let wrap = command.contains(' ') && !command.starts_with('\'');
    if wrap { format!("\"{out}\"") } else { out }
}

/// The words after `-c` as the C runtime of the shell reads them; none if a quote stays open.
fn arguments_after_option(line: &str) -> Option<Vec<String>> {
    let rest = line.split_once(" -c ")?.1;
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    let mut any = false;
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let mut slashes = 1;
                while chars.next_if_eq(&'\\').is_some() {
                    slashes += 1;
                }
                any = true;
                if chars.peek() == Some(&'"') {
                    word.extend(std::iter::repeat_n('\\', slashes / 2));
                    if slashes % 2 == 1 {
                        chars.next();
                        word.push('"');
                    }
                } else {
                    word.extend(std::iter::repeat_n('\\', slashes));
                }
            }
            '"' => (quoted, any) = (!quoted, true),
            ' ' | '\t' if !quoted => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            c => {
                word.push(c);
                any = true;
            }
        }
    }
    if quoted {
        return None;
    }
    if any {
        words.push(word);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(shell: Shell, command: &str) -> Option<String> {
        match shell.parse(command) {
            ParsedCommand::Text(text) => Some(text),
            ParsedCommand::TooLongForCmd
            | ParsedCommand::NoProcess
            | ParsedCommand::BrokenQuote => None,
        }
    }

    #[test]
    fn a_plain_command_arrives_alike_in_every_shell() {
        let command = r"C:\Windows\dormer\bin\dormer-host-0123.exe plan --task t";
        for shell in [Shell::Cmd, Shell::PowerShell, Shell::Pwsh] {
            assert_eq!(text(shell, command).as_deref(), Some(command));
        }
        let quoted = r#"cmd /c echo "a b""#;
        assert_eq!(text(Shell::PowerShell, quoted).as_deref(), Some(quoted));
    }

    #[test]
    fn a_trailing_backslash_breaks_the_quote_under_powershell_alone() {
        assert_eq!(
            Shell::PowerShell.parse(r"dir C:\k\"),
            ParsedCommand::BrokenQuote
        );
        assert_eq!(
            text(Shell::Cmd, r"dir C:\k\").as_deref(),
            Some(r"dir C:\k\")
        );
        assert_eq!(
            Shell::PowerShell.command_line(r"dir C:\k\"),
            r#""c:\windows\system32\windowspowershell\v1.0\powershell.exe" -c "dir C:\k\""#
        );
    }

    #[test]
    fn lines_have_their_limits() {
        assert_eq!(
            Shell::Cmd.parse(&"x".repeat(9_000)),
            ParsedCommand::TooLongForCmd
        );
        assert!(matches!(
            Shell::PowerShell.parse(&"x".repeat(9_000)),
            ParsedCommand::Text(_)
        ));
        assert_eq!(
            Shell::PowerShell.parse(&"x".repeat(40_000)),
            ParsedCommand::NoProcess
        );
    }

    #[test]
    fn powershell_squashes_what_is_neither_0_nor_1() {
        assert_eq!(Shell::Cmd.exit_status("x", 1060), 1060);
        assert_eq!(Shell::PowerShell.exit_status("x", 3), 1);
        assert_eq!(Shell::PowerShell.exit_status("x; exit $LASTEXITCODE", 3), 3);
        assert_eq!(Shell::Pwsh.exit_status("x", 0), 0);
    }
}
