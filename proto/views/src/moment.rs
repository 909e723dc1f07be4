//! Times and durations for people.

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
        let text = time(self.0);
        let same_day = time(now).get(..10) == text.get(..10);
        let from = if same_day { 11 } else { 0 };
        let shown = text.get(from..16).unwrap_or(&text);
        format!("{} UTC", shown.replace('T', " "))
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

/// Duration in two units: `5m12s`, `3h5m`, `12d1h`.
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

/// Duration for people; with fractions below a minute.
pub fn lasted(from: u64, to: u64) -> String {
    match to.saturating_sub(from) {
        ms @ 0..1_000 => format!("{ms}ms"),
        ms @ 1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        ms => span(ms / 1_000),
    }
}

/// Duration in one unit, for a sentence: `8 minutes`, `1 hour`, `3 days`.
pub fn length(seconds: u64) -> String {
    let (amount, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7_200 => (seconds / 60, "minute"),
        7_200..172_800 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if amount == 1 { "" } else { "s" };
    format!("{amount} {unit}{plural}")
}

/// Duration in one unit: `12 s`, `5 min`, `3 h`, `2 d`.
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
    fn a_moment_is_read_again_and_shown_with_its_date_on_another_day() {
        let moment = Moment(Timestamp(1_763_708_400_007));
        let json = serde_json::to_string(&moment).unwrap();
        assert_eq!(json, r#""2025-11-21T07:00:00.007Z""#);
        assert_eq!(serde_json::from_str::<Moment>(&json).unwrap(), moment);
        assert!(serde_json::from_str::<Moment>(r#""yesterday""#).is_err());
        assert_eq!(moment.clock(Timestamp(moment.0.0 + 60_000)), "07:00 UTC");
        let next_day = Timestamp(moment.0.0 + 86_400_000);
        assert_eq!(moment.clock(next_day), "2025-11-21 07:00 UTC");
    }

    #[test]
    fn durations_are_printed_as_people_say_them() {
        let told = [2, 312, 11_100, 1_040_400].map(span);
        assert_eq!(told, ["2s", "5m12s", "3h5m", "12d1h"]);
        let lengths = [1, 119, 480, 11_100, 1_040_400].map(length);
        assert_eq!(
            lengths,
            ["1 second", "119 seconds", "8 minutes", "3 hours", "12 days"]
        );
    }
}
