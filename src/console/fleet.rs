//! First page: what needs a person, grouped by cause; the rollouts; and all machines with search, filters and order.

use super::{
    PageContent, Snapshot,
    item::{Item, ItemCache, ItemColumn, STATES},
    page::{
        Section, Weight, bar, busy_beside, button_for_all, capital, command, or_dash, pager, query,
        reaching, short_version, since, state,
    },
    rollouts::rollout_line,
};
use dormer_api::{Api, CommandFlags, prerequisites, views};
use dormer_proto::{
    code,
    phase::{Listed, MachineState},
};
use dormer_views::actions::{APPROVE, RESUME, RETRY};
use dormer_views::{
    explain,
    machine::{HaltKind, Machine},
    moment::{seconds, span},
    numbers::Numbers,
    problem::{self, Group, Urgency},
    rollout::Rollout,
};
use maud::{Markup, html};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;

/// Rows on one page of the list.
const ROWS: usize = 50;
/// Most causes at the top. The list has all machines.
const CAUSES_MAX: usize = 6;
/// Most machines of a cause by name.
const NAMES_MAX: usize = 4;
/// Most machines for one button.
const AT_ONCE_MAX: usize = 500;
/// Ages that the filter offers, where a machine is so old.
const AGES: [&str; 4] = ["1d", "30d", "7d", "90d"];
/// Value of the query's `state` for machines that do not continue by themselves.
const STUCK: &str = "stuck";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum StateFilter {
    /// Machines that need a person.
    Stuck,
    /// Those that a person, or a label, stopped in this way.
    Halted(HaltKind),
    /// Machines in this state.
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
        let halted = || HaltKind::of_id(id).map(Self::Halted);
        let found = MachineState::of_id(id).map(Self::In).or_else(halted);
        found.unwrap_or_else(|| Self::Unknown(id.to_owned()))
    }

    /// Text in the query.
    fn id(&self) -> &str {
        match self {
            Self::Stuck => STUCK,
            Self::Halted(kind) => kind.id(),
            Self::In(state) => state.id(),
            Self::Unknown(id) => id,
        }
    }

    fn takes(&self, item: &Item) -> bool {
        match self {
            Self::Stuck => item.is_stuck(),
            Self::Halted(kind) => item.machine.halts().any(|it| it.kind == *kind),
            Self::In(state) => item.machine.state == *state,
            Self::Unknown(_) => false,
        }
    }
}

