//! Why nothing new starts on a machine: a pause, a hold, or its label.

use dormer_proto::{held_by::HeldBy, id::Timestamp, machine::FenceRefusal, requester::Requester};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Hold of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Person and reason: `ann: a new disk`.
    pub by: String,
    /// The person, where that text alone would be misread: the name has `: ` in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// When it began. `None`: an older build recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Why a worker refused, if dormer itself holds the machine for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<FenceRefusal>,
    /// Whose it is. `None`: an older build recorded it, and the text says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HeldBy>,
}

impl Hold {
    /// Whether dormer itself holds the machine.
    #[must_use]
    pub fn is_own(&self) -> bool {
        is_own(self.holder, &self.by)
    }

    /// Whether both are of one person, or both dormer's own.
    pub(super) fn is_of_the_same(&self, other: &Self) -> bool {
        self.is_own() == other.is_own() && self.person() == other.person()
    }

    /// Whether it is this person's.
    pub(super) fn is_of(&self, who: &str) -> bool {
        !self.is_own() && self.person() == who
    }

    /// The person, without the reason.
    pub(super) fn person(&self) -> &str {
        Requester::of(&self.by, self.who.as_deref()).who
    }
}

fn is_own(holder: Option<HeldBy>, by: &str) -> bool {
    holder.unwrap_or_else(|| HeldBy::from_stored_text(by)) == HeldBy::Dormer
}

/// Reason that nothing new starts on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Halt {
    /// A person paused it.
    Paused {
        /// Who, and why.
        by: String,
        /// As [`Hold::who`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        who: Option<String>,
    },
    /// It stays out of the rollout until resumed, by a person's order or the drain policy `abort`.
    Held {
        /// Who, and why.
        by: String,
        /// Whose hold it is. `None`: an older build recorded it, and the text says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<HeldBy>,
        /// As [`Hold::who`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        who: Option<String>,
    },
    /// Its Machine is labelled `windowsmachineconfig.openshift.io/ignore=true`.
    Ignored,
}

impl Halt {
    /// Whether dormer itself keeps the machine as it is.
    #[must_use]
    pub fn is_own(&self) -> bool {
        match self {
            Self::Held { by, holder, .. } => is_own(*holder, by),
            Self::Paused { .. } | Self::Ignored => false,
        }
    }

    /// Who keeps the machine as it is, and why. `None`: its label.
    #[must_use]
    pub fn by(&self) -> Option<&str> {
        match self {
            Self::Paused { by, .. } | Self::Held { by, .. } => Some(by),
            Self::Ignored => None,
        }
    }

    /// Who keeps the machine as it is, and why, apart. `None`: its label.
    #[must_use]
    pub fn requester(&self) -> Option<Requester<'_>> {
        match self {
            Self::Paused { by, who } | Self::Held { by, who, .. } => {
                Some(Requester::of(by, who.as_deref()))
            }
            Self::Ignored => None,
        }
    }

    /// The person of a pause or a hold.
    #[must_use]
    pub fn person(&self) -> Option<&str> {
        let requester = self.requester().filter(|_| !self.is_own())?;
        Some(requester.who)
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused { by, .. } => write!(f, "paused by {by}"),
            Self::Held { by, .. } => write!(f, "held by {by}"),
            Self::Ignored => {
                f.write_str("the Machine is labelled windowsmachineconfig.openshift.io/ignore=true")
            }
        }
    }
}
