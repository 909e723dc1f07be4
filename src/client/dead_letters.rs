//! `dormer dead-letters`: messages that no engine could read.

use super::{
    EXIT_CODES, Failure, ServerArgs,
    answer::Answer,
    describe::described,
    output::{Column, optional, table},
};
use clap::{Args, Subcommand};
use dormer_views::actions::REQUEUE;
use dormer_views::run::{self, DeadLetter};
use serde_json::{Value, json};

const COLUMNS: &[Column<DeadLetter>] = &[
    Column::new("ID", |it| it.id.to_string()),
    Column::new("SINCE", |it| it.at.to_string()),
    Column::new("RUN", |it| optional(&it.run)),
    Column::wide("BYTES", |it| it.bytes.to_string()),
    Column::wide("FROM", |it| it.origin.clone()),
    Column::new("REASON", |it| it.reason.clone()),
];

/// Subcommands for dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadLetters {
    /// List them, oldest first
    #[command(after_help = EXIT_CODES)]
    List(List),
    /// Show one with its content
    #[command(after_help = EXIT_CODES)]
    Show(DeadLetterArg),
    /// Move one back into the inbox; a newer build may be able to read it
    #[command(after_help = EXIT_CODES)]
    Requeue(DeadLetterArg),
}

/// Arguments of the list.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    to: ServerArgs,
}

/// Arguments that select one dead letter.
#[derive(Debug, Args)]
pub struct DeadLetterArg {
    /// Number in the list
    #[arg(value_parser = number)]
    id: u64,
    #[command(flatten)]
    to: ServerArgs,
}

/// Number of a dead letter.
fn number(text: &str) -> Result<u64, String> {
    let what = "give the number under ID, as dormer dead-letters list shows it";
    text.parse().map_err(|_| what.to_owned())
}

impl DeadLetters {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        match self {
            Self::List(List { to }) => {
                let listed: run::List<Answer<DeadLetter>> =
                    to.server()?.get("/dead-letters").await?;
                if let Some(text) = to.programs(&listed.items)? {
                    return Ok(text);
                }
                if listed.items.is_empty() {
                    return Ok("There are no dead letters.".into());
                }
                let shown = listed.items.iter().map(|item| &item.view);
                Ok(table(shown, COLUMNS, to.wide()))
            }
            Self::Show(DeadLetterArg { id, to }) => {
                let shown: Value = to.server()?.get(&format!("/dead-letters/{id}")).await?;
                let programs = to.programs(&shown)?;
                Ok(programs.unwrap_or_else(|| described(&shown)))
            }
            Self::Requeue(DeadLetterArg { id, to }) => {
                let path = format!("/dead-letters/{id}/requeue");
                let answer: Value = to.server()?.post(&path, &json!({})).await?;
                let text = to.programs(&answer)?;
                Ok(text.unwrap_or_else(|| format!("Dead letter {id} is {}.", REQUEUE.done)))
            }
        }
    }
}
