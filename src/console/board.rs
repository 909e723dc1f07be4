//! The first page: all machines by state, and each pool's rollout. And the page of dead letters.

use super::page::{since, state, texts, word};
use maud::{Markup, html};
use serde_json::Value;

/// States in the order in which a machine passes through them; what needs a person comes first.
const STATES: [&str; 8] =
    ["Failed", "Provisioned", "Reachable", "Configured", "Joined", "Draining", "Recreated", "Gone"];

/// Most machines in the table: a browser lays it out anew at each change.
const ROWS_MAX: usize = 500;

/// The fleet; its table has those in the state `only`, if one is chosen.
pub(super) fn fleet(
    machines: &[Value],
    rollouts: &[Value],
    dead: usize,
    only: Option<&str>,
) -> Markup {
    let in_state = |name: &str| machines.iter().filter(|m| m["state"] == name).count();
    html! {
        h1 { "Windows nodes" }
        ul.counts {
            @for name in STATES.into_iter().filter(|name| in_state(name) > 0) {
                li.here[only == Some(name)] {
                    b { (in_state(name)) } a href=(format!("/?state={name}")) { (state(name)) }
                }
            }
            @if dead > 0 { li { b { (dead) } a.bad href="/dead" { "dead letters" } } }
        }
        @for rollout in rollouts { (line(rollout)) }
        h2 {
            @if let Some(only) = only { "Machines: " (only) " (" a href="/" { "show all" } ")" }
            @else { "Machines" }
        }
        @if machines.is_empty() { p.quiet { "None yet: dormer has seen no Windows Machine." } }
        @else { (table(machines, only)) }
    }
}

/// A rollout in a line.
fn line(rollout: &Value) -> Markup {
    let number = |key: &str| rollout[key].as_u64().unwrap_or(0);
    let pool = word(rollout, "pool");
    html! {
        p {
            "Rollout " a href=(format!("/rollouts/{pool}")) { (pool) } ": "
            (state(word(rollout, "state"))) ", "
            (number("joined")) " of " (number("members")) " joined, "
            (number("unavailable")) " of at most "
            (rollout["maxUnavailable"].as_u64().map_or_else(|| "?".to_owned(), |max| max.to_string()))
            " unavailable"
            @if let Some(what) = rollout["waitingFor"].as_str() { "; the next one waits for " (what) }
            @if let Some(who) = rollout["paused"].as_str() { "; paused by " (who) }
        }
    }
}

fn table(machines: &[Value], only: Option<&str>) -> Markup {
    let place = |machine: &Value| STATES.iter().position(|name| machine["state"] == *name);
    let chosen = |machine: &&Value| only.is_none_or(|only| machine["state"] == only);
    let mut sorted: Vec<&Value> = machines.iter().filter(chosen).collect();
    sorted.sort_by_key(|machine| (place(machine), word(machine, "name").to_owned()));
    html! {
        div.wide { table {
            thead { tr {
                th { "Machine" } th { "State" } th { "Since" } th { "Version" } th { "Node" } th { "What it is at" }
            } }
            tbody { @for machine in sorted.iter().take(ROWS_MAX) { (row(machine)) } }
        } }
        @if sorted.len() > ROWS_MAX {
            p.quiet { "and " (sorted.len() - ROWS_MAX) " more; dormer get machines lists all" }
        }
    }
}

fn row(machine: &Value) -> Markup {
    html! {
        tr {
            td { a href=(format!("/machines/{}", word(machine, "uid"))) { (word(machine, "name")) } }
            td { (state(word(machine, "state"))) " " span.phase { (word(machine, "phase")) } }
            td { (since(machine)) }
            td { (version(machine)) }
            td { (word(machine, "node")) }
            td {
                @if machine["state"] == "Failed" { span.reason { (word(machine, "reason")) } }
                @else if let Some(what) = machine["waitingFor"].as_str() { "waits for " (what) }
                @for task in machine["tasks"].as_array().into_iter().flatten() { (busy(task)) }
            }
        }
    }
}

/// What its node carries, and what it should.
pub(super) fn version(machine: &Value) -> Markup {
    let (has, wants) = (machine["version"].as_str(), machine["desiredVersion"].as_str());
    html! {
        code { (has.unwrap_or("–")) }
        @if let Some(wants) = wants.filter(|wants| Some(*wants) != has) { " → " code { (wants) } }
    }
}

/// A task under way.
pub(super) fn busy(task: &Value) -> Markup {
    let beat = &task["heartbeat"];
    let (done, of) = (beat["done"].as_u64().unwrap_or(0), beat["of"].as_u64().unwrap_or(0));
    html! {
        div.quiet {
            (word(task, "name"))
            @if let Some(attempt) = task["attempt"].as_u64().filter(|attempt| *attempt > 1) { ", attempt " (attempt) }
            @if let Some(step) = beat["step"].as_str() { ": " (step) }
            @if of > 0 { " " progress max=(of) value=(done) {} }
            @if let Some(failure) = task["failure"]["message"].as_str() { ": " (failure) }
        }
    }
}

/// All dead letters.
pub(super) fn dead(letters: &[Value]) -> Markup {
    html! {
        h1 { "Dead letters" }
        p.quiet { "Letters that should have been understood and could not be. A newer build may understand them." }
        @if letters.is_empty() { p { "There are none." } }
        @else {
            div.wide { table {
                thead { tr { th { "No." } th { "Since" } th { "For" } th { "Why" } th {} } }
                tbody { @for letter in letters { (letter_row(letter)) } }
            } }
        }
    }
}

fn letter_row(letter: &Value) -> Markup {
    let id = letter["id"].as_u64().unwrap_or(0);
    html! {
        tr {
            td { (id) }
            td { time { (word(letter, "at")) } }
            td { (word(letter, "run")) }
            td { (word(letter, "reason")) }
            td { button type="button" data-post=(format!("/api/v1/dead/{id}/requeue")) { "requeue" } }
        }
    }
}

/// Names, as a sentence has them.
pub(super) fn names(list: &Value) -> String {
    texts(list).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machines(count: usize) -> Vec<Value> {
        let state = |at| if at == 700 { "Failed" } else { "Joined" };
        (0..count)
            .map(
                |at| json!({"name": format!("m{at}"), "uid": format!("u{at}"), "state": state(at)}),
            )
            .collect()
    }

    #[test]
    fn a_large_fleet_shows_what_needs_a_person_first_and_counts_the_rest() {
        let page = fleet(&machines(1_000), &[], 0, None).into_string();
        assert_eq!(page.matches("<tr>").count(), ROWS_MAX + 1);
        let first = page.split("<tbody>").nth(1).unwrap_or_default();
        assert!(first.starts_with("<tr><td><a href=\"/machines/u700\">m700</a>"), "{first:.200}");
        assert!(page.contains("<b>999</b>") && page.contains("and 500 more"));
        let page = fleet(&machines(1_000), &[], 0, Some("Failed")).into_string();
        assert_eq!(page.matches("<tr>").count(), 2);
        assert!(page.contains("<b>999</b>"), "the counts are of all");
    }
}
