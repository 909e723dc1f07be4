//! Owner of a Machine where several dormers run for one cluster. Without it each would also drain the other's nodes,
//! and treat the other's fencing tokens as outdated (docs/decisions/0045-installations.md).

use super::{KubernetesExecutor, guard::Refused, keys};
use dormer_proto::machine::{FenceRefusal, MachineRef};
use kube::api::DynamicObject;

impl KubernetesExecutor {
    /// Why this Machine may not be touched: a dormer of another namespace has it. `None`: this one has it, or none yet.
    pub(super) fn of_another_dormer(
        &self,
        machine: &MachineRef,
        object: &DynamicObject,
    ) -> Option<Refused> {
        let other = keys::other_installation(object, &self.settings.namespace)?;
        let said = format!(
            "the dormer in the namespace {other} has the Machine {name} (its annotation {key}), and this one runs in {home}: \
             each would take nodes beside the other",
            name = machine.name,
            home = self.settings.namespace,
            key = keys::INSTALLATION,
        );
        Some(Refused::new(FenceRefusal::OtherDormer, said))
    }
}
