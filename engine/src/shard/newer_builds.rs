//! Messages that this build leaves to a newer one: those that it cannot read, and those to runs that it cannot read.
//!
//! They wait in the inbox. Two kinds would pile up there, because their senders repeat them until they have an
//! effect: due timers (the sweep fires them again) and facts (the watcher publishes them every minute). So only the
//! latest due timer of a run is kept, and only the newest fact about an object.

use super::intake::Received;
use crate::port::Ack;
use dormer_engine_core::Workflow;
use dormer_proto::{
    id::{RunId, Timestamp},
    message::{Inbound, ObjectRef, Version},
};
use std::collections::HashMap;

/// Redelivery delay of a message for a newer build, in milliseconds: long enough for thousands of them to cost
/// little, short enough for an upgrade with both builds running.
pub(super) const NEWER_AGAIN_MS: u64 = 5_000;
/// Time after which a message that was not redelivered no longer waits: the newer build has taken it.
const GONE_MS: u64 = 3 * NEWER_AGAIN_MS;
/// Most runs with known waiting messages. Beyond it all are forgotten, and a few messages wait twice.
const RUNS_MAX: usize = 20_000;

/// Message that waits in the inbox for a newer build.
struct WaitingMessage {
    cause: String,
    since: Timestamp,
}

impl WaitingMessage {
    /// Whether it differs from the message `cause` and still waits.
    fn replaces(&self, cause: &str, at: Timestamp) -> bool {
        self.cause != cause && at.since_ms(self.since) <= GONE_MS
    }
}

/// Repeated messages that wait for a newer build.
#[derive(Default)]
struct Repeated {
    /// Latest due timer. It covers every deadline of an earlier one. The reverse does not hold: the newer build may
    /// have taken the earlier one, and wait for this one.
    timer_due: Option<WaitingMessage>,
    /// Earlier due timers. Each is dropped when it is redelivered.
    earlier: Vec<WaitingMessage>,
    facts: HashMap<ObjectRef, (Version, WaitingMessage)>,
}

/// Runs that are left to a newer build.
#[derive(Default)]
pub(super) struct DeferredRuns {
    runs: HashMap<RunId, Repeated>,
    said: bool,
}

impl DeferredRuns {
    /// Acknowledgement of a newer build's message: it waits.
    pub(super) fn unreadable(&mut self, cause: &str, why: &impl std::fmt::Display) -> Ack {
        if !std::mem::replace(&mut self.said, true) {
            tracing::warn!(
                cause,
                %why,
                "messages of a newer build wait for an engine of that build"
            );
        }
        Ack::Newer(NEWER_AGAIN_MS)
    }

    /// Notes that `run` could be read.
    pub(super) fn readable(&mut self, run: &RunId) {
        if !self.runs.is_empty() {
            self.runs.remove(run);
        }
    }

    /// Acknowledgements, at this time, of messages to a run whose record a newer build wrote.
    pub(super) fn acks<W: Workflow>(
        &mut self,
        at: Timestamp,
        run: &RunId,
        messages: &[Received<W>],
    ) -> Vec<(u64, Ack)> {
        if self.runs.len() >= RUNS_MAX {
            self.runs.clear();
        }
        let repeated = self.runs.entry(run.clone()).or_insert_with(|| {
            tracing::warn!(
                %run,
                "a newer build wrote this run: it waits for an engine of that build"
            );
            Repeated::default()
        });
        messages
            .iter()
            .map(|received| (received.token, repeated.ack(at, received)))
            .collect()
    }
}

impl Repeated {
    /// Acknowledgement of a due timer: it waits, unless a later one already waits.
    fn timer_due(&mut self, at: Timestamp, cause: &str) -> Ack {
        self.earlier
            .retain(|timer_due| at.since_ms(timer_due.since) <= GONE_MS);
        if let Some(known) = self
            .earlier
            .iter()
            .position(|timer_due| timer_due.cause == cause)
        {
            self.earlier.swap_remove(known);
            return Ack::Done;
        }
        let before = self.timer_due.replace(WaitingMessage {
            cause: cause.to_owned(),
            since: at,
        });
        self.earlier
            .extend(before.filter(|timer_due| timer_due.cause != cause));
        Ack::Newer(NEWER_AGAIN_MS)
    }

    fn ack<W: Workflow>(&mut self, at: Timestamp, received: &Received<W>) -> Ack {
        let this = || WaitingMessage {
            cause: received.cause.clone(),
            since: at,
        };
        match &received.message.body {
            // What it is cannot be read, so it replaces nothing.
            _ if received.fault.is_some() => {}
            Inbound::TimerDue => return self.timer_due(at, &received.cause),
            Inbound::Observed(observation) => {
                let known = self.facts.get(&observation.object);
                if known.is_some_and(|(newest, other)| {
                    *newest >= observation.version && other.replaces(&received.cause, at)
                }) {
                    return Ack::Done;
                }
                self.facts
                    .insert(observation.object.clone(), (observation.version, this()));
            }
            Inbound::Reported(_)
            | Inbound::Signalled(_)
            | Inbound::Answered(_)
            | Inbound::Requested(_) => {}
        }
        Ack::Newer(NEWER_AGAIN_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_due_timers_the_later_is_kept_for_the_newer_build() {
        let mut repeated = Repeated::default();
        let mut timer_due = |cause: &str, ms| repeated.timer_due(Timestamp(ms), cause);
        let again = Ack::Newer(NEWER_AGAIN_MS);
        assert_eq!(timer_due("1", 0), again);
        assert_eq!(
            timer_due("2", 4_000),
            again,
            "the first may be taken by now"
        );
        assert_eq!(
            timer_due("1", 5_000),
            Ack::Done,
            "it was not, and the second rings for it"
        );
        for ms in [9_000, 14_000, 19_000] {
            assert_eq!(timer_due("2", ms), again, "it stays until it is taken");
        }
    }
}
