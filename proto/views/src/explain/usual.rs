//! A step in its usual time: how long such a step takes, by the histories of the pool's machines.

use super::{
    now,
    problem::{heals_by, limits, problem, slow_after, usual},
};
use crate::{
    machine::Machine,
    moment::{Moment, span},
};
use dormer_proto::{id::Timestamp, phase::MachinePhase};

/// That the machine's step lasts as long as usual, with the time by which it usually ends: `as usual; this step takes about
/// 3m, by 08:05 UTC`. `None`: the usual duration is not known, an attempt has failed, or the machine has a trouble.
pub fn as_usual(machine: &Machine) -> Option<String> {
    let usual = usual(machine)?;
    let phase = machine.phase.known()?;
    let failed = machine.tasks.iter().any(|task| task.failure.is_some());
    let healing = heals_by(machine).is_some() && phase != MachinePhase::Serving;
    if failed || !healing || machine.unserved.is_some() || problem(machine).is_some() {
        return None;
    }
    let now = now(machine);
    let begun = now.0.saturating_sub(machine.phase_seconds() * 1_000);
    let at = |seconds: u64| Moment(Timestamp(begun + seconds * 1_000)).clock(now);
    let takes = format!("this step takes about {}", span(usual));
    Some(if machine.phase_seconds() <= usual {
        format!("as usual; {takes}, by {}", at(usual))
    } else {
        let slow = at(slow_after(limits(phase)?, Some(usual)));
        format!("nearly as usual; {takes}, and counts as slow from {slow} on")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        explain::{explanation, tests::machine_in},
        run::{Task, TaskFailure},
    };
    use serde_json::json;

    /// A machine after `seconds` of a step that usually takes three minutes.
    fn probing(seconds: u64) -> Machine {
        let mut machine = machine_in(MachinePhase::Probing);
        machine.phase_since = Some(machine.status.since);
        machine.status.since_seconds = seconds;
        machine.usual_seconds = Some(180);
        machine
    }

    #[test]
    fn a_step_in_its_usual_time_has_its_end_and_nothing_to_do() {
        let said = |machine: &Machine| as_usual(machine);
        let usual = "as usual; this step takes about 3m, by 07:03 UTC";
        assert_eq!(said(&probing(100)).as_deref(), Some(usual));
        let nearly =
            "nearly as usual; this step takes about 3m, and counts as slow from 07:06 UTC on";
        assert_eq!(said(&probing(200)).as_deref(), Some(nearly));
        assert_eq!(said(&probing(400)), None, "it is slow");
        let unknown = Machine {
            usual_seconds: None,
            ..probing(100)
        };
        assert_eq!(said(&unknown), None);

        let lines = explanation(&probing(100), None, None).lines();
        assert!(
            lines.contains(&format!("Do now:  Nothing: {usual}.\nState:")),
            "{lines}"
        );
        assert!(!lines.contains("stuck"), "{lines}");
        let why = explanation(&probing(100), None, None);
        assert!(
            why.why
                .ends_with(&format!("dormer continues by itself, {usual}.")),
            "{}",
            why.why
        );
        assert!(!why.steps.is_empty(), "programs have the steps for later");
    }

    #[test]
    fn an_attempt_that_failed_is_not_usual() {
        let task = json!({"task": "machine/u@3.0", "run": "machine/u", "name": "probe", "attempt": 2,
            "attemptsMax": 60, "phase": "waiting", "until": "2026-11-21T07:10:00.000Z"});
        let task: Task = serde_json::from_value(task).expect("a task");
        let failure = TaskFailure {
            code: "ConnectRefused".into(),
            message: "no".into(),
            log: None,
        };
        let failing = Machine {
            tasks: vec![Task {
                failure: Some(failure),
                ..task
            }],
            ..probing(100)
        };
        assert_eq!(as_usual(&failing), None);
    }
}
