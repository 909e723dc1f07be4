//! Failures of commands: a sentence for people, and an exit code for scripts.

use crate::terminal;
use serde::Deserialize;
use std::{fmt::Display, io::ErrorKind, process::ExitCode};

/// Text about exit codes in `--help`.
pub const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, a problem was found, or there was nothing to do, 2 wrong usage, or a file or \
     folder of the command line cannot be read, 3 not found (a machine, pool or other object that the command line \
     names, also in a flag such as --pool), 4 no answer from the server";

/// Failure of a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server refused.
    #[error("{error}{}", advice(.what_to_do))]
    Refused {
        /// Error of the server.
        error: String,
        /// Remedy that the server names.
        what_to_do: String,
    },
    /// The server, or a proxy before it, says that it cannot answer now: it may be starting.
    #[error("{error}{}", advice(.what_to_do))]
    Unready {
        error: String,
        /// Remedy that the server names.
        what_to_do: String,
    },
    /// The command line is invalid, or names what cannot be read.
    #[error("{0}")]
    Usage(String),
    /// The object does not exist.
    #[error("{error}{}", advice(.what_to_do))]
    Absent {
        /// Error of the server.
        error: String,
        /// Remedy that the server names.
        what_to_do: String,
    },
    /// No server answers at the address.
    #[error(
        "no answer from {server}: {why}\nCheck that dormer runs there, or give another address \
         with --server or DORMER_SERVER"
    )]
    Unreachable {
        /// Address of the server.
        server: String,
        /// Cause.
        why: String,
    },
    /// The cluster's API server does not answer.
    #[error("no answer from the cluster's API server: {0}\nCheck that kubectl reaches the cluster")]
    NoCluster(String),
}

/// Body of an error answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Refusal {
    error: String,
    what_to_do: String,
}

fn advice(what_to_do: &str) -> String {
    if what_to_do.is_empty() {
        String::new()
    } else {
        format!("\n{what_to_do}")
    }
}

impl Failure {
    /// The same, where a refusal names its object.
    pub(super) fn about(self, name: &str) -> Self {
        match self {
            Self::Refused { error, what_to_do } if !error.contains(name) => Self::Refused {
                error: format!("{name}: {error}"),
                what_to_do,
            },
            other => other,
        }
    }

    /// The same with one more sentence.
    pub(super) fn explained(self, more: &str) -> Self {
        let with = |text: String| match text.as_str() {
            "" => more.to_owned(),
            text => format!("{text}\n{more}"),
        };
        match self {
            Self::Refused { error, what_to_do } => Self::Refused {
                error,
                what_to_do: with(what_to_do),
            },
            Self::Unready { error, what_to_do } => Self::Unready {
                error,
                what_to_do: with(what_to_do),
            },
            Self::Absent { error, what_to_do } => Self::Absent {
                error,
                what_to_do: with(what_to_do),
            },
            Self::Usage(text) => Self::Usage(with(text)),
            Self::Unreachable { server, why } => Self::Unreachable {
                server,
                why: with(why),
            },
            Self::NoCluster(why) => Self::NoCluster(with(why)),
        }
    }

    /// Refusal with a remedy.
    pub fn refused(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::Refused {
            error: error.into(),
            what_to_do: what_to_do.into(),
        }
    }

    /// Failure for a JSON answer that does not have the expected form.
    pub(crate) fn unreadable(why: impl Display) -> Self {
        Self::refused(
            format!("the server's answer cannot be read: {why}"),
            "use the dormer command of the server's version",
        )
    }

    /// Failure for an answer with an error status.
    pub fn from_answer(status: u16, body: &[u8]) -> Self {
        let Refusal { error, what_to_do } = serde_json::from_slice(body).unwrap_or_default();
        let error = if error.is_empty() {
            format!("the server answered with status {status}")
        } else {
            error
        };
        match status {
            404 => Self::Absent { error, what_to_do },
            502..=504 => Self::Unready { error, what_to_do },
            400 => Self::Usage(format!("{error}{}", advice(&what_to_do))),
            _ => Self::Refused { error, what_to_do },
        }
    }

    /// Exit code, as [`EXIT_CODES`] documents it.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Refused { .. } | Self::Unready { .. } => 1,
            Self::Usage(_) => 2,
            Self::Absent { .. } => 3,
            Self::Unreachable { .. } | Self::NoCluster(_) => 4,
        })
    }
}

/// Ends a command: prints its text and returns its exit code. `false`: the command succeeded but found a problem.
pub fn finish(done: Result<(String, bool), Failure>) -> ExitCode {
    match done {
        Ok((text, good)) => {
            let written = match text.is_empty() {
                true => Ok(()),
                false => terminal::say(&text),
            };
            // A reader that closes the pipe early is no failure.
            if let Err(why) = written
                && why.kind() != ErrorKind::BrokenPipe
            {
                terminal::warn(format_args!("the output was not written: {why}"));
                return ExitCode::FAILURE;
            }
            if good {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(failure) => {
            terminal::warn(&failure);
            failure.exit_code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_becomes_a_sentence_and_its_advice() {
        let body = br#"{"error":"there is no machine \"x\"","whatToDo":"look again"}"#;
        let failure = Failure::from_answer(404, body);
        assert_eq!(failure.to_string(), "there is no machine \"x\"\nlook again");
        assert_eq!(failure.exit_code(), ExitCode::from(3));
        let failure = Failure::from_answer(502, b"<html>");
        assert!(matches!(failure, Failure::Unready { .. }), "{failure:?}");
        assert_eq!(failure.to_string(), "the server answered with status 502");
        assert_eq!(failure.exit_code(), ExitCode::from(1));
    }
}
