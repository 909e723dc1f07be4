//! Removal of dormer from a cluster: nothing that it leaves behind blocks anything.

use super::{Scenario, stage};
use dormer_fleet::{
    WorldConfig,
    api::{DeleteOptions, Key, kinds},
};
use serde_json::Value;

/// Hooks and finalizers of an object that only their owner can remove.
fn holds(object: &Value) -> Vec<String> {
    let hooks = ["preDrain", "preTerminate"].into_iter().flat_map(|stage| {
        object["spec"]["lifecycleHooks"][stage]
            .as_array()
            .cloned()
            .unwrap_or_default()
    });
    let finalizers = object["metadata"]["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let all = hooks.chain(finalizers).map(|it| it.to_string());
    all.filter(|it| it.contains("dormer")).collect()
}

#[test]
fn machines_go_after_dormer_is_gone_in_the_middle_of_an_upgrade() {
    stage::on_a_virtual_clock(async {
        // Without pods: a budget would block the Machines, because no other node can join without dormer.
        let config = WorldConfig {
            linux: false,
            workload: false,
            ..WorldConfig::in_memory(2)
        };
        let mut scenario = Scenario::start_in(config).await;
        scenario
            .until("both serve", |scenario, statuses| {
                scenario.all_serve(statuses, 2)
            })
            .await;
        scenario.upgrade().await;
        // Without pods, the holder's Machine may disappear between two polls. Its replacement takes minutes.
        scenario
            .until("one is being replaced under the lease", |_, statuses| {
                statuses
                    .iter()
                    .any(|one| one.holds || one.state == "Recreated")
            })
            .await;
        for kind in kinds::ALL {
            for object in scenario.all(kind) {
                assert_eq!(holds(&object), Vec::<String>::new(), "{object:#}");
            }
        }
        scenario.uninstall();
        let machines = scenario.all(&kinds::MACHINE);
        let uids: Vec<Value> = machines
            .iter()
            .map(|it| it["metadata"]["uid"].clone())
            .collect();
        for machine in &machines {
            // One may already be terminating.
            let _ = scenario
                .admin()
                .delete(
                    &kinds::MACHINE,
                    &Key::of(machine),
                    &DeleteOptions::default(),
                )
                .await;
        }
        scenario
            .until("the machines are gone", |scenario, _| {
                let there = scenario.all(&kinds::MACHINE);
                !there
                    .iter()
                    .any(|machine| uids.contains(&machine["metadata"]["uid"]))
            })
            .await;
    });
}
