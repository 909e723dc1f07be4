//! The first page: what needs a person, the rollouts, and all machines, to be searched and filtered.

use super::{
    Content, Snapshot,
    item::{Item, STATES},
    page::{bar, pager, query, since, state, version, word},
};
use dormer_api::{lacks, live::Live, views};
use maud::{Markup, html};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Machines on one page of the list.
const ROWS: usize = 50;
/// Machines that need a person, shown at the top; the list has them all.
const NEEDY_MAX: usize = 8;

/// Which machines the list has.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default)]
pub(super) struct Filter {
    /// In that state, or `stuck`: who needs a person.
    #[serde(deserialize_with = "said")]
    state: Option<String>,
    /// Of that pool.
    #[serde(deserialize_with = "said")]
    pool: Option<String>,
    /// Called so: each of its words is in the name, node, address, owner, version, state or reason.
    #[serde(deserialize_with = "said")]
    q: Option<String>,
    /// The page of the list, from 1.
    #[serde(deserialize_with = "number")]
    page: Option<usize>,
}

/// An empty field of a form says nothing.
fn said<'de, D: Deserializer<'de>>(field: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(field)?;
    Ok(text
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty()))
}

/// Nor does what is no number.
fn number<'de, D: Deserializer<'de>>(field: D) -> Result<Option<usize>, D::Error> {
    Ok(Option::<String>::deserialize(field)?.and_then(|text| text.parse().ok()))
}

impl Filter {
    fn takes(&self, item: &Item<'_>, words: &[String]) -> bool {
        let state = match self.state.as_deref() {
            None => true,
            Some("stuck") => item.need.is_some(),
            Some(state) => item.view.state == state,
        };
        state
            && self
                .pool
                .as_ref()
                .is_none_or(|pool| item.view.pool == *pool)
            && item.is_called(words)
    }

    /// The address of the list with `state` and `page` in place of its own.
    fn address(&self, state: Option<&str>, page: usize) -> String {
        let page = (page > 1).then(|| page.to_string());
        let fields = [
            ("state", state),
            ("pool", self.pool.as_deref()),
            ("q", self.q.as_deref()),
            ("page", page.as_deref()),
        ];
        format!("/{}", query(&fields))
    }
}

/// The page.
pub(super) fn fleet(snapshot: &Snapshot, live: &Live, filter: &Filter) -> Content {
    let mut all: Vec<Item<'_>> = snapshot
        .runs
        .iter()
        .filter_map(|run| Item::of(run, snapshot.now))
        .collect();
    all.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
    let needy = all.iter().filter(|item| item.need.is_some()).count();
    let title = match needy {
        0 => "Windows nodes".to_owned(),
        needy => format!("({needy}) Windows nodes"),
    };
    let names = views::names(&snapshot.runs);
    let rollouts = snapshot
        .runs
        .iter()
        .filter_map(|run| views::rollout(run, &names, snapshot.now));
    let rollouts: Vec<Value> = rollouts.collect();
    let main = html! {
        h1 { "Windows nodes" }
        @for lack in lacks::all(&snapshot.runs, live) {
            p.lack role="alert" data-key="lack" { (lack.sentence()) }
        }
        (counts(&all, needy, snapshot.dead, filter))
        (needs(&all, needy, snapshot, live))
        @for rollout in &rollouts { (rollout_line(rollout)) }
        (list(&all, snapshot, live, filter))
    };
    Content { title, main }
}

