//! The word for a rollout's state, with what its machines say.

use super::{
    problem::{Urgency, problem},
    rollout_words::word_of,
};
use crate::{
    machine::Machine,
    rollout::{Rollout, Slot},
};

/// [`word_of`], with what its machines say: Stuck if every turn is that of a machine which needs a person, or if no turn goes on
/// and a machine that is not updated needs one.
pub fn word_among<'a, 'b>(
    rollout: &'a Rollout,
    machines: impl IntoIterator<Item = &'b Machine>,
) -> &'a str {
    let word = word_of(rollout);
    let is_stuck = |it: &&Machine| {
        it.pool == rollout.pool && problem(it).is_some_and(|it| it.urgency == Urgency::Stuck)
    };
    let stuck: Vec<&Machine> = machines.into_iter().filter(is_stuck).collect();
    let holds = |slot: &Slot| stuck.iter().any(|it| it.uid == slot.holder);
    let ends_never = match word {
        "Running" => rollout.slots.iter().all(holds),
        "Idle" => stuck.iter().any(|it| !it.is_updated()),
        _ => false,
    };
    if ends_never { "Stuck" } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::{failed_while, machine_in, rollout_with};
    use dormer_proto::phase::MachinePhase;
    use serde_json::json;

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
        let mut other = machine("x", true);
        other.pool = "another".into();
        assert_eq!(word(&idle, &[other]), "Idle");
    }
}
