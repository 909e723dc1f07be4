//! dormer takes over nodes that serve: ones that it configured and forgot, and ones that another operator configured.

use super::{DemoScenario, larger};
use dormer_fleet::world::{Happened, Tally};
use dormer_proto::phase::{MachinePhase, MachineState};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Map, Value, json};

/// What adoption must not do.
fn disturbed(before: Tally, after: Tally) -> [u64; 5] {
    [
        after.pods_evicted - before.pods_evicted,
        after.pods_deleted - before.pods_deleted,
        after.kubelet_restarts - before.kubelet_restarts,
        after.machines_deleted - before.machines_deleted,
        after.converges_with_change - before.converges_with_change,
    ]
}

impl DemoScenario {
    /// Nodes that went away since the record had `since` lines.
    fn went_away(&self, since: usize) -> Vec<Happened> {
        let entries = self.environment.record().entries().into_iter().skip(since);
        let happened = entries.map(|entry| entry.happened);
        happened
            .filter(|h| matches!(h, Happened::NodeUnavailable { .. }))
            .collect()
    }

    /// Replaces dormer's marks on the Nodes by those of the Windows Machine Config Operator.
    async fn marked_by_wmco(&self) {
        let nodes = self.nodes();
        for node in nodes.list(&ListParams::default()).await.expect("Nodes") {
            let name = node.metadata.name.unwrap_or_default();
            let marks = node.metadata.annotations.unwrap_or_default();
            let ours = marks.keys().filter(|key| key.starts_with("dormer.io/"));
            let mut patch: Map<String, Value> =
                ours.map(|key| (key.clone(), Value::Null)).collect();
            if patch.is_empty() {
                continue;
            }
            let version = "windowsmachineconfig.openshift.io/version";
            patch.insert(version.into(), "10.18.1-abcdef".into());
            let patch = Patch::Merge(json!({"metadata": {"annotations": patch}}));
            nodes
                .patch(&name, &PatchParams::default(), &patch)
                .await
                .expect("a Node is patched");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_store_dormer_finds_all_joined_and_disturbs_nobody() {
    let larger = larger();
    let machines = if larger.is_some() { 20 } else { 5 };
    let mut scenario = DemoScenario::all_joined(machines).await;
    let before = scenario.environment.record().tally();
    let lines = scenario.environment.record().entries().len();
    scenario.start_again_without_store().await;
    scenario.until_all_serve(0).await;
    assert_eq!(
        disturbed(before, scenario.environment.record().tally()),
        [0; 5]
    );
    assert_eq!(scenario.went_away(lines), []);
    scenario.end().await;
    if let Some(larger) = larger {
        larger.passed(&[("machines", machines.to_string())]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_another_operator_are_joined_and_what_differs_waits() {
    let larger = larger();
    let machines = if larger.is_some() { 20 } else { 5 };
    let mut scenario = DemoScenario::all_joined(machines).await;
    scenario.set(json!({"approval": "Manual"})).await;
    let before = scenario.environment.record().tally();
    let lines = scenario.environment.record().entries().len();
    scenario
        .environment
        .stop_dormer()
        .await
        .expect("dormer stops");
    scenario.marked_by_wmco().await;
    scenario.environment.install(1).await.expect("a payload");
    scenario.start_again_without_store().await;
    let serving = scenario.environment.machines();
    scenario
        .until(
            "every machine is Joined and waits for approval",
            |scenario| {
                let waits = scenario
                    .machine_runs
                    .live()
                    .filter(|machine_run| machine_run.view.phase.state() == MachineState::Joined);
                let waits = waits
                    .filter(|machine_run| machine_run.view.phase == MachinePhase::ApprovalWait);
                waits.count() == serving
            },
        )
        .await;
    assert_eq!(
        disturbed(before, scenario.environment.record().tally()),
        [0; 5]
    );
    assert_eq!(scenario.went_away(lines), []);
    scenario.set(json!({"approval": "Automatic"})).await;
    scenario.until_all_serve(1).await;
    assert_eq!(scenario.environment.record().max_unavailable_observed(), 1);
    scenario.end().await;
    if let Some(larger) = larger {
        larger.passed(&[("machines", machines.to_string())]);
    }
}
