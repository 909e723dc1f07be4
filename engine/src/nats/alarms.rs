//! Alarms: one message schedule per run, whose target lies in the same stream.
//!
//! The server's own rule is that the last one wins, whatever it is set to. So that a slow engine with an older record
//! postpones nothing, each is published on condition that the one it takes the place of is known, and keeps its time
//! if that is earlier. What this process published last it knows; what another did, it looks up when it is refused.

mod moment;

use super::{
    link::{Fault, Link},
    post::Outgoing,
};
use crate::{
    local::timer_due,
    port::{Alarms, Clock, StoreError, SystemClock, earlier},
};
use async_nats::{HeaderMap, jetstream::stream::LastRawMessageErrorKind};
use dormer_proto::id::{RunId, Timestamp};
use futures::{StreamExt, TryStreamExt, stream};
use moment::{moment, rfc3339};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Schedules of which this process knows the sequence. Beyond, all are forgotten, and looked up when they change.
const KNOWN_MAX: usize = 16_384;
/// Looks under way at once.
const READS_MAX: usize = 64;
/// How often one alarm is tried while others set it, too.
const ROUNDS_MAX: usize = 8;

/// The alarms of a NATS store. They ring no closer than the server fires schedules: 250 ms.
pub struct NatsAlarms {
    link: Arc<Link>,
    /// What this process published last. A lock: held for map operations, never across an await.
    known: Mutex<HashMap<RunId, Schedule>>,
}

/// What stands on a run's schedule subject.
#[derive(Debug, Clone, Copy, Default)]
struct Schedule {
    /// Its sequence; 0: nothing is there.
    sequence: u64,
    /// When it rings, if it does.
    at: Option<Timestamp>,
}

/// An alarm on its way to the server.
struct PendingAlarm {
    run: RunId,
    at: Option<Timestamp>,
    /// What it takes the place of.
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
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has to be published for these alarms, as far as this process knows. A clear of what another process set,
    /// or of what has rung by now, is left out.
    fn wanted(&self, alarms: Vec<(RunId, Option<Timestamp>)>) -> Vec<PendingAlarm> {
        let now = SystemClock.now();
        let known = self.known();
        let wanted = alarms.into_iter().filter_map(|(run, at)| {
            let found = known.get(&run).copied();
            let found = found.filter(|found| found.at.is_some_and(|at| at > now));
            let found = if at.is_some() {
                found.unwrap_or_default()
            } else {
                found?
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
                headers.insert(
                    "Nats-Schedule-Target",
                    self.link.names.timer_due(run).as_str(),
                );
                body = timer_due(run, self.link.incarnation).unwrap_or_default();
            }
            // What replaces the schedule is gone after a second.
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

    /// Publishes, and answers the alarms that another process, or the server's firing, was faster with.
    async fn publish(&self, wanted: Vec<PendingAlarm>) -> Result<Vec<PendingAlarm>, StoreError> {
        let messages = wanted.iter().map(|wanted| self.message(wanted)).collect();
        let results = self.link.post.publish(messages).await;
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
                // What was cleared is gone, or somebody set it anew: then it stays.
                Ok(_) => {}
                Err(Fault::WrongSequence) if wanted.at.is_none() => {}
                Err(Fault::WrongSequence) => refused.push(wanted),
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(refused)
    }

    /// The same alarm, in place of what its subject holds now.
    async fn read_schedule(&self, wanted: PendingAlarm) -> Result<PendingAlarm, StoreError> {
        let lost = |e: String| StoreError::Unavailable(format!("looking for an alarm: {e}"));
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
            "an alarm was set by others again and again".into(),
        ))
    }
}
