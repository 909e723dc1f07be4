//! What this build leaves to a newer one: letters that it cannot read, and letters to runs that it cannot read.
//!
//! They wait in the inbox, whatever becomes of them later. Two kinds would pile up there, because somebody repeats them
//! for as long as they have no effect: rings (the sweep rings again) and facts (the watcher tells them every minute). Of
//! the first none is kept, of the second the newest of each object.

use super::intake::Mail;
use crate::port::Settle;
use dormer_engine_core::Workflow;
use dormer_proto::{
    id::RunId,
    message::{Inbound, ObjectRef, Version},
};
use std::collections::HashMap;

/// How long a letter waits that a newer build has to read, in milliseconds: long enough for thousands of them to cost
/// little, short enough for an upgrade with both builds at work.
pub(super) const NEWER_AGAIN_MS: u64 = 10_000;
/// Runs of which the waiting facts are known. Beyond, all are forgotten: a few facts wait twice.
const RUNS_MAX: usize = 20_000;

type Facts = HashMap<ObjectRef, (Version, String)>;

/// The runs left to a newer build, and the newest fact of each object that waits for it.
#[derive(Default)]
pub(super) struct Left {
    runs: HashMap<RunId, Facts>,
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

    /// What becomes of letters to a run whose record a newer build wrote.
    pub(super) fn fates<W: Workflow>(
        &mut self,
        run: &RunId,
        letters: &[Mail<W>],
    ) -> Vec<(u64, Settle)> {
        if self.runs.len() >= RUNS_MAX {
            self.runs.clear();
        }
        let facts = self.runs.entry(run.clone()).or_insert_with(|| {
            tracing::warn!(%run, "a newer build wrote this run: it is left to one");
            Facts::new()
        });
        letters.iter().map(|mail| (mail.token, fate(facts, mail))).collect()
    }
}

fn fate<W: Workflow>(facts: &mut Facts, mail: &Mail<W>) -> Settle {
    match &mail.letter.body {
        Inbound::Rang => Settle::Done,
        Inbound::Observed(seen) => match facts.get(&seen.object) {
            Some((newest, cause)) if *newest >= seen.version && *cause != mail.cause => {
                Settle::Done
            }
            _ => {
                facts.insert(seen.object.clone(), (seen.version, mail.cause.clone()));
                Settle::Again(NEWER_AGAIN_MS)
            }
        },
        _ => Settle::Again(NEWER_AGAIN_MS),
    }
}
