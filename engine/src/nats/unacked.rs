//! Messages that this engine holds: pulled, and not acknowledged yet.
//!
//! The server delivers a message again once its claim ends. An engine under load holds messages for longer than that;
//! each repeat would cost it a read of the run's leader, and slow it down further. So it extends the claims of what it
//! holds, as long as it acknowledges anything at all. After [`STILL`] without an acknowledgement it stops, the claims
//! end, and others take its messages. A repeat of what it still holds is dropped before a shard sees it: each of the two
//! deliveries acknowledges the message.

use super::{
    credit::{Credit, CreditPool},
    link::Link,
};
use async_nats::{Subject, jetstream::Message};
use bytes::Bytes;
use dormer_proto::{id::hash64, lock::Locked as _};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Time after which an unacknowledged message is redelivered.
pub(super) const CLAIM: Duration = Duration::from_secs(10);
/// Interval of the extensions: two may be lost.
const EXTEND_EVERY: Duration = Duration::from_secs(3);
/// Time without an acknowledgement after which an engine that holds messages counts as stuck.
const STILL: Duration = Duration::from_secs(10);
/// Longest time for which a message is held. Its run may hang in this engine, which works for the others.
const HELD_FOR_MAX: Duration = Duration::from_secs(120);

/// Message in a store: a hash of its stream's name, and its sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key(u64, u64);

impl Key {
    /// Key of a delivered message.
    pub(super) fn of(message: &Message) -> Option<Self> {
        let info = message.info().ok()?;
        let stream = hash64(info.stream.as_bytes());
        Some(Self(stream, info.stream_sequence))
    }
}

/// Messages that an engine holds, and its credit. Lock held for one map operation or one copy, never across an await.
#[derive(Default)]
pub(super) struct UnackedMessages {
    messages: Mutex<Messages>,
    pub(super) credit: Credit,
}

#[derive(Default)]
struct Messages {
    came: HashMap<Key, UnackedMessage>,
    /// Time of the last acknowledgement, or of the first message while there was none.
    works: Option<Instant>,
}

struct UnackedMessage {
    reply: Subject,
    at: Instant,
    pool: CreditPool,
    /// Credit that comes back with the acknowledgement.
    cost: usize,
}

impl Messages {
    /// Whether messages are acknowledged.
    fn works(&self, now: Instant) -> bool {
        self.works.is_some_and(|at| now.duration_since(at) < STILL)
    }
}

impl UnackedMessages {
    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.locked()
    }

    /// Adds a message that came, for which credit was taken. `false`: it is held already, and this is a repeat.
    pub(super) fn add(&self, key: Key, reply: Subject, pool: CreditPool, bytes: usize) -> bool {
        let now = Instant::now();
        let cost = self.credit.came(pool, bytes);
        let mut messages = self.messages();
        // An idle engine begins to work with its next message.
        if messages.came.is_empty() {
            messages.works = Some(now);
        }
        let works = messages.works(now);
        let new = UnackedMessage {
            reply,
            at: now,
            pool,
            cost,
        };
        match messages.came.get_mut(&key) {
            Some(held) if works && now.duration_since(held.at) < HELD_FOR_MAX => {
                held.reply = new.reply;
                drop(messages);
                self.credit.give_back(pool, cost);
                false
            }
            Some(held) => {
                // A shard has both. The first acknowledgement gives the credit of both back.
                let cost = held.cost + new.cost;
                *held = UnackedMessage { cost, ..new };
                true
            }
            None => {
                messages.came.insert(key, new);
                true
            }
        }
    }

    /// Removes a message that is acknowledged or returned.
    pub(super) fn remove(&self, key: Key) {
        let now = Instant::now();
        let came = {
            let mut messages = self.messages();
            messages.works = Some(now);
            messages.came.remove(&key)
        };
        if let Some(UnackedMessage { at, pool, cost, .. }) = came {
            self.credit
                .acknowledged(pool, cost, now.duration_since(at), now);
        }
    }

    /// Removes a message that is refused. That is no sign of work: anyone can send one, also to an engine that hangs.
    pub(super) fn remove_refused(&self, key: Key) {
        let came = self.messages().came.remove(&key);
        if let Some(UnackedMessage { pool, cost, .. }) = came {
            self.credit.give_back(pool, cost);
        }
    }

    /// Messages whose claims are extended now.
    fn to_extend(&self, now: Instant) -> Vec<Subject> {
        let messages = self.messages();
        if !messages.works(now) {
            return Vec::new();
        }
        let age = |came: &&UnackedMessage| now.duration_since(came.at);
        let old = messages
            .came
            .values()
            .filter(|came| (EXTEND_EVERY..HELD_FOR_MAX).contains(&age(came)));
        old.map(|came| came.reply.clone()).collect()
    }
}

