//! Orders over NATS: one durable consumer for each class, claims extended by progress acknowledgements, reports until
//! they have receipts.

use super::{
    link::{ANSWER_MAX, INCARNATION_EVERY, NatsLink, failed},
    pull::{Pulled, Pulls},
};
use crate::{
    message_bytes,
    port::{Claimed, Orders, PortError},
};
use async_nats::jetstream::{AckKind, Message};
use dormer_nats::signing::Refusal;
use dormer_proto::{
    address::{Address, Origin},
    envelope::{self, DecodeError},
    id::{Attempt, Incarnation, TaskId},
    lock::Locked as _,
    message::{Heartbeat, NodeSettings, RemoteCommand, ReportReceipt, Reporter},
    subject::{APPROVALS, HOST_CLASS, WORKER_CLASSES},
    work::Report,
};
use futures::StreamExt;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// Time without receipt after which a report is repeated.
const REPEAT_AFTER: Duration = Duration::from_secs(3);
/// Time for which an order that only a newer build can read is left to one.
const LEFT_TO_NEWER: Duration = Duration::from_secs(30);

/// Age at which an order for a host is refused: the longest wait for a worker plus the time limit of its attempt
/// (`workflows/src/machine/policy.rs`). So an order that was recorded and is replayed is refused.
const HOST_ORDER_AGE_MAX: Duration = Duration::from_secs(95 * 60);
/// The same of an order for the Kubernetes API.
const ORDER_AGE_MAX: Duration = Duration::from_secs(8 * 60);

/// Time after which an order with a wrong signature comes again, if it may be true.
const REFUSED_AGAIN: Duration = INCARNATION_EVERY.saturating_mul(2);
/// Greatest age of the store's incarnation that was read for the present order. No new store is created and used within
/// it.
const JUST_READ: Duration = Duration::from_millis(200);

type Key = (TaskId, Attempt);

/// Reports that wait for a receipt.
#[derive(Default)]
struct PendingReports(Mutex<HashMap<Key, oneshot::Sender<ReportReceipt>>>);

impl PendingReports {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, oneshot::Sender<ReportReceipt>>> {
        // Held for a map operation, never across an await.
        self.0.locked()
    }
}

/// A worker's orders, on NATS.
pub struct NatsOrders {
    link: Arc<NatsLink>,
    role: Reporter,
    pulls: Pulls,
    waiting: Arc<PendingReports>,
    listening: JoinHandle<()>,
}

impl NatsOrders {
    /// Orders for the process `name` in a role; it pulls once orders are taken.
    ///
    /// # Errors
    /// The connection has ended for good.
    pub async fn open(link: Arc<NatsLink>, name: &str, role: Reporter) -> Result<Self, PortError> {
        let classes: &[&str] = match role {
            Reporter::Worker => &WORKER_CLASSES,
            Reporter::Approver => &[APPROVALS],
        };
        let receipts = link
            .client
            .subscribe(link.names.receipts(name))
            .await
            .map_err(failed)?;
        let waiting = Arc::<PendingReports>::default();
        let listening = tokio::spawn(listen(Arc::clone(&link), receipts, Arc::clone(&waiting)));
        let pulls = Pulls::start(&link, classes);
        Ok(Self {
            link,
            role,
            pulls,
            waiting,
            listening,
        })
    }

    /// Publishes values for rendering nodes, for consoles.
    ///
    /// # Errors
    /// The message is too large, or the connection has ended for good.
    pub async fn publish_settings(&self, settings: &NodeSettings) -> Result<(), PortError> {
        let (bytes, _) = envelope::encode(settings, 0).map_err(failed)?;
        let incarnation = self.link.present().await.unwrap_or_default();
        let subject = self.link.names.heartbeats();
        self.link
            .send(self.origin(), incarnation, subject, bytes.into())
            .await
    }

    fn origin(&self) -> Origin {
        match self.role {
            Reporter::Worker => Origin::Worker,
            Reporter::Approver => Origin::Approver,
        }
    }

