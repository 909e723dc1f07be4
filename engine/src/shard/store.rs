//! Steps 3 to 5: append the decisions, carry out the effects of stored records, and return the acknowledgements.

use super::{Shard, UNAVAILABLE_AGAIN_MS, cache::Cached, decide::Plan, effects::EffectBatch};
use crate::{
    observer::{Appended, EngineObserver},
    port::{Ack, Append, AppendError, History, Ports, StoreError},
};
use dormer_engine_core::{
    Effects, Record, Workflow,
    unfenced::{Fence, enforced},
};
use dormer_proto::{
    envelope,
    id::{Revision, RunId, Sum},
};
use tokio::time::Instant;

/// Redelivery delay of messages whose record the store refuses, in milliseconds. A person must act.
const REFUSED_AGAIN_MS: u64 = 60_000;

/// Plan whose record is being appended.
struct Sent<W: Workflow, G> {
    plan: Plan<W, G>,
    record: Record<W>,
    effects: Effects,
    sum: Sum,
}

/// Results of a batch.
struct Batch<'a> {
    /// Effects to carry out after the append.
    work: EffectBatch,
    /// Acknowledgements that are valid only if the effects were carried out.
    held: Vec<(u64, Ack)>,
    /// Acknowledgements that are valid in any case.
    acks: &'a mut Vec<(u64, Ack)>,
    /// Records that could not be encoded.
    unwritten: u64,
}

impl<W: Workflow, P: Ports, E: EngineObserver<W>> Shard<W, P, E> {
    /// Appends, carries out the effects, and returns the acknowledgements.
    pub(super) async fn store(
        &mut self,
        plans: Vec<Plan<W, E::StateBefore>>,
        acks: &mut Vec<(u64, Ack)>,
    ) -> Result<(), StoreError> {
        let work = EffectBatch::new(self.ports.history().incarnation());
        let mut batch = Batch {
            work,
            held: Vec::new(),
            acks,
            unwritten: 0,
        };
        let mut appends = Vec::new();
        let mut sent = Vec::new();
        for plan in plans {
            if let Some((append, one)) = self.prepare(plan, &mut batch) {
                appends.push(append);
                sent.push(one);
            }
        }
        if !enforced(Fence::ActAfterStore) {
            self.early(&sent).carry_out(self.ports.as_ref()).await?;
        }
        let results = self.append(appends, batch.unwritten).await;
        for (one, result) in sent.into_iter().zip(results) {
            match result {
                Ok(revision) => self.stored(one, revision, &mut batch),
                Err(error) => self.not_stored(one.plan, &error, &mut batch),
            }
        }
        self.carry_out(batch).await
    }

    /// Append of this plan, if it has a record. A plan without one is finished here.
    fn prepare(
        &mut self,
        mut plan: Plan<W, E::StateBefore>,
        batch: &mut Batch<'_>,
    ) -> Option<(Append, Sent<W, E::StateBefore>)> {
        self.counters.dropped += plan.dropped;
        self.counters.unknown += plan.unknown;
        if plan.dropped > 0 {
            self.observer.dropped(plan.dropped, plan.unknown);
        }
        let Some((record, mut effects)) = plan.record.take() else {
            batch.work.answers(plan.answers);
            if let Some(cached) = plan.unchanged {
                plan.alarm.of_unchanged(&cached.run, &mut batch.work);
                self.cache.put(cached);
            }
            batch.held.extend(plan.acks);
            return None;
        };
        plan.alarm.after(&record, &mut effects);
        match envelope::encode(&record, W::SCHEMA) {
            Ok((bytes, sum)) => {
                let append = Append {
                    run: plan.run.clone(),
                    expected: plan.expected,
                    bytes,
                    seq: record.run.seq,
                    deadline: record.run.deadline(),
                    closed: record.run.closed,
                    quiet: record.run.is_quiet(),
                };
                Some((
                    append,
                    Sent {
                        plan,
                        record,
                        effects,
                        sum,
                    },
                ))
            }
            Err(error) => {
                batch.unwritten += 1;
                self.refuse(&plan.run, &error.to_string());
                batch.acks.extend(again(plan.acks, REFUSED_AGAIN_MS));
                None
            }
        }
    }

    /// Effects that a build without the fence carries out before the append.
    fn early(&self, sent: &[Sent<W, E::StateBefore>]) -> EffectBatch {
        let mut early = EffectBatch::new(self.ports.history().incarnation());
        for one in sent {
            let mut run = one.record.run.clone();
            run.sealed(one.sum);
            early.add(&run, one.effects.clone());
            early.answers(one.plan.answers.clone());
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
            self.observer.appended(begun.elapsed(), what);
        }
        results
    }

    fn stored(&mut self, one: Sent<W, E::StateBefore>, revision: Revision, batch: &mut Batch<'_>) {
        let Sent {
            plan,
            record,
            effects,
            sum,
        } = one;
        self.counters.records += 1;
        self.counters.events += record.events.len() as u64;
        tracing::debug!(run = %plan.run, seq = %record.run.seq, "appended");
        self.observer.stored(plan.before, &record);
        self.refused.stored(&plan.run);
        let mut run = record.run;
        run.sealed(sum);
        batch.work.add(&run, effects);
        batch.work.answers(plan.answers);
        self.cache.put(Cached { run, revision });
        batch.held.extend(plan.acks);
    }

    fn not_stored(
        &mut self,
        plan: Plan<W, E::StateBefore>,
        error: &AppendError,
        batch: &mut Batch<'_>,
    ) {
        let wait = match error {
            AppendError::Conflict => 0,
            AppendError::Unknown(_) => UNAVAILABLE_AGAIN_MS,
            AppendError::Refused(_) => REFUSED_AGAIN_MS,
        };
        self.counters.conflicts += u64::from(*error == AppendError::Conflict);
        if let AppendError::Refused(why) = error {
            self.refuse(&plan.run, why);
        } else {
            tracing::debug!(run = %plan.run, %error, "not appended; the messages come again");
        }
        self.cache.forget(&plan.run);
        batch.acks.extend(again(plan.acks, wait));
    }

    /// Reports a blocked run: logged once, counted each time.
    fn refuse(&mut self, run: &RunId, why: &str) {
        self.counters.refused += 1;
        if self.refused.first(run) {
            tracing::warn!(%run, why, "the store refuses a record for good: the run is blocked");
            self.observer.refused(run, why);
        }
    }

    /// Carries out the effects of stored records. After a failure the next load of these runs carries out the rest.
    async fn carry_out(&mut self, batch: Batch<'_>) -> Result<(), StoreError> {
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
