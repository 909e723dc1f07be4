//! Steps 3 to 5: append the decisions, carry out the effects of stored records, and return the acknowledgements.

use super::{
    Shard, UNAVAILABLE_AGAIN_MS,
    cache::Cached,
    decide::TurnPlan,
    effects::EffectBatch,
    fault::{RunFault, guarded},
    intake::Received,
};
use crate::{
    keyed::{RecordOf, add_mac},
    observer::{Appended, EngineObserver},
    port::{Ack, Append, AppendError, History, Ports, StoreError},
};
use dormer_engine_core::{
    Answer, Effects, Record, Workflow,
    unfenced::{Fence, enforced},
};
use dormer_proto::{
    envelope::{self, EncodeError},
    id::{Revision, RunId},
};
use tokio::time::Instant;

/// Plan whose record is being appended.
struct PendingAppend<W: Workflow, G> {
    plan: TurnPlan<W, G>,
    written: WrittenRecord<W>,
}

/// Record as it is appended.
struct WrittenRecord<W: Workflow> {
    record: Record<W>,
    /// Effects, which are carried out if the record is stored.
    effects: EffectBatch,
    /// Size of the record.
    bytes: usize,
}

/// Results of a batch.
struct Batch<W: Workflow> {
    /// Effects to carry out after the append.
    effects: EffectBatch,
    /// Acknowledgements that are valid only if the effects were carried out.
    acks_after_effects: Vec<(u64, Ack)>,
    /// Acknowledgements that are valid in any case.
    acks: Vec<(u64, Ack)>,
    /// Records that could not be encoded.
    unwritten: u64,
    to_decide_again: UnstoredMessages<W>,
    /// Runs with a record stored in spite of a note.
    to_unquarantine: Vec<RunId>,
    /// Messages of runs that cannot continue: their records panic while they are written.
    faulty: Vec<(RunId, RunFault, Vec<Received<W>>)>,
}

/// Messages of one run whose common record is refused.
pub(super) struct RefusedMessages<W: Workflow> {
    pub(super) run: RunId,
    pub(super) messages: Vec<Received<W>>,
    /// Size of the record. `None`: it could not be written at all.
    pub(super) bytes: Option<usize>,
    pub(super) why: String,
}

/// Messages that are decided again in this turn.
pub(super) struct UnstoredMessages<W: Workflow> {
    /// Messages whose record is refused for good.
    pub(super) refused: Vec<RefusedMessages<W>>,
    /// Messages of runs for which another engine was, or may have been, faster.
    pub(super) conflicted: Vec<(RunId, Vec<Received<W>>)>,
}

impl<W: Workflow> Default for UnstoredMessages<W> {
    fn default() -> Self {
        Self {
            refused: Vec::new(),
            conflicted: Vec::new(),
        }
    }
}

impl<W: Workflow, P: Ports, E: EngineObserver<W>> Shard<W, P, E> {
    /// Appends, carries out the effects, and returns the acknowledgements. Returns the messages to decide again.
    pub(super) async fn store(
        &mut self,
        plans: Vec<TurnPlan<W, E::StateBefore>>,
        acks: &mut Vec<(u64, Ack)>,
    ) -> Result<UnstoredMessages<W>, StoreError> {
        let mut batch = Batch {
            effects: EffectBatch::new(self.ports.history().incarnation()),
            acks_after_effects: Vec::new(),
            acks: Vec::new(),
            unwritten: 0,
            to_decide_again: UnstoredMessages::default(),
            to_unquarantine: Vec::new(),
            faulty: Vec::new(),
        };
        let mut appends = Vec::new();
        let mut sent = Vec::new();
        for plan in plans {
            if let Some((append, one)) = self.prepare(plan, &mut batch) {
                appends.push(append);
                sent.push(one);
            }
        }
        if !enforced(Fence::EffectsAfterStore) {
            self.early(&sent).carry_out(self.ports.as_ref()).await?;
        }
        let results = self.append(appends, batch.unwritten).await;
        for (one, result) in sent.into_iter().zip(results) {
            match result {
                Ok(revision) => self.stored(one, revision, &mut batch),
                Err(error) => self.not_stored(one, &error, &mut batch),
            }
        }
        let Batch {
            effects,
            acks_after_effects,
            acks: decided,
            unwritten: _,
            to_decide_again,
            to_unquarantine,
            faulty,
        } = batch;
        acks.extend(decided);
        self.carry_out(effects, acks_after_effects, acks).await?;
        self.free(to_unquarantine).await;
        for (run, fault, messages) in faulty {
            self.quarantine(&run, fault, messages, acks).await;
        }
        Ok(to_decide_again)
    }

