//! Fence at the API server: a token, open or closed, on the Machine and on its Node
//! (docs/decisions/0004-fences.md).

use super::{
    KubernetesExecutor,
    api::{mark_of, patch, what},
    cordon::cordoned,
    guard::{LiveNode, is_of, kept_by_a_person},
    keys,
};
use dormer_proto::{
    id::LeaseToken,
    machine::{FenceRefusal, Guard, MachineRef, Outcome, TokenMark},
    message::Failure,
};
use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt, api::DynamicObject};
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
        let mark = mark_of(&object);
        // The Machine was read first. Who takes the lease next writes its token there first, so that the patch of the
        // Machine below would fail.
        let on_node = found.and_then(mark_of).filter(|it| is_backed(*it, mark));
        if !may_write(mark, token) || !may_write(on_node, token) {
            return refused(FenceRefusal::Superseded);
        }
        let taken = is_taken(on_node, mark, token);
        if let Some(live) = &live {
            if let Err(refused) = is_of(&object, &live.node) {
                return Ok(refused.outcome());
            }
            // A lease over the limit is for a node that does not serve. One that is Ready again waits in the queue,
            // cordoned or not.
            if over_limit {
                let begun = noted(&live.node, taken).is_some();
                if let Some(refused) = self.not_down(live, guard, begun)? {
                    return Ok(refused.outcome());
                }
            }
            // Each cordon of dormer's has its note. A change without one leaves the Node to people.
            let ours = noted(&live.node, taken).is_some();
            let kept = kept_by_a_person(&live.node, ours).filter(|_| !guard.asked);
            if let Some(refused) = kept {
                return Ok(refused.outcome());
            }
        }
        if let Some(refused) = self.disruption_refused(machine, &object, guard).await? {
            return Ok(refused.outcome());
        }
        let open = keys::fence_text(TokenMark { token, open: true });
        let home = &self.settings.namespace;
        let mut marks = json!({keys::FENCE: open, keys::INSTALLATION: home});
        if cordon && (guard.anew || !drains(&object, token)) {
            marks[keys::DRAINED_SINCE] = live.as_ref().and_then(LiveNode::read_at).into();
        } else if !cordon && mark != Some(TokenMark { token, open: true }) {
            // An earlier lease's drain, with which one under this lease would begin.
            marks[keys::DRAINED_SINCE] = Value::Null;
        }
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
        let noted = noted(found, taken);
        // If a person uncordons the node meanwhile, the note is removed.
        let was_cordoned = cordoned(found) && noted.unwrap_or(true);
        // Without a cordon of dormer's there is no note, so that a later cordon by a person outlives the close.
        let note = (cordon || noted.is_some()).then_some(was_cordoned);
        let mut change = opening(&open, note, cordon);
        change["metadata"]["annotations"][keys::INSTALLATION] = home.as_str().into();
        // A drain under this token has begun, and continues.
        let same = on_node.is_some_and(|mark| mark.open && mark.token == token);
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
                let marks = json!({keys::FENCE: closed, keys::DRAINED_SINCE: Value::Null,
                    keys::TEARING: Value::Null});
                let change = json!({"metadata": {"annotations": marks}});
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
        let Some(found) = found.filter(ours) else {
            return Ok(closed_or_gone(leaves));
        };
        // Read after the Node: a token that the Machine does not have by now is not dormer's.
        let mark = match (mark_of(&found), owner.is_some()) {
            (Some(mark), true) if mark.token > token => {
                let object = self.machine(machine).await?;
                let backing = object.as_ref().and_then(mark_of);
                Some(mark).filter(|mark| object.is_none() || is_backed(*mark, backing))
            }
            (mark, _) => mark,
        };
        if may_write(mark, token) {
            let change = closing(&found, &closed);
            patch(
                &self.node_api(),
                &found,
                &format!("Node {}", found.name_any()),
                change,
            )
            .await?;
        }
        Ok(closed_or_gone(leaves))
    }
}

/// Result of a close. A delayed deletion of dormer's has happened if the Machine leaves: the slot waits for the
/// replacement.
fn closed_or_gone(leaves: bool) -> Outcome {
    match leaves {
        true => Outcome::MachineDeleted,
        false => Outcome::FenceClosed,
    }
}

/// Whether N may be written, open or closed: over a smaller token, over N itself while it is open (a repeat), or over a
/// token that no rollout has granted. A greater token belongs to another holder, and N closed is never opened again.
fn may_write(there: Option<TokenMark>, token: LeaseToken) -> bool {
    there.is_none_or(|there| {
        let repeat = there.token == token && there.open;
        there.token < token || repeat || !there.token.is_plausible(token)
    })
}

