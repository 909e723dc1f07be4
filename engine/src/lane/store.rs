//! Steps 3 to 5: append what was decided, carry out what the store has taken, and say which letters are settled.

use super::{Lane, UNAVAILABLE_AGAIN_MS, cache::Cached, carry::Work, decide::Plan};
use crate::{
    port::{Append, AppendError, History, Ports, Settle, StoreError},
    witness::{Appended, Witness},
};
use dormer_engine_core::{
    Effects, Record, Workflow,
    unfenced::{Fence, stands},
};
use dormer_proto::{
    envelope,
    id::{Revision, RunId, Sum},
};
use tokio::time::Instant;

/// How long letters wait whose record the store will not take, in milliseconds: a person has to act.
const REFUSED_AGAIN_MS: u64 = 60_000;

/// A plan with the record that is on its way to the store.
struct Sent<W: Workflow, G> {
    plan: Plan<W, G>,
    record: Record<W>,
    effects: Effects,
    sum: Sum,
}

/// What becomes of a batch.
struct Batch<'a> {
    /// To be carried out once the store has answered.
    work: Work,
    /// Fates that hold only when that was carried out.
    settled: Vec<(u64, Settle)>,
    /// Fates that hold in any case.
    fates: &'a mut Vec<(u64, Settle)>,
    /// Records that could not even be written.
    unwritten: u64,
}

impl<W: Workflow, P: Ports, E: Witness<W>> Lane<W, P, E> {
    /// Appends, carries out, and says which letters are settled.
    pub(super) async fn store(
        &mut self,
        plans: Vec<Plan<W, E::Glance>>,
        fates: &mut Vec<(u64, Settle)>,
    ) -> Result<(), StoreError> {
        let work = Work::new(self.ports.history().incarnation());
        let mut batch = Batch {
            work,
            settled: Vec::new(),
            fates,
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
        if !stands(Fence::ActAfterStore) {
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

    /// What is to be appended for this plan, if anything: a plan that changes nothing is done with here.
    fn prepare(
        &mut self,
        mut plan: Plan<W, E::Glance>,
        batch: &mut Batch<'_>,
    ) -> Option<(Append, Sent<W, E::Glance>)> {
        self.tally.dropped += plan.dropped;
        self.tally.unknown += plan.unknown;
        if plan.dropped > 0 {
            self.witness.dropped(plan.dropped, plan.unknown);
        }
        let Some((record, mut effects)) = plan.record.take() else {
            batch.work.answers(plan.answers);
            if let Some(cached) = plan.unchanged {
                plan.alarm.of_unchanged(&cached.run, &mut batch.work);
                self.cache.put(cached);
            }
            batch.settled.extend(plan.fates);
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
                batch.fates.extend(again(plan.fates, REFUSED_AGAIN_MS));
                None
            }
        }
    }

    /// What a build without the fence carries out before it has stored.
    fn early(&self, sent: &[Sent<W, E::Glance>]) -> Work {
        let mut early = Work::new(self.ports.history().incarnation());
        for one in sent {
            let mut run = one.record.run.clone();
            run.sealed(one.sum);
            early.add(&run, one.effects.clone());
            early.answers(one.plan.answers.clone());
        }
        early
    }

    /// Appends; records that could not even be written count as refused.
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
        let mut what = tallied(&results);
        what.refused += unwritten;
        if what != Appended::default() {
            self.witness.appended(begun.elapsed(), what);
        }
        results
    }

    fn stored(&mut self, one: Sent<W, E::Glance>, revision: Revision, batch: &mut Batch<'_>) {
        let Sent {
            plan,
            record,
            effects,
            sum,
        } = one;
        self.tally.records += 1;
        self.tally.events += record.events.len() as u64;
        tracing::debug!(run = %plan.run, seq = %record.run.seq, "appended");
        self.witness.stored(plan.before, &record);
        self.refused.stored(&plan.run);
        let mut run = record.run;
        run.sealed(sum);
        batch.work.add(&run, effects);
        batch.work.answers(plan.answers);
        self.cache.put(Cached { run, revision });
        batch.settled.extend(plan.fates);
    }

    fn not_stored(&mut self, plan: Plan<W, E::Glance>, error: &AppendError, batch: &mut Batch<'_>) {
        let wait = match error {
            AppendError::Conflict => 0,
            AppendError::Unknown(_) => UNAVAILABLE_AGAIN_MS,
            AppendError::Refused(_) => REFUSED_AGAIN_MS,
        };
        self.tally.conflicts += u64::from(*error == AppendError::Conflict);
        if let AppendError::Refused(why) = error {
            self.refuse(&plan.run, why);
        } else {
            tracing::debug!(run = %plan.run, %error, "not appended; the letters come again");
        }
        self.cache.forget(&plan.run);
        batch.fates.extend(again(plan.fates, wait));
    }

    /// The run stands still until a person acts: said once, counted each time.
    fn refuse(&mut self, run: &RunId, why: &str) {
        self.tally.refused += 1;
        if self.refused.first(run) {
            tracing::warn!(%run, why, "a record is refused for good: the run stands still");
            self.witness.refused(run, why);
        }
    }

    /// Carries out what was stored. What fails stays stored: the next load of these runs carries out the rest.
    async fn carry_out(&mut self, batch: Batch<'_>) -> Result<(), StoreError> {
        let Batch {
            work,
            settled,
            fates,
            ..
        } = batch;
        let touched = work.runs();
        let Err(error) = work.carry_out(self.ports.as_ref()).await else {
            fates.extend(settled);
            return Ok(());
        };
        for run in &touched {
            self.cache.forget(run);
        }
        fates.extend(again(settled, UNAVAILABLE_AGAIN_MS));
        if matches!(error, StoreError::Broken(_)) {
            Err(error)
        } else {
            Ok(())
        }
    }
}

/// The same letters, which come again after `wait` milliseconds.
fn again(letters: Vec<(u64, Settle)>, wait: u64) -> impl Iterator<Item = (u64, Settle)> {
    letters
        .into_iter()
        .map(move |(token, _)| (token, Settle::Again(wait)))
}

fn tallied(results: &[Result<Revision, AppendError>]) -> Appended {
    results
        .iter()
        .fold(Appended::default(), |mut tally, result| {
            match result {
                Ok(_) => tally.stored += 1,
                Err(AppendError::Conflict) => tally.conflicts += 1,
                Err(AppendError::Unknown(_)) => tally.unknown += 1,
                Err(AppendError::Refused(_)) => tally.refused += 1,
            }
            tally
        })
}
