//! Remark about a server whose clock is not this computer's, as in a simulated world that runs faster.

use dormer_proto::id::Timestamp;
use dormer_views::{
    moment::{Moment, span},
    run::RunStatus,
};
use std::time::SystemTime;

/// Difference of two clocks that people do not notice, in milliseconds.
const UNNOTICED_MS: u64 = 120_000;

/// Time of the server at which it answered with this status.
pub(super) fn time_of(status: &RunStatus) -> Timestamp {
    let Moment(Timestamp(since)) = status.since;
    Timestamp(since + status.since_seconds.saturating_mul(1_000))
}

/// Remark for people. `None`: both clocks agree.
pub(super) fn remark(server: Timestamp) -> Option<String> {
    let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let here = here
        .ok()
        .and_then(|it| u64::try_from(it.as_millis()).ok())?;
    beside(server, Timestamp(here))
}

fn beside(server: Timestamp, here: Timestamp) -> Option<String> {
    let apart = server.0.abs_diff(here.0);
    if apart <= UNNOTICED_MS {
        return None;
    }
    let order = if server.0 > here.0 {
        "ahead of"
    } else {
        "behind"
    };
    Some(format!(
        "times are by the server's clock: there it is {}, {} {order} this computer's (a simulated world runs faster)",
        Moment(server).clock(here),
        span(apart / 1_000)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_faster_is_mentioned_and_one_that_agrees_is_not() {
        let here = Timestamp(1_763_708_400_000);
        assert_eq!(beside(Timestamp(here.0 + 60_000), here), None);
        let server = Timestamp(here.0 + 6 * 86_400_000);
        assert_eq!(
            beside(server, here).as_deref(),
            Some(
                "times are by the server's clock: there it is 2025-11-27 07:00 UTC, 6d ahead of this computer's \
                 (a simulated world runs faster)"
            )
        );
        let behind = beside(Timestamp(here.0 - 600_000), here).expect("a remark");
        assert!(behind.contains("06:50 UTC, 10m behind"), "{behind}");
    }
}
