//! What dormer does of a move, each when a person names the step.

use super::{
    steps::Write,
    survey::{KEY, KEY_FILE, POOL, Survey, WMCO},
};
use crate::cluster_access::failed;
use dormer_client::Failure;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
    core::ObjectMeta,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Carries a step out, and says what was done, line by line.
///
/// # Errors
/// The API server's refusal. The same command then continues where it stopped.
pub(super) async fn carry_out(
    client: &Client,
    survey: &Survey,
    write: Write,
) -> Result<Vec<String>, Failure> {
    match write {
        Write::CopyKey => copy_key(client, survey).await,
        Write::RemoveOperator => remove_operator(client, survey).await,
        Write::Resume => pool(client, survey, json!({"paused": false})).await,
        Write::Automatic => pool(client, survey, json!({"approval": "Automatic"})).await,
    }
}

async fn copy_key(client: &Client, survey: &Survey) -> Result<Vec<String>, Failure> {
    let from = &survey.wmco_namespace;
    let to = &survey.namespace;
    let theirs: Api<Secret> = Api::namespaced(client.clone(), from);
    let secret = theirs.get(KEY).await.map_err(failed)?;
    let found = secret.data.unwrap_or_default().remove(KEY_FILE);
    let key = found.ok_or_else(|| {
        let error = format!("the Secret {from}/{KEY} has no {KEY_FILE}");
        Failure::refused(error, format!("kubectl -n {from} describe secret {KEY}"))
    })?;
    let copy = Secret {
        metadata: ObjectMeta {
            name: Some(KEY.to_owned()),
            namespace: Some(to.clone()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(KEY_FILE.to_owned(), key)])),
        ..Secret::default()
    };
    let ours: Api<Secret> = Api::namespaced(client.clone(), to);
    let made = ours.create(&PostParams::default(), &copy).await;
    made.map_err(failed)?;
    Ok(vec![format!(
        "Secret {to}/{KEY}: created from {from}/{KEY}"
    )])
}

/// The Subscription goes first: OLM makes the ClusterServiceVersion again while there is one, and with that the Deployment.
async fn remove_operator(client: &Client, survey: &Survey) -> Result<Vec<String>, Failure> {
    let mut done = Vec::new();
    let olm = [
        ("Subscription", &survey.subscriptions),
        ("ClusterServiceVersion", &survey.cluster_service_versions),
    ];
    for (kind, all) in olm {
        let gvk = GroupVersionKind::gvk("operators.coreos.com", "v1alpha1", kind);
        let resource = ApiResource::from_gvk(&gvk);
        for whole in all {
            let (namespace, name) = whole.split_once('/').unwrap_or_default();
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), namespace, &resource);
            gone(api.delete(name, &DeleteParams::default()).await)?;
            done.push(format!("{kind} {whole}: deleted"));
        }
    }
    let home = &survey.wmco_namespace;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), home);
    if survey.deployment.is_some() {
        gone(deployments.delete(WMCO, &DeleteParams::background()).await)?;
        done.push(format!("Deployment {home}/{WMCO}: deleted"));
    }
    Ok(done)
}

/// An object that another client deleted meanwhile is gone as well.
fn gone<T>(done: kube::Result<T>) -> Result<(), Failure> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done.map(drop).map_err(failed),
    }
}

async fn pool(client: &Client, survey: &Survey, spec: Value) -> Result<Vec<String>, Failure> {
    let gvk = GroupVersionKind::gvk("dormer.io", "v1beta1", "WindowsPool");
    let resource = ApiResource::from_gvk(&gvk);
    let home = &survey.namespace;
    let pools: Api<DynamicObject> = Api::namespaced_with(client.clone(), home, &resource);
    let patch = Patch::Merge(json!({"spec": spec}));
    let done = pools.patch(POOL, &PatchParams::default(), &patch).await;
    done.map_err(failed)?;
    Ok(vec![format!("WindowsPool {home}/{POOL}: {spec}")])
}
