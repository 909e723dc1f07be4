//! Page of a rollout: progress and remaining time, lease holders, queue, blockers, and history.

use super::{
    PageContent, Snapshot,
    history::{self, HistoryPart},
    page::{Section, Weight, bar, button, command, or_dash, percent, reaching, state, time, why},
    picture::{AXIS, axis},
};
use axum::extract::{Path, State as Of};
use dormer_api::{
    Api, ApiError, CommandFlags, reads,
    turns::{Turn, median_turn_ms},
    views,
};
use dormer_proto::{id::Timestamp, phase::Unavailable, work::rollout_run};
use dormer_views::{
    actions::{Action, END_ROLLBACK, PAUSE_POOL, RESUME_POOL},
    explain,
    machine::Machine,
    moment::{lasted, span},
    numbers::Numbers,
    open_enum::OpenEnum,
    problem,
    rollout::{LATE, Rollout, Slot},
};
use maud::{Markup, html};
use std::sync::Arc;

/// Most turns drawn, the newest.
const TURNS: usize = 24;
/// Height of a row of the picture, in pixels.
const ROW: usize = 22;
/// Most machines in a list.
const NAMED_MAX: usize = 60;

/// Reads the page's data and renders it.
pub(super) async fn read(
    api: &Arc<Api>,
    snapshot: &Snapshot,
    pool: &str,
    part: HistoryPart,
) -> Result<PageContent, ApiError> {
    let rollout = reads::rollout(Of(Arc::clone(api)), Path(pool.to_owned()))
        .await?
        .0;
    let run = rollout_run(pool).ok().and_then(|id| snapshot.run(&id));
    let run = run.ok_or_else(|| ApiError::absent("rollout", pool, "dormer get rollouts"))?;
    let turns = api.turns_of(&run.id).await?;
    let records = history::read(api, run, part).await?;
    let names = views::names(&snapshot.runs);
    let all = snapshot.machines(api.live());
    let word = problem::word_among(&rollout, &all);
    let main = html! {
        div.top { h1 { "Rollout " (pool) } (state(word)) }
        (status_section(&rollout, api.command_flags()))
        (progress(&rollout, &all, &turns, snapshot.now.0))
        (actions(&rollout, pool))
        (turns_picture(&turns, &names, snapshot.now.0))
        (machines(&rollout, &|uid| waits_of(snapshot, api, uid)))
        (named("Not enrolled yet", &rollout.awaited))
        (named("Beyond the limit of members", &rollout.turned_away))
        (history::table(&records, run, part, Some(&format!("runs/{}", run.id.as_str()))))
    };
    Ok(PageContent {
        title: format!("Rollout {pool} is {word}"),
        section: Section::Rollouts,
        main,
    })
}

/// Limit of unavailable machines.
pub(super) fn limit(rollout: &Rollout) -> String {
    let max = rollout.max_unavailable;
    max.map_or_else(|| "?".to_owned(), |max| max.to_string())
}

/// Obstacles to the next grant.
fn status_section(rollout: &Rollout, flags: Option<&CommandFlags>) -> Markup {
    html! {
        @if let Some(why) = &rollout.halted { p.note.bad { "Halted: " (why) } }
        @if let Some(why) = &rollout.held {
            p.note.amber {
                "No lease is granted: " (why) "."
                @if let Some(cure) = &rollout.held_cure { " " (cure) "." }
            }
        }
        @if let Some(who) = &rollout.paused { p.note.amber { "Paused by " (who) "." } }
        @if let Some(slot) = rollout.stopped_by() {
            p.note.amber {
                a href=(format!("/machines/{}", slot.holder)) { (slot.name) } " holds the lease, and was "
                (or_dash(slot.stopped.as_deref())) ": nothing else is granted. "
                @if let Some(line) = reaching(explain::to_continue(rollout), flags).and_then(|it| it.line()) {
                    "To end that: " (command(&line))
                }
            }
        }
        @if let Some(why) = &rollout.refused { p.note.amber { "The pool's last edit was refused: " (why) } }
        @if let Some(back) = &rollout.rollback { p.note { "Rollback: " (back) } }
        @if let Some(back) = &rollout.overridden {
            p.note {
                "It is rolled back: its machines get " (or_dash(rollout.payload.as_deref())) " instead of "
                (back.forward()) ". To go forward again: "
                @if let Some(line) = reaching(Some(explain::to_end_rollback(rollout)), flags).and_then(|it| it.line()) {
                    (command(&line))
                }
            }
        }
        // A pause is named above.
        @if let Some(what) = rollout.waiting_for.as_ref().filter(|_| rollout.paused.is_none()) {
            p.note {
                "The next grant waits for " (what) "."
                @if let Some(cure) = &rollout.waits_cure { " " (cure) "." }
            }
        }
    }
}

