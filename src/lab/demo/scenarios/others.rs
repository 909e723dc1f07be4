//! Changes by others: one deletes a Machine, another labels a Machine to be left alone.

use super::{DemoScenario, of_kind};
use dormer_fleet::{
    api::{User, kinds},
    world::{Entry, Happened},
};
use dormer_proto::phase::{MachinePhase, RolloutState};
use kube::{
    Client, Config,
    api::{DeleteParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use std::time::Instant;

/// The user of OpenShift's MachineHealthCheck controller.
const HEALTH_CHECK: &str = "system:serviceaccount:openshift-machine-api:machine-api-controllers";
/// Hands off, on a Machine.
const IGNORE: &str = "windowsmachineconfig.openshift.io/ignore";

impl DemoScenario {
    /// Deletes a Machine as the MachineHealthCheck does.
    async fn health_check_deletes(&self, name: &str) {
        let user = User::new(HEALTH_CHECK, ["system:masters"]);
        let kubeconfig: Kubeconfig =
            serde_json::from_value(self.environment.world().kubeconfig_for(user))
                .expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .expect("a config");
        let client = Client::try_from(config).expect("a client");
        let machines = of_kind(client, "Machine", "machines");
        machines
            .delete(name, &DeleteParams::default())
            .await
            .expect("it is deleted");
    }

    /// Machines that are being deleted, and Machines and Nodes that carry an open fence.
    fn touched(&self) -> Vec<String> {
        let world = self.environment.world();
        let all = world
            .all(&kinds::MACHINE)
            .into_iter()
            .chain(world.all(&kinds::NODE));
        let touched = all.filter(|object| {
            let meta = &object.value["metadata"];
            let fence = meta["annotations"]["dormer.io/fence"].as_str();
            meta["deletionTimestamp"].is_string() || fence.is_some_and(|f| f.contains("open"))
        });
        let name = |value: &Value| value["metadata"]["name"].as_str().unwrap_or("?").to_owned();
        touched.map(|object| name(&object.value)).collect()
    }

    /// Labels a Machine, or takes the label away.
    async fn label(&self, name: &str, value: Option<&str>) {
        let machines = of_kind(self.environment.client(), "Machine", "machines");
        let patch = Patch::Merge(json!({"metadata": {"labels": {IGNORE: value}}}));
        machines
            .patch(name, &PatchParams::default(), &patch)
            .await
            .expect("it is labelled");
    }
}

/// Nodes that were made unavailable, and Machines deleted, after A's deletion and before another node served.
fn between(entries: Vec<Entry>) -> Vec<Happened> {
    let mut after = entries
        .into_iter()
        .map(|entry| entry.happened)
        .skip_while(|h| !matches!(h, Happened::MachineDeleted { by, .. } if by == HEALTH_CHECK));
    assert!(after.next().is_some(), "the health check deleted one");
    let before = after.take_while(|h| !matches!(h, Happened::NodeAvailable { .. }));
    let bad = |h: &Happened| {
        matches!(
            h,
            Happened::NodeUnavailable { .. } | Happened::MachineDeleted { .. }
        )
    };
    before.filter(bad).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_foreign_deletion_is_not_made_good_nobody_waiting_is_touched() {
    let mut scenario = DemoScenario::all_joined(3).await;
    scenario.set(json!({"paused": true})).await;
    scenario
        .until_rollout("the pause is known", |view| {
            view.state == RolloutState::Paused
        })
        .await;
    scenario.environment.install(1).await.expect("a payload");
    scenario
        .until("all wait for the lease", |scenario| {
            scenario
                .machine_runs
                .live()
                .all(|machine_run| machine_run.view.phase == MachinePhase::LeaseWait)
        })
        .await;
    let all = scenario.names();
    let a = all.first().expect("three");
    scenario.health_check_deletes(a).await;
    scenario
        .until_rollout("the gap is known", |view| view.away.len() == 1)
        .await;
    scenario.set(json!({"paused": false})).await;
    let begun = Instant::now();
    loop {
        // The world is read first: its state is older than dormer's.
        let touched = scenario.touched();
        scenario
            .machine_runs
            .refresh()
            .await
            .expect("the store is read");
        let replaced = scenario
            .machine_runs
            .live()
            .any(|machine_run| !all.contains(&machine_run.view.name) && machine_run.served);
        if replaced {
            break;
        }
        assert!(touched.iter().all(|name| name == a), "touched: {touched:?}");
        assert!(
            begun.elapsed() < super::SCENARIO_MAX,
            "no replacement\n{}",
            scenario.report().await
        );
        scenario
            .environment
            .pause(super::POLL_EVERY)
            .await
            .expect("dormer's roles go on");
    }
    scenario.until_all_serve(1).await;
    let worst = between(scenario.environment.record().entries());
    assert!(worst.len() <= 1, "A's own node at most: {worst:?}");
    let world = scenario.environment.record();
    assert_eq!(
        world.max_unavailable_observed(),
        1,
        "{:?}",
        world.max_unavailable_nodes()
    );
    scenario.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_is_to_be_ignored_is_not_upgraded_until_it_may_be() {
    let mut scenario = DemoScenario::all_joined(3).await;
    let left_alone = scenario.names().remove(0);
    scenario.label(&left_alone, Some("true")).await;
    scenario
        .until("hands are off", |scenario| {
            scenario.machine_run(&left_alone).view.halt.is_some()
        })
        .await;
    let uid = scenario.machine_run(&left_alone).view.uid.clone();
    scenario.environment.install(1).await.expect("a payload");
    scenario
        .until("the others are upgraded", |scenario| {
            scenario
                .machine_runs
                .serving(scenario.environment.version(1))
                == 2
                && scenario.machine_runs.live().count() == 3
        })
        .await;
    let machine_run = scenario.machine_run(&left_alone);
    assert_eq!(
        (machine_run.view.uid.as_str(), machine_run.view.phase),
        (uid.as_str(), MachinePhase::Serving)
    );
    assert_eq!(
        machine_run.view.version.as_deref(),
        Some(scenario.environment.version(0))
    );
    let deleted = scenario.environment.record().tally().machines_deleted;
    assert_eq!(deleted, 2, "the others' Machines, and only theirs");
    scenario.label(&left_alone, None).await;
    scenario.until_all_serve(1).await;
    assert_eq!(scenario.environment.record().max_unavailable_observed(), 1);
    scenario.end().await;
}
