//! The states of a machine as a diagram, with where it is: drawn for wide screens, a list for narrow ones.

use maud::{Markup, html};

/// The way of a machine.
const STATES: [&str; 6] = [
    "Provisioned",
    "Reachable",
    "Configured",
    "Joined",
    "Draining",
    "Recreated",
];
/// From one state to the next, and how large each is, in the picture's units.
const STEP: usize = 152;
const WIDE: usize = 116;
const HIGH: usize = 34;
/// The upper edge of the way, and of what lies beside it.
const TOP: usize = 32;
const BELOW: usize = 104;

/// Where it is; of a machine that failed also `from` which state.
pub(super) fn diagram(now: &str, from: Option<&str>) -> Markup {
    let here = STATES.iter().position(|name| *name == from.unwrap_or(now));
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
            // An upgrade that was given up, one in place, and the end.
            path.edge d=(arc(4, 3, TOP, -19)) {}
            path.edge d=(arc(5, 1, TOP + HIGH, 34)) {}
            path.edge d=(format!("M{} {} v{}", left(5) + 98, TOP + HIGH, BELOW - TOP - HIGH - 3)) {}
            text.note x=(left(3) + 134) y="10" text-anchor="middle" { "given up" }
            text.note x=(left(3) + WIDE / 2) y=(TOP + HIGH + 19) text-anchor="middle" { "in place" }
            @if let (Some(here), Some(_)) = (here, from) {
                path.edge.broken d=(format!("M{} {} v{}", left(here) + 20, TOP + HIGH, BELOW - TOP - HIGH - 3)) {}
            }
            @for (at, name) in STATES.iter().enumerate() {
                (spot(name, left(at), TOP, *name == now, here.is_some_and(|here| at < here)))
            }
            (spot("Failed", here.filter(|_| from.is_some()).map_or(left(0), left), BELOW, now == "Failed", false))
            (spot("Gone", left(5), BELOW, now == "Gone", false))
        }
        ol.path aria-label="The states of a machine" {
            @for (at, name) in STATES.iter().enumerate() {
                li.past[here.is_some_and(|here| at < here)] aria-current=[(*name == now).then_some("step")] { (name) }
            }
            @if !STATES.contains(&now) { li aria-current="step" data-state=(now) { (now) } }
        }
    }
}

fn left(at: usize) -> usize {
    4 + at * STEP
}

/// From the middle of one state to another's, along a bow of that height.
fn arc(from: usize, to: usize, y: usize, bow: i64) -> String {
    let x = left(from) + WIDE / 2 - 20;
    let end = left(to) + WIDE / 2 + 20;
    let far = y as i64 + bow;
    format!(
        "M{x} {y} C{x} {far} {end} {far} {end} {}",
        y as i64 + bow.signum() * 2
    )
}

fn spot(name: &str, x: usize, y: usize, here: bool, past: bool) -> Markup {
    html! {
        g.spot.here[here] .past[past] data-state=(name) {
            rect x=(x) y=(y) width=(WIDE) height=(HIGH) rx="8" {}
            text x=(x + WIDE / 2) y=(y + 22) text-anchor="middle" { (name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_state_is_where_it_is() {
        for now in STATES.into_iter().chain(["Failed", "Gone"]) {
            let drawn = diagram(now, (now == "Failed").then_some("Reachable")).into_string();
            assert_eq!(drawn.matches("spot here").count(), 1, "{now}: {drawn}");
            assert_eq!(drawn.matches("aria-current").count(), 1, "{now}: {drawn}");
        }
        let failed = diagram("Failed", Some("Configured")).into_string();
        assert!(failed.contains("It failed in Configured.") && failed.matches("past").count() == 4);
    }
}
