//! One call of the native program on a host: the program sent if it is not there, a document on its standard input,
//! heartbeats and a framed answer back.

use super::{
    HostExecutor,
    call::{HostAttempt, NO_FRAME, ProgramCommand, of_host, said, unusable},
    cluster::Cluster,
    prepared::Prepared,
    program_fence,
    remote_command::RunningCommand,
};
use crate::{
    observer::{self, Operation},
    progress::Progress,
    ssh::{CommandEvent, Output, Session, SshCommand, SshError},
};
use bytes::Bytes;
use dormer_host::{
    arguments::{Announced, Call, Mode, command_line},
    heartbeat::HostHeartbeat,
    paths::{BIN, ROOT, STAGING, program_path},
};
use dormer_profile::{
    answer::{Answer, FailureCode},
    frame, sha256_hex,
};
use dormer_proto::{machine::HostRef, message::Failure};
use std::{ops::ControlFlow, time::Duration};

/// Longest silence of the program: it sends a heartbeat every 10 s.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// Delay after an operation's limit at which the program counts as hung: it would have ended itself by then.
const LATE_MS: u64 = 60_000;
/// Pause before the next call of a host on which another call runs.
const BUSY_MS: u64 = 15_000;
/// Longest line of a heartbeat, in bytes.
const HEARTBEAT_BYTES_MAX: usize = 4 << 10;

/// Reasons for which Windows does not run a program: error number, English message, our code and advice (Microsoft
/// Learn, "System error codes"). PowerShell as the shell turns every number into 1, so the message is compared as well.
/// If neither matches, the call counts as unanswered.
const OBSTACLES: [Obstacle; 4] = [
    Obstacle {
        number: 1260,
        words: "blocked by group policy",
        code: "ProgramBlockedByAppLocker",
        advice: "AppLocker blocks it (1260): allow its publisher or its hash for administrators; the default rules allow \
                 all of C:\\Windows",
    },
    Obstacle {
        number: 4551,
        words: "Application Control policy",
        code: "ProgramBlockedByWdac",
        advice: "Windows Defender Application Control blocks it (4551): add its hash or its publisher to the policy of \
                 this host",
    },
    Obstacle {
        number: 225,
        words: "contains a virus",
        code: "ProgramQuarantined",
        advice: "the virus scanner blocks it (225): restore it there and exclude C:\\Windows\\dormer\\bin",
    },
    Obstacle {
        number: 216,
        words: "not compatible with the version of Windows",
        code: "ProgramForOtherProcessor",
        advice: "this Windows is not one for x86-64 (216): take it out of the pool",
    },
];

struct Obstacle {
    number: u32,
    words: &'static str,
    code: &'static str,
    advice: &'static str,
}

/// Whether a missing program may have been removed by a virus scanner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramSent {
    /// It was not sent for this call.
    No,
    /// It was sent a moment ago.
    Yes,
}

impl<C: Cluster> HostExecutor<C> {
    /// One call of the program, which is sent first if it is not there. Where it is gone although it was there, it is sent
    /// again before a virus scanner is blamed.
    pub(super) async fn ask(
        &self,
        on: HostAttempt<'_>,
        session: &Session,
        asked: ProgramCommand<'_>,
    ) -> Result<Answer, Failure> {
        let mut fresh = ProgramSent::No;
        loop {
            self.send_program(on, session).await?;
            let output = self.run_program(on, session, asked).await?;
            let (task, attempt) = on.names();
            let error = match frame::extract(&output.stdout, &task, attempt) {
                Ok(answer) => return self.program_answered(answer),
                Err(error) => error,
            };
            self.sent.forget(on.host);
            let output_text = said(&output, &self.known);
            if let Some(failure) = obstacle(&output, &output_text) {
                return Err(failure);
            }
            let there = self.program_is_there(on.host, session).await?;
            match (there, fresh) {
                (false, ProgramSent::No) => fresh = ProgramSent::Yes,
                (false, ProgramSent::Yes) => {
                    let path = program_path(self.program.sha256());
                    let message = format!(
                        "{path} was sent twice and is gone: a virus scanner takes it away; restore it there and exclude {BIN}"
                    );
                    return Err(Failure::lasting("ProgramQuarantined", message));
                }
                (true, _) => {
                    let message = format!("{error}{output_text}; the program is sent again");
                    return Err(Failure::transient(NO_FRAME, message));
                }
            }
        }
    }

