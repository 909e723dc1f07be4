//! The table of `docs/windows.md`: which operation has run where.

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use dormer_contract::Row;
use dormer_host::ops::Operation;
use expect_test::expect_file;

/// Compares the committed table with what has just run.
pub(crate) fn compare(rows: &[Row], on_wine: &BTreeSet<&str>) {
    let mut table = String::from(
        "| operation | rows | rows on Wine | performed on Wine | real Windows |\n|---|---|---|---|---|\n",
    );
    for name in Operation::NAMES {
        let of = rows.iter().filter(|row| row.operation.name() == *name);
        let of: Vec<&Row> = of.collect();
        let shown = of.iter().filter(|row| crate::wine::shown(row)).count();
        let performed = if on_wine.contains(name) {
            "yes"
        } else {
            "**no**"
        };
        let _ = writeln!(
            table,
            "| `{name}` | {} | {shown} | {performed} | no |",
            of.len()
        );
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("table.md");
    expect_file![page].assert_eq(&table);
}
