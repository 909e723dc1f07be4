//! Another operator for the same hosts: while it runs, dormer leaves all of them alone and reports the reason.

use super::stage::{self, Scenario, ScenarioStatus};
use dormer_fleet::{
    api::{Key, Meta, kinds},
    wmco::{
        KEY_ANNOTATION, Options, REBOOT_ANNOTATION, VERSION, VERSION_ANNOTATION, Wmco, process_key,
        rules::DEPLOYMENT,
    },
};
use serde_json::{Value, json};

/// Location of the operator in dormer's report.
const NAMED: &str = "the Windows Machine Config Operator runs (Pod openshift-windows-machine-config-operator/windows-\
                     machine-config-operator-";

/// Whether so many machines are left alone, with the operator as the reason.
fn left_alone(statuses: &[ScenarioStatus], machines: usize) -> bool {
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

/// Writes annotations on every Windows Node.
async fn mark(scenario: &Scenario, annotations: &Value) {
    let marks = json!({"metadata": {"annotations": annotations}});
    for node in scenario.all(&kinds::NODE) {
        let key = Key::of(&node);
        let marked = scenario.admin().merge(&kinds::NODE, &key, &marks).await;
        marked.expect("marked");
    }
}

/// Deleted Machines, evicted pods, restarts of kubelets, and boots of all hosts.
fn felt(scenario: &Scenario) -> [u64; 4] {
    let tally = scenario.world().record.tally();
    let hosts = scenario.world().hosts.as_ref().expect("hosts").all();
    let boots = hosts.iter().map(|host| u64::from(host.state().boots)).sum();
    [
        tally.machines_deleted,
        tally.pods_evicted,
        tally.kubelet_restarts,
        boots,
    ]
}

/// What a WMCO does in an hour that comes back to two nodes which were its own and which dormer has upgraded in place.
/// `after` is written on their Nodes before it comes.
async fn comes_back(after: Value) -> [u64; 4] {
    let mut scenario = Scenario::start(2, &[]).await;
    scenario
        .until("both serve", |scenario, statuses| {
            scenario.all_serve(statuses, 2)
        })
        .await;
    let hash = process_key(&scenario.world().ssh_key.private_pem);
    let marks = json!({VERSION_ANNOTATION: VERSION, KEY_ANNOTATION: hash, REBOOT_ANNOTATION: ""});
    mark(&scenario, &marks).await;
    let key = Key::new("dormer", "windows");
    let in_place = json!({"spec": {"strategy": {"type": "InPlace"}}});
    let pool = scenario
        .admin()
        .merge(&kinds::WINDOWS_POOL, &key, &in_place)
        .await;
    pool.expect("a pool");
    let [deleted, ..] = felt(&scenario);
    scenario.upgrade().await;
    scenario
        .until("both serve the new version", |scenario, statuses| {
            scenario.all_serve(statuses, 2)
        })
        .await;
    assert_eq!(felt(&scenario)[0], deleted, "it was in place");
    mark(&scenario, &after).await;
    let before = felt(&scenario);
    let _wmco = Wmco::start(scenario.world(), Options::default()).expect("WMCO");
    scenario
        .until("an hour of WMCO's", |scenario, _| {
            scenario.unchanged_for(60)
        })
        .await;
    let mut now = felt(&scenario);
    for (now, before) in now.iter_mut().zip(before) {
        *now -= before;
    }
    now
}

#[test]
fn a_wmco_that_comes_back_leaves_the_nodes_that_dormer_upgraded() {
    stage::on_a_virtual_clock(async {
        assert_eq!(comes_back(json!({})).await, [0; 4]);
    });
}

/// What dormer keeps, or takes away, is what keeps WMCO from it.
#[test]
fn a_wmco_that_comes_back_to_what_dormer_mends_restarts_configures_or_deletes() {
    stage::on_a_virtual_clock(async {
        let [.., boots] = comes_back(json!({REBOOT_ANNOTATION: ""})).await;
        assert!(boots >= 2, "hosts are restarted");
        let [_, _, kubelets, _] = comes_back(json!({VERSION_ANNOTATION: null})).await;
        assert!(kubelets >= 2, "hosts are configured again");
        let [deleted, ..] = comes_back(json!({KEY_ANNOTATION: "older"})).await;
        assert!(deleted >= 2, "Machines are deleted");
    });
}
