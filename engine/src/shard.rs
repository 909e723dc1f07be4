//! Shard: the only owner of its runs, and the loop's five steps over a batch of messages.
//!
//! Recovery rests on the order of these steps:
//! 1. **Load**: a run that is not in memory is read, and its outstanding work is carried out.
//! 2. **Decide** in memory.
//! 3. **Append**, on condition that no other engine was faster.
//! 4. **Carry out** the effects.
//! 5. **Acknowledge** the messages.
//!
//! Any failure after the append drops the run from memory. The unacknowledged messages come again, the load carries out
//! what was lost, and the fences recognize what is on record.

mod alarm;
mod cache;
mod decide;
mod effects;
mod fault;
mod intake;
mod newer_builds;
mod oversize;
mod quarantine;
mod store;

use crate::{
    keyed::{self, RecordOf},
    observer::EngineObserver,
    port::{
        Ack, Clock, DeadLetter, DeadLetters, History, Inbox, MissedRecord, Ports, StoreError,
        Stored,
    },
    quarantine::KnownNotes,
};
use cache::{Cache, Cached, Contradiction};
use decide::TurnPlan;
use dormer_engine_core::{
    Effects, Record, Run, Workflow,
    unfenced::{Fence, enforced},
};
use dormer_nats::history_keys::Unproven;
use dormer_proto::{
    envelope::{self, DecodeError},
    id::{Revision, RunId, Timestamp},
};
use effects::EffectBatch;
use fault::{RunFault, guarded};
pub use intake::DecodedDelivery;
use intake::{Received, read_up_to, sort};
use newer_builds::DeferredRuns;
use std::{collections::BTreeMap, sync::Arc};

/// Redelivery delay of messages when the store did not answer, in milliseconds.
const UNAVAILABLE_AGAIN_MS: u64 = 1_000;

/// Counters of a shard, for metrics and liveness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records appended.
    pub records: u64,
    /// Events in them.
    pub events: u64,
    /// Messages dropped for any reason.
    pub dropped: u64,
    /// Messages of another incarnation or a lost tail, which are never applied.
    pub unknown: u64,
    /// Appends for which another engine was faster.
    pub conflicts: u64,
    /// Messages that were dead-lettered.
    pub dead: u64,
    /// Messages and records of a newer build.
    pub newer: u64,
    /// Tries to append records that the store will never accept.
    pub refused: u64,
    /// Runs that were quarantined, each time.
    pub quarantined: u64,
    /// Messages to quarantined runs that were taken out of the inbox.
    pub taken_away: u64,
}

/// One worker loop of an engine: it decides and stores the records of a fixed part of all runs, one turn at a time.
pub struct Shard<W: Workflow, P: Ports, E: EngineObserver<W> = ()> {
    ports: Arc<P>,
    build: String,
    cache: Cache<W>,
    observer: Arc<E>,
    deferred: DeferredRuns,
    quarantine_notes: Arc<KnownNotes>,
    /// Runs of this turn whose last record is damaged, or not proven.
    damaged: BTreeMap<RunId, RunFault>,
    /// Runs of this turn whose last record was not found, each with what was found.
    in_doubt_this_turn: BTreeMap<RunId, String>,
    /// Notes about doubt to write at the end of the turn, each with the record that was not found. `None`: the doubt has
    /// ended.
    notes_to_write: BTreeMap<RunId, Option<MissedRecord>>,
    /// Runs whose full outbox was doubted lately, each with the time of the read.
    full_outboxes: BTreeMap<RunId, Timestamp>,
    /// Repeats of messages that were dead-lettered although they can be read.
    too_large: oversize::TooLarge,
    /// Counters so far.
    pub counters: Counters,
}

/// Run during a turn.
struct OpenRun<W: Workflow> {
    /// The run. `None`: it does not exist yet.
    run: Option<Run<W>>,
    revision: Option<Revision>,
    /// Whether it was read in this turn, so that a drop is final.
    fresh: bool,
}

impl<W: Workflow, P: Ports> Shard<W, P> {
    /// Shard with at most `cached_max` runs in memory. It writes `build` into its records.
    pub fn new(ports: Arc<P>, build: impl Into<String>, cached_max: usize) -> Self {
        Shard::observed_by(ports, build, cached_max, Arc::default())
    }
}

