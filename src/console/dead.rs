//! The page of dead letters, and their way back into the inbox.

use super::{
    Content,
    page::{button, clock, word},
};
use dormer_workflows::actions::REQUEUE;
use maud::html;
use serde_json::Value;

/// The page.
pub(super) fn dead(letters: &[Value]) -> Content {
    let main = html! {
        h1 { "Dead letters" }
        p.quiet {
            "Letters that should have been understood and could not be. Each is kept until it is requeued: a newer build "
            "may understand it. " code { "dormer dead show NUMBER" } " tells what one says."
        }
        @if letters.is_empty() { p.calm { "There are none." } }
        @else {
            table.letters {
                thead { tr { th { "No." } th { "Since" } th { "For" } th { "Why" } th { "Bytes" } th { "From" } th { "" } } }
                tbody { @for letter in letters { (row(letter)) } }
            }
        }
    };
    Content {
        title: "Dead letters".into(),
        main,
    }
}

fn row(letter: &Value) -> maud::Markup {
    let id = letter["id"].as_u64().unwrap_or(0);
    html! {
        tr data-key=(format!("letter-{id}")) {
            td data-label="No." { (id) }
            td data-label="Since" { time { (clock(word(letter, "at"))) } }
            td data-label="For" { (word(letter, "run")) }
            td data-label="Why" { span.reason { (word(letter, "reason")) } }
            td data-label="Bytes" { (letter["bytes"].as_u64().unwrap_or(0)) }
            td data-label="From" { (word(letter, "origin")) }
            td data-label="" {
                @if letter["run"].is_string() { (button(&format!("dead/{id}/requeue"), &REQUEUE, "", None)) }
            }
        }
    }
}
