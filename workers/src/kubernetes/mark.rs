//! Write of the installed version on a Node.

use super::{
    KubernetesExecutor,
    api::patch,
    guard::{Refused, is_of},
    keys,
};
use dormer_proto::{
    checks::{NodeCheck, NodeExpectation},
    machine::{MachineRef, Outcome},
    message::Failure,
};
use kube::ResourceExt;
use serde_json::{Value, json};

impl KubernetesExecutor {
    /// Writes our version and the pinned host key on the Node, unless it has them, and takes away what WMCO still had to do
    /// on its host. Before that the Node gets the labels
    /// of its machine's template, and is checked if there is an expectation. `false`: a check failed, and no version
    /// was written.
    pub(super) async fn mark(
        &self,
        machine: &MachineRef,
        node: &str,
        (version, pin): (&str, Option<&str>),
        expect: Option<&NodeExpectation>,
    ) -> Result<(Outcome, bool), Failure> {
        let Some(live) = self.live_node(node).await? else {
            return Err(Failure::transient(
                "NodeGone",
                format!("the Node {node} is not there"),
            ));
        };
        let Some(object) = self.machine(machine).await? else {
            let message = format!("the Machine {} with that UID is gone", machine.name);
            return Err(Failure::lasting("MachineGone", message));
        };
        if let Some(refused) = self.of_another_dormer(machine, &object) {
            return Err(refused.failure());
        }
        is_of(&object, &live.node).map_err(Refused::failure)?;
        let live = self.carry((machine, &object), live).await?;
        let mut outcome = Outcome::NodeMarked;
        if let Some(expect) = expect {
            let checks = self.verify(&live, (machine, &object), expect).await;
            let failed = checks.iter().any(NodeCheck::failed);
            outcome = Outcome::NodeChecked { checks };
            if failed {
                return Ok((outcome, false));
            }
        }
        let found = live.node;
        let annotations = found.annotations();
        let owes = annotations.contains_key(keys::WMCO_REBOOT)
            || found.labels().contains_key(keys::WMCO_UPGRADING);
        let there = !owes
            && annotations
                .get(keys::VERSION)
                .is_some_and(|there| there == version)
            && annotations.get(keys::INSTALLATION) == Some(&self.settings.namespace)
            && pin.is_none_or(|pin| annotations.get(keys::HOST_KEY).is_some_and(|k| k == pin));
        if !there {
            let mut marks =
                json!({ keys::VERSION: version, keys::INSTALLATION: self.settings.namespace });
            if let Some(pin) = pin {
                marks[keys::HOST_KEY] = pin.into();
            }
            let mut change = json!({"metadata": {"annotations": marks}});
            if owes {
                // A WMCO that came back would restart the host, or wait for this node with every other one.
                change["metadata"]["annotations"][keys::WMCO_REBOOT] = Value::Null;
                change["metadata"]["labels"] = json!({keys::WMCO_UPGRADING: null});
            }
            patch(&self.node_api(), &found, &format!("Node {node}"), change).await?;
        }
        Ok((outcome, true))
    }
}
