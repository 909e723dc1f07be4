//! Table of items that fits the terminal: that of `dormer get`, and of `dormer watch` while it is redrawn.

use super::{
    items::{ListItem, NAMESPACE},
    output::{columns_without, table_of_widths},
    terminal::{self, Style},
};
use std::collections::BTreeMap;

/// What a person reads in place of an empty table.
pub(super) const NONE_FOUND: &str = "No resources found.";

/// How a table is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableForm {
    /// Whether it has all columns: then lines are cut, and nothing is shortened.
    pub(super) wide: bool,
    /// Whether it begins with the namespaces.
    pub(super) namespaces: bool,
    /// Columns of the terminal. `None`: lines may have any length.
    pub(super) columns: Option<usize>,
}

/// How a table was laid out, so that its columns stay where they are when it is drawn again.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Widths of the columns, in characters by their headings.
    widths: BTreeMap<&'static str, u16>,
    /// Columns of the terminal.
    columns: Option<usize>,
    /// Number of columns that are left out. `None`: the terminal was wide enough.
    spared: Option<usize>,
}

/// Lines of the table, the headings first. In a narrow terminal names are shortened first, then the less important columns
/// are left out, and lines are cut last.
pub(super) fn fitted<T: ListItem>(shown: Vec<T>, form: TableForm) -> Vec<String> {
    fitted_as_before(shown, form, &mut Layout::default())
}

/// The same, with columns that do not become narrower than those of the table before.
pub(super) fn fitted_as_before<T: ListItem>(
    mut shown: Vec<T>,
    form: TableForm,
    before: &mut Layout,
) -> Vec<String> {
    let columns = form.columns;
    if before.columns != columns {
        *before = Layout {
            columns,
            ..Layout::default()
        };
    }
    let mut text = plain(&shown, form, &[], &before.widths);
    let mut spared = 0;
    if let Some(columns) = columns.filter(|_| !form.wide)
        && (before.spared.is_some() || text.lines().any(|line| line.chars().count() > columns))
    {
        let first = before.spared.unwrap_or_else(|| {
            // The names are shorter from here on.
            before.widths.clear();
            0
        });
        shown = T::shortened(shown);
        let draw = |count: usize| {
            plain(
                &shown,
                form,
                &T::DROPPED_WHEN_NARROW[..count],
                &before.widths,
            )
        };
        let mut drawn = (first..=T::DROPPED_WHEN_NARROW.len()).map(|count| (count, draw(count)));
        (spared, text) = drawn
            .find(|(_, text)| last_column_at(text) + T::LAST_COLUMN_CHARS_MIN <= columns)
            .unwrap_or_else(|| {
                (
                    T::DROPPED_WHEN_NARROW.len(),
                    draw(T::DROPPED_WHEN_NARROW.len()),
                )
            });
        before.spared = Some(spared);
    }
    let kept = columns_without(T::COLUMNS, &T::DROPPED_WHEN_NARROW[..spared]);
    let headings = kept.iter().filter(|it| form.wide || !it.wide);
    before.widths = widths(&text, headings.map(|it| it.heading));
    let coloured = terminal::coloured();
    let styles = std::iter::once(Style::Heading).chain(shown.iter().map(ListItem::style));
    let lines = text.lines().zip(styles).map(|(line, style)| {
        let line = columns.map_or_else(|| line.to_owned(), |most| terminal::cut(line, most));
        style.paint(&line, coloured)
    });
    lines.collect()
}

