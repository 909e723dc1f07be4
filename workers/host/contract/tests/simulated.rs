//! The rows against the simulated host.

use std::collections::BTreeMap;

use dormer_contract::{Needs, Row, rows, run, run_liar};
use dormer_host::block_on;
use dormer_host_sim::{Behaviour, SimulatedHost};

use crate::{MANNERS, PROGRAMS, scope};

/// Rows that the simulated host does not show, and why. A row that passes must be removed from this list.
pub(crate) const NOT_SIMULATED: &[(&str, &str)] = &[
    ("some characters are in no name", "takes every name"),
    (
        "a file that somebody has open is not replaced, and the number looks like missing rights",
        "its own locks hold no file back",
    ),
    (
        "a file that somebody has open is not moved",
        "its own locks hold no file back",
    ),
    (
        "a folder is not renamed while somebody has a file in it open",
        "its own locks hold no file back",
    ),
    (
        "a file that somebody has open is not deleted",
        "its own locks hold no file back",
    ),
    (
        "a file that somebody has open holds its tree",
        "its own locks hold no file back",
    ),
    (
        "a lock that is held is taken again by its holder",
        "its own locks hold no file back",
    ),
    (
        "what is locked is read by nobody",
        "its own locks hold no file back",
    ),
    (
        "a file that somebody has open cannot be replaced, and asking does not disturb",
        "its own locks hold no file back",
    ),
    (
        "a new name is written for the next boot, whole and cut",
        "writes no NetBIOS name",
    ),
    ("what is no certificate is no root", "takes any bytes"),
    (
        "bytes behind a certificate are not taken",
        "takes any bytes",
    ),
    (
        "a host without Defender says so",
        "has Defender, as Windows Server has",
    ),
    (
        "the list has this program, with its path and its begin",
        "lists the processes of services alone",
    ),
    (
        "a program's exit code is answered",
        "runs no program: each answers 0 at once",
    ),
    (
        "an exit code has 32 bits",
        "runs no program: each answers 0 at once",
    ),
    (
        "what is no program does not run",
        "runs no program: each answers 0 at once",
    ),
    (
        "a program that does not end is ended at its limit",
        "runs no program: each answers 0 at once",
    ),
    (
        "a service that is stopping takes no second order",
        "counts no checkpoints",
    ),
];

/// A host without Containers, and one with it, both with the service programs.
fn hosts() -> [SimulatedHost; 2] {
    let mut containers = SimulatedHost::with_containers();
    assert!(containers.start("hns"), "HNS runs");
    [SimulatedHost::new(), containers].map(with_programs)
}

fn host_for<'a>(row: &Row, hosts: &'a mut [SimulatedHost; 2]) -> &'a mut SimulatedHost {
    &mut hosts[usize::from(row.needs == Needs::Containers)]
}

fn with_programs(mut host: SimulatedHost) -> SimulatedHost {
    host.put(r"C:\windows\system32\cmd.exe", b"MZ");
    for manner in MANNERS {
        let file = format!("{manner}.exe");
        let path = format!(r"{PROGRAMS}\{file}");
        host.put(&path, b"MZ");
        let mut behaviour = Behaviour::default();
        match manner {
            "linger" => behaviour.linger_ms = 60_000,
            "slow" => behaviour.ignores_stop = true,
            "early" => behaviour.refuses_start = vec![1053; 9],
            _ => {}
        }
        host.behave(&file, behaviour);
    }
    host
}

#[test]
fn the_simulated_host_answers_as_the_contract_says() {
    let but: BTreeMap<&str, &str> = NOT_SIMULATED.iter().copied().collect();
    let mut hosts = hosts();
    let mut failed = Vec::new();
    let truth = rows(&scope("truth"));
    for row in &truth {
        let outcome = block_on(run(row, host_for(row, &mut hosts)));
        match (outcome, but.get(row.name)) {
            (Ok(()), None) | (Err(_), Some(_)) => {}
            (Err(why), None) => failed.push(why.to_string()),
            (Ok(()), Some(_)) => failed.push(format!("{}: is simulated after all", row.name)),
        }
    }
    for row in rows(&scope("liars")) {
        if !but.contains_key(row.name)
            && let Err(why) = block_on(run_liar(&row, host_for(&row, &mut hosts)))
        {
            failed.push(format!("liar: {why}"));
        }
    }
    for name in but.keys() {
        if !truth.iter().any(|row| row.name == *name) {
            failed.push(format!("{name}: there is no such row"));
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}
