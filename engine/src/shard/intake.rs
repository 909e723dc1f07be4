//! Intake: decodes a batch of deliveries and groups it by run, in the order of arrival.

use super::fault::{RunFault, guarded};
use crate::port::Delivery;
use dormer_engine_core::{
    InboxMessageOf, Workflow,
    unfenced::{Fence, enforced},
};
use dormer_proto::{
    envelope::{self, DecodeError},
    id::RunId,
    message::{Failure, Inbound, InboxMessage, TaskReport},
};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Highest schema that a build with `schema` reads. In production builds it is `schema` itself.
pub(super) fn read_up_to(schema: u16) -> u16 {
    if enforced(Fence::Newer) {
        schema
    } else {
        u16::MAX
    }
}

/// Message with its acknowledgement token.
pub(super) struct Received<W: Workflow> {
    pub(super) message: InboxMessageOf<W>,
    pub(super) token: u64,
    pub(super) cause: String,
    /// Envelope of the message.
    pub(super) bytes: Vec<u8>,
    /// Panic of the code that decodes it. `message` then has what is readable without that code.
    pub(super) fault: Option<RunFault>,
}

impl<W: Workflow> Received<W> {
    /// Takes the message for a final verdict: on a run just read it is not decided twice.
    pub(super) fn take_message(&mut self) -> InboxMessageOf<W> {
        let body = std::mem::replace(&mut self.message.body, Inbound::TimerDue);
        InboxMessage {
            run: self.message.run.clone(),
            incarnation: self.message.incarnation,
            body,
        }
    }

    /// The message as it came, also after [`Received::take_message`].
    pub(super) fn original(self) -> InboxMessageOf<W> {
        self.decoded_again().message
    }

    /// The same with the message as it came.
    pub(super) fn decoded_again(self) -> Self {
        match decode::<W>(&self.bytes) {
            Ok(Decoded { message, fault }) => Self {
                message,
                fault,
                ..self
            },
            Err(_) => self,
        }
    }
}

/// Decoded message.
struct Decoded<W: Workflow> {
    message: InboxMessageOf<W>,
    /// Panic of the code that decodes it.
    fault: Option<RunFault>,
}

/// Decodes a message. A panic of the workflow's code is a fault of the run that the message names.
fn decode<W: Workflow>(bytes: &[u8]) -> Result<Decoded<W>, DecodeError> {
    let read = || envelope::decode::<InboxMessageOf<W>>(bytes, read_up_to(W::SCHEMA));
    match guarded("reading a message", read) {
        Ok(read) => read.map(|(message, _)| Decoded {
            message,
            fault: None,
        }),
        Err(fault) => {
            let message = without_contents::<W>(bytes)?;
            let fault = Some(fault);
            Ok(Decoded { message, fault })
        }
    }
}

/// What a message says without the workflow's own contents: its run, and the attempt of a report. All else looks like a
/// due timer.
fn without_contents<W: Workflow>(bytes: &[u8]) -> Result<InboxMessageOf<W>, DecodeError> {
    type AnyMessage = InboxMessage<IgnoredAny, IgnoredAny, IgnoredAny>;
    let (any, _) = envelope::decode::<AnyMessage>(bytes, read_up_to(W::SCHEMA))?;
    let body = match any.body {
        Inbound::Reported(report) => Inbound::Reported(TaskReport {
            task: report.task,
            attempt: report.attempt,
            issued: report.issued,
            worker: report.worker,
            by: report.by,
            result: Err(Failure::lasting("Unreadable", "the report cannot be read")),
        }),
        _ => Inbound::TimerDue,
    };
    Ok(InboxMessage {
        run: any.run,
        incarnation: any.incarnation,
        body,
    })
}

/// Decoded delivery for the shard that owns its run.
pub struct DecodedDelivery<W: Workflow> {
    delivery: Delivery,
    decoded: Result<Decoded<W>, DecodeError>,
}

impl<W: Workflow> DecodedDelivery<W> {
    #[must_use]
    pub fn decode(delivery: Delivery) -> Self {
        Self {
            decoded: decode(&delivery.bytes),
            delivery,
        }
    }

    /// Run of the message. `None`: it cannot be read.
    #[must_use]
    pub fn run(&self) -> Option<&RunId> {
        self.decoded.as_ref().ok().map(|it| &it.message.run)
    }

    /// Acknowledgement token.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.delivery.token
    }

    /// How often it was delivered.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        self.delivery.deliveries
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
    for DecodedDelivery { delivery, decoded } in batch {
        match decoded {
            Ok(Decoded { message, fault }) => {
                let received = Received {
                    token: delivery.token,
                    cause: delivery.cause,
                    message,
                    bytes: delivery.bytes,
                    fault,
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
