//! Proof that a silent host is off: what ran there has ended.

use super::guard::LiveNode;

/// Taint by which a person confirms that a silent host is off. Only its key counts, with any effect, on a node that is
/// not Ready (kubernetes v1.33, `pkg/controller/podgc/gc_controller.go`, `gcTerminating`).
pub(super) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Taint by which the cloud controller manager says that it found the instance of a silent node shut down. It takes the
/// taint away when the node is Ready (kubernetes/cloud-provider, `controllers/nodelifecycle`, `MonitorNodes`). What ran on a
/// stopped instance has ended, and a kubelet that starts again gets its pods from the API server alone, to which it is no
/// longer silent then.
pub(super) const SHUT_DOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Clouds, by the beginning of a Node's provider id, whose controller managers set [`SHUT_DOWN`] for a stopped instance
/// alone: on AWS also for a hibernated one, which continues where it was, so no node may hibernate. Azure's also sets it while an
/// instance is still being deallocated, and vSphere's for a suspended one, which continues as well (docs/field-notes.md, Drains
/// of unreachable nodes).
const STOPPED_ALONE: [&str; 2] = ["aws://", "openstack://"];

/// Who says that a silent host is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Off {
    /// A person, with [`OUT_OF_SERVICE`].
    Person,
    /// The cloud, with [`SHUT_DOWN`].
    Cloud,
}

impl LiveNode {
    /// Who says that its host is off, if its kubelet is silent.
    pub(super) fn off(&self) -> Option<Off> {
        let spec = self.node.spec.as_ref();
        let taints = spec.and_then(|spec| spec.taints.as_deref());
        let taints = taints.unwrap_or_default();
        let has = |key: &str| taints.iter().any(|taint| taint.key == key);
        let id = spec.and_then(|spec| spec.provider_id.as_deref());
        let id = id.unwrap_or_default();
        let stopped_alone = STOPPED_ALONE.iter().any(|cloud| id.starts_with(cloud));
        match self.unreachable() {
            true if has(OUT_OF_SERVICE) => Some(Off::Person),
            true if stopped_alone && has(SHUT_DOWN) => Some(Off::Cloud),
            _ => None,
        }
    }
}
