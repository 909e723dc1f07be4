//! Page of a machine: its state with the reason, its actions, its timeline, and its history.

use super::{
    Content, Snapshot, actions, commands,
    diagram::diagram,
    history::{self, Part},
    page::{busy, clock, or_dash, query, since, state, version},
    picture,
};
use axum::extract::{Path, State as Of};
use dormer_api::{Api, ApiError, SharedRun, live::Live, reads, views};
use dormer_proto::{
    id::Timestamp,
    message::RemoteCommand,
    phase::{MachinePhase, MachineState},
    work::{machine_run, rollout_run},
};
use dormer_views::{
    explain,
    machine::{Machine, PhaseFailure},
    moment::{Moment, lasted},
    record::Record,
    rollout::Rollout,
    timeline::{BETWEEN, Episode},
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
    /// Explanation of its state, sentence by sentence.
    situation: Vec<String>,
    /// Advice for the next step.
    next_step: String,
    records: Vec<Record>,
    episodes: Vec<Episode>,
    commands: Vec<RemoteCommand>,
    now: u64,
    part: Part,
}

/// Reads the page's data and renders it.
pub(super) async fn read(
    api: &Arc<Api>,
    snapshot: &Snapshot,
    called: &str,
    part: Part,
) -> Result<Content, ApiError> {
    let machine = reads::machine(Of(Arc::clone(api)), Path(called.to_owned()))
        .await?
        .0;
    let run = machine_run(&machine.uid)
        .ok()
        .and_then(|id| snapshot.run(&id));
    let run = run.ok_or_else(|| ApiError::absent("machine", called, "dormer get machines"))?;
    let records = history::read(api, run, part).await?;
    let (episodes, now) = api.timeline_of(&run.id).await?;
    let commands = api.live().commands(&run.id);
    let rollout = rollout_of(&machine, snapshot, api.live());
    let from = run.seq.0.saturating_sub(explain::RECORDS_BACK).max(1);
    let latest = api
        .part_of(&run.id, from, explain::RECORDS_BACK as usize + 1)
        .await?;
    let last = explain::failure_in(&latest.items, &machine);
    let content = MachinePage {
        machine: &machine,
        run,
        rollout: rollout.as_ref(),
        situation: explain::situation(&machine, last.as_deref(), rollout.as_ref()),
        next_step: explain::next_step(&machine, rollout.as_ref()),
        records,
        episodes,
        commands,
        now,
        part,
    };
    Ok(Content {
        title: format!("{} is {}", machine.name, machine.state),
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
    let bad = machine.state == MachineState::Failed || machine.given_up();
    html! {
        h1 { (machine.name) }
        p.head {
            (state(machine.state.id())) " "
            @if let Some(phase) = machine.phase_beside_state() { span.phase { (phase) } " " }
            "for " (since(&machine.status))
        }
        section.why.failed[bad] aria-label="Present state and its cause" {
            p { (situation(&content.situation, failure)) }
            p.next { b { "Next: " } (content.next_step) }
        }
        @for task in &machine.tasks { (busy(task)) }
        @if machine.status.closed.is_none() { (actions::section(machine)) }
        (diagram(&machine.state, failed_in.map(MachinePhase::state)))
        (life(content))
        (commands::section(&machine.name, &content.commands, &content.episodes))
        h2 { "Details" }
        (known(machine, content.rollout))
        (history::table(&content.records, content.run, content.part, Some(&format!("runs/{}", content.run.id.as_str()))))
    }
}

/// Explanation as one paragraph. The failure's code, at the end of the first sentence, is set in small type.
fn situation(sentences: &[String], failure: Option<&PhaseFailure>) -> Markup {
    let (headline, more) = match sentences {
        [headline, more @ ..] => (headline.as_str(), more),
        [] => ("", &[][..]),
    };
    let code = failure.map(|failure| format!("({})", failure.code));
    let parts = code.as_deref().and_then(|code| {
        let (words, end) = headline.rsplit_once(code)?;
        Some((words, code, end))
    });
    html! {
        @if let Some((words, code, end)) = parts { (words) span.code { (code) } (end) } @else { (headline) }
        @for sentence in more { " " (sentence) }
    }
}

/// Timeline: the selected episode, or the latest one with a name.
fn life(content: &MachinePage<'_>) -> Markup {
    let named = |episode: &&Episode| episode.kind != BETWEEN;
    let chosen = match content.part.episode {
        Some(seq) => content.episodes.iter().find(|episode| episode.seq == seq),
        None => content
            .episodes
            .iter()
            .rev()
            .find(named)
            .or(content.episodes.last()),
    };
    html! {
        h2 #life { "Timeline" }
        nav.episodes aria-label="Episodes" { ul.chips {
            @for episode in content.episodes.iter().rev().take(EPISODES) {
                @let here = chosen.is_some_and(|chosen| chosen.seq == episode.seq);
                li { a.chip href=(format!("{}#life", query(&[("episode", Some(&episode.seq.to_string()))])))
                    aria-current=[here.then_some("true")] { (episode.kind) " " span.quiet { (moment(episode.from)) } } }
            }
        } }
        @if let Some(episode) = chosen {
            p.quiet { (episode_line(episode, content.now)) }
            (picture::picture(episode, content.now))
            (picture::legend())
        } @else { p.quiet { "This episode is no longer stored." } }
    }
}

fn moment(at: u64) -> String {
    clock(Timestamp(at))
}

fn episode_line(episode: &Episode, now: u64) -> String {
    let long = lasted(episode.from, episode.to.unwrap_or(now));
    let to = episode.to.map_or_else(|| "now".to_owned(), moment);
    format!(
        "{}, {} to {to}, {long}: {}.",
        episode.kind,
        moment(episode.from),
        episode.ending()
    )
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
            @if let Some(set) = set { div { dt { "MachineSet" } dd { (explain::numbers_text(set)) } } }
            @for (name, at) in moments(machine) {
                @if let Some(at) = at { div { dt { (name) } dd { time { (clock(at)) } } } }
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

/// Times with their labels.
fn moments(machine: &Machine) -> [(&'static str, Option<Moment>); 3] {
    [
        ("Created", machine.created),
        ("In this state since", Some(machine.status.since)),
        ("Ended", machine.status.closed),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::tests::machine_in;

    fn failed(code: &str, message: &str) -> Machine {
        Machine {
            failure: Some(PhaseFailure {
                code: code.into(),
                message: message.into(),
                phase: MachinePhase::Probing.into(),
                phase_text: MachinePhase::Probing.text().into(),
            }),
            ..machine_in(MachinePhase::Failed)
        }
    }

    /// The first paragraph of a machine's page.
    fn first_paragraph(machine: &Machine) -> String {
        let sentences = explain::situation(machine, None, None);
        situation(&sentences, machine.failure.as_ref()).into_string()
    }

    #[test]
    fn the_first_sentence_names_the_cause_in_words_and_sets_the_code_small() {
        let rejected = Machine {
            machine_phase: Some("Provisioned".into()),
            ..failed("AuthRejected", "the key is not accepted (<b>)")
        };
        assert_eq!(
            first_paragraph(&rejected),
            "win-a failed 5 minutes ago (07:00 UTC) while probing: the key is not accepted (&lt;b&gt;) \
             <span class=\"code\">(AuthRejected)</span>. Its Machine is in phase Provisioned."
        );
        let wordless = first_paragraph(&failed("NoAnswer", ""));
        assert!(wordless.ends_with("while probing: NoAnswer."), "{wordless}");
        let serving = first_paragraph(&machine_in(MachinePhase::Serving));
        assert_eq!(
            serving,
            "win-a has been Joined (serving) for 5 minutes, since 07:00 UTC."
        );
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
        assert_eq!(
            episode_line(&under_way, now),
            "bring-up, 2025-11-21 07:00:00 to now, 1m0s: under way."
        );
        let ended = Episode {
            to: Some(now),
            ..under_way
        };
        assert!(episode_line(&ended, now).ends_with("07:01:00, 1m0s: ended."));
    }
}
