//! Step 2: deciding in memory what a run's messages lead to.

use super::{
    OpenRun, Shard,
    alarm::Alarm,
    cache::Cached,
    fault::{Fault, guarded},
    intake::Received,
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
/// What an offer does, for people.
const DECIDING: &str = "deciding about a message";

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
    /// Whether the run came from memory and may be outdated. A failed write then leads to a new read, not to quarantine.
    pub(super) stale: bool,
    /// Panic of code that works on the run, after which there is no record.
    pub(super) fault: Option<Fault>,
    /// The run's messages.
    pub(super) messages: Vec<Received<W>>,
}

impl<W: Workflow, G> Plan<W, G> {
    /// Empty plan.
    fn of(run: &RunId, revision: Option<Revision>) -> Self {
        Self {
            run: run.clone(),
            expected: expectation(revision),
            before: None,
            alarm: Alarm::default(),
            record: None,
            unchanged: None,
            answers: Vec::new(),
            acks: Vec::new(),
            dropped: 0,
            unknown: 0,
            confirm: false,
            stale: false,
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
        open: OpenRun<W>,
        mut messages: Vec<Received<W>>,
    ) -> Plan<W, E::StateBefore> {
        let revision = open.revision;
        let stale = !open.fresh && enforced(Fence::RereadBeforeDrop);
        match self.try_decide(id, open, &mut messages).await {
            Ok(plan) => Plan {
                stale,
                messages,
                ..plan
            },
            Err(fault) => Plan {
                confirm: stale,
                stale,
                fault: Some(fault),
                messages,
                ..Plan::of(id, revision)
            },
        }
    }

    async fn try_decide(
        &mut self,
        id: &RunId,
        open: OpenRun<W>,
        messages: &mut [Received<W>],
    ) -> Result<Plan<W, E::StateBefore>, Fault> {
        if let Some(fault) = messages.iter().find_map(|received| received.fault.clone()) {
            return Err(fault);
        }
        let at = self.ports.clock().now();
        let OpenRun {
            run,
            revision,
            fresh,
        } = open;
        let mut plan = Plan::of(id, revision);
        let mut transition = guarded("beginning a transition", || {
            plan.before = run.as_ref().map(|run| self.observer.state_before(run));
            plan.alarm = Alarm::of(run.as_ref());
            run.map(|run| Transition::of(run, at))
        })?;
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
            let message = if fresh {
                received.spend()
            } else {
                guarded("copying a message", || received.message.clone())?
            };
            let offer = self.offer(id, at, &mut transition, message).await?;
            plan.alarm.offered(timer_due, offer.verdict);
            match offer.verdict {
                Verdict::Taken => causes.push(received.cause.clone()),
                Verdict::Later => {
                    plan.acks.push((received.token, Ack::Again(LATER_AGAIN_MS)));
                    continue;
                }
                Verdict::Dropped(why) => plan.drop_message(why, fresh),
            }
            plan.answers.extend(offer.answer);
            plan.acks.push((received.token, Ack::Done));
        }
        guarded("ending a transition", || match transition {
            Some(transition) if transition.is_empty() => {
                let cached = |revision| Cached {
                    run: transition.abandon(),
                    revision,
                };
                plan.unchanged = revision.map(cached);
            }
            Some(transition) => plan.record = transition.finish(&self.build, causes),
            None => {}
        })?;
        Ok(plan)
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
            return guarded(DECIDING, || match Transition::begin(at, ours, &message) {
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
                    return guarded(DECIDING, || transition.offer_reset(request, None));
                };
                match self.record_at(id, to).await {
                    Ok(bytes) => guarded(DECIDING, || {
                        let then = bytes.and_then(|bytes| state_in::<W>(&bytes, to));
                        transition.offer_reset(request, then)
                    }),
                    // The request stays in the inbox, because the store does not answer now.
                    Err(_) => Ok(Offer {
                        verdict: Verdict::Later,
                        answer: None,
                    }),
                }
            }
            _ => guarded(DECIDING, || transition.offer(ours, message)),
        }
    }

    /// Stored record of a run, for a reset. `None`: it is no longer stored, or not proven.
    async fn record_at(&self, run: &RunId, seq: Seq) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(bytes) = self.ports.reader().records(run, seq, 1).await?.pop() else {
            return Ok(None);
        };
        if let Err(why) = self.believe(run, &bytes) {
            tracing::error!(%run, %seq, %why, "the stored record cannot be verified; a reset to it is refused");
            return Ok(None);
        }
        Ok(Some(bytes))
    }
}

/// State in the record `seq`. `None`: it is another record, or not readable.
fn state_in<W: Workflow>(bytes: &[u8], seq: Seq) -> Option<W::State> {
    let (record, _) = envelope::decode::<Record<W>>(bytes, W::SCHEMA).ok()?;
    (record.run.seq == seq).then_some(record.run.state)
}
