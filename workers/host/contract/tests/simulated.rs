//! The rows against the simulated host.

use std::collections::BTreeMap;

use dormer_contract::{rows, run, run_liar};
use dormer_host::block_on;
use dormer_host_sim::{Behaviour, SimulatedHost};

use crate::{MANNERS, PROGRAMS, scope};

/// What the simulated host does not show, and why. A row that it has learnt to show does not belong here any more.
pub(crate) const NOT_SIMULATED: &[(&str, &str)] = &[];

/// A host with the service programs.
fn host() -> SimulatedHost {
    let mut host = SimulatedHost::new();
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
    let mut host = host();
    let mut failed = Vec::new();
    let truth = rows(&scope("truth"));
    for row in &truth {
        let outcome = block_on(run(row, &mut host));
        match (outcome, but.get(row.name)) {
            (Ok(()), None) | (Err(_), Some(_)) => {}
            (Err(why), None) => failed.push(why.to_string()),
            (Ok(()), Some(_)) => failed.push(format!("{}: is simulated after all", row.name)),
        }
    }
    for row in rows(&scope("liars")) {
        if !but.contains_key(row.name)
            && let Err(why) = block_on(run_liar(&row, &mut host))
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