    /// Append of this plan, if it has a record. A plan without one is finished here.
    fn prepare(
        &mut self,
        mut plan: TurnPlan<W, E::StateBefore>,
        batch: &mut Batch<W>,
    ) -> Option<(Append, PendingAppend<W, E::StateBefore>)> {
        self.counters.dropped += plan.dropped;
        self.counters.unknown += plan.unknown;
        if plan.dropped > 0 {
            let dropped = plan.dropped;
            let unknown = plan.unknown;
            self.notify(|observer| observer.dropped(dropped, unknown));
        }
        let answers = std::mem::take(&mut plan.answers);
        let Some((record, effects)) = plan.record.take() else {
            batch.effects.answers(answers);
            if let Some(cached) = plan.unchanged {
                plan.alarm.of_unchanged(&cached.run, &mut batch.effects);
                self.cache.put(cached);
            }
            batch.acks_after_effects.extend(plan.acks);
            return None;
        };
        let written = guarded("writing a record and its effects", || {
            self.write(&plan, record, effects, answers)
        });
        match written {
            Ok(Ok((append, written))) => Some((append, PendingAppend { plan, written })),
            // Another engine may have stored more: the run is read and decided again.
            Ok(Err(_)) | Err(_) if plan.stale => {
                batch
                    .to_decide_again
                    .conflicted
                    .push((plan.run, plan.messages));
                None
            }
            Ok(Err(error)) => {
                batch.unwritten += 1;
                let bytes = match &error {
                    EncodeError::TooLarge { bytes, .. } => Some(*bytes),
                    EncodeError::Value { .. } => None,
                };
                self.refuse(plan, bytes, error.to_string(), batch);
                None
            }
            Err(fault) => {
                batch.faulty.push((plan.run, fault, plan.messages));
                None
            }
        }
    }

    /// Writes a record, and the effects that follow once it is stored. All code of the run is called before the append,
    /// so that a record whose effects panic is never stored.
    fn write(
        &self,
        plan: &TurnPlan<W, E::StateBefore>,
        mut record: Record<W>,
        mut due: Effects,
        answers: Vec<Answer>,
    ) -> Result<(Append, WrittenRecord<W>), EncodeError> {
        let incarnation = self.ports.history().incarnation();
        plan.alarm.after(&record, &mut due);
        let (encoded, sum) = envelope::encode(&record, W::SCHEMA)?;
        let bytes = encoded.len();
        let run = &plan.run;
        let encoded = match self.ports.history_keys() {
            Some(keys) => add_mac(keys, RecordOf { incarnation, run }, encoded),
            None => encoded,
        };
        record.run.set_sum(sum);
        let mut effects = EffectBatch::new(incarnation);
        effects.add(&record.run, due);
        effects.answers(answers);
        let append = Append {
            run: run.clone(),
            expected: plan.expected,
            bytes: encoded,
            seq: record.run.seq,
            deadline: record.run.deadline(),
            closed: record.run.closed,
            quiet: record.run.is_quiet(),
        };
        let written = WrittenRecord {
            record,
            effects,
            bytes,
        };
        Ok((append, written))
    }

    /// Effects that a build without the fence carries out before the append.
    fn early(&self, sent: &[PendingAppend<W, E::StateBefore>]) -> EffectBatch {
        let mut early = EffectBatch::new(self.ports.history().incarnation());
        for one in sent {
            early.merge(one.written.effects.clone());
        }
        early
    }

    /// Appends. Records that could not be encoded count as refused.
    async fn append(
        &self,
        batch: Vec<Append>,
        unwritten: u64,
    ) -> Vec<Result<Revision, AppendError>> {
        let begun = Instant::now();
        let results = if batch.is_empty() {
            Vec::new()
        } else {
            self.ports.history().append(batch).await
        };
        let mut what = count_results(&results);
        what.refused += unwritten;
        if what != Appended::default() {
            self.notify(|observer| observer.appended(begun.elapsed(), what));
        }
        results
    }

