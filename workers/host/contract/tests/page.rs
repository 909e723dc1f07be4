//! The table of `docs/windows.md`: which operation is shown where.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use dormer_contract::{OnWine, Row, rows};
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
    table.push_str(
        "\n| what a host answers otherwise, or not at all | simulated host | Wine | who is right |\n|---|---|---|---|\n",
    );
    for row in &rows {
        let simulated = NOT_SIMULATED.iter().find(|(name, _)| *name == row.name);
        let wine = match row.wine {
            OnWine::Differs(why) => Some(why),
            OnWine::Runs | OnWine::StandIn(_) => None,
        };
        if simulated.is_some() || wine.is_some() {
            let line = format!(
                "| {} | {} | {} | {} |\n",
                row.name,
                simulated.map_or("as the row", |(_, why)| why),
                wine.unwrap_or("as the row"),
                right(row, simulated.is_none()),
            );
            // Rows of one name are one promise.
            if !table.contains(&line) {
                table.push_str(&line);
            }
        }
    }
    table
}

/// Who answers as the row does: where its fact is from, and the hosts that show it.
fn right(row: &Row, simulated: bool) -> String {
    let source = match row.source.starts_with("the interface's own promise") {
        true => "the interface's own promise",
        false => "Windows' documents",
    };
    let hosts = [
        (simulated, " and the simulated host"),
        (wine::shown(row), " and Wine"),
    ];
    let hosts: String = hosts.iter().filter(|it| it.0).map(|it| it.1).collect();
    format!("{source}{hosts}")
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