/// Filter of the list, from the query.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default)]
pub(super) struct Filter {
    /// State, or `stuck` for machines that do not continue by themselves.
    #[serde(deserialize_with = "state_filter")]
    state: Option<StateFilter>,
    #[serde(deserialize_with = "said")]
    pool: Option<String>,
    /// Version that the Node carries.
    #[serde(deserialize_with = "said")]
    version: Option<String>,
    /// MachineSet.
    #[serde(deserialize_with = "said")]
    set: Option<String>,
    /// Zone of the cloud.
    #[serde(deserialize_with = "said")]
    zone: Option<String>,
    /// Label, as `team=blue`.
    #[serde(deserialize_with = "said")]
    label: Option<String>,
    /// Least age, as `7d`; other text chooses no machine.
    #[serde(deserialize_with = "said")]
    older: Option<String>,
    /// Code of the trouble, as it is shown. Bookmarks of earlier builds have `access_denied`.
    #[serde(deserialize_with = "shown_code")]
    cause: Option<String>,
    /// Search text: each word must occur in the name, node, address, owner, version, state or cause, or begin the UID.
    #[serde(deserialize_with = "said")]
    q: Option<String>,
    /// Column of the order; a leading minus reverses it.
    #[serde(deserialize_with = "said")]
    sort: Option<String>,
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

/// Deserializes a code in either style.
fn shown_code<'de, D: Deserializer<'de>>(field: D) -> Result<Option<String>, D::Error> {
    Ok(said(field)?.as_deref().map(code::shown))
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
    fn takes(&self, item: &Item, words: &[String]) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == found
        };
        let machine = &item.machine;
        self.state.as_ref().is_none_or(|state| state.takes(item))
            && is(&self.pool, Some(&machine.pool))
            && is(&self.version, machine.version.as_deref())
            && is(&self.set, machine.machine_set())
            && is(&self.zone, machine.zone.as_deref())
            && self
                .label
                .as_ref()
                .is_none_or(|label| labels(machine).any(|it| it == *label))
            && self
                .older
                .as_ref()
                .is_none_or(|age| seconds(age).is_some_and(|least| machine.age_seconds() >= least))
            && is(&self.cause, item.code())
            && item.is_called(words)
    }

    /// Column of the order, and whether it is reversed.
    fn order(&self) -> (Option<ItemColumn>, bool) {
        let sort = self.sort.as_deref().unwrap_or_default();
        let (id, down) = match sort.strip_prefix('-') {
            Some(id) => (id, true),
            None => (sort, false),
        };
        (ItemColumn::of_id(id), down)
    }

    /// URL of the list with this `state`, `page` and `sort` instead of its own.
    fn url(&self, state: Option<&StateFilter>, page: usize, sort: Option<&str>) -> String {
        let page = (page > 1).then(|| page.to_string());
        let fields = [
            ("state", state.map(StateFilter::id)),
            ("pool", self.pool.as_deref()),
            ("version", self.version.as_deref()),
            ("set", self.set.as_deref()),
            ("zone", self.zone.as_deref()),
            ("label", self.label.as_deref()),
            ("older", self.older.as_deref()),
            ("cause", self.cause.as_deref()),
            ("q", self.q.as_deref()),
            ("sort", sort),
            ("page", page.as_deref()),
        ];
        format!("/{}", query(&fields))
    }

    /// URL of the list with this `state` and `page` instead of its own.
    fn address(&self, state: Option<&StateFilter>, page: usize) -> String {
        self.url(state, page, self.sort.as_deref())
    }
}

/// Labels of a machine, as the filter has them.
fn labels(machine: &Machine) -> impl Iterator<Item = String> {
    let labels = machine.labels.iter();
    labels.map(|(key, value)| format!("{key}={value}"))
}

pub(super) fn fleet(
    api: &Api,
    snapshot: &Snapshot,
    items: &ItemCache,
    filter: &Filter,
) -> PageContent {
    let live = api.live();
    let all = items.items(snapshot.number, &snapshot.runs, snapshot.now, live);
    let stuck = all.iter().filter(|item| item.is_stuck()).count();
    let title = match stuck {
        0 => "Fleet".to_owned(),
        stuck => format!("({stuck}) Fleet"),
    };
    let names = views::names(&snapshot.runs);
    let rollouts: Vec<Rollout> = snapshot
        .runs
        .iter()
        .filter_map(|run| views::rollout(run, &names, live, snapshot.now))
        .collect();
    let numbers = |pool: &str| Numbers::of_pool(all.iter().map(|item| &item.machine), pool);
    let word = |rollout| problem::word_among(rollout, all.iter().map(|item| &item.machine));
    let main = html! {
        div.top {
            h1 { "Fleet" }
            (counts(&all, stuck, snapshot.dead, filter))
        }
        @for lack in prerequisites::all(&snapshot.runs, live) {
            p.lack role="alert" data-key="lack" { (lack.sentence()) }
        }
        (needs(&all, stuck, &rollouts, api.command_flags()))
        (requests(&all))
        div.rollouts { @for rollout in &rollouts { (rollout_line(rollout, numbers(&rollout.pool), word(rollout))) } }
        (list(&all, filter))
    };
    PageContent {
        title,
        section: Section::Fleet,
        main,
    }
}

