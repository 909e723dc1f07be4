//! The MachineSet is scaled up and down during an upgrade.

use super::{DemoScenario, MachineRun, larger, of_kind};
use dormer_fleet::api::kinds;
use dormer_proto::phase::{MachinePhase, MachineState};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;

impl DemoScenario {
    /// Sets the replicas of the one Windows MachineSet, as `kubectl scale` does.
    pub(super) async fn scale(&self, replicas: u32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let (sets, name) = self.windows_set().await;
        sets.patch_scale(&name, &PatchParams::default(), &patch)
            .await
            .expect("it is scaled");
    }

    /// Writes another image into the template of the one Windows MachineSet, as `kubectl patch` does.
    async fn change_image(&self, image: &str) {
        let value = json!({"ami": {"id": image}});
        let template = json!({"spec": {"providerSpec": {"value": value}}});
        let patch = Patch::Merge(json!({"spec": {"template": template}}));
        let (sets, name) = self.windows_set().await;
        sets.patch(&name, &PatchParams::default(), &patch)
            .await
            .expect("it is changed");
    }

    /// How many machines that exist were made from an earlier template.
    fn outdated(&self) -> usize {
        let outdated = |run: &&MachineRun| !run.view.template.is_empty();
        self.machine_runs.live().filter(outdated).count()
    }

    /// The one Windows MachineSet, by its name.
    async fn windows_set(&self) -> (Api<DynamicObject>, String) {
        let sets = of_kind(self.environment.client(), "MachineSet", "machinesets");
        let all = sets
            .list(&ListParams::default())
            .await
            .expect("MachineSets")
            .items;
        let windows = all.into_iter().find(|set| {
            let labels = &set.data["spec"]["template"]["metadata"]["labels"];
            labels["machine.openshift.io/os-id"] == "Windows"
        });
        let name = windows
            .and_then(|set| set.metadata.name)
            .expect("a Windows MachineSet");
        (sets, name)
    }

    /// UIDs of the Machines that the world has.
    fn uids(&self) -> BTreeSet<String> {
        let machines = self.environment.world().all(&kinds::MACHINE);
        let uid = |value: &serde_json::Value| value["metadata"]["uid"].as_str().map(str::to_owned);
        machines
            .iter()
            .filter_map(|machine| uid(&machine.value))
            .collect()
    }

    /// Whether every run whose Machine is no more has ended.
    fn all_removed_are_gone(&self) -> bool {
        let there = self.uids();
        let mut removed = self
            .machine_runs
            .all()
            .filter(|machine_run| !there.contains(&machine_run.view.uid));
        removed
            .all(|machine_run| machine_run.closed && machine_run.view.phase == MachinePhase::Gone)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_grows_and_shrinks_in_the_middle_of_an_upgrade_ends_upgraded() {
    let larger = larger();
    let (many, few) = if larger.is_some() { (50, 5) } else { (12, 3) };
    let mut scenario = DemoScenario::all_joined(3).await;
    scenario.environment.install(1).await.expect("a payload");
    scenario
        .until("the upgrade is under way", |scenario| {
            scenario
                .machine_runs
                .live()
                .any(|machine_run| machine_run.view.phase.state() == MachineState::Draining)
        })
        .await;
    scenario.scale(many).await;
    let most = usize::try_from(many).expect("small") * 2 / 3;
    scenario
        .until("most of the new ones serve", |scenario| {
            scenario
                .machine_runs
                .serving(scenario.environment.version(1))
                >= most
        })
        .await;
    scenario.scale(few).await;
    let wanted = usize::try_from(few).expect("small");
    scenario
        .until("the set has shrunk", |scenario| {
            scenario.environment.machines() == wanted
        })
        .await;
    scenario.until_all_serve(1).await;
    scenario
        .until(
            "every removed machine's run is over",
            DemoScenario::all_removed_are_gone,
        )
        .await;
    scenario
        .until_rollout("nothing is left of those that are no more", |view| {
            let rest = (
                view.slots.len(),
                view.gaps.len(),
                view.queue.len(),
                view.away.len(),
            );
            rest == (0, 0, 0, 0) && view.members == wanted && view.joined == wanted
        })
        .await;
    scenario.end().await;
    if let Some(larger) = larger {
        larger.passed(&[("machines", many.to_string())]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_of_an_earlier_template_are_found_until_others_are_made_from_the_new_one() {
    let mut scenario = DemoScenario::all_joined(2).await;
    assert_eq!(
        scenario.outdated(),
        0,
        "what the cloud fills in is no difference"
    );
    scenario.change_image("ami-of-the-next-month").await;
    scenario
        .until("both are found", |scenario| scenario.outdated() == 2)
        .await;
    let run = scenario.machine_runs.live().next().expect("a machine");
    let difference = &run.view.template[0];
    assert_eq!(
        (difference.field.as_str(), difference.template.as_deref()),
        (
            "spec.providerSpec.value.ami.id",
            Some("\"ami-of-the-next-month\"")
        )
    );
    // The pool replaces machines in its upgrades: the new ones are made from the new template.
    scenario.environment.install(1).await.expect("a payload");
    scenario
        .until("all carry the next payload", |scenario| {
            scenario
                .machine_runs
                .serving(scenario.environment.version(1))
                == 2
        })
        .await;
    scenario
        .until("none is left of the earlier template", |scenario| {
            scenario.outdated() == 0
        })
        .await;
    scenario.end().await;
}
