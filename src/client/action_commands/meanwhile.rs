//! Warning before a machine is taken out of service: what else is out of service in its pool.

use super::{is_by, request::user};
use crate::{
    absent::listed,
    server::{Server, segment},
    terminal,
};
use dormer_proto::phase::Unavailable;
use dormer_views::{
    actions::{Action, DRAIN, Lease},
    machine::{HaltKind, Machine},
    rollout::Rollout,
};
use std::collections::BTreeSet;

/// Warns of people who keep a machine as it is, and of machines of the same pools that are out of service, before an action
/// that waits for the lease. Without a
/// right to read rollouts nothing is said.
pub(super) async fn warn(server: &Server, action: &Action, chosen: &[Machine]) {
    if action.lease != Lease::Waits || action.danger.is_none() {
        return;
    }
    for machine in chosen {
        if let Some(text) = halted(action, machine, &user()) {
            terminal::warn(text);
        }
    }
    let pools: BTreeSet<&str> = chosen.iter().map(|it| it.pool.as_str()).collect();
    let uids: Vec<&str> = chosen.iter().map(|it| it.uid.as_str()).collect();
    for pool in pools {
        let path = format!("/rollouts/{}", segment(pool));
        let Ok(rollout) = server.get::<Rollout>(&path).await else {
            continue;
        };
        if let Some(text) = text(&rollout, &uids) {
            terminal::warn(text);
        }
    }
}

/// Who keeps the machine as it is, and wants no upgrade of it. The action ends that; a drain sets a hold aside. Whether it is
/// `person`, the one who asks, needs no question.
fn halted(action: &Action, machine: &Machine, person: &str) -> Option<String> {
    let by_people = machine.halts().filter(|halt| halt.by.is_some());
    let all: Vec<&str> = by_people.map(|halt| halt.text.as_str()).collect();
    let is = |kind: HaltKind| machine.halts().any(|it| it.kind == kind && it.by.is_some());
    let paused = is(HaltKind::Paused);
    let held = is(HaltKind::Held);
    let does = match (paused, held) {
        (false, _) if action.name == DRAIN.name => "sets the hold aside until it is resumed",
        (true, true) => "ends the pause and the hold",
        (true, false) => "ends the pause",
        (false, _) => "ends the hold",
    };
    let mut others = machine.halts().filter(|halt| halt.by.is_some());
    let ask = match others.all(|halt| is_by(halt, person)) {
        true => "",
        false => ": ask them first",
    };
    (!all.is_empty()).then(|| {
        format!(
            "{}: {}. {} {does}{ask}",
            machine.name,
            all.join("; "),
            action.name
        )
    })
}

/// What else is out of service in a pool, and whether the action has to wait for it. `None`: nothing is.
fn text(rollout: &Rollout, chosen: &[&str]) -> Option<String> {
    let pool = &rollout.pool;
    let away = rollout.away.iter();
    let others = away.filter(|it| !chosen.contains(&it.uid.as_str()));
    let others: Vec<String> = others
        .map(|it| {
            let known = it.why.known().map(Unavailable::text);
            format!("{} {}", it.name, known.unwrap_or(it.why.id()))
        })
        .collect();
    let waits = if rollout.halted.is_some() {
        "its rollout is halted, and grants nothing until the failed machine is mended".to_owned()
    } else if let Some(by) = &rollout.paused {
        format!(
            "its rollout is paused by {by}, and grants nothing until dormer resume --pool {pool}"
        )
    } else {
        let allowed = rollout.max_unavailable.unwrap_or(1);
        if others.is_empty() {
            return None;
        }
        let away = u64::try_from(others.len()).unwrap_or(u64::MAX);
        match away < allowed {
            true => format!("{allowed} may be out of service at once, so this may begin now"),
            false => format!("{allowed} may be out of service at once, so this has to wait"),
        }
    };
    Some(match others.as_slice() {
        [] => format!("pool {pool}: {waits}"),
        others => format!("pool {pool}: {}; {waits}", listed(others)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{machine_with, rollout_with};
    use dormer_views::actions::RECREATE;
    use serde_json::{Value, json};

    #[test]
    fn a_hold_by_a_person_is_said_before_it_ends() {
        let held = json!({"halt": {"kind": "held", "by": "ann: memory dump", "text": "held by ann: memory dump"}});
        let held = machine_with(held);
        let said = |action: &Action, machine: &Machine| halted(action, machine, "ada");
        assert_eq!(
            said(&RECREATE, &held).as_deref(),
            Some("win-1: held by ann: memory dump. recreate ends the hold: ask them first")
        );
        assert_eq!(
            halted(&RECREATE, &held, "ann").as_deref(),
            Some("win-1: held by ann: memory dump. recreate ends the hold"),
            "she set it herself"
        );
        let held = json!({"halt": {"kind": "held", "by": "ann: memory dump", "text": "held by ann: memory dump"}});
        assert_eq!(
            said(&DRAIN, &machine_with(held)).as_deref(),
            Some(
                "win-1: held by ann: memory dump. drain sets the hold aside until it is resumed: ask them first"
            )
        );
        let paused = json!({"halt": {"kind": "paused", "by": "bob", "text": "paused by bob"},
            "alsoHalted": [{"kind": "held", "by": "ann", "text": "held by ann"}]});
        assert_eq!(
            said(&RECREATE, &machine_with(paused)).as_deref(),
            Some(
                "win-1: paused by bob; held by ann. recreate ends the pause and the hold: ask them first"
            )
        );
        let labelled = json!({"halt": {"kind": "ignored", "by": null, "text": "ignored"}});
        assert_eq!(said(&RECREATE, &machine_with(labelled)), None);
        assert_eq!(said(&RECREATE, &machine_with(json!({}))), None);
    }

    #[test]
    fn what_else_is_out_of_service_is_said_before_a_machine_is_replaced() {
        let said = |fields: Value| text(&rollout_with(fields), &["a"]);
        assert_eq!(said(json!({})), None);
        let failed = json!({"uid": "b", "name": "win-b", "why": "failed"});
        let own = json!({"uid": "a", "name": "win-a", "why": "down"});
        assert_eq!(
            said(json!({"away": [own.clone()]})),
            None,
            "its own trouble"
        );
        let away = json!([own, failed]);
        assert_eq!(
            said(json!({"away": away, "maxUnavailable": 1})).as_deref(),
            Some(
                "pool windows: win-b failed; 1 may be out of service at once, so this has to wait"
            )
        );
        let two = said(json!({"away": away, "maxUnavailable": 2})).unwrap_or_default();
        assert!(two.ends_with("so this may begin now"), "{two}");
        let halted = said(json!({"away": away, "halted": "win-b failed"})).unwrap_or_default();
        assert!(
            halted.contains("win-b failed; its rollout is halted"),
            "{halted}"
        );
        let paused = said(json!({"paused": "ann"})).unwrap_or_default();
        assert!(paused.ends_with("dormer resume --pool windows"), "{paused}");
    }
}
