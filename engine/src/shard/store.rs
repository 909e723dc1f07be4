//! Steps 3 to 5: append the decisions, carry out the effects of stored records, and return the acknowledgements.

use super::{
    Shard, UNAVAILABLE_AGAIN_MS,
    cache::Cached,
    decide::Plan,
    effects::EffectBatch,
    fault::{Fault, guarded},
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
    plan: Plan<W, G>,
    record: Record<W>,
    /// Effects, which are carried out if the record is stored.
    work: EffectBatch,
    bytes: usize,
}

/// Record as it is appended.
struct EncodedRecord<W: Workflow> {
    append: Append,
    record: Record<W>,
    work: EffectBatch,
    bytes: usize,
}

/// Results of a batch.
struct Batch<'a, W: Workflow> {
    /// Effects to carry out after the append.
    work: EffectBatch,
    /// Acknowledgements that are valid only if the effects were carried out.
    held: Vec<(u64, Ack)>,
    /// Acknowledgements that are valid in any case.
    acks: &'a mut Vec<(u64, Ack)>,
    /// Records that could not be encoded.
    unwritten: u64,
    /// Messages whose record is refused for good.
    refused: Vec<RefusedMessages<W>>,
    /// Messages of runs for which another engine was, or may have been, faster.
    conflicted: Vec<(RunId, Vec<Received<W>>)>,
    /// Runs with a record stored in spite of a note.
    freed: Vec<RunId>,
    /// Messages of runs that cannot go on: their records panic while they are written.
    faulty: Vec<(RunId, Fault, Vec<Received<W>>)>,
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
        plans: Vec<Plan<W, E::StateBefore>>,
        acks: &mut Vec<(u64, Ack)>,
    ) -> Result<UnstoredMessages<W>, StoreError> {
        let work = EffectBatch::new(self.ports.history().incarnation());
        let mut batch = Batch {
            work,
            held: Vec::new(),
            acks,
            unwritten: 0,
            refused: Vec::new(),
            conflicted: Vec::new(),
            freed: Vec::new(),
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
        let undone = UnstoredMessages {
            refused: std::mem::take(&mut batch.refused),
            conflicted: std::mem::take(&mut batch.conflicted),
        };
        let freed = std::mem::take(&mut batch.freed);
        let faulty = std::mem::take(&mut batch.faulty);
        self.carry_out(batch).await?;
        self.free(freed).await;
        for (run, fault, messages) in faulty {
            self.quarantine(&run, fault, messages, acks).await;
        }
        Ok(undone)
    }

    /// Append of this plan, if it has a record. A plan without one is finished here.
    fn prepare(
        &mut self,
        mut plan: Plan<W, E::StateBefore>,
        batch: &mut Batch<'_, W>,
    ) -> Option<(Append, PendingAppend<W, E::StateBefore>)> {
        self.counters.dropped += plan.dropped;
        self.counters.unknown += plan.unknown;
        if plan.dropped > 0 {
            let (dropped, unknown) = (plan.dropped, plan.unknown);
            self.notify(|observer| observer.dropped(dropped, unknown));
        }
        let answers = std::mem::take(&mut plan.answers);
        let Some((record, effects)) = plan.record.take() else {
            batch.work.answers(answers);
            if let Some(cached) = plan.unchanged {
                plan.alarm.of_unchanged(&cached.run, &mut batch.work);
                self.cache.put(cached);
            }
            batch.held.extend(plan.acks);
            return None;
        };
        let written = guarded("writing a record and its effects", || {
            self.write(&plan, record, effects, answers)
        });
        match written {
            Ok(Ok(written)) => {
                let EncodedRecord {
                    append,
                    record,
                    work,
                    bytes,
                } = written;
                let sent = PendingAppend {
                    plan,
                    record,
                    work,
                    bytes,
                };
                Some((append, sent))
            }
            // Another engine may have stored more: the run is read and decided again.
            Ok(Err(_)) | Err(_) if plan.stale => {
                batch.conflicted.push((plan.run, plan.messages));
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
        plan: &Plan<W, E::StateBefore>,
        mut record: Record<W>,
        mut effects: Effects,
        answers: Vec<Answer>,
    ) -> Result<EncodedRecord<W>, EncodeError> {
        let incarnation = self.ports.history().incarnation();
        plan.alarm.after(&record, &mut effects);
        let (encoded, sum) = envelope::encode(&record, W::SCHEMA)?;
        let bytes = encoded.len();
        let run = &plan.run;
        let encoded = match self.ports.history_keys() {
            Some(keys) => add_mac(keys, RecordOf { incarnation, run }, encoded),
            None => encoded,
        };
        record.run.sealed(sum);
        let mut work = EffectBatch::new(incarnation);
        work.add(&record.run, effects);
        work.answers(answers);
        let append = Append {
            run: run.clone(),
            expected: plan.expected,
            bytes: encoded,
            seq: record.run.seq,
            deadline: record.run.deadline(),
            closed: record.run.closed,
            quiet: record.run.is_quiet(),
        };
        Ok(EncodedRecord {
            append,
            record,
            work,
            bytes,
        })
    }

    /// Effects that a build without the fence carries out before the append.
    fn early(&self, sent: &[PendingAppend<W, E::StateBefore>]) -> EffectBatch {
        let mut early = EffectBatch::new(self.ports.history().incarnation());
        for one in sent {
            early.merge(one.work.clone());
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
        batch: &mut Batch<'_, W>,
    ) {
        let PendingAppend {
            plan, record, work, ..
        } = one;
        self.counters.records += 1;
        self.counters.events += record.events.len() as u64;
        tracing::debug!(run = %plan.run, seq = %record.run.seq, "appended");
        self.notify(|observer| observer.stored(plan.before, &record));
        if self.known.get(&plan.run).is_some() {
            batch.freed.push(plan.run.clone());
        }
        batch.work.merge(work);
        let run = record.run;
        self.cache.put(Cached { run, revision });
        batch.held.extend(plan.acks);
    }

    fn not_stored(
        &mut self,
        one: PendingAppend<W, E::StateBefore>,
        error: &AppendError,
        batch: &mut Batch<'_, W>,
    ) {
        let PendingAppend { plan, bytes, .. } = one;
        self.cache.forget(&plan.run);
        match error {
            AppendError::Conflict => {
                self.counters.conflicts += 1;
                tracing::debug!(run = %plan.run, "another engine was faster; it is decided again");
                batch.conflicted.push((plan.run, plan.messages));
            }
            AppendError::Unknown(_) => {
                tracing::debug!(run = %plan.run, %error, "not appended; the messages come again");
                batch.acks.extend(again(plan.acks, UNAVAILABLE_AGAIN_MS));
            }
            // A store may refuse a record before it compares the revision.
            AppendError::Refused(_) if plan.stale => {
                batch.conflicted.push((plan.run, plan.messages));
            }
            AppendError::Refused(why) => self.refuse(plan, Some(bytes), why.clone(), batch),
        }
    }

    /// Sorts out the messages of a record that is refused for good. `bytes`: the size of the record.
    fn refuse(
        &mut self,
        plan: Plan<W, E::StateBefore>,
        bytes: Option<usize>,
        why: String,
        batch: &mut Batch<'_, W>,
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
        batch.refused.push(RefusedMessages {
            run: plan.run,
            messages: messages.filter(|it| was_taken(it.token)).collect(),
            bytes,
            why,
        });
    }

    /// Carries out the effects of stored records. After a failure the next load of these runs carries out the rest.
    async fn carry_out(&mut self, batch: Batch<'_, W>) -> Result<(), StoreError> {
        let Batch {
            work, held, acks, ..
        } = batch;
        let touched = work.runs();
        let Err(error) = work.carry_out(self.ports.as_ref()).await else {
            acks.extend(held);
            return Ok(());
        };
        for run in &touched {
            self.cache.forget(run);
        }
        acks.extend(again(held, UNAVAILABLE_AGAIN_MS));
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