/// Progress: machines with the desired version, and an estimate for the rest. A rollout that stands still has none.
fn progress(rollout: &Rollout, all: &[Machine], turns: &[Turn], now: u64) -> Markup {
    let Numbers {
        machines,
        serving,
        updated,
        failed,
    } = Numbers::of_pool(all, &rollout.pool);
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let others = count(machines.saturating_sub(updated));
    let still = problem::stands_still(rollout).is_some();
    html! {
        section.card aria-labelledby="progress" {
            h2 #progress { "Progress" }
            @if machines > 0 {
                (bar("Machines that carry the desired version, to scale", &[("Joined", count(updated)), ("todo", others)],
                    count(machines)))
            }
            p {
                b { (updated) " of " (machines) } " updated"
                @if let Some(payload) = &rollout.payload { " to payload " code { (payload) } }
                ", " (serving) " of " (machines) " serve, "
                @if failed > 0 { (failed) " failed, " }
                (rollout.unavailable) " of at most " (limit(rollout)) " unavailable. "
                @if others > 0 && still { "There is no estimate, because the rollout is stopped. " }
                @else if let Some(left) = problem::seconds_left(rollout, all).filter(|_| others > 0) {
                    @if rollout.typical_turn_expected {
                        "Perhaps " b { (span(left)) } " remain, by the steps of other machines: no turn has ended yet. "
                    } @else {
                        "About " b { (span(left)) } " remain if each machine takes as long as the last ones. "
                    }
                }
                a href=(format!("/plan?pool={}", rollout.pool)) { "What would change" }
            }
            @if let Some((name, took, typical)) = late(&rollout.slots, turns, now) {
                p.amber {
                    a href=(format!("/machines/{name}")) { (name) } " has held the lease for " (span(took / 1_000)) "; "
                    (span(typical / 1_000)) " is usual. Its page says what it waits for."
                }
            }
        }
    }
}

/// Turn that takes much longer than past ones: the machine, the turn's duration and the usual one, in milliseconds.
fn late<'a>(slots: &'a [Slot], turns: &[Turn], now: u64) -> Option<(&'a str, u64, u64)> {
    let typical = median_turn_ms(turns)?;
    let turn = turns.iter().find(|turn| turn.to.is_none())?;
    let took = now.saturating_sub(turn.from);
    let slot = slots.iter().find(|slot| slot.token == turn.token)?;
    (took > LATE * typical).then_some((slot.name.as_str(), took, typical))
}

fn actions(rollout: &Rollout, pool: &str) -> Markup {
    let shown = |action: &Action, weight| {
        let path = format!("rollouts/{pool}/actions/{}", action.name);
        button(&path, action, pool, None, weight)
    };
    let paused = rollout.paused.is_some();
    html! {
        div.actions role="group" aria-label="Actions" data-key="actions" {
            @if paused || rollout.eroded { (shown(&RESUME_POOL, Weight::Primary)) }
            @if !paused { (shown(&PAUSE_POOL, Weight::Secondary)) }
            @if rollout.overridden.is_some() { (shown(&END_ROLLBACK, Weight::Secondary)) }
            (why())
        }
        @if rollout.eroded && !paused {
            p.quiet { "Resume if the MachineSet wants fewer machines for good: then nothing waits for the missing one." }
        }
    }
}

/// Machines that hold the lease, wait for it, count as unavailable, or are missing.
fn machines(rollout: &Rollout, waits: &dyn Fn(&str) -> Option<String>) -> Markup {
    let (vacant, holders): (Vec<&Slot>, Vec<&Slot>) =
        rollout.slots.iter().partition(|slot| slot.vacant);
    let queue = rollout.queue.iter().map(|waiting| MemberRow {
        uid: &waiting.uid,
        name: &waiting.name,
        cells: [
            html! { (waiting.position) },
            html! { (if waiting.away { "yes" } else { "no" }) },
        ],
    });
    let away = rollout.away.iter().map(|away| MemberRow {
        uid: &away.uid,
        name: &away.name,
        cells: [html! { (away_text(&away.why)) }],
    });
    let gaps = rollout.gaps.iter().map(|gap| MemberRow {
        uid: &gap.uid,
        name: &gap.name,
        cells: [
            html! { (or_dash(Some(&gap.owner))) },
            time(gap.since),
            html! { (gap.waits_for) },
        ],
    });
    html! {
        (slots(&holders, "Holders of the lease", waits))
        (slots(&vacant, "Gone, and the machine in its place is awaited", &|_| None))
        (list("Queue for the lease", ["Place", "Away already"], queue))
        (list("Unavailable machines", ["Why"], away))
        (list("Missing machines", ["Of", "Since", "Waits for"], gaps))
    }
}

