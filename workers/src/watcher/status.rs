//! How the watcher fares, for health endpoints and people.

use dormer_proto::id::Epoch;

/// How the watcher fares. Counts are of the present view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// This process publishes; another one does when it is `false` and `holder` is somebody.
    pub elected: bool,
    /// Who holds the Kubernetes Lease, as far as this process knows.
    pub holder: Option<String>,
    /// The epoch of the last full list.
    pub epoch: Epoch,
    /// When the last full list was published, by this process's clock.
    pub listed: Option<jiff::Timestamp>,
    /// Windows Machines.
    pub machines: usize,
    /// Machines that have, or may have, a run.
    pub live: usize,
    /// Machines with `windowsmachineconfig.openshift.io/ignore=true`.
    pub ignored: usize,
    /// Machines for which another API speaks (`status.authoritativeAPI` is not `MachineAPI`): not acted on.
    pub elsewhere: usize,
    /// Pending CSRs of kubelets that are none of our machines'.
    pub foreign_csrs: usize,
    /// Readings of objects that could not be understood, since the start.
    pub unreadable: u64,
    /// Why the pool's settings are not what the ConfigMap asks for: the key, and what is wrong with it.
    pub pool_refused: Option<String>,
    /// What went wrong last, in one sentence; `None` since it went right again.
    pub error: Option<String>,
}

impl Status {
    /// Whether the watcher does its part: it has listed and goes on, or another one is elected.
    #[must_use]
    pub fn ready(&self) -> bool {
        if self.elected { self.listed.is_some() } else { self.holder.is_some() }
    }
}
