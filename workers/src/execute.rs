//! Executors of tasks: tasks of Windows hosts over SSH, all others at the Kubernetes API.

use crate::progress::Progress;
use dormer_proto::{machine::Outcome, message::Failure, work::Order};
use std::future::Future;

/// Longest wait of an executor for a missing prerequisite, in milliseconds of the engine's time. It is shorter than an
/// order's wait in the queue, so that the engine does not give the attempt up meanwhile.
pub const READY_MS_MAX: u64 = 4 * 60_000;

/// Executor of orders. An order may come twice, even at the same time, so repeating it must be harmless.
///
/// The future may be dropped at any await (a limit, a shutdown): what was begun must be safe to begin again.
pub trait Execute: Send + Sync + 'static {
    /// Waits for a prerequisite that this executor lacks for `order`, and reports it to `progress`. The attempt's limit
    /// begins afterwards. The wait ends within [`READY_MS_MAX`] of the engine's time, of which `time_factor`
    /// milliseconds pass in one of this process.
    fn ready(
        &self,
        order: &Order,
        progress: &Progress,
        time_factor: f64,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = (order, progress, time_factor);
        async { Ok(()) }
    }

    /// Last check against the live cluster before another executor executes `order`. Returns the answer to report
    /// instead if the cluster does not allow the order now.
    fn refuses(
        &self,
        order: &Order,
    ) -> impl Future<Output = Result<Option<Outcome>, Failure>> + Send {
        let _ = order;
        async { Ok(None) }
    }

    /// Executes `order`, and reports each step to `progress`.
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

impl<H: Execute, K: Execute> Execute for Executors<H, K> {
    async fn ready(
        &self,
        order: &Order,
        progress: &Progress,
        time_factor: f64,
    ) -> Result<(), Failure> {
        if order.body.host().is_some() {
            self.host.ready(order, progress, time_factor).await
        } else {
            self.kubernetes.ready(order, progress, time_factor).await
        }
    }

    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        if order.body.host().is_some() {
            if let Some(refused) = self.kubernetes.refuses(order).await? {
                return Ok(refused);
            }
            self.host.execute(order, progress).await
        } else {
            self.kubernetes.execute(order, progress).await
        }
    }
}
