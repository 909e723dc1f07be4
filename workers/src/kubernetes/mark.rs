//! Write of the installed version on a Node.

use super::{
    KubernetesExecutor,
    api::{mark_of, patch},
    fence::{free_for_scale_down, hold_from_scale_down},
    guard::{LiveNode, Refused, is_of},
    keys,
};
use dormer_proto::{
    checks::{NODE_CHECKS_MAX_MS, NodeCheck, NodeExpectation},
    machine::{MachineRef, Outcome},
    message::Failure,
};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;

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
        let mut live = self.carry((machine, &object), live).await?;
        let mut outcome = Outcome::NodeMarked;
        if let Some(expect) = expect {
            if !is_checked_for_long(&live, expect) {
                // Nothing runs there yet, and the cluster autoscaler takes empty nodes.
                live = self.keep_until_marked(live).await?;
            }
            let checks = self.verify(&live, (machine, &object), expect).await;
            let failed = checks.iter().any(NodeCheck::failed);
            outcome = Outcome::NodeChecked { checks };
            if failed {
                self.free_unmarked(node, expect).await?;
                return Ok((outcome, false));
            }
        }
        let found = live.node;
        let annotations = found.annotations();
        let owes = annotations.contains_key(keys::WMCO_REBOOT)
            || found.labels().contains_key(keys::WMCO_UPGRADING);
        let stale = pin.is_some_and(|pin| wmco_pins_another(annotations, pin));
        let there = !owes
            && !stale
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
            // Under a lease the close of the fence does that.
            if mark_of(&found).is_none_or(|mark| !mark.open) {
                free_for_scale_down(&found, &mut change);
            }
            if owes {
                // A WMCO that came back would restart the host, or wait for this node with every other one.
                change["metadata"]["annotations"][keys::WMCO_REBOOT] = Value::Null;
                change["metadata"]["labels"] = json!({keys::WMCO_UPGRADING: null});
            }
            if stale {
                // Without a pin WMCO takes the key that it meets.
                change["metadata"]["annotations"][keys::WMCO_HOST_KEY] = Value::Null;
                change["metadata"]["annotations"][keys::WMCO_HOST_KEY_TYPE] = Value::Null;
            }
            patch(&self.node_api(), &found, &format!("Node {node}"), change).await?;
        }
        Ok((outcome, true))
    }

    /// Keeps the cluster autoscaler from removing a Node that was never marked.
    async fn keep_until_marked(&self, live: LiveNode) -> Result<LiveNode, Failure> {
        let there = live.node.annotations();
        if there.contains_key(keys::VERSION) || there.contains_key(keys::NO_SCALE_DOWN) {
            return Ok(live);
        }
        let mut change = json!({"metadata": {"annotations": {}}});
        hold_from_scale_down(&live.node, &mut change);
        let what = format!("Node {}", live.node.name_any());
        let node = patch(&self.node_api(), &live.node, &what, change).await?;
        // One that is gone by now fails its checks.
        Ok(match node {
            Some(node) => LiveNode { node, ..live },
            None => live,
        })
    }

    /// Leaves a Node to the cluster autoscaler again that was never marked, and has failed its checks for good.
    async fn free_unmarked(&self, node: &str, expect: &NodeExpectation) -> Result<(), Failure> {
        // The checks may have taken minutes, and the limit may have passed meanwhile.
        let Some(live) = self.live_node(node).await? else {
            return Ok(());
        };
        let there = live.node.annotations();
        let kept = there.contains_key(keys::HELD_FROM_SCALE_DOWN);
        let marked = there.contains_key(keys::VERSION);
        // Under a lease the close of the fence does that.
        let leased = mark_of(&live.node).is_some_and(|mark| mark.open);
        if !kept || marked || leased || !is_checked_for_long(&live, expect) {
            return Ok(());
        }
        let mut change = json!({"metadata": {"annotations": {}}});
        free_for_scale_down(&live.node, &mut change);
        patch(
            &self.node_api(),
            &live.node,
            &format!("Node {node}"),
            change,
        )
        .await?;
        Ok(())
    }
}

/// Whether the checks of a Node may have ended for good by now, by two times of the API server: a machine fails with its
/// next failed check once its Node has been Ready past that limit.
fn is_checked_for_long(live: &LiveNode, expect: &NodeExpectation) -> bool {
    let lasted = live.unchanged_ms().filter(|_| live.ready());
    lasted.is_some_and(|ms| ms >= expect.soak_ms.saturating_add(NODE_CHECKS_MAX_MS))
}

/// Whether WMCO has pinned another key of the host than dormer. Of another type it may be as right as dormer's: a host has
/// several keys.
fn wmco_pins_another(annotations: &BTreeMap<String, String>, pin: &str) -> bool {
    let mut words = pin.split_whitespace();
    let kind = words.next();
    let key = words.next();
    let theirs = |name: &str| annotations.get(name).map(String::as_str);
    let (their_kind, their_key) = (
        theirs(keys::WMCO_HOST_KEY_TYPE),
        theirs(keys::WMCO_HOST_KEY),
    );
    key.is_some() && their_kind == kind && their_key.is_some() && their_key != key
}
