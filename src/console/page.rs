//! Common parts of the console's pages: frame, style, script, and formats of values.

use super::PageContent;
use dormer_api::{ApiError, CommandFlags};
use dormer_views::actions::Action;
use dormer_views::{
    address::segment,
    explain::Step,
    machine::Machine,
    moment::{Moment, span},
    run::{RunStatus, Task},
};
use maud::{DOCTYPE, Markup, html};

/// Style sheet of all pages.
pub(super) const STYLE: &str = include_str!("console.css");
/// Script of all pages: updates the content, and sends the requests of buttons.
pub(super) const SCRIPT: &str = include_str!("console.js");
/// Icon: a dormer window on a roof.
pub(super) const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\">\
    <path fill=\"#0066cc\" d=\"M1 14 8 2l7 12z\"/><path fill=\"#fff\" d=\"M6 8h4v4H6z\"/></svg>";

/// Reload interval of a browser without scripts, in seconds.
const RELOAD_S: u32 = 10;

/// Title for a browser's tab.
pub(super) fn title(of: &str) -> String {
    format!("{of} · dormer")
}

/// Pages in the masthead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    /// All machines, and each one.
    Fleet,
    /// Rollouts, and each one.
    Rollouts,
    /// What would change.
    Plan,
    /// Requests of people.
    Activity,
    /// Pools, payloads, and refused settings.
    Settings,
    /// None of them: an address that no page has. Nothing on it changes.
    Nowhere,
}

/// Sections with their names and addresses.
const SECTIONS: [(Section, &str, &str); 5] = [
    (Section::Fleet, "Fleet", "/"),
    (Section::Rollouts, "Rollouts", "/rollouts"),
    (Section::Plan, "Plan", "/plan"),
    (Section::Activity, "Activity", "/activity"),
    (Section::Settings, "Settings", "/settings"),
];

pub(super) fn page(content: PageContent) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title(&content.title)) }
                link rel="stylesheet" href="/console.css";
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                noscript { meta http-equiv="refresh" content=(RELOAD_S); }
                script src="/console.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.brand href="/" { "dormer" }
                    nav aria-label="Pages" {
                        @for (section, name, address) in SECTIONS {
                            a href=(address) aria-current=[(section == content.section).then_some("page")] { (name) }
                        }
                    }
                    span #zone { "Times: UTC" }
                    @if content.section == Section::Nowhere { span #live role="status" {} }
                    @else { span #live role="status" { "not live: scripts are off" } }
                }
                p #trouble role="alert" hidden {}
                main #main tabindex="-1" data-fixed=[(content.section == Section::Nowhere).then_some("yes")] { (content.main) }
                (sure())
                div #said role="status" aria-live="polite" {}
            }
        }
    }
}

/// Confirmation dialog for dangerous actions. The script fills it in.
fn sure() -> Markup {
    html! {
        dialog #sure aria-labelledby="sure-what" {
            form method="dialog" {
                h2 #sure-what { "Confirm" }
                p #sure-danger {}
                p #sure-changed.note.amber role="alert" hidden {}
                label for="sure-why" { "Reason (kept in the history)" }
                input #sure-why type="text" maxlength="200" autocomplete="off";
                div.actions {
                    button #sure-yes.primary value="yes" { "Confirm" }
                    button value="no" { "Cancel" }
                }
            }
        }
    }
}

pub(super) fn failed(error: &ApiError) -> PageContent {
    let (what, advice) = error.what_and_remedy();
    let main = html! { h1 { (what) } p { (advice) } p { a href="/" { "All machines" } } };
    PageContent {
        title: "Not shown".into(),
        section: Section::Fleet,
        main,
    }
}

/// Page of an address that no page has.
pub(super) fn no_page(path: &str) -> PageContent {
    let main = html! {
        h1 { "There is no page " (path) }
        p { "The pages are:" }
        ul { @for (_, name, address) in SECTIONS { li { a href=(address) { (name) } } } }
    };
    PageContent {
        title: "No page".into(),
        section: Section::Nowhere,
        main,
    }
}

