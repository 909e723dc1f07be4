//! Page of a machine: its state with the reason, its actions, its timeline, and its history.

use super::{
    PageContent, Snapshot, actions, commands,
    diagram::diagram,
    history::{self, HistoryPart},
    page::{Section, busy, command, or_dash, query, reaching, since, state, time, version},
    picture,
};
use axum::extract::{Path, State as Of};
use dormer_api::{Api, ApiError, SharedRun, live::Live, reads, views};
use dormer_proto::{
    id::Timestamp,
    message::RemoteCommand,
    phase::MachinePhase,
    work::{machine_run, rollout_run},
};
use dormer_views::{
    explain::{self, Explanation, Step},
    machine::Machine,
    moment::{Moment, lasted},
    problem::{Urgency, problem},
    record::Record,
    rollout::Rollout,
    timeline::{BETWEEN, Episode, Timeline, not_stored},
};
use maud::{Markup, html};
use std::sync::Arc;

/// Most episodes with links, the newest.
const EPISODES: usize = 12;

/// Data of the page.
struct MachinePage<'a> {
    machine: &'a Machine,
    run: &'a SharedRun,
    rollout: Option<&'a Rollout>,
    explanation: Explanation,
    records: Vec<Record>,
    timeline: Timeline,
    commands: Vec<RemoteCommand>,
    part: HistoryPart,
}

/// Reads the page's data and renders it.
pub(super) async fn read(
    api: &Arc<Api>,
    snapshot: &Snapshot,
    called: &str,
    part: HistoryPart,
) -> Result<PageContent, ApiError> {
    let machine = reads::machine(Of(Arc::clone(api)), Path(called.to_owned()))
        .await?
        .0;
    let run = machine_run(&machine.uid)
        .ok()
        .and_then(|id| snapshot.run(&id));
    let run = run.ok_or_else(|| ApiError::absent("machine", called, "dormer get machines"))?;
    let records = history::read(api, run, part).await?;
    let timeline = api.timeline_of(&run.id).await?;
    let commands = api.live().commands(&run.id);
    let rollout = rollout_of(&machine, snapshot, api.live());
    let from = run.seq.0.saturating_sub(explain::RECORDS_BACK).max(1);
    let latest = api
        .part_of(&run.id, from, explain::RECORDS_BACK as usize + 1)
        .await?;
    let last = explain::failure_in(&latest.items, &machine);
    let mut explanation = explain::explanation(&machine, last.as_ref(), rollout.as_ref());
    explanation.steps = reaching(explanation.steps, api.command_flags());
    let content = MachinePage {
        machine: &machine,
        run,
        rollout: rollout.as_ref(),
        explanation,
        records,
        timeline,
        commands,
        part,
    };
    Ok(PageContent {
        title: format!("{} is {}", machine.name, machine.state),
        section: Section::Fleet,
        main: page(&content),
    })
}

/// Rollout of the machine's pool.
fn rollout_of(machine: &Machine, snapshot: &Snapshot, live: &Live) -> Option<Rollout> {
    let run = snapshot.run(&rollout_run(&machine.pool).ok()?)?;
    views::rollout(run, &views::names(&snapshot.runs), live, snapshot.now)
}

fn page(content: &MachinePage<'_>) -> Markup {
    let machine = content.machine;
    let failure = machine.failure.as_ref();
    let failed_in = failure.and_then(|failure| failure.phase.known());
    html! {
        div.top {
            h1 { (machine.name) }
            (state(machine.state.id()))
            @if let Some(phase) = machine.phase_beside_state() { span.phase { (phase) } }
        }
        (situation(machine, &content.explanation))
        @for task in &machine.tasks { (busy(task)) }
        @if machine.status.closed.is_none() { (actions::section(machine)) }
        section.card aria-label="States" { (diagram(&machine.state, failed_in.map(MachinePhase::state))) }
        (life(content))
        (commands::section(&machine.name, &content.commands, &content.timeline.episodes))
        section.card aria-labelledby="details" {
            h2 #details { "Details" }
            (known(machine, content.rollout))
        }
        (history::table(&content.records, content.run, content.part, Some(&format!("runs/{}", content.run.id.as_str()))))
    }
}

