//! Workflow of the bench: six steps, each with a task of 256 bytes and a report of 256 bytes.

use dormer_engine_core::{Command, Decision, Input, Now, RetryPolicy, Workflow};
use dormer_proto::id::RunId;
use serde::{Deserialize, Serialize};

/// Durable steps of one run.
pub(super) const STEPS: u8 = 6;
/// Bytes in each order and each report.
pub(super) const PAYLOAD_BYTES: usize = 256;

/// Workflow and state of the bench.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Steps {
    /// Number of completed steps.
    pub(super) done: u8,
}

/// Payload that serde writes as bytes, not as a list of numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Payload(#[serde(with = "serde_bytes")] pub(super) Vec<u8>);

impl Payload {
    pub(super) fn new() -> Self {
        Self(vec![0x5a; PAYLOAD_BYTES])
    }
}

impl Workflow for Steps {
    const SCHEMA: u16 = 1;
    type State = Steps;
    type Task = Payload;
    type Outcome = Payload;
    type Fact = u64;
    type Timer = u8;
    type Signal = ();

    fn start(_: &RunId, by_signal: bool) -> Option<Steps> {
        (!by_signal).then(Steps::default)
    }

    fn decide(_: Now<'_>, state: Steps, input: Input<Self>) -> Decision<Self> {
        match input {
            Input::Started => step(state),
            Input::Finished { .. } if state.done + 1 < STEPS => step(Steps {
                done: state.done + 1,
            }),
            Input::Finished { .. } => Decision::to(Steps {
                done: state.done + 1,
            })
            .and(Command::Complete),
            _ => Decision::to(state),
        }
    }

    fn label(_: &Steps) -> &'static str {
        "Stepping"
    }
}

fn step(state: Steps) -> Decision<Steps> {
    Decision::to(state).run(Payload::new(), RetryPolicy::PATIENT)
}
