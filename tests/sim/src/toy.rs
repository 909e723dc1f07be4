//! A toy workflow that uses everything: tasks, timers, facts, signals both ways, requests, reset, episodes, the end.
//!
//! This is the newer of two builds: `elder` knows one state, one field and one signal less.

use dormer_engine_core::{Command, Decision, Input, Now, RetryPolicy, Sender, Workflow};
use dormer_proto::{id::RunId, message::Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many runs there are.
pub(crate) const RUNS: u64 = 4;

const POLICY: RetryPolicy = RetryPolicy {
    attempts_max: 4,
    first_ms: 500,
    delay_ms_max: 4_000,
    attempt_ms_max: 5_000,
    queue_ms_max: 5_000,
    overall_ms_max: 60_000,
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToyState {
    pub(crate) odd: bool,
    pub(crate) facts: BTreeMap<String, u64>,
    pub(crate) inputs: u64,
    pub(crate) finished: u64,
    pub(crate) exhausted: u64,
    pub(crate) refused: u64,
    pub(crate) ticks: u64,
    /// The newer build's state: it has ticked, and rests.
    #[serde(default)]
    pub(crate) checked: bool,
    /// Notes that the newer build received.
    #[serde(default)]
    pub(crate) notes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum ToyTimer {
    Tick,
    Check,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToySignal {
    Hello(u64),
    Echo(u64),
    End,
    /// The newer build's.
    Note(u64),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Toy;

pub(crate) fn id(n: u64) -> RunId {
    RunId::new("toy", &(n % RUNS).to_string()).unwrap_or_else(|error| panic!("{error}"))
}

fn peer(run: &RunId, by: u64) -> RunId {
    id(run.key().parse::<u64>().unwrap_or(0) + 1 + by % (RUNS - 1))
}

impl Workflow for Toy {
    const SCHEMA: u16 = 2;
    type State = ToyState;
    type Task = u64;
    type Outcome = u64;
    type Fact = u64;
    type Timer = ToyTimer;
    type Signal = ToySignal;

    fn start(run: &RunId, by_signal: bool) -> Option<ToyState> {
        (!by_signal || run.key() != "3").then(ToyState::default)
    }

    fn decide(now: Now<'_>, state: ToyState, input: Input<Self>) -> Decision<Self> {
        decide(true, now, state, input)
    }

    fn reset(_: Now<'_>, then: ToyState, current: &ToyState) -> Decision<Self> {
        let facts = current.facts.clone();
        let notes = current.notes;
        Decision::to(ToyState {
            facts,
            notes,
            ..then
        })
        .run(500, POLICY)
    }

    fn label(state: &ToyState) -> &'static str {
        match (state.checked, state.odd) {
            (true, _) => "Checked",
            (false, true) => "Odd",
            (false, false) => "Even",
        }
    }
}

/// What both builds decide; what only the newer one does is marked.
pub(crate) fn decide(
    newer: bool,
    now: Now<'_>,
    mut state: ToyState,
    input: Input<Toy>,
) -> Decision<Toy> {
    match input {
        Input::Started => Decision::to(state)
            .and(Command::BeginEpisode("life"))
            .run(0, POLICY)
            .start_timer(ToyTimer::Tick, 5_000)
            .start_timer(ToyTimer::Check, 9_000),
        Input::Observed {
            object,
            fact: Some(fact),
        } => {
            state.facts.insert(object.uid, fact);
            observed(newer, now, state, fact)
        }
        Input::Observed { object, fact: None } => {
            state.facts.remove(&object.uid);
            Decision::to(state).and(Command::CancelTasks)
        }
        Input::Finished { task, .. } => {
            state.finished += 1;
            state.odd = !state.odd;
            let even = state.finished.is_multiple_of(2);
            let to = peer(now.run, task);
            let decision = Decision::to(state);
            if even {
                decision.and(Command::Signal(to, ToySignal::Hello(task)))
            } else {
                decision
            }
        }
        Input::Exhausted { .. } => {
            state.exhausted += 1;
            Decision::to(state).and(Command::EndEpisode("exhausted".to_owned()))
        }
        Input::Fired(ToyTimer::Tick) => {
            state.ticks += 1;
            state.checked = newer && !state.checked;
            let ticks = state.ticks;
            let decision = Decision::to(state).run(100 + ticks, POLICY);
            if ticks < 3 {
                decision.start_timer(ToyTimer::Tick, 2_000)
            } else {
                decision
            }
        }
        Input::Fired(ToyTimer::Check) => {
            Decision::to(state).and(Command::Signal(peer(now.run, 1), ToySignal::Hello(7)))
        }
        Input::Signalled { from, signal } => signalled(state, from, signal),
        Input::Refused { why, .. } => {
            state.refused += if why == Refusal::Closed { 1 } else { 1_000 };
            Decision::to(state)
        }
    }
}

fn observed(newer: bool, now: Now<'_>, state: ToyState, fact: u64) -> Decision<Toy> {
    let decision = Decision::to(state);
    match fact % 4 {
        0 if newer && fact == 8 => {
            decision.and(Command::Signal(peer(now.run, fact), ToySignal::Note(fact)))
        }
        0 => decision
            .and(Command::Signal(peer(now.run, fact), ToySignal::Hello(fact)))
            .and(Command::Signal(
                peer(now.run, fact),
                ToySignal::Hello(fact + 1),
            )),
        1 => decision.run(fact, POLICY).run(fact + 1, POLICY),
        2 => decision
            .start_timer(ToyTimer::Tick, 3_000)
            .and(Command::CancelTimer(ToyTimer::Check)),
        _ => decision.start_timer(ToyTimer::Check, 1_500),
    }
}

fn signalled(mut state: ToyState, from: Sender, signal: ToySignal) -> Decision<Toy> {
    state.inputs += 1;
    state.notes += u64::from(matches!(signal, ToySignal::Note(_)));
    let decision = Decision::to(state);
    match (from, signal) {
        (Sender::Run(from), ToySignal::Hello(n)) if n % 2 == 1 => {
            decision.and(Command::Signal(from, ToySignal::Echo(n)))
        }
        (_, ToySignal::End) => decision
            .and(Command::EndEpisode("ended".to_owned()))
            .and(Command::Complete),
        _ => decision,
    }
}
