//! Ids of traces and spans, derived from their subject: every process derives the same ones by itself, so no id is
//! lost when a process dies.
//!
//! A trace is an episode of a run. Below its root are the transitions, below each transition its tasks, below each
//! task its attempts, and below an attempt the worker's operations. Ids are lower-case hex, as in W3C Trace Context.

use crate::id::{Attempt, RunId, Seq, TaskId, Timestamp, hash64};
use std::fmt;

/// Id of a trace: an episode of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Id of a span. It is never zero, which means "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    /// Trace id of the episode of `run` that began with the record `episode`.
    ///
    /// A UID names a machine's run. A person names a rollout's, so the time at which it `began` distinguishes it from
    /// another cluster's.
    #[must_use]
    pub fn of(run: &RunId, began: Option<Timestamp>, episode: Seq) -> Self {
        let began = began.map_or(0, |at| at.0);
        let half = |word: &str| bytes(&format!("{word} {run} {began} {episode}"));
        let mut id = [0; 16];
        id[..8].copy_from_slice(&half("trace"));
        id[8..].copy_from_slice(&half("of"));
        Self(id)
    }
}

impl SpanId {
    /// Root span of a trace: the episode.
    #[must_use]
    pub fn episode(run: &RunId, episode: Seq) -> Self {
        Self(bytes(&format!("episode {run} {episode}")))
    }

    /// Span of a record.
    #[must_use]
    pub fn transition(run: &RunId, seq: Seq) -> Self {
        Self(bytes(&format!("transition {run} {seq}")))
    }

    /// Span of a task, from its first order to its end.
    #[must_use]
    pub fn task(task: &TaskId) -> Self {
        Self(bytes(&format!("task {task}")))
    }

    /// Span of an attempt, from its order to its report.
    #[must_use]
    pub fn attempt(task: &TaskId, attempt: Attempt) -> Self {
        Self(bytes(&format!("attempt {task} {attempt}")))
    }

    /// Span of a worker's operation for an attempt. `what` distinguishes it from the attempt's other operations.
    #[must_use]
    pub fn operation(task: &TaskId, attempt: Attempt, what: &str) -> Self {
        Self(bytes(&format!("deed {task} {attempt} {what}")))
    }
}

fn bytes(text: &str) -> [u8; 8] {
    hash64(text.as_bytes()).max(1).to_be_bytes()
}

impl fmt::Display for TraceId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:016x}", u64::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_the_same_in_every_process_and_every_build() {
        let run = RunId::new("machine", "u1").unwrap();
        let trace = TraceId::of(&run, None, Seq(1));
        assert_eq!(trace.to_string(), "3b2afa5d09fcdeabb426c3ec5b090316");
        assert_eq!(
            SpanId::episode(&run, Seq(1)).to_string(),
            "ac0163bbca9c06c6"
        );
        assert_ne!(trace, TraceId::of(&run, None, Seq(2)));
        assert_ne!(trace, TraceId::of(&run, Some(Timestamp(5)), Seq(1)));
        assert_eq!(trace, TraceId::of(&run, None, Seq(1)));
    }

    #[test]
    fn spans_of_one_trace_differ() {
        let run = RunId::new("machine", "u1").unwrap();
        let task = TaskId {
            run: run.clone(),
            seq: Seq(1),
            ordinal: 0,
        };
        let spans = [
            SpanId::episode(&run, Seq(1)),
            SpanId::transition(&run, Seq(1)),
            SpanId::task(&task),
            SpanId::attempt(&task, Attempt(1)),
            SpanId::attempt(&task, Attempt(2)),
            SpanId::operation(&task, Attempt(1), "command w 1"),
            SpanId::operation(&task, Attempt(1), "command w 2"),
        ];
        assert_eq!(spans.iter().collect::<BTreeSet<_>>().len(), spans.len());
    }
}
