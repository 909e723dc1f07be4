//! Log on standard error: one line per event, for people or for programs.

use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs: each line is one JSON object
    Json,
}

/// Starts the log on standard error. `DORMER_LOG` filters it (`info`, `dormer_engine=debug`); the default is `usual`.
pub(crate) fn to_stderr(usual: &str, format: Format) {
    let chosen = filter(std::env::var("DORMER_LOG").ok().as_deref(), usual);
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(format == Format::Text && std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        Format::Text => lines.finish().with(chosen).init(),
        // The attempt's fields are in `span`; the event's own are beside time, level and target.
        Format::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .finish()
            .with(chosen)
            .init(),
    }
}

/// Filter from the variable, or the usual one if it is missing or invalid.
fn filter(asked: Option<&str>, usual: &str) -> Targets {
    asked
        .filter(|text| !text.trim().is_empty())
        .and_then(|text| text.parse().ok())
        .or_else(|| usual.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_log_filter_holds_for_all_and_a_package_may_have_its_own() {
        let chosen = filter(
            Some("warn,dormer_engine=debug,dormer_workers::ssh=off"),
            "info",
        );
        assert!(chosen.would_enable("dormer_engine::inbox", &Level::DEBUG));
        assert!(!chosen.would_enable("dormer_workers::ssh", &Level::ERROR));
        assert!(chosen.would_enable("kube_client", &Level::WARN));
        assert!(!chosen.would_enable("kube_client", &Level::INFO));
    }

    #[test]
    fn without_a_filter_that_can_be_read_the_usual_one_holds() {
        for asked in [None, Some(""), Some("dormer=loud")] {
            let chosen = filter(asked, "info");
            assert!(chosen.would_enable("dormer", &Level::INFO), "{asked:?}");
            assert!(!chosen.would_enable("dormer", &Level::DEBUG), "{asked:?}");
        }
    }
}
