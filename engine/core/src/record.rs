//! Record of one transition: the accepted events, and the resulting run.

use crate::{run::Run, workflow::Workflow};
use dormer_proto::{
    envelope::Message,
    id::{Attempt, RunId, Seq, SignalId, Sum, Timestamp},
    message::{Failure, ObjectRef, Refusal, Version},
};
use serde::{Deserialize, Serialize};

/// Event of a run's history, in the past tense.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum HistoryEvent<W: Workflow> {
    /// The run began.
    Started,
    /// The world changed.
    Observed {
        object: ObjectRef,
        /// Version of the observation.
        version: Version,
        /// Fact. `None`: the object is gone.
        fact: Option<W::Fact>,
    },
    /// An attempt succeeded.
    TaskFinished {
        /// Record that ordered the task.
        seq: Seq,
        /// Index of the task in that record.
        ordinal: u16,
        attempt: Attempt,
        worker: String,
        outcome: W::Outcome,
    },
    /// An attempt failed.
    TaskFailed {
        /// Record that ordered the task.
        seq: Seq,
        /// Index of the task in that record.
        ordinal: u16,
        attempt: Attempt,
        worker: String,
        failure: Failure,
    },
    /// An alarm fired: every deadline at or before the record's time is due.
    #[serde(rename = "Rang")]
    TimerDue,
    /// Another run's signal was accepted.
    SignalTaken {
        /// The sender.
        from: RunId,
        id: SignalId,
        /// Checksum of the sender's record. Absent in records of earlier builds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        issued: Option<Sum>,
        /// Content of the signal.
        signal: W::Signal,
    },
    /// A signal of this run is in its receiver's history.
    SignalReceipted {
        /// Receiver.
        to: RunId,
        id: SignalId,
        /// Highest signal in the receiver's history, if that is one that this run has lost: the signal was not taken,
        /// and is sent again under a new id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        behind: Option<SignalId>,
    },
    /// A signal of this run was refused.
    SignalRefused {
        /// Receiver.
        to: RunId,
        id: SignalId,
        /// Reason of the refusal.
        why: Refusal,
    },
    /// A person's request was accepted.
    Requested {
        id: String,
        /// Name of the person.
        who: String,
        /// Reason in the person's words.
        why: String,
        signal: W::Signal,
    },
    /// A person reset the run to an earlier record.
    Reset {
        /// Id of the request.
        id: String,
        /// Name of the person.
        who: String,
        /// Reason in the person's words.
        why: String,
        /// Record that the run goes back to.
        to: Seq,
        /// State in that record.
        then: W::State,
    },
}

/// Stored record. The last one of a run is its snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Record<W: Workflow> {
    /// Time of the decision, by the writer's clock.
    pub at: Timestamp,
    /// Checksum of the previous record; 0 for the first.
    pub prev: Sum,
    /// Build that wrote it.
    pub build: String,
    /// Store ids of the messages that caused it, for people and for trace links.
    pub causes: Vec<String>,
    /// Events, in the order of the decisions.
    pub events: Vec<HistoryEvent<W>>,
    /// Resulting run. Its `seq` is the record's.
    pub run: Run<W>,
}

impl<W: Workflow> Message for Record<W> {
    const KIND: &'static str = "record";
}
