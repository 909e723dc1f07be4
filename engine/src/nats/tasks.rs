//! Task queue on NATS: a work queue in memory with one subject per order, and receipts as plain messages.

use super::{
    link::{Fault, Link},
    post::Outgoing,
};
use crate::port::{OrderOut, StoreError, TaskQueue};
use async_nats::HeaderMap;
use dormer_proto::{envelope, message::ReportReceipt};
use std::sync::Arc;

/// Task queue of a NATS store.
pub struct NatsTasks {
    link: Arc<Link>,
}

impl NatsTasks {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }
}

impl TaskQueue for NatsTasks {
    async fn publish(&self, orders: Vec<OrderOut>) -> Result<(), StoreError> {
        let mut messages = Vec::new();
        let mut tasks = Vec::new();
        for order in orders {
            messages.push(Outgoing {
                subject: self
                    .link
                    .names
                    .order(order.class, &order.task, order.attempt),
                headers: HeaderMap::new(),
                body: order.bytes.into(),
            });
            tasks.push(order.task);
        }
        for (task, result) in tasks.iter().zip(self.link.post.publish(messages).await) {
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
            let _ = self
                .link
                .client
                .publish(self.link.names.receipts(&receipt.worker), bytes.into())
                .await;
        }
    }
}
