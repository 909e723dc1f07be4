//! Pauses of the machine's own controllers: Cluster API's, of a Cluster, a MachineSet or a Machine, and the condition
//! that both APIs show. While one holds, no controller would replace a deleted Machine.

use super::{
    KubernetesExecutor,
    guard::{Refused, ignored, leaves_for_good},
};
use dormer_proto::{
    machine::{FenceRefusal, Guard, MachineRef},
    message::Failure,
};
use kube::{ResourceExt, api::DynamicObject};

/// The annotation by which a person pauses an object; its value does not count (cluster-api ae7ff047d,
/// `util/annotations/helpers.go`, `HasPaused`).
const PAUSED: &str = "cluster.x-k8s.io/paused";

/// Pause that the Machine itself shows: the annotation, or the condition of its controller. The Machine API sets the
/// condition when Cluster API is authoritative (machine-api-operator 951196122, `pkg/controller/machine/controller.go`,
/// `PausedCondition`).
fn pause_on_machine(machine: &DynamicObject) -> Option<String> {
    let name = machine.name_any();
    if machine.annotations().contains_key(PAUSED) {
        return Some(format!("the Machine {name} has the annotation {PAUSED}"));
    }
    let status = &machine.data["status"];
    let all = [&status["conditions"], &status["v1beta2"]["conditions"]];
    let mut all = all.into_iter().filter_map(|it| it.as_array()).flatten();
    let paused = all.any(|one| one["type"] == "Paused" && one["status"] == "True");
    paused.then(|| format!("the Machine {name} has the condition Paused"))
}

impl KubernetesExecutor {
    /// Why the pool, a label on the Machine, or a pause of its controllers forbids disruption now. What cannot be read
    /// counts as paused: the task fails, and the engine retries it.
    pub(super) async fn disruption_refused(
        &self,
        machine: &MachineRef,
        object: &DynamicObject,
        guard: &Guard,
    ) -> Result<Option<Refused>, Failure> {
        let not_ours = self.of_another_dormer(machine, object);
        if let Some(refused) = not_ours.or_else(|| ignored(machine, object)) {
            return Ok(Some(refused));
        }
        self.pool_or_controllers_paused(machine, object, guard)
            .await
    }

    /// Why the pool, or a pause of the Machine's controllers, forbids disruption now, whatever the Machine's labels say.
    pub(super) async fn pool_or_controllers_paused(
        &self,
        machine: &MachineRef,
        object: &DynamicObject,
        guard: &Guard,
    ) -> Result<Option<Refused>, Failure> {
        if let Some(refused) = self.stopped(guard).await? {
            return Ok(Some(refused));
        }
        // A BYOH host that leaves has no such controller.
        if leaves_for_good(machine, object) {
            return Ok(None);
        }
        let why = match pause_on_machine(object) {
            None if machine.api.is_cluster() => self.paused_above(machine, object).await?,
            why => why,
        };
        Ok(why.map(|why| {
            let said = format!(
                "{why}: its controllers leave it alone, and none would make it again. dormer reads that again every ten \
                 minutes"
            );
            Refused::new(FenceRefusal::Paused, said)
        }))
    }

    /// The pause of a Machine's MachineSet or Cluster.
    async fn paused_above(
        &self,
        machine: &MachineRef,
        object: &DynamicObject,
    ) -> Result<Option<String>, Failure> {
        let owners = object.owner_references().iter();
        let mut set = owners.filter(|it| it.kind == "MachineSet" && it.controller == Some(true));
        let cluster = object.data["spec"]["clusterName"].as_str();
        let above = [
            ("MachineSet", set.next().map(|it| it.name.as_str())),
            ("Cluster", cluster.filter(|name| !name.is_empty())),
        ];
        for (kind, name) in above {
            let Some(name) = name else { continue };
            let Some(found) = self.above(machine, kind, name).await? else {
                continue;
            };
            if found.annotations().contains_key(PAUSED) {
                return Ok(Some(format!(
                    "its {kind} {name} has the annotation {PAUSED}"
                )));
            }
            if found.data["spec"]["paused"] == true {
                return Ok(Some(format!("its {kind} {name} has spec.paused")));
            }
        }
        Ok(None)
    }
}
