//! Scenarios of `tests/SCENARIOS.md` with all of dormer and a faulty fleet, on a virtual clock: each ends as it must.

mod disconnected;
mod inventory;
mod left_behind;
mod mixed;
mod people;
mod platforms;
mod power;
mod stage;
mod update;
mod verdicts;
mod windows;
mod wmco;
mod workloads;

use dormer_fleet::api::{DeleteOptions, Key, kinds};
use stage::{Scenario, ScenarioStatus};

/// Runs two machines, one with the faults, until the condition holds.
fn ends(faults: &[&'static str], what: &str, holds: fn(&Scenario, &[ScenarioStatus]) -> bool) {
    let faults = faults.to_vec();
    let what = what.to_owned();
    stage::on_a_virtual_clock(async move {
        let mut scenario = Scenario::start(2, &faults).await;
        scenario.until(&what, holds).await;
        scenario.all_struck(&faults);
        assert!(
            scenario.max_unavailable() <= 1,
            "{faults:?}: {} at once",
            scenario.max_unavailable()
        );
    });
}

/// Runs the same with an upgrade that begins once all serve.
fn upgraded(faults: &[&'static str], what: &str, holds: fn(&Scenario, &[ScenarioStatus]) -> bool) {
    let faults = faults.to_vec();
    let what = what.to_owned();
    stage::on_a_virtual_clock(async move {
        let mut scenario = Scenario::start(2, &faults).await;
        scenario
            .until("both serve", |scenario, statuses| {
                scenario.all_serve(statuses, 2)
            })
            .await;
        scenario.upgrade().await;
        scenario.until(&what, holds).await;
        scenario.all_struck(&faults);
        assert!(
            scenario.max_unavailable() <= 1,
            "{faults:?}: {} at once",
            scenario.max_unavailable()
        );
    });
}

/// Whether both serve the desired version.
fn both_serve(scenario: &Scenario, statuses: &[ScenarioStatus]) -> bool {
    scenario.struck() && scenario.all_serve(statuses, 2)
}

/// Whether one machine's status contains all of these words, and the other one serves.
fn one_reports(scenario: &Scenario, statuses: &[ScenarioStatus], words: &[&str]) -> bool {
    let reports = |one: &&ScenarioStatus| words.iter().all(|word| one.words.contains(word));
    let other = |one: &ScenarioStatus| one.state == "Joined";
    statuses
        .iter()
        .any(|one| reports(&one) && statuses.iter().any(|it| it.uid != one.uid && other(it)))
        && scenario.struck()
}

#[test]
fn a_host_that_reboots_by_itself_serves_again() {
    ends(
        &["reboots-by-itself@1"],
        "both serve, one after another boot",
        |scenario, statuses| {
            // Nothing is installed again: there is one comparison, and the repair of objects that a boot deletes.
            let boots: Vec<u32> = scenario
                .hosts()
                .iter()
                .map(|host| host.state().boots)
                .collect();
            both_serve(scenario, statuses) && boots.iter().sum::<u32>() == 3
        },
    );
}

#[test]
fn a_request_in_another_nodes_name_is_never_approved() {
    ends(
        &["csr-wrong-user"],
        "both serve, one request is pending",
        |scenario, statuses| both_serve(scenario, statuses) && scenario.pending_requests() == 1,
    );
}

#[test]
fn a_serving_request_with_a_foreign_address_waits_and_a_right_one_passes() {
    ends(&["csr-extra-san"], "both serve", both_serve);
}

#[test]
fn two_requests_of_one_kubelet_are_both_handled() {
    ends(&["csr-twice"], "both serve", both_serve);
}

#[test]
fn another_approver_that_is_faster_does_no_harm() {
    // This fault selects Nodes, not Machines, so no seed can target it.
    ends(&["csr-approved-before@*"], "both serve", both_serve);
}

#[test]
fn a_node_that_flaps_serves_once_it_is_steady() {
    ends(&["flapping"], "both serve", both_serve);
}

/// A check that fails for half an hour fails the join, by its own code.
#[test]
fn a_node_that_does_not_serve_has_not_joined() {
    for (fault, code, check) in [
        (
            "serving-neverx9999@1",
            "NoServingCertificate",
            "certificate: ",
        ),
        ("wrong-buildx9999@1", "WrongBuild", "windows-build: "),
    ] {
        stage::on_a_virtual_clock(async move {
            let mut scenario = Scenario::start(2, &[fault]).await;
            scenario
                .until("it waits for the check", |scenario, statuses| {
                    one_reports(scenario, statuses, &["its Node to serve", check])
                })
                .await;
            scenario
                .until("it has failed", |scenario, statuses| {
                    let failed = statuses.iter().any(|one| one.state == "Failed");
                    failed && one_reports(scenario, statuses, &[code, check])
                })
                .await;
        });
    }
}

#[test]
fn a_machine_that_is_deleted_while_it_is_configured_is_replaced() {
    ends(&["deleted-while-configuring"], "both serve", both_serve);
}

#[test]
fn a_machine_that_is_made_again_under_its_name_is_another_one() {
    ends(&["same-name-new-uid"], "both serve", both_serve);
}

#[test]
fn an_address_that_comes_late_and_changes_is_followed() {
    ends(&["address-late"], "both serve", both_serve);
}

#[test]
fn machine_events_that_repeat_and_run_backwards_change_nothing() {
    ends(&["machine-events-repeat"], "both serve", both_serve);
}

#[test]
fn a_watch_that_is_gone_misses_no_deletion() {
    ends(&["watch-gone"], "both serve", both_serve);
}

/// A kubelet makes its Node only when it starts, so nothing heals by waiting.
#[test]
fn a_node_that_a_person_deletes_registers_again() {
    stage::on_a_virtual_clock(async {
        let mut scenario = Scenario::start(2, &[]).await;
        scenario
            .until("both serve", |scenario, statuses| {
                scenario.all_serve(statuses, 2)
            })
            .await;
        let windows =
            |node: &serde_json::Value| node["metadata"]["labels"]["kubernetes.io/os"] == "windows";
        let nodes = scenario.all(&kinds::NODE);
        let node = nodes.iter().find(|node| windows(node)).expect("a node");
        let uid = node["metadata"]["uid"].clone();
        scenario
            .admin()
            .delete(&kinds::NODE, &Key::of(node), &DeleteOptions::now())
            .await
            .expect("it is deleted");
        scenario
            .until("both serve, one by a new Node", |scenario, statuses| {
                let nodes = scenario.all(&kinds::NODE);
                let old = nodes.iter().any(|node| node["metadata"]["uid"] == uid);
                !old && nodes.iter().filter(|node| windows(node)).count() == 2
                    && scenario.all_serve(statuses, 2)
            })
            .await;
        assert!(scenario.max_unavailable() <= 1);
    });
}

#[test]
fn a_vanished_instance_is_reported_and_disturbs_no_other() {
    ends(
        &["instance-vanishes"],
        "its machine has failed",
        |scenario, statuses| one_reports(scenario, statuses, &["failed", "no answer from"]),
    );
}

#[test]
fn a_node_by_another_name_than_the_expected_one_gets_no_certificate() {
    ends(
        &["name-mismatch"],
        "its machine has failed",
        |scenario, statuses| {
            let names = scenario
                .all(&kinds::NODE)
                .iter()
                .map(|node| node["metadata"]["name"].to_string())
                .collect::<Vec<_>>();
            assert!(
                !names.iter().any(|name| name.contains("-other")),
                "it joined: {names:?}"
            );
            // The reason contains the expected name. The other name is the expected one with a suffix.
            let expected = statuses.iter().find_map(|one| {
                Some(
                    one.words
                        .split_once("no Node ")?
                        .1
                        .split_once(" appeared")?
                        .0
                        .to_owned(),
                )
            });
            let asks = |expected: String| {
                let whose = format!("system:node:{expected}-other");
                scenario.undecided_for(&whose) > 0
            };
            one_reports(scenario, statuses, &["failed", "no Node", "appeared"])
                && expected.is_some_and(asks)
        },
    );
}

#[test]
fn a_budget_that_never_allows_is_named_and_the_other_machine_is_not_begun() {
    upgraded(
        &["budget-never"],
        "the blocker is named",
        |scenario, statuses| {
            one_reports(scenario, statuses, &["budget-never"])
                && statuses.iter().filter(|t| t.holds).count() == 1
        },
    );
}

#[test]
fn two_budgets_on_one_pod_are_named() {
    upgraded(
        &["two-budgets"],
        "the blocker is named",
        |scenario, statuses| one_reports(scenario, statuses, &["two-budgets"]),
    );
}

#[test]
fn a_pod_with_a_finalizer_is_named() {
    upgraded(
        &["finalizer-holds"],
        "the blocker is named",
        |scenario, statuses| one_reports(scenario, statuses, &["finalizer-holds"]),
    );
}

#[test]
fn a_node_that_goes_silent_in_its_drain_is_replaced_all_the_same() {
    upgraded(
        &["not-ready-in-drain/300@1"],
        "both serve the new version",
        both_serve,
    );
}

#[test]
fn a_node_that_stays_silent_in_its_drain_is_replaced_all_the_same() {
    upgraded(
        &["not-ready-in-drain@1"],
        "both serve the new version",
        both_serve,
    );
}

#[test]
fn a_pod_that_comes_back_to_a_cordoned_node_holds_no_drain() {
    upgraded(&["stubborn-pod"], "both serve the new version", both_serve);
}

#[test]
fn a_drain_that_a_person_uncordons_goes_on() {
    upgraded(&["uncordoned"], "both serve the new version", both_serve);
}

#[test]
fn a_volume_that_stays_attached_holds_nobody_for_ever() {
    upgraded(
        &["volume-attached"],
        "both serve the new version",
        both_serve,
    );
}

#[test]
fn a_replacement_that_never_comes_holds_the_rollout() {
    upgraded(
        &["replacement-never"],
        "one is replaced by nobody",
        |scenario, statuses| {
            let waits = statuses
                .iter()
                .any(|one| one.words.contains("a replacement to serve"));
            waits && scenario.unchanged_for(6) && statuses.iter().any(|one| one.state == "Joined")
        },
    );
}
