//! The Operator Lifecycle Manager's kinds on a real API server: what it is given is valid, and dormer's OperatorCondition.
//! The manager itself does not run.

use super::{
    chart::applied_dry,
    cluster::{Kind, PATIENCE, Site, World, plane},
};
use crate::chart::objects;
use dormer_testkit::{Skipped, await_some, olm_crd, skip};
use kube::api::ListParams;
use serde_json::{Value, json};

const GROUP: &str = "operators.coreos.com";
pub(crate) const CONDITION: Kind = (GROUP, "v2", "OperatorCondition");
/// As the manager names it: after the ClusterServiceVersion.
const NAME: &str = concat!("dormer.v", env!("CARGO_PKG_VERSION"));

/// Plurals and kinds of what people and the bundle give to the manager.
const GIVEN: [(&str, Kind); 4] = [
    ("catalogsources", (GROUP, "v1alpha1", "CatalogSource")),
    (
        "clusterserviceversions",
        (GROUP, "v1alpha1", "ClusterServiceVersion"),
    ),
    ("operatorgroups", (GROUP, "v1", "OperatorGroup")),
    ("subscriptions", (GROUP, "v1alpha1", "Subscription")),
];

/// Makes a kind of the manager, and waits until it can be listed.
async fn define(world: &World, plural: &str, kind: Kind) -> Result<(), Skipped> {
    world.define(&olm_crd(plural)?).await;
    await_some("the kind is listed", PATIENCE, || async {
        let listed = world.api(kind, "").list(&ListParams::default()).await;
        listed.ok().map(drop)
    })
    .await;
    Ok(())
}

/// Makes what dormer meets where the manager runs it: its OperatorCondition, whose name this answers, and the right of these
/// accounts to write that.
pub(crate) async fn would_run(
    world: &World,
    home: &str,
    accounts: &[String],
) -> Result<&'static str, Skipped> {
    define(world, "operatorconditions", CONDITION).await?;
    let metadata = json!({"name": NAME, "namespace": home});
    let subjects: Vec<Value> = accounts
        .iter()
        .map(|name| json!({"kind": "ServiceAccount", "name": name, "namespace": home}))
        .collect();
    let of_rbac = "rbac.authorization.k8s.io";
    for object in [
        json!({"apiVersion": format!("{GROUP}/v2"), "kind": CONDITION.2, "metadata": metadata,
            "spec": {"serviceAccounts": accounts, "deployments": accounts}}),
        json!({"apiVersion": format!("{of_rbac}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [GROUP], "resources": ["operatorconditions"], "resourceNames": [NAME],
                "verbs": ["get", "update", "patch"]}]}),
        json!({"apiVersion": format!("{of_rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": of_rbac, "kind": "Role", "name": NAME}, "subjects": subjects}),
    ] {
        world.create(object).await;
    }
    Ok(NAME)
}

#[tokio::test]
async fn what_the_manager_is_given_passes_strict_validation() {
    let site = Site::new(plane!(), "olm").await;
    for (plural, kind) in GIVEN {
        if let Err(skipped) = define(&site.world, plural, kind).await {
            skip!(skipped);
        }
    }
    let csv = include_str!("../../deploy/olm/bundle/manifests/dormer.clusterserviceversion.yaml");
    let example = include_str!("../../deploy/olm/subscribe.yaml");
    let mut given = 0;
    for mut object in [csv, example].into_iter().flat_map(objects) {
        if object["kind"] == "Namespace" {
            continue;
        }
        object["metadata"]["namespace"] = site.name.into();
        let done = applied_dry(&site.world, &object).await;
        done.unwrap_or_else(|error| panic!("{error}: {object}"));
        object["spec"]["sapce"] = true.into();
        let refused = applied_dry(&site.world, &object).await;
        assert!(refused.is_err(), "a misspelt field: {object}");
        given += 1;
    }
    assert_eq!(given, GIVEN.len());
}