/// Page of a machine that there is not.
pub(super) fn no_machine(called: &str, error: &ApiError) -> PageContent {
    let (what, _) = error.what_and_remedy();
    let name = called.rsplit('/').next().unwrap_or(called);
    let main = html! {
        h1 { (what) }
        p {
            "A machine that was replaced has another name, and its run is deleted some time after its end. Look for the machine \
             by a part of its name, its node or its address:"
        }
        ul {
            li { a href=(format!("/{}", query(&[("q", Some(name))]))) { "Search the fleet for " (name) } }
            li { a href="/" { "All machines" } }
            li { a href="/activity" { "What people asked for" } }
        }
        p { "With the machines that are gone: " (command("dormer get machines --all")) }
    };
    PageContent {
        title: format!("No machine {name}"),
        section: Section::Fleet,
        main,
    }
}

/// Text, or a dash if there is none.
pub(super) fn or_dash(text: Option<&str>) -> &str {
    text.filter(|text| !text.is_empty()).unwrap_or("–")
}

/// Time that a run has been in its state.
pub(super) fn since(status: &RunStatus) -> Markup {
    let since = status.since.to_string();
    html! { time datetime=(since) title=(since) { (span(status.since_seconds)) } }
}

/// Time in UTC, to the second: `2026-11-21 07:00:00`.
fn clock(at: Moment) -> String {
    let text = at.to_string();
    text.get(..19).unwrap_or(&text).replace('T', " ")
}

/// Time to the second. The script shows it in the reader's zone; without scripts it is in UTC.
pub(super) fn time(at: impl Into<Moment>) -> Markup {
    let at = at.into();
    let utc = clock(at);
    html! { time datetime=(at) data-at="" title=(format!("{utc} UTC")) { (utc) } }
}

/// Steps whose commands have the `flags` that they need to come here.
pub(super) fn reaching<S>(mut steps: S, flags: Option<&CommandFlags>) -> S
where
    for<'a> &'a mut S: IntoIterator<Item = &'a mut Step>,
{
    if let Some(flags) = flags {
        flags.reach(&mut steps);
    }
    steps
}

/// Command with a button that copies it.
pub(super) fn command(line: &str) -> Markup {
    html! {
        span.command {
            code { (line) }
            button type="button" data-copy=(line) aria-label=(format!("Copy {line}")) { "Copy" }
        }
    }
}

/// State in its colour.
pub(super) fn state(name: &str) -> Markup {
    html! { span.state data-state=(name) { (name) } }
}

/// Present and desired version of a machine's node.
pub(super) fn version(machine: &Machine) -> Markup {
    let has = machine.version.as_deref();
    let wants = machine.desired_version.as_deref();
    html! {
        code { (has.unwrap_or("–")) }
        @if let Some(wants) = wants.filter(|wants| Some(*wants) != has) { " → " code { (wants) } }
    }
}

/// The same in a row: of two payloads the payloads, else the beginnings of what differs. All of it is the title.
pub(super) fn short_version(machine: &Machine) -> Markup {
    let has = machine.version.as_deref();
    let wants = machine
        .desired_version
        .as_deref()
        .filter(|it| Some(*it) != has);
    let Some((has, wants)) = has.zip(wants) else {
        return version(machine);
    };
    let title = format!("{has} → {wants}");
    let payloads = dormer_proto::pool::payload_of(has).zip(dormer_proto::pool::payload_of(wants));
    let (has, wants) = match payloads {
        Some((from, to)) if from != to => (from.to_owned(), to.to_owned()),
        _ => (begun(has), begun(wants)),
    };
    html! { span title=(title) { code { (has) } " → " code { (wants) } } }
}

/// A version with four digits of its hash.
fn begun(version: &str) -> String {
    match dormer_proto::pool::payload_of(version) {
        Some(payload) => format!("{}…", &version[..payload.len() + 5]),
        None => version.to_owned(),
    }
}

/// Task in progress, with its last failure.
pub(super) fn busy(task: &Task) -> Markup {
    busy_beside(task, false)
}

/// Task in progress. `said`: its last failure stands beside it already.
pub(super) fn busy_beside(task: &Task, said: bool) -> Markup {
    let failure = task.failure.as_ref().filter(|_| !said);
    html! {
        div.busy data-key=(task.task) {
            b { (task.name) }
            @if task.attempt > 1 { ", attempt " (task.attempt) }
            @if let Some(beat) = &task.heartbeat {
                @if !beat.step.is_empty() { ": " (beat.step) }
                @if beat.of > 0 {
                    " " progress max=(beat.of) value=(beat.done) aria-label="progress of the \
                     step" {}
                    " " span.quiet { (amount(beat.done, &beat.unit)) " of " (amount(beat.of, &beat.unit)) }
                }
            }
            @if let Some(failure) = failure { ": " span.quiet { (failure.message) } }
        }
    }
}

