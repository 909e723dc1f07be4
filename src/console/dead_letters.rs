//! The page of dead letters, and their way back into the inbox.

use super::{
    Content,
    page::{button, clock, word},
};
use dormer_workflows::actions::REQUEUE;
use maud::html;
use serde_json::Value;

/// The page.
pub(super) fn dead(dead_letters: &[Value]) -> Content {
    let main = html! {
        h1 { "Dead letters" }
        p.quiet {
            "Messages that should have been understood and could not be. Each is kept until it is requeued: a newer build "
            "may understand it. " code { "dormer dead-letters show NUMBER" } " tells what one says."
        }
        @if dead_letters.is_empty() { p.calm { "There are none." } }
        @else {
            table.dead_letters {
                thead { tr { th { "No." } th { "Since" } th { "For" } th { "Why" } th { "Bytes" } th { "From" } th { "" } } }
                tbody { @for dead_letter in dead_letters { (row(dead_letter)) } }
            }
        }
    };
    Content {
        title: "Dead letters".into(),
        main,
    }
}

fn row(dead_letter: &Value) -> maud::Markup {
    let id = dead_letter["id"].as_u64().unwrap_or(0);
    html! {
        tr data-key=(format!("dead-letter-{id}")) {
            td data-label="No." { (id) }
            td data-label="Since" { time { (clock(word(dead_letter, "at"))) } }
            td data-label="For" { (word(dead_letter, "run")) }
            td data-label="Why" { span.reason { (word(dead_letter, "reason")) } }
            td data-label="Bytes" { (dead_letter["bytes"].as_u64().unwrap_or(0)) }
            td data-label="From" { (word(dead_letter, "origin")) }
            td data-label="" {
                @if dead_letter["run"].is_string() { (button(&format!("dead-letters/{id}/requeue"), &REQUEUE, "", None)) }
            }
        }
    }
}
