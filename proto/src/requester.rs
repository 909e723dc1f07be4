//! Who asked for something, and why, as records have it.

use std::fmt;

/// Separator of a name and a reason.
const REASON: &str = ": ";

/// A person and their reason, which records have as one text: `ann: a new disk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requester<'a> {
    /// Name of the person.
    pub who: &'a str,
    /// Reason, if one was given.
    pub why: Option<&'a str>,
}

impl<'a> Requester<'a> {
    /// The parts of the text `by`. `who`: the name, if the record has it beside the text.
    #[must_use]
    pub fn of(by: &'a str, who: Option<&'a str>) -> Self {
        let named = who.filter(|who| by.starts_with(*who)).map(str::len);
        let end = named.or_else(|| by.find(REASON)).unwrap_or(by.len());
        let (who, rest) = by.split_at(end);
        Self {
            who,
            why: rest.strip_prefix(REASON),
        }
    }

    /// The name as a record has it beside the text. `None`: the text alone shows where the name ends.
    #[must_use]
    pub fn beside(who: &str) -> Option<String> {
        who.contains(REASON).then(|| who.to_owned())
    }
}

/// `ann (a new disk)`.
impl fmt::Display for Requester<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Some(why) => write!(f, "{} ({why})", self.who),
            None => f.write_str(self.who),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_colon_is_read_whole_if_the_record_has_it() {
        let of = |by, who| {
            let Requester { who, why } = Requester::of(by, who);
            (who, why)
        };
        assert_eq!(of("ann", None), ("ann", None));
        assert_eq!(of("ann: a: b", None), ("ann", Some("a: b")));
        let name = Requester::beside("CN=ops: ann").expect("the text alone is misread");
        assert_eq!(
            of("CN=ops: ann: a disk", Some(&name)),
            ("CN=ops: ann", Some("a disk"))
        );
        assert_eq!(of("CN=ops: ann", Some(&name)), ("CN=ops: ann", None));
        assert_eq!(Requester::beside("system:serviceaccount:ci:bot"), None);
        let shown = Requester::of("CN=ops: ann: a disk", Some(&name)).to_string();
        assert_eq!(shown, "CN=ops: ann (a disk)");
    }
}