/// What a machine waits for: its trouble if it has one, else the condition of its phase.
fn waits_of(snapshot: &Snapshot, api: &Api, uid: &str) -> Option<String> {
    let machines = snapshot.machines(api.live());
    let machine = machines.iter().find(|it| it.uid == uid)?;
    let trouble = problem::problem(machine).map(|it| it.cause);
    trouble.or_else(|| machine.waiting_for.clone())
}

/// List of slots of the lease. `waits`: what the machine with a UID waits for.
fn slots(slots: &[&Slot], title: &str, waits: &dyn Fn(&str) -> Option<String>) -> Markup {
    let rows = slots.iter().map(|slot| {
        let of_slot = slot.stopped.clone().or_else(|| slot.waits_for.clone());
        let waits = of_slot.or_else(|| waits(&slot.holder));
        MemberRow {
            uid: &slot.holder,
            name: &slot.name,
            cells: [
                html! { (slot.token) },
                time(slot.since),
                html! { (or_dash(waits.as_deref())) },
            ],
        }
    });
    list(title, ["Token", "Since", "Waits for"], rows)
}

/// Reason for which a machine counts as unavailable, in words. An id that only a newer dormer knows is shown as it is.
fn away_text(why: &OpenEnum<Unavailable>) -> &str {
    match why.known() {
        Some(why) => why.text(),
        None => why.id(),
    }
}

/// Row of a list: a machine, and a cell for each further column.
struct MemberRow<'a, const COLUMNS: usize> {
    uid: &'a str,
    name: &'a str,
    cells: [Markup; COLUMNS],
}

/// List of machines. Empty markup if there are none.
fn list<'a, const COLUMNS: usize>(
    title: &str,
    columns: [&str; COLUMNS],
    rows: impl ExactSizeIterator<Item = MemberRow<'a, COLUMNS>>,
) -> Markup {
    let count = rows.len();
    html! {
        @if count > 0 {
            section.card aria-label=(title) data-key=(title) {
            h2 { (title) @if count > 1 { " (" (count) ")" } }
            table {
                thead { tr { th { "Machine" } @for column in columns { th { (column) } } } }
                tbody {
                    @for row in rows.take(NAMED_MAX) {
                        tr data-key=(row.uid) {
                            td data-label="Machine" { a href=(format!("/machines/{}", row.uid)) { (row.name) } }
                            @for (column, cell) in columns.iter().zip(&row.cells) { td data-label=(column) { (cell) } }
                        }
                    }
                }
            }
            @if count > NAMED_MAX { p.quiet { "and " (count - NAMED_MAX) " more" } }
            }
        }
    }
}

fn named(title: &str, names: &[String]) -> Markup {
    html! { @if !names.is_empty() { p.note.amber { (title) ": " (names.join(", ")) "." } } }
}

/// Most characters of a label beside a bar on a narrow screen.
const LABEL_MAX: usize = 14;

/// Names as labels on a narrow screen: of long ones the ends, in which they differ. A label that is cut at its end would be
/// the same for all.
fn ends(names: &[String]) -> Vec<String> {
    let end = |name: &String| {
        let over = name.chars().count().saturating_sub(LABEL_MAX);
        match name.char_indices().nth(over + 1) {
            Some((at, _)) if over > 0 => format!("…{}", &name[at..]),
            _ => name.clone(),
        }
    };
    names.iter().map(end).collect()
}