impl<W: Workflow, P: Ports, E: EngineObserver<W>> Shard<W, P, E> {
    /// Shard as [`Shard::new`] makes it, which reports its steps to `observer`.
    pub fn observed_by(
        ports: Arc<P>,
        build: impl Into<String>,
        cached_max: usize,
        observer: Arc<E>,
    ) -> Self {
        let build = build.into();
        let cache = Cache::new(cached_max);
        let deferred = DeferredRuns::default();
        let counters = Counters::default();
        Self {
            ports,
            build,
            cache,
            observer,
            deferred,
            quarantine_notes: Arc::default(),
            damaged: BTreeMap::new(),
            in_doubt_this_turn: BTreeMap::new(),
            notes_to_write: BTreeMap::new(),
            full_outboxes: BTreeMap::new(),
            too_large: oversize::TooLarge::default(),
            counters,
        }
    }

    /// Shares the notes about quarantined runs with the engine's other shards.
    #[must_use]
    pub fn with_quarantine_notes(self, quarantine_notes: Arc<KnownNotes>) -> Self {
        Self {
            quarantine_notes,
            ..self
        }
    }

    /// Processes a batch of deliveries.
    ///
    /// # Errors
    /// [`StoreError::Broken`]: the engine must stop. An unavailable store is no error, because the messages come
    /// again.
    pub async fn turn(&mut self, batch: Vec<crate::port::Delivery>) -> Result<(), StoreError> {
        self.turn_decoded(batch.into_iter().map(DecodedDelivery::decode).collect())
            .await
    }

    /// Processes a batch of decoded deliveries.
    ///
    /// # Errors
    /// As [`Shard::turn`].
    pub async fn turn_decoded(&mut self, batch: Vec<DecodedDelivery<W>>) -> Result<(), StoreError> {
        let sorted = sort::<W>(batch);
        // What an earlier turn found, but could not finish, may be mended since.
        self.damaged.clear();
        self.in_doubt_this_turn.clear();
        let mut acks = Vec::new();
        for (delivery, error) in sorted.unreadable {
            acks.push((delivery.token, self.unreadable(delivery, &error).await));
        }
        let result = self.transitions(sorted.received, &mut acks).await;
        self.ports.inbox().acknowledge(acks).await;
        self.note_doubts().await;
        result
    }

    /// Carries out everything outstanding of these runs, as after a load of a foreign revision.
    ///
    /// # Errors
    /// As [`Shard::turn`].
    pub async fn revisit(&mut self, runs: Vec<RunId>) -> Result<(), StoreError> {
        for run in &runs {
            self.cache.forget(run);
        }
        let loaded = self.load(&runs).await.map(drop);
        for (run, RunFault { code, why }) in std::mem::take(&mut self.damaged) {
            tracing::warn!(%run, code, why, "what is outstanding of a run cannot be read");
        }
        self.note_doubts().await;
        match std::mem::take(&mut self.in_doubt_this_turn).pop_first() {
            Some((_, what)) => loaded.and(Err(StoreError::Unavailable(what))),
            None => loaded,
        }
    }

    /// Handles an unreadable message: it waits if a newer build wrote it, otherwise it is dead-lettered.
    async fn unreadable(&mut self, delivery: crate::port::Delivery, error: &DecodeError) -> Ack {
        if matches!(error, DecodeError::Newer { .. }) {
            self.counters.newer += 1;
            return self.deferred.unreadable(&delivery.cause, error);
        }
        self.dead_letter(None, delivery.cause, delivery.bytes, error.to_string())
            .await
    }

    async fn dead_letter(
        &mut self,
        run: Option<RunId>,
        origin: String,
        bytes: Vec<u8>,
        reason: String,
    ) -> Ack {
        let at = self.ports.clock().now();
        tracing::warn!(?run, origin, reason, "a message is dead-lettered");
        let message = DeadLetter {
            id: 0,
            run,
            reason,
            at,
            origin,
            bytes,
        };
        match self.ports.dead().put(message).await {
            Ok(()) => {
                self.counters.dead += 1;
                self.notify(|observer| observer.dead_lettered());
                Ack::Done
            }
            Err(_) => Ack::Again(UNAVAILABLE_AGAIN_MS),
        }
    }

