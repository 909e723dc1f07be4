//! A lane: the one owner of its runs, and the loop's five steps over a batch of letters.
//!
//! The order of these steps is the whole recovery story: **load** (a run not in memory is read, and what it has
//! outstanding is carried out), **decide** in memory, **append** on the condition that nobody was faster, **carry
//! out** the effects, **settle** the letters. Whatever goes wrong after the append drops the run from memory; the
//! unsettled letters come again, the load carries out what was lost, and the fences recognise what is on record.

mod alarm;
mod cache;
mod carry;
mod intake;
mod newer;
mod refused;

use crate::{
    port::{
        Append, AppendError, Clock, DeadLetter, DeadLetters, Expected, History, HistoryReader,
        Inbox, Ports, Settle, StoreError,
    },
    witness::{Appended, Witness},
};
use alarm::Alarm;
use cache::{Cache, Cached};
use carry::Work;
use dormer_engine_core::{
    Answer, Dropped, EVENTS_PER_RECORD_MAX, Effects, LetterOf, Offer, Record, Run, Transition,
    Verdict, Workflow,
    unfenced::{Fence, stands},
};
use dormer_proto::{
    envelope::{self, DecodeError},
    id::{Revision, RunId, Seq, Sum, Timestamp},
    message::{Ask, Inbound},
};
pub use intake::Arrived;
use intake::{Mail, sort};
use newer::{Left, read_up_to};
use refused::Refused;
use std::{collections::BTreeMap, sync::Arc};
use tokio::time::Instant;

/// How long letters wait whose record the store will not take, in milliseconds: a person has to act.
const REFUSED_AGAIN_MS: u64 = 60_000;
/// How long letters wait when the store did not answer, in milliseconds.
const UNAVAILABLE_AGAIN_MS: u64 = 1_000;
/// How long letters wait for a run whose outbox is full, in milliseconds.
const LATER_AGAIN_MS: u64 = 500;

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

