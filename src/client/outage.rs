//! Outage of the server, for commands that keep asking: it may be starting again, or another replica takes over.

use super::Failure;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// First and longest pause before the next try.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);
/// How long a server that starts again may refuse.
pub(super) const STARTS_WITHIN: Duration = Duration::from_secs(120);

/// Time without an answer.
#[derive(Debug)]
pub(super) struct Outage {
    since: Instant,
    again: Duration,
}

impl Outage {
    /// Outage that begins now.
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            again: AGAIN_AFTER,
        }
    }

    /// Waits before the next try, each time longer.
    pub(super) async fn pause(&mut self) {
        sleep(self.again).await;
        self.again = (self.again * 2).min(AGAIN_AFTER_MAX);
    }

    /// Takes the failure of a try.
    ///
    /// # Errors
    /// The failure, if it does not end by itself, or the server has refused for longer than a start takes.
    pub(super) fn endure(&self, failure: Failure) -> Result<(), Failure> {
        endured(failure, self.since.elapsed())
    }
}

/// As [`Outage::endure`], for an outage that has lasted so `long`.
fn endured(failure: Failure, long: Duration) -> Result<(), Failure> {
    match failure {
        Failure::Unreachable { .. } => Ok(()),
        Failure::Unready { .. } if long < STARTS_WITHIN => Ok(()),
        other => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_endured_and_a_refusal_for_as_long_as_a_start_takes() {
        let silent = || Failure::Unreachable {
            server: "http://here".into(),
            why: "refused".into(),
        };
        let unready = || Failure::Unready {
            error: "it begins".into(),
            what_to_do: "wait".into(),
        };
        let denied = Failure::refused("denied", "ask");
        assert_eq!(endured(denied.clone(), Duration::ZERO), Err(denied));
        assert_eq!(endured(unready(), Duration::ZERO), Ok(()));
        assert_eq!(endured(unready(), STARTS_WITHIN), Err(unready()));
        assert_eq!(endured(silent(), STARTS_WITHIN * 9), Ok(()));
    }
}