/// Number of machines in each state, as filter links and as a bar to scale.
fn counts(all: &[Item], stuck: usize, dead: usize, filter: &Filter) -> Markup {
    let chosen = |by: Option<&StateFilter>| filter.state.as_ref() == by;
    let in_state = |state| {
        all.iter()
            .filter(|item| item.machine.state == state)
            .count()
    };
    let states: Vec<(MachineState, usize)> = STATES
        .into_iter()
        .map(|state| (state, in_state(state)))
        .filter(|(state, count)| *count > 0 || chosen(Some(&StateFilter::In(*state))))
        .collect();
    let halts: Vec<(StateFilter, usize)> = HaltKind::ALL
        .iter()
        .map(|kind| StateFilter::Halted(*kind))
        .map(|by| {
            let count = all.iter().filter(|item| by.takes(item)).count();
            (by, count)
        })
        .filter(|(by, count)| *count > 0 || chosen(Some(by)))
        .collect();
    let shares: Vec<(&str, usize)> = states.iter().map(|(it, count)| (it.id(), *count)).collect();
    let chip = |by: Option<StateFilter>, count: usize, label: Markup| {
        let here = chosen(by.as_ref());
        html! {
            li { a.chip href=(filter.address(by.as_ref(), 1)) aria-current=[here.then_some("true")] {
                b { (count) } " " (label)
            } }
        }
    };
    html! {
        nav aria-label="Machines by state" { ul.chips {
            (chip(None, all.len(), html! { "all" }))
            @if stuck > 0 || chosen(Some(&StateFilter::Stuck)) {
                (chip(Some(StateFilter::Stuck), stuck, html! { span.bad { "stuck" } }))
            }
            @for (by, count) in &halts { (chip(Some(by.clone()), *count, html! { span.amber { (by.id()) } })) }
            @for (it, count) in &states { (chip(Some(StateFilter::In(*it)), *count, state(it.id()))) }
            @if dead > 0 { li { a.chip href="/dead-letters" { b { (dead) } " " span.bad { "dead letters" } } } }
        } }
        @if !all.is_empty() { (bar("Machines by state, to scale", &shares, all.len())) }
    }
}

/// Causes of trouble: equal ones once, with their machines and the next step.
fn needs(all: &[Item], stuck: usize, rollouts: &[Rollout], flags: Option<&CommandFlags>) -> Markup {
    let (kept, groups): (Vec<Group<'_>>, Vec<Group<'_>>) =
        problem::groups(all.iter().map(|item| &item.machine))
            .into_iter()
            .partition(|group| group.problem.urgency == Urgency::OnPurpose);
    let person: usize = groups
        .iter()
        .filter(|group| group.problem.urgency == Urgency::Person)
        .map(|group| group.machines.len())
        .sum();
    let count = |number: usize, what: &str| match number {
        1 => format!("1 machine {what}"),
        number => format!("{number} machines {what}"),
    };
    let still: Vec<(&Rollout, String)> = rollouts
        .iter()
        .filter_map(|it| Some((it, problem::stands_still(it)?)))
        .collect();
    html! {
        @if groups.is_empty() {
            @if !all.is_empty() && still.is_empty() { p.calm { "Nothing is wrong, and nothing waits for a person." } }
        } @else {
            section.needs aria-labelledby="needs" {
                h2 #needs {
                    @if stuck > 0 { (count(stuck, "stuck")) }
                    @if stuck > 0 && person > 0 { ", " }
                    @if person > 0 { (count(person, "waiting for a person")) }
                    @if stuck + person == 0 { "Slower than usual" }
                }
                ul { @for group in groups.iter().take(CAUSES_MAX) { (cause(group, rollouts, flags)) } }
            }
            @if groups.len() > CAUSES_MAX {
                @let more = groups.len() - CAUSES_MAX;
                p.quiet { "and " (more) @if more == 1 { " more cause" } @else { " more causes" } ": the list has every machine" }
            }
        }
        @if !kept.is_empty() {
            details.kept data-key="kept" { summary { "Kept as they are: " (kept_text(&kept)) }
                section.needs { ul { @for group in kept.iter().take(CAUSES_MAX) { (cause(group, rollouts, flags)) } } }
            }
        }
        @for (rollout, why) in &still {
            p.note.amber data-key=(format!("still-{}", rollout.pool)) {
                "Rollout " a href=(format!("/rollouts/{}", rollout.pool)) { (rollout.pool) } " is stopped: " (why) "."
                @if let Some(line) = reaching(explain::to_continue(rollout), flags).and_then(|it| it.line()) {
                    " To end that: " (command(&line))
                }
            }
        }
    }
}

/// `3 machines, on purpose`.
fn kept_text(kept: &[Group<'_>]) -> String {
    let count: usize = kept.iter().map(|group| group.machines.len()).sum();
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} machine{plural}, on purpose")
}

