//! A machine's page: where it stands and why, what may be done, its life as a picture, and what happened.

use super::{
    Content, Snapshot, commands,
    diagram::diagram,
    history::{self, Part},
    page::{busy, button, clock, query, since, state, version, why, word},
    picture,
};
use axum::extract::{Path, State as Of};
use dormer_api::{Api, ApiError, SharedRun, reads, views};
use dormer_proto::{
    id::Timestamp,
    message::RemoteCommand,
    work::{machine_run, rollout_run},
};
use dormer_views::{
    explain as reason,
    moment::{lasted, time},
    timeline::Episode,
};
use dormer_workflows::{
    State,
    actions::{ACTIONS, Action, ActionTarget},
    machine::Phase,
};
use maud::{Markup, html};
use serde_json::Value;
use std::sync::Arc;

/// Fields worth a line, with what they are called.
const FIELDS: [(&str, &str); 9] = [
    ("Node", "node"),
    ("Address", "address"),
    ("Pool", "pool"),
    ("Owner", "owner"),
    ("Machine's phase", "machinePhase"),
    ("Machine's error", "machineError"),
    ("Namespace", "namespace"),
    ("UID", "uid"),
    ("Run", "run"),
];
/// Moments worth a line.
const MOMENTS: [(&str, &str); 3] = [
    ("Created", "created"),
    ("In this state since", "since"),
    ("Ended", "closed"),
];
/// Episodes that are named as links, the newest.
const EPISODES: usize = 12;

/// What the page tells.
struct MachinePage<'a> {
    machine: &'a Value,
    run: &'a SharedRun,
    rollout: Option<&'a Value>,
    why: String,
    next: String,
    records: Vec<Value>,
    episodes: Vec<Episode>,
    commands: Vec<RemoteCommand>,
    now: u64,
    part: Part,
}

/// Reads what the page tells, and draws it.
pub(super) async fn read(
    api: &Arc<Api>,
    snapshot: &Snapshot,
    called: &str,
    part: Part,
) -> Result<Content, ApiError> {
    let machine = reads::machine(Of(Arc::clone(api)), Path(called.to_owned()))
        .await?
        .0;
    let uid = word(&machine, "uid");
    let run = machine_run(uid).ok().and_then(|id| snapshot.run(&id));
    let run = run.ok_or_else(|| ApiError::absent("machine", called, "dormer get machines"))?;
    let records = history::read(api, run, part).await?;
    let (episodes, now) = api.timeline_of(&run.id).await?;
    let commands = api.live().commands(&run.id);
    let rollout = rollout_of(&machine, snapshot);
    let from = run.seq.0.saturating_sub(reason::RECORDS_BACK).max(1);
    let latest = api
        .part_of(&run.id, from, reason::RECORDS_BACK as usize + 1)
        .await?;
    let last = reason::failure_in(super::items(&latest), &machine);
    let why = reason::paragraph(&machine, last.as_deref(), rollout.as_ref());
    let next = reason::next_step(&machine, rollout.as_ref());
    let why = why
        .strip_suffix(&next)
        .unwrap_or(&why)
        .trim_end()
        .to_owned();
    let content = MachinePage {
        machine: &machine,
        run,
        rollout: rollout.as_ref(),
        why,
        next,
        records,
        episodes,
        commands,
        now,
        part,
    };
    Ok(Content {
        title: format!("{} is {}", word(&machine, "name"), word(&machine, "state")),
        main: page(&content),
    })
}

/// The rollout of the machine's pool.
fn rollout_of(machine: &Value, snapshot: &Snapshot) -> Option<Value> {
    let pool = machine["pool"].as_str()?;
    let run = snapshot.run(&rollout_run(pool).ok()?)?;
    views::rollout(run, &views::names(&snapshot.runs), snapshot.now)
}

fn page(content: &MachinePage<'_>) -> Markup {
    let machine = content.machine;
    let phase = word(machine, "phase");
    let bad = machine["state"] == "Failed" || machine["machinePhase"] == "Failed";
    html! {
        h1 { (word(machine, "name")) }
        p.head {
            (state(word(machine, "state"))) " "
            @if !phase.eq_ignore_ascii_case(word(machine, "state")) { span.phase { (phase) } " " }
            "for " (since(machine))
        }
        section.why.failed[bad] aria-label="Why it is where it is" {
            p { (content.why) }
            p.next { b { "Next: " } (content.next) }
        }
        @for task in machine["tasks"].as_array().into_iter().flatten() { (busy(task)) }
        @if machine["closed"].is_null() { (actions(machine)) }
        (diagram(word(machine, "state"), failed_in(content.run)))
        (life(content))
        (commands::section(machine, &content.commands, &content.episodes))
        h2 { "What is known" }
        (known(machine, content.rollout))
        (history::table(&content.records, content.run, content.part, Some(&format!("runs/{}", content.run.id.as_str()))))
    }
}

/// The state in which it failed.
fn failed_in(run: &SharedRun) -> Option<&'static str> {
    match &run.state {
        State::Machine(state) => match &state.phase {
            Phase::Failed { from, .. } => Some(from.label()),
            _ => None,
        },
        _ => None,
    }
}

