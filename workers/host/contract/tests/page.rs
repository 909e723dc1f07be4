//! The table of `docs/windows.md`: which operation is shown where.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use dormer_contract::{Row, rows};
use dormer_host::ops::Operation;

use crate::{scope, simulated::NOT_SIMULATED, wine};

const BEGIN: &str = "<!-- table: begin -->\n";
const END: &str = "<!-- table: end -->";

/// Every operation is performed on Wine: none is forgotten, and none kills the program.
pub(crate) fn compare_performed(performed: &BTreeSet<&'static str>) {
    let names: BTreeSet<&str> = Operation::NAMES.iter().copied().collect();
    assert_eq!(*performed, names);
}

fn table() -> String {
    let rows = rows(&scope("table"));
    let of_wine = rows.iter().filter(|row| wine::shown(row)).count();
    let of_stand_ins = rows.iter().filter(|row| wine::by_stand_in(row)).count();
    let is_simulated = |row: &&Row| !NOT_SIMULATED.iter().any(|(name, _)| *name == row.name);
    let mut table = format!(
        "{} rows: {} on the simulated host, {of_wine} on Wine, {of_stand_ins} on Wine with a stand-in of ours, none on \
         real Windows.\n\n\
         | operation | rows | simulated | Wine | stand-in | real Windows |\n|---|---|---|---|---|---|\n",
        rows.len(),
        rows.iter().filter(is_simulated).count(),
    );
    for name in Operation::NAMES {
        let of: Vec<&Row> = rows
            .iter()
            .filter(|row| row.operation.name() == *name)
            .collect();
        let simulated = of.iter().copied().filter(is_simulated).count();
        let shown = of.iter().filter(|row| wine::shown(row)).count();
        let on_wine = match shown {
            0 => "bound".to_owned(),
            shown => shown.to_string(),
        };
        let by_stand_in = match of.iter().filter(|row| wine::by_stand_in(row)).count() {
            0 => "-".to_owned(),
            shown => shown.to_string(),
        };
        let _ = writeln!(
            table,
            "| `{name}` | {} | {simulated} | {on_wine} | {by_stand_in} | - |",
            of.len()
        );
    }
    table.push_str("\n| on Wine otherwise, or not at all | why |\n|---|---|\n");
    for row in &rows {
        if let dormer_contract::OnWine::Differs(why) = row.wine {
            let _ = writeln!(table, "| {} | {why} |", row.name);
        }
    }
    table
}

#[test]
fn the_page_has_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/windows.md");
    let page = fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the table begins");
    let (_, after) = rest.split_once(END).expect("the table ends");
    let wanted = format!("{before}{BEGIN}{}{END}{after}", table());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, wanted).expect("written");
    } else {
        assert_eq!(page, wanted, "UPDATE_EXPECT=1 writes the table");
    }
}
