//! What is withheld from the rollout, or from a worker, so that a law is seen to fail.

use super::machine::{Report, ToRollout};

/// What is kept from the rollout or a worker, to prove that a law of the model can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) enum Withheld {
    #[default]
    Nothing,
    /// That a person cordoned a Node.
    Cordons,
    /// For how long a Node has not been Ready: each may be repaired at once.
    Downtime,
    /// That a host cannot be compared.
    Troubles,
    /// That a Machine was deleted: neither its run nor the watcher says so.
    Deletions,
    /// That a lease has ended.
    Releases,
    /// That a replacement fails its checks.
    Failures,
    /// That a machine has never served: it counts among those of which `maxUnavailable` is a share.
    Newcomers,
    /// That a machine has never served: a slot that waits for it stands in its way, as in that of any other.
    Rounds,
    /// What the Node is like when its fence is opened: the worker does not read it.
    LiveRead,
}

impl Withheld {
    fn report(self, report: Report) -> Report {
        match self {
            Self::Cordons => Report {
                cordoned: false,
                ..report
            },
            Self::Downtime => Report {
                repair: report.unavailable,
                ..report
            },
            Self::Troubles => Report {
                not_compared: false,
                ..report
            },
            Self::Deletions => Report {
                deleting: false,
                ..report
            },
            Self::Failures => Report {
                failed: false,
                ..report
            },
            Self::Newcomers => Report {
                had_node: true,
                ..report
            },
            Self::Rounds if !report.had_node => Report {
                had_node: true,
                unavailable: true,
                repair: true,
                ..report
            },
            Self::Nothing | Self::Releases | Self::Rounds | Self::LiveRead => report,
        }
    }

    /// What the rollout takes in. `None`: nothing.
    pub(super) fn pass(self, signal: ToRollout) -> Option<ToRollout> {
        Some(match (self, signal) {
            (_, ToRollout::Member(report)) => ToRollout::Member(self.report(report)),
            (_, ToRollout::Request(report)) => ToRollout::Request(self.report(report)),
            (Self::Releases, ToRollout::Release { .. }) => return None,
            (Self::Deletions, ToRollout::Release { token, .. }) => ToRollout::Release {
                token,
                replaced: false,
            },
            (Self::Deletions, ToRollout::Left { stays, .. }) => {
                ToRollout::Left { gap: false, stays }
            }
            (_, signal) => signal,
        })
    }
}
