//! Signals to a machine's run.

use crate::id::LeaseToken;
use serde::{Deserialize, Serialize};

/// Signal to a machine's run, from people or its rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Signal {
    /// Continue from the failed step.
    Retry,
    /// Start nothing new on this machine.
    Pause,
    /// End a pause or hold.
    Resume,
    /// Stay as it is, out of the rollout, until resumed.
    Hold,
    /// Cordon and drain, and stay so until resumed (through the lease).
    Drain,
    /// Replace this machine now (through the lease).
    Recreate,
    /// Approve the upgrade of this machine (manual approval).
    Approve,
    /// Abort the current upgrade: undo the cordon, release the lease.
    Abort,
    /// Close this run, and leave the machine alone.
    Remove,
    /// Trust the host with this key, whatever key was pinned: it was reinstalled on purpose.
    TrustHostKey {
        /// `SHA256:…`, as `ssh-keygen -l` prints it.
        fingerprint: String,
    },
    /// From the rollout: the lease is granted.
    Granted {
        /// Fencing token.
        token: LeaseToken,
        /// Whether it was granted over the limit, because this member is itself unavailable.
        #[serde(rename = "marked")]
        over_limit: bool,
    },
    /// From the rollout: the member is unknown; enrol again.
    Enrol,
    /// From the rollout, to a machine that was deleted under its lease: the slot has ended.
    Replaced {
        /// UID of the Machine that replaces it; `None`: none will come.
        by: Option<String>,
    },
}
