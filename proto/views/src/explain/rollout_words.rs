//! The one word for a rollout's state, and how long it still takes.

use crate::rollout::{LATE, Rollout, Slot};
use dormer_proto::phase::RolloutState;

/// All words of `word_among`.
pub const ROLLOUT_WORDS: [&str; 8] = [
    "Idle",
    "Running",
    "Waiting",
    "Stopped",
    "Stuck",
    "Enrolling",
    "Paused",
    "Halted",
];

/// State of a rollout in a word, without what its machines say: only for `word_among`, which decides. While it grants leases:
/// Stopped, Running, Waiting, or Idle if no machine waits.
pub(super) fn word_of(rollout: &Rollout) -> &str {
    let open = rollout.state == RolloutState::Open;
    match () {
        () if !open => rollout.state.id(),
        () if stands_still(rollout).is_some() => "Stopped",
        () if rollout.slots.iter().any(|slot| slot.stopped.is_none()) => "Running",
        () if !rollout.queue.is_empty() => "Waiting",
        () => "Idle",
    }
}

/// Sentence about a rollout that grants nothing although machines wait. `None`: it grants, or no machine waits.
pub fn stands_still(rollout: &Rollout) -> Option<String> {
    if let Some(found) = &rollout.status.quarantine {
        return Some(format!(
            "quarantined ({}), and grants nothing: {}",
            found.code, found.why
        ));
    }
    if let Some(why) = &rollout.halted {
        return Some(format!("halted: {why}"));
    }
    if let Some(why) = &rollout.held {
        return Some(format!("no lease is granted: {why}"));
    }
    if let Some(by) = &rollout.paused {
        return Some(format!("paused by {by}"));
    }
    if let Some(slot) = rollout.stopped_by() {
        let name = &slot.name;
        let how = slot.stopped.as_deref().unwrap_or_default();
        return Some(format!(
            "{name} holds the lease, and was {how}: nothing else is granted"
        ));
    }
    let eroded = rollout.eroded && rollout.waiting_for.is_some();
    eroded.then(|| "waits for a Machine that its MachineSet no longer wants".to_owned())
}

/// Seconds until the queue is empty and the last holder done: as many turns as wait and continue, each as long as usual, less
/// what the holders have taken. It knows nothing of the machines: `rollout_among::seconds_left` adds that. `None`: nothing
/// waits, nothing is granted now, a turn is late, or no turn has ended yet.
pub(super) fn seconds_of(rollout: &Rollout) -> Option<u64> {
    let typical = rollout.typical_turn_seconds?;
    let turns = (rollout.queue.len() + rollout.slots.len()) as u64;
    if turns == 0 || stands_still(rollout).is_some() {
        return None;
    }
    let now = rollout.status.since.0.0 / 1_000 + rollout.status.since_seconds;
    let taken = |slot: &Slot| now.saturating_sub(slot.since.0.0 / 1_000);
    if rollout.slots.iter().any(|it| taken(it) > LATE * typical) {
        return None;
    }
    let gone: u64 = rollout.slots.iter().map(|it| taken(it).min(typical)).sum();
    let beside = rollout.max_unavailable.unwrap_or(1).max(1);
    Some((typical * turns).saturating_sub(gone).div_ceil(beside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::{machine_in, rollout_with};
    use dormer_proto::phase::MachinePhase;
    use serde_json::{Value, json};

    #[test]
    fn a_holder_that_a_person_stopped_stops_its_rollout() {
        let slot = json!([{"token": 4, "holder": "h", "name": "win-h", "marked": false, "seq": 2,
            "since": "2026-11-21T07:00:12.000Z", "waitsFor": null, "stopped": "drained by ann (a new kernel)"}]);
        let rollout = |max: u64| {
            rollout_with(json!({"slots": slot.clone(), "maxUnavailable": max, "unavailable": 1}))
        };
        assert_eq!(
            stands_still(&rollout(1)).as_deref(),
            Some(
                "win-h holds the lease, and was drained by ann (a new kernel): nothing else is granted"
            )
        );
        let to_continue = crate::explain::to_continue(&rollout(1)).and_then(|it| it.line());
        assert_eq!(to_continue.as_deref(), Some("dormer resume win-h"));
        assert_eq!(stands_still(&rollout(2)), None, "there is room for another");
        let mut two = rollout(1);
        let mut other = two.slots[0].clone();
        other.stopped = None;
        two.slots.push(other);
        assert_eq!(stands_still(&two), None, "another turn goes on");
        let waits = machine_in(MachinePhase::LeaseWait);
        let why = crate::explain::explanation(&waits, None, Some(&rollout(1)));
        let cause = "win-h holds the lease, and was drained by ann (a new kernel)";
        assert_eq!(why.cause.as_deref(), Some(cause));
        assert_eq!(why.steps[0].argv, ["dormer", "resume", "win-h"]);
    }

    #[test]
    fn the_time_left_is_that_of_the_turns_that_wait_and_go_on() {
        let left = |fields: Value| seconds_of(&rollout_with(fields));
        let waiting = json!({"uid": "w", "name": "w", "position": 1, "away": false});
        // The rollout's clock is at 07:05:12.
        let slot = |since: &str| {
            json!([{"token": 4, "holder": "h", "name": "h", "marked": false, "seq": 2, "since": since,
                "waitsFor": null}])
        };
        let queue = json!([waiting.clone(), waiting]);
        let queued = json!({"queue": queue, "maxUnavailable": 1, "typicalTurnSeconds": 600});
        let with = |key: &str, value: Value| {
            let mut fields = queued.clone();
            fields[key] = value;
            left(fields)
        };
        assert_eq!(left(queued.clone()), Some(1_200));
        assert_eq!(
            with("slots", slot("2026-11-21T07:00:12.000Z")),
            Some(1_800 - 300)
        );
        assert_eq!(
            with("slots", slot("2026-11-21T06:45:12.000Z")),
            Some(1_200),
            "over its time"
        );
        assert_eq!(
            with("slots", slot("2026-11-21T06:35:11.000Z")),
            None,
            "late"
        );
        assert_eq!(with("maxUnavailable", json!(2)), Some(600));
        assert_eq!(
            with("paused", json!("ann")),
            None,
            "nobody knows while it is paused"
        );
        assert_eq!(
            with("typicalTurnSeconds", Value::Null),
            None,
            "no turn has ended"
        );
        assert_eq!(with("queue", json!([])), None, "nothing waits");
    }
}
