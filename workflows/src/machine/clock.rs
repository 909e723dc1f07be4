//! A host's clock against dormer's: certificates depend on both.

use super::{
    change::{Change, ChangeStrategy},
    draft::Draft,
    policy,
};
use dormer_proto::{
    duration::{span, utc},
    id::Timestamp,
    message::Failure,
};

/// Failure of a host whose clock, by its last answer, is too far off for certificates. A Node that is drained for a change
/// would not come back: its new certificate is not valid there.
pub(super) fn wrong_clock(draft: &Draft<'_>) -> Option<Failure> {
    let skew = draft.state.host.wrong_clock_ms()?;
    let message = clock_is_off(draft.now.at, skew);
    let message = match draft.state.in_service {
        true => format!("{message}. If several hosts say the same, the clock is off here"),
        false => message,
    };
    Some(Failure::lasting(policy::CLOCK_SKEW, message))
}

/// Whether the host has to say what its clock shows, and its name, before its Node is drained for `change`, and after a
/// drain of hours before it is torn down. Its turn may come days after its last comparison, and its clock may have gone
/// wrong or right in between. A change in place needs it: the host gets a new certificate after its tear-down. A restart
/// needs it only of a host that was to have another name. A host that is torn down is set up whatever it says.
pub(super) fn must_ask_host(draft: &Draft<'_>, change: &Change) -> bool {
    if change.repair || change.anew || draft.state.is_torn_down() {
        return false;
    }
    let renamed = draft.state.host.renamed;
    let right_clock = draft.state.host.wrong_clock_ms().is_none();
    match change.how {
        ChangeStrategy::InPlace => renamed || !right_clock || !draft.host_answered_lately(),
        ChangeStrategy::Restart => renamed,
        ChangeStrategy::Recreate | ChangeStrategy::Drain => false,
    }
}

/// Text about a host's clock that was too far off for certificates by its last answer. It may have been set since.
pub(super) fn clock_was_off(draft: &Draft<'_>) -> Option<String> {
    let skew = draft.state.host.wrong_clock_ms()?;
    let (by, side) = off(skew);
    let ago = draft.state.host.facts_at.map_or_else(String::new, |at| {
        format!(", {} ago,", span(draft.now.at.since_ms(at) / 1_000))
    });
    Some(format!(
        "when the host last answered{ago} its clock was {by} {side}, and {} is the limit: run w32tm /resync on the host",
        span(policy::CLOCK_SKEW_MAX / 1_000)
    ))
}

/// By how much a clock is off, and in which direction.
fn off(skew: i64) -> (String, &'static str) {
    let by = span(skew.unsigned_abs().saturating_add(500) / 1_000);
    (by, if skew < 0 { "behind" } else { "ahead" })
}

/// Text about a host's clock that differs by `skew` milliseconds from dormer's, which shows `now`.
fn clock_is_off(now: Timestamp, skew: i64) -> String {
    let (by, side) = off(skew);
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
