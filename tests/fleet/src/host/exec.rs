//! Commands over SSH: the shell, the few known texts, and their process.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use russh::server::{Handle, Msg};
use russh::{Channel, ChannelId};

use super::computer::{Host, lock};
use super::ended::Ended;
use super::link::Link;
use super::program::{self, PresentStep};
use super::shell::ParsedCommand;
use crate::faults::Fault;
use crate::world::Happened;

/// Time that the program continues after its connection was cut ([`Fault::DropDuringScript`]).
const GOES_ON: Duration = Duration::from_secs(90);
/// When that cut comes.
const DROP_AFTER: Duration = Duration::from_secs(2);
/// Interval of the working program's heartbeats.
const SIGN_EVERY: Duration = Duration::from_secs(10);

/// Reads Windows' language from the registry.
const ASK_LANGUAGE: &str =
    r"reg.exe query HKLM\SYSTEM\CurrentControlSet\Control\Nls\Language /v InstallLanguage";
/// Reads sshd's default shell from the registry.
const ASK_SHELL: &str = r"reg.exe query HKLM\SOFTWARE\OpenSSH /v DefaultShell";

impl Host {
    /// Starts a command. It belongs to the host, not to the connection: it continues when the connection is lost.
    /// `false`: the process cannot be created.
    pub(super) fn exec(
        &self,
        command: String,
        handle: Handle,
        (channel, input): (ChannelId, Option<Channel<Msg>>),
        link: Link,
    ) -> bool {
        let parsed = self.image.shell.parse(&command);
        if parsed == ParsedCommand::NoProcess {
            return false;
        }
        let Some(host) = self.me.upgrade() else {
            return false;
        };
        self.spawn_powered(async move {
            let pid = host.begin_process(&command);
            let watch = PresentStep::default();
            let process = (pid, Arc::clone(&watch));
            let channels = (input, &handle, channel);
            let mut running = pin!(host.run_command(&command, parsed, channels, &link, process));
            let ended = loop {
                tokio::select! {
                    ended = &mut running => break ended,
                    () = host.sleep(SIGN_EVERY) => host.sign(&watch, &handle, channel).await,
                }
            };
            host.end_process(pid);
            let status = host.image.shell.exit_status(&command, ended.code);
            host.send(ended, status, &handle, channel).await;
        });
        true
    }

    /// Sends the program's heartbeats. After the connection is lost, they are discarded.
    async fn sign(&self, watch: &PresentStep, handle: &Handle, channel: ChannelId) {
        if let Some(sign) = program::sign(self, watch) {
            let _ = handle
                .data(channel, format!("{sign}\r\n").into_bytes())
                .await;
        }
    }

    fn begin_process(&self, command: &str) -> u32 {
        let starts = u32::from(self.image.shell.is_powershell());
        let machine = self.uid().to_owned();
        self.context.record.push(Happened::RemoteCommand {
            machine,
            powershell_starts: starts,
        });
        let mut counts = lock(&self.counts);
        counts.remote_commands += 1;
        counts.powershell_starts += u64::from(starts);
        drop(counts);
        let mut state = self.state();
        let pid = state.new_pid();
        state.processes.insert(pid, command.to_owned());
        pid
    }

    fn end_process(&self, pid: u32) {
        let mut state = self.state();
        state.processes.remove(&pid);
        if state.mutex == Some(pid) {
            state.mutex = None;
        }
        drop(state);
        // sshd's job object ends with the command, and with it all child processes except started services.
        if self.armed(Fault::ChildrenDie) && self.strike(Fault::ChildrenDie) {
            self.state().processes.clear();
        }
    }

