//! Sections of a description: headings and fields, without those that have no value.

use crate::output::one_line;
use dormer_proto::id::Timestamp;
use dormer_views::moment::{Moment, span};
use serde_json::Value;
use std::fmt::Display;

/// Column of a table of `T`s: its heading, and a cell at the server's time. A cell is empty if there is no value.
pub(super) type Column<T> = (&'static str, fn(&T, Timestamp) -> String);

/// Value of a field.
enum Shown {
    /// Beside the label.
    Text(String),
    /// Below it.
    Lines(Vec<String>),
}

/// Section of a description.
pub(super) struct Section {
    heading: &'static str,
    now: Timestamp,
    fields: Vec<(String, Shown)>,
}

impl Section {
    /// Section without fields. `now` is the server's time, for ages; without a heading it is not indented.
    pub(super) fn new(heading: &'static str, now: Timestamp) -> Self {
        Self {
            heading,
            now,
            fields: Vec::new(),
        }
    }

    fn with(mut self, label: &str, shown: Shown) -> Self {
        self.fields.push((label.to_owned(), shown));
        self
    }

    /// Field with a text; none if that is empty.
    pub(super) fn text(self, label: &str, value: impl Display) -> Self {
        let text = value.to_string();
        match text.trim().is_empty() {
            true => self,
            false => self.with(label, Shown::Text(one_line(&text))),
        }
    }

    /// Field with a text, if there is one.
    pub(super) fn optional(self, label: &str, value: Option<&(impl Display + ?Sized)>) -> Self {
        match value {
            Some(value) => self.text(label, value),
            None => self,
        }
    }

    pub(super) fn flag(self, label: &str, value: bool) -> Self {
        self.text(label, if value { "yes" } else { "no" })
    }

    /// Field with texts, one after the other.
    pub(super) fn list(self, label: &str, values: &[String]) -> Self {
        self.text(label, values.join(", "))
    }

    /// Field with a duration in seconds.
    pub(super) fn duration(self, label: &str, seconds: Option<u64>) -> Self {
        self.optional(label, seconds.map(span).as_ref())
    }

    /// Field with a time of day and its age.
    pub(super) fn time(self, label: &str, at: Option<Moment>) -> Self {
        let text = at.map(|at| at.with_age(self.now));
        self.optional(label, text.as_ref())
    }

    /// Field with lines below it; none without lines.
    pub(super) fn lines(self, label: &str, lines: Vec<String>) -> Self {
        match lines.is_empty() {
            true => self,
            false => self.with(label, Shown::Lines(lines)),
        }
    }

    /// Field with a table below it, as kubectl's describe has them: a line of headings, and a line for each item. Columns
    /// without any value are left out.
    pub(super) fn table<T>(self, label: &str, items: &[T], columns: &[Column<T>]) -> Self {
        let now = self.now;
        let column = |(heading, cell): &Column<T>| -> Option<Vec<String>> {
            let cells: Vec<String> = items.iter().map(|item| cell(item, now)).collect();
            let any = cells.iter().any(|it| !it.is_empty());
            let cells = cells.iter().map(|it| one_line(it));
            any.then(|| {
                std::iter::once((*heading).to_owned())
                    .chain(cells)
                    .collect()
            })
        };
        let columns: Vec<Vec<String>> = columns.iter().filter_map(column).collect();
        let row = |at: usize| {
            let cells = columns.iter().map(|column| {
                let width = column.iter().map(|it| it.chars().count()).max();
                format!("{:1$}", column[at], width.unwrap_or(0))
            });
            let cells: Vec<String> = cells.collect();
            cells.join("  ").trim_end().to_owned()
        };
        match items.is_empty() {
            true => self,
            false => self.lines(label, (0..=items.len()).map(row).collect()),
        }
    }

    fn rows(&self) -> Vec<String> {
        let indent = if self.heading.is_empty() { "" } else { "  " };
        let heading = Some(format!("{}:", self.heading)).filter(|_| !self.heading.is_empty());
        let widest = self.fields.iter().map(|(label, _)| label.chars().count());
        let width = widest.max().unwrap_or(0) + 2;
        let field = |(label, shown): &(String, Shown)| -> Vec<String> {
            let label = format!("{label}:");
            match shown {
                Shown::Text(text) => vec![format!("{indent}{label:width$}{text}")],
                Shown::Lines(lines) => {
                    let lines = lines.iter().map(|line| format!("{indent}  {line}"));
                    std::iter::once(format!("{indent}{label}"))
                        .chain(lines)
                        .collect()
                }
            }
        };
        heading
            .into_iter()
            .chain(self.fields.iter().flat_map(field))
            .collect()
    }
}

/// The description: sections without fields are left out.
pub(super) fn text(sections: &[Section]) -> String {
    let filled = sections.iter().filter(|it| !it.fields.is_empty());
    let lines: Vec<String> = filled.flat_map(Section::rows).collect();
    lines.join("\n")
}

/// Last section: fields of the answer `raw` that are not in `known`, the same as this build reads it. A newer server has
/// them. What is `false` or empty is left out: it is a default in most cases.
pub(super) fn more(raw: &Value, known: &Value, now: Timestamp) -> Section {
    let mut section = Section::new("More", now);
    for (key, value) in raw.as_object().into_iter().flatten() {
        if known.get(key).is_none() && !is_empty(value) {
            section = section.text(&label(key), plain(value));
        }
    }
    section
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// Value on one line.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".into(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// `waitingFor` as `Waiting for`.
fn label(key: &str) -> String {
    let mut words = String::new();
    for (at, character) in key.chars().enumerate() {
        if at == 0 {
            words.extend(character.to_uppercase());
        } else if character.is_uppercase() {
            words.push(' ');
            words.extend(character.to_lowercase());
        } else {
            words.push(character);
        }
    }
    words
}
