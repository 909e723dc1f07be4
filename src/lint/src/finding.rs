//! Finding: a rule that a manifest breaks, its place, and the mend.

use crate::rules::{LintRule, RULES, Severity};
use dormer_profile::yaml_tree::Position;
use serde::Serialize;

/// Change of the text that mends a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Offset in bytes.
    pub start: usize,
    /// Offset of the first byte that stays.
    pub end: usize,
    /// New text in between.
    pub text: String,
}

/// Rule that a manifest breaks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Name of the rule.
    pub rule: &'static str,
    /// How bad it is.
    pub severity: Severity,
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Object: `MachineSet windows-a`. Empty: the text is no object.
    pub object: String,
    /// What is wrong here.
    pub message: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do.
    pub mend: String,
    /// Whether `--fix` does it.
    #[serde(rename = "fixable", serialize_with = "is_there")]
    pub fix: Option<Edit>,
}

#[expect(clippy::ref_option, reason = "serde passes a reference")]
fn is_there<S: serde::Serializer>(fix: &Option<Edit>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bool(fix.is_some())
}

impl Finding {
    /// Finding of a rule at a place, with what is wrong there.
    ///
    /// # Panics
    /// The table has no such rule, which a test rules out.
    pub(crate) fn new(rule: &'static str, place: Position, message: impl Into<String>) -> Self {
        let LintRule {
            why,
            mend,
            severity,
            ..
        } = RULES
            .iter()
            .find(|it| it.name == rule)
            .unwrap_or_else(|| panic!("no rule {rule}"));
        Self {
            rule,
            severity: *severity,
            line: place.line,
            column: place.column,
            object: String::new(),
            message: message.into(),
            why,
            mend: (*mend).to_owned(),
            fix: None,
        }
    }

    /// Mend of this very case.
    pub(crate) fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = mend.into();
        self
    }

    /// Mend that replaces the value at a place.
    pub(crate) fn replace(mut self, place: Position, text: impl Into<String>) -> Self {
        if place.len > 0 {
            self.fix = Some(Edit {
                start: place.start,
                end: place.start + place.len,
                text: text.into(),
            });
        }
        self
    }

    /// Mend by any edit.
    pub(crate) fn edit(mut self, edit: Option<Edit>) -> Self {
        self.fix = edit;
        self
    }
}

/// Findings by their place, each once.
pub(crate) fn sorted(mut found: Vec<Finding>) -> Vec<Finding> {
    found.sort_by_key(|it| (it.line, it.column, it.rule));
    found.dedup_by(|a, b| (a.line, a.column, a.rule) == (b.line, b.column, b.rule));
    found
}

/// Text with these edits, and how many were applied. Of edits that overlap only the first counts.
#[must_use]
pub fn apply(text: &str, mut edits: Vec<Edit>) -> (String, usize) {
    edits.sort_by_key(|it| (it.start, it.end));
    let mut out = String::new();
    let mut at = 0;
    let mut count = 0;
    for Edit {
        start,
        end,
        text: new,
    } in edits
    {
        let fits = start >= at && end >= start;
        let Some(before) = text
            .get(at..start)
            .filter(|_| fits && text.is_char_boundary(end.min(text.len())))
        else {
            continue;
        };
        out += before;
        out += &quoted_as(text.get(start..end).unwrap_or_default(), new);
        (at, count) = (end, count + 1);
    }
    out += text.get(at..).unwrap_or_default();
    (out, count)
}

/// The new text in the quotes of the old one: JSON needs them, and a person chose them in YAML. A number stays one, and
/// so do `true` and `false`.
fn quoted_as(old: &str, new: String) -> String {
    let mark = old.chars().next().filter(|it| ['"', '\''].contains(it));
    let Some(mark) = mark.filter(|it| old.len() > 1 && old.ends_with(*it)) else {
        return new;
    };
    let bare =
        new.bytes().all(|byte| byte.is_ascii_digit()) || ["true", "false"].contains(&new.as_str());
    if bare || new.starts_with(mark) {
        return new;
    }
    format!("{mark}{new}{mark}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_that_overlap_wait_for_the_next_round() {
        let edit = |start, end, text: &str| Edit {
            start,
            end,
            text: text.into(),
        };
        let all = vec![
            edit(4, 5, "X"),
            edit(0, 2, "A"),
            edit(1, 3, "B"),
            edit(5, 5, "Y"),
        ];
        assert_eq!(apply("abcdefg", all), ("AcdXYfg".to_owned(), 3));
    }

    #[test]
    fn a_value_keeps_its_quotes() {
        for (old, new, wanted) in [
            ("\"Windows\"", "windows", "\"windows\""),
            ("'Windows'", "windows", "'windows'"),
            ("Windows", "windows", "windows"),
            ("\"120\"", "120", "120"),
            ("'yes'", "true", "true"),
            ("\"a\" 7", "", ""),
        ] {
            assert_eq!(quoted_as(old, new.to_owned()), wanted, "{old}");
        }
    }
}
