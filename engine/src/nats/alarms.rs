//! Alarms on NATS: one message schedule per run, with its target in the same stream.
//!
//! On the server the last schedule wins, whatever its time. A slow engine with an older record must postpone nothing.
//! So each schedule is published on condition that its predecessor is known, and keeps the predecessor's time if that
//! is earlier. The process remembers what it published last. What another process published it reads after a refusal.

mod moment;

use super::{
    link::Link,
    publish::{Outgoing, PublishFault},
};
use crate::{
    local::timer_due,
    port::{Alarms, Clock, StoreError, SystemClock, earlier},
};
use async_nats::{HeaderMap, jetstream::stream::LastRawMessageErrorKind};
use dormer_proto::{
    address::Origin,
    id::{RunId, Timestamp},
    lock::Locked as _,
};
use futures::{StreamExt, TryStreamExt, stream};
use moment::{moment, rfc3339};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

/// Most schedules whose sequence this process remembers. Beyond it all are forgotten, and read when they change.
const KNOWN_MAX: usize = 16_384;
/// Most reads at once.
const READS_MAX: usize = 64;
/// Tries to set one alarm while other processes set it as well.
const ROUNDS_MAX: usize = 8;

/// Alarms of a NATS store. Their precision is that of the server's schedules: 250 ms.
pub struct NatsAlarms {
    link: Arc<Link>,
    /// Schedules that this process published last. Lock held for map operations, never across an await.
    known: Mutex<HashMap<RunId, Schedule>>,
}

/// Content of a run's schedule subject.
#[derive(Debug, Clone, Copy, Default)]
struct Schedule {
    /// Sequence of the message; 0 if there is none.
    sequence: u64,
    /// Time of the alarm, if it is set.
    at: Option<Timestamp>,
}

/// Alarm to publish.
struct PendingAlarm {
    run: RunId,
    at: Option<Timestamp>,
    /// Schedule that it replaces.
    found: Schedule,
}

impl NatsAlarms {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<RunId, Schedule>> {
        // A panic elsewhere cannot have left a half-done operation.
        self.known.locked()
    }

    /// Schedules to publish for these alarms, as far as this process knows. Clearing another process's alarm, or one
    /// that has fired, is skipped.
    fn wanted(&self, alarms: Vec<(RunId, Option<Timestamp>)>) -> Vec<PendingAlarm> {
        let now = SystemClock.now();
        let known = self.known();
        let wanted = alarms.into_iter().filter_map(|(run, at)| {
            let published = known.get(&run).copied();
            let ahead = published.filter(|it| it.at.is_some_and(|at| at > now));
            let found = if at.is_some() {
                ahead.unwrap_or_default()
            } else {
                ahead?
            };
            Some(PendingAlarm {
                run,
                at: at.map(|at| earlier(found.at, at)),
                found,
            })
        });
        wanted.collect()
    }

    fn message(&self, wanted: &PendingAlarm) -> Outgoing {
        let PendingAlarm { run, at, found } = wanted;
        let mut headers = HeaderMap::new();
        let mut body = Vec::new();
        match at {
            Some(at) => {
                headers.insert("Nats-Schedule", format!("@at {}", rfc3339(*at)).as_str());
                let target = self.link.names.timer_due(run);
                headers.insert("Nats-Schedule-Target", target.as_str());
                body = timer_due(run, self.link.incarnation).unwrap_or_default();
                // The server copies it to the message that it publishes to the target.
                self.link.sign(Origin::Engine, &target, &body, &mut headers);
            }
            // The message that replaces the schedule expires after a second.
            None => headers.insert("Nats-TTL", "1s"),
        }
        headers.insert("Nats-Rollup", "sub");
        let sequence = found.sequence.to_string();
        headers.insert("Nats-Expected-Last-Subject-Sequence", sequence.as_str());
        Outgoing {
            subject: self.link.names.alarm(run),
            headers,
            body: body.into(),
        }
    }

    /// Publishes the alarms. Returns those for which another process, or the server's firing, was faster.
    async fn publish(&self, wanted: Vec<PendingAlarm>) -> Result<Vec<PendingAlarm>, StoreError> {
        let messages = wanted.iter().map(|wanted| self.message(wanted)).collect();
        let results = self.link.publisher.publish(messages).await;
        let mut refused = Vec::new();
        let mut known = self.known();
        if known.len() + wanted.len() > KNOWN_MAX {
            known.clear();
        }
        for (wanted, result) in wanted.into_iter().zip(results) {
            known.remove(&wanted.run);
            match result {
                Ok(sequence) if wanted.at.is_some() => {
                    known.insert(
                        wanted.run,
                        Schedule {
                            sequence,
                            at: wanted.at,
                        },
                    );
                }
                // A cleared alarm is gone. If another process set it again, it stays.
                Ok(_) => {}
                Err(PublishFault::WrongSequence) if wanted.at.is_none() => {}
                Err(PublishFault::WrongSequence) => refused.push(wanted),
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(refused)
    }

    /// The same alarm as a replacement for the present schedule.
    async fn read_schedule(&self, wanted: PendingAlarm) -> Result<PendingAlarm, StoreError> {
        let lost = |e: String| StoreError::Unavailable(format!("reading an alarm: {e}"));
        let name = self.link.names.alarm_stream();
        let handle = self
            .link
            .js
            .get_stream_no_info(&name)
            .await
            .map_err(|e| lost(e.to_string()))?;
        let subject = self.link.names.alarm(&wanted.run);
        let found = match handle.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => {
                let at = message
                    .headers
                    .get("Nats-Schedule")
                    .and_then(|at| moment(at.as_str()));
                Schedule {
                    sequence: message.sequence,
                    at,
                }
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                Schedule::default()
            }
            Err(error) => return Err(lost(error.to_string())),
        };
        Ok(PendingAlarm {
            at: wanted.at.map(|at| earlier(found.at, at)),
            found,
            ..wanted
        })
    }
}

impl Alarms for NatsAlarms {
    async fn set(&self, alarms: Vec<(RunId, Option<Timestamp>)>) -> Result<(), StoreError> {
        let mut wanted = self.wanted(alarms);
        for _ in 0..ROUNDS_MAX {
            let refused = self.publish(wanted).await?;
            if refused.is_empty() {
                return Ok(());
            }
            let reads = refused
                .into_iter()
                .map(|refused| self.read_schedule(refused));
            wanted = stream::iter(reads)
                .buffer_unordered(READS_MAX)
                .try_collect()
                .await?;
        }
        Err(StoreError::Unavailable(
            "other processes kept changing an alarm".into(),
        ))
    }
}
