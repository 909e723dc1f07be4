//! An engine without a store and without IO: the runs of dormer's own workflows in memory, one message at a time, by
//! the transitions and fences of the real engine.

use super::super::stage::is_grant;
use dormer_engine_core::{Answer, InboxMessageOf, Run, Transition, Verdict};
use dormer_proto::{
    id::{Incarnation, RunId, Sum, Timestamp, hash64},
    message::{Inbound, InboxMessage},
    work::Order,
};
use dormer_workflows::Dormer;
use std::collections::BTreeMap;

/// A message to a run.
pub(super) type Message = InboxMessageOf<Dormer>;

/// The one store that these runs ever had.
pub(super) const OURS: Incarnation = Incarnation(1);

/// What follows from a message.
pub(super) enum Effect {
    /// A worker is to do this.
    Order(Box<Order>),
    /// Message to deliver to a run.
    Message(Box<Message>),
    /// The run has no room for it now.
    Later(Box<Message>),
    /// The run's alarm is to ring then, or never.
    Alarm(RunId, Option<Timestamp>),
}

/// The runs.
#[derive(Default)]
pub(super) struct Engine {
    pub(super) runs: BTreeMap<RunId, Run<Dormer>>,
    /// Records so far.
    pub(super) steps: u64,
    /// Leases granted so far.
    pub(super) grants: u64,
    /// A checksum of all that was recorded, to compare two plays of one seed.
    pub(super) digest: u64,
}

impl Engine {
    /// Takes a message, and returns its effects.
    pub(super) fn take(&mut self, at: Timestamp, message: Message) -> Vec<Effect> {
        let id = message.run.clone();
        let begun = match self.runs.remove(&id) {
            Some(run) => Ok(Transition::of(run, at)),
            None => Transition::begin(at, OURS, &message),
        };
        let mut transition = match begun {
            Ok(transition) => transition,
            Err(offer) => return offer.answer.into_iter().filter_map(answered).collect(),
        };
        let again = message.clone();
        let offer = transition.offer(OURS, message, None);
        let mut effects: Vec<Effect> = offer.answer.into_iter().filter_map(answered).collect();
        if offer.verdict == Verdict::Later {
            effects.push(Effect::Later(Box::new(again)));
        }
        if transition.is_empty() {
            self.runs.insert(id, transition.abandon());
            return effects;
        }
        let Some((record, due)) = transition.finish("trouble", Vec::new()) else {
            return effects;
        };
        self.steps += 1;
        self.grants += record.events.iter().filter(|event| is_grant(event)).count() as u64;
        let mut run = record.run;
        let mark = format!("{} {id} {} {}", self.digest, run.seq, at.0);
        self.digest = hash64(mark.as_bytes());
        run.set_sum(Sum(self.digest));
        let orders = due.orders.iter().filter_map(|key| run.order(*key, OURS));
        effects.extend(orders.map(|order| Effect::Order(Box::new(order))));
        for (to, signal) in &due.signals {
            let sent = run
                .outbox
                .iter()
                .find(|out| out.to == *to && out.id == *signal);
            effects.extend(sent.map(|out| Effect::Message(Box::new(run.message(out, OURS)))));
        }
        effects.extend(due.answers.into_iter().filter_map(answered));
        if let Some(alarm) = due.alarm {
            effects.push(Effect::Alarm(id.clone(), alarm));
        }
        self.runs.insert(id, run);
        effects
    }
}

/// An answer in transit; workers do not wait for theirs.
fn answered(answer: Answer) -> Option<Effect> {
    match answer {
        Answer::Signal { to, answer } => Some(Effect::Message(Box::new(InboxMessage {
            run: to,
            incarnation: Some(OURS),
            body: Inbound::Answered(answer),
        }))),
        Answer::Report(_) => None,
    }
}
