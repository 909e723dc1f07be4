//! A remote command as people are shown it: its line and its output without secrets, and not much of either.

use super::{call::HostAttempt, known_secrets::KnownSecrets};
use crate::{
    progress::Progress,
    ssh::{Output, SshError},
};
use dormer_profile::{
    answer::{Answer, ItemState, Reboot},
    clixml,
    frame::{self, FRAME_MARK},
};
use dormer_proto::{
    code,
    id::Timestamp,
    machine::HostRef,
    message::{Failure, RemoteCommand},
};
use std::sync::Arc;

/// Most bytes of the beginning of an output, and of its end.
const PART_BYTES_MAX: usize = 1 << 10;
/// Most bytes of a command line.
const LINE_BYTES_MAX: usize = 1 << 10;
/// Digits at the end of a frame.
const CHECK_DIGITS: usize = 8;

type NowFn = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Codes of failures to open a connection, or to use it.
const CONNECTION: [&str; 10] = [
    "AuthRejected",
    "ConnectRefused",
    "ConnectTimeout",
    "ConnectionLost",
    "HandshakeFailed",
    "HostKeyChanged",
    "HostKeyTooWeak",
    "NoAnswer",
    "NoCommonAlgorithm",
    "SessionRefused",
];
/// Steps of a task that send files.
const UPLOADS: [&str; 3] = ["look for the payload", "send the host program", "upload"];

/// Shows people a connection or an upload that failed among the remote commands; the attempt began at `at_ms`. A command
/// that fails shows itself.
pub(super) fn show_failure(
    on: HostAttempt<'_>,
    at_ms: i64,
    failure: &Failure,
    now_ms: &NowFn,
    known: &KnownSecrets,
) {
    let HostRef { address, user, .. } = on.host;
    let step = on.progress.step_name();
    let (name, line) = if UPLOADS.contains(&step.as_str()) {
        (step, format!("sftp {user}@{address}"))
    } else if CONNECTION.contains(&failure.code.as_str()) && !on.progress.has_run_a_command() {
        ("connect".to_owned(), format!("ssh {user}@{address}"))
    } else {
        return;
    };
    let mut running = RunningCommand::begin(on, name, &line, now_ms, known);
    if let Some(command) = &mut running.command {
        command.at = Timestamp(at_ms.max(0).cast_unsigned());
        command.ended = known.clean_output(&failure.message);
    }
}

/// A running command. If it is dropped before its end, it is reported as cut off.
pub(super) struct RunningCommand {
    /// `None` after the report.
    command: Option<RemoteCommand>,
    progress: Progress,
    now_ms: NowFn,
}

impl RunningCommand {
    /// Starts the record of a command; `name` is its purpose. Secrets in `known` are removed from its command line.
    pub(super) fn begin(
        on: HostAttempt<'_>,
        name: String,
        line: &str,
        now_ms: &NowFn,
        known: &KnownSecrets,
    ) -> Self {
        let mut command = RemoteCommand {
            task: on.order.task.clone(),
            attempt: on.order.attempt,
            // The worker adds its own name and the number.
            worker: String::new(),
            number: 0,
            name,
            line: known.clean_output(beginning(line, LINE_BYTES_MAX)),
            at: Timestamp(now_ms().max(0).cast_unsigned()),
            took_ms: 0,
            ended: "cut off".into(),
            head: String::new(),
            left_out: 0,
            tail: String::new(),
        };
        command.number = on.progress.command_began(&command);
        Self {
            command: Some(command),
            progress: on.progress.clone(),
            now_ms: Arc::clone(now_ms),
        }
    }

