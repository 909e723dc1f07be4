//! Task queue on NATS: a work queue in memory with one subject per order, and receipts as plain messages.

use super::{
    link::Link,
    publish::{Outgoing, PublishFault},
};
use crate::port::{EndedTask, OrderOut, StoreError, TaskQueue};
use dormer_proto::{address::Origin, envelope, message::ReportReceipt};
use futures::{StreamExt, stream};
use std::sync::Arc;

/// Most orders that are taken away at once.
const PURGES_MAX: usize = 64;

/// Task queue of a NATS store.
pub struct NatsTasks {
    link: Arc<Link>,
}

impl NatsTasks {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// Deletes orders whose result is no longer awaited. It spares workers the work; what remains is reported late.
    async fn take_away(&self, subjects: Vec<String>) {
        if subjects.is_empty() {
            return;
        }
        let name = self.link.names.task_stream();
        let Ok(stream) = self.link.js.get_stream_no_info(&name).await else {
            return;
        };
        let purges = stream::iter(subjects).map(|subject| {
            let purge = stream.purge().filter(subject);
            async move { purge.await }
        });
        let mut purges = purges.buffer_unordered(PURGES_MAX);
        while let Some(result) = purges.next().await {
            if let Err(error) = result {
                tracing::debug!(%error, "an order that nobody waits for stays");
            }
        }
    }
}

impl NatsTasks {
    /// Whether the message that holds `subject` is taken away, because no engine of this store signed it. Who put it
    /// there would otherwise keep the true order out, and the attempt would end without an answer.
    async fn forged_is_taken_away(&self, subject: &str) -> bool {
        let name = self.link.names.task_stream();
        let Ok(stream) = self.link.js.get_stream_no_info(&name).await else {
            return false;
        };
        let Ok(held) = stream.get_last_raw_message_by_subject(subject).await else {
            // A worker has taken it meanwhile, and refused it.
            return true;
        };
        let message = (&*held.payload, Some(&held.headers));
        if self.link.verify(Origin::Engine, subject, message).is_ok() {
            return false;
        }
        tracing::warn!(subject, "a forged message blocked an order; it is deleted");
        stream.delete_message(held.sequence).await.is_ok()
    }

    /// Publishes again what a forged message kept out.
    async fn publish_again(&self, kept_out: Vec<Outgoing>) -> Result<(), StoreError> {
        let mut again = Vec::new();
        for message in kept_out {
            if self.forged_is_taken_away(&message.subject).await {
                again.push(message);
            }
        }
        if again.is_empty() {
            return Ok(());
        }
        for result in self.link.publisher.publish(again).await {
            match result {
                Ok(_) => {}
                // The attempt's deadline ends it, and orders the next one.
                Err(PublishFault::SubjectFull) => {
                    tracing::error!(
                        "an order is blocked by another forged message; its attempt will time out"
                    );
                }
                Err(PublishFault::Refused(why)) => {
                    tracing::error!(why, "an order cannot be published")
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(())
    }
}

impl TaskQueue for NatsTasks {
    async fn publish(&self, orders: Vec<OrderOut>) -> Result<(), StoreError> {
        let mut messages = Vec::new();
        let mut tasks = Vec::new();
        let mut superseded = Vec::new();
        for order in orders {
            let names = &self.link.names;
            let old = order.superseded();
            superseded.extend(old.map(|old| names.order(order.class, &order.task, old)));
            let subject = names.order(order.class, &order.task, order.attempt);
            messages.push(Outgoing {
                headers: self.link.signature(Origin::Engine, &subject, &order.bytes),
                subject,
                body: order.bytes.into(),
            });
            tasks.push(order.task);
        }
        // For what a forged message may keep out. Without keys a forged message is not recognised.
        let spare = self.link.keys.as_ref().map(|_| messages.clone());
        let published = self.link.publisher.publish(messages);
        let (results, ()) = futures::join!(published, self.take_away(superseded));
        let mut kept_out = Vec::new();
        for (at, (task, result)) in tasks.iter().zip(results).enumerate() {
            match result {
                Ok(_) => {}
                // The first order of this attempt still exists, or something else in its place.
                Err(PublishFault::SubjectFull) => {
                    kept_out.extend(spare.iter().map(|it| it[at].clone()))
                }
                Err(PublishFault::Refused(why)) => {
                    tracing::error!(%task, why, "an order cannot be published");
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        self.publish_again(kept_out).await
    }

    async fn withdraw(&self, ended: Vec<EndedTask>) {
        let names = &self.link.names;
        let subjects = ended.iter();
        let subjects = subjects.map(|ended| names.orders_of(ended.class, &ended.task));
        self.take_away(subjects.collect()).await;
    }

    async fn receipt(&self, receipts: Vec<ReportReceipt>) {
        for receipt in receipts {
            let Ok((bytes, _)) = envelope::encode(&receipt, 0) else {
                continue;
            };
            // A worker repeats its report if the receipt is lost.
            let subject = self.link.names.receipts(&receipt.worker);
            self.link.send(Origin::Engine, subject, bytes.into()).await;
        }
    }
}
