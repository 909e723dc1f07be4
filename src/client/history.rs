//! `dormer history`: the records of a run in sentences.

use super::{
    Failure, ServerArgs,
    action_commands::run_of,
    answer::Answer,
    export::{Page, export},
    server::Server,
    terminal,
};
use clap::Args;
use dormer_views::{
    record::{Record, shown},
    timeline::not_stored,
};
use std::path::PathBuf;

/// Records in one request.
const PAGE: usize = 200;

/// Arguments of `dormer history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The machine: its name, NAMESPACE/NAME or UID; or rollout/POOL
    #[arg(value_name = "MACHINE|rollout/POOL")]
    machine: String,
    /// First record
    #[arg(long, default_value_t = 1, value_name = "RECORD")]
    from: u64,
    /// Most records
    #[arg(long, default_value_t = 10_000)]
    limit: usize,
    /// Also receipts and timers, and long sentences whole; JSON and YAML always have them
    #[arg(long)]
    all: bool,
    /// Write the whole history into a file for dormer replay; - is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "limit"])]
    export: Option<PathBuf>,
    #[command(flatten)]
    to: ServerArgs,
}

impl HistoryArgs {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let run = run_of(&server, &self.machine).await?;
        if let Some(file) = &self.export {
            let records = export(&server, &run, file).await?;
            let shown = file.display();
            return Ok(match file.to_str() {
                Some("-") => String::new(),
                _ => format!(
                    "wrote {records} records to {shown}; dormer replay {shown} replays them"
                ),
            });
        }
        let records = records(&server, &run, self.from, self.limit).await?;
        let programs = self.to.programs(&records)?;
        let shown = records.iter().map(|record| &record.view);
        let first = records.first().map_or(0, |record| record.view.seq);
        let not_stored = not_stored(first).filter(|_| first > self.from);
        let people = || {
            let story = story(shown, self.all);
            let text = not_stored.map_or_else(String::new, |text| format!("{text}\n"));
            terminal::hung(&format!("{text}{story}"), terminal::columns(), &[])
        };
        Ok(programs.unwrap_or_else(people))
    }
}

/// Reads the records of the run at the path `run`, page by page.
async fn records(
    server: &Server,
    run: &str,
    from: u64,
    limit: usize,
) -> Result<Vec<Answer<Record>>, Failure> {
    let mut records: Vec<Answer<Record>> = Vec::new();
    let mut next = Some(from);
    while let Some(from) = next.filter(|_| records.len() < limit) {
        let asked = PAGE.min(limit - records.len());
        let path = format!("{run}/history?from={from}&limit={asked}");
        let page: Page<Answer<Record>> = server.get(&path).await?;
        next = page.next_after(from);
        records.extend(page.items);
    }
    Ok(records)
}

/// Each record with its number, time and phase, and its events below. Without `all`, records that only dormer needs are
/// left out and counted, and equal failures in a row are one.
fn story<'a>(records: impl IntoIterator<Item = &'a Record>, all: bool) -> String {
    let mut lines = Vec::new();
    let mut day = String::new();
    let (rows, left_out) = shown(records, all);
    for row in &rows {
        let record = row.record;
        let at = record.at.to_string();
        let (date, time) = at.split_once('T').unwrap_or(("", &at));
        if date != day {
            lines.push(format!("{date}, UTC"));
            day = date.to_owned();
        }
        let time = time.trim_end_matches('Z');
        lines.push(format!("{:>5}  {time}  {}", record.seq, label(record)));
        let events = row.events(all);
        for event in events {
            let text = if all {
                event.text.clone()
            } else {
                shortened(&event.text)
            };
            lines.push(format!("{:21}{text}", ""));
            let log = event.log.iter().flat_map(|log| log.lines());
            lines.extend(log.map(|line| format!("{:21}| {line}", "")));
        }
        if row.times > 1 {
            lines.push(format!(
                "{:21}{}, first at {} (record {})",
                "",
                row.repeated(),
                row.first.at.clock_seconds(record.at.0),
                row.first.seq
            ));
        }
        if !record.asks.is_empty() {
            lines.push(format!("{:21}-> {}", "", record.asks.join(", ")));
        }
    }
    if left_out > 0 {
        let (records, them) = match left_out {
            1 => ("1 record is".to_owned(), "it"),
            count => (format!("{count} records are"), "them"),
        };
        lines.push(format!(
            "{records} left out: confirmations and reports between runs, and timers. --all shows {them}."
        ));
    }
    if lines.is_empty() {
        return "No records.".into();
    }
    lines.join("\n")
}

