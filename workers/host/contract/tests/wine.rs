//! The rows against Wine: the real program, the real calls.

use std::collections::BTreeSet;

use dormer_contract::{OnWine, Row, rows, run, run_liar};
use dormer_host::block_on;
use dormer_testkit::{Wine, host_program, started};

use crate::{MANNERS, PROGRAMS, page, performer::Performer, scope};

const PERFORM: &str = r"C:\windows\dormer-host-perform.exe";

/// Whether Wine shows a row.
pub(crate) fn shown(row: &Row) -> bool {
    row.wine == OnWine::Runs
}

#[test]
fn wine_answers_as_the_contract_says() {
    let program = match host_program() {
        Ok(program) => program,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let wine = started!(Wine::start());
    wine.install(&program.perform, PERFORM).expect("installed");
    wine.install_service_programs(PROGRAMS, &MANNERS)
        .expect("compiled");
    let mut host = Performer::start(&wine, PERFORM);
    let mut failed = Vec::new();
    let truth = rows(&scope("truth"));
    let mut shown_here = BTreeSet::new();
    for row in truth.iter().filter(|row| shown(row)) {
        shown_here.insert(row.operation.name());
        failed.extend(block_on(run(row, &mut host)).err());
    }
    // Each row's liar is refused on the same host, under other names.
    for row in rows(&scope("liars")).iter().filter(|row| shown(row)) {
        failed.extend(block_on(run_liar(row, &mut host)).err());
    }
    let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    page::compare_performed(&host.performed);
}
