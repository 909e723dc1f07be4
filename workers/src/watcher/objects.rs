//! What the watcher reads off Machines, MachineSets and Nodes: small types, and no trust in their shape.

use crate::kubernetes::keys;
use dormer_proto::{
    id::Timestamp,
    machine::{MachineFact, MachineRef, NodeFact, Owner, TokenMark},
    message::cut,
};
use kube::api::{DynamicObject, ObjectMeta};
use serde::{Deserialize, de::DeserializeOwned};
use std::net::Ipv4Addr;

/// Longest text that a fact takes over from an object, in bytes; an object with a longer one is unreadable.
pub(super) const TEXT_BYTES_MAX: usize = 1_024;
/// Most addresses, and most names, that a Machine's fact takes over; the rest is left out.
pub(super) const ADDRESSES_MAX: usize = 32;

/// An object that cannot be read; it is counted and warned about, and nothing follows from it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub(super) struct Odd {
    /// Where in the object.
    pub(super) field: &'static str,
    /// What is odd about it.
    pub(super) problem: String,
}

fn odd(field: &'static str, problem: impl ToString) -> Odd {
    Odd { field, problem: problem.to_string() }
}

/// What is kept of one Machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MachineSeen {
    pub(super) fact: MachineFact,
    /// Its label says Windows. One that no longer does is left alone, whatever it was.
    pub(super) windows: bool,
    /// The name that its Node will have, as the probe wrote it.
    pub(super) expected: Option<String>,
    /// UID of the Node that `status.nodeRef` names.
    pub(super) node_uid: Option<String>,
    /// The API that speaks for it, when it is not this one (field.md §6.1).
    pub(super) elsewhere: Option<String>,
    pub(super) resource: u64,
}

impl MachineSeen {
    /// Whether a run may begin for it.
    pub(super) fn may_start(&self) -> bool {
        self.windows && !self.fact.ignored && self.elsewhere.is_none()
    }
}

/// What is kept of one Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeSeen {
    pub(super) fact: NodeFact,
    pub(super) resource: u64,
}

