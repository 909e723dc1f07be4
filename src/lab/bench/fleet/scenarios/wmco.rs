//! Another operator for the same hosts: while it runs, dormer leaves all of them alone and reports the reason.

use super::stage::{self, MachineStatus, Scenario};
use dormer_fleet::{
    api::{Key, Meta, kinds},
    wmco::{Options, VERSION_ANNOTATION, Wmco, rules::DEPLOYMENT},
};
use serde_json::json;

/// Location of the operator in dormer's report.
const NAMED: &str = "the Windows Machine Config Operator runs (Pod openshift-windows-machine-config-operator/windows-\
                     machine-config-operator-";

/// Whether so many machines are left alone, with the operator as the reason.
fn left_alone(statuses: &[MachineStatus], machines: usize) -> bool {
    statuses.len() == machines && statuses.iter().all(|one| one.words.contains(NAMED))
}

#[test]
fn no_host_is_touched_beside_a_wmco_and_all_serve_once_it_is_stopped() {
    stage::on_a_virtual_clock(async {
        let mut scenario = Scenario::start(2, &["wmco-beside"]).await;
        scenario
            .until("both are left alone for long", |scenario, statuses| {
                left_alone(statuses, 2) && scenario.unchanged_for(15)
            })
            .await;
        assert_eq!(scenario.world().record.tally().remote_commands, 0);
        scenario
            .until("both serve", |scenario, statuses| {
                scenario.all_serve(statuses, 2)
            })
            .await;
    });
}

#[test]
fn an_upgrade_waits_while_a_wmco_configures_the_same_hosts() {
    stage::on_a_virtual_clock(async {
        let mut scenario = Scenario::start(2, &[]).await;
        scenario
            .until("both serve", |scenario, statuses| {
                scenario.all_serve(statuses, 2)
            })
            .await;
        let wmco = Wmco::start(scenario.world(), Options::default()).expect("WMCO");
        scenario
            .until("both are left alone", |_, statuses| left_alone(statuses, 2))
            .await;
        let tally = |scenario: &Scenario| {
            let tally = scenario.world().record.tally();
            (
                tally.remote_commands,
                tally.machines_deleted,
                tally.pods_evicted,
            )
        };
        let before = tally(&scenario);
        scenario.upgrade().await;
        scenario
            .until(
                "WMCO has configured both, undrained",
                |scenario, statuses| {
                    let nodes = scenario.all(&kinds::NODE);
                    let marked =
                        |node: &serde_json::Value| node.annotation(VERSION_ANNOTATION).is_some();
                    nodes.iter().all(marked)
                        && left_alone(statuses, 2)
                        && scenario.unchanged_for(30)
                },
            )
            .await;
        assert_eq!(tally(&scenario), before, "dormer did something");
        let scale = json!({"spec": {"replicas": 0}});
        let key = Key::new(wmco.namespace(), DEPLOYMENT);
        let scaled = scenario
            .admin()
            .merge(&kinds::DEPLOYMENT, &key, &scale)
            .await;
        scaled.expect("it is stopped");
        scenario
            .until("both serve the new version", |scenario, statuses| {
                scenario.all_serve(statuses, 2)
            })
            .await;
    });
}
