//! What other people and the network do to a fleet that is upgraded (scenarios 61 to 68): none of it makes dormer take
//! more than it may.

use super::{both_serve, stage, stage::Scenario, stage::ScenarioStatus};
use dormer_fleet::{api::kinds, world::WorldConfig};
use serde_json::Value;

/// Fleet of `machines` machines. The upgrade starts when all serve; at most one is unavailable at any time.
fn upgraded(
    machines: u32,
    faults: &[&'static str],
    what: &str,
    holds: impl Fn(&Scenario, &[ScenarioStatus]) -> bool,
) {
    let faults = faults.to_vec();
    stage::on_a_virtual_clock(async {
        let mut scenario = Scenario::start(machines, &faults).await;
        let all = machines as usize;
        let serve =
            |scenario: &Scenario, statuses: &[ScenarioStatus]| scenario.all_serve(statuses, all);
        scenario.until("all serve", serve).await;
        scenario.upgrade().await;
        scenario.until(what, &holds).await;
        scenario.all_struck(&faults);
        assert!(
            scenario.max_taken() <= 1,
            "{} at once",
            scenario.max_taken()
        );
    });
}

fn cordoned(scenario: &Scenario) -> Vec<Value> {
    let mut nodes = scenario.all(&kinds::NODE);
    nodes.retain(|node| node["spec"]["unschedulable"] == true);
    nodes
}

#[test]
fn a_node_that_a_person_cordoned_is_left_alone_until_they_uncordon_it() {
    stage::on_a_virtual_clock(async {
        let fault = "cordoned-by-admin/7200@1";
        let mut scenario = Scenario::start(2, &[fault]).await;
        scenario
            .until("one of two that serve is cordoned", |scenario, statuses| {
                let joined = statuses.iter().filter(|one| one.state == "Joined");
                joined.count() == 2 && cordoned(scenario).len() == 1
            })
            .await;
        let kept = cordoned(&scenario).remove(0)["metadata"]["uid"].clone();
        scenario.upgrade().await;
        scenario
            .until("nothing more happens", |scenario, _| {
                scenario.unchanged_for(20)
            })
            .await;
        let still = cordoned(&scenario);
        assert!(
            still.len() == 1 && still[0]["metadata"]["uid"] == kept,
            "its own Node, cordoned: {still:?}"
        );
        scenario
            .until("both serve the new version", both_serve)
            .await;
        assert_eq!(scenario.max_taken(), 1);
    });
}

#[test]
fn a_partition_of_a_minute_makes_nobody_be_taken_beside_the_one_that_is() {
    upgraded(
        4,
        &["partition@*"],
        "all serve the new version",
        |scenario, statuses| scenario.all_serve(statuses, 4),
    );
}

#[test]
fn a_node_that_nobody_may_read_is_not_taken_for_gone() {
    stage::on_a_virtual_clock(async {
        let mut scenario = Scenario::start(2, &["node-unreadable@1"]).await;
        scenario
            .until("both serve", |s, all| s.all_serve(all, 2))
            .await;
        let kubelets = scenario.kubelet_restarts();
        scenario
            .until("nobody may read Nodes", |s, _| s.struck())
            .await;
        scenario
            .until("the right is back, and nothing happened", |s, all| {
                s.unchanged_for(45) && s.all_serve(all, 2)
            })
            .await;
        assert_eq!(scenario.kubelet_restarts(), kubelets, "no host was touched");
        assert_eq!(scenario.max_taken(), 0);
    });
}

#[test]
fn a_pool_that_is_pruned_in_mid_upgrade_grants_nothing_until_it_is_back() {
    upgraded(
        3,
        &["prune-settings@*"],
        "all serve the new version",
        |scenario, statuses| scenario.all_serve(statuses, 3),
    );
}

#[test]
fn what_others_write_on_nodes_and_machines_changes_nothing() {
    upgraded(
        2,
        &["relabelled@*"],
        "both serve the new version",
        both_serve,
    );
}

#[test]
fn a_provider_id_in_another_case_is_the_same_machine() {
    stage::on_a_virtual_clock(async {
        let faults = ["provider-id-case@*"];
        let config = WorldConfig {
            faults: faults.map(str::to_owned).into(),
            two_sets: true,
            ..WorldConfig::in_memory(2)
        };
        let mut scenario = Scenario::start_in(config).await;
        let all =
            |scenario: &Scenario, statuses: &[ScenarioStatus]| scenario.all_serve(statuses, 2);
        scenario.until("both serve", all).await;
        scenario.upgrade().await;
        scenario.until("both serve the new version", all).await;
        scenario.all_struck(&faults);
        assert!(scenario.max_taken() <= 1);
    });
}

#[test]
fn a_host_that_is_dead_for_good_is_replaced_and_keeps_no_other_waiting() {
    let three = |scenario: &Scenario, all: &[ScenarioStatus]| scenario.all_serve(all, 3);
    upgraded(3, &["dead-for-good@1"], "all serve the new version", three);
}

/// Linux nodes of the cluster: their UIDs, provider ids and labels.
fn linux_nodes(scenario: &Scenario) -> Vec<(Value, Value, Value)> {
    let mut nodes = scenario.all(&kinds::NODE);
    nodes.retain(|node| node["metadata"]["labels"]["kubernetes.io/os"] == "linux");
    let identity = |node: &Value| {
        let metadata = &node["metadata"];
        let provider_id = node["spec"]["providerID"].clone();
        (
            metadata["uid"].clone(),
            provider_id,
            metadata["labels"].clone(),
        )
    };
    nodes.iter().map(identity).collect()
}

/// Whether a machine failed, and its failure tells that its host asks in another Node's name: the watcher found the request,
/// or where the host's own name counts, the approver refused it.
fn failed_in_another_name(one: &ScenarioStatus) -> bool {
    let found = [
        "csr-",
        " asks for the certificate of ",
        "it says that it is ",
    ];
    let found = found.iter().all(|part| one.words.contains(part));
    let refused = one.words.contains(" is none of its Machine's names");
    one.state == "Failed" && (found || refused)
}

#[test]
fn a_host_that_claims_the_name_of_a_node_gets_no_certificate_for_it() {
    stage::on_a_virtual_clock(async {
        let config = WorldConfig {
            faults: vec!["host-claims-name@*".into()],
            two_sets: true,
            ..WorldConfig::in_memory(2)
        };
        let mut scenario = Scenario::start_in(config).await;
        scenario
            .until("the Linux nodes are there", |scenario, _| {
                linux_nodes(scenario).len() == 4
            })
            .await;
        let before = linux_nodes(&scenario);
        scenario
            .until(
                "both hosts that lie about their name are named",
                |scenario, all| {
                    let failed = all.iter().filter(|one| failed_in_another_name(one));
                    failed.count() == 2 && scenario.unchanged_for(30)
                },
            )
            .await;
        assert_eq!(
            linux_nodes(&scenario),
            before,
            "their Nodes are as they were"
        );
        assert!(
            scenario.undecided_for("system:node:") > 0,
            "nobody approved it"
        );
    });
}

/// One host that lies about its name takes nothing from the others: they come up, and are upgraded one by one.
#[test]
fn a_host_that_claims_another_nodes_name_stands_beside_healthy_ones() {
    let faults = ["host-claims-name@2"];
    stage::on_a_virtual_clock(async {
        let config = WorldConfig {
            faults: faults.map(str::to_owned).into(),
            ..WorldConfig::in_memory(4)
        };
        let mut scenario = Scenario::start_in(config).await;
        scenario
            .until("the Linux nodes are there", |scenario, _| {
                linux_nodes(scenario).len() == 4
            })
            .await;
        let before = linux_nodes(&scenario);
        let others = |scenario: &Scenario, all: &[ScenarioStatus]| {
            let failed = all.iter().filter(|one| failed_in_another_name(one));
            failed.count() == 1 && all.len() == 4 && scenario.all_but_serve(all, 1)
        };
        scenario
            .until("three serve, and the fourth is named", others)
            .await;
        scenario.upgrade().await;
        scenario.until("the three are upgraded", others).await;
        scenario.all_struck(&faults);
        assert!(
            scenario.max_taken() <= 1,
            "{} at once",
            scenario.max_taken()
        );
        assert_eq!(linux_nodes(&scenario), before, "no Node changed hands");
        assert!(
            scenario.undecided_for("system:node:") > 0,
            "nobody approved it"
        );
    });
}
