//! A Node, converted into the fact for its machine's run.

use super::{
    ADDRESSES_MAX, UnreadableObject, annotation, body, label, odd, resource, short, token, uid,
};
use crate::kubernetes::{CONTROL_PLANE, OS, cordon::cordoned_by, keys};
use dormer_proto::machine::NodeFact;
use kube::api::DynamicObject;
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::watcher) struct ObservedNode {
    pub(in crate::watcher) fact: NodeFact,
    /// Its Windows build, `10.0.20348`; none for a node of another system.
    pub(in crate::watcher) build: Option<String>,
    /// It runs Windows, and is none of the control plane: no other is ever a machine's.
    pub(in crate::watcher) windows_worker: bool,
    /// Its InternalIPs.
    pub(in crate::watcher) addresses: Vec<String>,
    pub(in crate::watcher) resource: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeAddress {
    r#type: String,
    address: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: Option<bool>,
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeInfo {
    #[serde(rename = "bootID")]
    boot_id: String,
    kubelet_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatus {
    addresses: Option<Vec<NodeAddress>>,
    conditions: Option<Vec<Condition>>,
    node_info: Option<NodeInfo>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeBody {
    spec: Option<NodeSpec>,
    status: Option<NodeStatus>,
}

/// Reads a Node.
pub(in crate::watcher) fn node(object: DynamicObject) -> Result<ObservedNode, UnreadableObject> {
    let DynamicObject {
        metadata: meta,
        data,
        ..
    } = object;
    let body: NodeBody = body(data)?;
    let spec = body.spec.unwrap_or_default();
    let status = body.status.unwrap_or_default();
    let info = status.node_info.unwrap_or_default();
    let listed = status.addresses.unwrap_or_default().into_iter();
    let addresses = listed
        .filter(|one| one.r#type == "InternalIP")
        .map(|one| one.address)
        .take(ADDRESSES_MAX)
        .collect();
    let conditions = status.conditions.unwrap_or_default();
    let cordoned = spec.unschedulable.unwrap_or_default();
    let fact = NodeFact {
        name: meta
            .name
            .clone()
            .ok_or_else(|| odd("metadata.name", "is absent"))?,
        uid: uid(&meta)?,
        ready: conditions
            .iter()
            .any(|c| c.r#type == "Ready" && c.status == "True"),
        cordoned,
        provider_id: short("spec.providerID", spec.provider_id)?,
        boot_id: short("status.nodeInfo.bootID", Some(info.boot_id))?.unwrap_or_default(),
        kubelet_version: short("status.nodeInfo.kubeletVersion", Some(info.kubelet_version))?
            .unwrap_or_default(),
        version: short("metadata.annotations", annotation(&meta, keys::VERSION))?,
        wmco_version: short(
            "metadata.annotations",
            annotation(&meta, keys::WMCO_VERSION),
        )?,
        token: token(&meta),
        subnet: short("metadata.annotations", annotation(&meta, keys::SUBNET))?,
        cordoned_by: cordoned_by(&meta).filter(|_| cordoned),
    };
    let windows = label(&meta, OS) == Some("windows");
    let control_plane = CONTROL_PLANE
        .into_iter()
        .any(|role| label(&meta, role).is_some());
    let build = label(&meta, "node.kubernetes.io/windows-build").filter(|_| windows);
    let build = short("metadata.labels", build.map(str::to_owned))?;
    Ok(ObservedNode {
        fact,
        build,
        windows_worker: windows && !control_plane,
        addresses,
        resource: resource(&meta)?,
    })
}
