//! Output formats: tables for people, JSON or YAML for programs.

use super::{Failure, terminal::clean};
use clap::ValueEnum;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets::NOTHING};
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Display};

/// Form of an answer, and its readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputFormat {
    /// A table for people
    #[default]
    Table,
    /// A table with more columns
    Wide,
    /// JSON, as the API answers it; the state of a rollout is that of the tables
    Json,
    /// The same as YAML
    Yaml,
}

impl OutputFormat {
    /// Text of `value` for programs. `None`: the format is for people.
    ///
    /// # Errors
    /// The value has no such form. Answers of the API always have one.
    pub fn for_programs(self, value: &impl Serialize) -> Result<Option<String>, Failure> {
        let failed = |why: String| {
            Failure::refused(
                format!("the answer cannot be formatted: {why}"),
                "try -o json",
            )
        };
        match self {
            Self::Table | Self::Wide => Ok(None),
            Self::Json => serde_json::to_string_pretty(value)
                .map(Some)
                .map_err(|e| failed(e.to_string())),
            Self::Yaml => {
                let yaml =
                    dormer_profile::yaml::to_string(value).map_err(|e| failed(e.to_string()))?;
                Ok(Some(yaml.trim_end().to_owned()))
            }
        }
    }
}

/// Column of a table of `T`s.
pub struct Column<T> {
    pub heading: &'static str,
    /// Whether only wide tables show it.
    pub wide: bool,
    /// Function for an item's cell; empty if there is no value.
    pub cell: fn(&T) -> String,
}

impl<T> Column<T> {
    /// Column of every table.
    pub const fn new(heading: &'static str, cell: fn(&T) -> String) -> Self {
        Self {
            heading,
            wide: false,
            cell,
        }
    }

    /// Column of wide tables only.
    pub const fn wide(heading: &'static str, cell: fn(&T) -> String) -> Self {
        Self {
            heading,
            wide: true,
            cell,
        }
    }
}

/// Table of `items` with `columns`.
pub fn table<'a, T: 'a>(
    items: impl IntoIterator<Item = &'a T>,
    columns: &[Column<T>],
    wide: bool,
) -> String {
    table_of_widths(items, columns, wide, &BTreeMap::new())
}

/// The same, with columns at least as wide as `least` says, in characters by their headings.
pub(crate) fn table_of_widths<'a, T: 'a>(
    items: impl IntoIterator<Item = &'a T>,
    columns: &[Column<T>],
    wide: bool,
    least: &BTreeMap<&'static str, u16>,
) -> String {
    let shown: Vec<&Column<T>> = columns
        .iter()
        .filter(|column| wide || !column.wide)
        .collect();
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(shown.iter().map(|column| column.heading));
    for item in items {
        table.add_row(shown.iter().map(|column| one_line(&(column.cell)(item))));
    }
    for (column, of) in table.column_iter_mut().zip(&shown) {
        if let Some(width) = least.get(of.heading) {
            // A cell has a blank at both ends.
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width + 2)));
        }
    }
    let lines = table.to_string();
    lines
        .lines()
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The columns but those with these headings.
pub(crate) fn columns_without<T>(columns: &[Column<T>], spared: &[&str]) -> Vec<Column<T>> {
    let kept = columns.iter().filter(|it| !spared.contains(&it.heading));
    let copy = |it: &Column<T>| Column {
        heading: it.heading,
        wide: it.wide,
        cell: it.cell,
    };
    kept.map(copy).collect()
}

/// Cell text of an optional value.
pub fn optional(value: &Option<impl Display>) -> String {
    value.as_ref().map_or_else(String::new, ToString::to_string)
}

/// Text on one line, because several lines would break the table, and cleaned, so that columns are aligned; a dash if it
/// is empty.
pub fn one_line(text: &str) -> String {
    if text.is_empty() {
        return "-".into();
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    clean(&words.join(" "), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_and_dashes_where_nothing_is() {
        let items = [("win-1", None, Some(3)), ("w", Some("two\n lines"), None)];
        type Item = (&'static str, Option<&'static str>, Option<u64>);
        let columns: [Column<Item>; 3] = [
            Column::new("NAME", |item| item.0.to_owned()),
            Column::new("WHY", |item| optional(&item.1)),
            Column::wide("B", |item| optional(&item.2)),
        ];
        let text = table(&items, &columns, true);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).collect::<Vec<_>>())
            .map(|row| row.into_iter().filter(|it| !it.is_empty()).collect())
            .collect();
        assert_eq!(
            rows,
            [
                ["NAME", "WHY", "B"],
                ["win-1", "-", "3"],
                ["w", "two lines", "-"]
            ]
        );
        assert!(!table(&items, &columns, false).contains('B'));
    }
}
