//! A rollout's page: how far it is and how long is left, who holds the lease, who waits, what stops it, and its story.

use super::{
    Content, Snapshot,
    history::{self, Part},
    page::{bar, button, percent, state, texts, why, word},
};
use axum::extract::{Path, State as Of};
use dormer_api::{Api, ApiError, pages::Turn, reads, views};
use dormer_proto::work::rollout_run;
use dormer_views::moment::{lasted, rough};
use dormer_workflows::{
    State,
    actions::{PAUSE_POOL, RESUME_POOL},
};
use maud::{Markup, html};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// Turns that are drawn, the newest.
const TURNS: usize = 24;
/// The height of a row of the picture, in pixels.
const ROW: usize = 22;
/// A turn is late once it takes so many times what is usual.
const LATE: u64 = 3;
/// Machines that a list names.
const NAMED_MAX: usize = 60;

/// Reads what the page tells, and draws it.
pub(super) async fn read(
    api: &Arc<Api>,
    snapshot: &Snapshot,
    pool: &str,
    part: Part,
) -> Result<Content, ApiError> {
    let rollout = reads::rollout(Of(Arc::clone(api)), Path(pool.to_owned()))
        .await?
        .0;
    let run = rollout_run(pool).ok().and_then(|id| snapshot.run(&id));
    let run = run.ok_or_else(|| ApiError::absent("rollout", pool, "dormer get rollouts"))?;
    let turns = api.turns_of(&run.id).await?;
    let records = history::read(api, run, part).await?;
    let names = views::names(&snapshot.runs);
    let main = html! {
        h1 { "Rollout " (pool) }
        (status_section(&rollout))
        (progress(&rollout, snapshot, pool, &turns))
        (actions(&rollout, pool))
        (list("Who holds the lease", &rollout["slots"], &[("Token", "token"), ("Since", "since"), ("Waits for", "waitsFor")]))
        (list("Who waits for it", &rollout["queue"], &[("Place", "position"), ("Away already", "away")]))
        (list("Who counts as unavailable", &rollout["away"], &[("Why", "why")]))
        (list("Who is missing", &rollout["gaps"], &[("Of", "owner"), ("Since", "since"), ("Waits for", "waitsFor")]))
        (named("Not enrolled yet", &rollout["awaited"]))
        (named("Over the limit on members", &rollout["turnedAway"]))
        (turns_picture(&turns, &names, snapshot.now.0))
        (history::table(&records, run, part, Some(&format!("runs/{}", run.id.as_str()))))
    };
    Ok(Content {
        title: format!("Rollout {pool} is {}", word(&rollout, "state")),
        main,
    })
}

/// How many may be away at once.
pub(super) fn limit(rollout: &Value) -> String {
    rollout["maxUnavailable"]
        .as_u64()
        .map_or_else(|| "?".to_owned(), |max| max.to_string())
}

fn status_section(rollout: &Value) -> Markup {
    let number = |key: &str| rollout[key].as_u64().unwrap_or(0);
    html! {
        p.head {
            (state(word(rollout, "state"))) " "
            (number("joined")) " of " (number("members")) " joined, " (number("failed")) " failed, "
            (number("unavailable")) " of at most " (limit(rollout)) " unavailable"
        }
        @if let Some(what) = rollout["waitingFor"].as_str() { p { "The next grant waits for " (what) "." } }
        @if let Some(why) = rollout["halted"].as_str() { section.why.failed { p { (why) } } }
        @if let Some(why) = rollout["held"].as_str() { p { b { "No lease is granted: " (why) "." } } }
        @if let Some(who) = rollout["paused"].as_str() { p { b { "Paused by " (who) "." } } }
    }
}

/// How many carry what they should, and when the rest will.
fn progress(rollout: &Value, snapshot: &Snapshot, pool: &str, turns: &[Turn]) -> Markup {
    let mut right = 0;
    let mut other = 0;
    for run in snapshot.runs.iter().filter(|run| run.closed.is_none()) {
        let State::Machine(state) = &run.state else {
            continue;
        };
        let view = state.view();
        if view.pool == pool && view.desired_version.is_some() {
            if view.version == view.desired_version {
                right += 1
            } else {
                other += 1
            }
        }
    }
    let at_once = rollout["maxUnavailable"].as_u64().unwrap_or(1).max(1);
    let left = left(turns, other as u64, at_once, snapshot.now.0);
    html! {
        @if right + other > 0 {
            h2 { "How far it is" }
            (bar(&[("Joined", right), ("Draining", other)], right + other))
            p {
                (right) " of " (right + other) " carry what they should"
                @if let Some(payload) = rollout["payload"].as_str() { " (payload " code { (payload) } ")" }
                @if let Some(left) = left.filter(|_| other > 0) {
                    ". About " b { (rough(left / 1_000)) } " are left, if each takes as long as the last ones did"
                }
                "."
            }
            @if let Some((name, took, typical)) = late(rollout, turns, snapshot.now.0) {
                p.reason {
                    (name) " has had its turn for " (rough(took / 1_000)) ", and "
                    (rough(typical / 1_000)) " is usual: see what it waits for."
                }
            }
        }
    }
}

/// A turn that takes much longer than the past ones did: whose, how long, and what is usual, in milliseconds.
fn late<'a>(rollout: &'a Value, turns: &[Turn], now: u64) -> Option<(&'a str, u64, u64)> {
    let typical = typical(turns)?;
    let turn = turns.iter().find(|turn| turn.to.is_none())?;
    let took = now.saturating_sub(turn.from);
    let slot = rollout["slots"]
        .as_array()?
        .iter()
        .find(|slot| slot["token"] == turn.token)?;
    (took > LATE * typical).then(|| (word(slot, "name"), took, typical))
}