/// Whether a Node's mark can be dormer's: it writes each token on the Machine first. A kubelet may write annotations of
/// its own Node, but none of a Machine.
fn is_backed(on_node: TokenMark, on_machine: Option<TokenMark>) -> bool {
    on_machine.is_some_and(|there| on_node.token <= there.token)
}

/// Keeps the cluster autoscaler from removing the node: it considers a cordoned and empty node unneeded. An annotation
/// by a person stays.
pub(super) fn hold_from_scale_down(node: &Node, change: &mut Value) {
    let annotations = node.annotations();
    let ours = annotations.contains_key(keys::HELD_FROM_SCALE_DOWN);
    if ours || !annotations.contains_key(keys::NO_SCALE_DOWN) {
        change["metadata"]["annotations"][keys::NO_SCALE_DOWN] = "true".into();
        change["metadata"]["annotations"][keys::HELD_FROM_SCALE_DOWN] = "true".into();
    }
}

/// Takes that annotation away, if it is dormer's. Another value belongs to another client by now.
pub(super) fn free_for_scale_down(node: &Node, change: &mut Value) {
    let there = node.annotations();
    if !there.contains_key(keys::HELD_FROM_SCALE_DOWN) {
        return;
    }
    change["metadata"]["annotations"][keys::HELD_FROM_SCALE_DOWN] = Value::Null;
    if there
        .get(keys::NO_SCALE_DOWN)
        .is_some_and(|it| it == "true")
    {
        change["metadata"]["annotations"][keys::NO_SCALE_DOWN] = Value::Null;
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

/// Whether a Node with this mark was taken out of service by dormer itself, under this lease or an earlier one that has not
/// ended: a close writes on the Machine first, so that a Node's host can open none again.
fn is_taken(on_node: Option<TokenMark>, on_machine: Option<TokenMark>, token: LeaseToken) -> bool {
    let open = |mark: TokenMark| mark.open && mark.token <= token;
    on_node.is_some_and(open) && on_machine.is_some_and(|mark| mark.open)
}

/// Whether a drain under this lease has begun, and its time is on the Machine.
fn drains(machine: &DynamicObject, token: LeaseToken) -> bool {
    let open = Some(TokenMark { token, open: true });
    mark_of(machine) == open && machine.annotations().contains_key(keys::DRAINED_SINCE)
}

/// Note of an earlier open: whether the node was cordoned by another client before. `taken`: dormer took it out of service.
fn noted(node: &Node, taken: bool) -> Option<bool> {
    let noted = node.annotations().get(keys::WAS_CORDONED);
    noted.filter(|_| taken).map(|noted| noted == "true")
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
    free_for_scale_down(node, &mut change);
    // Without a note the cordon belongs to another client and stays. An earlier cordon stays as well, unless its owner
    // has removed it meanwhile.
    if noted.is_some_and(|noted| noted != "true") {
        change["spec"]["unschedulable"] = Value::Null;
    }
    change
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::id::TOKENS_AHEAD_MAX;

    fn mark(token: u64, open: bool) -> TokenMark {
        TokenMark {
            token: LeaseToken(token),
            open,
        }
    }

    #[test]
    fn a_token_is_written_over_smaller_ones_and_over_such_as_nobody_granted() {
        let seven = LeaseToken(7);
        for there in [
            mark(6, true),
            mark(6, false),
            mark(7, true),
            mark(7 + TOKENS_AHEAD_MAX + 1, false),
            mark(u64::MAX, true),
        ] {
            assert!(may_write(Some(there), seven), "{there:?}");
        }
        assert!(may_write(None, seven));
        for there in [
            mark(7, false),
            mark(8, false),
            mark(8, true),
            mark(7 + TOKENS_AHEAD_MAX, true),
        ] {
            assert!(!may_write(Some(there), seven), "{there:?}");
        }
    }

    #[test]
    fn a_node_is_taken_while_its_machine_has_an_open_token() {
        let three = Some(mark(3, true));
        for (machine, taken) in [
            (mark(3, true), true),
            (mark(5, true), true),
            (mark(3, false), false),
            (mark(4, false), false),
        ] {
            assert_eq!(
                is_taken(three, Some(machine), LeaseToken(5)),
                taken,
                "{machine:?}"
            );
        }
        let closed = Some(mark(3, false));
        assert!(!is_taken(closed, three, LeaseToken(5)));
        assert!(!is_taken(three, None, LeaseToken(5)));
        assert!(!is_taken(three, three, LeaseToken(2)));
    }

    #[test]
    fn a_node_has_no_token_that_its_machine_does_not_have() {
        for machine in [None, Some(mark(6, true)), Some(mark(6, false))] {
            assert!(!is_backed(mark(7, true), machine), "{machine:?}");
        }
        for machine in [mark(7, true), mark(7, false), mark(8, true)] {
            assert!(is_backed(mark(7, true), Some(machine)), "{machine:?}");
        }
    }
}
