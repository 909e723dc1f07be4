//! Page of activity: requests with person, time, origin and effect.

use super::{
    PageContent, Snapshot,
    page::{Section, or_dash, state, time},
};
use dormer_api::{Api, ApiError, SharedRun, pages::Request, views};
use dormer_proto::{
    id::{RunId, Seq},
    work::MACHINE,
};
use maud::{Markup, html};
use std::{collections::HashMap, sync::Arc};
use tokio::sync::Mutex;

/// Most requests on the page, the newest.
const ROWS: usize = 200;
/// Most runs whose requests are read, the last changed first.
const RUNS_MAX: usize = 500;
/// Beginning of the ids of this console's requests.
const CONSOLE: &str = "console-";
/// Beginning of the ids of the commands' requests.
const COMMANDS: &str = "cli-";

/// Requests that were read before, by run, with the next record to read.
#[derive(Debug, Default)]
pub(super) struct RequestCache(Mutex<HashMap<RunId, (Seq, Vec<Request>)>>);

/// Reads the requests and renders them.
pub(super) async fn read(
    api: &Arc<Api>,
    snapshot: &Snapshot,
    known: &RequestCache,
) -> Result<PageContent, ApiError> {
    let mut asked: Vec<&SharedRun> = snapshot
        .runs
        .iter()
        .filter(|run| !run.requests.is_empty())
        .collect();
    asked.sort_by_key(|run| std::cmp::Reverse(run.entered.at));
    asked.truncate(RUNS_MAX);
    let names = views::names(&snapshot.runs);
    let mut known = known.0.lock().await;
    known.retain(|id, _| asked.iter().any(|run| run.id == *id));
    let mut rows: Vec<(Request, &SharedRun)> = Vec::new();
    for run in asked {
        let (next, requests) = known
            .entry(run.id.clone())
            .or_insert_with(|| (Seq(1), Vec::new()));
        if *next <= run.seq {
            requests.extend(api.requests_of(&run.id, *next).await?);
            *next = run.seq.next();
        }
        rows.extend(requests.iter().map(|request| (request.clone(), run)));
    }
    drop(known);
    rows.sort_by_key(|(request, _)| std::cmp::Reverse((request.at, request.seq)));
    let count = rows.len();
    rows.truncate(ROWS);
    let now_of = |run: &SharedRun| {
        let run = views::run(run, api.live(), snapshot.now);
        run.state_word().to_owned()
    };
    let main = html! {
        div.top { h1 { "Activity" } }
        @if rows.is_empty() {
            p.quiet { "Nobody has asked for anything yet. Requests of people stand here; what dormer does by itself is in each machine's history." }
        } @else {
            div.card.flush { table {
                thead { tr {
                    th { "When" } th { "Who" } th { "What" } th { "Object" } th { "Sent by" } th { "Reason" } th { "State after it" } th { "State now" }
                } }
                tbody { @for (request, run) in &rows { (row(request, run, &names, &now_of(run))) } }
            } }
            @if count > ROWS { p.quiet { "The newest " (ROWS) " of " (count) ". Each history has all of its own." } }
        }
    };
    Ok(PageContent {
        title: "Activity".into(),
        section: Section::Activity,
        main,
    })
}

fn row(request: &Request, run: &SharedRun, names: &views::KnownMachines, now: &str) -> Markup {
    let key = run.id.key();
    let (address, called) = match run.id.workflow() {
        MACHINE => (
            format!("/machines/{key}"),
            names.get(key).map_or(key, String::as_str).to_owned(),
        ),
        _ => (format!("/rollouts/{key}"), format!("rollout {key}")),
    };
    html! {
        tr data-key=(format!("{}-{}-{}", run.id, request.seq, request.id)) {
            td data-label="When" { (time(request.at)) }
            td data-label="Who" { (request.who) }
            td data-label="What" { (request.what) }
            td data-label="Object" { a href=(address) { (called) } }
            td data-label="Sent by" { (from(&request.id)) }
            td data-label="Reason" { (or_dash(Some(&request.why))) }
            td data-label="State after it" { (state(&request.state)) }
            td data-label="State now" { @if run.closed.is_some() { "ended" } @else { (state(now)) } }
        }
    }
}

/// Program that sent a request, by the request's id.
fn from(id: &str) -> &'static str {
    if id.starts_with(CONSOLE) {
        "console"
    } else if id.starts_with(COMMANDS) {
        "command line"
    } else {
        "API"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requests_id_says_which_program_sent_it() {
        let found = ["console-0af1", "cli-9", "a-robot"].map(from);
        assert_eq!(found, ["console", "command line", "API"]);
    }
}
