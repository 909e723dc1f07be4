//! Waiting for a condition with a deadline: the only code where a test pauses.

use std::future::Future;
use std::time::{Duration, Instant};

/// Poll interval: short, so that it does not slow a test.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// Waits until `check` answers true.
///
/// # Panics
/// When that has not happened `within` the time given; the message names `what` was awaited.
pub async fn await_condition<F, Fut>(what: &str, within: Duration, mut check: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    await_some(what, within, || {
        let found = check();
        async move { found.await.then_some(()) }
    })
    .await;
}

/// Waits until `check` answers a value, and returns it.
///
/// # Panics
/// When that has not happened `within` the time given; the message names `what` was awaited.
pub async fn await_some<T, F, Fut>(what: &str, within: Duration, mut check: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let deadline = tokio::time::Instant::now() + within;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited {within:?} in vain for {what}"
        );
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Waits, blocking the thread, until `check` answers true; answers whether it did in time.
pub fn block_until(within: Duration, mut check: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    loop {
        if check() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(POLL_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_comes_true_ends_the_wait() {
        let mut checks = 0;
        let found = await_some("the third look", Duration::from_secs(5), || {
            checks += 1;
            let now = checks;
            async move { (now == 3).then_some(now) }
        })
        .await;
        assert_eq!(found, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "waited 20ms in vain for the moon")]
    async fn a_deadline_names_what_was_awaited() {
        await_condition("the moon", Duration::from_millis(20), || async { false }).await;
    }
}