/// Turns with the lease, to scale.
fn turns_picture(turns: &[Turn], names: &views::KnownMachines, now: u64) -> Markup {
    let shown = &turns[turns.len().saturating_sub(TURNS)..];
    let from = shown.iter().map(|turn| turn.from).min().unwrap_or(now);
    let to = shown
        .iter()
        .map(|turn| turn.to.unwrap_or(now))
        .max()
        .unwrap_or(now)
        .max(from + 1);
    let offset = |at: u64| at.saturating_sub(from) as f64 * 100.0 / (to - from) as f64;
    let height = AXIS + shown.len() * ROW;
    let name = |turn: &Turn| names.get(&turn.holder).unwrap_or(&turn.holder).clone();
    let labels = ends(&shown.iter().map(name).collect::<Vec<_>>());
    html! {
        @if !shown.is_empty() {
            section.card aria-labelledby="turns" {
                h2 #turns { "Turns with the lease, to scale" }
                p.quiet { "From " (time(Timestamp(from))) " to " (time(Timestamp(to))) "." }
                div.wide tabindex="0" role="region" aria-label="Turns, scrollable" {
                    svg.timeline.turns role="img" aria-label="Turns with the lease, to scale" width="100%" height=(height) {
                        svg x="31%" width="58%" height=(height) overflow="visible" {
                            (axis(from, to, height))
                            @for (at, turn) in shown.iter().enumerate() {
                                @let end = turn.to.unwrap_or(now);
                                @let kind = match turn.to {
                                    None => "busy",
                                    Some(_) if turn.given_up => "wait",
                                    Some(_) => "good",
                                };
                                rect data-kind=(kind) x=(percent(offset(turn.from))) y=(AXIS + at * ROW + 4)
                                    width=(percent((offset(end) - offset(turn.from)).max(0.25))) height="14" rx="2" {
                                    title {
                                        (name(turn)) ", token " (turn.token) ", "
                                        (lasted(turn.from, end))
                                    }
                                }
                            }
                        }
                        @for (at, turn) in shown.iter().enumerate() {
                            @let end = turn.to.unwrap_or(now);
                            svg width="30%" height=(AXIS + (at + 1) * ROW) {
                                text.label.whole x="4" y=(AXIS + at * ROW + 15) { (name(turn)) title { (name(turn)) } }
                                text.label.end x="4" y=(AXIS + at * ROW + 15) { (labels[at]) title { (name(turn)) } }
                            }
                            text.long x="99.5%" y=(AXIS + at * ROW + 15) text-anchor="end" {
                                (lasted(turn.from, end))
                                @if turn.to.is_none() { tspan.whole { ", holds it" } } @else if turn.given_up { ", given up" }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(token: u64, name: &str) -> Slot {
        Slot {
            token,
            holder: format!("u{token}"),
            name: name.into(),
            marked: false,
            seq: 1,
            since: Timestamp(1_763_708_400_000).into(),
            waits_for: None,
            candidates: Vec::new(),
            vacant: false,
            stopped: None,
        }
    }

    #[test]
    fn a_list_names_its_columns_and_counts_what_it_leaves_out() {
        let slots: Vec<Slot> = (0..61).map(|token| slot(token, "win")).collect();
        let rows = slots.iter().map(|slot| MemberRow {
            uid: &slot.holder,
            name: &slot.name,
            cells: [html! { (slot.token) }, time(slot.since)],
        });
        let shown = list("Who", ["Token", "Since"], rows).into_string();
        for expected in [
            "<h2>Who (61)</h2>",
            "<th>Machine</th><th>Token</th><th>Since</th>",
            "<tr data-key=\"u7\">",
            "<a href=\"/machines/u7\">win</a>",
            ">2025-11-21 07:00:00</time></td>",
            "and 1 more",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        assert_eq!(list("Who", [""], std::iter::empty()).into_string(), "");
    }

    #[test]
    fn why_a_machine_counts_as_unavailable_is_said_in_words() {
        let away_for = |why| away_text(&why).to_owned();
        assert_eq!(
            away_for(OpenEnum::Known(Unavailable::OpenToken)),
            "carries an open token"
        );
        assert_eq!(
            away_for(OpenEnum::Known(Unavailable::Cordoned)),
            "is cordoned by another client"
        );
        assert_eq!(away_for(OpenEnum::Newer("asleep".into())), "asleep");
    }

    fn turn(token: u64, from: u64, to: Option<u64>) -> Turn {
        Turn {
            token,
            holder: format!("u{token}"),
            from,
            to,
            given_up: false,
        }
    }

    #[test]
    fn a_long_name_beside_a_bar_keeps_its_end() {
        let names = ["demo-x7k2p-windows-worker-us-east-1a-9dg4j", "win-1"].map(str::to_owned);
        assert_eq!(ends(&names), ["…east-1a-9dg4j".to_owned(), "win-1".into()]);
    }

    #[test]
    fn a_turn_that_was_given_up_is_no_success() {
        let turns = [
            turn(1, 0, Some(100)),
            Turn {
                given_up: true,
                ..turn(2, 100, Some(220))
            },
            turn(3, 220, None),
        ];
        let drawn = turns_picture(&turns, &views::KnownMachines::default(), 300);
        let drawn = drawn.into_string();
        let kinds = ["good", "wait", "busy"]
            .map(|it| drawn.matches(&format!("data-kind=\"{it}\"")).count());
        assert_eq!(kinds, [1, 1, 1], "{drawn}");
        assert!(drawn.contains("120ms, given up"), "{drawn}");
    }

    #[test]
    fn a_rollout_that_waits_for_a_set_to_grow_again_may_be_resumed() {
        let rollout = |paused: Option<&str>, eroded: bool| {
            let rollout = serde_json::json!({
                "pool": "windows", "state": "Open", "members": 3, "joined": 2, "failed": 0, "unavailable": 1,
                "manualApproval": false, "token": 4, "away": [], "queue": [], "slots": [], "gaps": [], "awaited": [],
                "turnedAway": [], "machineSets": [], "run": "rollout/windows", "seq": 9, "enteredSeq": 7,
                "began": "2026-11-21T06:00:00.000Z", "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 61,
                "paused": paused, "eroded": eroded,
            });
            let rollout = serde_json::from_value(rollout).expect("a rollout");
            let shown = actions(&rollout, "windows").into_string();
            ["pause", "resume"].map(|it| shown.contains(&format!("windows/actions/{it}\"")))
        };
        assert_eq!(rollout(None, false), [true, false]);
        assert_eq!(rollout(Some("ann"), false), [false, true]);
        assert_eq!(rollout(None, true), [true, true]);
    }

    #[test]
    fn a_pause_is_said_once() {
        use crate::rollouts::tests::rollout_with;
        let mut rollout = rollout_with("paused", "ann: a look");
        rollout.waiting_for = Some("a resume: paused by ann: a look".into());
        let status = status_section(&rollout, None).into_string();
        assert_eq!(status.matches("ann: a look").count(), 1, "{status}");
        rollout.paused = None;
        let status = status_section(&rollout, None).into_string();
        assert!(
            status.contains("The next grant waits for a resume"),
            "{status}"
        );
    }

    #[test]
    fn a_rollout_that_is_rolled_back_can_go_forward_again() {
        use crate::rollouts::tests::rollout_with;
        let shown = |overridden: serde_json::Value| {
            let mut rollout = rollout_with("payload", "11.0.0");
            rollout.overridden = serde_json::from_value(overridden).expect("an override");
            let status = status_section(&rollout, None).into_string();
            (status, actions(&rollout, "windows").into_string())
        };
        let (status, buttons) = shown(serde_json::json!({"specPayload": "11.1.0", "by": "ann"}));
        assert!(status.contains("instead of 11.1.0"), "{status}");
        assert!(
            status.contains("dormer rollback --pool windows --end"),
            "{status}"
        );
        assert!(
            buttons.contains("windows/actions/end-rollback\""),
            "{buttons}"
        );
        let (status, buttons) = shown(serde_json::Value::Null);
        assert!(!status.contains("--end") && !buttons.contains("end-rollback"));
    }

    #[test]
    fn a_holder_is_shown_with_what_it_waits_for() {
        let slot = |waits: Option<&str>| -> Slot {
            serde_json::from_value(
                serde_json::json!({"token": 5, "holder": "u", "name": "win-a", "marked": false,
                "seq": 7, "since": "2026-11-21T07:00:30.000Z", "waitsFor": waits}),
            )
            .expect("a slot")
        };
        let waits = |uid: &str| (uid == "u").then(|| "a budget holds up its drain".to_owned());
        let shown = |slot: &Slot| slots(&[slot], "Holders of the lease", &waits).into_string();
        let own = shown(&slot(None));
        assert!(own.contains("a budget holds up its drain"), "{own}");
        let gone = shown(&slot(Some("its replacement")));
        assert!(
            gone.contains("its replacement") && !gone.contains("budget"),
            "{gone}"
        );
    }

    #[test]
    fn a_turn_that_takes_three_times_as_long_as_usual_is_late() {
        let turns = [
            turn(1, 0, Some(100)),
            turn(2, 100, Some(220)),
            turn(3, 220, None),
        ];
        assert_eq!(
            median_turn_ms(&turns[2..]),
            None,
            "nobody has had a whole turn"
        );
        let slots = [slot(3, "win-3")];
        assert_eq!(late(&slots, &turns, 220 + 360), None);
        assert_eq!(late(&slots, &turns, 220 + 361), Some(("win-3", 361, 120)));
    }
}
