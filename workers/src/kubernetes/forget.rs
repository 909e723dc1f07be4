//! Last step of removing a WindowsHost: its Node is deleted, and its finalizer removed.

use super::{
    KubernetesExecutor,
    api::{call_if_there, patch, what},
    guard::is_of,
    keys,
};
use dormer_proto::{
    machine::{MachineApi, MachineRef, Outcome},
    message::Failure,
};
use kube::{
    Resource, ResourceExt,
    api::{ApiResource, DeleteParams, Preconditions},
};
use serde_json::json;

impl KubernetesExecutor {
    /// Deletes the Node, if it is this host's, and takes dormer's finalizer off the object that is being deleted.
    pub(super) async fn forget_host(
        &self,
        machine: &MachineRef,
        node: Option<&str>,
        debt: Option<&str>,
    ) -> Result<Outcome, Failure> {
        let Some(object) = self.machine(machine).await? else {
            return Ok(Outcome::HostForgotten);
        };
        if machine.api != MachineApi::Host || object.metadata.deletion_timestamp.is_none() {
            let message = format!("{} is not being deleted: nothing was done", what(machine));
            return Err(Failure::lasting("HostStays", message));
        }
        let found = match node {
            Some(name) => self.node(name).await?,
            None => None,
        };
        if let Some(found) = found.filter(|found| is_of(&object, found).is_ok()) {
            let params = DeleteParams::default().preconditions(Preconditions {
                uid: found.uid(),
                resource_version: None,
            });
            let name = found.name_any();
            let nodes = self.node_api();
            let deleted = nodes.delete(&name, &params);
            call_if_there("delete", &format!("Node {name}"), deleted).await?;
        }
        if let Some(debt) = debt {
            let types = ApiResource::erase::<crate::pool::host::WindowsHost>(&());
            let about = object.object_ref(&types);
            let note = format!("It was removed by force: {debt}");
            self.events
                .warn(about, "HostLeftBehind", "Remove", note)
                .await;
        }
        let left: Vec<_> = object
            .finalizers()
            .iter()
            .filter(|one| *one != keys::HOST_FINALIZER)
            .collect();
        if left.len() < object.finalizers().len() {
            let change = json!({"metadata": {"finalizers": left}});
            let api = self.machine_api(machine);
            patch(&api, &object, &what(machine), change).await?;
        }
        Ok(Outcome::HostForgotten)
    }
}
