//! The rows of the host interface's contract against a host of the fleet.

use std::collections::BTreeMap;

use dormer_contract::{Needs, Scope, rows, run, run_liar};

use super::peer::Bench;

/// Where the service programs lie.
const PROGRAMS: &str = r"C:\programs";

/// Rows that a host of the fleet does not show, and why. A row that passes must be removed from this list.
const NOT_IN_THE_FLEET: &[(&str, &str)] = &[
    (
        "a service whose folder is not there",
        "each program below C:\\Windows is there",
    ),
    (
        "a file that somebody has open is not replaced, and the number looks like missing rights",
        "its lock holds no file back",
    ),
    (
        "a file that somebody has open is not moved",
        "its lock holds no file back",
    ),
    (
        "a folder is not renamed while somebody has a file in it open",
        "its lock holds no file back",
    ),
    (
        "a file that somebody has open is not deleted",
        "its lock holds no file back",
    ),
    (
        "a file that somebody has open holds its tree",
        "its lock holds no file back",
    ),
    (
        "a lock that is held is taken again by its holder",
        "its lock holds no file back",
    ),
    (
        "what is locked is read by nobody",
        "its lock holds no file back",
    ),
    (
        "a file that somebody has open cannot be replaced, and asking does not disturb",
        "its lock holds no file back",
    ),
    (
        "a new name is written for the next boot, whole and cut",
        "writes no NetBIOS name",
    ),
    (
        "a root is added with its name, to the store's own part",
        "keeps no names of roots",
    ),
    (
        "a root that a policy brings is added to the store's own part, too",
        "keeps no names of roots",
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
    ("a program's exit code is answered", "runs netsh alone"),
    ("an exit code has 32 bits", "runs netsh alone"),
    ("what is no program does not run", "runs netsh alone"),
    (
        "a program that does not end is ended at its limit",
        "runs netsh alone",
    ),
    (
        "a service whose program is not there",
        "has every program of Windows' own folder",
    ),
    (
        "a program that ends before it speaks",
        "each of its programs speaks",
    ),
    (
        "a service that is stopping takes no second order",
        "counts no checkpoints",
    ),
];

fn scope(name: &str) -> Scope {
    Scope {
        folder: format!(r"C:\{name}"),
        prefix: name.into(),
        programs: PROGRAMS.into(),
    }
}

/// A host without Containers, and one with it, both with the service programs.
async fn benches() -> [Bench; 2] {
    let benches = [
        Bench::start(&["feature-needs-reboot@*"]).await,
        Bench::start(&[]).await,
    ];
    for bench in &benches {
        let host = bench.host();
        let disk = &mut host.state().disk;
        disk.make_folders(PROGRAMS);
        for manner in ["plain", "linger", "slow", "early", "idle"] {
            let put = disk.put(&format!(r"{PROGRAMS}\{manner}.exe"), b"MZ");
            put.expect("there is room");
        }
    }
    benches
}

#[tokio::test(start_paused = true)]
async fn a_host_of_the_fleet_answers_as_the_contract_says() {
    let but: BTreeMap<&str, &str> = NOT_IN_THE_FLEET.iter().copied().collect();
    let benches = benches().await;
    let hosts = benches.each_ref().map(|bench| bench.host());
    let mut interfaces = hosts.each_ref().map(|host| host.interface());
    let mut failed = Vec::new();
    let truth = rows(&scope("truth"));
    for row in &truth {
        let host = &mut interfaces[usize::from(row.needs == Needs::Containers)];
        match (run(row, host).await, but.get(row.name)) {
            (Ok(()), None) | (Err(_), Some(_)) => {}
            (Err(why), None) => failed.push(why.to_string()),
            (Ok(()), Some(_)) => failed.push(format!("{}: is shown after all", row.name)),
        }
    }
    for row in rows(&scope("liars")) {
        let host = &mut interfaces[usize::from(row.needs == Needs::Containers)];
        if !but.contains_key(row.name)
            && let Err(why) = run_liar(&row, host).await
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
