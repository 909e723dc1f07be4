//! Driving a future whose every wait is over when it is first polled.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

/// Runs a future to its end in this thread. On Windows each operation blocks until it is done, so nothing waits for a
/// wake-up. A future that waits is polled again at once.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::block_on;

    #[test]
    fn a_future_runs_to_its_end() {
        let mut left = 3;
        let waits = std::future::poll_fn(|_| {
            left -= 1;
            if left == 0 {
                std::task::Poll::Ready("done")
            } else {
                std::task::Poll::Pending
            }
        });
        assert_eq!(
            block_on(async { (waits.await, async { 1 }.await) }),
            ("done", 1)
        );
    }
}
