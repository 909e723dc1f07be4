//! Step 2: deciding in memory what a run's messages lead to.

use super::{
    Open, Shard,
    alarm::Alarm,
    cache::Cached,
    intake::Received,
    quarantine::{Fault, guarded},
};
use crate::{
    observer::EngineObserver,
    port::{Ack, Clock, Expected, History, HistoryReader, Ports, StoreError},
};
use dormer_engine_core::{
    Answer, Dropped, EVENTS_PER_RECORD_MAX, Effects, InboxMessageOf, Offer, Record, Transition,
    Verdict, Workflow,
    unfenced::{Fence, enforced},
};
use dormer_proto::{
    envelope,
    id::{Revision, RunId, Seq, Timestamp},
    message::{Ask, Inbound},
};

/// Redelivery delay of messages to a run with a full outbox, in milliseconds.
const LATER_AGAIN_MS: u64 = 500;

/// Plan: the result of one run's messages before the append.
pub(super) struct Plan<W: Workflow, G> {
    pub(super) run: RunId,
    pub(super) expected: Expected,
    /// The observer's state before.
    pub(super) before: Option<G>,
    pub(super) alarm: Alarm,
    /// Record to store, if any message was accepted.
    pub(super) record: Option<(Record<W>, Effects)>,
    /// The run, if no message was accepted.
    pub(super) unchanged: Option<Cached<W>>,
    pub(super) answers: Vec<Answer>,
    pub(super) acks: Vec<(u64, Ack)>,
    pub(super) dropped: u64,
    pub(super) unknown: u64,
    /// Whether a drop was decided on a possibly old run, which must be read and decided again.
    pub(super) confirm: bool,
    /// Panic of the decision, after which there is no record.
    pub(super) fault: Option<Fault>,
    /// The run's messages.
    pub(super) messages: Vec<Received<W>>,
}

impl<W: Workflow, G> Plan<W, G> {
    /// Empty plan.
    fn of(run: &RunId, open: &Open<W>, before: Option<G>) -> Self {
        Self {
            run: run.clone(),
            expected: expectation(open.revision),
            before,
            alarm: Alarm::of(open.run.as_ref()),
            record: None,
            unchanged: None,
            answers: Vec::new(),
            acks: Vec::new(),
            dropped: 0,
            unknown: 0,
            confirm: false,
            fault: None,
            messages: Vec::new(),
        }
    }

    /// Drops a message. `fresh`: the run was read in this turn, so that this is final.
    fn drop_message(&mut self, why: Dropped, fresh: bool) {
        self.dropped += 1;
        self.unknown += u64::from(why == Dropped::Unknown);
        self.confirm |= !fresh && enforced(Fence::RereadBeforeDrop);
        tracing::debug!(run = %self.run, ?why, "a message changes nothing");
    }
}

fn expectation(revision: Option<Revision>) -> Expected {
    #[cfg(feature = "unfenced")]
    if !enforced(Fence::Revision) {
        return Expected::Anything;
    }
    revision.map_or(Expected::Nothing, Expected::At)
}

impl<W: Workflow, P: Ports, E: EngineObserver<W>> Shard<W, P, E> {
    /// Offers a run its messages, and returns the plan.
    pub(super) async fn decide(
        &mut self,
        id: &RunId,
        open: Open<W>,
        mut messages: Vec<Received<W>>,
    ) -> Plan<W, E::StateBefore> {
        let at = self.ports.clock().now();
        let before = open.run.as_ref().map(|run| self.observer.state_before(run));
        let mut plan = Plan::of(id, &open, before);
        let mut transition = open.run.map(|run| Transition::of(run, at));
        let mut causes = Vec::new();
        for received in messages.iter_mut() {
            if transition
                .as_ref()
                .is_some_and(|t| t.len() >= EVENTS_PER_RECORD_MAX)
            {
                plan.acks.push((received.token, Ack::Again(0)));
                continue;
            }
            let timer_due = matches!(received.message.body, Inbound::TimerDue);
            let message = if open.fresh {
                received.spend()
            } else {
                received.message.clone()
            };
            let offer = match self.offer(id, at, &mut transition, message).await {
                Ok(offer) => offer,
                Err(fault) => {
                    let confirm = !open.fresh && enforced(Fence::RereadBeforeDrop);
                    return Plan {
                        run: plan.run,
                        expected: plan.expected,
                        before: None,
                        alarm: Alarm::default(),
                        record: None,
                        unchanged: None,
                        answers: Vec::new(),
                        acks: Vec::new(),
                        dropped: 0,
                        unknown: 0,
                        confirm,
                        fault: Some(fault),
                        messages,
                    };
                }
            };
            plan.alarm.offered(timer_due, offer.verdict);
            match offer.verdict {
                Verdict::Taken => causes.push(received.cause.clone()),
                Verdict::Later => {
                    plan.acks.push((received.token, Ack::Again(LATER_AGAIN_MS)));
                    continue;
                }
                Verdict::Dropped(why) => plan.drop_message(why, open.fresh),
            }
            plan.answers.extend(offer.answer);
            plan.acks.push((received.token, Ack::Done));
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
        plan.messages = messages;
        plan
    }

    async fn offer(
        &self,
        id: &RunId,
        at: Timestamp,
        transition: &mut Option<Transition<W>>,
        message: InboxMessageOf<W>,
    ) -> Result<Offer, Fault> {
        let ours = self.ports.history().incarnation();
        let Some(transition) = transition else {
            return guarded(|| match Transition::begin(at, ours, &message) {
                Ok(mut begun) => {
                    let offer = begun.offer(ours, message);
                    *transition = Some(begun);
                    offer
                }
                Err(offer) => offer,
            });
        };
        match message.body {
            Inbound::Requested(request) if matches!(request.ask, Ask::Reset { .. }) => {
                let Ask::Reset { to } = request.ask else {
                    return guarded(|| transition.offer_reset(request, None));
                };
                match self.state_at(id, to).await {
                    Ok(then) => guarded(|| transition.offer_reset(request, then)),
                    // The request stays in the inbox, because the store does not answer now.
                    Err(_) => Ok(Offer {
                        verdict: Verdict::Later,
                        answer: None,
                    }),
                }
            }
            _ => guarded(|| transition.offer(ours, message)),
        }
    }

    /// State in a stored record, for a reset. `None`: the record is no longer stored, not readable or not
    /// proven.
    async fn state_at(&self, run: &RunId, seq: Seq) -> Result<Option<W::State>, StoreError> {
        let Some(bytes) = self.ports.reader().records(run, seq, 1).await?.pop() else {
            return Ok(None);
        };
        if let Err(why) = self.believe(run, &bytes) {
            tracing::error!(%run, %seq, %why, "nobody goes back to this record");
            return Ok(None);
        }
        let record = envelope::decode::<Record<W>>(&bytes, W::SCHEMA).map(|(record, _)| record);
        Ok(record
            .ok()
            .filter(|record| record.run.seq == seq)
            .map(|record| record.run.state))
    }
}
