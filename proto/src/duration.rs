//! Durations for people, written in one way everywhere.

/// Duration as kubectl writes it, everywhere that people read one: `115s`, `41m26s`, `3h5m`, `28h`, `3d4h`, `12d`. A
/// small unit that is zero, or too small to matter, is left out.
#[must_use]
pub fn span(seconds: u64) -> String {
    let two = |of: u64, unit: &str, rest: u64, small: &str| match rest {
        0 => format!("{of}{unit}"),
        rest => format!("{of}{unit}{rest}{small}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..3_600 => two(minutes, "m", seconds % 60, "s"),
        3_600..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