    /// Whether the program exists on the host. A program that exists and gave no answer may be damaged: it is deleted
    /// unless it runs, so that the next attempt uploads it again.
    async fn program_is_there(&self, host: &HostRef, session: &Session) -> Result<bool, Failure> {
        let path = program_path(self.program.sha256());
        let sftp = session
            .sftp()
            .await
            .map_err(|error| self.failed(host, error))?;
        let size = sftp
            .size(&path)
            .await
            .map_err(|error| self.failed(host, error))?;
        if size.is_some()
            && let Err(error) = sftp.remove(&path).await
            && error.breaks()
        {
            return Err(self.failed(host, error));
        }
        Ok(size.is_some())
    }

    /// Sends the program, and makes the folder that uploads go to. It lies in a folder that only administrators may write
    /// to.
    pub(super) async fn send_program(
        &self,
        on: HostAttempt<'_>,
        session: &Session,
    ) -> Result<(), Failure> {
        let path = program_path(self.program.sha256());
        if self.sent.has(on.host, &path) {
            return Ok(());
        }
        let sending = async {
            let sftp = session.sftp().await?;
            for folder in [ROOT, BIN, STAGING] {
                sftp.make_folder(folder).await?;
            }
            let size = self.program.bytes().len() as u64;
            if sftp.size(&path).await? == Some(size) {
                return Ok(());
            }
            on.progress.step("send the host program", size, "bytes");
            super::prepare::put(on, &sftp, &path, self.program.bytes()).await
        };
        let sent: Result<(), SshError> = sending.await;
        sent.map_err(|error| self.failed(on.host, error))?;
        self.sent.put(on.host, path);
        Ok(())
    }

    async fn run_program(
        &self,
        on: HostAttempt<'_>,
        session: &Session,
        asked: ProgramCommand<'_>,
    ) -> Result<Output, Failure> {
        let (task, attempt) = on.names();
        let document = asked.rendered.map(Prepared::document);
        let input = document.map_or_else(Bytes::new, Bytes::copy_from_slice);
        let call = Call {
            mode: Mode::Asked(asked.mode),
            task,
            attempt,
            fence: program_fence(on.fence),
            boot: asked.boot.map(str::to_owned),
            document: document.map(|bytes| Announced {
                bytes: bytes.len(),
                sha256: sha256_hex(bytes),
            }),
            program: self.program.sha256().to_owned(),
        };
        let line = command_line(&call).map_err(unusable)?;
        let name = match asked.rendered {
            Some(prepared) => format!("{} {}", asked.mode, prepared.section.as_str()),
            None => asked.mode.to_string(),
        };
        let progress = on.progress;
        let step = progress.step_name();
        let running = RunningCommand::begin(on, name, &line, &self.dated_ms, &self.known);
        let mut signs = HeartbeatParser::default();
        let command = SshCommand {
            line: &line,
            input,
            silent_max: Some(SILENT_MAX),
        };
        let operation = observer::begin(Operation::Command);
        let output = session
            .exec_with(command, |event| match event {
                CommandEvent::Stdout(bytes) => signs.read(bytes, &step, progress),
                CommandEvent::InputTaken(_) | CommandEvent::Stderr(_) => {
                    progress.advance(0);
                    ControlFlow::Continue(())
                }
            })
            .await;
        let output = operation.ended(output);
        running.ended(&output, &self.known);
        output.map_err(|error| self.failed(on.host, error))
    }

    fn program_answered(&self, answer: Answer) -> Result<Answer, Failure> {
        if answer.program != self.program.sha256() {
            let message = "another program answered than the one that was sent";
            return Err(Failure::transient(NO_FRAME, message));
        }
        match &answer.failure {
            None => Ok(answer),
            // The missing files are uploaded, and the same task calls again.
            Some(failure)
                if failure.code == FailureCode::FileMissing && !answer.missing_files.is_empty() =>
            {
                Ok(answer)
            }
            // Nothing was tried: the attempt is returned, however long the other call takes.
            Some(failure) if failure.code == FailureCode::HostBusy => Err(Failure {
                after_ms: Some(BUSY_MS),
                uncounted: true,
                ..of_host(failure, &self.known)
            }),
            Some(failure) => Err(of_host(failure, &self.known)),
        }
    }
}

