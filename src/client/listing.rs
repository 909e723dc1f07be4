//! Table of items that fits the terminal: that of `dormer get`, and of `dormer watch` while it is redrawn.

use super::{
    items::{Item, NAMESPACE},
    output::{columns_without, table},
    terminal::{self, Style},
};

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

/// Lines of the table, the headings first. In a narrow terminal names are shortened first, then the less important columns
/// are left out, and lines are cut last.
pub(super) fn fitted<T: Item>(mut shown: Vec<T>, form: TableForm) -> Vec<String> {
    let columns = form.columns;
    let mut text = plain(&shown, form, &[]);
    if let Some(columns) = columns.filter(|_| !form.wide)
        && text.lines().any(|line| line.chars().count() > columns)
    {
        shown = T::shortened(shown);
        text = (0..=T::SPARED.len())
            .map(|count| plain(&shown, form, &T::SPARED[..count]))
            .find(|text| last_column_at(text) + T::LAST_MIN <= columns)
            .unwrap_or_else(|| plain(&shown, form, T::SPARED));
    }
    let coloured = terminal::coloured();
    let styles = std::iter::once(Style::Heading).chain(shown.iter().map(Item::style));
    let lines = text.lines().zip(styles).map(|(line, style)| {
        let line = columns.map_or_else(|| line.to_owned(), |most| terminal::cut(line, most));
        style.paint(&line, coloured)
    });
    lines.collect()
}

fn plain<T: Item>(shown: &[T], form: TableForm, spared: &[&str]) -> String {
    let text = table(shown, &columns_without(T::COLUMNS, spared), form.wide);
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

    fn in_columns<T: Item>(shown: Vec<T>, columns: usize) -> String {
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
