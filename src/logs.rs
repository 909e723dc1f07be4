//! Log on standard error: one line per event, for people or for programs.

use clap::ValueEnum;
use dormer_client::terminal::clean_but;
use std::io::{self, IsTerminal, Write};
use tracing::Level;
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
    let coloured = format == Format::Text && io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(coloured)
        // A log without a reader must not end the process: the message about it could not be printed either.
        .log_internal_errors(false)
        .with_writer(io::stderr);
    match format {
        Format::Text => lines
            .with_writer(move || OneLine {
                out: io::stderr(),
                coloured,
            })
            .finish()
            .with(chosen)
            .init(),
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

/// Colours of the formatter.
const COLOURS: [&str; 10] = ["0", "1", "2", "3", "31", "32", "33", "34", "35", "36"];

/// Writer of whole events, each of which becomes one line: a line end within one, such as in the answer of a host, would
/// let its author write lines of its own. What steers a terminal is shown; the formatter does so in messages only.
struct OneLine<W> {
    out: W,
    coloured: bool,
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let (text, end) = match event.split_last() {
            Some((b'\n', text)) => (text, "\n"),
            _ => (event, ""),
        };
        let text = String::from_utf8_lossy(text);
        let line = text.replace('\r', "\\r").replace('\n', "\\n");
        let line = clean_but(&line, if self.coloured { &COLOURS } else { &[] }) + end;
        self.out.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Module of the NATS client that logs the address of a server with its login, below `info`.
const LOGS_LOGINS: &str = "async_nats::connector";

/// Filter from the variable, or the usual one if it is missing or invalid. It never shows a login in a server's address.
fn filter(asked: Option<&str>, usual: &str) -> Targets {
    let chosen: Targets = asked
        .filter(|text| !text.trim().is_empty())
        .and_then(|text| text.parse().ok())
        .or_else(|| usual.parse().ok())
        .unwrap_or_default();
    let mut limits = [Level::INFO, Level::WARN, Level::ERROR].into_iter();
    let limit = limits.find(|limit| chosen.would_enable(LOGS_LOGINS, limit));
    let limit = limit.map_or(LevelFilter::OFF, LevelFilter::from_level);
    chosen.with_target(LOGS_LOGINS, limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn text_of_others_neither_steers_a_terminal_nor_begins_a_line() {
        #[derive(Clone, Default)]
        struct Kept(Arc<Mutex<Vec<u8>>>);
        impl Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().expect("a lock").write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || OneLine {
                out: writer.clone(),
                coloured: false,
            })
            .finish();
        let planted = "x\x1b[2J\u{9b}31m\r\n2026-01-01T00:00:00Z INFO dormer: forged";
        tracing::subscriber::with_default(lines, || {
            tracing::warn!("said {planted}");
            tracing::warn!(host = planted, "as text");
            tracing::warn!(host = %planted, "as it shows itself");
            let error = io::Error::other(planted);
            tracing::warn!(error = &error as &dyn std::error::Error, "an error");
        });
        let text = String::from_utf8(kept.0.lock().expect("a lock").clone()).expect("text");
        assert_eq!(text.lines().count(), 4, "{text:?}");
        let steers = |it: char| it.is_control() && it != '\n';
        assert!(!text.contains(steers), "{text:?}");
    }

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
    fn no_filter_shows_the_login_in_the_address_of_a_server() {
        for asked in [
            "debug",
            "trace",
            "async_nats=debug",
            "async_nats::connector=trace",
        ] {
            let chosen = filter(Some(asked), "info");
            assert!(!chosen.would_enable(LOGS_LOGINS, &Level::DEBUG), "{asked}");
            assert!(chosen.would_enable(LOGS_LOGINS, &Level::INFO), "{asked}");
        }
        assert!(filter(Some("debug"), "info").would_enable("async_nats", &Level::DEBUG));
        for asked in ["warn", "info,async_nats=warn"] {
            let chosen = filter(Some(asked), "info");
            assert!(!chosen.would_enable(LOGS_LOGINS, &Level::INFO), "{asked}");
            assert!(chosen.would_enable(LOGS_LOGINS, &Level::WARN), "{asked}");
        }
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
