//! Faults of single runs: causes of a quarantine.

use dormer_nats::history_keys::Unproven;
use dormer_proto::id::{Revision, Seq};
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Cause of a quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunFault {
    pub(super) code: &'static str,
    pub(super) why: String,
}

impl RunFault {
    /// The store will never accept the run's next record.
    pub(super) fn refused(why: String) -> Self {
        let code = "RecordRefused";
        Self { code, why }
    }

    /// The run's last record is damaged.
    pub(super) fn unreadable(why: String) -> Self {
        let code = "RecordUnreadable";
        Self { code, why }
    }

    /// The MAC of the run's last record is missing or wrong.
    pub(super) fn unproven(revision: Revision, why: &Unproven) -> Self {
        Self {
            code: why.code(),
            why: format!("the last record (revision {revision}): {why}"),
        }
    }

    /// Records at the end of the run are gone.
    pub(super) fn lost(why: String) -> Self {
        let code = "RecordLost";
        Self { code, why }
    }

    /// The run's last record is older than one that this engine knows.
    pub(super) fn older(revision: Revision, seq: Seq, known: Seq) -> Self {
        Self {
            code: "RecordOlder",
            why: format!(
                "the last record (revision {revision}) is record {seq}, and record {known} was there"
            ),
        }
    }

    fn panicked(doing: &str, panic: &(dyn Any + Send)) -> Self {
        let literal = panic.downcast_ref::<&str>().copied();
        let formatted = || panic.downcast_ref::<String>().map(String::as_str);
        let text = literal.or_else(formatted).unwrap_or("it does not say why");
        Self {
            code: "DecisionPanicked",
            why: format!("{doing} panicked: {text}"),
        }
    }
}

/// Calls code that works on one run. A panic is a fault of this run: what the code worked on is thrown away, and nothing
/// of it is stored. `doing` says what it does, for people.
pub(super) fn guarded<T>(doing: &str, work: impl FnOnce() -> T) -> Result<T, RunFault> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| RunFault::panicked(doing, panic.as_ref()))
}
