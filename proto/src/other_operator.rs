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
    /// One runs: which one and where, and how to stop it ([`text`]).
    Runs(String),
}

/// Separator of an operator and the commands that stop it.
const STOP: &str = "; to stop it: ";

/// The text that facts and records have of an operator that runs. `what`: which one and where; `stop`: the commands that
/// stop it.
#[must_use]
pub fn text(what: &str, stop: &str) -> String {
    format!("{what}{STOP}{stop}")
}

/// The parts of such a text: which operator runs and where, and the commands that stop it, if the text has them.
#[must_use]
pub fn parts(text: &str) -> (&str, Option<&str>) {
    let parts = text.split_once(STOP);
    parts.map_or((text, None), |(what, stop)| (what, Some(stop)))
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
    fn an_operator_and_the_commands_that_stop_it_are_one_text() {
        let runs = "WMCO runs (Pod w/w-1)";
        let stop = "kubectl -n w scale deployment w --replicas=0";
        assert_eq!(parts(&text(runs, stop)), (runs, Some(stop)));
        assert_eq!(parts(runs), (runs, None));
    }

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
