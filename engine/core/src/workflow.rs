//! The language in which a workflow is written.

use crate::retry::RetryPolicy;
use dormer_proto::{
    id::{RunId, Seq, Timestamp},
    message::{Failure, InboxMessage, ObjectRef, Refusal},
};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

/// What a workflow's words must be able to do.
pub trait Data:
    Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
}
impl<T: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static> Data
    for T
{
}

/// A message whose words are `W`'s.
pub type InboxMessageOf<W> =
    InboxMessage<<W as Workflow>::Fact, <W as Workflow>::Outcome, <W as Workflow>::Signal>;

/// A state machine. See the crate's example.
pub trait Workflow: Sized + Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Raised when an older build could not read what a newer one writes (a new variant, a field without default), or
    /// would lose a part of it by reading it and writing it back (any new field of the state, a task or a signal).
    const SCHEMA: u16;
    /// Where it is.
    type State: Data + Default;
    /// What it may ask a worker to do.
    type Task: Data;
    /// What a worker may answer.
    type Outcome: Data;
    /// What may be observed about the world. Its digest is that of its bytes: a new field is left out while it says
    /// nothing (`skip_serializing_if`), or every fact on record looks changed to the build that has it.
    type Fact: Data;
    /// What it may wait for. The number of different timers is the limit on timers.
    type Timer: Data + Ord + Copy;
    /// What other runs and people may tell it.
    type Signal: Data;

    /// The state in which a new run begins; `None` when nothing may begin a run of this id
    /// (`by_signal`: it is another run's signal that would).
    fn start(run: &RunId, by_signal: bool) -> Option<Self::State>;

    /// Decides what follows from `input`. Total: every pair has an answer, none panics, none fails.
    fn decide(now: Now<'_>, state: Self::State, input: Input<Self>) -> Decision<Self>;

    /// Goes on from an earlier record's state `then`: what is the world's (facts, a lease) comes from `current`.
    fn reset(now: Now<'_>, then: Self::State, current: &Self::State) -> Decision<Self> {
        let _ = now;
        let _ = current;
        Decision::to(then)
    }

    /// The state's name, for people. A change of it is what "entered a state" means.
    fn label(state: &Self::State) -> &'static str;

    /// The task queue that a task goes to: a short word.
    fn class(task: &Self::Task) -> &'static str {
        let _ = task;
        "task"
    }
}

/// When and where a decision is made.
#[derive(Debug, Clone, Copy)]
pub struct Now<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The record that is being written.
    pub seq: Seq,
    /// Its time.
    pub at: Timestamp,
}

/// Who sent a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sender {
    /// Another run.
    Run(RunId),
    /// A person.
    Person {
        /// Who.
        who: String,
        /// Why, in their words.
        why: String,
    },
}

/// What `decide` sees: retries, repeats and stragglers were already dealt with by the engine.
#[derive(Debug, Clone, PartialEq)]
pub enum Input<W: Workflow> {
    /// The run begins.
    Started,
    /// A fact about the world changed; `None`: the object is gone.
    Observed {
        /// Of what.
        object: ObjectRef,
        /// How it is.
        fact: Option<W::Fact>,
    },
    /// A worker did it.
    Finished {
        /// What was asked.
        task: W::Task,
        /// What was answered.
        outcome: W::Outcome,
    },
    /// No further attempt will be made.
    Exhausted {
        /// What was asked.
        task: W::Task,
        /// Why the last attempt failed.
        failure: Failure,
    },
    /// A timer came due.
    Fired(W::Timer),
    /// Somebody says something.
    Signalled {
        /// Who.
        from: Sender,
        /// What.
        signal: W::Signal,
    },
    /// A signal of ours found no taker.
    Refused {
        /// Whom it was for.
        to: RunId,
        /// What it said.
        signal: W::Signal,
        /// Why not.
        why: Refusal,
    },
}

/// What a workflow asks of the engine.
#[derive(Debug, Clone, PartialEq)]
pub enum Command<W: Workflow> {
    /// Have a worker do this.
    Run(W::Task, RetryPolicy),
    /// Forget every task under way: late answers change nothing.
    CancelTasks,
    /// Wait for so many milliseconds; a timer of the same name starts anew.
    StartTimer(W::Timer, u64),
    /// Wait no longer.
    CancelTimer(W::Timer),
    /// Tell another run.
    Signal(RunId, W::Signal),
    /// Remember no more what `run` signalled: it has closed and will not signal again.
    Forget(RunId),
    /// Remember no more what was said of this object: it was not taken in, and a repeat is news.
    ForgetFact(ObjectRef),
    /// An episode begins (bring-up, upgrade, removal); one that is going on ends as "superseded".
    BeginEpisode(&'static str),
    /// The present episode ends, with this result.
    EndEpisode(String),
    /// The run is over. Tasks and timers end; unreceipted signals still go out.
    Complete,
}

/// What `decide` answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision<W: Workflow> {
    /// Where the run now is.
    pub state: W::State,
    /// What follows, in order.
    pub commands: Vec<Command<W>>,
}

impl<W: Workflow> Decision<W> {
    /// The run is now in `state`.
    #[must_use]
    pub fn to(state: W::State) -> Self {
        Self {
            state,
            commands: Vec::new(),
        }
    }

    /// … and this follows.
    #[must_use]
    pub fn and(mut self, command: Command<W>) -> Self {
        self.commands.push(command);
        self
    }

    /// … and a worker is to do this.
    #[must_use]
    pub fn run(self, task: W::Task, policy: RetryPolicy) -> Self {
        self.and(Command::Run(task, policy))
    }

    /// … and it waits.
    #[must_use]
    pub fn start_timer(self, timer: W::Timer, ms: u64) -> Self {
        self.and(Command::StartTimer(timer, ms))
    }
}
