//! A run's head in the headers of its records, so that heads are read without bodies.

use super::link::{header_of, number};
use crate::port::{Append, Expected, Head};
use async_nats::{HeaderMap, Message};
use dormer_proto::{
    id::{Revision, Seq, Timestamp},
    subject::{CLOSED_HEADER, DEADLINE_HEADER, Names, QUIET_HEADER, SEQ_HEADER},
};

/// Headers of an appended record.
pub(super) fn headers(append: &Append) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let expected = match append.expected {
        Expected::Nothing => Some(0),
        Expected::At(revision) => Some(revision.0),
        #[cfg(feature = "unfenced")]
        Expected::Anything => None,
    };
    if let Some(sequence) = expected {
        headers.insert(
            "Nats-Expected-Last-Subject-Sequence",
            sequence.to_string().as_str(),
        );
    }
    headers.insert(SEQ_HEADER, append.seq.to_string().as_str());
    if let Some(deadline) = append.deadline {
        headers.insert(DEADLINE_HEADER, deadline.0.to_string().as_str());
    }
    if let Some(closed) = append.closed {
        headers.insert(CLOSED_HEADER, closed.0.to_string().as_str());
    }
    if append.quiet {
        headers.insert(QUIET_HEADER, "1");
    }
    headers
}

/// Head that a record's headers tell. `None`: the message is no record.
pub(super) fn head(message: &Message, sequence: u64) -> Option<Head> {
    Some(Head {
        run: Names::run_of(message.subject.as_str())?,
        revision: Revision(sequence),
        seq: Seq(number(message, SEQ_HEADER)?),
        deadline: number(message, DEADLINE_HEADER).map(Timestamp),
        closed: number(message, CLOSED_HEADER).map(Timestamp),
        quiet: header_of(message, QUIET_HEADER).is_some(),
    })
}