/// How long the middle one of the turns that have ended took, in milliseconds.
fn typical(turns: &[Turn]) -> Option<u64> {
    let mut took: Vec<u64> = turns
        .iter()
        .filter_map(|turn| turn.to.map(|to| to.saturating_sub(turn.from)))
        .collect();
    took.sort_unstable();
    took.get(took.len() / 2).copied()
}

/// How long it takes until `other` machines had their turns, in milliseconds: by the middle one of past turns, less
/// what those under way have taken already. `None`: no turn has ended yet.
fn left(turns: &[Turn], other: u64, at_once: u64, now: u64) -> Option<u64> {
    let typical = typical(turns)?;
    let gone: u64 = turns
        .iter()
        .filter(|turn| turn.to.is_none())
        .map(|turn| now.saturating_sub(turn.from).min(typical))
        .sum();
    Some((typical * other).saturating_sub(gone) / at_once)
}

fn actions(rollout: &Value, pool: &str) -> Markup {
    let paused = rollout["paused"].is_string();
    let action = if paused { &RESUME_POOL } else { &PAUSE_POOL };
    let path = format!("rollouts/{pool}/actions/{}", action.name);
    html! {
        div.actions role="group" aria-label="What may be asked" { (button(&path, action, pool, None)) (why()) }
    }
}

/// Machines and what is to be said of each; nothing, if there are none.
fn list(title: &str, of: &Value, fields: &[(&str, &str)]) -> Markup {
    let items = of.as_array().map_or(&[][..], Vec::as_slice);
    html! {
        @if !items.is_empty() {
            h2 { (title) @if items.len() > 1 { " (" (items.len()) ")" } }
            table {
                thead { tr { th { "Machine" } @for (name, _) in fields { th { (name) } } } }
                tbody {
                    @for item in items.iter().take(NAMED_MAX) {
                        tr data-key=(uid(item)) {
                            td data-label="Machine" { a href=(format!("/machines/{}", uid(item))) { (word(item, "name")) } }
                            @for (name, key) in fields { td data-label=(name) { (plain(&item[*key])) } }
                        }
                    }
                }
            }
            @if items.len() > NAMED_MAX { p.quiet { "and " (items.len() - NAMED_MAX) " more" } }
        }
    }
}

fn named(title: &str, list: &Value) -> Markup {
    let names: Vec<&str> = texts(list).collect();
    html! { @if !names.is_empty() { p.reason { (title) ": " (names.join(", ")) "." } } }
}

/// Each machine's turn with the lease, to scale.
fn turns_picture(turns: &[Turn], names: &BTreeMap<String, String>, now: u64) -> Markup {
    let shown = &turns[turns.len().saturating_sub(TURNS)..];
    let from = shown.iter().map(|turn| turn.from).min().unwrap_or(now);
    let to = shown
        .iter()
        .map(|turn| turn.to.unwrap_or(now))
        .max()
        .unwrap_or(now)
        .max(from + 1);
    let offset = |at: u64| at.saturating_sub(from) as f64 * 58.0 / (to - from) as f64;
    html! {
        @if !shown.is_empty() {
            h2 { "Turns with the lease, to scale" }
            div.wide tabindex="0" role="region" aria-label="Turns; it can be scrolled" {
                svg.timeline role="img" aria-label="Turns with the lease, to scale" width="100%" height=(shown.len() * ROW) {
                    @for (at, turn) in shown.iter().enumerate() {
                        @let end = turn.to.unwrap_or(now);
                        @let name = names.get(&turn.holder).unwrap_or(&turn.holder);
                        @let kind = if turn.to.is_some() { "good" } else { "busy" };
                        svg width="31%" height=((at + 1) * ROW) { text.label x="4" y=(at * ROW + 15) { (name) title { (name) } } }
                        rect data-kind=(kind) x=(percent(32.0 + offset(turn.from))) y=(at * ROW + 4)
                            width=(percent((offset(end) - offset(turn.from)).max(0.25))) height="14" rx="2" {
                            title { (name) ", token " (turn.token) ", " (lasted(turn.from, end)) }
                        }
                        text.long x="99.5%" y=(at * ROW + 15) text-anchor="end" { (lasted(turn.from, end)) }
                    }
                }
            }
        }
    }
}

fn uid(item: &Value) -> &str {
    item["uid"]
        .as_str()
        .or_else(|| item["holder"].as_str())
        .unwrap_or_default()
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(text)
            if text.len() > 19 && text.ends_with('Z') && text.as_bytes()[10] == b'T' =>
        {
            super::page::clock(text)
        }
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(token: u64, from: u64, to: Option<u64>) -> Turn {
        Turn {
            token,
            holder: format!("u{token}"),
            from,
            to,
        }
    }

    #[test]
    fn what_is_left_follows_from_what_was_taken() {
        let turns = [
            turn(1, 0, Some(100)),
            turn(2, 100, Some(220)),
            turn(3, 220, None),
        ];
        assert_eq!(
            left(&turns[2..], 4, 1, 250),
            None,
            "nobody has had a whole turn"
        );
        assert_eq!(left(&turns, 4, 1, 250), Some(4 * 120 - 30));
        assert_eq!(left(&turns, 4, 2, 250), Some(225));
        let rollout = serde_json::json!({"slots": [{"token": 3, "name": "win-3"}]});
        assert_eq!(late(&rollout, &turns, 220 + 360), None);
        assert_eq!(late(&rollout, &turns, 220 + 361), Some(("win-3", 361, 120)));
        assert_eq!(
            left(&turns, 1, 1, 9_999),
            Some(0),
            "it is late, and may end at any moment"
        );
    }
}