/// Amount in a readable unit.
fn amount(count: u64, unit: &str) -> String {
    match (unit, count) {
        ("bytes", 0..1_000_000) => format!("{:.1} kB", count as f64 / 1e3),
        ("bytes", _) => format!("{:.1} MB", count as f64 / 1e6),
        (unit, count) => format!("{count} {unit}").trim_end().to_owned(),
    }
}

/// Bar to scale with the number of machines of each kind.
pub(super) fn bar(label: &str, states: &[(&str, usize)], of: usize) -> Markup {
    let share = |count: usize| count as f64 * 100.0 / of.max(1) as f64;
    let begin = |at: usize| share(states[..at].iter().map(|(_, count)| count).sum());
    html! {
        svg.bar role="img" aria-label=(label) width="100%" height="10" {
            @for (at, (state, count)) in states.iter().enumerate().filter(|(_, (_, count))| *count > 0) {
                rect data-state=(state) x=(percent(begin(at))) width=(percent(share(*count))) height="10" {
                    title { (count) " " (state) }
                }
            }
        }
    }
}

/// Share of a width, in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{share:.3}%")
}

/// Links to the pages of a list. A single page has none.
pub(super) fn pager(
    label: &str,
    page: usize,
    pages: usize,
    address: impl Fn(usize) -> String,
) -> Markup {
    html! {
        @if pages > 1 {
            nav.pager aria-label=(label) {
                @if page > 1 { a rel="prev" href=(address(page - 1)) { "← before" } }
                span { "page " (page) " of " (pages) }
                @if page < pages { a rel="next" href=(address(page + 1)) { "further →" } }
            }
        }
    }
}

/// Query string `?a=b&c=d` of the fields with a value.
pub(super) fn query(fields: &[(&str, Option<&str>)]) -> String {
    let said = fields
        .iter()
        .filter_map(|(name, value)| Some((name, (*value)?)));
    let said: Vec<String> = said
        .map(|(name, value)| format!("{name}={}", segment(value)))
        .collect();
    if said.is_empty() {
        String::new()
    } else {
        format!("?{}", said.join("&"))
    }
}

/// Weight of a button.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// The sensible one now.
    Primary,
    /// One of several.
    Secondary,
}

/// Button that sends `action` to `path`. A dangerous action needs a confirmation. With `against`, the request is
/// valid only in the state that was entered at that record.
pub(super) fn button(
    path: &str,
    action: &Action,
    of: &str,
    against: Option<u64>,
    weight: Weight,
) -> Markup {
    let danger = action.danger.map(str::to_owned);
    button_after(path, action, of, against, weight, danger)
}

/// Button like [`button`], with a confirmation of `danger`.
pub(super) fn button_after(
    path: &str,
    action: &Action,
    of: &str,
    against: Option<u64>,
    weight: Weight,
    danger: Option<String>,
) -> Markup {
    let name = verb(action);
    html! {
        button.primary[weight == Weight::Primary].danger[action.danger.is_some()] type="button" title=(action.what)
            data-key=(format!("{}-{path}", action.name))
            data-post=(format!("/api/v1/{path}")) data-against=[against]
            data-what=[danger.as_ref().map(|_| format!("{name} {of}?"))]
            data-yes=(format!("{name} {}", action.on.name()))
            data-done=(format!("{name} accepted"))
            data-danger=[danger.map(|danger| format!("{}: {danger}.", action.what))] {
            (name)
        }
    }
}

/// Button that sends `action` to each of these machines, after a confirmation. `None`: there are none.
pub(super) fn button_for_all(
    action: &Action,
    machines: &[(&str, u64)],
    weight: Weight,
) -> Option<Markup> {
    let count = machines.len();
    let name = verb(action);
    let all: Vec<String> = machines
        .iter()
        .map(|(uid, against)| format!("{uid}@{against}"))
        .collect();
    let each = if count == 1 {
        format!("{name} machine")
    } else {
        format!("{name} {count} machines")
    };
    (count > 0).then(|| {
        html! {
            button.primary[weight == Weight::Primary] type="button" title=(action.what)
                data-all=(all.join(" ")) data-action=(action.name)
                data-what=(format!("{each}?")) data-yes=(each) data-done=(format!("{name} accepted"))
                data-danger=(format!("{}.", action.what)) {
                (each)
            }
        }
    })
}

