//! Task queue on NATS: a work queue in memory with one subject per order, and receipts as plain messages.

use super::{
    link::{Fault, Link},
    post::Outgoing,
};
use crate::port::{OrderOut, StoreError, TaskQueue};
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

    /// Takes away orders that nobody waits for any more. It spares workers the work; what remains is reported late.
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
                tracing::debug!(%error, "an order of an earlier attempt stays");
            }
        }
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
        let published = self.link.post.publish(messages);
        let (results, ()) = futures::join!(published, self.take_away(superseded));
        for (task, result) in tasks.iter().zip(results) {
            match result {
                // The first order of this attempt still exists.
                Ok(_) | Err(Fault::SubjectFull) => {}
                Err(Fault::Refused(why)) => {
                    tracing::error!(%task, why, "an order cannot be published");
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(())
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
