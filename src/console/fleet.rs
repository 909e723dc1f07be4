//! First page: machines that need a person, the rollouts, and all machines with search and filters.

use super::{
    Content, Snapshot,
    item::{Item, STATES},
    page::{bar, busy, or_dash, pager, query, since, state, version},
};
use dormer_api::{lacks, live::Live, views};
use dormer_proto::phase::{Listed, MachineState};
use dormer_views::{machine::Machine, rollout::Rollout};
use maud::{Markup, html};
use serde::{Deserialize, Deserializer};

/// Rows on one page of the list.
const ROWS: usize = 50;
/// Most machines in the list at the top of those that need a person. The full list has all.
const NEEDY_MAX: usize = 8;
/// Value of the query's `state` for machines that need a person.
const STUCK: &str = "stuck";

/// Filter by state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum StateFilter {
    /// Those that need a person.
    Stuck,
    /// Those in this state.
    In(MachineState),
    /// No machine: this build does not know the state.
    Unknown(String),
}

impl StateFilter {
    /// Filter of the query's text.
    fn of_id(id: &str) -> Self {
        if id == STUCK {
            return Self::Stuck;
        }
        MachineState::of_id(id).map_or_else(|| Self::Unknown(id.to_owned()), Self::In)
    }

    /// Text in the query.
    fn id(&self) -> &str {
        match self {
            Self::Stuck => STUCK,
            Self::In(state) => state.id(),
            Self::Unknown(id) => id,
        }
    }

    fn takes(&self, item: &Item<'_>) -> bool {
        match self {
            Self::Stuck => item.need.is_some(),
            Self::In(state) => item.state() == *state,
            Self::Unknown(_) => false,
        }
    }
}

/// Filter of the list, from the query.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default)]
pub(super) struct Filter {
    /// State, or `stuck` for machines that need a person.
    #[serde(deserialize_with = "state_filter")]
    state: Option<StateFilter>,
    /// Pool.
    #[serde(deserialize_with = "said")]
    pool: Option<String>,
    /// Search text: each word must occur in the name, node, address, owner, version, state or reason.
    #[serde(deserialize_with = "said")]
    q: Option<String>,
    /// Page of the list, from 1.
    #[serde(deserialize_with = "number")]
    page: Option<usize>,
}

/// Empty form fields read as absent.
fn said<'de, D: Deserializer<'de>>(field: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(field)?;
    Ok(text
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty()))
}

/// Text that is no number reads as absent.
fn number<'de, D: Deserializer<'de>>(field: D) -> Result<Option<usize>, D::Error> {
    Ok(Option::<String>::deserialize(field)?.and_then(|text| text.parse().ok()))
}

/// Deserializes a state, or `stuck`.
fn state_filter<'de, D: Deserializer<'de>>(field: D) -> Result<Option<StateFilter>, D::Error> {
    Ok(said(field)?.as_deref().map(StateFilter::of_id))
}

impl Filter {
    fn takes(&self, item: &Item<'_>, words: &[String]) -> bool {
        self.state.as_ref().is_none_or(|state| state.takes(item))
            && self
                .pool
                .as_ref()
                .is_none_or(|pool| item.view.pool == *pool)
            && item.is_called(words)
    }

    /// URL of the list with this `state` and `page` instead of its own.
    fn address(&self, state: Option<&StateFilter>, page: usize) -> String {
        let page = (page > 1).then(|| page.to_string());
        let fields = [
            ("state", state.map(StateFilter::id)),
            ("pool", self.pool.as_deref()),
            ("q", self.q.as_deref()),
            ("page", page.as_deref()),
        ];
        format!("/{}", query(&fields))
    }
}

