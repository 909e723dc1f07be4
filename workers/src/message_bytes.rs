//! Encoding of orders, reports and facts for a store's queues.

use dormer_proto::{
    envelope::{self, DecodeError, EncodeError},
    id::Incarnation,
    message::{Failure, Inbound, InboxMessage},
    work::{FactMessage, Order, Report, ReportMessage, SCHEMA},
};

/// Largest report, in bytes. A record holds it as an event, and often again in the run's state; 20 KB is much.
pub const REPORT_BYTES_MAX: usize = 256 << 10;

/// Reads an order.
///
/// # Errors
/// [`DecodeError::Newer`]: a newer worker can read it. Any other error is final.
pub fn order(bytes: &[u8]) -> Result<Order, DecodeError> {
    envelope::decode(bytes, SCHEMA).map(|(order, _)| order)
}

/// A report as a message to the run that ordered the task. A report that is too large becomes a lasting failure, since
/// something has to end the task.
///
/// # Errors
///
/// Even the failure cannot be encoded: no such case is known.
pub fn report(report: Report, incarnation: Incarnation) -> Result<Vec<u8>, EncodeError> {
    let run = report.task.run.clone();
    let mut message: ReportMessage = InboxMessage {
        run,
        incarnation: Some(incarnation),
        body: Inbound::Reported(report),
    };
    let why = match envelope::encode(&message, SCHEMA) {
        Ok((bytes, _)) if bytes.len() <= REPORT_BYTES_MAX => return Ok(bytes),
        Ok((bytes, _)) => {
            let found = bytes.len();
            format!("the report has {found} bytes, but at most {REPORT_BYTES_MAX} are allowed")
        }
        Err(error) => error.to_string(),
    };
    if let Inbound::Reported(report) = &mut message.body {
        report.result = Err(Failure::lasting("ReportTooLarge", why));
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

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::{
        id::{Attempt, Seq, Sum, TaskId},
        message::{Reporter, TaskReport},
        work::machine_run,
    };

    #[test]
    fn a_report_has_a_limit_where_it_enters() {
        let of = |bytes: usize| TaskReport {
            task: TaskId {
                run: machine_run("u1").expect("a run"),
                seq: Seq(1),
                ordinal: 0,
            },
            attempt: Attempt(1),
            issued: Sum(1),
            worker: "w".into(),
            by: Reporter::Worker,
            result: Err(Failure {
                message: "x".repeat(bytes),
                ..Failure::transient("Trouble", "")
            }),
        };
        let code = |bytes| {
            let bytes = report(of(bytes), Incarnation(1)).expect("a message");
            assert!(bytes.len() <= REPORT_BYTES_MAX);
            let (message, _) = envelope::decode::<ReportMessage>(&bytes, SCHEMA).expect("ours");
            match message.body {
                Inbound::Reported(report) => report.result.expect_err("a failure").code,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(code(20_000), "Trouble");
        assert_eq!(code(REPORT_BYTES_MAX), "ReportTooLarge");
        assert_eq!(code(envelope::MESSAGE_BYTES_MAX), "ReportTooLarge");
    }
}