/// Extends claims until cancelled.
pub(super) async fn run_extension(link: Arc<Link>, held: Arc<UnackedMessages>) {
    let mut tick = interval(EXTEND_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let replies = held.to_extend(Instant::now());
        if replies.is_empty() {
            continue;
        }
        tracing::debug!(messages = replies.len(), "claims are extended");
        for reply in replies {
            // A lost extension is a repeat, which is harmless.
            let _ = link
                .client
                .publish(reply, Bytes::from_static(b"+WPI"))
                .await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: CreditPool = CreditPool::Partition(0);

    /// A message that comes.
    fn comes(held: &UnackedMessages, number: u64) -> bool {
        let reply = Subject::from(format!("{number}"));
        held.add(Key(0, number), reply, POOL, 1)
    }

    #[test]
    fn claims_are_extended_while_the_engine_works_and_not_for_ever() {
        let held = UnackedMessages::default();
        assert!(comes(&held, 1) && comes(&held, 2));
        let now = Instant::now();
        let later = now + EXTEND_EVERY;
        assert!(held.to_extend(now).is_empty(), "they have just come");
        assert_eq!(held.to_extend(later).len(), 2);
        held.remove(Key(0, 2));
        assert_eq!(held.to_extend(later), vec![Subject::from("1")]);
        assert!(
            held.to_extend(now + STILL * 2).is_empty(),
            "it stands still since"
        );
        let much_later = now + HELD_FOR_MAX * 2;
        held.messages().works = Some(much_later);
        assert!(held.to_extend(much_later).is_empty(), "not for ever");
    }

    #[test]
    fn a_refused_message_does_not_keep_the_claims_of_an_engine_that_hangs() {
        let held = UnackedMessages::default();
        comes(&held, 1);
        let begun = held.messages().works;
        comes(&held, 2);
        held.remove_refused(Key(0, 2));
        assert_eq!(held.messages().works, begun);
        comes(&held, 2);
        held.remove(Key(0, 2));
        assert_ne!(held.messages().works, begun, "one that was handled counts");
    }

    #[test]
    fn a_repeat_of_a_held_message_is_dropped_unless_the_engine_hangs() {
        let held = UnackedMessages::default();
        assert!(comes(&held, 1) && comes(&held, 2));
        assert!(!comes(&held, 1), "a shard has it");
        held.remove(Key(0, 1));
        assert!(comes(&held, 1), "it was returned before");
        held.messages().works = Instant::now().checked_sub(STILL);
        assert!(comes(&held, 2), "nothing is acknowledged");
        held.remove(Key(0, 1));
        held.remove(Key(0, 2));
        assert!(held.messages().came.is_empty());
    }

    #[test]
    fn what_messages_took_of_the_credit_comes_back() {
        let held = UnackedMessages::default();
        let free = || {
            let mut free = 0;
            while let Some(one) = futures::FutureExt::now_or_never(held.credit.ask(POOL, 1)) {
                free += one;
            }
            held.credit.give_back(POOL, free);
            free
        };
        let before = free();
        let ask = || futures::FutureExt::now_or_never(held.credit.ask(POOL, 1));
        for number in [1, 2, 2] {
            assert_eq!(ask(), Some(1));
            comes(&held, number);
        }
        held.messages().works = Instant::now().checked_sub(STILL);
        assert_eq!(ask(), Some(1));
        assert!(comes(&held, 2), "twice in a shard");
        assert_eq!(free(), before - 3);
        held.remove_refused(Key(0, 1));
        held.remove(Key(0, 2));
        held.remove(Key(0, 2));
        assert_eq!(free(), before + 1, "and one more for a fast answer");
    }
}