    async fn transitions(
        &mut self,
        received: BTreeMap<RunId, Vec<Received<W>>>,
        acks: &mut Vec<(u64, Ack)>,
    ) -> Result<(), StoreError> {
        let received = self.without_quarantined(received, acks).await;
        let runs: Vec<RunId> = received.keys().cloned().collect();
        let mut open = match self.load(&runs).await {
            Ok(open) => open,
            Err(StoreError::Unavailable(why)) => {
                tracing::debug!(why, "messages wait for the store");
                again(received, acks);
                return Ok(());
            }
            Err(broken) => return Err(broken),
        };
        let mut plans = Vec::new();
        let mut doubtful: BTreeMap<RunId, Vec<Received<W>>> = BTreeMap::new();
        for (run, messages) in received {
            let Some(opened) = open.remove(&run) else {
                self.not_opened(&run, messages, acks).await;
                continue;
            };
            let mut plan = self.decide(&run, opened, messages).await;
            if plan.must_reread {
                doubtful.insert(run, plan.messages);
            } else if let Some(fault) = plan.fault.take() {
                self.quarantine(&run, fault, plan.messages, acks).await;
            } else {
                plans.push(plan);
            }
        }
        self.confirm(doubtful, &mut plans, acks).await?;
        self.store_or_split(plans, acks).await
    }

    /// Messages to a run whose last record this build cannot read: it is a newer build's, damaged, not proven or not
    /// there.
    async fn not_opened(
        &mut self,
        run: &RunId,
        messages: Vec<Received<W>>,
        acks: &mut Vec<(u64, Ack)>,
    ) {
        if let Some(fault) = self.damaged.remove(run) {
            self.quarantine(run, fault, messages, acks).await;
        } else if let Some(what) = self.in_doubt_this_turn.remove(run) {
            tracing::debug!(what, "messages to a run wait until it is read again");
            again(BTreeMap::from([(run.clone(), messages)]), acks);
        } else {
            acks.extend(self.deferred.acks(self.ports.clock().now(), run, &messages));
        }
    }

    /// Reads runs again whose drops were decided on cached state, and decides again.
    async fn confirm(
        &mut self,
        doubtful: BTreeMap<RunId, Vec<Received<W>>>,
        plans: &mut Vec<TurnPlan<W, E::StateBefore>>,
        acks: &mut Vec<(u64, Ack)>,
    ) -> Result<(), StoreError> {
        if doubtful.is_empty() {
            return Ok(());
        }
        let runs: Vec<RunId> = doubtful.keys().cloned().collect();
        let mut open = match self.reload(&runs).await {
            Ok(open) => open,
            Err(StoreError::Unavailable(_)) => {
                again(doubtful, acks);
                return Ok(());
            }
            Err(broken) => return Err(broken),
        };
        for (run, messages) in doubtful {
            let Some(opened) = open.remove(&run) else {
                self.not_opened(&run, messages, acks).await;
                continue;
            };
            let mut plan = self.decide(&run, opened, messages).await;
            match plan.fault.take() {
                Some(fault) => self.quarantine(&run, fault, plan.messages, acks).await,
                None => plans.push(plan),
            }
        }
        Ok(())
    }