    async fn claim(&self, message: Message) -> Option<Claimed<NatsClaim>> {
        let subject = &message.subject;
        let headers = message.headers.as_ref();
        let verified = self
            .link
            .verify(&[Origin::Engine], subject, &message.payload, headers);
        let fresh = verified.await.and_then(|at| {
            let age = if is_of_hosts(&self.link, subject) {
                HOST_ORDER_AGE_MAX
            } else {
                ORDER_AGE_MAX
            };
            self.link.fresh(at, age, subject)
        });
        if let Err(refusal) = fresh {
            let deliveries = message.info().map_or(1, |info| info.delivered);
            let fate = fate_of_refused(refusal, deliveries, self.link.incarnation_age());
            let _ = message.ack_with(fate).await;
            return None;
        }
        let error = match message_bytes::order(&message.payload) {
            Ok(order) => {
                let claim = NatsClaim {
                    message,
                    incarnation: order.incarnation,
                };
                return Some(Claimed { claim, order });
            }
            Err(error) => error,
        };
        let fate = match error {
            DecodeError::Newer { .. } => AckKind::Nak(Some(LEFT_TO_NEWER)),
            // Its attempt's deadline ends it.
            _ => AckKind::Term,
        };
        tracing::error!(subject = %message.subject, %error, "an order cannot be read");
        let _ = message.ack_with(fate).await;
        None
    }
}

/// Decision about an order whose signature is refused at its delivery number `deliveries` (from 1). Signatures cover
/// the store's incarnation. If that is unknown, or was read before the order may have arrived, a true order of a new
/// store is indistinguishable from a forged one, so it is delivered again. A forged order is ended then. A true order
/// of that attempt cannot arrive any more, and the attempt's deadline ends the attempt.
fn fate_of_refused(refusal: Refusal, deliveries: i64, incarnation: Option<Duration>) -> AckKind {
    let known = match incarnation {
        Some(age) if deliveries > 1 => age <= REFUSED_AGAIN,
        Some(age) => age < JUST_READ,
        None => false,
    };
    if refusal == Refusal::WrongSignature && !known {
        AckKind::Nak(Some(REFUSED_AGAIN))
    } else {
        AckKind::Term
    }
}

/// Whether this is an order of the class that works on hosts.
fn is_of_hosts(link: &NatsLink, subject: &str) -> bool {
    let hosts = link.names.tasks(HOST_CLASS);
    let rest = subject.strip_prefix(hosts.as_str());
    rest.is_some_and(|rest| rest.starts_with('.'))
}

impl Drop for NatsOrders {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(
    link: Arc<NatsLink>,
    mut receipts: async_nats::Subscriber,
    waiting: Arc<PendingReports>,
) {
    while let Some(message) = receipts.next().await {
        let headers = message.headers.as_ref();
        let verified = link.verify(
            &[Origin::Engine],
            &message.subject,
            &message.payload,
            headers,
        );
        if verified.await.is_err() {
            continue;
        }
        let Ok((receipt, _)) = envelope::decode::<ReportReceipt>(&message.payload, 0) else {
            continue;
        };
        let waiter = waiting
            .all()
            .remove(&(receipt.task.clone(), receipt.attempt));
        if let Some(waiter) = waiter {
            let _ = waiter.send(receipt);
        }
    }
}

/// Handle on one order.
pub struct NatsClaim {
    message: Message,
    incarnation: Incarnation,
}

/// Takes a report that waits no more out of the list, also when it is dropped at some await.
struct ClaimWait<'a>(&'a PendingReports, Key);

impl Drop for ClaimWait<'_> {
    fn drop(&mut self) {
        self.0.all().remove(&self.1);
    }
}

impl Orders for NatsOrders {
    type Claim = NatsClaim;

