//! Fence at the API server: a token, open or closed, on the Machine and on its Node
//! (docs/decisions/0004-fences.md).

use super::{
    KubernetesExecutor,
    api::{mark_of, patch, what},
    cordon::cordoned,
    guard::{is_of, kept_by_a_person},
    keys,
};
use dormer_proto::{
    id::LeaseToken,
    machine::{FenceRefusal, Guard, MachineRef, Outcome, TokenMark},
    message::Failure,
};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};

impl KubernetesExecutor {
    /// Writes "token N, open", first on the Machine, then on the Node.
    pub(super) async fn open(
        &self,
        machine: &MachineRef,
        node: Option<&str>,
        token: LeaseToken,
        (over_limit, guard): (bool, &Guard),
        cordon: bool,
    ) -> Result<Outcome, Failure> {
        let refused = |why| {
            let said = String::new();
            Ok(Outcome::FenceRefused { why, said })
        };
        let Some(object) = self.machine(machine).await? else {
            return refused(FenceRefusal::Gone);
        };
        let live = match node {
            Some(name) => self.live_node(name).await?,
            None => None,
        };
        let found = live.as_ref().map(|live| &live.node);
        if !may_write(mark_of(&object), token) || !may_write(found.and_then(mark_of), token) {
            return refused(FenceRefusal::Superseded);
        }
        if let Some(live) = &live {
            if let Err(refused) = is_of(&object, &live.node) {
                return Ok(refused.outcome());
            }
            // A lease over the limit is for a node that does not serve. One that is Ready again waits in the queue,
            // cordoned or not.
            if over_limit {
                let begun = noted(&live.node, token).is_some();
                if let Some(refused) = self.not_down(live, guard, begun)? {
                    return Ok(refused.outcome());
                }
            }
            let kept = kept_by_a_person(&live.node, token).filter(|_| !guard.asked);
            if let Some(refused) = kept {
                return Ok(refused.outcome());
            }
        }
        if let Some(refused) = self.stopped_or_paused(machine, &object, guard).await? {
            return Ok(refused.outcome());
        }
        let open = keys::fence_text(TokenMark { token, open: true });
        let home = &self.settings.namespace;
        let marks = json!({keys::FENCE: open, keys::INSTALLATION: home});
        let change = json!({"metadata": {"annotations": marks}});
        let what = what(machine);
        if patch(&self.machine_api(machine), &object, &what, change)
            .await?
            .is_none()
        {
            return refused(FenceRefusal::Gone);
        }
        let Some(found) = found else {
            return Ok(Outcome::FenceOpened {
                was_cordoned: false,
            });
        };
        let noted = noted(found, token);
        // If a person uncordons the node meanwhile, the note is removed.
        let was_cordoned = cordoned(found) && noted.unwrap_or(true);
        // Without a cordon of dormer's there is no note, so that a later cordon by a person outlives the close.
        let note = (cordon || noted.is_some()).then_some(was_cordoned);
        let mut change = opening(&open, note, cordon);
        change["metadata"]["annotations"][keys::INSTALLATION] = home.as_str().into();
        // A drain under this token has begun, and continues.
        let same = mark_of(found).is_some_and(|mark| mark.open && mark.token == token);
        if guard.anew || !(same && cordoned(found)) {
            change["metadata"]["annotations"][keys::NEWEST_POD] = Value::Null;
        }
        hold_from_scale_down(found, &mut change);
        patch(
            &self.node_api(),
            found,
            &format!("Node {}", found.name_any()),
            change,
        )
        .await?;
        Ok(Outcome::FenceOpened { was_cordoned })
    }

