//! Moments as the server reads them in a schedule, and back.

use dormer_proto::id::Timestamp;

/// Last millisecond of the year 9999, beyond which RFC 3339 has no words.
const LAST_MS: u64 = 253_402_300_799_999;

/// A moment as the server reads it.
pub(super) fn rfc3339(at: Timestamp) -> String {
    let ms = at.0.min(LAST_MS);
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The civil date of a day since the epoch: years begin in March, so that the leap day is a year's last.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// A moment that [`rfc3339`] wrote, behind the word of a schedule; `None`: it is another's writing.
pub(super) fn moment(schedule: &str) -> Option<Timestamp> {
    let text = schedule.strip_prefix("@at ")?;
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let days = days(year, month, day)?;
    let ms = ((days * 24 + hour) * 60 + minute) * 60_000 + second * 1_000 + number(20, 23)?;
    let at = Timestamp(ms);
    (rfc3339(at) == text).then_some(at)
}

/// The day since the epoch of a civil date.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_server_reads_them() {
        assert_eq!(rfc3339(Timestamp(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Timestamp(951_827_696_789)), "2000-02-29T12:34:56.789Z");
        assert_eq!(rfc3339(Timestamp(1_795_224_000_000)), "2026-11-21T01:20:00.000Z");
        assert_eq!(rfc3339(Timestamp(u64::MAX)), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn what_was_written_is_read_again_and_nothing_else() {
        for ms in (0..LAST_MS).step_by(977_777_777_777).chain([951_827_696_789, LAST_MS]) {
            assert_eq!(moment(&format!("@at {}", rfc3339(Timestamp(ms)))), Some(Timestamp(ms)));
        }
        for other in ["@every 5s", "@at soon", "@at 2026-13-21T01:20:00.000Z", "", "@at 2026-11-21"]
        {
            assert_eq!(moment(other), None, "{other}");
        }
    }
}
