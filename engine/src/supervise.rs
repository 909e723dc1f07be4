//! Background work that continues after a panic: the panic is reported, and the work restarts after a pause.

use std::{future::Future, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// First pause after a panic. Each further one doubles it.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Longest pause.
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(300);
/// Time without a panic after which the next pause is the first one again.
const SOUND_AFTER: Duration = Duration::from_secs(900);

/// Runs work in a task of its own until it ends by itself, and returns its result. After a panic it calls `panicked` with
/// `what`, and begins the work again.
pub async fn supervised<F, T>(
    what: &'static str,
    begin: impl Fn() -> F,
    panicked: impl Fn(&'static str),
) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let mut pause = AGAIN_AFTER;
    loop {
        let begun = Instant::now();
        let mut task = JoinSet::new();
        task.spawn(begin());
        match task.join_next().await {
            Some(Ok(ended)) => return ended,
            Some(Err(error)) => {
                tracing::error!(what, %error, "it panicked, which is a bug in dormer; it begins again");
                panicked(what);
            }
            None => {}
        }
        if begun.elapsed() >= SOUND_AFTER {
            pause = AGAIN_AFTER;
        }
        sleep(pause).await;
        pause = (pause * 2).min(AGAIN_AFTER_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_begins_again_later_and_later_and_its_end_is_the_end() {
        let begun = Arc::new(AtomicU32::new(0));
        let panics = AtomicU32::new(0);
        let from = Instant::now();
        let ended = supervised(
            "a test",
            || {
                let number = begun.fetch_add(1, Ordering::SeqCst);
                async move {
                    assert!(number >= 3, "nobody expected this");
                    number
                }
            },
            |what| {
                assert_eq!(what, "a test");
                panics.fetch_add(1, Ordering::SeqCst);
            },
        );
        assert_eq!(ended.await, 3);
        assert_eq!(panics.load(Ordering::SeqCst), 3);
        assert_eq!(from.elapsed().as_secs(), 5 + 10 + 20);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_was_sound_for_long_begins_again_soon() {
        let begun = Arc::new(AtomicU32::new(0));
        let from = Instant::now();
        let ended = supervised(
            "a test",
            || {
                let number = begun.fetch_add(1, Ordering::SeqCst);
                async move {
                    if number == 2 {
                        sleep(SOUND_AFTER).await;
                    }
                    assert!(number >= 3, "nobody expected this");
                }
            },
            |_| (),
        );
        ended.await;
        assert_eq!(
            from.elapsed(),
            SOUND_AFTER + Duration::from_secs(5 + 10 + 5)
        );
    }
}
