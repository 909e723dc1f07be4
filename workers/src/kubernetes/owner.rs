//! The controller that makes another Machine in place of a deleted one, read just before the deletion.

use super::{KubernetesExecutor, api::call_if_there, error::NOT_FOUND, guard::Refused};
use crate::source;
use dormer_proto::{
    machine::{FenceRefusal, MachineRef, RECREATING},
    message::Failure,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    core::SelectorExt,
};

/// The kind of owner whose Machines carry the labels of its selector.
const SET: &str = "MachineSet";

impl KubernetesExecutor {
    /// Why a Machine may not be deleted: no controller of the Machine API or of Cluster API would make another one. A set
    /// may have released it during the drain. A set also replaces a Machine that still refers to it, but that its selector
    /// no longer matches (docs/field-notes.md, Machines of OpenShift).
    pub(super) async fn nobody_replaces(
        &self,
        machine: &MachineRef,
        object: &DynamicObject,
    ) -> Result<Option<Refused>, Failure> {
        let name = object.name_any();
        let mut owners = object.owner_references().iter();
        let owner =
            owners.find(|it| it.controller == Some(true) && RECREATING.contains(&it.kind.as_str()));
        let Some(owner) = owner else {
            return Ok(Some(nobody(format!(
                "the Machine {name} has no owner of the kinds {}",
                RECREATING.join(" and ")
            ))));
        };
        if owner.kind != SET {
            return Ok(None);
        }
        let set = self.above(machine, SET, &owner.name).await?;
        let why = match &set {
            None => "is gone",
            Some(set) if set.uid().as_ref() != Some(&owner.uid) => "was made anew under this name",
            Some(set) if set.metadata.deletion_timestamp.is_some() => "is being deleted",
            Some(set) if !selects(set, object) => "has a selector that its labels do not match",
            Some(_) => return Ok(None),
        };
        let set = &owner.name;
        Ok(Some(nobody(format!(
            "the Machine {name} belongs to no MachineSet: {set}, which it refers to, {why}"
        ))))
    }

    /// An object above this Machine, in the same namespace and API. A kind that the cluster does not know has none.
    pub(super) async fn above(
        &self,
        machine: &MachineRef,
        kind: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, Failure> {
        let gvk = GroupVersionKind::gvk(machine.api.group(), machine.api.version(), kind);
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &machine.namespace, &resource);
        let what = format!("{kind} {}/{name}", machine.namespace);
        match call_if_there("get", &what, api.get(name)).await {
            Err(failure) if failure.code == NOT_FOUND => Ok(None),
            found => found,
        }
    }
}

fn nobody(why: String) -> Refused {
    Refused::new(
        FenceRefusal::NoOwner,
        format!("{why}: nobody would replace it"),
    )
}

/// Whether the selector of the set matches the labels of the Machine.
fn selects(set: &DynamicObject, machine: &DynamicObject) -> bool {
    let selector = source::selector(&set.data["spec"]["selector"]);
    selector.is_none_or(|selector| selector.matches(machine.labels()))
}
