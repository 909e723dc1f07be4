//! Times in the format of the server's schedules.

use dormer_proto::id::Timestamp;
use jiff::{Timestamp as Moment, fmt::temporal::DateTimePrinter};

/// Three fractional digits always, so that each time has one text.
const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// Time in the server's format. Later times than the format permits become the last one.
pub(super) fn rfc3339(at: Timestamp) -> String {
    let moment = i64::try_from(at.0)
        .ok()
        .and_then(|ms| Moment::from_millisecond(ms).ok());
    PRINTER.timestamp_to_string(&moment.unwrap_or(Moment::MAX))
}

/// Time in a schedule that [`rfc3339`] wrote. `None`: another program wrote it.
pub(super) fn moment(schedule: &str) -> Option<Timestamp> {
    let text = schedule.strip_prefix("@at ")?;
    let ms = text.parse::<Moment>().ok()?.as_millisecond();
    let at = Timestamp(u64::try_from(ms).ok()?);
    (rfc3339(at) == text).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Last millisecond whose text can be read back.
    const LAST_MS: u64 = 253_402_207_200_999;

    #[test]
    fn moments_are_written_as_the_server_reads_them() {
        assert_eq!(rfc3339(Timestamp(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            rfc3339(Timestamp(951_827_696_789)),
            "2000-02-29T12:34:56.789Z"
        );
        assert_eq!(
            rfc3339(Timestamp(1_795_224_000_000)),
            "2026-11-21T01:20:00.000Z"
        );
        for ms in [LAST_MS, LAST_MS + 1, u64::MAX] {
            assert_eq!(rfc3339(Timestamp(ms)), "9999-12-30T22:00:00.999Z");
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_nothing_else() {
        for ms in (0..LAST_MS)
            .step_by(977_777_777_777)
            .chain([951_827_696_789, LAST_MS])
        {
            assert_eq!(
                moment(&format!("@at {}", rfc3339(Timestamp(ms)))),
                Some(Timestamp(ms))
            );
        }
        for other in [
            "@every 5s",
            "@at soon",
            "@at 2026-13-21T01:20:00.000Z",
            "",
            "@at 2026-11-21",
        ] {
            assert_eq!(moment(other), None, "{other}");
        }
    }
}
