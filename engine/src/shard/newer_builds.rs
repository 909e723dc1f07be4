//! What this build leaves to a newer one: messages that it cannot read, and messages to runs that it cannot read.
//!
//! They wait in the inbox, whatever becomes of them later. Two kinds would pile up there, because somebody repeats them
//! for as long as they have no effect: rings (the sweep rings again) and facts (the watcher tells them every minute). Of
//! a run's rings the last to come is kept, of the facts about one object the newest.

use super::intake::Received;
use crate::port::Ack;
use dormer_engine_core::{
    Workflow,
    unfenced::{Fence, enforced},
};
use dormer_proto::{
    id::{RunId, Timestamp},
    message::{Inbound, ObjectRef, Version},
};
use std::collections::HashMap;

/// How long a message waits that a newer build has to read, in milliseconds: long enough for thousands of them to cost
/// little, short enough for an upgrade with both builds at work.
pub(super) const NEWER_AGAIN_MS: u64 = 5_000;
/// A message that has not come again for so long waits no more: the newer build has taken it.
const GONE_MS: u64 = 3 * NEWER_AGAIN_MS;
/// Runs of which the waiting messages are known. Beyond, all are forgotten: a few wait twice.
const RUNS_MAX: usize = 20_000;

/// Up to which schema a build that knows `schema` reads: in every production build, that one.
pub(super) fn read_up_to(schema: u16) -> u16 {
    if enforced(Fence::Newer) {
        schema
    } else {
        u16::MAX
    }
}

/// A message that waits.
struct Waiting {
    cause: String,
    since: Timestamp,
}

impl Waiting {
    /// Whether it is another message than the one named `cause`, and still waits.
    fn replaces(&self, cause: &str, at: Timestamp) -> bool {
        self.cause != cause && at.since_ms(self.since) <= GONE_MS
    }
}

/// What waits for a newer build of what would be repeated.
#[derive(Default)]
struct Repeated {
    /// The last ring to come. Whatever an earlier one rang for, this one rings for, too; the reverse does not hold: the
    /// newer build may have taken the earlier one, and waits for this.
    timer_due: Option<Waiting>,
    /// Rings that came before it: each is dropped when it comes again.
    earlier: Vec<Waiting>,
    facts: HashMap<ObjectRef, (Version, Waiting)>,
}

/// The runs left to a newer build.
#[derive(Default)]
pub(super) struct DeferredRuns {
    runs: HashMap<RunId, Repeated>,
    said: bool,
}

impl DeferredRuns {
    /// A message that a newer build wrote waits for it.
    pub(super) fn unreadable(&mut self, cause: &str, why: &impl std::fmt::Display) -> Ack {
        if !std::mem::replace(&mut self.said, true) {
            tracing::warn!(cause, %why, "messages of a newer build are left to one");
        }
        Ack::Again(NEWER_AGAIN_MS)
    }

    /// `run` was read after all.
    pub(super) fn readable(&mut self, run: &RunId) {
        if !self.runs.is_empty() {
            self.runs.remove(run);
        }
    }

    /// What becomes, at this time, of messages to a run whose record a newer build wrote.
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
            tracing::warn!(%run, "a newer build wrote this run: it is left to one");
            Repeated::default()
        });
        messages
            .iter()
            .map(|received| (received.token, repeated.ack(at, received)))
            .collect()
    }
}

impl Repeated {
    /// What becomes of a ring: it waits, unless one that came later waits in its place.
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
        let before = self.timer_due.replace(Waiting {
            cause: cause.to_owned(),
            since: at,
        });
        self.earlier
            .extend(before.filter(|timer_due| timer_due.cause != cause));
        Ack::Again(NEWER_AGAIN_MS)
    }

    fn ack<W: Workflow>(&mut self, at: Timestamp, received: &Received<W>) -> Ack {
        let this = || Waiting {
            cause: received.cause.clone(),
            since: at,
        };
        match &received.message.body {
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
            _ => {}
        }
        Ack::Again(NEWER_AGAIN_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_due_timers_the_later_is_kept_for_the_newer_build() {
        let mut repeated = Repeated::default();
        let mut timer_due = |cause: &str, ms| repeated.timer_due(Timestamp(ms), cause);
        let again = Ack::Again(NEWER_AGAIN_MS);
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