    /// Step 1: takes the runs from memory or the store. Outstanding work of those read is carried out.
    async fn load(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, OpenRun<W>>, StoreError> {
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
                        OpenRun {
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

    /// Whether this shard may act on a stored record of `run`.
    fn verify_record(&self, run: &RunId, bytes: &[u8]) -> Result<(), Unproven> {
        let incarnation = self.ports.history().incarnation();
        let of = RecordOf { incarnation, run };
        keyed::verify_if_keyed(self.ports.history_keys(), of, bytes)
    }

    /// Tells the observer. A panic of it changes nothing: it decides nothing.
    fn notify(&self, notify: impl FnOnce(&E)) {
        if let Err(fault) = guarded("the observer", || notify(&self.observer)) {
            tracing::error!(
                why = fault.why,
                "the observer panicked; metrics and logs lack this step"
            );
        }
    }

    /// Reads runs from the store's leader. A run whose record this build cannot read is left out.
    async fn reload(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, OpenRun<W>>, StoreError> {
        if runs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let stored = self.ports.history().load(runs).await?;
        let mut open = BTreeMap::new();
        let mut work = EffectBatch::new(self.ports.history().incarnation());
        for (run, stored) in runs.iter().zip(stored) {
            let found = stored.as_ref().map(|stored| stored.revision);
            if self.is_contradicted(run, found)? {
                continue;
            }
            let Some(stored) = stored else {
                let absent = OpenRun {
                    run: None,
                    revision: None,
                    fresh: true,
                };
                open.insert(run.clone(), absent);
                continue;
            };
            let read = guarded("reading the last record", || self.read(run, &stored));
            match read.flatten() {
                Ok(Some((opened, outstanding))) => {
                    work.merge(outstanding);
                    open.insert(run.clone(), opened);
                }
                Ok(None) => self.counters.newer += 1,
                Err(fault) => drop(self.damaged.insert(run.clone(), fault)),
            }
        }
        work.carry_out(self.ports.as_ref()).await?;
        Ok(open)
    }

    /// Whether the store has not what it acknowledged of this run. Its messages wait, and it alone is quarantined if it
    /// stays so.
    ///
    /// # Errors
    /// [`StoreError::Broken`]: no record of this store can be trusted.
    fn is_contradicted(
        &mut self,
        run: &RunId,
        found: Option<Revision>,
    ) -> Result<bool, StoreError> {
        let now = self.ports.clock().now();
        if !enforced(Fence::LastRecord) {
            return Ok(false);
        }
        let before = self.cache.missed(run);
        let checked = self.cache.check(run, found, now);
        let missed = self.cache.missed(run);
        if let Err(Contradiction::Doubt(what) | Contradiction::Lost(what)) = &checked
            && let broken @ StoreError::Broken(_) = self.ports.history().contradiction(what.clone())
        {
            return Err(broken);
        }
        if before.is_some() != missed.is_some() {
            self.doubt(run, missed);
        }
        let Err(contradiction) = checked else {
            return Ok(false);
        };
        match contradiction {
            Contradiction::Doubt(what) if !enforced(Fence::DoubtAlone) => {
                return Err(StoreError::Unavailable(what));
            }
            Contradiction::Doubt(what) => drop(self.in_doubt_this_turn.insert(run.clone(), what)),
            Contradiction::Lost(what) => {
                drop(self.damaged.insert(run.clone(), RunFault::lost(what)));
            }
        }
        Ok(true)
    }

    /// Reads a stored run, with what it has outstanding. `None`: a newer build wrote it.
    fn read(
        &mut self,
        run: &RunId,
        stored: &Stored,
    ) -> Result<Option<(OpenRun<W>, EffectBatch)>, RunFault> {
        let Stored { bytes, revision } = stored;
        // Before anything decodes its body. What a newer build wrote is left to it, and not acted on.
        if let Err(why) = self.verify_record(run, bytes)
            && !is_newer(bytes, read_up_to(W::SCHEMA))
        {
            return Err(RunFault::unproven(*revision, &why));
        }
        let (record, sum) = match envelope::decode::<Record<W>>(bytes, read_up_to(W::SCHEMA)) {
            Ok(decoded) => decoded,
            Err(DecodeError::Newer { .. }) => return Ok(None),
            Err(damage) => {
                let why = format!("the last record (revision {revision}): {damage}");
                return Err(RunFault::unreadable(why));
            }
        };
        self.deferred.readable(run);
        let mut read = record.run;
        if let Some(known) = self.cache.newer_than(run, read.seq)
            && self.ports.history_keys().is_some()
        {
            return Err(RunFault::older(*revision, read.seq, known));
        }
        read.set_sum(sum);
        let mut outstanding = EffectBatch::new(self.ports.history().incarnation());
        if enforced(Fence::Outstanding) {
            outstanding.add(&read, Effects::outstanding(&read));
        }
        let opened = OpenRun {
            run: Some(read),
            revision: Some(*revision),
            fresh: true,
        };
        Ok(Some((opened, outstanding)))
    }
}

/// Whether a newer build wrote this record, so that decoding stops before its body.
fn is_newer(bytes: &[u8], known_schema: u16) -> bool {
    envelope::parts(bytes)
        .is_ok_and(|parts| parts.version > envelope::VERSION || parts.schema > known_schema)
}

fn again<W: Workflow>(received: BTreeMap<RunId, Vec<Received<W>>>, acks: &mut Vec<(u64, Ack)>) {
    let messages = received.into_values().flatten();
    acks.extend(messages.map(|received| (received.token, Ack::Again(UNAVAILABLE_AGAIN_MS))));
}