/// How many there are in each state, as a bar to scale and as links that filter.
fn counts(all: &[Item<'_>], needy: usize, dead: usize, filter: &Filter) -> Markup {
    let in_state = |name: &str| all.iter().filter(|item| item.view.state == name).count();
    let states: Vec<(&str, usize)> = STATES
        .into_iter()
        .map(|name| (name, in_state(name)))
        .filter(|(name, count)| *count > 0 || filter.state.as_deref() == Some(*name))
        .collect();
    let chip = |name: Option<&str>, count: usize, label: Markup| {
        let here = filter.state.as_deref() == name;
        html! {
            li { a.chip href=(filter.address(name, 1)) aria-current=[here.then_some("true")] {
                b { (count) } " " (label)
            } }
        }
    };
    html! {
        @if !all.is_empty() { (bar(&states, all.len())) }
        nav aria-label="Machines by state" { ul.chips {
            (chip(None, all.len(), html! { "all" }))
            @if needy > 0 || filter.state.as_deref() == Some("stuck") {
                (chip(Some("stuck"), needy, html! { span.bad { "stuck" } }))
            }
            @for (name, count) in &states { (chip(Some(name), *count, state(name))) }
            @if dead > 0 { li { a.chip href="/dead-letters" { b { (dead) } " " span.bad { "dead letters" } } } }
        } }
    }
}

/// Who needs a person, and why.
fn needs(all: &[Item<'_>], needy: usize, snapshot: &Snapshot, live: &Live) -> Markup {
    html! {
        @if needy > 0 {
            section.needs aria-labelledby="needs" {
                h2 #needs {
                    @if needy == 1 { "One machine is stuck" } @else { (needy) " machines are stuck" }
                }
                ul {
                    @for item in all.iter().take(needy.min(NEEDY_MAX)) {
                        @let machine = views::machine(item.run, live, snapshot.now).unwrap_or_default();
                        li data-key=(item.view.uid) {
                            p.what {
                                a href=(format!("/machines/{}", item.view.uid)) { (item.view.name) } " "
                                (state(item.view.state)) " for " (since(&machine))
                            }
                            p.reason { (item.reason_text()) }
                        }
                    }
                }
                @if needy > NEEDY_MAX {
                    p { a href="/?state=stuck" { "and " (needy - NEEDY_MAX) " more" } }
                }
            }
        } @else if !all.is_empty() {
            p.calm { "Nothing is stuck." }
        }
    }
}

/// A rollout in a line.
fn rollout_line(rollout: &Value) -> Markup {
    let number = |key: &str| rollout[key].as_u64().unwrap_or(0);
    let pool = word(rollout, "pool");
    let queue = rollout["queue"].as_array().map_or(0, Vec::len);
    html! {
        p.line data-key=(format!("rollout-{pool}")) {
            a href=(format!("/rollouts/{pool}")) { "Rollout " (pool) } " "
            (state(word(rollout, "state"))) " "
            span { (number("joined")) " of " (number("members")) " joined" } ", "
            span { (number("unavailable")) " of at most " (super::rollout::limit(rollout)) " unavailable" }
            @for slot in rollout["slots"].as_array().into_iter().flatten() {
                ", " span { "the lease is " a href=(format!("/machines/{}", word(slot, "holder"))) { (word(slot, "name")) } "’s" }
            }
            @if queue > 0 { ", " span { (queue) " in the queue" } }
            @if let Some(why) = rollout["held"].as_str() { ", " b { "no lease is granted: " (why) } }
            @if let Some(who) = rollout["paused"].as_str() { ", " b { "paused by " (who) } }
            @if let Some(why) = rollout["halted"].as_str() { ": " span.reason { (why) } }
        }
    }
}

fn list(all: &[Item<'_>], snapshot: &Snapshot, live: &Live, filter: &Filter) -> Markup {
    let words: Vec<String> = filter
        .q
        .as_deref()
        .unwrap_or_default()
        .to_lowercase()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let taken: Vec<&Item<'_>> = all
        .iter()
        .filter(|item| filter.takes(item, &words))
        .collect();
    let pages = taken.len().div_ceil(ROWS).max(1);
    let page = filter.page.unwrap_or(1).clamp(1, pages);
    let part = taken.iter().skip((page - 1) * ROWS).take(ROWS);
    let address = |page| filter.address(filter.state.as_deref(), page);
    html! {
        (search(filter))
        p #found.quiet role="status" {
            @if all.is_empty() { "None yet: dormer has seen no Windows Machine." }
            @else if taken.is_empty() { "No machine is so. " a href="/" { "Show all" } }
            @else if taken.len() == all.len() { (all.len()) " machines" }
            @else { (taken.len()) " of " (all.len()) " machines. " a href="/" { "Show all" } }
        }
        @if !taken.is_empty() {
            table.machines {
                thead { tr {
                    th { "Machine" } th { "State" } th { "Since" } th { "Version" } th { "Node" } th { "What it is at" }
                } }
                tbody { @for item in part { (row(item, snapshot, live)) } }
            }
            (pager("Pages of machines", page, pages, address))
        }
    }
}

/// Works without a script, too.
fn search(filter: &Filter) -> Markup {
    html! {
        form.search role="search" method="get" action="/" {
            label for="q" { "Search" }
            input #q type="search" name="q" value=[filter.q.as_deref()] placeholder="name, node, address, version, reason"
                autocomplete="off" spellcheck="false" aria-keyshortcuts="/";
            @if let Some(state) = &filter.state { input type="hidden" name="state" value=(state); }
            @if let Some(pool) = &filter.pool { input type="hidden" name="pool" value=(pool); }
            button type="submit" { "Find" }
        }
    }
}

fn row(item: &Item<'_>, snapshot: &Snapshot, live: &Live) -> Markup {
    let machine = views::machine(item.run, live, snapshot.now).unwrap_or_default();
    let view = &item.view;
    html! {
        tr data-key=(view.uid) {
            td data-label="Machine" { a href=(format!("/machines/{}", view.uid)) { (view.name) } }
            td data-label="State" {
                (state(view.state))
                @if !view.phase.eq_ignore_ascii_case(view.state) { " " span.phase { (view.phase) } }
            }
            td data-label="Since" { (since(&machine)) }
            td data-label="Version" { (version(&machine)) }
            td data-label="Node" { (view.node.as_deref().unwrap_or("–")) }
            td data-label="What it is at" { (at_it(item, &machine)) }
        }
    }
}

fn at_it(item: &Item<'_>, machine: &Value) -> Markup {
    let tasks = machine["tasks"].as_array().into_iter().flatten();
    html! {
        @if item.view.state == "Failed" { span.reason { (item.reason_text()) } }
        @else if let Some(what) = &item.view.waiting_for { span { "waits for " (what) } }
        @for task in tasks { (super::page::busy(task)) }
    }
}
