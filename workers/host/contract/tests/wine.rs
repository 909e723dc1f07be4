//! The rows against Wine: the real program, the real calls.

use dormer_contract::{OnWine, Row, Scope, rows, run, run_liar};
use dormer_host::block_on;
use dormer_testkit::{Wine, host_program, started};

use crate::performer::Performer;

const PERFORM: &str = r"C:\windows\dormer-host-perform.exe";

fn scope(name: &str, service_program: &str) -> Scope {
    Scope {
        folder: format!(r"C:\{name}"),
        prefix: name.into(),
        service_program: service_program.into(),
    }
}

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
    let service = wine.install_service_program().expect("compiled");
    let mut host = Performer::start(&wine, PERFORM);
    let mut failed = Vec::new();
    let truth = rows(&scope("truth", service));
    let count = truth.iter().filter(|row| shown(row)).count();
    for row in truth.iter().filter(|row| shown(row)) {
        failed.extend(block_on(run(row, &mut host)).err());
    }
    // Each row's liar is refused on the same host, under other names.
    for row in rows(&scope("liars", service))
        .iter()
        .filter(|row| shown(row))
    {
        failed.extend(block_on(run_liar(row, &mut host)).err());
    }
    let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    println!("{count} rows on Wine, {} in all", truth.len());
    crate::page::compare(&truth, &host.performed);
}
