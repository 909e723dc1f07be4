//! Losses in Windows' network while a node serves or is configured, and their repair.

use super::{Scenario, both_serve, ends, one_reports, stage, stage::ScenarioStatus};
use dormer_fleet::{api::kinds, host::Host};

/// Route that cloud platforms' nodes need.
const ROUTE: &str = "169.254.169.254/32";

/// Number of times that this effect happened on a host.
fn times(host: &Host, effect: &str) -> usize {
    host.counts()
        .effects
        .iter()
        .filter(|one| one.contains(effect))
        .count()
}

#[test]
fn endpoints_that_the_hns_service_lost_are_made_again_and_kube_proxy_is_restarted() {
    // Hours pass until the periodic comparison.
    dormer_testkit::full!();
    stage::on_a_virtual_clock(async {
        let mut scenario = Scenario::start(2, &["hns-restarts@1"]).await;
        scenario.until("both serve", both_serve).await;
        let lost = scenario
            .hosts()
            .into_iter()
            .find(|host| host.state().hns.endpoints.is_empty());
        let lost = lost.expect("a host that has lost them");
        let starts = |host: &Host| host.state().scm.get("kube-proxy").map_or(0, |it| it.starts);
        let started = starts(&lost);
        // The periodic comparison finds it, and the rollout has it repaired without a drain.
        scenario
            .until(
                "the endpoint is there again, and both serve",
                |scenario, statuses| {
                    let there = |host: &std::sync::Arc<Host>| {
                        host.state().hns.endpoints.contains_key("VIPEndpoint")
                    };
                    scenario.hosts().iter().all(there) && scenario.all_serve(statuses, 2)
                },
            )
            .await;
        assert_eq!(
            times(&lost, "endpoint:VIPEndpoint"),
            2,
            "{:?}",
            lost.counts().effects
        );
        assert_eq!(starts(&lost), started + 1, "kube-proxy was restarted");
        assert_eq!(lost.state().boots, 1, "no reboot");
        assert!(scenario.max_unavailable() <= 1);
    });
}

#[test]
fn a_route_that_a_new_network_makes_windows_forget_is_there_again() {
    ends(
        &["route-lost"],
        "both serve, with their routes",
        |scenario, statuses| {
            let hosts = scenario.hosts();
            let have = hosts.iter().all(|host| host.state().routes.contains(ROUTE));
            let mended: usize = hosts
                .iter()
                .map(|host| times(host, &format!("route:{ROUTE}")))
                .sum();
            both_serve(scenario, statuses) && have && mended == 1
        },
    );
}

#[test]
fn what_dies_with_its_command_is_nothing_that_a_node_needs() {
    ends(&["children-die@*"], "both serve", both_serve);
}

/// A machine reports its clock, and the other one's Node is the only one that Windows has.
fn joins_nothing(scenario: &Scenario, statuses: &[ScenarioStatus], off: &str) -> bool {
    let nodes = scenario.all(&kinds::NODE).len();
    one_reports(scenario, statuses, &["ClockSkew", off, "5m is the limit"]) && nodes == 1
}

#[test]
fn a_host_whose_clock_is_off_is_named_with_the_cure_and_joins_nothing() {
    ends(&["clock-skew"], "it is behind", |scenario, statuses| {
        joins_nothing(scenario, statuses, "its clock is 10m behind")
    });
    ends(&["clock-forward"], "it is ahead", |scenario, statuses| {
        joins_nothing(scenario, statuses, "its clock is 10m ahead")
    });
}