/// What may be asked of it where it is.
fn actions(machine: &Value) -> Markup {
    let path = format!("machines/{}/actions", word(machine, "uid"));
    html! {
        div.actions role="group" aria-label="What may be asked" {
            @for action in ACTIONS.iter().filter(|action| fits(action, machine)) {
                (button(&format!("{path}/{}", action.name), action, word(machine, "name"), against(action, machine)))
            }
            (why())
        }
    }
}

/// Whether it does something now. What would change nothing is no button.
fn fits(action: &Action, machine: &Value) -> bool {
    let state = word(machine, "state");
    let phase = word(machine, "phase");
    let halted = machine["halted"].is_string() || phase == "drained";
    let here = action.on == ActionTarget::Machine
        && (action.from.is_empty() || action.from.contains(&state));
    here && match action.name {
        "approve" => phase == "waiting for approval",
        "abort" => machine["token"].is_u64(),
        "resume" => halted,
        "pause" | "hold" => !halted,
        "remove" => machine["token"].is_null(),
        _ => true,
    }
}

/// What answers a state is meant for that state; stopping a machine is meant wherever it is.
fn against(action: &Action, machine: &Value) -> Option<u64> {
    let anywhere = ["pause", "resume", "hold"].contains(&action.name);
    machine["enteredSeq"].as_u64().filter(|_| !anywhere)
}

/// Its life: the episode that is chosen, or the latest that has a name.
fn life(content: &MachinePage<'_>) -> Markup {
    let named = |episode: &&Episode| episode.kind != "serving";
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
        h2 #life { "Its life" }
        nav.episodes aria-label="Episodes" { ul.chips {
            @for episode in content.episodes.iter().rev().take(EPISODES) {
                @let here = chosen.is_some_and(|chosen| chosen.seq == episode.seq);
                li { a.chip href=(format!("{}#life", query(&[("episode", Some(&episode.seq.to_string()))])))
                    aria-current=[here.then_some("true")] { (episode.kind) " " span.quiet { (moment(episode.from)) } } }
            }
        } }
        @if let Some(episode) = chosen {
            p.quiet { (headline(episode, content.now)) }
            (picture::picture(episode, content.now))
            (picture::legend())
        } @else { p.quiet { "No such episode is kept." } }
    }
}

fn moment(at: u64) -> String {
    clock(&time(Timestamp(at)))
}

fn headline(episode: &Episode, now: u64) -> String {
    let long = lasted(episode.from, episode.to.unwrap_or(now));
    let how = match (episode.to, episode.result.as_str()) {
        (None, _) => "it goes on",
        (Some(_), "") => "it ended",
        (Some(_), result) => result,
    };
    let to = episode.to.map_or_else(|| "now".to_owned(), moment);
    format!(
        "{}, {} to {to}, {long}: {how}.",
        episode.kind,
        moment(episode.from)
    )
}

fn known(machine: &Value, rollout: Option<&Value>) -> Markup {
    let set = rollout.and_then(|rollout| reason::machine_set(machine, rollout));
    html! {
        dl {
            div { dt { "Version" } dd { (version(machine)) } }
            @for (name, key) in FIELDS.into_iter().filter(|(_, key)| machine[*key].is_string()) {
                div { dt { (name) } dd { (word(machine, key)) } }
            }
            @for condition in machine["machineConditions"].as_array().into_iter().flatten() {
                div { dt { "Machine's condition" } dd { (reason::condition_text(condition)) } }
            }
            @if let Some(set) = set { div { dt { "MachineSet" } dd { (reason::numbers_text(set)) } } }
            @for (name, key) in MOMENTS.into_iter().filter(|(_, key)| machine[*key].is_string()) {
                div { dt { (name) } dd { time { (clock(word(machine, key))) } } }
            }
            @if let Some(token) = machine["token"].as_u64() { div { dt { "Lease" } dd { "token " (token) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn offered(machine: &Value) -> Vec<&'static str> {
        ACTIONS
            .iter()
            .filter(|action| fits(action, machine))
            .map(|action| action.name)
            .collect()
    }

    #[test]
    fn only_what_does_something_is_a_button() {
        let failed = json!({"state": "Failed", "phase": "failed", "enteredSeq": 7});
        assert_eq!(
            offered(&failed),
            ["retry", "pause", "hold", "drain", "recreate", "remove"]
        );
        let paused = json!({"state": "Joined", "phase": "serving", "halted": "paused by ann"});
        assert_eq!(offered(&paused), ["resume", "drain", "recreate", "remove"]);
        let draining = json!({"state": "Draining", "phase": "evicting", "token": 4});
        assert_eq!(
            offered(&draining),
            ["pause", "hold", "drain", "recreate", "abort"]
        );
        let waits = json!({"state": "Joined", "phase": "waiting for approval"});
        assert!(offered(&waits).contains(&"approve"));
        let by = |name: &str| {
            against(
                dormer_workflows::actions::action(ActionTarget::Machine, name).unwrap(),
                &failed,
            )
        };
        assert_eq!(
            (by("retry"), by("recreate"), by("pause")),
            (Some(7), Some(7), None)
        );
    }
}