/// Requests of people that need the lease and are not ended.
fn requests(all: &[Item]) -> Markup {
    html! {
        @for (text, names) in problem::requests(all.iter().map(|item| &item.machine)) {
            p.note data-key=(format!("asked-{text}")) {
                (capital(&text)) ": "
                @for (at, name) in names.iter().take(NAMES_MAX).enumerate() {
                    @if at > 0 { ", " }
                    a href=(format!("/machines/{name}")) { (name) }
                }
                @if names.len() > NAMES_MAX { " and " (names.len() - NAMES_MAX) " more" }
            }
        }
    }
}

/// One cause with its machines, the next step, and a button for all of them.
fn cause(group: &Group<'_>, rollouts: &[Rollout], flags: Option<&CommandFlags>) -> Markup {
    let first = group.machines.first();
    let rollout = first.and_then(|it| rollouts.iter().find(|rollout| rollout.pool == it.pool));
    let steps = reaching(group.steps(rollout), flags);
    let code = group.problem.code.as_str();
    // Two groups may share a code: the words of the cause tell them apart, or their next steps.
    let words = group
        .problem
        .key
        .as_ref()
        .map(|_| group.problem.cause.as_str());
    let does = steps.first().filter(|_| group.shares_code);
    let key = format!(
        "cause-{}-{code}-{}{}",
        group.problem.urgency.id(),
        words.unwrap_or_default(),
        does.map_or("", |step| step.say.as_str())
    );
    let others = group.machines.len().saturating_sub(NAMES_MAX);
    html! {
        li data-urgency=(group.problem.urgency.id()) data-key=(key) {
            div.cause {
                span.label data-urgency=(group.problem.urgency.id()) {
                    @match group.problem.urgency {
                        Urgency::Stuck => "stuck",
                        Urgency::Person => "waits for a person",
                        Urgency::Slow => "slow",
                        Urgency::OnPurpose => "on purpose",
                    }
                }
                b { (group.problem.cause) }
                @if let Some(button) = for_all(group) { (button) }
            }
            p.names {
                @for (machine, alone) in group.machines.iter().zip(&group.alone).take(NAMES_MAX) {
                    a href=(format!("/machines/{}", machine.uid)) { (machine.name) }
                    @if !alone.is_empty() { span.quiet { "(" (alone) ") " } }
                }
                @if others > 0 {
                    a href=(format!("/{}", query(&[("cause", Some(code)), ("q", words)]))) { "and " (others) " more" }
                }
                @if let Some(seconds) = group.seconds_beside() { span.quiet { " for " (span(seconds)) } }
            }
            @if let Some(before) = explain::before_steps(&group.machines).filter(|_| !steps.is_empty()) { p { (before) } }
            @for step in &steps {
                @match step.line() {
                    None => p { (step.say.trim_end_matches('.')) "." },
                    Some(line) => p { (step.say.trim_end_matches('.')) ": " (command(&line)) },
                }
            }
        }
    }
}

/// Button that does the next step for all machines of a group, where one action does it.
fn for_all(group: &Group<'_>) -> Option<Markup> {
    use dormer_proto::phase::MachinePhase;
    let asks = |machine: &&&Machine| machine.halt.is_none() && machine.status.quarantine.is_none();
    let machines = |wanted: &dyn Fn(&Machine) -> bool| -> Vec<(&str, u64)> {
        let fits = group.machines.iter().filter(asks).filter(|it| wanted(it));
        fits.take(AT_ONCE_MAX)
            .map(|it| (it.uid.as_str(), it.status.entered_seq))
            .collect()
    };
    // A retry meets the same changed key again.
    if group.problem.code != "HostKeyChanged" {
        let failed = machines(&|it| it.state == MachineState::Failed && !it.given_up());
        if let Some(button) = button_for_all(&RETRY, &failed, Weight::Primary) {
            return Some(button);
        }
    }
    // A resume is valid in any state: no record is named that the machine has to be at. A label is removed by kubectl.
    let stopped = |machine: &&&Machine| {
        let halt = machine.halt.as_ref();
        halt.is_some_and(|it| it.kind == HaltKind::Held || it.kind == HaltKind::Paused)
    };
    let stopped = group.machines.iter().filter(stopped).take(AT_ONCE_MAX);
    let stopped: Vec<(&str, u64)> = stopped.map(|it| (it.uid.as_str(), 0)).collect();
    if let Some(button) = button_for_all(&RESUME, &stopped, Weight::Secondary) {
        return Some(button);
    }
    let asked = machines(&|it| it.phase == MachinePhase::ApprovalWait);
    let button = button_for_all(&APPROVE, &asked, Weight::Secondary)?;
    Some(html! { a href="/plan" { "See the plan" } " " (button) })
}

