//! Workflow of the bench: six steps, each with a task of 256 bytes and a report of 256 bytes; three facts and then one
//! such task; or one long wait.

use dormer_engine_core::{Command, Decision, Input, Now, RetryPolicy, Workflow};
use dormer_proto::id::RunId;
use serde::{Deserialize, Serialize};

/// Durable steps of one run.
pub const STEPS: u8 = 6;
/// Bytes in each order and each report.
pub const PAYLOAD_BYTES: usize = 256;

/// Name of runs that step.
pub const STEPPING: &str = "steps";
/// Name of runs that gather facts.
pub const GATHERING: &str = "gather";
/// Facts that a run gathers before its only task.
pub const GATHERED: u8 = 3;
/// Name of runs that wait.
pub const WAITING: &str = "idle";
/// Only timer of a run that waits: 30 days, in milliseconds.
const FAR_OFF_MS: u64 = 30 * 24 * 3_600_000;

/// Workflow of the bench, and state of its runs. One workflow has all kinds, so that the engine is compiled once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum Bench {
    /// Run that has completed so many steps.
    Stepping(u8),
    /// Run that has so many facts.
    Gathering(u8),
    /// Run that waits for a distant timer.
    #[default]
    Waiting,
}

/// Payload that serde writes as bytes, not as a list of numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Payload(#[serde(with = "serde_bytes")] pub Vec<u8>);

impl Payload {
    /// Payload of [`PAYLOAD_BYTES`] bytes.
    #[must_use]
    pub fn full() -> Self {
        Self(vec![0x5a; PAYLOAD_BYTES])
    }
}

impl Workflow for Bench {
    const SCHEMA: u16 = 1;
    type State = Bench;
    type Task = Payload;
    type Outcome = Payload;
    type Fact = u64;
    type Timer = u8;
    type Signal = ();

    fn start(run: &RunId, by_signal: bool) -> Option<Bench> {
        let state = match run.workflow() {
            WAITING => Bench::Waiting,
            GATHERING => Bench::Gathering(0),
            _ => Bench::Stepping(0),
        };
        (!by_signal).then_some(state)
    }

    fn decide(_: Now<'_>, state: Bench, input: Input<Self>) -> Decision<Self> {
        match (&state, input) {
            (Bench::Waiting, Input::Started) => Decision::to(state).start_timer(0, FAR_OFF_MS),
            (Bench::Stepping(_), Input::Started) => step(state),
            (Bench::Stepping(done), Input::Finished { .. }) => {
                let done = done + 1;
                let next = Bench::Stepping(done);
                if done < STEPS {
                    step(next)
                } else {
                    Decision::to(next).and(Command::Complete)
                }
            }
            (Bench::Gathering(facts), Input::Observed { .. }) => {
                let next = Bench::Gathering(facts + 1);
                if facts + 1 == GATHERED {
                    step(next)
                } else {
                    Decision::to(next)
                }
            }
            (Bench::Gathering(_), Input::Finished { .. }) => {
                Decision::to(state).and(Command::Complete)
            }
            _ => Decision::to(state),
        }
    }

    fn label(state: &Bench) -> &'static str {
        match state {
            Bench::Stepping(_) => "Stepping",
            Bench::Gathering(_) => "Gathering",
            Bench::Waiting => "Waiting",
        }
    }
}

fn step(state: Bench) -> Decision<Bench> {
    Decision::to(state).run(Payload::full(), RetryPolicy::PATIENT)
}