/// What is kept of one MachineSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SetSeen {
    pub(super) uid: String,
    pub(super) name: String,
    pub(super) replicas: u32,
    /// Its template makes Windows machines.
    pub(super) windows: bool,
    pub(super) resource: u64,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Address {
    r#type: String,
    address: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeRefBody {
    name: Option<String>,
    uid: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProviderSpec {
    value: Option<ProviderKind>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProviderKind {
    kind: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MachineSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    provider_spec: Option<ProviderSpec>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MachineStatus {
    phase: Option<String>,
    addresses: Option<Vec<Address>>,
    node_ref: Option<NodeRefBody>,
    error_reason: Option<String>,
    error_message: Option<String>,
    #[serde(rename = "authoritativeAPI")]
    authoritative_api: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MachineBody {
    spec: Option<MachineSpec>,
    status: Option<MachineStatus>,
}

/// Reads a Machine of `machine.openshift.io/v1beta1`.
pub(super) fn machine(object: DynamicObject) -> Result<MachineSeen, Odd> {
    let DynamicObject { metadata: meta, data, .. } = object;
    let body: MachineBody = body(data)?;
    let (spec, status) = (body.spec.unwrap_or_default(), body.status.unwrap_or_default());
    let node = status.node_ref.unwrap_or_default();
    let (addresses, names) = addresses(status.addresses.unwrap_or_default())?;
    let elsewhere =
        status.authoritative_api.filter(|api| !api.is_empty() && api.as_str() != "MachineAPI");
    let elsewhere = short("status.authoritativeAPI", elsewhere)?;
    let ignored = label(&meta, keys::IGNORE) == Some("true")
        || annotation(&meta, keys::IGNORE).is_some_and(|value| value == "true");
    let windows = label(&meta, keys::OS_ID) == Some("Windows");
    let fact = MachineFact {
        machine: MachineRef {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: uid(&meta)?,
        },
        created: time(meta.creation_timestamp.as_ref()).unwrap_or_default(),
        phase: short("status.phase", status.phase)?,
        provider_id: short("spec.providerID", spec.provider_id)?,
        addresses,
        names,
        node: short("status.nodeRef.name", node.name)?,
        deleting: meta.deletion_timestamp.is_some(),
        deleted: time(meta.deletion_timestamp.as_ref()),
        owner: owner(&meta),
        error: error(status.error_reason, status.error_message),
        ignored: ignored || elsewhere.is_some() || !windows,
        exclude_drain: annotation(&meta, keys::EXCLUDE_DRAIN).is_some(),
        platform: platform(spec.provider_spec),
        token: token(&meta),
    };
    Ok(MachineSeen {
        fact,
        windows,
        expected: short("metadata.annotations", annotation(&meta, keys::NODE_NAME))?,
        node_uid: short("status.nodeRef.uid", node.uid)?,
        elsewhere,
        resource: resource(&meta)?,
    })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
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
pub(super) fn node(object: DynamicObject) -> Result<NodeSeen, Odd> {
    let DynamicObject { metadata: meta, data, .. } = object;
    let body: NodeBody = body(data)?;
    let (spec, status) = (body.spec.unwrap_or_default(), body.status.unwrap_or_default());
    let info = status.node_info.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let fact = NodeFact {
        name: meta.name.clone().ok_or_else(|| odd("metadata.name", "is absent"))?,
        uid: uid(&meta)?,
        ready: conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True"),
        cordoned: spec.unschedulable.unwrap_or_default(),
        provider_id: short("spec.providerID", spec.provider_id)?,
        boot_id: short("status.nodeInfo.bootID", Some(info.boot_id))?.unwrap_or_default(),
        kubelet_version: short("status.nodeInfo.kubeletVersion", Some(info.kubelet_version))?
            .unwrap_or_default(),
        version: short("metadata.annotations", annotation(&meta, keys::VERSION))?,
        wmco_version: short("metadata.annotations", annotation(&meta, keys::WMCO_VERSION))?,
        token: token(&meta),
        subnet: short("metadata.annotations", annotation(&meta, keys::SUBNET))?,
    };
    Ok(NodeSeen { fact, resource: resource(&meta)? })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Labelled {
    metadata: Option<ObjectMeta>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SetSpec {
    replicas: Option<i64>,
    template: Option<Labelled>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SetBody {
    spec: Option<SetSpec>,
}

/// Reads a MachineSet of `machine.openshift.io/v1beta1`.
pub(super) fn machine_set(object: DynamicObject) -> Result<SetSeen, Odd> {
    let DynamicObject { metadata: meta, data, .. } = object;
    let body: SetBody = body(data)?;
    let spec = body.spec.unwrap_or_default();
    let replicas = u32::try_from(spec.replicas.unwrap_or(1)); // 1 is the API's default
    let template = spec.template.and_then(|template| template.metadata).unwrap_or_default();
    let labels = template.labels.unwrap_or_default();
    Ok(SetSeen {
        uid: uid(&meta)?,
        name: meta.name.clone().unwrap_or_default(),
        replicas: replicas.map_err(|_| odd("spec.replicas", "is no count"))?,
        windows: labels.get(keys::OS_ID).is_some_and(|os| os == "Windows"),
        resource: resource(&meta)?,
    })
}

fn body<T: DeserializeOwned>(data: serde_json::Value) -> Result<T, Odd> {
    serde_json::from_value(data).map_err(|error| odd("spec or status", cut(error.to_string())))
}

pub(super) fn uid(meta: &ObjectMeta) -> Result<String, Odd> {
    let uid = short("metadata.uid", meta.uid.clone())?;
    uid.filter(|uid| !uid.is_empty()).ok_or_else(|| odd("metadata.uid", "is absent"))
}

/// Its resourceVersion. Kubernetes calls it opaque; every API server's is the number of etcd's revision.
pub(super) fn resource(meta: &ObjectMeta) -> Result<u64, Odd> {
    let text = meta.resource_version.as_deref().unwrap_or_default();
    text.parse().map_err(|_| odd("metadata.resourceVersion", format!("{text:?} is no number")))
}

fn short(field: &'static str, text: Option<String>) -> Result<Option<String>, Odd> {
    match text {
        Some(text) if text.len() > TEXT_BYTES_MAX => {
            Err(odd(field, format!("is longer than {TEXT_BYTES_MAX} bytes")))
        }
        text => Ok(text.filter(|text| !text.is_empty())),
    }
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

fn annotation(meta: &ObjectMeta, key: &str) -> Option<String> {
    meta.annotations.as_ref()?.get(key).cloned()
}

fn token(meta: &ObjectMeta) -> Option<TokenMark> {
    keys::fence(meta.annotations.as_ref()?.get(keys::FENCE)?)
}

fn time(stamp: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>) -> Option<Timestamp> {
    Some(Timestamp(u64::try_from(stamp?.0.as_millisecond()).ok()?))
}

fn owner(meta: &ObjectMeta) -> Option<Owner> {
    let owners = meta.owner_references.as_ref()?;
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let (kind, name, uid) = (owner.kind.clone(), owner.name.clone(), owner.uid.clone());
    Some(Owner { kind, name, uid })
}

fn error(reason: Option<String>, message: Option<String>) -> Option<String> {
    match (reason, message) {
        (Some(reason), Some(message)) => Some(cut(format!("{reason}: {message}"))),
        (reason, message) => reason.or(message).map(cut),
    }
}

/// InternalIPs (IPv4) and names, in the object's order.
fn addresses(listed: Vec<Address>) -> Result<(Vec<String>, Vec<String>), Odd> {
    let (mut addresses, mut names) = (Vec::new(), Vec::new());
    for Address { r#type, address } in listed {
        let Some(address) = short("status.addresses", Some(address))? else { continue };
        match r#type.as_str() {
            "InternalIP" if address.parse::<Ipv4Addr>().is_ok() => addresses.push(address),
            "Hostname" | "InternalDNS" => names.push(address),
            _ => {}
        }
    }
    addresses.truncate(ADDRESSES_MAX);
    names.truncate(ADDRESSES_MAX);
    Ok((addresses, names))
}

/// `AWS` of `AWSMachineProviderConfig`, `Azure` of `AzureMachineProviderSpec` (field.md §6.1).
fn platform(spec: Option<ProviderSpec>) -> String {
    let kind = spec.and_then(|spec| spec.value).and_then(|value| value.kind).unwrap_or_default();
    let platform = kind.split("MachineProvider").next().unwrap_or_default();
    if platform.len() > TEXT_BYTES_MAX { String::new() } else { platform.to_owned() }
}

#[cfg(test)]
mod tests;
