//! Page of dead letters, with a button that requeues one.

use super::{
    PageContent,
    page::{Section, Weight, button, or_dash, time},
};
use dormer_views::actions::REQUEUE;
use dormer_views::run::DeadLetter;
use maud::{Markup, html};

pub(super) fn dead(dead_letters: &[DeadLetter]) -> PageContent {
    let main = html! {
        div.top { h1 { "Dead letters" } }
        p.quiet {
            "Messages that no engine could read. Each is kept until you requeue it: a newer build "
            "may be able to read it. " code { "dormer dead-letters show NUMBER" } " shows its \
             content."
        }
        @if dead_letters.is_empty() { p.calm { "There are no dead letters." } }
        @else {
            div.card.flush { table.dead_letters {
                thead { tr { th { "No." } th { "Since" } th { "For" } th { "Why" } th { "Bytes" } th { "From" } th { span.quiet { "Action" } } } }
                tbody { @for dead_letter in dead_letters { (row(dead_letter)) } }
            } }
        }
    };
    PageContent {
        title: "Dead letters".into(),
        section: Section::Settings,
        main,
    }
}

fn row(dead_letter: &DeadLetter) -> Markup {
    let DeadLetter {
        id,
        run,
        reason,
        at,
        origin,
        bytes,
        ..
    } = dead_letter;
    html! {
        tr data-key=(format!("dead-letter-{id}")) {
            td data-label="No." { (id) }
            td data-label="Since" { (time(*at)) }
            td data-label="For" { (or_dash(run.as_deref())) }
            td data-label="Why" { span.reason { (or_dash(Some(reason))) } }
            td data-label="Bytes" { (bytes) }
            td data-label="From" { (or_dash(Some(origin))) }
            td data-label="" {
                @if run.is_some() { (button(&format!("dead-letters/{id}/requeue"), &REQUEUE, "", None, Weight::Secondary)) }
            }
        }
    }
}
