//! Heartbeats: lines between the start of a call and its answer, with the present activity and its time limit.

use std::{fmt, str::FromStr};

use crate::ops::Step;

/// First word of a sign.
pub const MARK: &str = "dormer:";

/// A heartbeat: item, activity, its age, and its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostHeartbeat {
    /// Present item; `-` outside of items.
    pub item: String,
    /// Present activity.
    pub doing: String,
    /// For so many milliseconds already.
    pub elapsed_ms: u64,
    /// The longest time for it.
    pub limit_ms: u64,
}

impl HostHeartbeat {
    /// Heartbeat of a step after `elapsed_ms`.
    pub fn of(step: &Step, elapsed_ms: u64) -> Self {
        let word = |text: &str| match text {
            "" => "-".to_owned(),
            text => text.chars().map(plain).collect(),
        };
        Self {
            item: word(&step.item),
            doing: word(&step.doing),
            elapsed_ms,
            limit_ms: step.limit_ms,
        }
    }

    /// Whether the operation has lasted longer than it may.
    pub const fn overdue(&self) -> bool {
        self.elapsed_ms > self.limit_ms
    }
}

/// One word of ASCII, so that no code page and no console changes it.
fn plain(c: char) -> char {
    if c.is_ascii_graphic() { c } else { '_' }
}

impl fmt::Display for HostHeartbeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{MARK} {} {} {} of {} ms",
            self.item, self.doing, self.elapsed_ms, self.limit_ms
        )
    }
}

impl FromStr for HostHeartbeat {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            [MARK, item, doing, elapsed, "of", limit, "ms"] => Ok(Self {
                item: item.to_owned(),
                doing: doing.to_owned(),
                elapsed_ms: elapsed.parse().map_err(drop)?,
                limit_ms: limit.parse().map_err(drop)?,
            }),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_is_read_as_it_was_written() {
        let step = Step {
            item: "feature:Größe x".into(),
            doing: "feature_enable".into(),
            since_ms: 0,
            limit_ms: 1_200_000,
        };
        let sign = HostHeartbeat::of(&step, 61_000);
        assert_eq!(
            sign.to_string(),
            "dormer: feature:Gr__e_x feature_enable 61000 of 1200000 ms"
        );
        assert_eq!(sign.to_string().parse(), Ok(sign.clone()));
        assert!(!sign.overdue());
        assert!(HostHeartbeat::of(&step, 1_200_001).overdue());
        assert_eq!("dormer: working".parse::<HostHeartbeat>(), Err(()));
        assert_eq!(HostHeartbeat::of(&Step::default(), 0).item, "-");
    }
}
