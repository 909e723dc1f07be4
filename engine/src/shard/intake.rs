//! Intake: decodes a batch of deliveries and groups it by run, in the order of arrival.

use super::newer_builds::read_up_to;
use crate::port::Delivery;
use dormer_engine_core::{InboxMessageOf, Workflow};
use dormer_proto::{
    envelope::{self, DecodeError},
    id::RunId,
    message::{Inbound, InboxMessage},
};
use std::collections::BTreeMap;

/// Message with its acknowledgement token.
pub(super) struct Received<W: Workflow> {
    pub(super) message: InboxMessageOf<W>,
    pub(super) token: u64,
    pub(super) cause: String,
    /// Envelope of the message.
    pub(super) bytes: Vec<u8>,
}

impl<W: Workflow> Received<W> {
    /// Takes the message for a final verdict: on a run just read it is not decided twice.
    pub(super) fn spend(&mut self) -> InboxMessageOf<W> {
        let body = std::mem::replace(&mut self.message.body, Inbound::TimerDue);
        InboxMessage {
            run: self.message.run.clone(),
            incarnation: self.message.incarnation,
            body,
        }
    }

    /// The message as it came, also after [`Received::spend`].
    pub(super) fn original(self) -> InboxMessageOf<W> {
        self.renewed().message
    }

    /// The same with the message as it came.
    pub(super) fn renewed(self) -> Self {
        let read = envelope::decode::<InboxMessageOf<W>>(&self.bytes, read_up_to(W::SCHEMA));
        match read {
            Ok((message, _)) => Self { message, ..self },
            Err(_) => self,
        }
    }
}

/// Decoded delivery for the shard that owns its run.
pub struct DecodedDelivery<W: Workflow> {
    delivery: Delivery,
    message: Result<InboxMessageOf<W>, DecodeError>,
}

impl<W: Workflow> DecodedDelivery<W> {
    /// Decodes a delivery.
    #[must_use]
    pub fn open(delivery: Delivery) -> Self {
        let message = envelope::decode::<InboxMessageOf<W>>(&delivery.bytes, read_up_to(W::SCHEMA));
        Self {
            message: message.map(|(message, _)| message),
            delivery,
        }
    }

    /// Run of the message. `None`: it cannot be read.
    #[must_use]
    pub fn run(&self) -> Option<&RunId> {
        self.message.as_ref().ok().map(|message| &message.run)
    }

    /// Acknowledgement token.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.delivery.token
    }
}

/// Batch grouped by run.
pub(super) struct Sorted<W: Workflow> {
    pub(super) received: BTreeMap<RunId, Vec<Received<W>>>,
    pub(super) unreadable: Vec<(Delivery, DecodeError)>,
}

pub(super) fn sort<W: Workflow>(batch: Vec<DecodedDelivery<W>>) -> Sorted<W> {
    let mut sorted = Sorted {
        received: BTreeMap::new(),
        unreadable: Vec::new(),
    };
    for DecodedDelivery { delivery, message } in batch {
        match message {
            Ok(message) => {
                let received = Received {
                    token: delivery.token,
                    cause: delivery.cause,
                    message,
                    bytes: delivery.bytes,
                };
                sorted
                    .received
                    .entry(received.message.run.clone())
                    .or_default()
                    .push(received);
            }
            Err(error) => sorted.unreadable.push((delivery, error)),
        }
    }
    sorted
}
