//! Durations and times for people, written in one way everywhere.

use crate::id::Timestamp;

/// Duration as kubectl writes it, everywhere that people read one: `115s`, `41m26s`, `3h5m`, `28h`, `3d4h`, `12d`. A
/// small unit that is zero, or too small to matter, is left out.
#[must_use]
pub fn span(seconds: u64) -> String {
    let two = |of: u64, unit: &str, rest: u64, small: &str| match rest {
        0 => format!("{of}{unit}"),
        rest => format!("{of}{unit}{rest}{small}"),
    };
    let minutes = seconds / 60;
    let hours = seconds / 3_600;
    let days = seconds / 86_400;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..3_600 => two(minutes, "m", seconds % 60, "s"),
        3_600..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

/// Time for people, to the second: `2026-11-23 08:02:00 UTC`.
#[must_use]
pub fn utc(at: Timestamp) -> String {
    let seconds = at.0 / 1_000;
    let days = seconds / 86_400;
    let second = seconds % 86_400;
    // Days of the Gregorian calendar, in years that begin in March: a leap day is the last of its year.
    let since = days + 719_468;
    let era = since / 146_097;
    let day_of_era = since % 146_097;
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month < 3);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_704_067_199, "2023-12-31 23:59:59 UTC"),
            (1_709_164_800, "2024-02-29 00:00:00 UTC"),
            (1_763_708_400, "2025-11-21 07:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(Timestamp(seconds * 1_000 + 999)), expected);
        }
    }

    #[test]
    fn durations_are_printed_as_kubectl_prints_them() {
        let told = [
            2, 115, 120, 312, 2_486, 3_600, 11_100, 100_800, 273_600, 1_040_400,
        ]
        .map(span);
        let expected = [
            "2s", "115s", "2m", "5m12s", "41m26s", "1h", "3h5m", "28h", "3d4h", "12d",
        ];
        assert_eq!(told, expected);
    }
}
