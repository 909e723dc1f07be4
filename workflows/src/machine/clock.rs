//! A host's clock against dormer's: certificates depend on both.

use super::{draft::Draft, policy};
use dormer_proto::{
    duration::{span, utc},
    id::Timestamp,
    message::Failure,
};

/// Failure of a host whose clock, by its last answer, is too far off for certificates. A Node that is drained for a change
/// would not come back: its new certificate is not valid there.
pub(super) fn wrong_clock(draft: &Draft<'_>) -> Option<Failure> {
    let facts = draft.s.host.facts.as_ref()?;
    let skew = facts.clock_skew_ms;
    if skew.unsigned_abs() <= policy::CLOCK_SKEW_MAX {
        return None;
    }
    let message = clock_is_off(draft.now.at, skew);
    let message = match draft.s.in_service {
        true => format!("{message}. If several hosts say the same, the clock is off here"),
        false => message,
    };
    Some(Failure::lasting(policy::CLOCK_SKEW, message))
}

/// Text about a host's clock that differs by `skew` milliseconds from dormer's, which shows `now`.
fn clock_is_off(now: Timestamp, skew: i64) -> String {
    let by = span(skew.unsigned_abs().saturating_add(500) / 1_000);
    let side = if skew < 0 { "behind" } else { "ahead" };
    format!(
        "its clock is {by} {side}: {} on the host, {} here, and {} is the limit. Run w32tm /resync on the host",
        utc(Timestamp(now.0.saturating_add_signed(skew))),
        utc(now),
        span(policy::CLOCK_SKEW_MAX / 1_000)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_has_its_direction_both_times_and_the_limit() {
        let now = Timestamp(1_763_708_400_000);
        assert_eq!(
            clock_is_off(now, -600_000),
            "its clock is 10m behind: 2025-11-21 06:50:00 UTC on the host, 2025-11-21 07:00:00 UTC here, and 5m is \
             the limit. Run w32tm /resync on the host"
        );
        let ahead = clock_is_off(now, 7_200_000);
        assert!(
            ahead.starts_with("its clock is 2h ahead: 2025-11-21 09:00:00 UTC"),
            "{ahead}"
        );
    }
}