/// Reason for which Windows does not run the program, as a failure with advice; `None` if `output` shows no such
/// reason. `said` is the part of the output that people read.
#[must_use]
pub fn obstacle(output: &Output, said: &str) -> Option<Failure> {
    let found = obstacle_in(output)?;
    let message = format!(
        "Windows does not run dormer's program{said}; {}",
        found.advice
    );
    Some(Failure::lasting(found.code, message))
}

fn obstacle_in(output: &Output) -> Option<&'static Obstacle> {
    let bytes = [&output.stdout[..], &output.stderr[..]].concat();
    let printed = String::from_utf8_lossy(&bytes);
    // A console breaks lines anywhere.
    let text = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    OBSTACLES
        .iter()
        .find(|one| output.status == Some(one.number) || text.contains(one.words))
}

/// Parser of the heartbeats in the program's output.
#[derive(Default)]
struct HeartbeatParser {
    line: Vec<u8>,
}

impl HeartbeatParser {
    /// Parses further bytes. A complete heartbeat is reported as progress; every byte counts as a heartbeat.
    fn read(&mut self, bytes: &[u8], step: &str, progress: &Progress) -> ControlFlow<String> {
        progress.advance(0);
        for byte in bytes {
            if *byte != b'\n' {
                if self.line.len() < HEARTBEAT_BYTES_MAX {
                    self.line.push(*byte);
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let Ok(sign) = String::from_utf8_lossy(&line).parse::<HostHeartbeat>() else {
                continue;
            };
            if sign.elapsed_ms > sign.limit_ms.saturating_add(LATE_MS) {
                let HostHeartbeat {
                    item,
                    doing,
                    limit_ms,
                    ..
                } = sign;
                return ControlFlow::Break(format!(
                    "{doing} of {item} has gone on past its limit of {} s",
                    limit_ms / 1_000
                ));
            }
            let doing = match sign.item.as_str() {
                "-" => format!("{step}: {}", sign.doing),
                item => format!("{step}: {item}, {}", sign.doing),
            };
            progress.step(doing, sign.limit_ms / 1_000, "s");
            progress.advance(sign.elapsed_ms / 1_000);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::id::{Attempt, RunId, Seq, TaskId};

    #[test]
    fn a_sign_is_progress_and_a_late_one_is_the_end() {
        let progress = Progress::default();
        let mut signs = HeartbeatParser::default();
        let said = b"Loading personal profile...\r\ndormer: service:kubelet kubelet_stops 12000 of 60000 ms\r\ndorm";
        assert_eq!(
            signs.read(said, "converge host", &progress),
            ControlFlow::Continue(())
        );
        let task = TaskId {
            run: RunId::new("machine", "u").expect("a run"),
            seq: Seq(1),
            ordinal: 0,
        };
        let told = progress.heartbeat(&task, Attempt(1), "w");
        assert_eq!(told.step, "converge host: service:kubelet, kubelet_stops");
        assert_eq!((told.done, told.of, told.unit.as_str()), (12, 60, "s"));
        let late = b"er: - file_digest 360001 of 300000 ms\r\n";
        let ControlFlow::Break(why) = signs.read(late, "converge host", &progress) else {
            panic!("it goes on")
        };
        assert_eq!(why, "file_digest of - has gone on past its limit of 300 s");
    }

    #[test]
    fn an_obstacle_is_known_by_its_number_or_its_words() {
        let output = |status, stderr: &str| Output {
            status: Some(status),
            stderr: stderr.as_bytes().to_vec(),
            ..Output::default()
        };
        let code = |output: &Output| obstacle_in(output).map(|one| one.code);
        assert_eq!(code(&output(1260, "")), Some("ProgramBlockedByAppLocker"));
        let words = "Program 'dormer-host-0.exe' failed to run: This program is blocked by\r\ngroup policy.";
        assert_eq!(code(&output(1, words)), Some("ProgramBlockedByAppLocker"));
        assert_eq!(code(&output(4551, "")), Some("ProgramBlockedByWdac"));
        assert_eq!(code(&output(225, "")), Some("ProgramQuarantined"));
        assert_eq!(code(&output(216, "")), Some("ProgramForOtherProcessor"));
        assert_eq!(code(&output(1, "no such thing")), None);
    }
}