/// Cause, Do now, State, as `dormer why` has them.
fn situation(machine: &Machine, explanation: &Explanation) -> Markup {
    let Explanation {
        cause,
        cause_code,
        next,
        log,
        steps,
        heals_by,
        as_usual,
        details,
        ..
    } = explanation;
    // An alternative is no further step.
    let steps = steps.iter().filter(|_| as_usual.is_none());
    let (instead, steps): (Vec<&Step>, Vec<&Step>) = steps.partition(|step| step.instead);
    let urgency = problem(machine).map(|it| it.urgency);
    let bad = urgency == Some(Urgency::Stuck);
    let amber = matches!(urgency, Some(Urgency::Person | Urgency::Slow));
    // The code follows the words of the cause; it is set small.
    let small = cause_code.as_ref().map(|code| format!("({code})"));
    html! {
        section.why.failed[bad].amber[amber] aria-label="Present state and its cause" {
            dl {
                @if let Some(cause) = cause {
                    div { dt { "Cause" } dd {
                        @match small.as_deref().and_then(|small| Some((cause.strip_suffix(small)?, small))) {
                            Some((words, small)) => { b { (words.trim_end()) } " " span.code { (small) } }
                            None => b { (cause) },
                        }
                        @if let Some(next) = next { ". " (next) }
                    } }
                }
                @if let Some(log) = log { div { dt { "Log" } dd { pre { (log) } } } }
                div { dt { "Do now" } dd {
                    @if let Some(usual) = as_usual { "Nothing: " (usual) "." }
                    @else if let Some(by) = heals_by {
                        @if steps.is_empty() { "Nothing" } @else { "Nothing yet" }
                        ": dormer continues by itself. It counts as stuck at " (time(*by))
                        @if steps.is_empty() { "." } @else { "; then:" }
                    }
                    @else if steps.is_empty() && instead.is_empty() { "Nothing." }
                    @match steps.as_slice() {
                        [] => {}
                        [one] => { p { (step(one)) } }
                        many => { ol.steps { @for it in many { li { (step(it)) } } } }
                    }
                    @for it in instead { p.instead { "Or: " (step(it)) } }
                } }
                div { dt { "State" } dd {
                    (machine.state) " for " (since(&machine.status)) ", since " (time(machine.status.since))
                    (explanation.times())
                } }
            }
            @if !details.is_empty() { p.quiet { @for sentence in details { (sentence) " " } } }
        }
    }
}

/// A step with its command.
fn step(step: &Step) -> Markup {
    html! {
        (step.say.trim_end_matches('.'))
        @match step.line() { Some(line) => { ": " (command(&line)) } None => "." }
    }
}

/// Timeline: the selected episode, or the latest one with a name.
fn life(content: &MachinePage<'_>) -> Markup {
    let named = |episode: &&Episode| episode.kind != BETWEEN;
    let chosen = match content.part.episode {
        Some(seq) => content
            .timeline
            .episodes
            .iter()
            .find(|episode| episode.seq == seq),
        None => content
            .timeline
            .episodes
            .iter()
            .rev()
            .find(named)
            .or(content.timeline.episodes.last()),
    };
    html! {
        section.card aria-labelledby="life" {
        h2 #life { "Timeline" }
        nav.episodes aria-label="Episodes" { ul.chips {
            @for episode in content.timeline.episodes.iter().rev().take(EPISODES) {
                @let here = chosen.is_some_and(|chosen| chosen.seq == episode.seq);
                li { a.chip href=(format!("{}#life", query(&[("episode", Some(&episode.seq.to_string()))])))
                    aria-current=[here.then_some("true")] { (episode.purpose()) " " span.quiet { (time(Timestamp(episode.from))) } } }
            }
        } }
        @if let Some(text) = not_stored(content.timeline.first_record) { p.quiet { (text) } }
        @if let Some(episode) = chosen {
            (episode_line(episode, content.timeline.now))
            (picture::picture(episode, content.timeline.now))
            (picture::legend())
        } @else { p.quiet { "This episode is no longer stored." } }
        }
    }
}

fn episode_line(episode: &Episode, now: u64) -> Markup {
    let long = lasted(episode.from, episode.to.unwrap_or(now));
    html! {
        p.quiet {
            (episode.purpose()) ", " (time(Timestamp(episode.from))) " to "
            @match episode.to { Some(to) => (time(Timestamp(to))), None => "now" }
            ", " (long) ": " (episode.ending()) "."
        }
    }
}