    /// Writes "token N, closed" on each of the same objects, whether or not it was opened there; the Node's patch
    /// restores the cordon as it was. A Node that is not the Machine's is left alone, unless our own token is open
    /// there.
    pub(super) async fn close(
        &self,
        machine: &MachineRef,
        node: Option<&str>,
        token: LeaseToken,
    ) -> Result<Outcome, Failure> {
        let closed = keys::fence_text(TokenMark { token, open: false });
        let mut leaves = true;
        let owner = self.machine(machine).await?;
        if let Some(object) = owner.clone() {
            let mut current = Some(object);
            if current
                .as_ref()
                .is_some_and(|object| may_write(mark_of(object), token))
            {
                let change = json!({"metadata": {"annotations": {keys::FENCE: closed}}});
                let what = what(machine);
                let api = self.machine_api(machine);
                let read = current.take();
                if let Some(read) = &read {
                    current = patch(&api, read, &what, change).await?;
                }
            }
            leaves = current.is_none_or(|object| object.metadata.deletion_timestamp.is_some());
        }
        let found = match node {
            Some(name) => self.node(name).await?,
            None => None,
        };
        let ours = |found: &Node| {
            // An older one that is open on another Machine's Node is another holder's.
            let open = mark_of(found)
                .is_some_and(|mark| mark.open && (mark.token == token || owner.is_none()));
            open || owner.as_ref().is_some_and(|it| is_of(it, found).is_ok())
        };
        if let Some(found) = found
            && may_write(mark_of(&found), token)
            && ours(&found)
        {
            let change = closing(&found, &closed);
            patch(
                &self.node_api(),
                &found,
                &format!("Node {}", found.name_any()),
                change,
            )
            .await?;
        }
        // A delayed deletion of dormer's has happened: the slot waits for the replacement.
        Ok(if leaves {
            Outcome::MachineDeleted
        } else {
            Outcome::FenceClosed
        })
    }
}

/// Whether N may be written, open or closed: over a smaller token, or over N itself while it is open (a repeat). A
/// greater token belongs to another holder, and N closed is never opened again.
fn may_write(there: Option<TokenMark>, token: LeaseToken) -> bool {
    there.is_none_or(|there| there.token < token || (there.token == token && there.open))
}

/// Keeps the cluster autoscaler from removing the node: it considers a cordoned and empty node unneeded. An annotation
/// by a person stays.
fn hold_from_scale_down(node: &Node, change: &mut Value) {
    let annotations = node.annotations();
    let ours = annotations.contains_key(keys::HELD_FROM_SCALE_DOWN);
    if ours || !annotations.contains_key(keys::NO_SCALE_DOWN) {
        change["metadata"]["annotations"][keys::NO_SCALE_DOWN] = "true".into();
        change["metadata"]["annotations"][keys::HELD_FROM_SCALE_DOWN] = "true".into();
    }
}

/// Whether a Node is Ready.
pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

/// Note of an earlier open: whether the node was cordoned by another client before.
fn noted(node: &Node, token: LeaseToken) -> Option<bool> {
    let ours = mark_of(node).is_some_and(|mark| mark.open && mark.token <= token);
    let noted = node
        .annotations()
        .get(keys::WAS_CORDONED)
        .filter(|_| ours)?;
    Some(noted == "true")
}

fn opening(open: &str, note: Option<bool>, cordon: bool) -> Value {
    // Null removes another client's value.
    let note = note.map(|was| was.to_string());
    let annotations = json!({keys::FENCE: open, keys::WAS_CORDONED: note});
    let mut change = json!({"metadata": {"annotations": annotations}});
    if cordon {
        change["spec"]["unschedulable"] = true.into();
    }
    change
}

fn closing(node: &Node, closed: &str) -> Value {
    let noted = node.annotations().get(keys::WAS_CORDONED);
    let annotations = json!({keys::FENCE: closed, keys::WAS_CORDONED: Value::Null,
        keys::NEWEST_POD: Value::Null});
    let mut change = json!({"metadata": {"annotations": annotations}});
    let there = node.annotations();
    if there.contains_key(keys::HELD_FROM_SCALE_DOWN) {
        change["metadata"]["annotations"][keys::HELD_FROM_SCALE_DOWN] = Value::Null;
        // Another value belongs to another client by now.
        if there
            .get(keys::NO_SCALE_DOWN)
            .is_some_and(|it| it == "true")
        {
            change["metadata"]["annotations"][keys::NO_SCALE_DOWN] = Value::Null;
        }
    }
    // Without a note the cordon belongs to another client and stays. An earlier cordon stays as well, unless its owner
    // has removed it meanwhile.
    if noted.is_some_and(|noted| noted != "true") {
        change["spec"]["unschedulable"] = Value::Null;
    }
    change
}
