//! Engine core without IO: the workflow trait, and the bookkeeping around one run.
//!
//! *A run is the fold of its history; `decide` is a pure total function; effects are values, carried out after the
//! fact is stored.* Nothing here uses clocks, random numbers, IO or async. Times and ids arrive as data.
//!
//! A workflow in twenty lines: fetch something, wait a minute, and fetch again until a signal stops it.
//!
//! ```
//! use dormer_engine_core::{Command, Decision, Input, Now, RetryPolicy, Workflow};
//! use dormer_proto::id::RunId;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
//! enum Watch { #[default] New, Fetching, Resting, Stuck(String), Done }
//! #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
//! enum Rest { Over }
//!
//! impl Workflow for Watch {
//!     const SCHEMA: u16 = 1;
//!     type State = Watch;
//!     type Task = String;      // what to fetch
//!     type Outcome = u32;      // its size
//!     type Fact = u32;
//!     type Timer = Rest;
//!     type Signal = ();        // "stop"
//!
//!     fn start(_: &RunId, _by_signal: bool) -> Option<Watch> { Some(Watch::New) }
//!     fn decide(_: Now<'_>, state: Watch, input: Input<Watch>) -> Decision<Watch> {
//!         match (state, input) {
//!             (Watch::New, Input::Started) | (Watch::Resting, Input::Fired(Rest::Over)) =>
//!                 Decision::to(Watch::Fetching).run("page".to_owned(), RetryPolicy::PATIENT),
//!             (Watch::Fetching, Input::Finished { .. }) =>
//!                 Decision::to(Watch::Resting).start_timer(Rest::Over, 60_000),
//!             (Watch::Fetching, Input::Exhausted { failure, .. }) => Decision::to(Watch::Stuck(failure.message)),
//!             (_, Input::Signalled { .. }) => Decision::to(Watch::Done).and(Command::Complete),
//!             (state, _) => Decision::to(state),     // late or out of place: on record, without consequence
//!         }
//!     }
//!     fn label(state: &Watch) -> &'static str {
//!         match state { Watch::New => "New", Watch::Fetching => "Fetching", Watch::Resting => "Resting",
//!                       Watch::Stuck(_) => "Stuck", Watch::Done => "Done" }
//!     }
//! }
//! ```

// A new kind of message or event does not compile before every `match` names it.
#![warn(clippy::wildcard_enum_match_arm)]

mod fence;
pub mod limit;
mod record;
mod replay;
mod retry;
mod run;
mod transition;
pub mod unfenced;
mod workflow;

pub use fence::{Answer, Dropped, Offer, Verdict};
pub use record::{HistoryEvent, Record};
pub use replay::{Divergence, replay_record};
pub use retry::RetryPolicy;
pub use run::{
    EPISODES_MAX, Entered, Episode, FACTS_MAX, OUTBOX_MAX, OpenTask, Outgoing,
    REQUEST_IDS_BYTES_MAX, Run, TASKS_MAX, TakenSignal, TaskKey, TaskPhase,
};
pub use transition::{EVENTS_PER_RECORD_MAX, Effects, Transition};
pub use workflow::{Command, Data, Decision, InboxMessageOf, Input, Now, Sender, Workflow};