/// Content of the page.
pub(super) fn fleet(snapshot: &Snapshot, live: &Live, filter: &Filter) -> Content {
    let mut all: Vec<Item<'_>> = snapshot
        .runs
        .iter()
        .filter_map(|run| Item::of(run, live, snapshot.now))
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
        .filter_map(|run| views::rollout(run, &names, live, snapshot.now));
    let rollouts: Vec<Rollout> = rollouts.collect();
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

/// Number of machines in each state, as a bar to scale and as filter links.
fn counts(all: &[Item<'_>], needy: usize, dead: usize, filter: &Filter) -> Markup {
    let chosen = |by: Option<&StateFilter>| filter.state.as_ref() == by;
    let in_state = |state| all.iter().filter(|item| item.state() == state).count();
    let states: Vec<(MachineState, usize)> = STATES
        .into_iter()
        .map(|state| (state, in_state(state)))
        .filter(|(state, count)| *count > 0 || chosen(Some(&StateFilter::In(*state))))
        .collect();
    let chip = |by: Option<StateFilter>, count: usize, label: Markup| {
        let here = chosen(by.as_ref());
        html! {
            li { a.chip href=(filter.address(by.as_ref(), 1)) aria-current=[here.then_some("true")] {
                b { (count) } " " (label)
            } }
        }
    };
    html! {
        @if !all.is_empty() { (bar(&states, all.len())) }
        nav aria-label="Machines by state" { ul.chips {
            (chip(None, all.len(), html! { "all" }))
            @if needy > 0 || chosen(Some(&StateFilter::Stuck)) {
                (chip(Some(StateFilter::Stuck), needy, html! { span.bad { "stuck" } }))
            }
            @for (it, count) in &states { (chip(Some(StateFilter::In(*it)), *count, state(it.id()))) }
            @if dead > 0 { li { a.chip href="/dead-letters" { b { (dead) } " " span.bad { "dead letters" } } } }
        } }
    }
}

/// Machines that need a person, with the reason.
fn needs(all: &[Item<'_>], needy: usize, snapshot: &Snapshot, live: &Live) -> Markup {
    html! {
        @if needy > 0 {
            section.needs aria-labelledby="needs" {
                h2 #needs {
                    @if needy == 1 { "One machine is stuck" } @else { (needy) " machines are stuck" }
                }
                ul {
                    @for item in all.iter().take(needy.min(NEEDY_MAX)) {
                        @if let Some(machine) = views::machine(item.run, live, snapshot.now) {
                            li data-key=(machine.uid) {
                                p.what {
                                    a href=(format!("/machines/{}", machine.uid)) { (machine.name) } " "
                                    (state(machine.state.id())) " for " (since(&machine.status))
                                }
                                p.reason { (item.reason_text()) }
                            }
                        }
                    }
                }
                @if needy > NEEDY_MAX {
                    p { a href="/?state=stuck" { "and " (needy - NEEDY_MAX) " more" } }
                }
            }
        } @else if !all.is_empty() {
            p.calm { "No machine is stuck." }
        }
    }
}

/// Rollout in one line.
fn rollout_line(rollout: &Rollout) -> Markup {
    let pool = &rollout.pool;
    let queue = rollout.queue.len();
    html! {
        p.line data-key=(format!("rollout-{pool}")) {
            a href=(format!("/rollouts/{pool}")) { "Rollout " (pool) } " "
            (state(rollout.state.id())) " "
            span { (rollout.joined) " of " (rollout.members) " joined" } ", "
            span { (rollout.unavailable) " of at most " (super::rollout::limit(rollout)) " unavailable" }
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
    let address = |page| filter.address(filter.state.as_ref(), page);
    html! {
        (search(filter))
        p #found.quiet role="status" {
            @if all.is_empty() { "There are no machines yet: dormer has found no Windows Machine." }
            @else if taken.is_empty() { "No machine matches. " a href="/" { "Show all" } }
            @else if taken.len() == all.len() { (all.len()) " machines" }
            @else { (taken.len()) " of " (all.len()) " machines. " a href="/" { "Show all" } }
        }
        @if !taken.is_empty() {
            table.machines {
                thead { tr {
                    th { "Machine" } th { "State" } th { "Since" } th { "Version" } th { "Node" } th { "Activity" }
                } }
                tbody {
                    @for item in part {
                        @if let Some(machine) = views::machine(item.run, live, snapshot.now) { (row(item, &machine)) }
                    }
                }
            }
            (pager("Pages of machines", page, pages, address))
        }
    }
}

/// Search form. It works without scripts.
fn search(filter: &Filter) -> Markup {
    html! {
        form.search role="search" method="get" action="/" {
            label for="q" { "Search" }
            input #q type="search" name="q" value=[filter.q.as_deref()] placeholder="name, node, address, version, reason"
                autocomplete="off" spellcheck="false" aria-keyshortcuts="/";
            @if let Some(state) = &filter.state { input type="hidden" name="state" value=(state.id()); }
            @if let Some(pool) = &filter.pool { input type="hidden" name="pool" value=(pool); }
            button type="submit" { "Find" }
        }
    }
}

fn row(item: &Item<'_>, machine: &Machine) -> Markup {
    html! {
        tr data-key=(machine.uid) {
            td data-label="Machine" { a href=(format!("/machines/{}", machine.uid)) { (machine.name) } }
            td data-label="State" {
                (state(machine.state.id()))
                @if let Some(phase) = machine.phase_beside_state() { " " span.phase { (phase) } }
            }
            td data-label="Since" { (since(&machine.status)) }
            td data-label="Version" { (version(machine)) }
            td data-label="Node" { (or_dash(machine.node.as_deref())) }
            td data-label="Activity" { (at_it(item, machine)) }
        }
    }
}

fn at_it(item: &Item<'_>, machine: &Machine) -> Markup {
    html! {
        @if machine.state == MachineState::Failed { span.reason { (item.reason_text()) } }
        @else if let Some(what) = &item.view.waiting_for { span { "waits for " (what) } }
        @for task in &machine.tasks { (busy(task)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_by_state_is_said_in_the_address_as_it_was_asked() {
        for (id, filter) in [
            ("stuck", StateFilter::Stuck),
            ("Joined", StateFilter::In(MachineState::Joined)),
            ("joined", StateFilter::Unknown("joined".into())),
        ] {
            assert_eq!(StateFilter::of_id(id), filter);
            let address = Filter::default().address(Some(&filter), 2);
            assert_eq!(address, format!("/?state={id}&page=2"));
        }
    }
}
