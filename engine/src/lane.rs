//! A lane: the one owner of its runs, and the loop's five steps over a batch of letters.
//!
//! The order of these steps is the whole recovery story: **load** (a run not in memory is read, and what it has
//! outstanding is carried out), **decide** in memory, **append** on the condition that nobody was faster, **carry
//! out** the effects, **settle** the letters. Whatever goes wrong after the append drops the run from memory; the
//! unsettled letters come again, the load carries out what was lost, and the fences recognise what is on record.

mod alarm;
mod cache;
mod carry;
mod decide;
mod intake;
mod newer;
mod refused;
mod store;

use crate::{
    port::{Clock, DeadLetter, DeadLetters, History, Inbox, Ports, Settle, StoreError},
    witness::Witness,
};
use cache::{Cache, Cached};
use carry::Work;
use decide::Plan;
use dormer_engine_core::{
    Effects, Record, Run, Workflow,
    unfenced::{Fence, stands},
};
use dormer_proto::{
    envelope::{self, DecodeError},
    id::{Revision, RunId},
};
pub use intake::Arrived;
use intake::{Mail, sort};
use newer::{Left, read_up_to};
use refused::Refused;
use std::{collections::BTreeMap, sync::Arc};

/// How long letters wait when the store did not answer, in milliseconds.
const UNAVAILABLE_AGAIN_MS: u64 = 1_000;

/// What a lane has seen: counters for metrics, and for a person who asks "is it alive?".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records appended.
    pub records: u64,
    /// Events in them.
    pub events: u64,
    /// Letters dropped, of whatever kind.
    pub dropped: u64,
    /// Letters of another incarnation or of a lost tail: never applied.
    pub unknown: u64,
    /// Appends that somebody else was faster with.
    pub conflicts: u64,
    /// Letters put to the dead letters.
    pub dead: u64,
    /// Letters and records that a newer build wrote.
    pub newer: u64,
    /// Records that nobody will ever store, as often as they were tried.
    pub refused: u64,
}

/// One lane of an engine.
pub struct Lane<W: Workflow, P: Ports, E: Witness<W> = ()> {
    ports: Arc<P>,
    build: String,
    cache: Cache<W>,
    witness: Arc<E>,
    left: Left,
    refused: Refused,
    /// What this lane has done so far.
    pub tally: Tally,
}

/// A run as the turn works on it.
struct Open<W: Workflow> {
    /// `None`: it does not exist yet.
    run: Option<Run<W>>,
    revision: Option<Revision>,
    /// Read in this turn, so that a drop is final.
    fresh: bool,
}

impl<W: Workflow, P: Ports> Lane<W, P> {
    /// A lane that keeps at most `cached_max` runs in memory; `build` is written into its records.
    pub fn new(ports: Arc<P>, build: impl Into<String>, cached_max: usize) -> Self {
        Lane::seen_by(ports, build, cached_max, Arc::default())
    }
}

impl<W: Workflow, P: Ports, E: Witness<W>> Lane<W, P, E> {
    /// A lane of which `witness` is told what it does.
    pub fn seen_by(
        ports: Arc<P>,
        build: impl Into<String>,
        cached_max: usize,
        witness: Arc<E>,
    ) -> Self {
        let build = build.into();
        let cache = Cache::new(cached_max);
        let left = Left::default();
        let refused = Refused::default();
        let tally = Tally::default();
        Self {
            ports,
            build,
            cache,
            witness,
            left,
            refused,
            tally,
        }
    }

    /// Works off a batch of deliveries.
    ///
    /// # Errors
    /// [`StoreError::Broken`]: the engine must stop. An unavailable store is no error: the letters come again.
    pub async fn turn(&mut self, batch: Vec<crate::port::Delivery>) -> Result<(), StoreError> {
        self.work_off(batch.into_iter().map(Arrived::open).collect())
            .await
    }

    /// Works off a batch that was opened already.
    ///
    /// # Errors
    /// As [`Lane::turn`].
    pub async fn work_off(&mut self, batch: Vec<Arrived<W>>) -> Result<(), StoreError> {
        let sorted = sort::<W>(batch);
        let mut fates = Vec::new();
        for (delivery, error) in sorted.unreadable {
            fates.push((delivery.token, self.unreadable(delivery, &error).await));
        }
        let result = self.transitions(sorted.mail, &mut fates).await;
        self.ports.inbox().settle(fates).await;
        result
    }

    /// Carries out everything that these runs have outstanding, as at a foreign load.
    ///
    /// # Errors
    /// As [`Lane::turn`].
    pub async fn revisit(&mut self, runs: Vec<RunId>) -> Result<(), StoreError> {
        for run in &runs {
            self.cache.forget(run);
        }
        self.load(&runs).await.map(drop)
    }

    /// A letter that cannot be read: left alone if a newer build wrote it, else put to the dead letters.
    async fn unreadable(&mut self, delivery: crate::port::Delivery, error: &DecodeError) -> Settle {
        if matches!(error, DecodeError::Newer { .. }) {
            self.tally.newer += 1;
            return self.left.unreadable(&delivery.cause, error);
        }
        self.bury(None, delivery.cause, delivery.bytes, error.to_string())
            .await
    }

