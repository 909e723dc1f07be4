//! Reads and guarded writes of the objects that carry fences: Machines and Nodes.

use super::{
    ANSWER_MAX, KubernetesExecutor,
    error::{failure, is_gone, silent},
    keys,
};
use crate::source;
use dormer_proto::{
    machine::{MachineRef, TokenMark},
    message::Failure,
};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{fmt::Debug, future::Future};
use tokio::time::timeout;

/// Who writes, as the API server's managed fields show it.
pub(super) const MANAGER: &str = "dormer";

/// What messages call a machine's object: its kind, namespace and name.
pub(super) fn what(machine: &MachineRef) -> String {
    format!(
        "{} {}/{}",
        machine.api.kind(),
        machine.namespace,
        machine.name
    )
}

/// One call, with the one time limit.
pub(super) async fn call<T>(
    verb: &str,
    what: &str,
    doing: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    match timeout(ANSWER_MAX, doing).await {
        Err(_) => Err(silent(verb, what)),
        Ok(done) => done.map_err(|error| failure(verb, what, &error)),
    }
}

/// One call whose object may be gone.
pub(super) async fn call_if_there<T>(
    verb: &str,
    what: &str,
    doing: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Option<T>, Failure> {
    match timeout(ANSWER_MAX, doing).await {
        Err(_) => Err(silent(verb, what)),
        Ok(Ok(done)) => Ok(Some(done)),
        Ok(Err(error)) if is_gone(&error) => Ok(None),
        Ok(Err(error)) => Err(failure(verb, what, &error)),
    }
}

/// Patches an object under the resourceVersion of a read: a change in between makes the patch fail.
pub(super) async fn patch<K>(
    api: &Api<K>,
    read: &K,
    what: &str,
    mut change: Value,
) -> Result<Option<K>, Failure>
where
    K: Clone + Debug + DeserializeOwned + Resource,
{
    change["metadata"]["resourceVersion"] = read.resource_version().into();
    change["metadata"]["uid"] = read.uid().into();
    let params = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    let name = read.name_any();
    call_if_there(
        "patch",
        what,
        api.patch(&name, &params, &Patch::Merge(&change)),
    )
    .await
}

/// The fence's mark on an object.
pub(super) fn mark_of<K: Resource>(object: &K) -> Option<TokenMark> {
    object
        .annotations()
        .get(keys::FENCE)
        .and_then(|text| keys::fence(text))
}

impl KubernetesExecutor {
    pub(super) fn machine_api(&self, machine: &MachineRef) -> Api<DynamicObject> {
        let resource = source::machines(machine.api);
        Api::namespaced_with(self.client.clone(), &machine.namespace, &resource)
    }

    pub(super) fn node_api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// The Machine with this UID; `None` when it is gone, or another one has its name.
    pub(super) async fn machine(
        &self,
        machine: &MachineRef,
    ) -> Result<Option<DynamicObject>, Failure> {
        let what = what(machine);
        let api = self.machine_api(machine);
        let found = call_if_there("get", &what, api.get(&machine.name)).await?;
        Ok(found.filter(|found| found.uid().as_deref() == Some(machine.uid.as_str())))
    }

    pub(super) async fn node(&self, name: &str) -> Result<Option<Node>, Failure> {
        call_if_there("get", &format!("Node {name}"), self.node_api().get(name)).await
    }
}
