//! The writes that take dormer's traces away.

use super::{
    remains::{GROUP, Write},
    within,
};
use dormer_workers::kubernetes::keys;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Most reads of an object that another client changes meanwhile.
const TRIES: u32 = 5;

/// Carries a write out. What is gone already counts as done.
///
/// # Errors
/// The API server's refusal.
pub(super) async fn carry_out(client: &Client, write: &Write) -> Result<(), kube::Error> {
    let done = match write {
        Write::Marks {
            resource,
            namespace,
            name,
        } => unmark(&api(client, resource, namespace.as_deref()), name).await,
        Write::Condition { node } => {
            let nodes: Api<Node> = Api::all(client.clone());
            let gone = json!({"type": keys::CONDITION, "$patch": "delete"});
            let patch = Patch::Strategic(json!({"status": {"conditions": [gone]}}));
            let params = PatchParams::default();
            within(nodes.patch_status(node, &params, &patch))
                .await
                .map(drop)
        }
        Write::Delete {
            resource,
            namespace,
            name,
        } => {
            let api = api(client, resource, namespace.as_deref());
            let released = match resource.group == GROUP {
                true => release(&api, name).await,
                false => Ok(()),
            };
            match released {
                Ok(()) => within(api.delete(name, &DeleteParams::default()))
                    .await
                    .map(drop),
                refused => refused,
            }
        }
    };
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done,
    }
}

fn api(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// Removes the finalizer of a host, which waits for dormer to take the host apart.
async fn release(api: &Api<DynamicObject>, name: &str) -> Result<(), kube::Error> {
    let object = within(api.get(name)).await?;
    let all = object.finalizers().iter();
    let left: Vec<&String> = all.filter(|one| *one != keys::HOST_FINALIZER).collect();
    if left.len() == object.finalizers().len() {
        return Ok(());
    }
    let patch = Patch::Merge(json!({"metadata": {"finalizers": left}}));
    within(api.patch(name, &PatchParams::default(), &patch))
        .await
        .map(drop)
}

/// Removes dormer's annotations under the resource version that was read.
async fn unmark(api: &Api<DynamicObject>, name: &str) -> Result<(), kube::Error> {
    let mut tried = 0;
    loop {
        tried += 1;
        let found = within(api.get(name)).await?;
        let patch = Patch::Merge(without_marks(&found));
        match within(api.patch(name, &PatchParams::default(), &patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 && tried < TRIES => {}
            done => return done.map(drop),
        }
    }
}

/// Patch that removes dormer's annotations from an object, and undoes its own cordon and hold.
fn without_marks(object: &DynamicObject) -> Value {
    let there = object.annotations();
    let mut change = json!({"metadata": {"resourceVersion": object.resource_version()}});
    let annotations = keys::OWN.iter().filter(|key| there.contains_key(**key));
    for key in annotations {
        change["metadata"]["annotations"][*key] = Value::Null;
    }
    let held = there.contains_key(keys::HELD_FROM_SCALE_DOWN);
    // Another value belongs to another client by now.
    if held
        && there
            .get(keys::NO_SCALE_DOWN)
            .is_some_and(|it| it == "true")
    {
        change["metadata"]["annotations"][keys::NO_SCALE_DOWN] = Value::Null;
    }
    let fence = there.get(keys::FENCE).and_then(|text| keys::fence(text));
    let open = fence.is_some_and(|mark| mark.open);
    // Without the note, or with `true`, the cordon is a person's.
    if open && there.get(keys::WAS_CORDONED).is_some_and(|it| it != "true") {
        change["spec"]["unschedulable"] = Value::Null;
    }
    change
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(annotations: &Value) -> DynamicObject {
        let object = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "win-a", "resourceVersion": "7", "annotations": annotations}});
        serde_json::from_value(object).expect("a Node")
    }

    #[test]
    fn only_dormers_own_marks_go() {
        let change = without_marks(&node(&json!({
            keys::VERSION: "11.0.0-x", keys::FENCE: "7 closed", keys::SUBNET: "10.132.0.0/24",
            keys::NO_SCALE_DOWN: "true", keys::WMCO_VERSION: "10",
        })));
        let annotations = json!({keys::VERSION: null, keys::FENCE: null});
        assert_eq!(
            change,
            json!({"metadata": {"resourceVersion": "7", "annotations": annotations}})
        );
    }

    #[test]
    fn a_cordon_of_dormers_is_undone_and_a_persons_stays() {
        let held = |was: &str| {
            without_marks(&node(&json!({
                keys::FENCE: "7 open", keys::WAS_CORDONED: was,
                keys::NO_SCALE_DOWN: "true", keys::HELD_FROM_SCALE_DOWN: "true",
            })))
        };
        let undone = held("false");
        assert_eq!(undone["spec"], json!({"unschedulable": null}));
        assert!(undone["metadata"]["annotations"][keys::NO_SCALE_DOWN].is_null());
        assert_eq!(held("true")["spec"], Value::Null);
        let closed = without_marks(&node(
            &json!({keys::FENCE: "7 closed", keys::WAS_CORDONED: "false"}),
        ));
        assert_eq!(closed["spec"], Value::Null);
    }
}
