//! `dormer dead`: letters that should have been understood and could not be.

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
pub enum Dead {
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

impl Dead {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        match self {
            Self::List(List { to }) => {
                let letters = list(to.server()?.get("/dead").await?);
                if let Some(text) = to.output.for_programs(&json!(letters))? {
                    return Ok(text);
                }
                if letters.is_empty() {
                    return Ok("There are none.".into());
                }
                Ok(table(&letters, COLUMNS, to.wide()))
            }
            Self::Show(One { id, to }) => {
                let letter = to.server()?.get(&format!("/dead/{id}")).await?;
                match to.output.for_programs(&letter)? {
                    Some(text) => Ok(text),
                    None => Ok(super::get::described(&letter)),
                }
            }
            Self::Requeue(One { id, to }) => {
                let answer = to
                    .server()?
                    .post(&format!("/dead/{id}/requeue"), &json!({}))
                    .await?;
                let text = to.output.for_programs(&answer)?;
                Ok(text.unwrap_or_else(|| format!("Letter {id} is in the inbox again.")))
            }
        }
    }
}
