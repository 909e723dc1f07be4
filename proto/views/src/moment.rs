//! Times and durations for people.

pub use dormer_proto::duration::span;

use dormer_proto::id::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::{borrow::Cow, fmt};

/// Time, in JSON as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl Moment {
    /// Time of day for people, in UTC: `08:02 UTC`; with the date if it differs from that of `now`.
    pub fn clock(self, now: Timestamp) -> String {
        self.clock_to(16, now)
    }

    /// The same with seconds: `08:02:13 UTC`.
    pub fn clock_seconds(self, now: Timestamp) -> String {
        self.clock_to(19, now)
    }

    fn clock_to(self, end: usize, now: Timestamp) -> String {
        let text = time(self.0);
        let same_day = time(now).get(..10) == text.get(..10);
        let from = if same_day { 11 } else { 0 };
        let shown = text.get(from..end).unwrap_or(&text);
        format!("{} UTC", shown.replace('T', " "))
    }

    /// Time of day and age: `08:02:13 UTC (8m ago)`, or of a time to come `08:02:13 UTC (in 30s)`.
    pub fn with_age(self, now: Timestamp) -> String {
        let clock = self.clock_seconds(now);
        match now.0.checked_sub(self.0.0) {
            Some(ms) => format!("{clock} ({} ago)", span(ms / 1_000)),
            None => format!("{clock} (in {})", span((self.0.0 - now.0).div_ceil(1_000))),
        }
    }
}

impl From<Timestamp> for Moment {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&time(self.0))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&time(self.0))
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let moment: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        let ms = u64::try_from(moment.as_millisecond()).map_err(D::Error::custom)?;
        Ok(Self(Timestamp(ms)))
    }
}

impl JsonSchema for Moment {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// Time in RFC 3339, to the millisecond.
pub fn time(at: Timestamp) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    format!("{moment:.3}")
}

/// Duration for people; with fractions below a minute.
pub fn lasted(from: u64, to: u64) -> String {
    match to.saturating_sub(from) {
        ms @ 0..1_000 => format!("{ms}ms"),
        ms @ 1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        ms => span(ms / 1_000),
    }
}

/// Seconds of a duration as people write it: a whole number with its unit, as in `90s`, `15m`, `2h` and `7d`. `None`: it
/// is written otherwise.
#[must_use]
pub fn seconds(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let digits = number.bytes().all(|it| it.is_ascii_digit());
    number
        .parse::<u64>()
        .ok()
        .filter(|_| digits)?
        .checked_mul(unit)
}

/// Age in words, in its largest unit of which there are at least two: `75 seconds`, `8 minutes`, `3 days`.
pub fn age(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7_200 => (seconds / 60, "minute"),
        7_200..172_800 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let many = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{many}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_with_its_unit() {
        for (text, found) in [
            ("90s", Some(90)),
            ("15m", Some(900)),
            ("2h", Some(7_200)),
            ("7d", Some(604_800)),
            ("0d", Some(0)),
            ("7", None),
            ("d", None),
            ("", None),
            ("+7d", None),
            ("1h30m", None),
            ("7\u{e4}", None),
            ("99999999999999999999d", None),
            ("999999999999999999d", None),
        ] {
            assert_eq!(seconds(text), found, "{text}");
        }
    }

    #[test]
    fn a_moment_is_written_in_rfc_3339() {
        assert_eq!(
            time(Timestamp(1_763_708_400_007)),
            "2025-11-21T07:00:00.007Z"
        );
    }

    #[test]
    fn a_moment_is_read_again_and_shown_with_its_date_on_another_day() {
        let moment = Moment(Timestamp(1_763_708_400_007));
        let json = serde_json::to_string(&moment).unwrap();
        assert_eq!(json, r#""2025-11-21T07:00:00.007Z""#);
        assert_eq!(serde_json::from_str::<Moment>(&json).unwrap(), moment);
        assert!(serde_json::from_str::<Moment>(r#""yesterday""#).is_err());
        assert_eq!(moment.clock(Timestamp(moment.0.0 + 60_000)), "07:00 UTC");
        let next_day = Timestamp(moment.0.0 + 86_400_000);
        assert_eq!(moment.clock(next_day), "2025-11-21 07:00 UTC");
        assert_eq!(moment.clock_seconds(moment.0), "07:00:00 UTC");
        let minutes_after = Timestamp(moment.0.0 + 180_000);
        assert_eq!(moment.with_age(minutes_after), "07:00:00 UTC (3m ago)");
        let minute_before = Timestamp(moment.0.0 - 60_000);
        assert_eq!(moment.with_age(minute_before), "07:00:00 UTC (in 60s)");
    }

    #[test]
    fn an_age_has_one_unit_in_words() {
        let ages = [0, 1, 75, 120, 480, 7_199, 7_200, 172_799, 172_800].map(age);
        let expected = [
            "0 seconds",
            "1 second",
            "75 seconds",
            "2 minutes",
            "8 minutes",
            "119 minutes",
            "2 hours",
            "47 hours",
            "2 days",
        ];
        assert_eq!(ages, expected);
    }

    #[test]
    fn short_durations_have_fractions() {
        let lasts = [40, 11_130, 59_999, 60_000, 312_000].map(|ms| lasted(0, ms));
        assert_eq!(lasts, ["40ms", "11.1s", "59.9s", "60s", "5m12s"]);
    }
}
