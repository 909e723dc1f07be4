//! Page of all rollouts, and a rollout in one line.

use super::{
    Content, Snapshot,
    page::{Section, or_dash, state},
    rollout::{limit, updated},
};
use dormer_api::{live::Live, views};
use dormer_views::{machine::Machine, rollout::Rollout, trouble};
use maud::{Markup, html};

/// Content of the page.
pub(super) fn rollouts(snapshot: &Snapshot, live: &Live) -> Content {
    let names = views::names(&snapshot.runs);
    let rollouts: Vec<Rollout> = snapshot
        .runs
        .iter()
        .filter_map(|run| views::rollout(run, &names, live, snapshot.now))
        .collect();
    let machines = snapshot.machines(live);
    let main = html! {
        div.top { h1 { "Rollouts" } }
        @if rollouts.is_empty() {
            p.quiet { "There are no rollouts yet: each pool has one from its first machine on." }
        } @else {
            div.card.flush { table {
                thead { tr {
                    th { "Pool" } th { "State" } th { "Updated" } th { "Unavailable" } th { "Holder of the lease" }
                    th { "Queue" } th { "Waits for" }
                } }
                tbody { @for rollout in &rollouts { (row(rollout, &machines)) } }
            } }
        }
    };
    Content {
        title: "Rollouts".into(),
        section: Section::Rollouts,
        main,
    }
}

fn row(rollout: &Rollout, machines: &[Machine]) -> Markup {
    let pool = &rollout.pool;
    let still = trouble::stands_still(rollout);
    let stands = still.is_some();
    let waits = still.or_else(|| rollout.waiting_for.clone());
    html! {
        tr data-key=(pool) {
            td data-label="Pool" { a href=(format!("/rollouts/{pool}")) { (pool) } }
            td data-label="State" { (state(rollout.state.id())) }
            td data-label="Updated" { (updated(machines, pool)) " of " (rollout.members) }
            td data-label="Unavailable" { (rollout.unavailable) " of at most " (limit(rollout)) }
            td data-label="Holder of the lease" {
                @if rollout.slots.is_empty() { "–" }
                @for (at, slot) in rollout.slots.iter().enumerate() {
                    @if at > 0 { ", " }
                    a href=(format!("/machines/{}", slot.holder)) { (slot.name) }
                }
            }
            td data-label="Queue" { (rollout.queue.len()) }
            td data-label="Waits for" { span.amber[stands] { (or_dash(waits.as_deref())) } }
        }
    }
}

/// Rollout in one line.
pub(super) fn rollout_line(rollout: &Rollout) -> Markup {
    let pool = &rollout.pool;
    let queue = rollout.queue.len();
    html! {
        p.line data-key=(format!("rollout-{pool}")) {
            a href=(format!("/rollouts/{pool}")) { "Rollout " (pool) } " "
            (state(rollout.state.id())) " "
            span { (rollout.joined) " of " (rollout.members) " joined" } ", "
            span { (rollout.unavailable) " of at most " (limit(rollout)) " unavailable" }
            @for slot in &rollout.slots {
                ", " span { a href=(format!("/machines/{}", slot.holder)) { (slot.name) } " holds \
                 the lease" }
            }
            @if queue > 0 { ", " span { (queue) " in the queue" } }
            @if let Some(why) = &rollout.held { ", " b { "no lease is granted: " (why) } }
            @if let Some(who) = &rollout.paused { ", " b { "paused by " (who) } }
            @if let Some(why) = &rollout.halted { ": " span.reason { (why) } }
        }
    }
}
