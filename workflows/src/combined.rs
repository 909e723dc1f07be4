//! Combination of both workflows for one engine, one store and one inbox. A run's name selects the workflow.

use crate::{
    machine::{self, Machine},
    rollout::{self, Rollout},
};
use dormer_engine_core::{Command, Decision, Input, Now, Workflow};
use dormer_proto::{
    id::RunId,
    machine::{Outcome, Task},
    message::{ObjectRef, Reporter},
    work,
};
use serde::{Deserialize, Serialize};

/// All workflows of dormer: `machine/<uid>` and `rollout/<pool>`.
#[derive(Debug, Clone, PartialEq)]
pub struct Dormer;

/// State of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum State {
    /// Placeholder while a run is created. No stored run has it.
    #[default]
    None,
    Machine(Box<machine::State>),
    Rollout(Box<rollout::State>),
}

impl State {
    /// State of a machine's run.
    #[must_use]
    pub fn machine(&self) -> Option<&machine::State> {
        match self {
            Self::Machine(state) => Some(state),
            Self::None | Self::Rollout(_) => None,
        }
    }

    /// State of a rollout's run.
    #[must_use]
    pub fn rollout(&self) -> Option<&rollout::State> {
        match self {
            Self::Rollout(state) => Some(state),
            Self::None | Self::Machine(_) => None,
        }
    }
}

/// Timer of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Timer {
    /// A machine's.
    Machine(machine::Timer),
    /// A rollout's.
    Rollout(rollout::Timer),
}

impl Workflow for Dormer {
    const SCHEMA: u16 = dormer_proto::work::SCHEMA;
    type State = State;
    type Task = Task;
    type Outcome = Outcome;
    type Fact = work::Fact;
    type Timer = Timer;
    type Signal = work::Signal;

    fn start(run: &RunId, by_signal: bool) -> Option<State> {
        match run.workflow() {
            work::MACHINE => Machine::start(run, by_signal).map(|s| State::Machine(Box::new(s))),
            work::ROLLOUT => Rollout::start(run, by_signal).map(|s| State::Rollout(Box::new(s))),
            _ => None,
        }
    }

    fn decide(now: Now<'_>, state: State, input: Input<Self>) -> Decision<Self> {
        match state {
            State::None => Decision::to(state),
            State::Machine(state) => match narrow::<Machine>(input, Timer::machine) {
                Some(input) => widen(Machine::decide(now, *state, input)),
                None => Decision::to(State::Machine(state)),
            },
            State::Rollout(state) => match narrow::<Rollout>(input, Timer::rollout) {
                Some(input) => widen(Rollout::decide(now, *state, input)),
                None => Decision::to(State::Rollout(state)),
            },
        }
    }

    fn reset(now: Now<'_>, then: State, current: &State) -> Decision<Self> {
        match (then, current) {
            (State::Machine(then), State::Machine(current)) => {
                widen(Machine::reset(now, *then, current))
            }
            (State::Rollout(then), State::Rollout(current)) => {
                widen(Rollout::reset(now, *then, current))
            }
            (_, current) => Decision::to(current.clone()),
        }
    }

    fn reopen(ended: &State, object: &ObjectRef, fact: &work::Fact) -> Option<State> {
        match ended {
            State::Machine(state) => Machine::reopen(state, object, fact).map(State::from),
            State::None | State::Rollout(_) => None,
        }
    }

    fn resets_ended(ended: &State) -> bool {
        match ended {
            State::Machine(state) => Machine::resets_ended(state),
            State::None | State::Rollout(_) => false,
        }
    }

    fn label(state: &State) -> &'static str {
        match state {
            State::None => "None",
            State::Machine(state) => Machine::label(state),
            State::Rollout(state) => Rollout::label(state),
        }
    }

    fn reporter(task: &Task) -> Reporter {
        Machine::reporter(task)
    }

    fn class(task: &Task) -> &'static str {
        Machine::class(task)
    }
}

impl Timer {
    fn machine(self) -> Option<machine::Timer> {
        if let Self::Machine(timer) = self {
            Some(timer)
        } else {
            None
        }
    }

    fn rollout(self) -> Option<rollout::Timer> {
        if let Self::Rollout(timer) = self {
            Some(timer)
        } else {
            None
        }
    }
}

impl From<machine::Timer> for Timer {
    fn from(timer: machine::Timer) -> Self {
        Self::Machine(timer)
    }
}

impl From<rollout::Timer> for Timer {
    fn from(timer: rollout::Timer) -> Self {
        Self::Rollout(timer)
    }
}

impl From<machine::State> for State {
    fn from(state: machine::State) -> Self {
        Self::Machine(Box::new(state))
    }
}

impl From<rollout::State> for State {
    fn from(state: rollout::State) -> Self {
        Self::Rollout(Box::new(state))
    }
}

/// A workflow whose types are those of [`Dormer`], except for state and timers.
trait PartWorkflow:
    Workflow<Task = Task, Outcome = Outcome, Fact = work::Fact, Signal = work::Signal>
{
}
impl<W: Workflow<Task = Task, Outcome = Outcome, Fact = work::Fact, Signal = work::Signal>>
    PartWorkflow for W
{
}

/// `None`: a timer of the other workflow, which only a damaged record can name.
fn narrow<W: PartWorkflow>(
    input: Input<Dormer>,
    timer: impl Fn(Timer) -> Option<W::Timer>,
) -> Option<Input<W>> {
    Some(match input {
        Input::Started => Input::Started,
        Input::Observed { object, fact } => Input::Observed { object, fact },
        Input::Finished { task, outcome } => Input::Finished { task, outcome },
        Input::Exhausted { task, failure } => Input::Exhausted { task, failure },
        Input::Fired(fired) => Input::Fired(timer(fired)?),
        Input::Signalled { from, signal } => Input::Signalled { from, signal },
        Input::Refused { to, signal, why } => Input::Refused { to, signal, why },
    })
}

fn widen<W: PartWorkflow>(decision: Decision<W>) -> Decision<Dormer>
where
    State: From<W::State>,
    Timer: From<W::Timer>,
{
    let commands = decision.commands.into_iter().map(|command| match command {
        Command::Run(task, policy) => Command::Run(task, policy),
        Command::CancelTasks => Command::CancelTasks,
        Command::AttemptNow => Command::AttemptNow,
        Command::FireNow(timer) => Command::FireNow(timer.into()),
        Command::StartTimer(timer, ms) => Command::StartTimer(timer.into(), ms),
        Command::CancelTimer(timer) => Command::CancelTimer(timer.into()),
        Command::Signal(to, signal) => Command::Signal(to, signal),
        Command::Forget(run) => Command::Forget(run),
        Command::ForgetFact(object) => Command::ForgetFact(object),
        Command::BeginEpisode(kind) => Command::BeginEpisode(kind),
        Command::EndEpisode(result) => Command::EndEpisode(result),
        Command::Complete => Command::Complete,
    });
    Decision {
        commands: commands.collect(),
        state: decision.state.into(),
    }
}
