//! History of a run as a table in pages, newest record first.

use super::page::{query, state, time};
use dormer_api::{Api, ApiError, SharedRun};
use dormer_views::actions::RESET;
use dormer_views::record::{EventKind, Record};
use maud::{Markup, html};
use serde::Deserialize;
use std::sync::Arc;

/// Records on a page.
const ROWS: u64 = 40;

/// Part of a history that a page shows, from the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default)]
pub(super) struct Part {
    /// Shows records before this one. `None`: the newest.
    before: Option<u64>,
    /// First record of the episode to draw.
    pub(super) episode: Option<u64>,
}

/// Reads the records of a part, newest last.
pub(super) async fn read(
    api: &Arc<Api>,
    run: &SharedRun,
    part: Part,
) -> Result<Vec<Record>, ApiError> {
    let last = part
        .before
        .map_or(run.seq.0, |before| before.saturating_sub(1).min(run.seq.0));
    let from = last.saturating_sub(ROWS - 1).max(1);
    let limit = usize::try_from((last + 1).saturating_sub(from).max(1)).unwrap_or(1);
    let mut records = api.part_of(&run.id, from, limit).await?.items;
    records.retain(|record| record.seq <= last);
    Ok(records)
}

/// Table with links to the neighbouring pages. `reset` is the run's path, if it can be reset to a record.
pub(super) fn table(
    records: &[Record],
    run: &SharedRun,
    part: Part,
    reset: Option<&str>,
) -> Markup {
    let first = records.first().map_or(1, |record| record.seq);
    let last = records.last().map_or(0, |record| record.seq);
    let address = |before: u64| {
        let before = (before <= run.seq.0).then(|| before.to_string());
        let episode = part.episode.map(|episode| episode.to_string());
        let query = query(&[
            ("before", before.as_deref()),
            ("episode", episode.as_deref()),
        ]);
        if query.is_empty() {
            "?#history".to_owned()
        } else {
            format!("{query}#history")
        }
    };
    html! {
        section.card aria-labelledby="history" {
        h2 #history { "What happened" }
        table.history {
            thead { tr { th { "Record" } th { "When" } th { "State" } th { "What" } th { "Action" } } }
            tbody { @for record in records.iter().rev() { (row(record, run, reset)) } }
        }
        nav.pager aria-label="Pages of the history" {
            @if last < run.seq.0 { a href=(address(last + ROWS + 1)) { "← newer" } }
            span { "records " (first) " to " (last) " of " (run.seq.0) }
            @if first > 1 { a href=(address(first)) { "older →" } }
        }
        }
    }
}

fn row(record: &Record, run: &SharedRun, reset: Option<&str>) -> Markup {
    let seq = record.seq;
    html! {
        tr data-key=(format!("record-{seq}")) {
            td data-label="Record" { span.seq { (seq) } }
            td data-label="When" { (time(record.at)) }
            td data-label="State" {
                (state(&record.state))
                @if let Some(phase) = record.phase_beside_state() { " " span.phase { (phase) } }
            }
            td data-label="What" {
                @for event in &record.events {
                    div.event.bad[event.kind == EventKind::TaskFailed] { (event.text) }
                }
                @for task in &record.asks { div.asks { "→ " (task) } }
            }
            td data-label="" {
                @if let Some(path) = reset.filter(|_| seq < run.seq.0 && run.closed.is_none()) {
                    button.small.danger type="button" title=(RESET.what) aria-label=(format!("go back here, to record {seq}"))
                        data-key=(format!("reset-{seq}"))
                        data-post=(format!("/api/v1/{path}/reset")) data-to=(seq)
                        data-what=(format!("Go back to record {seq}?")) data-yes="Go back" data-done="Reset accepted"
                        data-danger=(format!("{}: {}.", RESET.what, RESET.danger.unwrap_or_default())) {
                        "go back here"
                    }
                }
            }
        }
    }
}
