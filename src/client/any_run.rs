//! Run of any workflow, as in answers to requests and in the stream of changes.

use dormer_proto::work::{MACHINE, ROLLOUT};
use dormer_views::{
    machine::Machine,
    rollout::Rollout,
    run::{Run, RunStatus},
};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

/// Run of any workflow. The id names the workflow.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AnyRun {
    /// A machine's.
    Machine(Box<Machine>),
    /// A pool's.
    Rollout(Box<Rollout>),
    /// A run of a workflow that this build does not know.
    Run(Box<Run>),
}

/// Id of a run, which every view of a run has.
#[derive(Deserialize)]
struct Identified {
    run: String,
}

impl<'de> Deserialize<'de> for AnyRun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let Identified { run } = Identified::deserialize(&value).map_err(D::Error::custom)?;
        let workflow = run.split_once('/').map_or("", |(workflow, _)| workflow);
        let read = match workflow {
            MACHINE => Deserialize::deserialize(value).map(Self::Machine),
            ROLLOUT => Deserialize::deserialize(value).map(Self::Rollout),
            _ => Deserialize::deserialize(value).map(Self::Run),
        };
        read.map_err(D::Error::custom)
    }
}

impl AnyRun {
    /// Name for people: a Machine's name, a pool.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Machine(machine) => &machine.name,
            Self::Rollout(rollout) => &rollout.pool,
            Self::Run(run) => &run.name,
        }
    }

    /// Name of its state in its workflow.
    pub(super) fn state(&self) -> &str {
        match self {
            Self::Machine(machine) => machine.state.id(),
            Self::Rollout(rollout) => rollout.state.id(),
            Self::Run(run) => &run.state,
        }
    }

    /// Phase of a machine in words, if it says more than the state.
    pub(super) fn phase(&self) -> Option<&str> {
        self.as_machine()?.phase_beside_state()
    }

    /// Thing that it waits for.
    pub(super) fn waiting_for(&self) -> Option<&str> {
        match self {
            Self::Machine(machine) => machine.waiting_for.as_deref(),
            Self::Rollout(rollout) => rollout.waiting_for.as_deref(),
            Self::Run(_) => None,
        }
    }

    /// Common status of the run.
    pub(super) fn status(&self) -> &RunStatus {
        match self {
            Self::Machine(machine) => &machine.status,
            Self::Rollout(rollout) => &rollout.status,
            Self::Run(run) => &run.status,
        }
    }

    /// The machine, if it is one.
    pub(super) fn as_machine(&self) -> Option<&Machine> {
        match self {
            Self::Machine(machine) => Some(machine),
            Self::Rollout(_) | Self::Run(_) => None,
        }
    }

    /// The rollout, if it is one.
    pub(super) fn as_rollout(&self) -> Option<&Rollout> {
        match self {
            Self::Rollout(rollout) => Some(rollout),
            Self::Machine(_) | Self::Run(_) => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// `fields` beside what every run has.
    fn run_with(run: &str, mut common: Value, fields: Value) -> Value {
        let status = json!({"run": run, "seq": 9, "enteredSeq": 7, "began": "2026-11-21T06:00:00.000Z",
            "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 61});
        for more in [status, fields] {
            for (key, value) in more.as_object().expect("fields") {
                common[key] = value.clone();
            }
        }
        common
    }

    /// A machine's JSON with these fields.
    fn machine_json(fields: Value) -> Value {
        let common = json!({
            "name": "win-1", "namespace": "", "uid": "u", "state": "Reachable", "phase": "converging-host",
            "phaseText": "converging the host", "differs": [], "pool": "windows", "deleting": false,
            "machineConditions": [], "served": false, "tasks": [],
        });
        run_with("machine/u", common, fields)
    }

    /// A machine with these fields as JSON.
    pub(crate) fn machine_with(fields: Value) -> Machine {
        serde_json::from_value(machine_json(fields)).expect("a machine")
    }

    /// A rollout with these fields as JSON.
    pub(crate) fn rollout_with(fields: Value) -> Rollout {
        let common = json!({
            "pool": "windows", "state": "Open", "members": 3, "joined": 2, "failed": 0, "unavailable": 1,
            "manualApproval": false, "token": 4, "away": [], "queue": [], "slots": [], "gaps": [], "awaited": [],
            "turnedAway": [], "machineSets": [],
        });
        let rollout = run_with("rollout/windows", common, fields);
        serde_json::from_value(rollout).expect("a rollout")
    }

    #[test]
    fn a_run_is_read_as_its_id_says() {
        let read = |value: Value| serde_json::from_value::<AnyRun>(value);
        let machine = read(machine_json(json!({"name": "win-2"}))).unwrap();
        assert_eq!((machine.name(), machine.state()), ("win-2", "Reachable"));
        let common = json!({"workflow": "cluster", "name": "all", "state": "Idle", "tasks": 0});
        let other = read(run_with("cluster/all", common, json!({}))).unwrap();
        assert!(matches!(other, AnyRun::Run(_)), "{other:?}");
        let wrong = read(machine_json(json!({"name": null}))).unwrap_err();
        assert!(wrong.to_string().contains("null"), "{wrong}");
    }
}
