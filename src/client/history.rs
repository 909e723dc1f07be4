//! `dormer history`: what happened, as a story.

use super::{Failure, To, action_commands::run_of, export::export, get::list, server::Server};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Records asked for at once.
const PAGE: usize = 200;

/// Whose history.
#[derive(Debug, Args)]
pub struct History {
    /// The machine: its name, NAMESPACE/NAME or UID; or rollout/POOL
    machine: String,
    /// From this record on
    #[arg(long, default_value_t = 1, value_name = "SEQ")]
    from: u64,
    /// At most so many records
    #[arg(long, default_value_t = 10_000)]
    limit: usize,
    /// Writes all of it into a file instead, which dormer replay reads; - is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "limit"])]
    export: Option<PathBuf>,
    #[command(flatten)]
    to: To,
}

impl History {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let run = run_of(&server, &self.machine).await?;
        if let Some(file) = &self.export {
            let records = export(&server, &run, file).await?;
            let shown = file.display();
            return Ok(match file.to_str() {
                Some("-") => String::new(),
                _ => format!("{records} records are in {shown}; dormer replay {shown} tries them."),
            });
        }
        let records = records(&server, &run, self.from, self.limit).await?;
        match self.to.output.for_programs(&json!(records))? {
            Some(text) => Ok(text),
            None => Ok(story(&records)),
        }
    }
}

/// The records of the run at `run`, page by page.
async fn records(
    server: &Server,
    run: &str,
    from: u64,
    limit: usize,
) -> Result<Vec<Value>, Failure> {
    let mut records: Vec<Value> = Vec::new();
    let mut next = Some(from);
    while let Some(from) = next.filter(|_| records.len() < limit) {
        let asked = PAGE.min(limit - records.len());
        let page = server
            .get(&format!("{run}/history?from={from}&limit={asked}"))
            .await?;
        // A page that does not lead on would be asked for over and over.
        next = page["next"].as_u64().filter(|next| *next > from);
        records.extend(list(page));
    }
    Ok(records)
}

/// Each record as its number, its time and its phase, and below it what happened.
fn story(records: &[Value]) -> String {
    if records.is_empty() {
        return "No records.".into();
    }
    let mut lines = Vec::new();
    let mut day = "";
    for record in records {
        let at = record["at"].as_str().unwrap_or_default();
        let (date, time) = at.split_once('T').unwrap_or(("", at));
        if date != day {
            lines.push(date.to_owned());
            day = date;
        }
        let seq = record["seq"].as_u64().unwrap_or_default();
        lines.push(format!(
            "{seq:>5}  {}  {}",
            time.trim_end_matches('Z'),
            phase_text(record)
        ));
        for event in record["events"].as_array().into_iter().flatten() {
            lines.push(format!("{:21}{}", "", event.as_str().unwrap_or_default()));
        }
        let asks: Vec<&str> = record["asks"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if !asks.is_empty() {
            lines.push(format!("{:21}-> {}", "", asks.join(", ")));
        }
    }
    lines.join("\n")
}

fn phase_text(record: &Value) -> String {
    let state = record["state"].as_str().unwrap_or("-");
    match record["phase"].as_str() {
        Some(phase) if !phase.eq_ignore_ascii_case(state) => format!("{state}, {phase}"),
        _ => state.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_names_the_day_once_and_each_record_with_what_it_asked() {
        let records = [
            json!({"seq": 1, "at": "2026-11-21T07:00:00.000Z", "state": "Provisioned", "phase": "probing",
                "events": ["the run began"], "asks": ["probe"]}),
            json!({"seq": 2, "at": "2026-11-21T07:00:01.000Z", "state": "Failed", "phase": "failed",
                "events": ["probe failed"], "asks": []}),
        ];
        assert_eq!(
            story(&records).lines().collect::<Vec<_>>(),
            [
                "2026-11-21",
                "    1  07:00:00.000  Provisioned, probing",
                "                     the run began",
                "                     -> probe",
                "    2  07:00:01.000  Failed",
                "                     probe failed",
            ]
        );
    }
}
