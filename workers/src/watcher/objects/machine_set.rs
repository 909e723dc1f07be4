//! A MachineSet of either API: how many machines it wants, and whether they run Windows.

use super::{UnreadableObject, annotation, body, odd, resource, short, template::SpecFields, uid};
use crate::source;
use dormer_proto::machine::MachineApi;
use kube::{
    api::{DynamicObject, ObjectMeta},
    core::{Selector, SelectorExt},
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Annotations of a set that the cluster autoscaler scales: its smallest number, in either API.
const AUTOSCALED: [&str; 2] = [
    "machine.openshift.io/cluster-api-autoscaler-node-group-min-size",
    "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::watcher) struct ObservedSet {
    pub(in crate::watcher) uid: String,
    pub(in crate::watcher) name: String,
    pub(in crate::watcher) replicas: u32,
    /// `status.readyReplicas`; an absent one is 0.
    pub(in crate::watcher) ready: u32,
    /// `status.availableReplicas`, likewise.
    pub(in crate::watcher) available: u32,
    /// The API that keeps it.
    pub(in crate::watcher) api: MachineApi,
    /// `status.authoritativeAPI`, where it has one: another API may show the same set.
    pub(in crate::watcher) speaks: Option<String>,
    /// `spec.selector`; `None`: it has none, or one that cannot be read.
    pub(in crate::watcher) selector: Option<Selector>,
    /// Fields of the Machines that it makes from now on.
    pub(in crate::watcher) fields: SpecFields,
    /// The cluster autoscaler changes the number of its machines.
    pub(in crate::watcher) autoscaled: bool,
    /// Its template makes Windows machines.
    pub(in crate::watcher) windows: bool,
    pub(in crate::watcher) resource: u64,
}

impl ObservedSet {
    /// Whether a Machine with these labels, that refers to it as its owner, is one of its machines (docs/field-notes.md,
    /// Machines of OpenShift). Without a readable selector the reference alone counts.
    pub(in crate::watcher) fn keeps(&self, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.selector.as_ref();
        selector.is_none_or(|selector| selector.matches(labels))
    }
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
    selector: Value,
    template: Option<Labelled>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SetStatus {
    ready_replicas: Option<i64>,
    available_replicas: Option<i64>,
    #[serde(rename = "authoritativeAPI")]
    authoritative_api: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SetBody {
    spec: Option<SetSpec>,
    status: Option<SetStatus>,
}

/// Reads a MachineSet of this API.
pub(in crate::watcher) fn machine_set(
    api: MachineApi,
    object: DynamicObject,
) -> Result<ObservedSet, UnreadableObject> {
    let DynamicObject {
        metadata: meta,
        data,
        ..
    } = object;
    let fields = SpecFields::of(api, &data["spec"]["template"]["spec"]);
    let body: SetBody = body(data)?;
    let spec = body.spec.unwrap_or_default();
    let replicas = u32::try_from(spec.replicas.unwrap_or(1)); // 1 is the API's default
    let status = body.status.unwrap_or_default();
    let count = |number: Option<i64>| u32::try_from(number.unwrap_or(0)).unwrap_or(0);
    let speaks = short("status.authoritativeAPI", status.authoritative_api)?;
    let template = spec
        .template
        .and_then(|template| template.metadata)
        .unwrap_or_default();
    Ok(ObservedSet {
        uid: uid(&meta)?,
        name: meta.name.clone().unwrap_or_default(),
        replicas: replicas.map_err(|_| odd("spec.replicas", "is no count"))?,
        ready: count(status.ready_replicas),
        available: count(status.available_replicas),
        windows: source::is_windows(api, &template),
        selector: source::selector(&spec.selector),
        fields,
        autoscaled: AUTOSCALED
            .iter()
            .any(|key| annotation(&meta, key).is_some()),
        api,
        speaks,
        resource: resource(&meta)?,
    })
}
