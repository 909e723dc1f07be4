//! One record per transition: the events taken together, and the run that results.

use crate::{run::Run, workflow::Workflow};
use dormer_proto::{
    envelope::Message,
    id::{Attempt, RunId, Seq, SignalId, Sum, Timestamp},
    message::{Failure, ObjectRef, Refusal, Version},
};
use serde::{Deserialize, Serialize};

/// One stored fact of a run's history, past tense.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum HistoryEvent<W: Workflow> {
    /// The run began.
    Started,
    /// The world changed.
    Observed {
        /// Of what.
        object: ObjectRef,
        /// How new.
        version: Version,
        /// How it is; `None`: gone.
        fact: Option<W::Fact>,
    },
    /// An attempt succeeded.
    TaskFinished {
        /// The record that asked.
        seq: Seq,
        /// Its place there.
        ordinal: u16,
        /// Which attempt.
        attempt: Attempt,
        /// Who did it.
        worker: String,
        /// What came of it.
        outcome: W::Outcome,
    },
    /// An attempt failed.
    TaskFailed {
        /// The record that asked.
        seq: Seq,
        /// Its place there.
        ordinal: u16,
        /// Which attempt.
        attempt: Attempt,
        /// Who tried.
        worker: String,
        /// Why.
        failure: Failure,
    },
    /// An alarm rang: every deadline at or before the record's time is due.
    #[serde(rename = "Rang")]
    TimerDue,
    /// Another run's signal was taken.
    SignalTaken {
        /// The sender.
        from: RunId,
        /// Which of its signals.
        id: SignalId,
        /// What it says.
        signal: W::Signal,
    },
    /// A signal of ours is in its receiver's history.
    SignalReceipted {
        /// The receiver.
        to: RunId,
        /// Which signal.
        id: SignalId,
    },
    /// A signal of ours found no taker.
    SignalRefused {
        /// The receiver.
        to: RunId,
        /// Which signal.
        id: SignalId,
        /// Why.
        why: Refusal,
    },
    /// A person's wish was taken.
    Requested {
        /// The request's id.
        id: String,
        /// Who.
        who: String,
        /// Why, in their words.
        why: String,
        /// What.
        signal: W::Signal,
    },
    /// A person sent the run back to an earlier record.
    Reset {
        /// The request's id.
        id: String,
        /// Who.
        who: String,
        /// Why, in their words.
        why: String,
        /// To which record.
        to: Seq,
        /// That record's state.
        then: W::State,
    },
}

/// A record as stored. The last one of a run is its snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Record<W: Workflow> {
    /// When it was decided, by the writer's clock.
    pub at: Timestamp,
    /// Checksum of the record before; 0 for the first.
    pub prev: Sum,
    /// The build that wrote it.
    pub build: String,
    /// Store ids of the messages that caused it, for people and for trace links.
    pub causes: Vec<String>,
    /// What happened, in the order in which it was decided.
    pub events: Vec<HistoryEvent<W>>,
    /// The run that results. Its `seq` is the record's.
    pub run: Run<W>,
}

impl<W: Workflow> Message for Record<W> {
    const KIND: &'static str = "record";
}
