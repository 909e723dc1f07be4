//! Step 2: deciding in memory what a run's messages lead to.

use super::{
    OpenRun, Shard,
    alarm::Alarm,
    cache::Cached,
    fault::{RunFault, guarded},
    intake::Received,
};
use crate::{
    observer::EngineObserver,
    port::{Ack, Clock, Expected, History, HistoryReader, Ports, StoreError},
};
use dormer_engine_core::{
    Answer, Dropped, EVENTS_PER_RECORD_MAX, Effects, InboxMessageOf, Offer, Record, Transition,
    Verdict, Workflow,
    limit::{CountLimit, is_reached},
    unfenced::{Fence, enforced},
};
use dormer_proto::{
    envelope,
    id::{Revision, RunId, Seq, Timestamp},
    message::{Ask, Inbound, Request},
};

/// Redelivery delay of messages to a run with a full outbox, in milliseconds.
const LATER_AGAIN_MS: u64 = 500;
/// Least time between two reads of a run whose outbox is full in memory, in milliseconds. A read sends its signals again.
const FULL_READ_AGAIN_MS: u64 = 10_000;
/// What an offer does, for people.
const DECIDING: &str = "deciding about a message";

/// Plan of a turn: the result of one run's messages before the append.
pub(super) struct TurnPlan<W: Workflow, G> {
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
    /// Whether a drop, or a message's wait, was decided on a possibly old run, which must be read and decided again.
    pub(super) must_reread: bool,
    /// Whether the run came from memory and may be outdated. A failed write then leads to a new read, not to quarantine.
    pub(super) stale: bool,
    /// Panic of code that works on the run, after which there is no record.
    pub(super) fault: Option<RunFault>,
    /// The run's messages.
    pub(super) messages: Vec<Received<W>>,
}

impl<W: Workflow, G> TurnPlan<W, G> {
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
            must_reread: false,
            stale: false,
            fault: None,
            messages: Vec::new(),
        }
    }

    /// Drops a message. `fresh`: the run was read in this turn, so that this is final.
    fn drop_message(&mut self, why: Dropped, fresh: bool) {
        self.dropped += 1;
        self.unknown += u64::from(why == Dropped::Unknown);
        self.must_reread |= !fresh && enforced(Fence::RereadBeforeDrop);
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
    ) -> TurnPlan<W, E::StateBefore> {
        let revision = open.revision;
        let stale = !open.fresh && enforced(Fence::RereadBeforeDrop);
        match self.try_decide(id, open, &mut messages).await {
            Ok(plan) => TurnPlan {
                stale,
                messages,
                ..plan
            },
            Err(fault) => TurnPlan {
                must_reread: stale,
                stale,
                fault: Some(fault),
                messages,
                ..TurnPlan::of(id, revision)
            },
        }
    }

    async fn try_decide(
        &mut self,
        id: &RunId,
        open: OpenRun<W>,
        messages: &mut [Received<W>],
    ) -> Result<TurnPlan<W, E::StateBefore>, RunFault> {
        if let Some(fault) = messages.iter().find_map(|received| received.fault.clone()) {
            return Err(fault);
        }
        let at = self.ports.clock().now();
        let OpenRun {
            run,
            revision,
            fresh,
        } = open;
        let mut plan = TurnPlan::of(id, revision);
        let mut transition = guarded("beginning a transition", || {
            plan.before = run.as_ref().map(|run| self.observer.state_before(run));
            plan.alarm = Alarm::of(run.as_ref());
            run.map(|run| Transition::of(run, at))
        })?;
        let mut causes = Vec::new();
        for received in messages.iter_mut() {
            if transition
                .as_ref()
                .is_some_and(|t| is_reached(CountLimit::Events, t.len(), 1, EVENTS_PER_RECORD_MAX))
            {
                plan.acks.push((received.token, Ack::Again(0)));
                continue;
            }
            let timer_due = matches!(received.message.body, Inbound::TimerDue);
            let message = if fresh {
                received.take_message()
            } else {
                guarded("copying a message", || received.message.clone())?
            };
            let offer = self.offer(id, at, &mut transition, message).await?;
            plan.alarm.offered(timer_due, offer.verdict);
            match offer.verdict {
                Verdict::Taken => causes.push(received.cause.clone()),
                Verdict::Later => {
                    plan.must_reread |= !fresh && self.may_have_room(id, at);
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

    /// Whether a run whose outbox is full in memory is to be read: another engine may have emptied it, and then no other
    /// message may come. The signals that are sent again replace those that were lost.
    fn may_have_room(&mut self, run: &RunId, now: Timestamp) -> bool {
        let recent = |read: &Timestamp| now.since_ms(*read) < FULL_READ_AGAIN_MS;
        self.full_outboxes.retain(|_, read| recent(read));
        if self.full_outboxes.contains_key(run) {
            return false;
        }
        self.full_outboxes.insert(run.clone(), now);
        true
    }

    async fn offer(
        &self,
        id: &RunId,
        at: Timestamp,
        transition: &mut Option<Transition<W>>,
        message: InboxMessageOf<W>,
    ) -> Result<Offer, RunFault> {
        let ours = self.ports.history().incarnation();
        let Some(transition) = transition else {
            return guarded(DECIDING, || match Transition::begin(at, ours, &message) {
                Ok(mut begun) => {
                    let offer = begun.offer(ours, message, None);
                    *transition = Some(begun);
                    offer
                }
                Err(offer) => offer,
            });
        };
        let Some(to) = reset_to::<W>(&message) else {
            return guarded(DECIDING, || transition.offer(ours, message, None));
        };
        match self.record_at(id, to).await {
            Ok(bytes) => guarded(DECIDING, || {
                let then = bytes.and_then(|bytes| state_in::<W>(&bytes, to));
                transition.offer(ours, message, then)
            }),
            // The request stays in the inbox, because the store does not answer now.
            Err(_) => Ok(Offer {
                verdict: Verdict::Later,
                answer: None,
            }),
        }
    }

    /// Stored record of a run, for a reset. `None`: it is no longer stored, or not proven.
    async fn record_at(&self, run: &RunId, seq: Seq) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(bytes) = self.ports.reader().records(run, seq, 1).await?.pop() else {
            return Ok(None);
        };
        if let Err(why) = self.verify_record(run, &bytes) {
            tracing::error!(%run, %seq, %why, "the stored record cannot be verified; a reset to it is refused");
            return Ok(None);
        }
        Ok(Some(bytes))
    }
}

/// Record that a reset names. `None`: the message is no reset.
fn reset_to<W: Workflow>(message: &InboxMessageOf<W>) -> Option<Seq> {
    let Inbound::Requested(Request {
        ask: Ask::Reset { to },
        ..
    }) = &message.body
    else {
        return None;
    };
    Some(*to)
}

/// State in the record `seq`. `None`: it is another record, or not readable.
fn state_in<W: Workflow>(bytes: &[u8], seq: Seq) -> Option<W::State> {
    let (record, _) = envelope::decode::<Record<W>>(bytes, W::SCHEMA).ok()?;
    (record.run.seq == seq).then_some(record.run.state)
}