fn plain<T: ListItem>(
    shown: &[T],
    form: TableForm,
    spared: &[&str],
    least: &BTreeMap<&'static str, u16>,
) -> String {
    let columns = columns_without(T::COLUMNS, spared);
    let text = table_of_widths(shown, &columns, form.wide, least);
    if !form.namespaces || form.wide {
        return text;
    }
    let heading = NAMESPACE.heading;
    let namespaces: Vec<&str> = shown.iter().map(|it| it.sort_key().0).collect();
    let widest = namespaces.iter().map(|it| it.len()).max().unwrap_or(0);
    let width = widest.max(heading.len()) + 2;
    let cells = std::iter::once(heading).chain(namespaces);
    let lines = cells.zip(text.lines());
    let lines = lines.map(|(cell, line)| format!("{cell:width$}{line}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Widths of a table's columns but the last one, which ends the lines.
fn widths(text: &str, headings: impl Iterator<Item = &'static str>) -> BTreeMap<&'static str, u16> {
    let line = text.lines().next().unwrap_or_default();
    let mut widths = BTreeMap::new();
    let mut before: Option<(&'static str, usize)> = None;
    let mut from = 0;
    for heading in headings {
        let Some(at) = line.get(from..).and_then(|rest| rest.find(heading)) else {
            continue;
        };
        let at = from + at;
        if let Some((name, begins)) = before {
            let width = (at - begins).saturating_sub(2);
            widths.insert(name, u16::try_from(width).unwrap_or(u16::MAX));
        }
        before = Some((heading, at));
        from = at + heading.len();
    }
    widths
}

/// Where the last column of a table begins.
fn last_column_at(text: &str) -> usize {
    let headings = text.lines().next().unwrap_or_default();
    headings.rfind("  ").map_or(0, |at| at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        items::Progress,
        samples::{machine_with, rollout_with},
    };
    use dormer_views::machine::Machine;
    use serde_json::json;

    fn in_columns<T: ListItem>(shown: Vec<T>, columns: usize) -> String {
        let form = TableForm {
            wide: false,
            namespaces: false,
            columns: Some(columns),
        };
        fitted(shown, form).join("\n")
    }

    #[test]
    fn a_narrow_terminal_does_without_columns_before_the_reason() {
        let machine = machine_with(json!({"name": "demo-x7k2p-windows-worker-us-east-1a-9dg4j",
            "version": "11.0.0-9fc46aca439d", "waitingFor": "SSH at 10.0.0.9, which does not answer yet"}));
        let narrow = in_columns(vec![machine.clone()], 80);
        assert!(narrow.contains("waits for SSH at 10.0.0.9"), "{narrow}");
        assert!(narrow.contains("\n9dg4j "), "{narrow}");
        let wide = in_columns(vec![machine], 200);
        assert!(
            wide.contains("VERSION") && wide.contains("us-east-1a-9dg4j"),
            "{wide}"
        );
    }

    /// A table that is redrawn does not move its columns at each change.
    #[test]
    fn columns_stay_where_they_are_when_the_table_is_drawn_again() {
        let form = |columns| TableForm {
            wide: false,
            namespaces: false,
            columns: Some(columns),
        };
        let states = ["Unprovisioned", "Joined"];
        for columns in [240, 80] {
            let mut layout = Layout::default();
            let drawn = states.map(|state| {
                let machine = machine_with(json!({"name": "demo-windows-worker-us-east-1a-9dg4j",
                    "state": state, "version": "11.0.0-9fc46aca439d"}));
                fitted_as_before(vec![machine], form(columns), &mut layout).join("\n")
            });
            let headings = drawn.clone().map(|it| it.lines().next().map(str::to_owned));
            assert_eq!(headings[0], headings[1], "{columns}: {drawn:?}");
            assert!(drawn[1].contains("Joined"), "{drawn:?}");
        }
    }

    #[test]
    fn a_rollout_in_eighty_columns_says_who_holds_the_lease_how_long_and_what_it_waits_for() {
        let holder = "demo-x7k2p-windows-worker-us-east-1a-9dg4j";
        let queued = "demo-x7k2p-windows-worker-us-east-1a-vn94g";
        let machines: Vec<Machine> = [holder, queued]
            .map(|name| machine_with(json!({"name": name, "uid": name})))
            .into();
        let rollout = rollout_with(json!({"maxUnavailable": 1, "typicalTurnSeconds": 600,
            "waitingFor": format!("{holder} to serve again"),
            "queue": [{"uid": queued, "name": queued, "position": 1, "away": false}],
            "slots": [{"token": 5, "holder": holder, "name": holder, "marked": false, "seq": 20,
                "since": "2026-11-21T07:00:00.000Z"}]}));
        let rollout = Progress::of(rollout, &machines);
        let narrow = in_columns(vec![rollout.clone()], 80);
        let lines: Vec<&str> = narrow.lines().collect();
        assert_eq!(
            lines,
            [
                "POOL     STATE    UPDATED  HOLDER  TIME LEFT  WAITING FOR",
                "windows  Running  0        9dg4j   18m59s     9dg4j to serve again",
            ]
        );
        // The state is the last to go.
        for columns in [60, 40, 20] {
            let narrow = in_columns(vec![rollout.clone()], columns);
            assert!(narrow.starts_with("POOL     STATE"), "{narrow}");
        }
        let wide = in_columns(vec![rollout], 240);
        assert!(wide.contains("QUEUE") && wide.contains(holder), "{wide}");
    }
}
