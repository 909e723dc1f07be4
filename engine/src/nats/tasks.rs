//! Orders to workers: a work queue in memory, one subject per order; receipts as plain messages.

use super::{
    inbox::PUBLISHES_MAX,
    link::{Fault, Link},
};
use crate::port::{OrderOut, StoreError, TaskQueue};
use async_nats::HeaderMap;
use dormer_proto::{envelope, message::ReportReceipt};
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;

/// The task queue of a NATS store.
pub struct NatsTasks {
    link: Arc<Link>,
}

impl NatsTasks {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    async fn publish_one(&self, order: OrderOut) -> Result<(), StoreError> {
        let subject = self.link.names.order(order.class, &order.task, order.attempt);
        match self.link.publish(subject, HeaderMap::new(), order.bytes.into()).await {
            // The first order of this attempt still stands.
            Ok(_) | Err(Fault::SubjectFull) => Ok(()),
            Err(Fault::Refused(why)) => {
                tracing::error!(task = %order.task, why, "an order cannot be published");
                Ok(())
            }
            Err(fault) => Err(fault.into()),
        }
    }
}

impl TaskQueue for NatsTasks {
    async fn publish(&self, orders: Vec<OrderOut>) -> Result<(), StoreError> {
        let publish = |order| self.publish_one(order);
        stream::iter(orders).map(publish).buffer_unordered(PUBLISHES_MAX).try_collect().await
    }

    async fn receipt(&self, receipts: Vec<ReportReceipt>) {
        for receipt in receipts {
            let Ok((bytes, _)) = envelope::encode(&receipt, 0) else { continue };
            // Lost receipts are asked for again: the worker repeats its report.
            let _ = self
                .link
                .client
                .publish(self.link.names.receipts(&receipt.worker), bytes.into())
                .await;
        }
    }
}
