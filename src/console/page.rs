//! What every page of the console has: its frame, its style, its script, and how values are shown.

use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

/// The style of all pages.
pub(super) const STYLE: &str = include_str!("console.css");
/// Keeps a page up to date, and sends what its buttons ask.
pub(super) const SCRIPT: &str = include_str!("console.js");

/// Seconds after which a browser without scripts loads a page again.
const RELOAD_S: u32 = 5;

/// A page of that title.
pub(super) fn page(title: &str, content: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · dormer" }
                link rel="stylesheet" href="/console.css";
                link rel="icon" href="data:,";
                noscript { meta http-equiv="refresh" content=(RELOAD_S); }
                script src="/console.js" defer {}
            }
            body {
                header {
                    a.brand href="/" { "dormer" }
                    nav { a href="/" { "Machines" } a href="/dead" { "Dead letters" } }
                    span #live title="whether this page follows what happens" { "static" }
                }
                main { (content) }
                div #said role="status" aria-live="polite" {}
            }
        }
    }
}

/// The page of something that could not be shown.
pub(super) fn failed(what: &str, advice: &str) -> Markup {
    page("Not shown", html! { h1 { (what) } p { (advice) } })
}

/// A text field of a thing; nothing is a dash.
pub(super) fn word<'a>(thing: &'a Value, key: &str) -> &'a str {
    thing[key].as_str().filter(|text| !text.is_empty()).unwrap_or("–")
}

/// How long ago something was, for people: `12 s`, `5 min`, `3 h`, `2 d`.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Since when a run is where it is.
pub(super) fn since(thing: &Value) -> Markup {
    let seconds = thing["sinceSeconds"].as_u64().unwrap_or(0);
    html! { time datetime=(word(thing, "since")) title=(word(thing, "since")) { (span(seconds)) } }
}

/// A state, in its colour.
pub(super) fn state(name: &str) -> Markup {
    html! { span.state data-state=(name) { (name) } }
}

/// A button that asks for `action` at `path`; `sure` is asked before.
pub(super) fn button(path: &str, action: &str, sure: Option<&str>) -> Markup {
    html! {
        button type="button" data-post=(format!("/api/v1/{path}/actions/{action}")) data-sure=[sure] {
            (action)
        }
    }
}

/// A history, the newest first.
pub(super) fn story(records: &[Value]) -> Markup {
    html! {
        ol.story {
            @for record in records.iter().rev() {
                li {
                    div.when {
                        span.seq { (record["seq"].as_u64().unwrap_or(0)) }
                        time { (clock(word(record, "at"))) }
                        (state(word(record, "state")))
                        @if let Some(phase) = record["phase"].as_str() { span.phase { (phase) } }
                    }
                    ul {
                        @for event in texts(&record["events"]) {
                            li.bad[event.contains(" failed")] { (event) }
                        }
                        @for task in texts(&record["asks"]) { li.asks { "→ " (task) } }
                    }
                }
            }
        }
    }
}

/// The texts of a list.
pub(super) fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// `2026-11-21 07:00:00` of an RFC 3339 time.
fn clock(at: &str) -> String {
    at.get(..19).map_or_else(|| at.to_owned(), |at| at.replace('T', " "))
}
