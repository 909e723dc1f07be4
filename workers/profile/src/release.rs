//! Releases of a payload's programs, `major.minor`, and ranges of them.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Release of a program: `major.minor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// Its major version.
    pub major: u32,
    /// Its minor version.
    pub minor: u32,
}

impl Release {
    /// Release of those two numbers.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Release {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| part.parse().ok()).flatten()
        };
        text.split_once('.')
            .and_then(|(major, minor)| Some(Self::new(number(major)?, number(minor)?)))
            .ok_or_else(|| format!("`{text}` is not major.minor"))
    }
}

/// Comparison in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    AtLeast(Release),
    Below(Release),
    Only(Release),
}

/// Range of releases: `>=2.1`, `<1.34`, `>=2.0 <2.1` or `2.0`. An empty text means any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Range {
    text: String,
    bounds: Vec<Bound>,
}

impl Range {
    /// Whether the release is in it.
    #[must_use]
    pub fn holds(&self, release: Release) -> bool {
        self.bounds.iter().all(|bound| match *bound {
            Bound::AtLeast(least) => release >= least,
            Bound::Below(limit) => release < limit,
            Bound::Only(only) => release == only,
        })
    }

    /// Whether every release is in it.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.bounds.is_empty()
    }
}

impl TryFrom<String> for Range {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let one = |word: &str| {
            let bound = match (word.strip_prefix(">="), word.strip_prefix('<')) {
                (Some(least), _) => Bound::AtLeast(least.parse()?),
                (None, Some(limit)) => Bound::Below(limit.parse()?),
                (None, None) => Bound::Only(word.parse()?),
            };
            Ok(bound)
        };
        let bounds: Result<_, String> = text.split_whitespace().map(one).collect();
        let bounds = bounds.map_err(|why| {
            format!("`{text}` is no range of releases, as `>=2.1` or `>=2.0 <2.1`: {why}")
        })?;
        let range = Self { text, bounds };
        // The least release of a range is one of these.
        let least = range.bounds.iter().map(|bound| match *bound {
            Bound::AtLeast(release) | Bound::Only(release) => release,
            Bound::Below(_) => Release::new(0, 0),
        });
        if !range.is_any() && !least.into_iter().any(|release| range.holds(release)) {
            return Err(format!("`{}` is a range without a release", range.text));
        }
        Ok(range)
    }
}

impl From<Range> for String {
    fn from(range: Range) -> Self {
        range.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_what_it_says() {
        let table = [
            ("", "1.7", true),
            (">=2.1", "2.0", false),
            (">=2.1", "2.1", true),
            (">=2.1", "3.0", true),
            ("<1.34", "1.33", true),
            ("<1.34", "1.34", false),
            // By number, not by text.
            ("<1.34", "1.9", true),
            (">=2.0 <2.1", "2.0", true),
            (">=2.0 <2.1", "2.1", false),
            (">=2.0 <2.1", "1.7", false),
            ("1.7", "1.7", true),
            ("1.7", "1.8", false),
        ];
        for (range, release, wanted) in table {
            let range = Range::try_from(range.to_owned()).expect("a range");
            let release = release.parse().expect("a release");
            assert_eq!(range.holds(release), wanted, "{range:?} {release}");
        }
    }

    #[test]
    fn a_range_without_a_release_is_refused() {
        for text in [
            ">=2.1 <2.0",
            ">=2.1 <2.1",
            "2.0 2.1",
            "2.0 >=2.1",
            "2.1 <2.1",
            "<0.0",
        ] {
            let why = Range::try_from(text.to_owned()).expect_err(text);
            assert_eq!(why, format!("`{text}` is a range without a release"));
        }
        for text in [">=2.1 <2.2", "2.0 >=2.0", "<2.0 <3.0", ">=2.0 >=2.2 <2.3"] {
            assert!(Range::try_from(text.to_owned()).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "2", ">2.1", "<=2.1", ">=2.1.0", ">=", "v2.1", "2.x", "+2.1", ">= 2.1",
        ] {
            let why = Range::try_from(text.to_owned()).expect_err(text);
            assert!(
                why.contains(text) && why.contains("no range of releases"),
                "{why}"
            );
        }
    }
}
