//! Messages whose record is refused for good: halved until they fit. One that does not fit alone is dead-lettered, and
//! its run continues. A run that no small message can move on is quarantined.

use super::{
    Shard,
    decide::TurnPlan,
    fault::RunFault,
    intake::Received,
    store::{RefusedMessages, UnstoredMessages},
};
use crate::{
    observer::EngineObserver,
    port::{Ack, Ports, StoreError},
    shard::UNAVAILABLE_AGAIN_MS,
};
use dormer_engine_core::Workflow;
use dormer_proto::{
    envelope,
    id::{RunId, hash64},
    message::{Failure, Inbound},
};
use std::{
    collections::{BTreeMap, HashSet},
    slice,
};

/// A message that makes up at least a quarter of its record is to blame for the record's size.
const BLAMED_DIVISOR: usize = 4;
/// Size in bytes below which a message is never to blame.
const BLAMED_BYTES_MIN: usize = 64 << 10;
/// Most remembered messages. A full set is cleared; a repeat may then be dead-lettered again.
const REMEMBERED_MAX: usize = 1_000;
/// Most times in one turn that a run is decided again because another engine was faster.
const CONFLICTS_MAX: usize = 2;
/// Failure code of a report that does not fit into a record.
const REPORT_TOO_LARGE: &str = "ReportTooLarge";

/// Messages that were dead-lettered for their size. Their senders may repeat them.
#[derive(Default)]
pub(super) struct TooLarge(HashSet<u64>);

impl TooLarge {
    /// Remembers the message with this checksum. True if it is new.
    fn remember(&mut self, sum: u64) -> bool {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        self.0.insert(sum)
    }

    fn forget(&mut self, sum: u64) {
        self.0.remove(&sum);
    }
}

/// Messages to decide and store again. A stack: the last element is handled next.
type Work<W> = Vec<(RunId, Vec<Received<W>>)>;

impl<W: Workflow, P: Ports, E: EngineObserver<W>> Shard<W, P, E> {
    /// Stores the plans. Messages whose common record is refused are decided again in halves. Messages of a run for
    /// which another engine was faster are decided again on what it stored.
    pub(super) async fn store_or_split(
        &mut self,
        plans: Vec<TurnPlan<W, E::StateBefore>>,
        acks: &mut Vec<(u64, Ack)>,
    ) -> Result<(), StoreError> {
        let mut work = Work::new();
        let mut tries = BTreeMap::new();
        let undone = self.store(plans, acks).await?;
        self.decide_again(undone, &mut work, &mut tries, acks).await;
        while let Some((run, messages)) = work.pop() {
            // An earlier half may have put the run into quarantine.
            let rest = BTreeMap::from([(run, messages)]);
            let mut rest = self.without_quarantined(rest, acks).await;
            if let Some((run, messages)) = rest.pop_first() {
                let undone = self.store_again(run, messages, acks).await?;
                self.decide_again(undone, &mut work, &mut tries, acks).await;
            }
        }
        Ok(())
    }

    /// Sorts what was not stored into `work`. After
    /// [`CONFLICTS_MAX`] lost races the run's messages go back to the inbox.
    async fn decide_again(
        &mut self,
        undone: UnstoredMessages<W>,
        work: &mut Work<W>,
        tries: &mut BTreeMap<RunId, usize>,
        acks: &mut Vec<(u64, Ack)>,
    ) {
        for (run, messages) in undone.conflicted {
            let tried = tries.entry(run.clone()).or_default();
            *tried += 1;
            if *tried > CONFLICTS_MAX {
                acks.extend(messages.iter().map(|it| (it.token, Ack::Again(0))));
            } else {
                work.push((
                    run,
                    messages.into_iter().map(Received::decoded_again).collect(),
                ));
            }
        }
        self.divide(undone.refused, work, acks).await;
    }

    /// Decides these messages on the run as it is stored now.
    async fn store_again(
        &mut self,
        run: RunId,
        messages: Vec<Received<W>>,
        acks: &mut Vec<(u64, Ack)>,
    ) -> Result<UnstoredMessages<W>, StoreError> {
        let mut open = match self.reload(slice::from_ref(&run)).await {
            Ok(open) => open,
            Err(StoreError::Unavailable(_)) => {
                let again = Ack::Again(UNAVAILABLE_AGAIN_MS);
                acks.extend(messages.iter().map(|received| (received.token, again)));
                return Ok(UnstoredMessages::default());
            }
            Err(broken) => return Err(broken),
        };
        let Some(opened) = open.remove(&run) else {
            self.not_opened(&run, messages, acks).await;
            return Ok(UnstoredMessages::default());
        };
        let mut plan = self.decide(&run, opened, messages).await;
        if let Some(fault) = plan.fault.take() {
            self.quarantine(&run, fault, plan.messages, acks).await;
            return Ok(UnstoredMessages::default());
        }
        self.store(vec![plan], acks).await
    }

    async fn divide(
        &mut self,
        refused: Vec<RefusedMessages<W>>,
        work: &mut Work<W>,
        acks: &mut Vec<(u64, Ack)>,
    ) {
        for RefusedMessages {
            run,
            messages,
            bytes,
            why,
        } in refused
        {
            let mut first: Vec<_> = messages.into_iter().map(Received::decoded_again).collect();
            if first.len() > 1 {
                let second = first.split_off(first.len() / 2);
                work.push((run.clone(), second));
                work.push((run, first));
                continue;
            }
            if let Some(alone) = first.pop() {
                let own = alone.bytes.len();
                let is_large_share = bytes.is_some_and(|bytes| own * BLAMED_DIVISOR >= bytes);
                if is_large_share && own >= BLAMED_BYTES_MIN {
                    work.extend(self.leave_out(&run, alone, &why, acks).await);
                } else {
                    let fault = RunFault::refused(why.clone());
                    self.quarantine(&run, fault, vec![alone], acks).await;
                }
            }
        }
    }

    /// Dead-letters a message that does not fit into a record of its own. Returns the message that replaces it: a report
    /// that the attempt failed. `None`: nothing replaces it.
    async fn leave_out(
        &mut self,
        run: &RunId,
        received: Received<W>,
        why: &str,
        acks: &mut Vec<(u64, Ack)>,
    ) -> Option<(RunId, Vec<Received<W>>)> {
        let Received {
            mut message,
            token,
            cause,
            bytes,
            ..
        } = received;
        let sum = hash64(&bytes);
        if self.too_large.remember(sum) {
            let reason = format!("it does not fit into a record: {why}");
            let size = bytes.len();
            let ack = self
                .dead_letter(Some(run.clone()), cause.clone(), bytes, reason)
                .await;
            if ack != Ack::Done {
                self.too_large.forget(sum);
                acks.push((token, ack));
                return None;
            }
            tracing::debug!(%run, size, "a message is left out of the history");
        }
        if let Inbound::Reported(report) = &mut message.body {
            let why = "the report of this attempt does not fit into the history; dormer dead-letters has it";
            report.result = Err(Failure::lasting(REPORT_TOO_LARGE, why));
            if let Ok((bytes, _)) = envelope::encode(&message, W::SCHEMA) {
                let instead = Received {
                    message,
                    token,
                    cause,
                    bytes,
                    fault: None,
                };
                return Some((run.clone(), vec![instead]));
            }
        }
        acks.push((token, Ack::Done));
        None
    }
}
