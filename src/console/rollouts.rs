//! Page of all rollouts, and a rollout in one line.

use super::{
    PageContent, Snapshot,
    page::{Section, or_dash, state},
    rollout::limit,
};
use axum::extract::State as Of;
use dormer_api::{Api, ApiError, reads};
use dormer_views::{machine::Machine, numbers::Numbers, problem, rollout::Rollout};
use maud::{Markup, html};
use std::sync::Arc;

/// Reads the page's data and renders it.
pub(super) async fn read(api: &Arc<Api>, snapshot: &Snapshot) -> Result<PageContent, ApiError> {
    let rollouts = reads::rollouts(Of(Arc::clone(api))).await?.0.items;
    Ok(rollouts_page(&rollouts, &snapshot.machines(api.live())))
}

fn rollouts_page(rollouts: &[Rollout], machines: &[Machine]) -> PageContent {
    let main = html! {
        div.top { h1 { "Rollouts" } }
        @if rollouts.is_empty() {
            p.quiet { "There are no rollouts yet: each pool has one from its first machine on." }
        } @else {
            div.card.flush { table {
                thead { tr {
                    th { "Pool" } th { "State" } th { "Updated" } th { "Serving" } th { "Unavailable" }
                    th { "Holder of the lease" } th { "Queue" } th { "Time left" } th { "Waits for" }
                } }
                tbody { @for rollout in rollouts { (row(rollout, machines)) } }
            } }
        }
    };
    PageContent {
        title: "Rollouts".into(),
        section: Section::Rollouts,
        main,
    }
}

fn row(rollout: &Rollout, machines: &[Machine]) -> Markup {
    let pool = &rollout.pool;
    let numbers = Numbers::of_pool(machines, pool);
    let left = problem::time_left(rollout, machines);
    let still = problem::stands_still(rollout);
    let stands = still.is_some();
    let waits = still.or_else(|| rollout.waiting_for.clone());
    html! {
        tr data-key=(pool) {
            td data-label="Pool" { a href=(format!("/rollouts/{pool}")) { (pool) } }
            td data-label="State" { (state(problem::word_among(rollout, machines))) }
            td data-label="Updated" { (numbers.updated) " of " (numbers.machines) }
            td data-label="Serving" { (numbers.serving) " of " (numbers.machines) }
            td data-label="Unavailable" { (rollout.unavailable) " of at most " (limit(rollout)) }
            td data-label="Holder of the lease" {
                @if rollout.holders().next().is_none() { "–" }
                @for (at, slot) in rollout.holders().enumerate() {
                    @if at > 0 { ", " }
                    a href=(format!("/machines/{}", slot.holder)) { (slot.name) }
                }
            }
            td data-label="Queue" { (rollout.queue.len()) }
            td data-label="Time left" { (or_dash(left.as_deref())) }
            td data-label="Waits for" { span.amber[stands] { (or_dash(waits.as_deref())) } }
        }
    }
}

/// Rollout in one line.
pub(super) fn rollout_line(rollout: &Rollout, numbers: Numbers, word: &str) -> Markup {
    let pool = &rollout.pool;
    let Numbers {
        machines,
        serving,
        updated,
        ..
    } = numbers;
    let queue = rollout.queue.len();
    html! {
        p.line data-key=(format!("rollout-{pool}")) {
            a href=(format!("/rollouts/{pool}")) { "Rollout " (pool) } " "
            (state(word)) " "
            span { (serving) " of " (machines) " serve" } ", "
            span { (updated) " of " (machines) " updated" } ", "
            span { (rollout.unavailable) " of at most " (limit(rollout)) " unavailable" }
            @for slot in &rollout.slots {
                ", " span {
                    a href=(format!("/machines/{}", slot.holder)) { (slot.name) }
                    @if slot.vacant { " is gone, and the machine in its place is awaited" } @else { " holds the lease" }
                }
            }
            @if queue > 0 { ", " span { (queue) " in the queue" } }
            @if let Some(why) = &rollout.held { ", " b { "no lease is granted: " (why) } }
            @if let Some(who) = &rollout.paused { ", " b { "paused by " (who) } }
            @if let Some(why) = &rollout.halted { ": " span.reason { (why) } }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::actions::tests::machine_in;
    use dormer_proto::phase::MachinePhase;

    /// A rollout of the pool `windows`, with a field.
    pub(crate) fn rollout_with(field: &str, value: impl Into<serde_json::Value>) -> Rollout {
        let mut rollout = serde_json::json!({
            "pool": "windows", "state": "Open", "members": 3, "joined": 1, "failed": 0, "unavailable": 1,
            "maxUnavailable": 1, "manualApproval": false, "token": 4, "away": [], "queue": [], "slots": [],
            "gaps": [], "awaited": [], "turnedAway": [], "machineSets": [], "run": "rollout/windows", "seq": 3,
            "enteredSeq": 1, "began": "2026-11-21T06:00:00.000Z", "since": "2026-11-21T07:00:00.000Z",
            "sinceSeconds": 312,
        });
        rollout[field] = value.into();
        serde_json::from_value(rollout).expect("a rollout")
    }

    #[test]
    fn a_machine_that_is_gone_is_no_holder_of_the_lease() {
        let slot = |name: &str, vacant| {
            serde_json::json!({"token": 4, "holder": name, "name": name, "marked": false, "seq": 2,
                "since": "2026-11-21T07:00:12.000Z", "waitsFor": "win-c to be Joined", "vacant": vacant})
        };
        let slots = serde_json::json!([slot("win-a", true), slot("win-b", false)]);
        let rollout = rollout_with("slots", slots);
        let line = rollout_line(&rollout, Numbers::default(), "Running").into_string();
        assert!(line.contains("win-a</a> is gone"), "{line}");
        assert!(line.contains("win-b</a> holds the lease"), "{line}");
        let page = rollouts_page(&[rollout], &[]).main.into_string();
        assert!(page.contains("win-b") && !page.contains("win-a"), "{page}");
    }

    #[test]
    fn a_machine_that_is_replaced_counts_once_in_every_number() {
        let machine = |phase, served| Machine {
            served,
            owner: Some("MachineSet/w".into()),
            ..machine_in(phase)
        };
        let goes = machine(MachinePhase::ReplacementWait, true);
        let comes = machine(MachinePhase::Probing, false);
        let serves = machine(MachinePhase::Serving, true);
        let rollout = rollout_with("typicalTurnSeconds", 60);
        let machines = [goes, comes, serves];
        let line =
            rollout_line(&rollout, Numbers::of_pool(&machines, "windows"), "Idle").into_string();
        assert!(
            line.contains("1 of 2 serve") && line.contains("0 of 2 updated"),
            "{line}"
        );
        let page = rollouts_page(&[rollout], &machines).main.into_string();
        assert!(page.contains("data-label=\"Updated\">0 of 2<"), "{page}");
        assert!(page.contains("data-label=\"Serving\">1 of 2<"), "{page}");
        assert!(page.contains("data-label=\"Time left\""), "{page}");
    }
}
