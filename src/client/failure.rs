//! How a command ends when it cannot do what was asked: a sentence, and an exit code that a script can act on.

use serde::Deserialize;
use std::{fmt::Display, io::Write, process::ExitCode};

/// What `--help` says about exit codes.
pub const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 failed, 2 used wrongly, 3 no such thing, 4 no answer from the server";

/// Why a command did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server said no.
    #[error("{error}{}", advice(.what_to_do))]
    Refused {
        /// What it said.
        error: String,
        /// What it advised.
        what_to_do: String,
    },
    /// The question makes no sense.
    #[error("{0}")]
    Usage(String),
    /// There is no such thing.
    #[error("{error}{}", advice(.what_to_do))]
    Absent {
        /// What the server said.
        error: String,
        /// What it advised.
        what_to_do: String,
    },
    /// Nobody answers at the address.
    #[error(
        "no answer from {server}: {why}\nIs dormer running there? --server or DORMER_SERVER names another address"
    )]
    Unreachable {
        /// The server's address.
        server: String,
        /// What went wrong.
        why: String,
    },
}

/// What a server says beside an error status.
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
    /// Something was not done, and what might help.
    pub fn refused(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::Refused {
            error: error.into(),
            what_to_do: what_to_do.into(),
        }
    }

    /// An answer that is JSON, but not of the form that this build reads.
    pub(crate) fn unreadable(why: impl Display) -> Self {
        Self::refused(
            format!("the server's answer cannot be read: {why}"),
            "ask with the dormer command of the server's version",
        )
    }

    /// What a server's answer with an error status means.
    pub fn from_answer(status: u16, body: &[u8]) -> Self {
        let Refusal { error, what_to_do } = serde_json::from_slice(body).unwrap_or_default();
        let error = if error.is_empty() {
            format!("the server answered with status {status}")
        } else {
            error
        };
        match status {
            404 => Self::Absent { error, what_to_do },
            400 => Self::Usage(format!("{error}{}", advice(&what_to_do))),
            _ => Self::Refused { error, what_to_do },
        }
    }

    /// The exit code, as [`EXIT_CODES`] documents it.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Refused { .. } => 1,
            Self::Usage(_) => 2,
            Self::Absent { .. } => 3,
            Self::Unreachable { .. } => 4,
        })
    }
}

/// Ends a command: prints its text, and says by the exit code how it went; false: it went, and found something amiss.
pub fn finish(done: Result<(String, bool), Failure>) -> ExitCode {
    match done {
        Ok((text, good)) => {
            if !text.is_empty() {
                // A reader that has seen enough closes the pipe: no failure of ours.
                let _ = writeln!(std::io::stdout(), "{text}");
            }
            if good {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(failure) => {
            eprintln!("dormer: {failure}");
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
        assert_eq!(failure.to_string(), "the server answered with status 502");
        assert_eq!(failure.exit_code(), ExitCode::from(1));
    }
}
