//! Pods that came to a node after its drain began because they tolerate the cordon, or because their creator named the
//! node: evicted, they would come back for ever. The drain does not wait for them. Any other pod is evicted however late it
//! came: the scheduler bound it before the cordon, or during a moment without one, and it does not come back. Only the API
//! server's own times separate them from earlier pods: the first pass over the cordoned Node writes on the Node when the
//! newest of its pods was created (docs/field-notes.md, Evictions).

use super::{KubernetesExecutor, api::patch, guard::LiveNode, keys};
use dormer_proto::message::Failure;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use serde_json::json;

/// Taint of a cordoned node (kubernetes v1.33, `staging/src/k8s.io/api/core/v1/well_known_taints.go`).
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Creation of the newest pod that the first pass found; `None`: no pass has begun, or the Node is not cordoned.
fn newest_before(node: &Node) -> Option<Timestamp> {
    let spec = node.spec.as_ref()?;
    spec.unschedulable.filter(|cordoned| *cordoned)?;
    node.annotations().get(keys::NEWEST_POD)?.parse().ok()
}

/// Whether the pod came to this node after its drain began, and would come back if it was evicted.
pub(super) fn came_later(node: &Node, pod: &Pod) -> bool {
    let created = pod.metadata.creation_timestamp.as_ref();
    let later = newest_before(node).is_some_and(|newest| created.is_some_and(|at| at.0 > newest));
    later && (tolerates_the_cordon(pod) || names_its_node(pod))
}

/// Whether its creator named the node: no scheduler looked at the cordon, and the next pod would come back likewise. A
/// scheduler's binding leaves no entry among the managed fields, and a creator's own field does.
fn names_its_node(pod: &Pod) -> bool {
    let managed = pod.metadata.managed_fields.iter().flatten();
    let mut fields = managed.filter_map(|entry| entry.fields_v1.as_ref());
    fields.any(|fields| fields.0.pointer("/f:spec/f:nodeName").is_some())
}

/// Why a drain does not wait for it.
pub(super) fn reason(pod: &Pod) -> String {
    let owner = pod
        .owner_references()
        .iter()
        .find(|it| it.controller == Some(true));
    let owner = owner.map(|it| format!(", and {} {} makes it again", it.kind, it.name));
    let how = if tolerates_the_cordon(pod) {
        "it tolerates the cordon"
    } else {
        "its spec names this node"
    };
    format!(
        "it came after the drain began: {how}{}; it is not evicted, and ends with the node",
        owner.unwrap_or_default()
    )
}

fn tolerates_the_cordon(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let all = spec.and_then(|spec| spec.tolerations.as_deref());
    all.unwrap_or_default().iter().any(|one| {
        let effect = one.effect.as_deref().unwrap_or_default();
        let exists = one.operator.as_deref() == Some("Exists");
        let key = one.key.as_deref().unwrap_or_default();
        let named =
            key == UNSCHEDULABLE && (exists || one.value.as_deref().is_none_or(str::is_empty));
        matches!(effect, "" | "NoSchedule") && (named || (key.is_empty() && exists))
    })
}

impl KubernetesExecutor {
    /// Notes on a cordoned Node when the newest of these pods was created, unless an earlier pass did. `evict.rs` and
    /// `fence.rs` remove the note after an uncordon, and with a cordon under another token.
    pub(super) async fn note_newest(
        &self,
        live: Option<LiveNode>,
        pods: &[Pod],
    ) -> Result<Option<LiveNode>, Failure> {
        let Some(live) = live else { return Ok(None) };
        let spec = live.node.spec.as_ref();
        let cordoned = spec.is_some_and(|spec| spec.unschedulable == Some(true));
        let created = pods
            .iter()
            .filter_map(|pod| pod.metadata.creation_timestamp.as_ref());
        let Some(newest) = created.map(|at| at.0).max() else {
            return Ok(Some(live));
        };
        if !cordoned || newest_before(&live.node).is_some() {
            return Ok(Some(live));
        }
        let what = format!("Node {}", live.node.name_any());
        let note = json!({"metadata": {"annotations": {keys::NEWEST_POD: newest.to_string()}}});
        let noted = patch(&self.node_api(), &live.node, &what, note).await?;
        Ok(noted.map(|node| LiveNode { node, ..live }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn pod(created: &str, tolerations: Value) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": "web", "creationTimestamp": created},
            "spec": {"containers": [], "tolerations": tolerations}}),
        )
        .expect("a pod")
    }

    fn node(cordoned: bool, newest: Option<&str>) -> Node {
        serde_json::from_value(
            json!({"metadata": {"annotations": {keys::NEWEST_POD: newest.unwrap_or("odd")}},
            "spec": {"unschedulable": cordoned}}),
        )
        .expect("a node")
    }

    #[test]
    fn only_what_was_created_after_every_pod_of_the_first_pass_came_later() {
        let before = "2026-01-01T00:00:05Z";
        let drains = node(true, Some(before));
        let everything = || json!([{"operator": "Exists"}]);
        let later = |at: &str, node: &Node| came_later(node, &pod(at, everything()));
        assert!(
            !later("2026-01-01T00:00:05Z", &drains),
            "in the same second: evicted once more"
        );
        assert!(later("2026-01-01T00:00:06Z", &drains));
        for open in [node(false, Some(before)), node(true, None)] {
            assert!(!later("2026-01-01T00:00:06Z", &open));
        }
    }

    /// The scheduler decided before the cordon and waited for a volume, or a person uncordoned the Node for a moment.
    #[test]
    fn what_does_not_tolerate_the_cordon_is_evicted_however_late_it_came() {
        let drains = node(true, Some("2026-01-01T00:00:05Z"));
        let late = "2026-01-01T00:10:00Z";
        let other = json!([{"operator": "Exists", "key": "os"}]);
        for tolerations in [json!([]), other] {
            assert!(
                !came_later(&drains, &pod(late, tolerations.clone())),
                "{tolerations}"
            );
        }
    }

    /// The next pod of its controller would name the node again.
    #[test]
    fn what_names_its_node_is_left_out() {
        let drains = node(true, Some("2026-01-01T00:00:05Z"));
        let mut late = pod("2026-01-01T00:10:00Z", json!([]));
        let by = |fields: Value| {
            let entry = json!([{"manager": "it", "operation": "Update", "fieldsV1": fields}]);
            serde_json::from_value(entry).expect("managed fields")
        };
        late.metadata.managed_fields = by(json!({"f:spec": {"f:containers": {}}}));
        assert!(!came_later(&drains, &late), "a scheduler bound it");
        late.metadata.managed_fields = by(json!({"f:spec": {"f:nodeName": {}}}));
        assert!(came_later(&drains, &late));
        assert!(reason(&late).contains("its spec names this node"));
    }

    #[test]
    fn a_toleration_of_the_cordon_differs_from_others() {
        let at = "2026-01-01T00:00:06Z";
        for yes in [
            json!([{"operator": "Exists"}]),
            json!([{"operator": "Exists", "key": UNSCHEDULABLE}]),
            json!([{"operator": "Exists", "effect": "NoSchedule"}]),
        ] {
            assert!(tolerates_the_cordon(&pod(at, yes.clone())), "{yes}");
        }
        for no in [
            json!([]),
            json!([{"operator": "Exists", "key": "os"}]),
            json!([{"operator": "Exists", "effect": "NoExecute"}]),
        ] {
            assert!(!tolerates_the_cordon(&pod(at, no.clone())), "{no}");
        }
    }
}