    async fn send(&self, ended: Ended, status: u32, handle: &Handle, channel: ChannelId) {
        let mut stdout = Vec::new();
        if self.image.profile_noise && !self.state().profile_quiet {
            stdout.extend_from_slice(b"Loading personal profile...\r\n");
        }
        stdout.extend(ended.stdout);
        if !stdout.is_empty() && handle.data(channel, stdout).await.is_err() {
            return;
        }
        if !ended.stderr.is_empty() {
            let _ = handle.extended_data(channel, 1, ended.stderr).await;
        }
        let _ = handle.exit_status_request(channel, status).await;
        let _ = handle.eof(channel).await;
        let _ = handle.close(channel).await;
    }

    async fn run_command(
        self: &Arc<Self>,
        command: &str,
        parsed: ParsedCommand,
        (input, handle, channel): (Option<Channel<Msg>>, &Handle, ChannelId),
        link: &Link,
        (pid, watch): (u32, PresentStep),
    ) -> Ended {
        self.sleep(self.image.shell.start_up(self.draw())).await;
        let text = match parsed {
            ParsedCommand::Text(text) => text,
            ParsedCommand::TooLongForCmd => {
                return Ended::saying("The command line is too long.\r\n", 1);
            }
            ParsedCommand::BrokenQuote | ParsedCommand::NoProcess => {
                return Ended::saying("The string is missing the terminator: \".\r\n", 1);
            }
        };
        match program::parse(&text) {
            Some(call) => self.run_program(call, input, link, (pid, watch)).await,
            None if self.performs(&text) => self.perform_requests(input, handle, channel).await,
            None => self.run_plain(&text, command),
        }
    }

    /// Cuts a connection during a command.
    pub(super) fn cut_soon(self: &Arc<Self>, link: &Link) {
        let host = self.clone();
        let link = link.clone();
        self.spawn_powered(async move {
            host.sleep(DROP_AFTER).await;
            link.cut();
        });
    }

    /// Least time that a program continues without its connection.
    pub(super) fn goes_on() -> Duration {
        GOES_ON
    }

    /// Text in the host's code page that may precede an answer.
    pub(super) fn noise(&self) -> Vec<u8> {
        if self.image.code_page == 850 {
            b"Gr\x94\xE1e aus der Konsole\r\n".to_vec()
        } else {
            Vec::new()
        }
    }

    /// Runs known texts that are no call of our program; anything else fails loudly.
    fn run_plain(&self, text: &str, command: &str) -> Ended {
        let word = text.trim();
        match word {
            "echo %OS%" if self.image.shell.is_powershell() => Ended::saying("%OS%\r\n", 0),
            "echo %OS%" => Ended::saying("Windows_NT\r\n", 0),
            ASK_LANGUAGE => Ended::saying(
                "\r\nHKEY_LOCAL_MACHINE\\SYSTEM\\CurrentControlSet\\Control\\Nls\\Language\r\n    \
                 InstallLanguage    REG_SZ    0409\r\n\r\n",
                0,
            ),
            ASK_SHELL => match self.image.shell.registry_value() {
                Some(path) => Ended::saying(
                    &format!(
                        "\r\nHKEY_LOCAL_MACHINE\\SOFTWARE\\OpenSSH\r\n    DefaultShell    REG_SZ    {path}\r\n"
                    ),
                    0,
                ),
                None => Ended::saying(
                    "ERROR: The system was unable to find the specified registry key or value.\r\n",
                    1,
                ),
            },
            "hostname" => Ended::saying(&format!("{}\r\n", self.state().hostname), 0),
            "ver" => {
                let build = self.image.release.build();
                Ended::saying(
                    &format!("\r\nMicrosoft Windows [Version {build}.2849]\r\n"),
                    0,
                )
            }
            _ => {
                lock(&self.counts).unknown_commands += 1;
                tracing::error!(
                    machine = self.name(),
                    command,
                    "the simulated host knows no such command"
                );
                let said = format!(
                    "'{word}' is unknown to the simulated host; it runs dormer's program only.\r\n"
                );
                Ended {
                    stdout: Vec::new(),
                    stderr: said.into_bytes(),
                    code: 9_009,
                }
            }
        }
    }
}
