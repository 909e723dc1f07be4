//! Step 2: what a run's letters lead to, decided in memory.

use super::{Lane, Open, alarm::Alarm, cache::Cached, intake::Mail};
use crate::{
    port::{Clock, Expected, History, HistoryReader, Ports, Settle, StoreError},
    witness::Witness,
};
use dormer_engine_core::{
    Answer, Dropped, EVENTS_PER_RECORD_MAX, Effects, LetterOf, Offer, Record, Transition, Verdict,
    Workflow,
    unfenced::{Fence, stands},
};
use dormer_proto::{
    envelope,
    id::{Revision, RunId, Seq, Timestamp},
    message::{Ask, Inbound},
};

/// How long letters wait for a run whose outbox is full, in milliseconds.
const LATER_AGAIN_MS: u64 = 500;

/// What one run's letters led to, before the append.
pub(super) struct Plan<W: Workflow, G> {
    pub(super) run: RunId,
    pub(super) expected: Expected,
    /// What the witness saw of the run before.
    pub(super) before: Option<G>,
    pub(super) alarm: Alarm,
    /// What is to be stored, if anything was taken.
    pub(super) record: Option<(Record<W>, Effects)>,
    /// The run, when nothing was taken.
    pub(super) unchanged: Option<Cached<W>>,
    pub(super) answers: Vec<Answer>,
    pub(super) fates: Vec<(u64, Settle)>,
    pub(super) dropped: u64,
    pub(super) unknown: u64,
    /// A drop was decided on a run that may be old: it is read again, and decided again.
    pub(super) confirm: bool,
}

impl<W: Workflow, G> Plan<W, G> {
    /// A plan in which nothing has happened yet.
    fn of(run: &RunId, open: &Open<W>, before: Option<G>) -> Self {
        Self {
            run: run.clone(),
            expected: expectation(open.revision),
            before,
            alarm: Alarm::of(open.run.as_ref()),
            record: None,
            unchanged: None,
            answers: Vec::new(),
            fates: Vec::new(),
            dropped: 0,
            unknown: 0,
            confirm: false,
        }
    }

    /// A letter changes nothing; `fresh`: the run was read in this turn, so that this is final.
    fn drop_letter(&mut self, why: Dropped, fresh: bool) {
        self.dropped += 1;
        self.unknown += u64::from(why == Dropped::Unknown);
        self.confirm |= !fresh && stands(Fence::RereadBeforeDrop);
        tracing::debug!(run = %self.run, ?why, "a letter changes nothing");
    }
}

fn expectation(revision: Option<Revision>) -> Expected {
    #[cfg(feature = "unfenced")]
    if !stands(Fence::Revision) {
        return Expected::Anything;
    }
    revision.map_or(Expected::Nothing, Expected::At)
}

impl<W: Workflow, P: Ports, E: Witness<W>> Lane<W, P, E> {
    /// Offers a run its letters, and says what they lead to.
    pub(super) async fn decide(
        &mut self,
        id: &RunId,
        open: Open<W>,
        letters: &mut [Mail<W>],
    ) -> Plan<W, E::Glance> {
        let at = self.ports.clock().now();
        let before = open.run.as_ref().map(|run| self.witness.glance(run));
        let mut plan = Plan::of(id, &open, before);
        let mut transition = open.run.map(|run| Transition::of(run, at));
        let mut causes = Vec::new();
        for mail in letters.iter_mut() {
            if transition
                .as_ref()
                .is_some_and(|t| t.len() >= EVENTS_PER_RECORD_MAX)
            {
                plan.fates.push((mail.token, Settle::Again(0)));
                continue;
            }
            let ring = matches!(mail.letter.body, Inbound::Rang);
            let letter = if open.fresh {
                mail.spend()
            } else {
                mail.letter.clone()
            };
            let offer = self.offer(id, at, &mut transition, letter).await;
            plan.alarm.offered(ring, offer.verdict);
            match offer.verdict {
                Verdict::Taken => causes.push(mail.cause.clone()),
                Verdict::Later => {
                    plan.fates.push((mail.token, Settle::Again(LATER_AGAIN_MS)));
                    continue;
                }
                Verdict::Dropped(why) => plan.drop_letter(why, open.fresh),
            }
            plan.answers.extend(offer.answer);
            plan.fates.push((mail.token, Settle::Done));
        }
        match transition {
            Some(transition) if transition.is_empty() => {
                let cached = |revision| Cached {
                    run: transition.abandon(),
                    revision,
                };
                plan.unchanged = open.revision.map(cached);
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
                    Err(_) => Offer {
                        verdict: Verdict::Later,
                        answer: None,
                    },
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
        Ok(record
            .ok()
            .filter(|record| record.run.seq == seq)
            .map(|record| record.run.state))
    }
}