    fn stored(
        &mut self,
        one: PendingAppend<W, E::StateBefore>,
        revision: Revision,
        batch: &mut Batch<W>,
    ) {
        let PendingAppend { plan, written } = one;
        let WrittenRecord {
            record, effects, ..
        } = written;
        self.counters.records += 1;
        self.counters.events += record.events.len() as u64;
        tracing::debug!(run = %plan.run, seq = %record.run.seq, "appended");
        self.notify(|observer| observer.stored(plan.before, &record));
        if self.quarantine_notes.get(&plan.run).is_some() {
            batch.to_unquarantine.push(plan.run.clone());
        }
        batch.effects.merge(effects);
        let run = record.run;
        self.cache.put(Cached { run, revision });
        batch.acks_after_effects.extend(plan.acks);
    }

    fn not_stored(
        &mut self,
        one: PendingAppend<W, E::StateBefore>,
        error: &AppendError,
        batch: &mut Batch<W>,
    ) {
        let PendingAppend { plan, written } = one;
        self.cache.forget(&plan.run);
        match error {
            AppendError::Conflict => {
                self.counters.conflicts += 1;
                tracing::debug!(run = %plan.run, "another engine was faster; it is decided again");
                batch
                    .to_decide_again
                    .conflicted
                    .push((plan.run, plan.messages));
            }
            AppendError::Unknown(_) => {
                tracing::debug!(run = %plan.run, %error, "not appended; the messages come again");
                batch.acks.extend(again(plan.acks, UNAVAILABLE_AGAIN_MS));
            }
            // A store may refuse a record before it compares the revision.
            AppendError::Refused(_) if plan.stale => {
                batch
                    .to_decide_again
                    .conflicted
                    .push((plan.run, plan.messages));
            }
            AppendError::Refused(why) => self.refuse(plan, Some(written.bytes), why.clone(), batch),
        }
    }

    /// Sorts out the messages of a record that is refused for good. `bytes`: the size of the record.
    fn refuse(
        &mut self,
        plan: TurnPlan<W, E::StateBefore>,
        bytes: Option<usize>,
        why: String,
        batch: &mut Batch<W>,
    ) {
        self.counters.refused += 1;
        self.cache.forget(&plan.run);
        // Those that were not taken come again in any case.
        let (taken, later): (Vec<_>, Vec<_>) = plan
            .acks
            .into_iter()
            .partition(|(_, ack)| *ack == Ack::Done);
        batch.acks.extend(later);
        let was_taken = |token: u64| taken.iter().any(|(taken, _)| *taken == token);
        let messages = plan.messages.into_iter();
        batch.to_decide_again.refused.push(RefusedMessages {
            run: plan.run,
            messages: messages.filter(|it| was_taken(it.token)).collect(),
            bytes,
            why,
        });
    }

    /// Carries out the effects of stored records. After a failure the next load of these runs carries out the rest.
    async fn carry_out(
        &mut self,
        effects: EffectBatch,
        acks_after_effects: Vec<(u64, Ack)>,
        acks: &mut Vec<(u64, Ack)>,
    ) -> Result<(), StoreError> {
        let touched = effects.runs();
        let Err(error) = effects.carry_out(self.ports.as_ref()).await else {
            acks.extend(acks_after_effects);
            return Ok(());
        };
        for run in &touched {
            self.cache.forget(run);
        }
        acks.extend(again(acks_after_effects, UNAVAILABLE_AGAIN_MS));
        if matches!(error, StoreError::Broken(_)) {
            Err(error)
        } else {
            Ok(())
        }
    }
}

/// Acknowledgements that redeliver these messages after `wait` milliseconds.
fn again(messages: Vec<(u64, Ack)>, wait: u64) -> impl Iterator<Item = (u64, Ack)> {
    messages
        .into_iter()
        .map(move |(token, _)| (token, Ack::Again(wait)))
}

fn count_results(results: &[Result<Revision, AppendError>]) -> Appended {
    results
        .iter()
        .fold(Appended::default(), |mut counters, result| {
            match result {
                Ok(_) => counters.stored += 1,
                Err(AppendError::Conflict) => counters.conflicts += 1,
                Err(AppendError::Unknown(_)) => counters.unknown += 1,
                Err(AppendError::Refused(_)) => counters.refused += 1,
            }
            counters
        })
}
