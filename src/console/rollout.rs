//! A rollout's page: who is away and why, who waits, who holds the lease, and its story.

use super::{
    board::names,
    page::{button, state, story, word},
};
use maud::{Markup, html};
use serde_json::Value;

/// The page.
pub(super) fn rollout(rollout: &Value, records: &[Value]) -> Markup {
    let number = |key: &str| rollout[key].as_u64().unwrap_or(0);
    let pool = word(rollout, "pool");
    let path = format!("rollouts/{pool}");
    html! {
        h1 { "Rollout " (pool) }
        p {
            (state(word(rollout, "state"))) ": "
            (number("joined")) " of " (number("members")) " joined, " (number("failed")) " failed, "
            (number("unavailable")) " of at most "
            (rollout["maxUnavailable"].as_u64().map_or_else(|| "?".to_owned(), |max| max.to_string()))
            " unavailable."
        }
        @if let Some(what) = rollout["waitingFor"].as_str() { p { "The next grant waits for " (what) "." } }
        @if let Some(why) = rollout["halted"].as_str() { p.reason { (why) } }
        @if let Some(who) = rollout["paused"].as_str() { p { b { "Paused by " (who) "." } } }
        div.actions {
            @if rollout["paused"].is_string() { (button(&path, "resume", None)) }
            @else { (button(&path, "pause", None)) }
        }
        (list("Who holds the lease", &rollout["slots"], &[("Token", "token"), ("Since", "since"), ("Waits for", "waitsFor")]))
        (list("Who waits for it", &rollout["queue"], &[("Place", "place"), ("Away already", "away")]))
        (list("Who counts as unavailable", &rollout["away"], &[("Why", "why")]))
        (list("Who is missing", &rollout["gaps"], &[("Of", "owner"), ("Since", "since"), ("Waits for", "waitsFor")]))
        @let awaited = names(&rollout["awaited"]);
        @if !awaited.is_empty() { p { "Not enrolled yet: " (awaited) "." } }
        @let turned_away = names(&rollout["turnedAway"]);
        @if !turned_away.is_empty() { p.reason { "Over the limit on members: " (turned_away) "." } }
        h2 { "What happened" }
        (story(records))
    }
}

/// Machines and what is to be said of each; nothing, if there are none.
fn list(title: &str, of: &Value, fields: &[(&str, &str)]) -> Markup {
    let items = of.as_array().map_or(&[][..], Vec::as_slice);
    html! {
        @if !items.is_empty() {
            h2 { (title) }
            div.wide { table {
                thead { tr { th { "Machine" } @for (name, _) in fields { th { (name) } } } }
                tbody {
                    @for item in items {
                        tr {
                            td { a href=(format!("/machines/{}", uid(item))) { (word(item, "name")) } }
                            @for (_, key) in fields { td { (plain(&item[*key])) } }
                        }
                    }
                }
            } }
        }
    }
}

fn uid(item: &Value) -> &str {
    item["uid"].as_str().or_else(|| item["holder"].as_str()).unwrap_or_default()
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        other => other.to_string(),
    }
}
