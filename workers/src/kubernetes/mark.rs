//! Write of the installed version on a Node.

use super::{
    KubernetesExecutor,
    api::patch,
    guard::{Refused, is_of},
    keys,
};
use dormer_proto::{
    machine::{MachineRef, Outcome},
    message::Failure,
};
use kube::ResourceExt;
use serde_json::json;

impl KubernetesExecutor {
    /// Writes our version, and the pinned host key, on the Node; nothing if they stand there.
    pub(super) async fn mark(
        &self,
        machine: &MachineRef,
        node: &str,
        version: &str,
        pin: Option<&str>,
    ) -> Result<Outcome, Failure> {
        let Some(found) = self.node(node).await? else {
            return Err(Failure::transient(
                "NodeGone",
                format!("the Node {node} is not there"),
            ));
        };
        let Some(object) = self.machine(machine).await? else {
            let message = format!("the Machine {} with that UID is gone", machine.name);
            return Err(Failure::lasting("MachineGone", message));
        };
        is_of(&object, &found).map_err(Refused::failure)?;
        let annotations = found.annotations();
        let there = annotations
            .get(keys::VERSION)
            .is_some_and(|there| there == version)
            && pin.is_none_or(|pin| annotations.get(keys::HOST_KEY).is_some_and(|k| k == pin));
        if !there {
            let mut marks = json!({ keys::VERSION: version });
            if let Some(pin) = pin {
                marks[keys::HOST_KEY] = pin.into();
            }
            let change = json!({"metadata": {"annotations": marks}});
            patch(&self.node_api(), &found, &format!("Node {node}"), change).await?;
        }
        Ok(Outcome::NodeMarked)
    }
}