    /// Reports the end of the command, without the secrets in `known`.
    pub(super) fn ended(mut self, result: &Result<Output, SshError>, known: &KnownSecrets) {
        let Some(command) = &mut self.command else {
            return;
        };
        match result {
            Ok(output) => {
                command.ended = match output.status {
                    Some(status) => format!("exit {status}"),
                    None => "no exit status".into(),
                };
                let task = command.task.to_string();
                let attempt = u32::try_from(command.attempt.0).unwrap_or(u32::MAX);
                let said = known.clean_output(&said(output, &task, attempt));
                (command.head, command.left_out, command.tail) = parts(&said);
            }
            Err(error) => command.ended = known.clean_output(&error.to_string()),
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if let Some(mut command) = self.command.take() {
            let now = (self.now_ms)().max(0).cast_unsigned();
            command.took_ms = now.saturating_sub(command.at.0);
            self.progress.command_ended(command);
        }
    }
}

/// Output for people: the summary of the answer instead of the answer itself, the surrounding text, and the errors.
fn said(output: &Output, task: &str, attempt: u32) -> String {
    let answer = frame::extract(&output.stdout, task, attempt).ok();
    let summary = answer.as_ref().map(summary).unwrap_or_default();
    let stdout = unframed(&String::from_utf8_lossy(&output.stdout));
    let stderr = clixml::readable(&output.stderr);
    let parts = [summary.as_str(), stdout.trim(), stderr.trim()];
    let text: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    text.join("\n")
}

/// The text without frames. A frame that is cut or damaged is removed as far as it can be recognised.
fn unframed(text: &str) -> String {
    let Some(at) = text.find(FRAME_MARK) else {
        return text.to_owned();
    };
    let (before, frame) = text.split_at(at);
    // Mark, task, attempt, body and check: lines may be broken anywhere, words only by blanks.
    let words = frame.match_indices(' ').nth(3).map(|(at, _)| at);
    let after = words.map_or("", |check| {
        let rest = &frame[check + 1..];
        let digits = rest.match_indices(|c: char| c.is_ascii_hexdigit());
        let end = digits.map(|(at, _)| at + 1).nth(CHECK_DIGITS - 1);
        &rest[end.unwrap_or(rest.len())..]
    });
    format!("{}\n{}", before.trim_end(), unframed(after).trim_start())
}

/// Summary of an answer in lines: counts, differences, and the reason of an early end.
fn summary(answer: &Answer) -> String {
    let count = |state| {
        answer
            .items
            .iter()
            .filter(|item| item.state == state)
            .count()
    };
    let states = [
        (ItemState::Changed, "changed"),
        (ItemState::Differs, "differ"),
        (ItemState::Failed, "failed"),
        (ItemState::Skipped, "skipped"),
    ];
    let mut head = format!("answer to {}: {} items", answer.mode, answer.items.len());
    for (state, word) in states {
        match count(state) {
            0 => {}
            some => head.push_str(&format!(", {some} {word}")),
        }
    }
    if !answer.missing_files.is_empty() {
        head.push_str(&format!(", {} files to upload", answer.missing_files.len()));
    }
    match &answer.reboot {
        Reboot::None => {}
        Reboot::Needed { why } => head.push_str(&format!(", needs a reboot ({})", why.join(", "))),
        Reboot::Pending => head.push_str(", a reboot is on its way"),
    }
    let mut lines = vec![head];
    for item in &answer.items {
        let word = states
            .iter()
            .find(|(state, _)| *state == item.state)
            .map(|(_, word)| *word);
        if let Some(word) = word.filter(|word| *word != "skipped") {
            lines.push(
                format!("{word} {} {}", item.id, item.detail)
                    .trim_end()
                    .to_owned(),
            );
        }
    }
    if let Some(failure) = &answer.failure {
        let code = code::shown(&failure.code.as_str());
        lines.push(format!("{code}: {}", failure.message.trim()));
        lines.push(failure.log_tail.trim().to_owned());
    }
    lines.join("\n").trim_end().to_owned()
}

/// Beginning, bytes left out, end.
fn parts(text: &str) -> (String, u64, String) {
    if text.len() <= 2 * PART_BYTES_MAX {
        return (text.to_owned(), 0, String::new());
    }
    let head = beginning(text, PART_BYTES_MAX);
    let from = text.ceil_char_boundary(text.len() - PART_BYTES_MAX);
    let left_out = (from - head.len()) as u64;
    (head.to_owned(), left_out, text[from..].to_owned())
}

fn beginning(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_out_also_where_a_console_broke_it() {
        let text = "hello\r\nDORMER1 machine/u@1.0 1 aGVs\r\nbG8= 01ab\r\n23cd\r\nbye";
        assert_eq!(unframed(text), "hello\nbye");
        assert_eq!(unframed("a\nDORMER1 machine/u@1.0 1 aGVs").trim(), "a");
    }

    #[test]
    fn a_long_output_is_shown_by_both_ends() {
        let text = format!(
            "{}ä{}",
            "a".repeat(PART_BYTES_MAX),
            "b".repeat(3 * PART_BYTES_MAX)
        );
        let (head, left_out, tail) = parts(&text);
        assert_eq!((head.len(), tail.len()), (PART_BYTES_MAX, PART_BYTES_MAX));
        assert_eq!(
            head.len() + tail.len() + usize::try_from(left_out).unwrap(),
            text.len()
        );
    }
}