fn known(machine: &Machine, rollout: Option<&Rollout>) -> Markup {
    let set = rollout.and_then(|rollout| explain::machine_set(machine, rollout));
    html! {
        dl {
            div { dt { "Version" } dd { (version(machine)) } }
            @for (name, text) in fields(machine) {
                @if text.is_some() { div { dt { (name) } dd { (or_dash(text)) } } }
            }
            @for condition in &machine.machine_conditions {
                div { dt { "Machine's condition" } dd { (explain::condition_text(condition)) } }
            }
            @for difference in &machine.template_differs {
                div { dt { "Earlier template" } dd { (difference) } }
            }
            @if let Some(set) = set { div { dt { "MachineSet" } dd { (explain::numbers_text(set)) } } }
            @for (name, at) in moments(machine) {
                @if let Some(at) = at { div { dt { (name) } dd { (time(at)) } } }
            }
            @if let Some(token) = machine.token { div { dt { "Lease" } dd { "token " (token) } } }
        }
    }
}

/// Fields with their labels.
fn fields(machine: &Machine) -> [(&'static str, Option<&str>); 9] {
    [
        ("Node", machine.node.as_deref()),
        ("Address", machine.address.as_deref()),
        ("Pool", Some(&machine.pool)),
        ("Owner", machine.owner.as_deref()),
        ("Machine's phase", machine.machine_phase.as_deref()),
        ("Machine's error", machine.machine_error.as_deref()),
        ("Namespace", Some(&machine.namespace)),
        ("UID", Some(&machine.uid)),
        ("Run", Some(&machine.status.run)),
    ]
}

/// Times with their labels. The age of its state stands above.
fn moments(machine: &Machine) -> [(&'static str, Option<Moment>); 2] {
    [
        ("Created", machine.created),
        ("Ended", machine.status.closed),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::tests::machine_in;
    use dormer_views::machine::PhaseFailure;

    fn failed(code: &str, message: &str) -> Machine {
        Machine {
            failure: Some(PhaseFailure {
                code: code.into(),
                message: message.into(),
                log: None,
                phase: MachinePhase::Probing.into(),
                phase_text: MachinePhase::Probing.text().into(),
            }),
            ..machine_in(MachinePhase::Failed)
        }
    }

    fn shown(machine: &Machine) -> String {
        let explanation = explain::explanation(machine, None, None);
        situation(machine, &explanation).into_string()
    }

    #[test]
    fn state_cause_and_commands_come_first_and_the_code_is_set_small() {
        let rejected = Machine {
            machine_phase: Some("Provisioned".into()),
            ..failed("AuthRejected", "the key is not accepted (<b>)")
        };
        let rejected = shown(&rejected);
        for expected in [
            "class=\"why failed\"",
            "<dt>State</dt><dd>Failed for ",
            "<b>the key is not accepted (&lt;b&gt;)</b> <span class=\"code\">(AuthRejected)</span>",
            "<code>dormer retry win-a</code>",
            "data-copy=\"dormer retry win-a\"",
            "<p class=\"instead\">Or: Replace it",
        ] {
            assert!(rejected.contains(expected), "{expected}: {rejected}");
        }
        let cause = "the key is not accepted";
        assert_eq!(rejected.matches(cause).count(), 1, "once: {rejected}");
        assert_eq!(
            rejected.matches("<li>").count(),
            2,
            "an alternative is no step"
        );
        let serving = shown(&machine_in(MachinePhase::Serving));
        assert!(
            serving.contains("class=\"why\"") && serving.contains("<dd>Nothing.</dd>"),
            "{serving}"
        );
        let asked = shown(&machine_in(MachinePhase::ApprovalWait));
        assert!(asked.contains("class=\"why amber\""), "{asked}");
    }

    #[test]
    fn an_episode_says_how_it_ended() {
        let under_way = Episode {
            kind: "bring-up".into(),
            seq: 1,
            from: 1_763_708_400_000,
            to: None,
            result: String::new(),
            phases: Vec::new(),
        };
        let now = under_way.from + 60_000;
        let line = episode_line(&under_way, now).into_string();
        assert!(line.ends_with("2025-11-21 07:00:00</time> to now, 60s: under way.</p>"));
        let ended = Episode {
            to: Some(now),
            ..under_way
        };
        let line = episode_line(&ended, now).into_string();
        assert!(line.ends_with("07:01:00</time>, 60s: ended.</p>"), "{line}");
    }
}
