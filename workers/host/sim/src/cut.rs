//! Cutting a run: the process is killed before, or right after, one of its operations took effect.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use dormer_host::ops::{Host, OperationRequest, Outcome};

/// On which side of the operation the cut is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It had no effect.
    Before,
    /// It took effect, and the answer was lost.
    After,
}

/// A host on which the process is killed at one operation, which never answers.
#[derive(Debug)]
pub struct Cut<'a, H> {
    host: &'a mut H,
    left: usize,
    when: When,
    done: usize,
}

impl<'a, H> Cut<'a, H> {
    /// `host`, cut at the changing operation number `at` (from 0).
    pub const fn new(host: &'a mut H, at: usize, when: When) -> Self {
        Self {
            host,
            left: at,
            when,
            done: 0,
        }
    }

    /// Operations that change something and were performed.
    pub const fn done(&self) -> usize {
        self.done
    }
}

impl<H: Host> Host for Cut<'_, H> {
    async fn perform(&mut self, request: OperationRequest) -> Outcome {
        if !request.operation.changes() {
            return self.host.perform(request).await;
        }
        if self.left == 0 {
            if self.when == When::After {
                let _ = self.host.perform(request).await;
            }
            return std::future::pending().await;
        }
        self.left -= 1;
        self.done += 1;
        self.host.perform(request).await
    }
}

/// Result of a run; `None` if it was cut. Nothing is awaited on a simulated host, so a run that waits was cut.
pub fn until_cut<F: Future>(run: F) -> Option<F::Output> {
    let mut run = pin!(run);
    match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}
