//! The older of two builds of the toy workflow: it knows neither the state Checked, nor notes.

use crate::toy::{self, Toy, ToySignal, ToyState, ToyTimer};
use dormer_engine_core::{Command, Decision, Input, Now, Workflow};
use dormer_proto::id::RunId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ElderState {
    odd: bool,
    facts: BTreeMap<String, u64>,
    inputs: u64,
    finished: u64,
    exhausted: u64,
    refused: u64,
    ticks: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum ElderSignal {
    Hello(u64),
    Echo(u64),
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Elder;

impl From<ElderState> for ToyState {
    fn from(state: ElderState) -> Self {
        let ElderState {
            odd,
            facts,
            inputs,
            finished,
            exhausted,
            refused,
            ticks,
        } = state;
        let checked = false;
        let notes = 0;
        Self {
            odd,
            facts,
            inputs,
            finished,
            exhausted,
            refused,
            ticks,
            checked,
            notes,
        }
    }
}

impl From<ToyState> for ElderState {
    fn from(state: ToyState) -> Self {
        let ToyState {
            odd,
            facts,
            inputs,
            finished,
            exhausted,
            refused,
            ticks,
            ..
        } = state;
        Self {
            odd,
            facts,
            inputs,
            finished,
            exhausted,
            refused,
            ticks,
        }
    }
}

impl From<ElderSignal> for ToySignal {
    fn from(signal: ElderSignal) -> Self {
        match signal {
            ElderSignal::Hello(n) => Self::Hello(n),
            ElderSignal::Echo(n) => Self::Echo(n),
            ElderSignal::End => Self::End,
        }
    }
}

impl Workflow for Elder {
    const SCHEMA: u16 = 1;
    type State = ElderState;
    type Task = u64;
    type Outcome = u64;
    type Fact = u64;
    type Timer = ToyTimer;
    type Signal = ElderSignal;

    fn start(run: &RunId, by_signal: bool) -> Option<ElderState> {
        Toy::start(run, by_signal).map(ElderState::from)
    }

    fn decide(now: Now<'_>, state: ElderState, input: Input<Self>) -> Decision<Self> {
        older(toy::decide(false, now, state.into(), newer(input)))
    }

    fn reset(now: Now<'_>, then: ElderState, current: &ElderState) -> Decision<Self> {
        older(Toy::reset(now, then.into(), &current.clone().into()))
    }

    fn label(state: &ElderState) -> &'static str {
        if state.odd { "Odd" } else { "Even" }
    }
}

fn newer(input: Input<Elder>) -> Input<Toy> {
    match input {
        Input::Started => Input::Started,
        Input::Observed { object, fact } => Input::Observed { object, fact },
        Input::Finished { task, outcome } => Input::Finished { task, outcome },
        Input::Exhausted { task, failure } => Input::Exhausted { task, failure },
        Input::Fired(timer) => Input::Fired(timer),
        Input::Signalled { from, signal } => Input::Signalled {
            from,
            signal: signal.into(),
        },
        Input::Refused { to, signal, why } => Input::Refused {
            to,
            signal: signal.into(),
            why,
        },
    }
}

fn older(decision: Decision<Toy>) -> Decision<Elder> {
    let Decision { state, commands } = decision;
    Decision {
        state: state.into(),
        commands: commands.into_iter().filter_map(command).collect(),
    }
}

fn command(command: Command<Toy>) -> Option<Command<Elder>> {
    Some(match command {
        Command::Run(task, policy) => Command::Run(task, policy),
        Command::CancelTasks => Command::CancelTasks,
        Command::AttemptNow => Command::AttemptNow,
        Command::FireNow(timer) => Command::FireNow(timer),
        Command::StartTimer(timer, ms) => Command::StartTimer(timer, ms),
        Command::CancelTimer(timer) => Command::CancelTimer(timer),
        Command::Signal(to, signal) => {
            let signal = match signal {
                ToySignal::Hello(n) => ElderSignal::Hello(n),
                ToySignal::Echo(n) => ElderSignal::Echo(n),
                ToySignal::End => ElderSignal::End,
                // What this build does not know it does not say.
                ToySignal::Note(_) => return None,
            };
            Command::Signal(to, signal)
        }
        Command::Forget(run) => Command::Forget(run),
        Command::ForgetFact(object) => Command::ForgetFact(object),
        Command::BeginEpisode(name) => Command::BeginEpisode(name),
        Command::EndEpisode(result) => Command::EndEpisode(result),
        Command::Complete => Command::Complete,
    })
}
