//! A later build of dormer with another program for hosts: nodes stay as they are.

use super::stage::{self, Scenario};
use std::time::Duration;

/// Nodes taken at once at most, pods evicted, and starts of a kubelet that had run before.
fn taken(scenario: &Scenario) -> (usize, u64, u64) {
    let tally = scenario.world().record.tally();
    (
        scenario.max_taken(),
        tally.pods_evicted,
        tally.kubelet_restarts,
    )
}

#[test]
fn no_node_is_drained_for_the_host_program_of_a_later_dormer() {
    // Hours pass until the periodic comparison, which is the first use of the new program.
    dormer_testkit::full!();
    stage::on_a_virtual_clock(async {
        let mut scenario = Scenario::start(2, &[]).await;
        scenario.until_all_serve("both serve", 2).await;
        let before = taken(&scenario);
        let file = scenario.update();
        scenario
            .until(
                "both were compared by the new program, and serve",
                |scenario, statuses| {
                    let hosts = scenario.hosts();
                    let compared = hosts.iter().all(|host| {
                        let state = host.state();
                        state.disk.files().any(|path| path.ends_with(&file))
                    });
                    compared && scenario.all_serve(statuses, 2)
                },
            )
            .await;
        // What a difference would lead to begins after the comparison.
        let end = scenario.elapsed() + Duration::from_secs(30 * 60);
        scenario
            .until("half an hour has passed", |scenario, _| {
                scenario.elapsed() > end
            })
            .await;
        scenario.until_all_serve("both serve still", 2).await;
        assert_eq!(taken(&scenario), before);
        assert_eq!(before.0, 0, "a bring-up takes no node that serves");
    });
}
