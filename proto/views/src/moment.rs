//! Moments and lengths of time as people read them.

use dormer_proto::id::Timestamp;

/// A moment as RFC 3339, to the millisecond.
pub fn time(at: Timestamp) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    format!("{moment:.3}")
}

/// So many seconds as people tell them: `5m12s`, `3h5m`, `12d1h`.
pub fn span(seconds: u64) -> String {
    let minutes = seconds / 60;
    let hours = seconds / 3_600;
    let days = seconds / 86_400;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m{}s", seconds % 60),
        3_600..86_400 => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// A span for people; below a minute, with what a bar cannot show.
pub fn lasted(from: u64, to: u64) -> String {
    match to.saturating_sub(from) {
        ms @ 0..1_000 => format!("{ms}ms"),
        ms @ 1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        ms => span(ms / 1_000),
    }
}

/// So many seconds in one unit: `12 s`, `5 min`, `3 h`, `2 d`.
pub fn rough(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_in_rfc_3339() {
        assert_eq!(
            time(Timestamp(1_763_708_400_007)),
            "2025-11-21T07:00:00.007Z"
        );
    }

    #[test]
    fn durations_are_printed_as_people_say_them() {
        let told = [2, 312, 11_100, 1_040_400].map(span);
        assert_eq!(told, ["2s", "5m12s", "3h5m", "12d1h"]);
    }
}
