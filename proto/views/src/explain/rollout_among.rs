//! The word for a rollout's state, and how long it still takes, with what its machines say.

use super::{
    problem::{Urgency, beneath, heals_by, is_on_purpose, problem, released},
    rollout_words::{seconds_of, word_of},
};
use crate::{
    machine::Machine,
    moment::span,
    rollout::{Rollout, Slot},
};

/// State of a rollout in a word, with what its machines say: in every command and on every page. It is Stuck if every
/// turn is that of a machine which needs a person, or if there is no turn, and a machine that is not updated needs one. A
/// hold or a pause of the machine does not hide that.
pub fn word_among<'a, 'b>(
    rollout: &'a Rollout,
    machines: impl IntoIterator<Item = &'b Machine>,
) -> &'a str {
    let word = word_of(rollout);
    let ours: Vec<&Machine> = machines
        .into_iter()
        .filter(|it| it.pool == rollout.pool)
        .collect();
    let holder = |slot: &Slot| ours.iter().find(|it| it.uid == slot.holder);
    let ends_never = match word {
        "Running" => rollout
            .slots
            .iter()
            .all(|slot| holder(slot).is_some_and(|it| needs_a_person(it))),
        "Idle" => ours.iter().any(|it| is_stuck(it) && !it.is_updated()),
        _ => false,
    };
    if ends_never { "Stuck" } else { word }
}

/// Seconds until the queue is empty and the last holder done, with what its machines say. `None`: not known, since nothing
/// is granted, or a holder does not continue by itself.
pub fn seconds_left<'a>(
    rollout: &Rollout,
    machines: impl IntoIterator<Item = &'a Machine>,
) -> Option<u64> {
    let is_holder = |it: &&Machine| rollout.slots.iter().any(|slot| slot.holder == it.uid);
    let ours = machines.into_iter().filter(|it| it.pool == rollout.pool);
    let mut holders = ours.filter(is_holder);
    let waits = holders.any(|holder| {
        // What a person wants for the time after the turn does not stop it.
        let released = released(holder).filter(|_| is_on_purpose(holder));
        let moving = released.as_ref().unwrap_or(holder);
        problem(moving).is_some() && heals_by(moving).is_none()
    });
    seconds_of(rollout).filter(|_| !waits)
}

/// How long the rollout still takes, for people: `~ 45m` while no turn has ended and its steps alone tell it.
pub fn time_left<'a>(
    rollout: &Rollout,
    machines: impl IntoIterator<Item = &'a Machine>,
) -> Option<String> {
    let left = span(seconds_left(rollout, machines)?);
    Some(match rollout.typical_turn_expected {
        true => format!("~ {left}"),
        false => left,
    })
}

/// Whether the machine is stuck, or would be without its halt.
fn is_stuck(machine: &Machine) -> bool {
    let stuck = |urgency| urgency == Urgency::Stuck;
    problem(machine).is_some_and(|it| stuck(it.urgency))
        || beneath(machine).is_some_and(|(urgency, _)| stuck(urgency))
}

/// Whether a machine that has the lease continues only with a person's help.
fn needs_a_person(machine: &Machine) -> bool {
    let halted = machine.halt.is_some() && !is_on_purpose(machine);
    halted || is_stuck(machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::{failed_while, halted_by, machine_in, rollout_with};
    use dormer_proto::phase::MachinePhase;
    use serde_json::json;

    /// A budget with no pod to spare never yields: the rollout that waits for that drain promises no end.
    #[test]
    fn no_time_is_promised_while_a_budget_keeps_a_holders_pods() {
        let mut holder = machine_in(MachinePhase::Evicting);
        holder.uid = "h".into();
        let slot = json!([{"token": 4, "holder": "h", "name": "win-h", "marked": false, "seq": 2,
            "since": "2026-11-21T07:05:00.000Z", "waitsFor": null}]);
        let fields = json!({"slots": slot, "unavailable": 1, "maxUnavailable": 1, "typicalTurnSeconds": 600,
            "typicalTurnExpected": true});
        let rollout = rollout_with(fields);
        assert_eq!(seconds_left(&rollout, [&holder]), Some(588));
        assert_eq!(time_left(&rollout, [&holder]).as_deref(), Some("~ 9m48s"));
        let drain = |budgets: &[&str]| {
            let blocker = json!({"pod": "shop/cart-7", "why": "no", "budgets": budgets});
            json!({"evicted": 0, "left": 1, "force": false, "blockers": [blocker]})
        };
        let held_up = |budgets: &[&str]| Machine {
            drain: serde_json::from_value(drain(budgets)).expect("a drain"),
            ..holder.clone()
        };
        assert_eq!(seconds_left(&rollout, [&held_up(&["cart"])]), None);
        assert!(
            seconds_left(&rollout, [&held_up(&[])]).is_some(),
            "its grace ends"
        );
        let failed = Machine {
            uid: "h".into(),
            ..failed_while(MachinePhase::Probing, "DiskFull", "full")
        };
        assert_eq!(seconds_left(&rollout, [&failed]), None);
        let mut elsewhere = held_up(&["cart"]);
        elsewhere.uid = "x".into();
        assert!(seconds_left(&rollout, [&elsewhere]).is_some(), "no holder");
    }

    #[test]
    fn a_rollout_whose_machines_need_a_person_is_stuck() {
        let machine = |uid: &str, stuck: bool| {
            let mut machine = match stuck {
                true => failed_while(MachinePhase::Probing, "DiskFull", "full"),
                false => machine_in(MachinePhase::Serving),
            };
            machine.uid = uid.into();
            machine
        };
        let slot = json!([{"token": 4, "holder": "h", "name": "win-h", "marked": false, "seq": 2,
            "since": "2026-11-21T07:00:12.000Z", "waitsFor": null}]);
        let running = rollout_with(json!({"slots": slot, "unavailable": 1}));
        let word =
            |rollout: &Rollout, machines: &[Machine]| word_among(rollout, machines).to_owned();
        assert_eq!(word(&running, &[machine("h", true)]), "Stuck");
        let beside = [machine("h", false), machine("x", true)];
        assert_eq!(word(&running, &beside), "Running", "its turn goes on");
        let idle = rollout_with(json!({}));
        assert_eq!(word(&idle, &beside), "Stuck");
        assert_eq!(word(&idle, &[machine("h", false)]), "Idle");
        let held = |it: Machine| Machine {
            halt: Some(halted_by("held", "ann: a look")),
            ..it
        };
        assert_eq!(word(&idle, &[held(machine("x", true))]), "Stuck");
        assert_eq!(word(&idle, &[held(machine("h", false))]), "Idle");
        let mut holder = held(machine("h", false));
        holder.token = Some(4);
        assert_eq!(
            word(&running, std::slice::from_ref(&holder)),
            "Running",
            "a hold does not stop a turn"
        );
        holder.halt = Some(halted_by("paused", "ann: a look"));
        assert_eq!(word(&running, &[holder]), "Stuck", "its turn waits for ann");
        let mut other = machine("x", true);
        other.pool = "another".into();
        assert_eq!(word(&idle, &[other]), "Idle");
    }
}
