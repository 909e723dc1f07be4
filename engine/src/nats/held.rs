//! Messages that this engine holds: pulled, and not acknowledged yet.
//!
//! The server delivers a message again once its claim ends. An engine under load holds messages for longer than that;
//! each repeat would cost it a read of the run's leader, and slow it down further. So it extends the claims of what it
//! holds, as long as it acknowledges anything at all. After [`STILL`] without an acknowledgement it stops, the claims
//! end, and others take its messages.

use super::link::Link;
use async_nats::Subject;
use bytes::Bytes;
use dormer_proto::id::hash64;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
const HELD_MAX: Duration = Duration::from_secs(120);

/// Reply subject of a message, and when it came.
type Came = (Subject, Instant);

/// Messages that an engine holds. Lock held for one map operation or one copy, never across an await.
#[derive(Default)]
pub(super) struct Held(Mutex<Messages>);

#[derive(Default)]
struct Messages {
    /// By the hash of the reply subject: of two with one hash, one may come again.
    came: HashMap<u64, Came>,
    /// Time of the last acknowledgement, or of the first message while there was none.
    works: Option<Instant>,
}

impl Held {
    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message that came.
    pub(super) fn add(&self, reply: Option<&Subject>) {
        if let Some(reply) = reply {
            let now = Instant::now();
            let mut messages = self.messages();
            // An idle engine begins to work with its next message.
            if messages.came.is_empty() {
                messages.works = Some(now);
            }
            let came = (reply.clone(), now);
            messages.came.insert(hash64(reply.as_bytes()), came);
        }
    }

    /// Removes a message that is acknowledged or returned.
    pub(super) fn remove(&self, reply: &Subject) {
        let mut messages = self.messages();
        messages.came.remove(&hash64(reply.as_bytes()));
        messages.works = Some(Instant::now());
    }

    /// Removes a message that is refused. That is no sign of work: anyone can send one, also to an engine that hangs.
    pub(super) fn remove_refused(&self, reply: &Subject) {
        self.messages().came.remove(&hash64(reply.as_bytes()));
    }

    /// Messages whose claims are extended now.
    fn to_extend(&self, now: Instant) -> Vec<Subject> {
        let Messages { came, works } = &mut *self.messages();
        came.retain(|_, (_, at)| now.duration_since(*at) < HELD_MAX);
        if works.is_none_or(|at| now.duration_since(at) >= STILL) {
            return Vec::new();
        }
        let old = came
            .values()
            .filter(|(_, at)| now.duration_since(*at) >= EXTEND_EVERY);
        old.map(|(reply, _)| reply.clone()).collect()
    }
}

/// Extends claims until cancelled.
pub(super) async fn run_extension(link: Arc<Link>, held: Arc<Held>) {
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

    #[test]
    fn claims_are_extended_while_the_engine_works_and_not_for_ever() {
        let held = Held::default();
        let (one, two) = (Subject::from("one"), Subject::from("two"));
        held.add(Some(&one));
        held.add(Some(&two));
        let now = Instant::now();
        let later = now + EXTEND_EVERY;
        assert!(held.to_extend(now).is_empty(), "they have just come");
        assert_eq!(held.to_extend(later).len(), 2);
        held.remove(&two);
        assert_eq!(held.to_extend(later), vec![one.clone()]);
        assert!(
            held.to_extend(now + STILL * 2).is_empty(),
            "it stands still since"
        );
        assert!(held.to_extend(now + HELD_MAX * 2).is_empty());
        assert!(held.messages().came.is_empty(), "nothing is kept for ever");
    }

    #[test]
    fn a_refused_message_does_not_keep_the_claims_of_an_engine_that_hangs() {
        let held = Held::default();
        let (one, forged) = (Subject::from("one"), Subject::from("forged"));
        held.add(Some(&one));
        let begun = held.messages().works;
        held.add(Some(&forged));
        held.remove_refused(&forged);
        assert_eq!(held.messages().works, begun);
        held.add(Some(&forged));
        held.remove(&forged);
        assert_ne!(held.messages().works, begun, "one that was handled counts");
    }
}
