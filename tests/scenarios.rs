//! `tests/SCENARIOS.md`: each scenario with its test and the fault of the fleet.

mod table;

use dormer_fleet::faults::{Fault, FaultOwner};
use std::{fmt::Write as _, fs, path::PathBuf};
use table::{CoveringTests, SCENARIOS};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn source(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn fault(number: u8) -> Option<Fault> {
    Fault::ALL
        .iter()
        .copied()
        .find(|fault| fault.number() == number)
}

/// A fault in a cell, with who brings it about where that is not the fleet.
fn fault_cell(number: u8) -> String {
    match fault(number) {
        Some(fault) if fault.owner() == FaultOwner::Scenario => {
            format!("`{fault}` (the test's own)")
        }
        Some(fault) => format!("`{fault}`"),
        None => "-".to_owned(),
    }
}

fn test_cell(covering: &CoveringTests) -> String {
    let links = covering
        .iter()
        .map(|(file, test)| format!("[`{test}`](../{file})"));
    let links: Vec<String> = links.collect();
    if links.is_empty() {
        "**missing**".to_owned()
    } else {
        links.join("<br>")
    }
}

fn page() -> String {
    let missing = SCENARIOS
        .iter()
        .filter(|(_, _, covering)| covering.is_empty())
        .count();
    let mut page = format!(
        "# Scenarios\n\nGenerated from `tests/scenarios/table.rs` by `tests/scenarios.rs` (`UPDATE_EXPECT=1`). \
         Comments cite the\nnumbers; a fault is what \
         `dormer fleet --fault NAME` lets a person watch. {} of {} scenarios are played{}.\n\n\
         | # | scenario | fault | played by |\n|---|---|---|---|\n",
        SCENARIOS.len() - missing,
        SCENARIOS.len(),
        if missing == 0 {
            ""
        } else {
            ", the others are named as missing"
        },
    );
    for (number, what, covering) in SCENARIOS {
        let fault = fault_cell(*number);
        let tests = test_cell(covering);
        let _ = writeln!(page, "| {number} | {what} | {fault} | {tests} |");
    }
    page.push_str("\nFaults of the fleet beyond the list:\n\n");
    let listed = |fault: &&Fault| SCENARIOS.iter().any(|row| row.0 == fault.number());
    for fault in Fault::ALL.iter().filter(|fault| !listed(fault)) {
        let _ = writeln!(page, "- `{fault}`: {}", fault.about());
    }
    page
}

#[test]
fn every_scenario_has_its_row_and_every_test_named_is_there() {
    let numbers: Vec<u8> = SCENARIOS.iter().map(|(number, ..)| *number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert!(numbers.starts_with(&(1..=60).collect::<Vec<u8>>()));
    for (number, what, covering) in SCENARIOS {
        for (file, test) in *covering {
            let text = source(file);
            assert!(
                text.contains(&format!("fn {test}(")),
                "{number} ({what}): no {test} in {file}"
            );
        }
        // A test that names the fault is among them, unless only a test can bring it about.
        if let Some(fault) = fault(*number)
            && fault.owner() != FaultOwner::Scenario
            && !covering.is_empty()
        {
            let forms = ["\"", "@", "/"].map(|end| format!("\"{fault}{end}"));
            let names = |text: String| forms.iter().any(|form| text.contains(form));
            let named = covering.iter().any(|(file, _)| names(source(file)));
            assert!(named, "{number} ({what}): no test of it names {fault}");
        }
    }
}

#[test]
fn the_page_is_as_committed() {
    let path = root().join("tests/SCENARIOS.md");
    let page = page();
    if std::env::var("UPDATE_EXPECT").is_ok_and(|value| value == "1") {
        fs::write(&path, &page).expect("the page can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "tests/SCENARIOS.md is not as generated: UPDATE_EXPECT=1 writes it"
    );
}