/// Search and table. `all` are in the order that a list without a chosen column has.
fn list(all: &[Item], filter: &Filter) -> Markup {
    let words: Vec<String> = filter
        .q
        .as_deref()
        .unwrap_or_default()
        .to_lowercase()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let mut taken: Vec<&Item> = all
        .iter()
        .filter(|item| filter.takes(item, &words))
        .collect();
    let (column, down) = filter.order();
    if column.is_some() || down {
        taken.sort_by(|one, other| {
            let order = one.order(other, column);
            if down { order.reverse() } else { order }
        });
    }
    let pages = taken.len().div_ceil(ROWS).max(1);
    let page = filter.page.unwrap_or(1).clamp(1, pages);
    let part = taken.iter().skip((page - 1) * ROWS).take(ROWS);
    let address = |page| filter.address(filter.state.as_ref(), page);
    html! {
        (search(filter, all))
        @if !taken.is_empty() {
            div.card.flush {
                table.machines {
                    thead { tr { @for column in ItemColumn::ALL { (heading(filter, column)) } th { "Cause or activity" } } }
                    tbody { @for item in part { (row(item)) } }
                }
                (pager("Pages of machines", page, pages, address))
            }
        }
        p #found.quiet role="status" {
            @if all.is_empty() { "There are no machines yet: dormer has found no Windows Machine." }
            @else if taken.is_empty() {
                "No machine matches. "
                @if let Some(StateFilter::Unknown(id)) = &filter.state { (no_state(id)) " " }
                a href="/" { "Show all" }
            }
            @else if taken.len() == all.len() { (all.len()) " machines" }
            @else { (taken.len()) " of " (all.len()) " machines. " a href="/" { "Show all" } }
        }
    }
}

/// Sentence about a state that there is not, as in an address that a person wrote.
fn no_state(id: &str) -> String {
    let states = STATES.iter().map(|it| it.id());
    let halts = HaltKind::ALL.iter().map(|it| it.id());
    let all: Vec<&str> = states.chain(halts).chain([STUCK]).collect();
    format!(
        "There is no state {id:?}; the states are: {}.",
        all.join(", ")
    )
}

/// Heading of a column: a first click sorts, a second one reverses the order.
fn heading(filter: &Filter, (column, id, name): (ItemColumn, &str, &str)) -> Markup {
    let (chosen, down) = filter.order();
    let here = chosen == Some(column);
    let sorted = here.then_some(if down { "descending" } else { "ascending" });
    let next = if here && !down {
        format!("-{id}")
    } else {
        id.to_owned()
    };
    html! {
        th aria-sort=[sorted] { a href=(filter.url(filter.state.as_ref(), 1, Some(&next))) { (name) } }
    }
}