/// Most characters of an event's sentence; `--all` has the rest.
const EVENT_MAX: usize = 240;

/// An event's sentence, cut where it is long.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(EVENT_MAX) {
        Some((at, _)) => format!("{}… (--all shows the rest)", &text[..at]),
        None => text.to_owned(),
    }
}

/// State after the record, with the phase if it is more specific.
fn label(record: &Record) -> String {
    let state = record.state_word();
    match record.phase_beside_state() {
        Some(phase) => format!("{state}, {phase}"),
        None => state.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_long_sentence_is_cut_unless_all_is_asked_for() {
        let text = format!("probe failed: {}", "é".repeat(1_000));
        let record: Record =
            serde_json::from_value(json!({"seq": 1, "at": "2026-11-21T07:00:00.000Z",
            "state": "Provisioned", "phase": "probing", "phaseText": "probing", "asks": [],
            "events": [{"kind": "task-failed", "text": text}]}))
            .expect("a record");
        let longest = |all| {
            let story = story([&record], all);
            story
                .lines()
                .map(|it| it.chars().count())
                .max()
                .unwrap_or(0)
        };
        assert!(longest(false) < 300, "{}", longest(false));
        assert!(longest(true) > 1_000);
    }

    #[test]
    fn a_story_names_the_day_once_and_each_record_with_what_it_asked() {
        let records: Vec<Record> = serde_json::from_value(json!([
            {"seq": 1, "at": "2026-11-21T07:00:00.000Z", "state": "Provisioned", "phase": "probing",
                "phaseText": "probing", "events": [{"kind": "started", "text": "the run began"}],
                "asks": ["probe"]},
            {"seq": 2, "at": "2026-11-21T07:00:01.000Z", "state": "Failed", "phase": "failed",
                "phaseText": "failed", "asks": [], "events": [{"kind": "task-failed", "task": "probe",
                "code": "NoAnswer", "attempt": 1, "text": "probe failed"}]},
        ]))
        .unwrap();
        assert_eq!(
            story(&records, false).lines().collect::<Vec<_>>(),
            [
                "2026-11-21, UTC",
                "    1  07:00:00.000  Provisioned, probing",
                "                     the run began",
                "                     -> probe",
                "    2  07:00:01.000  Failed",
                "                     probe failed",
            ]
        );
        assert_eq!(story([], false), "No records.");
    }

    #[test]
    fn what_runs_confirm_to_each_other_is_left_out_unless_it_changed_something() {
        let record = |seq: u64, state: &str, kind: &str, asks: &[&str]| {
            json!({"seq": seq, "at": "2026-11-21T07:00:00.000Z", "state": state, "phase": null,
                "phaseText": null, "events": [{"kind": kind, "text": format!("event {seq}")}], "asks": asks})
        };
        let records: Vec<Record> = serde_json::from_value(json!([
            record(1, "Open", "started", &[]),
            record(2, "Open", "signal-receipted", &[]),
            record(3, "Open", "timer-due", &["probe"]),
            record(4, "Halted", "timer-due", &[]),
            record(5, "Halted", "signal-taken", &[]),
        ]))
        .unwrap();
        let short = story(&records, false);
        assert!(
            !short.contains("event 2") && short.contains("-> probe"),
            "{short}"
        );
        assert!(
            short.contains("Halted") && short.contains("event 4") && short.contains("event 5"),
            "{short}"
        );
        assert!(short.ends_with("--all shows it."), "{short}");
        let whole = story(&records, true);
        assert!(
            (1..=5).all(|seq| whole.contains(&format!("event {seq}"))),
            "{whole}"
        );
    }
}
