//! One workflow in two builds: the newer build has one more state, one more field and one more event variant.
#![allow(dead_code, reason = "each test file takes what it needs")]

pub(crate) mod awaited;

use dormer_engine_core::{RetryPolicy, Workflow};
use dormer_proto::id::RunId;
use serde::{Deserialize, Serialize};

/// Times to fetch before a run ends.
pub(crate) const FETCHES: u32 = 3;
/// The rest between two of them, in milliseconds.
const REST_MS: u64 = 1_000;
const POLICY: RetryPolicy = RetryPolicy {
    first_ms: 10,
    ..RetryPolicy::PROMPT
};

/// A build: what its worker can do.
pub(crate) trait Build: Workflow<Outcome = u32> {
    /// Does a task.
    fn answer(task: &Self::Task) -> u32;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Rest {
    Over,
}

/// A run of either.
pub(crate) fn run(key: &str) -> RunId {
    RunId::new("fetch", key).expect("a run id")
}

/// The older build.
pub(crate) mod old {
    use super::{Build, FETCHES, POLICY, REST_MS, Rest};
    use dormer_engine_core::{Command, Decision, Input, Now, Workflow};
    use dormer_proto::id::RunId;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
    pub(crate) enum Phase {
        #[default]
        Fetching,
        Resting,
        Done,
    }

    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    pub(crate) struct State {
        pub(crate) phase: Phase,
        pub(crate) done: u32,
        pub(crate) size: u32,
        pub(crate) hellos: u32,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(crate) enum Task {
        Fetch(u32),
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Fact {
        pub(crate) size: u32,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(crate) enum Signal {
        Hello,
    }

    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct Old;

    impl Workflow for Old {
        const SCHEMA: u16 = 1;
        type State = State;
        type Task = Task;
        type Outcome = u32;
        type Fact = Fact;
        type Timer = Rest;
        type Signal = Signal;

        fn start(_: &RunId, by_signal: bool) -> Option<State> {
            (!by_signal).then(State::default)
        }

        fn decide(_: Now<'_>, mut state: State, input: Input<Self>) -> Decision<Self> {
            match input {
                Input::Started | Input::Fired(Rest::Over) => {
                    state.phase = Phase::Fetching;
                    let next = state.done;
                    Decision::to(state).run(Task::Fetch(next), POLICY)
                }
                Input::Finished { .. } => {
                    state.done += 1;
                    if state.done == FETCHES {
                        state.phase = Phase::Done;
                        return Decision::to(state).and(Command::Complete);
                    }
                    state.phase = Phase::Resting;
                    Decision::to(state).start_timer(Rest::Over, REST_MS)
                }
                Input::Observed { fact, .. } => {
                    state.size = fact.map_or(0, |fact| fact.size);
                    Decision::to(state)
                }
                Input::Signalled {
                    signal: Signal::Hello,
                    ..
                } => {
                    state.hellos += 1;
                    Decision::to(state)
                }
                _ => Decision::to(state),
            }
        }

        fn label(state: &State) -> &'static str {
            match state.phase {
                Phase::Fetching => "Fetching",
                Phase::Resting => "Resting",
                Phase::Done => "Done",
            }
        }
    }

    impl Build for Old {
        fn answer(Task::Fetch(n): &Task) -> u32 {
            *n
        }
    }
}

/// The newer build: after the second fetch a run is checked.
pub(crate) mod new {
    use super::{Build, FETCHES, POLICY, REST_MS, Rest};
    use dormer_engine_core::{Command, Decision, Input, Now, Workflow};
    use dormer_proto::id::RunId;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
    pub(crate) enum Phase {
        #[default]
        Fetching,
        Resting,
        Done,
        Checking,
    }

    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    pub(crate) struct State {
        pub(crate) phase: Phase,
        pub(crate) done: u32,
        pub(crate) size: u32,
        pub(crate) hellos: u32,
        #[serde(default)]
        pub(crate) notes: Vec<String>,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(crate) enum Task {
        Fetch(u32),
        Check,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Fact {
        pub(crate) size: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) colour: Option<String>,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(crate) enum Signal {
        Hello,
        Note(String),
    }

    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct New;

    impl Workflow for New {
        const SCHEMA: u16 = 2;
        type State = State;
        type Task = Task;
        type Outcome = u32;
        type Fact = Fact;
        type Timer = Rest;
        type Signal = Signal;

        fn start(_: &RunId, by_signal: bool) -> Option<State> {
            (!by_signal).then(State::default)
        }

        fn decide(_: Now<'_>, mut state: State, input: Input<Self>) -> Decision<Self> {
            match input {
                Input::Started | Input::Fired(Rest::Over) => {
                    state.phase = Phase::Fetching;
                    let next = state.done;
                    Decision::to(state).run(Task::Fetch(next), POLICY)
                }
                Input::Finished {
                    task: Task::Check, ..
                } => rest(state),
                Input::Finished { .. } => {
                    state.done += 1;
                    match state.done {
                        FETCHES => {
                            state.phase = Phase::Done;
                            Decision::to(state).and(Command::Complete)
                        }
                        2 => {
                            state.phase = Phase::Checking;
                            Decision::to(state).run(Task::Check, POLICY)
                        }
                        _ => rest(state),
                    }
                }
                Input::Observed { fact, .. } => {
                    state.size = fact.as_ref().map_or(0, |fact| fact.size);
                    state.notes.extend(fact.and_then(|fact| fact.colour));
                    Decision::to(state)
                }
                Input::Signalled {
                    signal: Signal::Hello,
                    ..
                } => {
                    state.hellos += 1;
                    Decision::to(state)
                }
                Input::Signalled {
                    signal: Signal::Note(note),
                    ..
                } => {
                    state.notes.push(note);
                    Decision::to(state)
                }
                _ => Decision::to(state),
            }
        }

        fn label(state: &State) -> &'static str {
            match state.phase {
                Phase::Fetching => "Fetching",
                Phase::Resting => "Resting",
                Phase::Done => "Done",
                Phase::Checking => "Checking",
            }
        }
    }

    fn rest(mut state: State) -> Decision<New> {
        state.phase = Phase::Resting;
        Decision::to(state).start_timer(Rest::Over, REST_MS)
    }

    impl Build for New {
        fn answer(task: &Task) -> u32 {
            match task {
                Task::Fetch(n) => *n,
                Task::Check => 99,
            }
        }
    }
}