/// Search form. It works without scripts.
fn search(filter: &Filter, all: &[Item]) -> Markup {
    let machines = || all.iter().map(|item| &item.machine);
    let pools: BTreeSet<&str> = machines().map(|it| it.pool.as_str()).collect();
    let versions: BTreeSet<&str> = machines().filter_map(|it| it.version.as_deref()).collect();
    let sets: BTreeSet<&str> = machines().filter_map(Machine::machine_set).collect();
    let zones: BTreeSet<&str> = machines().filter_map(|it| it.zone.as_deref()).collect();
    let found: BTreeSet<String> = machines().flat_map(labels).collect();
    let labels: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let ages = AGES.into_iter().filter(|age| {
        let least = seconds(age).unwrap_or_default();
        machines().any(|it| it.age_seconds() >= least)
    });
    let ages: BTreeSet<&str> = ages.collect();
    let causes: BTreeSet<&str> = all.iter().filter_map(Item::code).collect();
    let filters = [
        ("pool", "Pool", &filter.pool, pools),
        ("version", "Version", &filter.version, versions),
        ("set", "MachineSet", &filter.set, sets),
        ("zone", "Zone", &filter.zone, zones),
        ("label", "Label", &filter.label, labels),
        ("older", "Older than", &filter.older, ages),
        ("cause", "Cause", &filter.cause, causes),
    ];
    html! {
        form.search role="search" method="get" action="/" data-key="search" {
            label.wide for="q" {
                "Search "
                input #q type="search" name="q" value=[filter.q.as_deref()] placeholder="name, node, address, version, cause"
                    autocomplete="off" spellcheck="false" aria-keyshortcuts="/";
            }
            @for (name, label, chosen, values) in filters {
                @if values.len() > 1 || chosen.is_some() {
                    label data-key=(format!("filter-{name}")) { (label) " " select name=(name) {
                        option value="" { "any" }
                        @for value in values {
                            option value=(value) selected[chosen.as_deref() == Some(value)] { (value) }
                        }
                    } }
                }
            }
            @if let Some(state) = &filter.state { input type="hidden" name="state" value=(state.id()); }
            @if let Some(sort) = &filter.sort { input type="hidden" name="sort" value=(sort); }
            button type="submit" { "Find" }
        }
    }
}

/// A Node without its domain, which is the title.
fn short_node(node: Option<&str>) -> Markup {
    let host = node.and_then(|node| node.split_once('.'));
    // A name may be an address.
    match host.filter(|(host, _)| host.parse::<u8>().is_err()) {
        Some((host, _)) => html! { span title=[node] { (host) } },
        None => html! { (or_dash(node)) },
    }
}

