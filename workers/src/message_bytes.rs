//! Encoding of orders, reports and facts for a store's queues.

use dormer_proto::{
    envelope::{self, DecodeError, EncodeError},
    id::Incarnation,
    message::{Failure, Inbound, InboxMessage},
    work::{FactMessage, Order, Report, ReportMessage, SCHEMA},
};

/// Reads an order.
///
/// # Errors
/// [`DecodeError::Newer`]: a newer worker can read it. Any other error is final.
pub fn order(bytes: &[u8]) -> Result<Order, DecodeError> {
    envelope::decode(bytes, SCHEMA).map(|(order, _)| order)
}

/// A report as a message to the run that ordered. One that is too large becomes a lasting failure that says so, since
/// something must end the task.
///
/// # Errors
/// Even the failure cannot be encoded: no such case is known.
pub fn report(report: Report, incarnation: Incarnation) -> Result<Vec<u8>, EncodeError> {
    let run = report.task.run.clone();
    let mut message: ReportMessage = InboxMessage {
        run,
        incarnation: Some(incarnation),
        body: Inbound::Reported(report),
    };
    let error = match envelope::encode(&message, SCHEMA) {
        Ok((bytes, _)) => return Ok(bytes),
        Err(error) => error,
    };
    if let Inbound::Reported(report) = &mut message.body {
        report.result = Err(Failure::lasting("ReportTooLarge", error.to_string()));
    }
    envelope::encode(&message, SCHEMA).map(|(bytes, _)| bytes)
}

/// A fact as a message.
///
/// # Errors
/// [`EncodeError`]: too large. It will never be stored.
pub fn fact(message: &FactMessage) -> Result<Vec<u8>, EncodeError> {
    envelope::encode(message, SCHEMA).map(|(bytes, _)| bytes)
}
