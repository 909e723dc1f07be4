//! Diagram of a machine's states with its present one: a drawing on wide screens, a list on narrow ones.

use dormer_proto::phase::{Listed, MachineState};
use dormer_views::open_enum::OpenEnum;
use maud::{Markup, html};

/// States of a machine in their order.
const STATES: [MachineState; 6] = [
    MachineState::Provisioned,
    MachineState::Reachable,
    MachineState::Configured,
    MachineState::Joined,
    MachineState::Draining,
    MachineState::Recreated,
];
/// Distance between states, and their size, in the picture's units.
const STEP: usize = 152;
const WIDE: usize = 116;
const HIGH: usize = 34;
/// Upper edges of the main row, and of the states below it.
const TOP: usize = 32;
const BELOW: usize = 104;

/// Diagram with the present state `now`. For a machine that failed, `from` is the state in which it failed.
pub(super) fn diagram(now: &OpenEnum<MachineState>, from: Option<MachineState>) -> Markup {
    let reached = from.or(now.known());
    let here = STATES.iter().position(|state| Some(*state) == reached);
    let title = match from {
        Some(from) => format!("It failed in {from}."),
        None => format!("It is {now}."),
    };
    html! {
        svg.diagram role="img" aria-label=(format!("The states of a machine. {title}")) viewBox="0 0 884 142" {
            defs {
                marker #tip viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto" {
                    path d="M0 0 8 4 0 8z" {}
                }
            }
            @for at in 0..STATES.len() - 1 {
                path.edge d=(format!("M{} {} h{}", left(at) + WIDE, TOP + HIGH / 2, STEP - WIDE - 3)) {}
            }
            // Edges of an aborted upgrade, of an upgrade in place, and of the end.
            path.edge d=(arc(4, 3, TOP, -19)) {}
            path.edge d=(arc(5, 1, TOP + HIGH, 34)) {}
            path.edge d=(format!("M{} {} v{}", left(5) + 98, TOP + HIGH, BELOW - TOP - HIGH - 3)) {}
            text.note x=(left(3) + 134) y="10" text-anchor="middle" { "aborted" }
            text.note x=(left(3) + WIDE / 2) y=(TOP + HIGH + 19) text-anchor="middle" { "in place" }
            @if let (Some(here), Some(_)) = (here, from) {
                path.edge.broken d=(format!("M{} {} v{}", left(here) + 20, TOP + HIGH, BELOW - TOP - HIGH - 3)) {}
            }
            @for (at, state) in STATES.into_iter().enumerate() {
                (spot(state, left(at), TOP, *now == state, here.is_some_and(|here| at < here)))
            }
            @let failed_at = here.filter(|_| from.is_some()).map_or(left(0), left);
            (spot(MachineState::Failed, failed_at, BELOW, *now == MachineState::Failed, false))
            (spot(MachineState::Gone, left(5), BELOW, *now == MachineState::Gone, false))
        }
        ol.path aria-label="The states of a machine" {
            @for (at, state) in STATES.into_iter().enumerate() {
                li.past[here.is_some_and(|here| at < here)] aria-current=[(*now == state).then_some("step")] {
                    (state.id())
                }
            }
            @if !STATES.iter().any(|state| *now == *state) {
                li aria-current="step" data-state=(now.id()) { (now.id()) }
            }
        }
    }
}

fn left(at: usize) -> usize {
    4 + at * STEP
}

/// Curve from the middle of one state to the middle of another; `bow` is its height.
fn arc(from: usize, to: usize, y: usize, bow: i64) -> String {
    let x = left(from) + WIDE / 2 - 20;
    let end = left(to) + WIDE / 2 + 20;
    let far = y as i64 + bow;
    format!(
        "M{x} {y} C{x} {far} {end} {far} {end} {}",
        y as i64 + bow.signum() * 2
    )
}

fn spot(state: MachineState, x: usize, y: usize, here: bool, past: bool) -> Markup {
    html! {
        g.spot.here[here] .past[past] data-state=(state.id()) {
            rect x=(x) y=(y) width=(WIDE) height=(HIGH) rx="8" {}
            text x=(x + WIDE / 2) y=(y + 22) text-anchor="middle" { (state.id()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_state_is_where_it_is() {
        for now in MachineState::ALL.iter().copied() {
            let from = (now == MachineState::Failed).then_some(MachineState::Reachable);
            let drawn = diagram(&now.into(), from).into_string();
            assert_eq!(drawn.matches("spot here").count(), 1, "{now}: {drawn}");
            assert_eq!(drawn.matches("aria-current").count(), 1, "{now}: {drawn}");
        }
        let failed = diagram(&MachineState::Failed.into(), Some(MachineState::Configured));
        let failed = failed.into_string();
        assert!(failed.contains("It failed in Configured.") && failed.matches("past").count() == 4);
        let newer = diagram(&OpenEnum::Newer("Hibernating".into()), None).into_string();
        assert!(newer.contains("data-state=\"Hibernating\"") && !newer.contains("spot here"));
    }
}
