//! What this build leaves to a newer one: letters that it cannot read, and letters to runs that it cannot read.
//!
//! They wait in the inbox, whatever becomes of them later. Two kinds would pile up there, because somebody repeats them
//! for as long as they have no effect: rings (the sweep rings again) and facts (the watcher tells them every minute). Of
//! a run's rings the last to come is kept, of the facts about one object the newest.

use super::intake::Mail;
use crate::port::Settle;
use dormer_engine_core::{
    Workflow,
    unfenced::{Fence, stands},
};
use dormer_proto::{
    id::{RunId, Timestamp},
    message::{Inbound, ObjectRef, Version},
};
use std::collections::HashMap;

/// How long a letter waits that a newer build has to read, in milliseconds: long enough for thousands of them to cost
/// little, short enough for an upgrade with both builds at work.
pub(super) const NEWER_AGAIN_MS: u64 = 5_000;
/// A letter that has not come again for so long waits no more: the newer build has taken it.
const GONE_MS: u64 = 3 * NEWER_AGAIN_MS;
/// Runs of which the waiting letters are known. Beyond, all are forgotten: a few wait twice.
const RUNS_MAX: usize = 20_000;

/// Up to which schema a build that knows `schema` reads: in every production build, that one.
pub(super) fn read_up_to(schema: u16) -> u16 {
    if stands(Fence::Newer) {
        schema
    } else {
        u16::MAX
    }
}

/// A letter that waits.
struct Waiting {
    cause: String,
    seen: Timestamp,
}

impl Waiting {
    /// Whether it is another letter than the one named `cause`, and still waits.
    fn stands_for(&self, cause: &str, at: Timestamp) -> bool {
        self.cause != cause && at.since_ms(self.seen) <= GONE_MS
    }
}

/// What waits for a newer build of what would be repeated.
#[derive(Default)]
struct Repeated {
    /// The last ring to come. Whatever an earlier one rang for, this one rings for, too; the reverse does not hold: the
    /// newer build may have taken the earlier one, and waits for this.
    ring: Option<Waiting>,
    /// Rings that came before it: each is dropped when it comes again.
    earlier: Vec<Waiting>,
    facts: HashMap<ObjectRef, (Version, Waiting)>,
}

/// The runs left to a newer build.
#[derive(Default)]
pub(super) struct Left {
    runs: HashMap<RunId, Repeated>,
    said: bool,
}

impl Left {
    /// A letter that a newer build wrote waits for it.
    pub(super) fn unreadable(&mut self, cause: &str, why: &impl std::fmt::Display) -> Settle {
        if !std::mem::replace(&mut self.said, true) {
            tracing::warn!(cause, %why, "letters of a newer build are left to one");
        }
        Settle::Again(NEWER_AGAIN_MS)
    }

    /// `run` was read after all.
    pub(super) fn readable(&mut self, run: &RunId) {
        if !self.runs.is_empty() {
            self.runs.remove(run);
        }
    }

    /// What becomes, at this time, of letters to a run whose record a newer build wrote.
    pub(super) fn fates<W: Workflow>(
        &mut self,
        at: Timestamp,
        run: &RunId,
        letters: &[Mail<W>],
    ) -> Vec<(u64, Settle)> {
        if self.runs.len() >= RUNS_MAX {
            self.runs.clear();
        }
        let repeated = self.runs.entry(run.clone()).or_insert_with(|| {
            tracing::warn!(%run, "a newer build wrote this run: it is left to one");
            Repeated::default()
        });
        letters
            .iter()
            .map(|mail| (mail.token, repeated.fate(at, mail)))
            .collect()
    }
}

impl Repeated {
    /// What becomes of a ring: it waits, unless one that came later waits in its place.
    fn ring(&mut self, at: Timestamp, cause: &str) -> Settle {
        self.earlier
            .retain(|ring| at.since_ms(ring.seen) <= GONE_MS);
        if let Some(known) = self.earlier.iter().position(|ring| ring.cause == cause) {
            self.earlier.swap_remove(known);
            return Settle::Done;
        }
        let before = self.ring.replace(Waiting {
            cause: cause.to_owned(),
            seen: at,
        });
        self.earlier
            .extend(before.filter(|ring| ring.cause != cause));
        Settle::Again(NEWER_AGAIN_MS)
    }

    fn fate<W: Workflow>(&mut self, at: Timestamp, mail: &Mail<W>) -> Settle {
        let this = || Waiting {
            cause: mail.cause.clone(),
            seen: at,
        };
        match &mail.letter.body {
            Inbound::Rang => return self.ring(at, &mail.cause),
            Inbound::Observed(seen) => {
                let known = self.facts.get(&seen.object);
                if known.is_some_and(|(newest, other)| {
                    *newest >= seen.version && other.stands_for(&mail.cause, at)
                }) {
                    return Settle::Done;
                }
                self.facts
                    .insert(seen.object.clone(), (seen.version, this()));
            }
            _ => {}
        }
        Settle::Again(NEWER_AGAIN_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_rings_the_later_waits_since_the_newer_build_may_have_taken_the_earlier() {
        let mut repeated = Repeated::default();
        let mut ring = |cause: &str, ms| repeated.ring(Timestamp(ms), cause);
        let again = Settle::Again(NEWER_AGAIN_MS);
        assert_eq!(ring("1", 0), again);
        assert_eq!(ring("2", 4_000), again, "the first may be taken by now");
        assert_eq!(
            ring("1", 5_000),
            Settle::Done,
            "it was not, and the second rings for it"
        );
        for ms in [9_000, 14_000, 19_000] {
            assert_eq!(ring("2", ms), again, "it stays until it is taken");
        }
    }
}
