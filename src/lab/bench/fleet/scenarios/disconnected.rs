//! Hosts that reach the workers and the API server, and neither the internet nor a registry.

use super::stage::{self, Scenario};
use crate::payload::{disconnected_payload, payload};
use dormer_fleet::{WorldConfig, api::kinds, host::Image};
use serde_json::Value;

/// Machines whose firewall is closed from their first boot on.
fn closed(openssh: bool) -> WorldConfig {
    WorldConfig {
        linux: false,
        image: Image {
            openssh,
            egress_closed: true,
            ..Image::default()
        },
        ..WorldConfig::in_memory(2)
    }
}

/// Pods on a node that run.
fn running(scenario: &Scenario) -> usize {
    let pods = scenario.all(&kinds::POD);
    let runs = |pod: &&Value| pod["status"]["phase"] == "Running";
    pods.iter().filter(runs).count()
}

#[test]
fn hosts_without_internet_come_up_serve_pods_and_are_replaced_by_an_upgrade() {
    stage::on_a_virtual_clock(async {
        let mut scenario = Scenario::start_with(closed(true), disconnected_payload).await;
        scenario
            .until("both serve, with a pod each", |scenario, statuses| {
                scenario.all_serve(statuses, 2) && running(scenario) == 2
            })
            .await;
        let hosts = scenario.hosts();
        assert!(hosts.iter().all(|host| host.state().egress_closed));
        scenario.upgrade().await;
        scenario
            .until("both serve the new version", |scenario, statuses| {
                scenario.all_serve(statuses, 2) && running(scenario) == 2
            })
            .await;
        assert_eq!(scenario.max_taken(), 1);
    });
}

/// A payload without the pause image makes nodes on which no pod starts: the machines serve by the checks that are on, and
/// the pods say what they lack.
#[test]
fn without_the_pause_image_a_pod_on_such_a_host_names_it() {
    stage::on_a_virtual_clock(async {
        let mut scenario = Scenario::start_with(closed(true), payload).await;
        scenario
            .until("both pods say what they lack", |scenario, _| {
                let pods = scenario.all(&kinds::POD);
                let waiting = |pod: &&Value| {
                    let status = pod["status"]["containerStatuses"].to_string();
                    status.contains("failed to get sandbox image")
                };
                pods.iter().filter(waiting).count() == 2
            })
            .await;
        assert_eq!(running(&scenario), 0);
    });
}

/// Only Server 2025 has sshd: on an earlier image user data installs it from the internet.
#[test]
fn an_image_without_sshd_on_such_a_host_is_named() {
    stage::on_a_virtual_clock(async {
        let mut scenario = Scenario::start_with(closed(false), disconnected_payload).await;
        scenario
            .until(
                "both failed, and say that nothing listens",
                |_, statuses| {
                    let refused = |words: &str| words.contains("sshd does not run");
                    statuses.len() == 2
                        && statuses
                            .iter()
                            .all(|one| one.state == "Failed" && refused(&one.words))
                },
            )
            .await;
    });
}
