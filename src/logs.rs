//! The log: one line for each thing that happened, on standard error, for people or for programs.

use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs: each line is one JSON object
    Json,
}

/// Writes the log to standard error from here on. `DORMER_LOG` chooses what is written (`info`,
/// `dormer_engine=debug`); without it `usual` does.
pub(crate) fn to_stderr(usual: &str, format: Format) {
    let filter = EnvFilter::try_from_env("DORMER_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(format == Format::Text && std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        Format::Text => lines.init(),
        // The attempt's fields stand in `span`; the event's own beside time, level and target.
        Format::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .init(),
    }
}
