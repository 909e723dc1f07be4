//! Whether a Node is cordoned, and which program did it, as the API server notes it.

use dormer_proto::{id::Timestamp, machine::CordonedBy};
use k8s_openapi::api::core::v1::Node;
use kube::api::ObjectMeta;

/// Longest name of a program that is kept.
const PROGRAM_MAX: usize = 64;

/// Whether a Node takes no new pods.
pub(super) fn cordoned(node: &Node) -> bool {
    node.spec
        .as_ref()
        .is_some_and(|spec| spec.unschedulable == Some(true))
}

/// Program that wrote `spec.unschedulable` last, and when (`metadata.managedFields`). It is a program's name, not a
/// person's. `None`: the API server notes none, or the fields were pruned.
pub(crate) fn cordoned_by(meta: &ObjectMeta) -> Option<CordonedBy> {
    let all = meta.managed_fields.as_deref().unwrap_or_default();
    let entries = all.iter().filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields["f:spec"].get("f:unschedulable").is_some())
    });
    let newest = entries.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    let program = newest.manager.as_deref().unwrap_or("an unnamed program");
    let at = newest.time.as_ref().map(|time| time.0.as_millisecond());
    Some(CordonedBy {
        program: program.chars().take(PROGRAM_MAX).collect(),
        at: at.and_then(|at| u64::try_from(at).ok()).map(Timestamp),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_who_wrote_the_field_is_named() {
        let meta: ObjectMeta = serde_json::from_value(json!({"name": "win-1", "managedFields": [
            {"manager": "kubelet", "operation": "Update", "time": "2026-11-25T08:05:00Z",
             "fieldsV1": {"f:metadata": {}}},
            {"manager": "node-problem-detector", "operation": "Update", "time": "2026-11-24T08:00:00Z",
             "fieldsV1": {"f:spec": {"f:unschedulable": {}}}},
            {"manager": "kubectl-cordon", "operation": "Update", "time": "2026-11-25T08:00:00Z",
             "fieldsV1": {"f:spec": {"f:unschedulable": {}}}},
        ]}))
        .expect("metadata");
        let by = cordoned_by(&meta).expect("somebody");
        assert_eq!(by.program, "kubectl-cordon");
        assert_eq!(by.at, Some(Timestamp(1_795_593_600_000)));
        let pruned = ObjectMeta::default();
        assert_eq!(cordoned_by(&pruned), None);
    }
}