    async fn bury(
        &mut self,
        run: Option<RunId>,
        origin: String,
        bytes: Vec<u8>,
        reason: String,
    ) -> Settle {
        let at = self.ports.clock().now();
        tracing::warn!(?run, origin, reason, "a letter goes to the dead letters");
        let letter = DeadLetter {
            id: 0,
            run,
            reason,
            at,
            origin,
            bytes,
        };
        match self.ports.dead().put(letter).await {
            Ok(()) => {
                self.tally.dead += 1;
                self.witness.buried();
                Settle::Done
            }
            Err(_) => Settle::Again(UNAVAILABLE_AGAIN_MS),
        }
    }

    async fn transitions(
        &mut self,
        mail: BTreeMap<RunId, Vec<Mail<W>>>,
        fates: &mut Vec<(u64, Settle)>,
    ) -> Result<(), StoreError> {
        let runs: Vec<RunId> = mail.keys().cloned().collect();
        let mut open = match self.load(&runs).await {
            Ok(open) => open,
            Err(StoreError::Unavailable(why)) => {
                tracing::debug!(why, "letters wait for the store");
                again(mail, fates);
                return Ok(());
            }
            Err(broken) => return Err(broken),
        };
        let mut plans = Vec::new();
        let mut doubtful: BTreeMap<RunId, Vec<Mail<W>>> = BTreeMap::new();
        for (run, mut letters) in mail {
            let Some(opened) = open.remove(&run) else {
                fates.extend(self.left.fates(self.ports.clock().now(), &run, &letters));
                continue;
            };
            let plan = self.decide(&run, opened, &mut letters).await;
            if plan.confirm {
                doubtful.insert(run, letters);
            } else {
                plans.push(plan);
            }
        }
        self.confirm(doubtful, &mut plans, fates).await?;
        self.store(plans, fates).await
    }

    /// Drops were decided on cached runs: read those runs again, and decide again.
    async fn confirm(
        &mut self,
        doubtful: BTreeMap<RunId, Vec<Mail<W>>>,
        plans: &mut Vec<Plan<W, E::Glance>>,
        fates: &mut Vec<(u64, Settle)>,
    ) -> Result<(), StoreError> {
        if doubtful.is_empty() {
            return Ok(());
        }
        let runs: Vec<RunId> = doubtful.keys().cloned().collect();
        let mut open = match self.reload(&runs).await {
            Ok(open) => open,
            Err(StoreError::Unavailable(_)) => {
                again(doubtful, fates);
                return Ok(());
            }
            Err(broken) => return Err(broken),
        };
        for (run, mut letters) in doubtful {
            match open.remove(&run) {
                Some(opened) => plans.push(self.decide(&run, opened, &mut letters).await),
                None => fates.extend(self.left.fates(self.ports.clock().now(), &run, &letters)),
            }
        }
        Ok(())
    }

    /// Step 1: the runs, from memory or from the store. Those read have what is outstanding carried out.
    async fn load(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, Open<W>>, StoreError> {
        let mut open = BTreeMap::new();
        let mut absent = Vec::new();
        for run in runs {
            match self.cache.take(run) {
                Some(Cached {
                    run: cached,
                    revision,
                }) => {
                    let fresh = self.ports.history().exclusive();
                    open.insert(
                        run.clone(),
                        Open {
                            run: Some(cached),
                            revision: Some(revision),
                            fresh,
                        },
                    );
                }
                None => absent.push(run.clone()),
            }
        }
        open.extend(self.reload(&absent).await?);
        Ok(open)
    }

    /// Reads runs from the store's leader. A run whose record this build cannot read is left out.
    async fn reload(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, Open<W>>, StoreError> {
        if runs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let stored = self.ports.history().load(runs).await?;
        let mut open = BTreeMap::new();
        let mut work = Work::new(self.ports.history().incarnation());
        for (run, stored) in runs.iter().zip(stored) {
            self.cache.check(run, stored.as_ref().map(|s| s.revision))?;
            let Some(stored) = stored else {
                open.insert(
                    run.clone(),
                    Open {
                        run: None,
                        revision: None,
                        fresh: true,
                    },
                );
                continue;
            };
            match envelope::decode::<Record<W>>(&stored.bytes, read_up_to(W::SCHEMA)) {
                Ok((record, sum)) => {
                    self.left.readable(run);
                    let mut read = record.run;
                    read.sealed(sum);
                    if stands(Fence::Outstanding) {
                        work.add(&read, Effects::outstanding(&read));
                    }
                    open.insert(
                        run.clone(),
                        Open {
                            run: Some(read),
                            revision: Some(stored.revision),
                            fresh: true,
                        },
                    );
                }
                Err(DecodeError::Newer { .. }) => self.tally.newer += 1,
                Err(damage) => {
                    return Err(StoreError::Broken(format!(
                        "the last record of {run} (revision {}) cannot be read: {damage}",
                        stored.revision
                    )));
                }
            }
        }
        work.carry_out(self.ports.as_ref()).await?;
        Ok(open)
    }
}

fn again<W: Workflow>(mail: BTreeMap<RunId, Vec<Mail<W>>>, fates: &mut Vec<(u64, Settle)>) {
    let letters = mail.into_values().flatten();
    fates.extend(letters.map(|mail| (mail.token, Settle::Again(UNAVAILABLE_AGAIN_MS))));
}
