//! What a command prints: a table for people, JSON or YAML for programs.

use super::Failure;
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use dormer_views::moment::span;
use serde_json::Value;

/// In which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Output {
    /// A table for people
    #[default]
    Table,
    /// A table with more columns
    Wide,
    /// JSON, as the API answers it
    Json,
    /// The same as YAML
    Yaml,
}

impl Output {
    /// `value` as text, when it is a program that reads it.
    ///
    /// # Errors
    /// The value cannot be written, which no answer of the API is.
    pub fn for_programs(self, value: &Value) -> Result<Option<String>, Failure> {
        let failed = |why: String| Failure::Refused {
            error: format!("the answer cannot be written: {why}"),
            what_to_do: "try -o json".into(),
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

/// A column: its heading, where its value is (`a.b` is b in a), and whether only a wide table has it.
pub type Column = (&'static str, &'static str, bool);

/// `items` as a table of `columns`.
pub fn table(items: &[Value], columns: &[Column], wide: bool) -> String {
    let shown: Vec<&Column> = columns.iter().filter(|column| wide || !column.2).collect();
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(shown.iter().map(|column| column.0));
    for item in items {
        table.add_row(shown.iter().map(|column| cell(item, column.1)));
    }
    let lines = table.to_string();
    lines
        .lines()
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end())
        .collect::<Vec<_>>()
        .join("\n")
}

/// What stands at `path`, as a person reads it.
pub fn cell(item: &Value, path: &str) -> String {
    // The server's clock measures spans: a simulated world's may run faster than ours.
    if path == "since"
        && let Some(seconds) = item["sinceSeconds"].as_u64()
    {
        return span(seconds);
    }
    plain(path.split('.').fold(item, |at, key| &at[key]))
}

/// A value in a cell: nothing is a dash, a list its items.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) if text.is_empty() => "-".into(),
        // A cell is one line; a message of several would tear the table.
        Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Array(items) if items.is_empty() => "-".into(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_has_a_line_for_each_and_dashes_where_nothing_is() {
        let items = [
            json!({"name": "win-1", "node": null, "a": {"b": 3}}),
            json!({"name": "w"}),
        ];
        let columns = [
            ("NAME", "name", false),
            ("NODE", "node", false),
            ("B", "a.b", true),
        ];
        let text = table(&items, &columns, true);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows,
            [["NAME", "NODE", "B"], ["win-1", "-", "3"], ["w", "-", "-"]]
        );
        assert!(!table(&items, &columns, false).contains('B'));
    }

    #[test]
    fn a_cell_counts_by_the_clock_of_the_server() {
        assert_eq!(
            cell(&json!({"since": "x", "sinceSeconds": 61}), "since"),
            "1m1s"
        );
    }
}
