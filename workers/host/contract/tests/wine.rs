//! The rows against Wine: the real program, the real calls.

use std::collections::BTreeSet;

use dormer_contract::{Failed, OnWine, Row, rows, run, run_liar};
use dormer_host::{
    block_on,
    ops::{
        Ask, DefenderAdd, DefenderRemove, DynamicPortsRead, Exclusions, FeatureEnable, FeatureRead,
        FirewallAdd, FirewallChange, FirewallPolicyRead, FirewallRead, FirewallRule, Host,
        Operation, OperationRequest, RebootAsk, Restarts, Route, RouteAdd, RouteRemove,
        ServiceFailure, Step,
    },
};
use dormer_testkit::{Wine, host_program, started};

use crate::{MANNERS, PROGRAMS, page, performer::Performer, scope};

const PERFORM: &str = r"C:\windows\dormer-host-perform.exe";
/// Libraries of Windows that Wine 8 lacks.
pub(crate) const STAND_INS: [&str; 2] = ["dismapi.dll", "vmcompute.dll"];

/// Whether Wine shows a row by itself.
pub(crate) fn shown(row: &Row) -> bool {
    row.wine == OnWine::Runs
}

/// Whether Wine shows a row with a library of ours in place of Windows'.
pub(crate) fn by_stand_in(row: &Row) -> bool {
    matches!(row.wine, OnWine::StandIn(_))
}

/// Features that Wine 8 lacks, and the number that our call answers then (`None`: it succeeds without an effect). No
/// row shows these operations. This test shows that the program binds them late, and survives.
fn lacking() -> Vec<(Operation, Option<u32>)> {
    let route = Route {
        prefix: "198.51.100.7/32".into(),
        next_hop: "0.0.0.0".into(),
        interface: 1,
        metric: 5,
    };
    let rule = FirewallRule {
        name: "dormer contract".into(),
        description: String::new(),
        protocol: 6,
        ports: "10250".into(),
        direction: 1,
        action: 1,
        profiles: i32::MAX,
        enabled: true,
        remote: "*".into(),
        program: String::new(),
    };
    let exclusions = Exclusions {
        paths: vec![r"C:\k".into()],
        processes: vec![],
    };
    let name = || "Containers".to_owned();
    vec![
        (FeatureRead { name: name() }.operation(), Some(126)),
        (FeatureEnable { name: name() }.operation(), Some(126)),
        (
            RouteAdd {
                route: route.clone(),
            }
            .operation(),
            Some(127),
        ),
        (RouteRemove { route }.operation(), Some(127)),
        (
            FirewallRead {
                name: rule.name.clone(),
            }
            .operation(),
            Some(0x8000_4001),
        ),
        (FirewallAdd { rule: rule.clone() }.operation(), None),
        (FirewallChange { rule }.operation(), Some(0x8000_4001)),
        (FirewallPolicyRead {}.operation(), Some(0x8000_4001)),
        (
            DefenderAdd {
                exclusions: exclusions.clone(),
            }
            .operation(),
            Some(0x8004_100e),
        ),
        (DynamicPortsRead {}.operation(), Some(0x8004_100e)),
        (DefenderRemove { exclusions }.operation(), Some(0x8004_100e)),
        (
            ServiceFailure {
                name: "truth-settings".into(),
                actions: Restarts::default(),
            }
            .operation(),
            None,
        ),
        (
            RebootAsk {
                grace_seconds: 5,
                reason: "contract".into(),
            }
            .operation(),
            Some(120),
        ),
    ]
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
    for row in truth.iter().filter(|row| shown(row)) {
        failed.extend(block_on(run(row, &mut host)).err());
    }
    // Each row's liar is refused on the same host, under other names.
    for row in rows(&scope("liars")).iter().filter(|row| shown(row)) {
        failed.extend(block_on(run_liar(row, &mut host)).err());
    }
    for (operation, wanted) in lacking() {
        let request = OperationRequest {
            step: Step::default(),
            operation: operation.clone(),
        };
        let code = block_on(host.perform(request))
            .err()
            .map(|error| error.code);
        if code != wanted {
            failed.push(Failed(format!("{operation:?}: {code:x?}, not {wanted:x?}")));
        }
    }
    // From here on it has what it lacked.
    for library in STAND_INS {
        wine.install_stand_in(library).expect("compiled");
    }
    for row in truth.iter().filter(|row| by_stand_in(row)) {
        failed.extend(block_on(run(row, &mut host)).err());
    }
    for row in rows(&scope("stand-in-liars"))
        .iter()
        .filter(|row| by_stand_in(row))
    {
        failed.extend(block_on(run_liar(row, &mut host)).err());
    }
    let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    let libraries: BTreeSet<&str> = truth
        .iter()
        .filter_map(|row| match row.wine {
            OnWine::StandIn(library) => Some(library),
            OnWine::Runs | OnWine::Differs(_) => None,
        })
        .collect();
    assert_eq!(libraries, BTreeSet::from(STAND_INS));
    page::compare_performed(&host.performed);
}
