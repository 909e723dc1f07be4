//! Requests of others about a drain: hooks of a Machine that come before it, and labels of pods for Cluster API's
//! drains.

use dormer_proto::machine::{MachineApi, MachineRef};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::DynamicObject};

/// Annotations of Cluster API whose rest names a hook before the drain (cluster-api v1.10, `api/v1beta1/machine_types.go`,
/// `PreDrainDeleteHookAnnotationPrefix`).
const PRE_DRAIN: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
/// Label of pods (the same place, `PodDrainLabel`; cluster-api 03c3f0c22, `internal/controllers/machine/drain/filters.go`,
/// `drainLabelFilter`).
const POD_DRAIN: &str = "cluster.x-k8s.io/drain";

/// Request in a pod's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainBehavior {
    /// It stays, and is not waited for.
    Skip,
    /// It is waited for until it has ended by itself.
    WaitCompleted,
}

/// Pre-drain hook of a Machine. Its owner acts only after the deletion of the Machine began; the machine controller
/// drains when the hook is gone. OpenShift keeps hooks in the spec, Cluster API in annotations.
pub(super) fn pre_drain_hook(machine: &MachineRef, object: &DynamicObject) -> Option<String> {
    match machine.api {
        MachineApi::OpenShift => {
            let hooks = object.data["spec"]["lifecycleHooks"]["preDrain"].as_array()?;
            let hook = hooks.first()?;
            let text = |key: &str| hook[key].as_str().unwrap_or_default();
            Some(format!("{} of {}", text("name"), text("owner")))
        }
        MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => {
            let mut keys = object.annotations().keys();
            keys.find(|key| key.starts_with(PRE_DRAIN)).cloned()
        }
        MachineApi::Host => None,
    }
}

/// Request in a pod's label, for machines of Cluster API. Unknown values are ignored, as Cluster API does.
pub(super) fn drain_behavior(machine: &MachineRef, pod: &Pod) -> Option<DrainBehavior> {
    let value = pod
        .labels()
        .get(POD_DRAIN)
        .filter(|_| machine.api.is_cluster())?;
    match value.as_str() {
        "skip" => Some(DrainBehavior::Skip),
        "wait-completed" => Some(DrainBehavior::WaitCompleted),
        _ => None,
    }
}
