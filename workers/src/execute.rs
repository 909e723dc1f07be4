//! Who does a task: Windows hosts' tasks over SSH, the rest at the Kubernetes API.

use crate::progress::Progress;
use dormer_proto::{
    machine::{Outcome, Task},
    message::Failure,
    work::Order,
};
use std::future::Future;

/// Longest wait of executors that lack something, in milliseconds of the engine's time: less than an order may wait in a
/// queue, so that the engine does not give the attempt up meanwhile.
pub const READY_MS_MAX: u64 = 4 * 60_000;

/// Executes orders. An order may come twice, and twice at once: doing it again must be harmless.
///
/// The future may be dropped at any await (a limit, a shutdown): what was begun must be safe to begin again.
pub trait Execute: Send + Sync + 'static {
    /// Waits for what this executor itself lacks for `order`, and tells `progress` what it is. The attempt's limit
    /// begins after it. It ends within [`READY_MS_MAX`] of the engine's time, of which `time_factor` milliseconds pass
    /// in one of ours.
    fn ready(
        &self,
        order: &Order,
        progress: &Progress,
        time_factor: f64,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = (order, progress, time_factor);
        async { Ok(()) }
    }

    /// Looks at the cluster just before another executor does `order`, and answers in its place where the cluster does not
    /// let it be done now.
    fn refuses(
        &self,
        order: &Order,
    ) -> impl Future<Output = Result<Option<Outcome>, Failure>> + Send {
        let _ = order;
        async { Ok(None) }
    }

    /// Does what `order` asks, and tells `progress` each time something moved.
    fn execute(
        &self,
        order: &Order,
        progress: &Progress,
    ) -> impl Future<Output = Result<Outcome, Failure>> + Send;
}

/// The two executors of a worker.
#[derive(Debug, Clone)]
pub struct Executors<H, K> {
    /// For Windows hosts.
    pub host: H,
    /// For the Kubernetes API.
    pub kubernetes: K,
}

/// Whether a task is done on the Windows host (over SSH), not at the Kubernetes API.
#[must_use]
pub fn on_host(task: &Task) -> bool {
    matches!(
        task,
        Task::Probe { .. }
            | Task::Converge { .. }
            | Task::Reboot { .. }
            | Task::Plan { .. }
            | Task::TearDown { .. }
    )
}

impl<H: Execute, K: Execute> Execute for Executors<H, K> {
    async fn ready(
        &self,
        order: &Order,
        progress: &Progress,
        time_factor: f64,
    ) -> Result<(), Failure> {
        if on_host(&order.body) {
            self.host.ready(order, progress, time_factor).await
        } else {
            self.kubernetes.ready(order, progress, time_factor).await
        }
    }

    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        if on_host(&order.body) {
            if let Some(refused) = self.kubernetes.refuses(order).await? {
                return Ok(refused);
            }
            self.host.execute(order, progress).await
        } else {
            self.kubernetes.execute(order, progress).await
        }
    }
}
