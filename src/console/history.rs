//! History of a run as a table in pages, newest record first.

use super::page::{query, state, time};
use dormer_api::{Api, ApiError, SharedRun};
use dormer_views::actions::RESET;
use dormer_views::{
    record::{EventKind, Record, ShownRecord, shown},
    timeline::not_stored,
};
use maud::{Markup, html};
use serde::Deserialize;
use std::sync::Arc;

/// Records on a page. Equal failures are one row, and what only dormer needs is left out.
const ROWS: u64 = 100;

/// Part of a history that a page shows, from the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default)]
pub(super) struct HistoryPart {
    /// Shows records before this one. `None`: the newest.
    before: Option<u64>,
    /// First record of the episode to draw.
    pub(super) episode: Option<u64>,
    /// Shows each record, also those that only dormer needs.
    all: Option<bool>,
    /// Offers to go back to a record.
    back: Option<bool>,
}

impl HistoryPart {
    fn all(self) -> bool {
        self.all == Some(true)
    }

    fn back(self) -> bool {
        self.back == Some(true)
    }

    fn address(self) -> String {
        let number = |it: Option<u64>| it.map(|it| it.to_string());
        let before = number(self.before);
        let episode = number(self.episode);
        let query = query(&[
            ("before", before.as_deref()),
            ("episode", episode.as_deref()),
            ("all", self.all().then_some("true")),
            ("back", self.back().then_some("true")),
        ]);
        let query = if query.is_empty() { "?" } else { &query };
        format!("{query}#history")
    }
}

/// Reads the records of a part, newest last.
pub(super) async fn read(
    api: &Arc<Api>,
    run: &SharedRun,
    part: HistoryPart,
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
    part: HistoryPart,
    reset: Option<&str>,
) -> Markup {
    let first = records.first().map_or(1, |record| record.seq);
    let last = records.last().map_or(0, |record| record.seq);
    // A part holds as many records as fit; one with fewer before it begins where the stored history begins.
    let wanted = part
        .before
        .map_or(run.seq.0, |before| before.saturating_sub(1))
        .min(run.seq.0);
    let begins_late = first > 1 && first > wanted.saturating_sub(ROWS - 1).max(1);
    let address = |before: u64| {
        let before = (before <= run.seq.0).then_some(before);
        HistoryPart { before, ..part }.address()
    };
    let (rows, _) = shown(records, part.all());
    let reset = reset.filter(|_| run.closed.is_none());
    let all = (Some(!part.all())).filter(|all| *all);
    let back = (Some(!part.back())).filter(|back| *back);
    html! {
        section.card aria-labelledby="history" data-key="history-table" {
        h2 #history { "What happened" }
        table.history {
            thead { tr {
                th { "Record" } th { "When" } th { "State" } th { "What" }
                @if part.back() { th { "Action" } }
            } }
            tbody { @for shown in rows.iter().rev() { (row(shown, run, reset, part)) } }
        }
        @if let Some(text) = not_stored(first).filter(|_| begins_late) { p.quiet { (text) } }
        nav.pager aria-label="Pages of the history" {
            @if last < run.seq.0 { a href=(address(last + ROWS + 1)) { "← newer" } }
            span { @if first == last { "record " (last) } @else { "records " (first) " to " (last) } " of " (run.seq.0) }
            @if first > 1 && !begins_late { a href=(address(first)) { "older →" } }
            a href=(HistoryPart { all, ..part }.address()) {
                @if part.all() { "Show what matters" } @else { "Show all" }
            }
            @if reset.is_some() {
                a href=(HistoryPart { back, ..part }.address()) {
                    @if part.back() { "Do not go back" } @else { "Go back to a record…" }
                }
            }
        }
        }
    }
}

fn row(shown: &ShownRecord<'_>, run: &SharedRun, reset: Option<&str>, part: HistoryPart) -> Markup {
    let record = shown.record;
    let seq = record.seq;
    html! {
        tr data-key=(format!("record-{seq}")) {
            td data-label="Record" { span.seq { (seq) } }
            td data-label="When" { (time(record.at)) }
            td data-label="State" {
                (state(record.state_word()))
                @if let Some(phase) = record.phase_beside_state() { " " span.phase { (phase) } }
            }
            td data-label="What" {
                @for event in shown.events(part.all()) {
                    div.event.bad[event.kind == EventKind::TaskFailed] { (event.text) }
                }
                @if shown.times > 1 {
                    div.asks { (shown.repeated()) ", first " (time(shown.first.at)) ", last " (time(record.at)) }
                }
                @for task in &record.asks { div.asks { "→ " (task) } }
            }
            @if part.back() { td data-label="" {
                @if let Some(path) = reset.filter(|_| seq < run.seq.0) {
                    button.small.danger type="button" title=(RESET.what) aria-label=(format!("go back here, to record {seq}"))
                        data-key=(format!("reset-{seq}"))
                        data-post=(format!("/api/v1/{path}/reset")) data-to=(seq)
                        data-what=(format!("Go back to record {seq}?")) data-yes="Go back" data-done="Reset accepted"
                        data-danger=(format!("{}: {}.", RESET.what, RESET.danger.unwrap_or_default())) {
                        "go back here"
                    }
                }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_part_has_what_was_asked_for_and_no_more() {
        assert_eq!(HistoryPart::default().address(), "?#history");
        let part = HistoryPart {
            before: Some(9),
            back: Some(true),
            ..HistoryPart::default()
        };
        assert_eq!(part.address(), "?before=9&back=true#history");
        let shown = HistoryPart {
            back: None,
            all: Some(true),
            ..part
        };
        assert_eq!(shown.address(), "?before=9&all=true#history");
    }
}
