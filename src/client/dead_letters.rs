//! `dormer dead-dead_letters`: messages that should have been understood and could not be.

use super::{
    EXIT_CODES, Failure, To,
    get::list,
    output::{Column, table},
};
use clap::{Args, Subcommand};
use serde_json::json;

const COLUMNS: &[Column] = &[
    ("ID", "id", false),
    ("SINCE", "at", false),
    ("RUN", "run", false),
    ("BYTES", "bytes", true),
    ("FROM", "origin", true),
    ("REASON", "reason", false),
];

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadLetters {
    /// List them, oldest first
    #[command(after_help = EXIT_CODES)]
    List(List),
    /// All of one
    #[command(after_help = EXIT_CODES)]
    Show(One),
    /// Put one back into the inbox: a newer build may understand it
    #[command(after_help = EXIT_CODES)]
    Requeue(One),
}

/// How they are listed.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    to: To,
}

/// One of them.
#[derive(Debug, Args)]
pub struct One {
    /// Its number in the list
    id: u64,
    #[command(flatten)]
    to: To,
}

impl DeadLetters {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        match self {
            Self::List(List { to }) => {
                let dead_letters = list(to.server()?.get("/dead-letters").await?);
                if let Some(text) = to.output.for_programs(&json!(dead_letters))? {
                    return Ok(text);
                }
                if dead_letters.is_empty() {
                    return Ok("There are none.".into());
                }
                Ok(table(&dead_letters, COLUMNS, to.wide()))
            }
            Self::Show(One { id, to }) => {
                let dead_letter = to.server()?.get(&format!("/dead-letters/{id}")).await?;
                match to.output.for_programs(&dead_letter)? {
                    Some(text) => Ok(text),
                    None => Ok(super::get::described(&dead_letter)),
                }
            }
            Self::Requeue(One { id, to }) => {
                let answer = to
                    .server()?
                    .post(&format!("/dead-letters/{id}/requeue"), &json!({}))
                    .await?;
                let text = to.output.for_programs(&answer)?;
                Ok(text.unwrap_or_else(|| format!("Dead letter {id} is in the inbox again.")))
            }
        }
    }
}