    async fn take(&self, limit: usize) -> Result<Vec<Claimed<NatsClaim>>, PortError> {
        loop {
            let Pulled(messages) = self.pulls.take(limit.max(1)).await;
            let mut claimed = Vec::with_capacity(messages.len());
            for message in messages {
                claimed.extend(self.claim(message).await);
            }
            if !claimed.is_empty() {
                return Ok(claimed);
            }
        }
    }

    async fn heartbeat(&self, claim: &NatsClaim, heartbeat: Heartbeat) -> Result<(), PortError> {
        claim
            .message
            .ack_with(AckKind::Progress)
            .await
            .map_err(failed)?;
        let (bytes, _) = envelope::encode(&heartbeat, 0).map_err(failed)?;
        let subject = self.link.names.heartbeats();
        self.link
            .send(self.origin(), claim.incarnation, subject, bytes.into())
            .await
    }

    async fn show(&self, command: RemoteCommand) {
        if let Ok((bytes, _)) = envelope::encode(&command, 0) {
            let incarnation = self.link.present().await.unwrap_or_default();
            let subject = self.link.names.heartbeats();
            let shown = self
                .link
                .send(self.origin(), incarnation, subject, bytes.into())
                .await;
            if let Err(error) = shown {
                tracing::debug!(%error, "a remote command is not shown");
            }
        }
    }

    async fn report(&self, claim: &NatsClaim, report: Report) -> Result<(), PortError> {
        let key: Key = (report.task.clone(), report.attempt);
        // It is signed by this role. An engine drops it if the task was another role's.
        let report = Report {
            by: self.role,
            ..report
        };
        let run = report.task.run.clone();
        let bytes = message_bytes::report(report, claim.incarnation).map_err(failed)?;
        let address = Address::of_bytes(&run, &bytes);
        let subject = self.link.names.message(self.origin(), &address);
        let bytes = bytes::Bytes::from(bytes);
        loop {
            let (tell, receipted) = oneshot::channel();
            self.waiting.all().insert(key.clone(), tell);
            let _wait = ClaimWait(&self.waiting, key.clone());
            // The receipt carries more than an acknowledgement of the stream, and a lost report is repeated.
            let sent = self.link.send(
                self.origin(),
                claim.incarnation,
                subject.clone(),
                bytes.clone(),
            );
            if let Err(error) = sent.await {
                tracing::debug!(%error, "the report cannot be sent");
                sleep(REPEAT_AFTER / 3).await;
                continue;
            }
            if let Ok(Ok(receipt)) = timeout(REPEAT_AFTER, receipted).await {
                tracing::debug!(fate = ?receipt.fate, "the report is receipted");
                break;
            }
        }
        // If this is lost the order comes again, is done again, and its report is late: costly, but harmless.
        let _ = timeout(ANSWER_MAX, claim.message.double_ack()).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_ended_for_its_signature_once_the_stores_incarnation_is_known_for_sure() {
        let ms = |it| Some(Duration::from_millis(it));
        let again = AckKind::Nak(Some(REFUSED_AGAIN));
        for (refusal, deliveries, age, fate) in [
            // Never read: no store is here yet, or the server does not answer.
            (Refusal::WrongSignature, 1, None, again),
            (Refusal::WrongSignature, 9, None, again),
            // Read for this very order.
            (Refusal::WrongSignature, 1, ms(3), AckKind::Term),
            // Read before it came: the store may be a new one.
            (Refusal::WrongSignature, 1, ms(900), again),
            // Read since its first delivery, for another order.
            (Refusal::WrongSignature, 2, ms(900), AckKind::Term),
            // The read after its first delivery failed.
            (Refusal::WrongSignature, 2, ms(60_000), again),
            // No incarnation mends these.
            (Refusal::Unsigned, 1, None, AckKind::Term),
            (Refusal::Stale, 1, None, AckKind::Term),
        ] {
            let found = fate_of_refused(refusal, deliveries, age);
            assert_eq!(
                format!("{found:?}"),
                format!("{fate:?}"),
                "{refusal:?} {deliveries} {age:?}"
            );
        }
    }
}