fn row(item: &Item) -> Markup {
    let machine = &item.machine;
    let reason = item.reason_text();
    let stuck = item.is_stuck();
    let person = matches!(item.urgency(), Some(Urgency::Person | Urgency::Slow));
    html! {
        tr data-key=(machine.uid) {
            td data-label="Machine" { a href=(format!("/machines/{}", machine.uid)) { (machine.name) } }
            td data-label="State" {
                (state(machine.state.id()))
                @if let Some(phase) = machine.phase_beside_state() { " " span.phase { (phase) } }
            }
            td data-label="Since" { (since(&machine.status)) }
            td data-label="Version" { (short_version(machine)) }
            td data-label="Node" { (short_node(machine.node.as_deref())) }
            td data-label="Cause or activity" title=[reason.as_deref()] {
                @if let Some(reason) = &reason { span.reason[stuck].amber[person] { (reason) } " " }
                @for task in &machine.tasks { (busy_beside(task, reason.is_some())) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter_of(pairs: &[(&str, &str)]) -> Filter {
        let object: serde_json::Map<String, serde_json::Value> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()))
            .collect();
        serde_json::from_value(object.into()).expect("a filter")
    }

    #[test]
    fn a_heading_sorts_and_then_reverses_the_order() {
        let column = (ItemColumn::Since, "since", "Since");
        let shown = |sort: &str| {
            heading(&filter_of(&[("sort", sort), ("pool", "p")]), column).into_string()
        };
        assert!(
            shown("").contains("href=\"/?pool=p&amp;sort=since\""),
            "{}",
            shown("")
        );
        let once = shown("since");
        assert!(
            once.contains("aria-sort=\"ascending\"") && once.contains("sort=-since"),
            "{once}"
        );
        let twice = shown("-since");
        assert!(
            twice.contains("aria-sort=\"descending\"") && twice.contains("sort=since"),
            "{twice}"
        );
    }

    #[test]
    fn a_held_machine_has_a_chip_and_a_button() {
        use crate::actions::tests::machine_in;
        use dormer_proto::phase::MachinePhase;
        use dormer_views::machine::Halt;
        let held = Machine {
            halt: Some(Halt {
                kind: HaltKind::Held.into(),
                by: Some("ann".into()),
                own: None,
                who: None,
                why: None,
                text: "held by ann".into(),
                since: None,
            }),
            ..machine_in(MachinePhase::Serving)
        };
        let items = [held, machine_in(MachinePhase::Serving)].map(|machine| {
            let problem = problem::problem(&machine);
            Item { machine, problem }
        });
        let chips = counts(&items, 0, 0, &Filter::default()).into_string();
        assert!(chips.contains("href=\"/?state=held\""), "{chips}");
        assert!(!chips.contains("state=paused"), "{chips}");
        let shown = needs(&items, 0, &[], None).into_string();
        assert!(
            shown.contains("data-all=\"u1@0\" data-action=\"resume\""),
            "{shown}"
        );
        let only = filter_of(&[("state", "held")]);
        assert_eq!(items.iter().filter(|it| only.takes(it, &[])).count(), 1);
    }

    #[test]
    fn holds_of_two_people_are_two_entries_each_with_a_button_and_a_command_of_its_own() {
        use crate::actions::tests::machine_in;
        use dormer_proto::phase::MachinePhase;
        use dormer_views::machine::Halt;
        let held = |name: &str, by: &str| {
            let machine = Machine {
                uid: name.into(),
                name: name.into(),
                halt: Some(Halt {
                    kind: HaltKind::Held.into(),
                    by: Some(by.into()),
                    own: None,
                    who: None,
                    why: None,
                    text: format!("held by {by}"),
                    since: None,
                }),
                ..machine_in(MachinePhase::Serving)
            };
            let problem = problem::problem(&machine);
            Item { machine, problem }
        };
        let items = [
            held("a", "ann: a disk"),
            held("b", "bob: a review"),
            held("c", "ann: a disk"),
        ];
        let shown = needs(&items, 0, &[], None).into_string();
        for expected in [
            "data-key=\"cause-on-purpose-Held-held by ann: a disk",
            "data-key=\"cause-on-purpose-Held-held by bob: a review",
            ">Resume 2 machines<",
            ">Resume machine<",
            "<code>dormer resume a c</code>",
            "<code>dormer resume b</code>",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        // They are no incident.
        assert!(shown.contains("Nothing is wrong"), "{shown}");
        assert!(shown.contains("Kept as they are: 3 machines"), "{shown}");
    }

    #[test]
    fn a_drain_that_waits_and_a_stopped_rollout_are_shown() {
        use crate::actions::tests::machine_in;
        use dormer_proto::phase::MachinePhase;
        use dormer_views::machine::{AskedFor, PendingRequest};
        let machine = Machine {
            asked: Some(PendingRequest {
                what: AskedFor::Drain.into(),
                by: Some("ann: a disk".into()),
                who: None,
                why: None,
                at: None,
                begun: false,
            }),
            ..machine_in(MachinePhase::LeaseWait)
        };
        let items = [Item {
            machine,
            problem: None,
        }];
        let shown = requests(&items).into_string();
        let text = "Drain asked for by ann (a disk), waits for the rollout&#39;s lease: ";
        let text = text.replace("&#39;", "'");
        assert!(shown.contains(&text), "{shown}");
        let paused = crate::rollouts::tests::rollout_with("paused", "ann");
        let shown = needs(&items, 0, &[paused], None).into_string();
        assert!(!shown.contains("Nothing is wrong"), "{shown}");
        assert!(shown.contains("is stopped: paused by ann."), "{shown}");
    }

    #[test]
    fn equal_causes_are_one_entry_with_one_button() {
        use crate::actions::tests::machine_in;
        use dormer_proto::phase::MachinePhase;
        use dormer_views::machine::PhaseFailure;
        let failed = |uid: &str| Machine {
            uid: uid.into(),
            name: uid.into(),
            failure: Some(PhaseFailure {
                code: "access_denied".into(),
                message: "No right.".into(),
                log: None,
                phase: MachinePhase::ConvergingHost.into(),
                phase_text: "converging the host".into(),
            }),
            ..machine_in(MachinePhase::Failed)
        };
        let items = ["a", "b", "c"].map(|uid| {
            let machine = failed(uid);
            let problem = problem::problem(&machine);
            Item { machine, problem }
        });
        let shown = needs(&items, 3, &[], None).into_string();
        assert!(shown.contains("3 machines stuck"), "{shown}");
        assert_eq!(
            shown.matches("<li data-urgency=\"stuck\"").count(),
            1,
            "{shown}"
        );
        assert!(
            shown.contains("data-all=\"a@7 b@7 c@7\" data-action=\"retry\""),
            "{shown}"
        );
        assert!(shown.contains(">Retry 3 machines<"), "{shown}");
        let only = filter_of(&[("cause", "access_denied"), ("q", "b")]);
        let taken = items.iter().filter(|it| only.takes(it, &["b".into()]));
        assert_eq!(taken.count(), 1);
        assert!(!filter_of(&[("cause", "other")]).takes(&items[0], &[]));
    }

    #[test]
    fn machines_are_chosen_by_zone() {
        use crate::actions::tests::machine_in;
        use dormer_proto::phase::MachinePhase;
        let items = [Some("us-east-1a"), Some("us-east-1b"), None].map(|zone| Item {
            machine: Machine {
                zone: zone.map(Into::into),
                ..machine_in(MachinePhase::Serving)
            },
            problem: None,
        });
        let filter = filter_of(&[("zone", "us-east-1b")]);
        let taken: Vec<bool> = items.iter().map(|it| filter.takes(it, &[])).collect();
        assert_eq!(taken, [false, true, false]);
        assert_eq!(filter.address(None, 2), "/?zone=us-east-1b&page=2");
        let form = search(&filter, &items).into_string();
        assert!(form.contains("<select name=\"zone\">"), "{form}");
        assert!(
            form.contains("<option value=\"us-east-1b\" selected>"),
            "{form}"
        );
        assert!(!form.contains("name=\"set\""), "one choice is none: {form}");
    }

    #[test]
    fn machines_are_chosen_by_label_and_age() {
        use crate::actions::tests::machine_in;
        use dormer_proto::{id::Timestamp, phase::MachinePhase};
        use dormer_views::moment::Moment;
        let day = 86_400_000;
        let now = Timestamp(100 * day);
        let items = [("blue", 8), ("red", 2), ("blue", 0)].map(|(team, days)| {
            let mut machine = machine_in(MachinePhase::Serving);
            machine.labels = [("team".to_owned(), team.to_owned())].into();
            machine.created = Some(Moment(Timestamp(now.0 - days * day)));
            machine.status.since = Moment(now);
            machine.status.since_seconds = 0;
            Item {
                machine,
                problem: None,
            }
        });
        let taken = |fields: &[(&str, &str)]| {
            let filter = filter_of(fields);
            items.each_ref().map(|it| filter.takes(it, &[]))
        };
        assert_eq!(taken(&[("label", "team=blue")]), [true, false, true]);
        assert_eq!(taken(&[("older", "1d")]), [true, true, false]);
        let both = [("label", "team=blue"), ("older", "7d")];
        assert_eq!(taken(&both), [true, false, false]);
        assert_eq!(taken(&[("older", "soon")]), [false; 3]);
        let filter = filter_of(&both);
        assert_eq!(filter.address(None, 1), "/?label=team%3Dblue&older=7d");
        let form = search(&filter, &items).into_string();
        assert!(
            form.contains("<option value=\"team=blue\" selected>"),
            "{form}"
        );
        assert!(form.contains("<option value=\"7d\" selected>"), "{form}");
        assert!(
            !form.contains("value=\"30d\""),
            "no machine is so old: {form}"
        );
    }

    #[test]
    fn a_filter_by_state_is_said_in_the_address_as_it_was_asked() {
        for (id, filter) in [
            ("stuck", StateFilter::Stuck),
            ("Joined", StateFilter::In(MachineState::Joined)),
            ("held", StateFilter::Halted(HaltKind::Held)),
            ("joined", StateFilter::Unknown("joined".into())),
        ] {
            assert_eq!(StateFilter::of_id(id), filter);
            let address = Filter::default().address(Some(&filter), 2);
            assert_eq!(address, format!("/?state={id}&page=2"));
        }
    }
}
