//! Page of settings: pools as their rollouts know them, installed payloads, and refused settings.

use super::{
    PageContent, Snapshot,
    page::{Section, or_dash},
};
use dormer_api::{Api, pages::KnownPayload, prerequisites, views};
use dormer_views::rollout::Rollout;
use maud::{Markup, html};

pub(super) fn settings(api: &Api, snapshot: &Snapshot) -> PageContent {
    let names = views::names(&snapshot.runs);
    let pools: Vec<Rollout> = snapshot
        .runs
        .iter()
        .filter_map(|run| views::rollout(run, &names, api.live(), snapshot.now))
        .collect();
    let payloads = api.payloads();
    let refused = refused(api, snapshot, &pools);
    let main = html! {
        div.top { h1 { "Settings" } }
        section.card aria-labelledby="refused" {
            h2 #refused { "What was refused" }
            @if refused.is_empty() && snapshot.dead == 0 { p.calm { "Nothing was refused." } }
            @for (of, why) in &refused { p.note.amber { b { (of) } ": " (why) } }
            @if snapshot.dead > 0 {
                p.note.bad { a href="/dead-letters" { (snapshot.dead) " dead letters" } ": messages that no engine could read" }
            }
        }
        section.card aria-labelledby="pools" {
            h2 #pools { "Pools" }
            @if pools.is_empty() { p.quiet { "There is no pool yet." } } @else { (pools_table(&pools)) }
        }
        section.card aria-labelledby="payloads" {
            h2 #payloads { "Payloads" }
            @match &payloads {
                None => p.quiet { "This process has no access to payloads: ask one with the role worker." },
                Some(payloads) => (payloads_table(payloads)),
            }
        }
    };
    PageContent {
        title: "Settings".into(),
        section: Section::Settings,
        main,
    }
}

/// Findings with their subject.
fn refused(api: &Api, snapshot: &Snapshot, pools: &[Rollout]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for pool in pools {
        let of = format!("Pool {}", pool.pool);
        let texts = [&pool.refused, &pool.held];
        found.extend(
            texts
                .into_iter()
                .flatten()
                .map(|why| (of.clone(), why.clone())),
        );
    }
    found.extend(
        api.unusable_payloads()
            .into_iter()
            .map(|why| ("Payload".to_owned(), why)),
    );
    let lacks = prerequisites::all(&snapshot.runs, api.live());
    found.extend(
        lacks
            .iter()
            .map(|lack| ("dormer".to_owned(), lack.sentence())),
    );
    found
}

fn pools_table(pools: &[Rollout]) -> Markup {
    html! {
        table {
            thead { tr {
                th { "Pool" } th { "Machines" } th { "Payload" } th { "Unavailable at most" } th { "Approval" } th { "Paused by" }
            } }
            tbody { @for pool in pools {
                tr data-key=(pool.pool) {
                    td data-label="Pool" { a href=(format!("/rollouts/{}", pool.pool)) { (pool.pool) } }
                    td data-label="Machines" { (pool.members) }
                    td data-label="Payload" { code { (or_dash(pool.payload.as_deref())) } }
                    td data-label="Unavailable at most" { (super::rollout::limit(pool)) }
                    td data-label="Approval" { @if pool.manual_approval { "by a person, machine by machine" } @else { "automatic" } }
                    td data-label="Paused by" { (or_dash(pool.paused.as_deref())) }
                }
            } }
        }
    }
}

fn payloads_table(payloads: &[KnownPayload]) -> Markup {
    html! {
        @if payloads.is_empty() { p.quiet { "This process has no payload." } }
        @else {
            table {
                thead { tr { th { "Version" } th { "kubelet" } th { "Windows builds" } th { "May follow" } th { "Size" } } }
                tbody { @for payload in payloads {
                    tr data-key=(payload.version) {
                        td data-label="Version" { code { (payload.version) } }
                        td data-label="kubelet" { (payload.kubelet) }
                        td data-label="Windows builds" { (payload.windows_builds.join(", ")) }
                        td data-label="May follow" { (or_dash(Some(&payload.may_follow.join(", ")))) }
                        td data-label="Size" { (format!("{:.1} MB", payload.bytes as f64 / 1e6)) }
                    }
                } }
            }
        }
    }
}
