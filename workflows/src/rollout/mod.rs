//! Rollout workflow: one run per pool, which grants the lease to a limited number of its machines at a time.
//!
//! ```text
//!   Request ──▶ queue ──▶ Granted(token) ──▶ Release{replaced: false} ─────────────────────▶ slot ends
//!                              │                                                               ▲
//!                              └──▶ Release{replaced: true} ─▶ vacant ─┐   a candidate is Joined,
//!                                                                     ├─▶ or none will come ──┤
//!   another client deletes a member that had a Node ───────────▶ gap ─┘                    gap ends
//! ```
//!
//! [`Rollout::decide`] applies the input, and then always takes the same steps: it opens the gaps that deletions leave,
//! ends slots and gaps that have their replacement, and grants the leases that are allowed.

mod draft;
mod facts;
mod finding;
mod grant;
mod member;
mod signals;
mod state;
mod uid;
mod vacancy;
mod view;

pub use finding::CommonTrouble;
pub use member::{Flag, Member};
pub use state::*;
pub use uid::Uid;
pub use view::*;

use self::draft::Draft;
use dormer_engine_core::{Decision, Input, Now, Workflow};
use dormer_proto::{
    id::RunId,
    machine::{Outcome, Task},
    phase::Listed,
    work::{Fact, Signal},
};
use serde::{Deserialize, Serialize};

/// The rollout workflow. A run is `rollout/<pool>`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollout;

/// Timer of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Timer {
    /// Time to ask machines that have not enrolled.
    Ask,
    /// An unknown owner is looked up in the last full list.
    #[serde(rename = "Look")]
    OwnerCheck,
}

impl Workflow for Rollout {
    const SCHEMA: u16 = dormer_proto::work::SCHEMA;
    type State = State;
    type Task = Task;
    type Outcome = Outcome;
    type Fact = Fact;
    type Timer = Timer;
    type Signal = Signal;

    fn start(_: &RunId, _by_signal: bool) -> Option<State> {
        Some(State::default())
    }

    fn decide(now: Now<'_>, state: State, input: Input<Self>) -> Decision<Self> {
        let mut draft = Draft::new(now, state);
        match input {
            Input::Observed { object, fact } => draft.observed(&object, fact),
            Input::Signalled {
                from,
                signal: Signal::Rollout(signal),
            } => draft.on_signal(from, signal),
            Input::Refused {
                to,
                signal: Signal::Machine(signal),
                why,
            } => {
                draft.refused(&to, &signal, why);
            }
            Input::Fired(timer) => draft.fired(timer),
            Input::Finished { task, .. } => draft.payload_set(&task, None),
            Input::Exhausted { task, failure } => draft.payload_set(&task, Some(failure)),
            // A rollout does nothing at its start, receives no signals for machines, and sends none to rollouts.
            Input::Started | Input::Signalled { .. } | Input::Refused { .. } => {}
        }
        draft.finish()
    }

    /// Keeps the present state, which consists of facts, except for a person's pause.
    fn reset(now: Now<'_>, then: State, current: &State) -> Decision<Self> {
        let pause = then.pause;
        let state = State {
            pause,
            asks: false,
            owner_check: false,
            ..current.clone()
        };
        Draft::new(now, state).finish()
    }

    fn label(state: &State) -> &'static str {
        state.label().id()
    }
}
