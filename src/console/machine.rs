//! A machine's page: where it stands on its way, what it waits for, what may be done, and its story.

use super::{
    board::{busy, version},
    page::{button, since, state, story, word},
};
use maud::{Markup, html};
use serde_json::Value;

/// The way of a machine, for people.
const WAY: [&str; 6] =
    ["Provisioned", "Reachable", "Configured", "Joined", "Draining", "Recreated"];

/// Fields worth a line, with what they are called.
const FIELDS: [(&str, &str); 10] = [
    ("Node", "node"),
    ("Address", "address"),
    ("Pool", "pool"),
    ("Owner", "owner"),
    ("Machine's phase", "machinePhase"),
    ("Machine's error", "machineError"),
    ("Namespace", "namespace"),
    ("UID", "uid"),
    ("Created", "created"),
    ("In this state since", "since"),
];

/// The page.
pub(super) fn machine(machine: &Value, records: &[Value]) -> Markup {
    html! {
        h1 { (word(machine, "name")) }
        (way(word(machine, "state")))
        p {
            (state(word(machine, "state"))) " " span.phase { (word(machine, "phase")) } " for " (since(machine))
            @if let Some(what) = machine["waitingFor"].as_str() { ". It waits for " (what) }
            "."
        }
        @if let Some(why) = machine["reason"].as_str() { p.reason { (why) } }
        @if let Some(halted) = machine["halted"].as_str() { p { b { (halted) } } }
        @for task in machine["tasks"].as_array().into_iter().flatten() { (busy(task)) }
        @if machine["closed"].is_null() { (actions(machine)) }
        dl {
            dt { "Version" } dd { (version(machine)) }
            @for (name, key) in FIELDS.into_iter().filter(|(_, key)| machine[*key].is_string()) {
                dt { (name) } dd { (word(machine, key)) }
            }
            @if let Some(token) = machine["token"].as_u64() { dt { "Lease" } dd { "token " (token) } }
        }
        h2 { "What happened" }
        (story(records))
    }
}

/// The states, and which of them it is in.
fn way(now: &str) -> Markup {
    let here = WAY.iter().position(|name| *name == now);
    html! {
        ol.path {
            @for (at, name) in WAY.iter().enumerate() {
                li.here[here == Some(at)] .past[here.is_some_and(|here| at < here)] { (name) }
            }
            @if here.is_none() { li.here { (now) } }
        }
    }
}

fn actions(machine: &Value) -> Markup {
    let path = format!("machines/{}", word(machine, "uid"));
    let name = word(machine, "name");
    let phase = word(machine, "phase");
    let halted = machine["halted"].is_string() || phase == "drained";
    let drain = format!("Cordon and drain the node of {name}?");
    let recreate = format!("Delete the Machine {name}, so that a new one takes its place?");
    html! {
        div.actions {
            @if machine["state"] == "Failed" { (button(&path, "retry", None)) }
            @if phase == "waiting for approval" { (button(&path, "approve", None)) }
            @if machine["token"].is_u64() { (button(&path, "abort", None)) }
            @if halted { (button(&path, "resume", None)) }
            @else { (button(&path, "pause", None)) (button(&path, "hold", None)) }
            (button(&path, "drain", Some(&drain)))
            (button(&path, "recreate", Some(&recreate)))
        }
    }
}
