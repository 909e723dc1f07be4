//! Workflow trait, with the inputs, commands and decisions of a workflow.

use crate::retry::RetryPolicy;
use dormer_proto::{
    id::{RunId, Seq, Timestamp},
    message::{Failure, InboxMessage, ObjectRef, Refusal, Reporter},
    subject::DEFAULT_CLASS,
};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

/// Traits that all data types of a workflow need.
pub trait Data:
    Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
}
impl<T: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static> Data
    for T
{
}

/// Inbox message with the data types of `W`.
pub type InboxMessageOf<W> =
    InboxMessage<<W as Workflow>::Fact, <W as Workflow>::Outcome, <W as Workflow>::Signal>;

/// State machine of a workflow. See the crate's example.
pub trait Workflow: Sized + Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Schema number. Raise it when an older build could not read what a newer one writes (a new variant, a field
    /// without a default). Raise it also when an older build would lose a part by reading and rewriting (any new
    /// field of the state, a task or a signal).
    const SCHEMA: u16;
    /// State of a run.
    type State: Data + Default;
    /// Task for a worker.
    type Task: Data;
    /// Successful answer of a worker.
    type Outcome: Data;
    /// Fact about the world. Its digest is computed from its bytes. A new field must be skipped while it is empty
    /// (`skip_serializing_if`), or every recorded fact looks changed to the new build.
    type Fact: Data;
    /// Name of a timer. The number of names limits the number of timers.
    type Timer: Data + Ord + Copy;
    /// Signal of another run or a person.
    type Signal: Data;

    /// Initial state of a new run. `None`: no run of this id may start (`by_signal`: the trigger is another run's
    /// signal).
    fn start(run: &RunId, by_signal: bool) -> Option<Self::State>;

    /// Decides what follows from `input`. It is total: every pair of state and input has an answer; none panics or
    /// fails.
    fn decide(now: Now<'_>, state: Self::State, input: Input<Self>) -> Decision<Self>;

    /// Continues from an earlier record's state `then`. External data (facts, a lease) comes from `current`.
    fn reset(now: Now<'_>, then: Self::State, current: &Self::State) -> Decision<Self> {
        let _ = now;
        let _ = current;
        Decision::to(then)
    }

    /// State in which an ended run restarts because `fact` contradicts the reason for its end. The workflow
    /// gets [`Input::Started`], and then the fact. `None`: the run stays ended, and the engine drops the fact.
    fn reopen(ended: &Self::State, object: &ObjectRef, fact: &Self::Fact) -> Option<Self::State> {
        let _ = (ended, object, fact);
        None
    }

    /// Whether a person's reset may restart an ended run. Otherwise the engine refuses the reset.
    fn resets_ended(ended: &Self::State) -> bool {
        let _ = ended;
        false
    }

    /// Name of the state, for people. A run enters a state when this name changes.
    fn label(state: &Self::State) -> &'static str;

    /// Role that carries out a task. Another role's report on it changes nothing.
    fn reporter(task: &Self::Task) -> Reporter {
        let _ = task;
        Reporter::default()
    }

    /// Name of the task queue of a task: a short word. A store on NATS has those of
    /// [`CLASSES`](dormer_proto::subject::CLASSES) and this default.
    fn class(task: &Self::Task) -> &'static str {
        let _ = task;
        DEFAULT_CLASS
    }
}

/// Context of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Now<'a> {
    pub run: &'a RunId,
    /// Seq of the record that is being written.
    pub seq: Seq,
    /// Time of the record.
    pub at: Timestamp,
}

/// Sender of a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sender {
    /// Another run.
    Run(RunId),
    Person {
        /// Name of the person.
        who: String,
        /// Reason in the person's words.
        why: String,
    },
}

/// Input of `decide`. The engine has already handled retries, repeats and late reports.
#[derive(Debug, Clone, PartialEq)]
pub enum Input<W: Workflow> {
    /// The run starts.
    Started,
    /// A fact about the world changed; `None`: the object is gone.
    Observed {
        object: ObjectRef,
        /// Fact. `None`: the object is gone.
        fact: Option<W::Fact>,
    },
    /// A worker finished a task.
    Finished { task: W::Task, outcome: W::Outcome },
    /// A task failed for good: there will be no further attempt.
    Exhausted {
        task: W::Task,
        /// Failure of the last attempt.
        failure: Failure,
    },
    /// A timer is due.
    Fired(W::Timer),
    /// A signal arrived.
    Signalled { from: Sender, signal: W::Signal },
    /// A signal of this run was refused.
    Refused {
        /// Receiver.
        to: RunId,
        signal: W::Signal,
        /// Reason of the refusal.
        why: Refusal,
    },
}

/// Command of a workflow to the engine.
#[derive(Debug, Clone, PartialEq)]
pub enum Command<W: Workflow> {
    /// Order a task.
    Run(W::Task, RetryPolicy),
    /// Forget all open tasks. Late answers change nothing.
    CancelTasks,
    /// Make the next attempt of every task that waits for one due now. Attempts under way continue.
    AttemptNow,
    /// Make a timer due now, if it runs.
    FireNow(W::Timer),
    /// Start a timer of this many milliseconds. A timer of the same name restarts.
    StartTimer(W::Timer, u64),
    CancelTimer(W::Timer),
    /// Send a signal to another run.
    Signal(RunId, W::Signal),
    /// Forget the signals of `run`: it has closed and sends no more.
    Forget(RunId),
    /// Forget the last fact about this object: the workflow did not keep it, so the next equal fact counts as new.
    ForgetFact(ObjectRef),
    /// Begin an episode (bring-up, upgrade, removal). An open one ends as "superseded".
    BeginEpisode(&'static str),
    /// End the open episode with this result.
    EndEpisode(String),
    /// End the run. The engine drops its tasks and timers, and still sends signals without a receipt.
    Complete,
}

/// Answer of `decide`.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision<W: Workflow> {
    /// New state.
    pub state: W::State,
    /// Commands, in order.
    pub commands: Vec<Command<W>>,
}

impl<W: Workflow> Decision<W> {
    /// Decision to enter `state`.
    #[must_use]
    pub fn to(state: W::State) -> Self {
        Self {
            state,
            commands: Vec::new(),
        }
    }

    /// Adds a command.
    #[must_use]
    pub fn and(mut self, command: Command<W>) -> Self {
        self.commands.push(command);
        self
    }

    /// Adds a task.
    #[must_use]
    pub fn run(self, task: W::Task, policy: RetryPolicy) -> Self {
        self.and(Command::Run(task, policy))
    }

    /// Adds a timer.
    #[must_use]
    pub fn start_timer(self, timer: W::Timer, ms: u64) -> Self {
        self.and(Command::StartTimer(timer, ms))
    }
}
