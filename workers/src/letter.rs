//! Orders, reports and facts as the bytes that cross a store's queues.

use dormer_proto::{
    envelope::{self, DecodeError, EncodeError},
    id::Incarnation,
    message::{Failure, Inbound, Letter},
    work::{FactLetter, Order, Report, ReportLetter, SCHEMA},
};

/// Reads an order.
///
/// # Errors
/// [`DecodeError::Newer`]: leave it to a newer worker. Else it will never be readable.
pub fn order(bytes: &[u8]) -> Result<Order, DecodeError> {
    envelope::decode(bytes, SCHEMA).map(|(order, _)| order)
}

/// A report as a letter to the run that ordered. One that is too large becomes a lasting failure that says so, since
/// something must end the task.
///
/// # Errors
/// What even the failure meets: nothing that is known.
pub fn report(report: Report, incarnation: Incarnation) -> Result<Vec<u8>, EncodeError> {
    let run = report.task.run.clone();
    let mut letter: ReportLetter = Letter {
        run,
        incarnation: Some(incarnation),
        body: Inbound::Reported(report),
    };
    let error = match envelope::encode(&letter, SCHEMA) {
        Ok((bytes, _)) => return Ok(bytes),
        Err(error) => error,
    };
    if let Inbound::Reported(report) = &mut letter.body {
        report.result = Err(Failure::lasting("ReportTooLarge", error.to_string()));
    }
    envelope::encode(&letter, SCHEMA).map(|(bytes, _)| bytes)
}

/// A fact as a letter.
///
/// # Errors
/// [`EncodeError`]: too large. It will never be stored.
pub fn fact(letter: &FactLetter) -> Result<Vec<u8>, EncodeError> {
    envelope::encode(letter, SCHEMA).map(|(bytes, _)| bytes)
}
