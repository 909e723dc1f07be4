//! Ids: a type for every number and name that crosses a process boundary.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Longest run id, in bytes: a NATS subject stays well under its 4 KiB even when every byte is escaped.
pub const RUN_ID_BYTES_MAX: usize = 200;

/// Error of parsing an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text has no `workflow/key` form.
    #[error("run id {0:?} is not of the form WORKFLOW/KEY")]
    NotARun(String),
    /// The text is longer than [`RUN_ID_BYTES_MAX`].
    #[error("run id has {0} bytes, but at most {RUN_ID_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// The text has no `run@seq.ordinal` form.
    #[error("task id {0:?} is not of the form RUN@SEQ.ORDINAL")]
    NotATask(String),
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The next greater value. The greatest value has no successor and stays, so that no counter restarts at 0.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Dense position of a record in one run's history, from 1. The engine assigns it. It is not a [`Revision`].
    Seq
}
number! {
    /// Opaque version of a run's last record, which the store assigns (a JetStream sequence has gaps per subject).
    Revision
}
number! {
    /// Number of an attempt: the nth issue of a task by the engine, from 1. It fences the task's reports.
    Attempt
}
number! {
    /// Growing number that the store allocates before each full list of the cluster. The larger one wins.
    Epoch
}
number! {
    /// Fencing number of a rollout's lease; it only grows.
    LeaseToken
}

/// Furthest that a token in the cluster may be beyond the greatest one that its reader knows. A store that was lost has
/// granted fewer leases than that. A greater token is another client's, and would use the numbers up.
pub const TOKENS_AHEAD_MAX: u64 = 1 << 32;

impl LeaseToken {
    /// Whether dormer may have granted this token, where `known` is the greatest one that the reader knows.
    #[must_use]
    pub fn is_plausible(self, known: Self) -> bool {
        self.0.saturating_sub(known.0) <= TOKENS_AHEAD_MAX
    }
}
number! {
    /// Checksum of one record: 64 bits of XXH3 over its body, which names the sum of the record before.
    Sum
}

/// Milliseconds since the Unix epoch, UTC. The core never reads a clock; its caller passes the time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This moment plus `ms` milliseconds (saturating).
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment; 0 if the clock went backwards.
    #[must_use]
    pub fn since_ms(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Random identity of a store. `restore` creates a new one, so that numbers that go backwards are detected.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One durable instance of a workflow: `machine/<uid>`, `rollout/<pool>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// Names the run `key` of `workflow`. Neither may be empty; `workflow` may not contain `/`.
    ///
    /// # Errors
    /// [`IdError::NotARun`] or [`IdError::TooLong`].
    pub fn new(workflow: &str, key: &str) -> Result<Self, IdError> {
        format!("{workflow}/{key}").try_into()
    }

    /// The workflow's name.
    #[must_use]
    pub fn workflow(&self) -> &str {
        self.0.split_once('/').map_or("", |(workflow, _)| workflow)
    }

    /// Key of the run within its workflow: a Machine's UID, a pool's name.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, key)| key)
    }

    /// The whole id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RunId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        if text.len() > RUN_ID_BYTES_MAX {
            return Err(IdError::TooLong(text.len()));
        }
        match text.split_once('/') {
            Some((workflow, key)) if !workflow.is_empty() && !key.is_empty() => Ok(Self(text)),
            _ => Err(IdError::NotARun(text)),
        }
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> Self {
        run.0
    }
}

impl FromStr for RunId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        text.to_owned().try_into()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Id of a task: run, seq of the record that ordered it, and its index among that record's tasks. Derived, never
/// random: it is the de-duplication key, the idempotency key and the log key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    pub run: RunId,
    /// Record that ordered the task.
    pub seq: Seq,
    /// Index in that record, from 0.
    pub ordinal: u16,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}.{}", self.run, self.seq, self.ordinal)
    }
}

impl FromStr for TaskId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::NotATask(text.to_owned());
        let (run, position) = text.rsplit_once('@').ok_or_else(bad)?;
        let (seq, ordinal) = position.split_once('.').ok_or_else(bad)?;
        Ok(Self {
            run: run.parse()?,
            seq: Seq(seq.parse().map_err(|_| bad())?),
            ordinal: ordinal.parse().map_err(|_| bad())?,
        })
    }
}

/// Id of a signal within its sender: the record that sent it, and its index there. It grows per sender.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct SignalId {
    /// Record of the sender.
    pub seq: Seq,
    /// Index among that record's signals, from 0.
    pub ordinal: u16,
}

/// Checksum and jitter source: XXH3, 64 bits. Not cryptographic.
#[must_use]
pub fn hash64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_their_text_form() {
        let run = RunId::new("machine", "ns/a.b-1").unwrap();
        assert_eq!((run.workflow(), run.key()), ("machine", "ns/a.b-1"));
        let task = TaskId {
            run,
            seq: Seq(12),
            ordinal: 3,
        };
        assert_eq!(task.to_string().parse::<TaskId>().unwrap(), task);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for bad in ["", "machine", "/x", "machine/"] {
            assert_eq!(bad.parse::<RunId>(), Err(IdError::NotARun(bad.into())));
        }
        assert_eq!(
            RunId::new("m", &"x".repeat(300)),
            Err(IdError::TooLong(302))
        );
        assert!("machine/x@1".parse::<TaskId>().is_err());
    }
}