/// Field for the reason of an action.
pub(super) fn why() -> Markup {
    html! {
        input #why type="text" maxlength="200" autocomplete="off" aria-label="Reason (kept in the history)"
            placeholder="Reason (kept in the history)";
    }
}

/// Name of an action on a button: `Trust host key`.
fn verb(action: &Action) -> String {
    capital(&action.name.replace('-', " "))
}

/// Text with a capital at its beginning.
pub(super) fn capital(word: &str) -> String {
    let mut messages = word.chars();
    messages
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .chain(messages)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::id::Timestamp;
    use dormer_views::run::{Heartbeat, TaskFailure, TaskPhase};

    #[test]
    fn a_page_that_is_not_there_is_none_of_the_sections_and_follows_no_stream() {
        let shown = page(no_page("/nope")).into_string();
        assert!(!shown.contains("aria-current"), "{shown}");
        assert!(shown.contains("data-fixed=\"yes\""), "{shown}");
        let error = ApiError::absent("rollout", "x", "dormer get rollouts");
        let other = page(failed(&error)).into_string();
        assert!(!other.contains("data-fixed"), "it may appear: {other}");
        assert!(other.contains("aria-current=\"page\""), "{other}");
    }

    #[test]
    fn the_page_of_an_unknown_machine_helps_to_find_it() {
        let error = ApiError::absent("machine", "win-old", "dormer get machines");
        let shown = no_machine("machines/win-old", &error).main.into_string();
        for expected in [
            "there is no machine",
            "href=\"/?q=win-old\"",
            "dormer get machines --all",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
    }

    #[test]
    fn a_running_task_shows_its_step_and_its_progress() {
        let heartbeat = Heartbeat {
            worker: "w1".into(),
            step: "upload".into(),
            done: 1_234,
            of: 2_000,
            unit: "bytes".into(),
        };
        let task = Task {
            last_failure: None,
            task: "machine/u@3.0".into(),
            run: "machine/u".into(),
            name: "converge-host".into(),
            machine: None,
            attempt: 2,
            attempts_max: 60,
            ends: None,
            phase: TaskPhase::InFlight.into(),
            since: None,
            since_seconds: None,
            until: Moment(Timestamp(0)),
            failure: None,
            heartbeat: Some(heartbeat),
        };
        let shown = busy(&task).into_string();
        for expected in [
            "data-key=\"machine/u@3.0\"",
            "<b>converge-host</b>, attempt 2: upload",
            "max=\"2000\" value=\"1234\"",
            "1.2 kB of 2.0 kB",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        let failed = Task {
            failure: Some(TaskFailure {
                code: "DiskFull".into(),
                message: "drive C seems to be full".into(),
                log: None,
            }),
            ..task
        };
        let of = |said| busy_beside(&failed, said).into_string();
        assert!(of(false).contains("seems to be full"), "{}", of(false));
        assert!(!of(true).contains("seems to be full"), "{}", of(true));
    }

    #[test]
    fn a_moment_is_shown_to_the_second_and_nothing_as_a_dash() {
        let shown = time(Timestamp(1_763_708_400_007)).into_string();
        assert_eq!(
            shown,
            "<time datetime=\"2025-11-21T07:00:00.007Z\" data-at=\"\" \
             title=\"2025-11-21 07:00:00 UTC\">2025-11-21 07:00:00</time>"
        );
        assert_eq!(
            [or_dash(None), or_dash(Some("")), or_dash(Some("a"))],
            ["–", "–", "a"]
        );
    }

    #[test]
    fn addresses_and_amounts_are_as_they_should_be() {
        assert_eq!(
            query(&[("q", Some("a b&c/é")), ("page", None)]),
            "?q=a%20b%26c%2F%C3%A9"
        );
        assert_eq!(query(&[("q", None)]), "");
        assert_eq!(amount(1_234, "bytes"), "1.2 kB");
        assert_eq!(amount(45_600_000, "bytes"), "45.6 MB");
        assert_eq!(amount(7, "files"), "7 files");
        assert_eq!(capital("drain"), "Drain");
    }
}
