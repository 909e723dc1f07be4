//! Another operator that configures Windows hosts. While one runs, dormer leaves every host alone.

use serde::{Deserialize, Serialize};

/// Knowledge of the watcher about another operator that configures Windows hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OtherOperator {
    /// It could not be read, or an older watcher does not search: the last result stays in force.
    #[default]
    Unread,
    /// A live list has none.
    Absent,
    /// One runs: which one and where, and how to stop it.
    Runs(String),
}

impl OtherOperator {
    /// Present result. An unreadable source proves nothing, so `before` stays in force.
    #[must_use]
    pub fn after(self, before: &Self) -> Self {
        match self {
            Self::Unread => before.clone(),
            Self::Absent | Self::Runs(_) => self,
        }
    }

    /// Which one runs and where, and how to stop it; `None`: none is known.
    #[must_use]
    pub fn runs(&self) -> Option<&str> {
        match self {
            Self::Runs(what) => Some(what),
            Self::Unread | Self::Absent => None,
        }
    }

    pub(crate) fn is_unread(&self) -> bool {
        *self == Self::Unread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_live_list_shows_it_gone() {
        let runs = || OtherOperator::Runs("it runs".into());
        for (now, before, known) in [
            (OtherOperator::Unread, runs(), runs()),
            (OtherOperator::Absent, runs(), OtherOperator::Absent),
            (runs(), OtherOperator::Absent, runs()),
            (
                OtherOperator::Unread,
                OtherOperator::Absent,
                OtherOperator::Absent,
            ),
            (
                OtherOperator::Unread,
                OtherOperator::Unread,
                OtherOperator::Unread,
            ),
        ] {
            assert_eq!(now.after(&before), known);
        }
        assert_eq!(runs().runs(), Some("it runs"));
    }
}
