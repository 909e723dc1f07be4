//! Alarms: one message schedule per run, whose target lies in the same stream.

use super::{link::Link, post::Outgoing};
use crate::{
    local::ring,
    port::{Alarms, StoreError},
};
use async_nats::HeaderMap;
use dormer_proto::id::{RunId, Timestamp};
use std::sync::Arc;

/// The alarms of a NATS store. They ring no closer than the server fires schedules: 250 ms.
pub struct NatsAlarms {
    link: Arc<Link>,
}

impl NatsAlarms {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    fn message(&self, run: &RunId, at: Option<Timestamp>) -> Outgoing {
        let mut headers = HeaderMap::new();
        let mut body = Vec::new();
        match at {
            Some(at) => {
                headers.insert("Nats-Schedule", format!("@at {}", rfc3339(at)).as_str());
                headers.insert("Nats-Schedule-Target", self.link.names.ring(run).as_str());
                body = ring(run, self.link.incarnation).unwrap_or_default();
            }
            // What replaces the schedule is gone after a second.
            None => headers.insert("Nats-TTL", "1s"),
        }
        headers.insert("Nats-Rollup", "sub");
        Outgoing { subject: self.link.names.alarm(run), headers, body: body.into() }
    }
}

impl Alarms for NatsAlarms {
    async fn set(&self, alarms: Vec<(RunId, Option<Timestamp>)>) -> Result<(), StoreError> {
        let messages = alarms.iter().map(|(run, at)| self.message(run, *at)).collect();
        for result in self.link.post.publish(messages).await {
            result?;
        }
        Ok(())
    }
}

/// Last millisecond of the year 9999, beyond which RFC 3339 has no words.
const LAST_MS: u64 = 253_402_300_799_999;

/// A moment as the server reads it.
fn rfc3339(at: Timestamp) -> String {
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
}
