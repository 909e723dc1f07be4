//! Run of any workflow, as in answers to requests and in the stream of changes.

use crate::{
    machine::Machine,
    problem::word_among,
    rollout::Rollout,
    run::{Run, RunStatus},
};
use dormer_proto::work::{MACHINE, ROLLOUT};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::Value;

/// Run of any workflow. The id names the workflow.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AnyRun {
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
    pub fn name(&self) -> &str {
        match self {
            Self::Machine(machine) => &machine.name,
            Self::Rollout(rollout) => &rollout.pool,
            Self::Run(run) => &run.name,
        }
    }

    /// Name of its state in its workflow.
    pub fn state(&self) -> &str {
        match self {
            Self::Machine(machine) => machine.state.id(),
            Self::Rollout(rollout) => rollout.state.id(),
            Self::Run(run) => &run.state,
        }
    }

    /// State for people. That of a rollout depends on its machines, which are among `machines`.
    pub fn word<'a>(&self, machines: impl IntoIterator<Item = &'a Machine>) -> &str {
        match self {
            Self::Rollout(rollout) => word_among(rollout, machines),
            Self::Machine(_) | Self::Run(_) => self.state(),
        }
    }

    /// Phase of a machine in words, if it says more than the state.
    pub fn phase(&self) -> Option<&str> {
        self.as_machine()?.phase_beside_state()
    }

    /// Thing that it waits for.
    pub fn waiting_for(&self) -> Option<&str> {
        match self {
            Self::Machine(machine) => machine.waiting_for.as_deref(),
            Self::Rollout(rollout) => rollout.waiting_for.as_deref(),
            Self::Run(_) => None,
        }
    }

    /// Common status of the run.
    pub fn status(&self) -> &RunStatus {
        match self {
            Self::Machine(machine) => &machine.status,
            Self::Rollout(rollout) => &rollout.status,
            Self::Run(run) => &run.status,
        }
    }

    /// The machine, if it is one.
    pub fn as_machine(&self) -> Option<&Machine> {
        match self {
            Self::Machine(machine) => Some(machine),
            Self::Rollout(_) | Self::Run(_) => None,
        }
    }

    /// The rollout, if it is one.
    pub fn as_rollout(&self) -> Option<&Rollout> {
        match self {
            Self::Rollout(rollout) => Some(rollout),
            Self::Machine(_) | Self::Run(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(run: &str, fields: Value) -> Value {
        let mut value = json!({"run": run, "seq": 9, "enteredSeq": 7, "began": "2026-11-21T06:00:00.000Z",
            "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 61});
        let fields = fields.as_object().expect("fields").clone();
        value.as_object_mut().expect("an object").extend(fields);
        value
    }

    fn machine(name: &Value) -> Value {
        status(
            "machine/u",
            json!({
                "name": name, "namespace": "", "uid": "u", "state": "Reachable", "phase": "converging-host",
                "phaseText": "converging the host", "differs": [], "pool": "windows", "deleting": false,
                "machineConditions": [], "served": false, "tasks": [],
            }),
        )
    }

    #[test]
    fn a_run_is_read_as_its_id_says_and_written_as_it_was_read() {
        let machine_json = machine(&json!("win-2"));
        let read: AnyRun = serde_json::from_value(machine_json).expect("a machine");
        assert_eq!((read.name(), read.state()), ("win-2", "Reachable"));
        let written = serde_json::to_value(&read).expect("JSON");
        let again: AnyRun = serde_json::from_value(written).expect("a machine");
        assert_eq!(again, read);

        let other = status(
            "cluster/all",
            json!({"workflow": "cluster", "name": "all", "state": "Idle", "tasks": 0}),
        );
        let other: AnyRun = serde_json::from_value(other).expect("a run");
        assert!(matches!(other, AnyRun::Run(_)), "{other:?}");

        let wrong = serde_json::from_value::<AnyRun>(machine(&Value::Null)).unwrap_err();
        assert!(wrong.to_string().contains("null"), "{wrong}");
    }
}