/// What one run's letters led to, before the append.
struct Plan<W: Workflow, G> {
    run: RunId,
    expected: Expected,
    /// What the witness saw of the run before.
    before: Option<G>,
    alarm: Alarm,
    record: Option<(Record<W>, Effects)>,
    /// The run, when nothing was taken.
    unchanged: Option<Cached<W>>,
    answers: Vec<Answer>,
    fates: Vec<(u64, Settle)>,
    dropped: u64,
    unknown: u64,
    confirm: bool,
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
        let (build, cache) = (build.into(), Cache::new(cached_max));
        let (left, refused, tally) = (Left::default(), Refused::default(), Tally::default());
        Self { ports, build, cache, witness, left, refused, tally }
    }

    /// Works off a batch of deliveries.
    ///
    /// # Errors
    /// [`StoreError::Broken`]: the engine must stop. An unavailable store is no error: the letters come again.
    pub async fn turn(&mut self, batch: Vec<crate::port::Delivery>) -> Result<(), StoreError> {
        self.work_off(batch.into_iter().map(Arrived::open).collect()).await
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
        self.bury(None, delivery.cause, delivery.bytes, error.to_string()).await
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
        let letter = DeadLetter { id: 0, run, reason, at, origin, bytes };
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
                Some(Cached { run: cached, revision }) => {
                    let fresh = self.ports.history().exclusive();
                    open.insert(
                        run.clone(),
                        Open { run: Some(cached), revision: Some(revision), fresh },
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
                open.insert(run.clone(), Open { run: None, revision: None, fresh: true });
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
                        Open { run: Some(read), revision: Some(stored.revision), fresh: true },
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

    /// Step 2: decide in memory.
    async fn decide(
        &mut self,
        id: &RunId,
        open: Open<W>,
        letters: &mut [Mail<W>],
    ) -> Plan<W, E::Glance> {
        let at = self.ports.clock().now();
        let expected = expectation(open.revision);
        let before = open.run.as_ref().map(|run| self.witness.glance(run));
        let alarm = Alarm::of(open.run.as_ref());
        let mut transition = open.run.map(|run| Transition::of(run, at));
        let mut plan = Plan {
            run: id.clone(),
            expected,
            before,
            alarm,
            record: None,
            unchanged: None,
            answers: Vec::new(),
            fates: Vec::new(),
            dropped: 0,
            unknown: 0,
            confirm: false,
        };
        let mut causes = Vec::new();
        for mail in letters.iter_mut() {
            if transition.as_ref().is_some_and(|t| t.len() >= EVENTS_PER_RECORD_MAX) {
                plan.fates.push((mail.token, Settle::Again(0)));
                continue;
            }
            let ring = matches!(mail.letter.body, Inbound::Rang);
            let letter = if open.fresh { mail.spend() } else { mail.letter.clone() };
            let offer = self.offer(id, at, &mut transition, letter).await;
            plan.alarm.offered(ring, offer.verdict);
            match offer.verdict {
                Verdict::Taken => causes.push(mail.cause.clone()),
                Verdict::Later => {
                    plan.fates.push((mail.token, Settle::Again(LATER_AGAIN_MS)));
                    continue;
                }
                Verdict::Dropped(why) => {
                    plan.dropped += 1;
                    plan.unknown += u64::from(why == Dropped::Unknown);
                    plan.confirm |= !open.fresh && stands(Fence::RereadBeforeDrop);
                    tracing::debug!(run = %id, ?why, "a letter changes nothing");
                }
            }
            plan.answers.extend(offer.answer);
            plan.fates.push((mail.token, Settle::Done));
        }
        match transition {
            Some(transition) if transition.is_empty() => {
                let revision = open.revision;
                plan.unchanged =
                    revision.map(|revision| Cached { run: transition.abandon(), revision });
            }
            Some(transition) => plan.record = transition.finish(&self.build, causes),
            None => {}
        }
        plan
    }

    async fn offer(
        &self,
        id: &RunId,
        at: Timestamp,
        transition: &mut Option<Transition<W>>,
        letter: LetterOf<W>,
    ) -> Offer {
        let ours = self.ports.history().incarnation();
        let Some(transition) = transition else {
            return match Transition::begin(at, ours, &letter) {
                Ok(mut begun) => {
                    let offer = begun.offer(ours, letter);
                    *transition = Some(begun);
                    offer
                }
                Err(offer) => offer,
            };
        };
        match letter.body {
            Inbound::Requested(request) if matches!(request.ask, Ask::Reset { .. }) => {
                let Ask::Reset { to } = request.ask else {
                    return transition.offer_reset(request, None);
                };
                match self.state_at(id, to).await {
                    Ok(then) => transition.offer_reset(request, then),
                    // The wish stands; the store does not answer just now.
                    Err(_) => Offer { verdict: Verdict::Later, answer: None },
                }
            }
            _ => transition.offer(ours, letter),
        }
    }

    /// The state of a kept record, for a reset; `None` where it is not kept or not readable.
    async fn state_at(&self, run: &RunId, seq: Seq) -> Result<Option<W::State>, StoreError> {
        let Some(bytes) = self.ports.reader().records(run, seq, 1).await?.pop() else {
            return Ok(None);
        };
        let record = envelope::decode::<Record<W>>(&bytes, W::SCHEMA).map(|(record, _)| record);
        Ok(record.ok().filter(|record| record.run.seq == seq).map(|record| record.run.state))
    }

    /// Steps 3 to 5: append, carry out, and say which letters are settled.
    async fn store(
        &mut self,
        plans: Vec<Plan<W, E::Glance>>,
        fates: &mut Vec<(u64, Settle)>,
    ) -> Result<(), StoreError> {
        let mut work = Work::new(self.ports.history().incarnation());
        let mut settled = Vec::new();
        let mut appended = Vec::new();
        let mut batch = Vec::new();
        let mut unwritten = 0;
        for mut plan in plans {
            self.tally.dropped += plan.dropped;
            self.tally.unknown += plan.unknown;
            if plan.dropped > 0 {
                self.witness.dropped(plan.dropped, plan.unknown);
            }
            let Some((record, mut effects)) = plan.record.take() else {
                work.answers(plan.answers);
                if let Some(cached) = plan.unchanged {
                    plan.alarm.of_unchanged(&cached.run, &mut work);
                    self.cache.put(cached);
                }
                settled.extend(plan.fates);
                continue;
            };
            plan.alarm.after(&record, &mut effects);
            match envelope::encode(&record, W::SCHEMA) {
                Ok((bytes, sum)) => {
                    batch.push(Append {
                        run: plan.run.clone(),
                        expected: plan.expected,
                        bytes,
                        seq: record.run.seq,
                        deadline: record.run.deadline(),
                        closed: record.run.closed,
                        quiet: record.run.is_quiet(),
                    });
                    appended.push((plan, record, effects, sum));
                }
                Err(error) => {
                    unwritten += 1;
                    self.refuse(&plan.run, &error.to_string());
                    fates.extend(
                        plan.fates
                            .iter()
                            .map(|(token, _)| (*token, Settle::Again(REFUSED_AGAIN_MS))),
                    );
                }
            }
        }
        if !stands(Fence::ActAfterStore) {
            let mut early = Work::new(self.ports.history().incarnation());
            for (plan, record, effects, sum) in &appended {
                let mut run = record.run.clone();
                run.sealed(*sum);
                early.add(&run, effects.clone());
                early.answers(plan.answers.clone());
            }
            early.carry_out(self.ports.as_ref()).await?;
        }
        let results = self.append(batch, unwritten).await;
        for ((plan, record, effects, sum), result) in appended.into_iter().zip(results) {
            self.after_append(plan, record, effects, sum, result, &mut work, &mut settled, fates);
        }
        let touched = work.runs();
        match work.carry_out(self.ports.as_ref()).await {
            Ok(()) => fates.extend(settled),
            Err(error) => {
                // What was stored stays stored; the next load of these runs carries out the rest.
                for run in &touched {
                    self.cache.forget(run);
                }
                fates.extend(
                    settled
                        .into_iter()
                        .map(|(token, _)| (token, Settle::Again(UNAVAILABLE_AGAIN_MS))),
                );
                if let StoreError::Broken(_) = error {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// The run stands still until a person acts: said once, counted each time.
    fn refuse(&mut self, run: &RunId, why: &str) {
        self.tally.refused += 1;
        if self.refused.first(run) {
            tracing::warn!(%run, why, "a record is refused for good: the run stands still");
            self.witness.refused(run, why);
        }
    }

    /// Appends; records that could not even be written count as refused.
    async fn append(
        &self,
        batch: Vec<Append>,
        unwritten: u64,
    ) -> Vec<Result<Revision, AppendError>> {
        let begun = Instant::now();
        let results =
            if batch.is_empty() { Vec::new() } else { self.ports.history().append(batch).await };
        let mut what = tallied(&results);
        what.refused += unwritten;
        if what != Appended::default() {
            self.witness.appended(begun.elapsed(), what);
        }
        results
    }

    #[expect(clippy::too_many_arguments, reason = "one record's whole fate, in one place")]
    fn after_append(
        &mut self,
        plan: Plan<W, E::Glance>,
        record: Record<W>,
        effects: Effects,
        sum: Sum,
        result: Result<Revision, AppendError>,
        work: &mut Work,
        settled: &mut Vec<(u64, Settle)>,
        fates: &mut Vec<(u64, Settle)>,
    ) {
        match result {
            Ok(revision) => {
                self.tally.records += 1;
                self.tally.events += record.events.len() as u64;
                tracing::debug!(run = %plan.run, seq = %record.run.seq, "appended");
                self.witness.stored(plan.before, &record);
                self.refused.stored(&plan.run);
                let mut run = record.run;
                run.sealed(sum);
                work.add(&run, effects);
                work.answers(plan.answers);
                self.cache.put(Cached { run, revision });
                settled.extend(plan.fates);
            }
            Err(error) => {
                let wait = match &error {
                    AppendError::Conflict => 0,
                    AppendError::Unknown(_) => UNAVAILABLE_AGAIN_MS,
                    AppendError::Refused(_) => REFUSED_AGAIN_MS,
                };
                self.tally.conflicts += u64::from(error == AppendError::Conflict);
                match &error {
                    AppendError::Refused(why) => self.refuse(&plan.run, why),
                    _ => {
                        tracing::debug!(run = %plan.run, %error, "not appended; the letters come again");
                    }
                }
                self.cache.forget(&plan.run);
                fates.extend(plan.fates.iter().map(|(token, _)| (*token, Settle::Again(wait))));
            }
        }
    }
}

fn tallied(results: &[Result<Revision, AppendError>]) -> Appended {
    results.iter().fold(Appended::default(), |mut tally, result| {
        match result {
            Ok(_) => tally.stored += 1,
            Err(AppendError::Conflict) => tally.conflicts += 1,
            Err(AppendError::Unknown(_)) => tally.unknown += 1,
            Err(AppendError::Refused(_)) => tally.refused += 1,
        }
        tally
    })
}

fn expectation(revision: Option<Revision>) -> Expected {
    #[cfg(feature = "unfenced")]
    if !stands(Fence::Revision) {
        return Expected::Anything;
    }
    revision.map_or(Expected::Nothing, Expected::At)
}

fn again<W: Workflow>(mail: BTreeMap<RunId, Vec<Mail<W>>>, fates: &mut Vec<(u64, Settle)>) {
    let letters = mail.into_values().flatten();
    fates.extend(letters.map(|mail| (mail.token, Settle::Again(UNAVAILABLE_AGAIN_MS))));
}
