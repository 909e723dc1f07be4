//! Executor that begins nothing while another process may have taken this one's Lease.

use super::{key::MissingPrerequisite, key::missing_prerequisite, store_lease::Proof};
use dormer_proto::{machine::Outcome, message::Failure, work::Order};
use dormer_workers::{
    execute::{Execute, READY_MS_MAX},
    progress::Progress,
};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// Failure code of tasks that are not begun.
const NOT_PROVEN: &str = "LeaseNotProven";

/// Executor of a process whose store is a folder. A process that is cut off from the API server still reaches hosts over
/// SSH; once its Lease lapses, another dormer may command the same hosts.
pub(crate) struct WhileHeld<X> {
    executor: Arc<X>,
    proof: Proof,
}

impl<X> WhileHeld<X> {
    /// `executor`, for as long as `proof` is fresh.
    pub(crate) fn new(executor: Arc<X>, proof: Proof) -> Self {
        Self { executor, proof }
    }

    fn missing(&self) -> MissingPrerequisite {
        let seconds = self.proof.age().as_secs();
        MissingPrerequisite {
            code: NOT_PROVEN,
            why: format!(
                "this dormer has not read its Lease from the API server for {seconds} s; another one may have taken over. \
                 Nothing is begun until the API server answers"
            ),
        }
    }
}

impl<X: Execute> Execute for WhileHeld<X> {
    async fn ready(
        &self,
        order: &Order,
        progress: &Progress,
        time_factor: f64,
    ) -> Result<(), Failure> {
        if !self.proof.is_fresh() {
            progress.waits_for(&self.missing().why);
            let max = Duration::from_millis(READY_MS_MAX).div_f64(time_factor.max(0.001));
            let fresh = timeout(max, self.proof.fresh()).await;
            fresh.map_err(|_| missing_prerequisite(self.missing(), 0))?;
        }
        self.executor.ready(order, progress, time_factor).await
    }

    async fn refuses(&self, order: &Order) -> Result<Option<Outcome>, Failure> {
        self.executor.refuses(order).await
    }

    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        // A check may have waited since.
        if !self.proof.is_fresh() {
            return Err(missing_prerequisite(self.missing(), 0));
        }
        self.executor.execute(order, progress).await
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            key::tests::{Idle, order},
            store_lease,
        },
        *,
    };

    #[tokio::test(start_paused = true)]
    async fn nothing_is_begun_while_another_dormer_may_have_the_lease() {
        let (prove, proof) = store_lease::proof(Duration::from_secs(15));
        let executor = Arc::new(WhileHeld::new(Arc::new(Idle), proof));
        let order = order();
        let progress = Progress::default();
        executor.ready(&order, &progress, 1.0).await.expect("fresh");
        executor.execute(&order, &progress).await.expect("fresh");

        tokio::time::advance(Duration::from_secs(15)).await;
        let refused = executor.execute(&order, &progress).await;
        let refused = refused.expect_err("it may be another's by now");
        assert!(refused.retry && refused.uncounted, "{refused:?}");
        assert!(refused.message.contains("for 15 s"), "{refused:?}");
        let refused = executor.ready(&order, &progress, 1.0).await;
        assert_eq!(refused.expect_err("for ever").code, NOT_PROVEN);

        let waiting = tokio::spawn({
            let executor = Arc::clone(&executor);
            let order = order.clone();
            async move { executor.ready(&order, &Progress::default(), 1.0).await }
        });
        tokio::task::yield_now().await;
        prove.now();
        waiting.await.expect("no panic").expect("read again");
        executor.execute(&order, &progress).await.expect("fresh");
    }
}
