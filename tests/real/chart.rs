//! The chart on a real API server: every object passes strict validation, pods pass the restricted Pod Security, and a
//! release is installed, upgraded and taken away.

use super::{
    accounts::home,
    cluster::{PATIENCE, Site, World, client, plane},
};
use crate::chart::{VARIANTS, objects, objects_of_page, pods, rendered};
use dormer_testkit::{
    ControlPlane, Helm, await_some, monitoring_crd, openshift_crd, skip, started,
};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams, ValidationDirective},
    core::{ApiResource, GroupVersionKind},
    discovery,
};
use serde_json::{Value, json};

/// Kinds of the Prometheus Operator that the chart renders.
const MONITORING: [&str; 3] = ["podmonitors", "servicemonitors", "prometheusrules"];

/// Definition of links in OpenShift's console, in its module.
const CONSOLE_LINKS: &str = "console/v1/zz_generated.crd-manifests/00_consolelinks.crd.yaml";

/// Manifests beside the chart that people apply by themselves.
const MANIFESTS: [&str; 8] = [
    include_str!("../../deploy/install.yaml"),
    include_str!("../../deploy/pool.yaml"),
    include_str!("../../deploy/host.yaml"),
    include_str!("../../deploy/olm/beside.yaml"),
    include_str!("../../deploy/olm/console-link.yaml"),
    include_str!("../../deploy/monitoring/alerts.yaml"),
    include_str!("../../deploy/monitoring/dormer.yaml"),
    include_str!("../../deploy/monitoring/windows-exporter.yaml"),
];

/// Makes the Prometheus Operator's kinds, and waits until the API server serves them.
async fn monitoring_kinds(world: &World) {
    for kind in MONITORING {
        let text = monitoring_crd(kind).expect("the operator's definitions");
        let crd: Value = dormer_profile::yaml::from_str(&text).expect("a definition");
        let params = PatchParams::apply("test").force();
        let api: Api<DynamicObject> = Api::all_with(
            world.admin.clone(),
            &ApiResource::from_gvk(&GroupVersionKind::gvk(
                "apiextensions.k8s.io",
                "v1",
                "CustomResourceDefinition",
            )),
        );
        let name = format!("{kind}.monitoring.coreos.com");
        api.patch(&name, &params, &Patch::Apply(&crd))
            .await
            .expect("it is made");
    }
    await_some("the operator's kinds", PATIENCE, || async {
        let group = discovery::group(&world.admin, "monitoring.coreos.com").await;
        let served = group.ok()?.versioned_resources("v1").len();
        (served >= MONITORING.len()).then_some(())
    })
    .await;
}

/// Makes the kind of links in OpenShift's console, and waits until the API server serves it.
async fn console_link_kind(world: &World, crd: &str) {
    world.define(crd).await;
    let link = GroupVersionKind::gvk("console.openshift.io", "v1", "ConsoleLink");
    await_some("the kind of links", PATIENCE, || async {
        let served = discovery::pinned_kind(&world.admin, &link).await;
        served.ok().map(drop)
    })
    .await;
}

/// Has the API server check an object as if it were applied. Nothing is stored.
pub(super) async fn applied_dry(world: &World, object: &Value) -> Result<(), kube::Error> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let said = text(&object["apiVersion"]).expect("a version");
    let (group, version) = said.rsplit_once('/').unwrap_or(("", &said));
    let kind = text(&object["kind"]).expect("a kind");
    let gvk = GroupVersionKind::gvk(group, version, &kind);
    let (resource, _) = discovery::pinned_kind(&world.admin, &gvk).await?;
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(world.admin.clone(), namespace, &resource),
        None => Api::all_with(world.admin.clone(), &resource),
    };
    let params = PatchParams {
        dry_run: true,
        force: true,
        field_manager: Some("test".into()),
        field_validation: Some(ValidationDirective::Strict),
    };
    let name = text(&object["metadata"]["name"]).expect("a name");
    api.patch(&name, &params, &Patch::Apply(object)).await?;
    Ok(())
}

#[tokio::test]
async fn every_object_passes_strict_validation() {
    let helm = started!(Helm::start());
    let site = Site::new(plane!(), "chart").await;
    let home = home(&site);
    site.world.namespace(&home).await;
    // What is applied without effect makes no namespace.
    site.world.namespace(&format!("{home}-join")).await;
    site.world.namespace("dormer-canary").await;
    monitoring_kinds(&site.world).await;
    match openshift_crd(CONSOLE_LINKS) {
        Ok(crd) => console_link_kind(&site.world, &crd).await,
        Err(skipped) => skip!(skipped),
    }
    for (variant, arguments) in VARIANTS {
        let text = rendered(&helm, &home, arguments).replace(
            "namespace: openshift-machine-api",
            &format!("namespace: {}", site.machines),
        );
        let all = objects(&text);
        assert!(all.len() > 20, "{variant}: {}", all.len());
        for object in &all {
            let done = applied_dry(&site.world, object).await;
            done.unwrap_or_else(|error| panic!("{variant}: {error}: {object}"));
        }
    }
    for file in MANIFESTS {
        let text = file
            .replace("namespace: dormer\n", &format!("namespace: {home}\n"))
            .replace(
                "namespace: dormer-join\n",
                &format!("namespace: {home}-join\n"),
            );
        for mut object in objects(&text) {
            let kind = object["kind"].as_str().unwrap_or_default();
            if ["PrometheusRule", "WindowsHost", "WindowsPool"].contains(&kind) {
                object["metadata"]["namespace"] = home.as_str().into();
            }
            if object["metadata"]["namespace"] == "openshift-machine-api" {
                object["metadata"]["namespace"] = site.machines.as_str().into();
            }
            let done = applied_dry(&site.world, &object).await;
            done.unwrap_or_else(|error| panic!("{error}: {object}"));
        }
    }
    for mut object in objects_of_page(include_str!("../../docs/backup.md")) {
        object["metadata"]["namespace"] = home.as_str().into();
        // What is applied has a name.
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        if metadata.remove("generateName").is_some() {
            metadata.insert("name".into(), "dormer-backup-1".into());
        }
        let done = applied_dry(&site.world, &object).await;
        done.unwrap_or_else(|error| panic!("docs/backup.md: {error}: {object}"));
    }
    let misspelt = json!({"apiVersion": "v1", "kind": "ConfigMap", "dtaa": {},
        "metadata": {"name": "misspelt", "namespace": home}});
    let refused = applied_dry(&site.world, &misspelt).await;
    assert!(refused.is_err(), "the check finds what is misspelt");
}

#[tokio::test]
async fn pods_pass_the_restricted_pod_security() {
    let helm = started!(Helm::start());
    let site = Site::new(plane!(), "chartpods").await;
    let namespace = format!("{}-restricted", site.name);
    site.world.namespace(&namespace).await;
    let labels = json!({"metadata": {"labels":
        {"pod-security.kubernetes.io/enforce": "restricted"}}});
    site.world
        .patch(("", "v1", "Namespace"), "", &namespace, labels)
        .await;
    let api: Api<DynamicObject> = Api::namespaced_with(
        site.world.admin.clone(),
        &namespace,
        &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod")),
    );
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for (variant, arguments) in VARIANTS {
        for (component, mut spec) in pods(&objects(&rendered(&helm, &namespace, arguments))) {
            // The account is not made here.
            spec["serviceAccountName"] = "default".into();
            // A StatefulSet adds the volumes of its claims.
            if component == "single" {
                let volumes = spec["volumes"].as_array_mut().expect("volumes");
                volumes.push(json!({"name": "store", "emptyDir": {}}));
            }
            let pod = |spec: &Value| -> DynamicObject {
                let pod = json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": component, "namespace": namespace}, "spec": spec});
                serde_json::from_value(pod).expect("a pod")
            };
            let made = api.create(&dry, &pod(&spec)).await;
            made.unwrap_or_else(|error| panic!("{variant}: {component}: {error}"));
            spec["containers"][0]["securityContext"]["capabilities"] = json!({"add": ["NET_RAW"]});
            let refused = api.create(&dry, &pod(&spec)).await;
            let said = refused.expect_err("a capability is refused").to_string();
            assert!(said.contains("PodSecurity"), "{said}");
        }
    }
}

/// A release on a control plane of its own.
struct Release {
    helm: Helm,
    kubeconfig: String,
    world: World,
}

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/chart");

impl Release {
    fn helm(&self, arguments: &[&str]) -> String {
        self.helm
            .run(&self.kubeconfig, arguments)
            .unwrap_or_else(|why| panic!("{arguments:?}: {why}"))
    }

    fn upgrade(&self, values: &[&str]) {
        let mut arguments = vec![
            "upgrade",
            "--install",
            "dormer",
            CHART,
            "--namespace=dormer",
            "--set=platform=upstream",
            "--set=machineNamespace=machines",
        ];
        arguments.extend(values);
        self.helm(&arguments);
    }

    async fn found(
        &self,
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        name: &str,
    ) -> Option<Value> {
        let namespace = match kind {
            "CustomResourceDefinition" | "ClusterRole" => "",
            _ => "dormer",
        };
        self.world
            .get((group, version, kind), namespace, name)
            .await
    }

    async fn pool(&self) -> Option<Value> {
        self.found("dormer.io", "v1beta1", "WindowsPool", "windows")
            .await
    }

    async fn session(&self) -> Value {
        let secret = self.found("", "v1", "Secret", "dormer-session").await;
        secret.expect("the key of sessions")["data"]["key"].clone()
    }
}

#[tokio::test]
async fn a_release_is_installed_upgraded_and_taken_away() {
    let helm = started!(Helm::start());
    let plane: ControlPlane = started!(ControlPlane::start());
    let kubeconfig = plane.kubeconfig(&plane.admin());
    let world = World {
        admin: client(&kubeconfig).await,
    };
    world.namespace("dormer").await;
    world.namespace("machines").await;
    let release = Release {
        helm,
        kubeconfig,
        world,
    };

    release.upgrade(&[]);
    let pool = release.pool().await.expect("the pool is made");
    assert_eq!(pool["spec"]["strategy"]["type"], "Recreate", "{pool}");
    let key = release.session().await;
    assert!(key.as_str().is_some_and(|key| key.len() >= 64), "{key}");
    let set = await_some("the set has its pod", PATIENCE, || async {
        let set = release.found("apps", "v1", "StatefulSet", "dormer").await?;
        (set["status"]["replicas"] == 1).then_some(set)
    });
    set.await;

    // What a person writes beside the values stays.
    let spec = json!({"spec": {"paused": true}});
    let kind = ("dormer.io", "v1beta1", "WindowsPool");
    release.world.patch(kind, "dormer", "windows", spec).await;
    release.upgrade(&["--set=pool.spec.strategy.maxUnavailable=2"]);
    let pool = release.pool().await.expect("the pool stays");
    assert_eq!(pool["spec"]["strategy"]["maxUnavailable"], 2, "{pool}");
    assert_eq!(pool["spec"]["paused"], true, "{pool}");
    assert_eq!(release.session().await, key, "nobody is logged out");

    // To pods for each role, and back.
    release.upgrade(&[
        "--set=mode=split",
        "--set=nats.url=nats://nats:4222,nats.insecure=true",
    ]);
    let worker = release
        .found("apps", "v1", "Deployment", "dormer-worker")
        .await;
    assert!(worker.is_some());
    let single = release.found("apps", "v1", "StatefulSet", "dormer").await;
    assert!(single.is_none());
    release.helm(&["rollback", "dormer", "2", "--namespace=dormer"]);
    let single = release.found("apps", "v1", "StatefulSet", "dormer").await;
    assert!(single.is_some());

    release.helm(&["uninstall", "dormer", "--namespace=dormer"]);
    assert!(release.pool().await.is_some(), "the pool is people's");
    let group = "apiextensions.k8s.io";
    let kind = "CustomResourceDefinition";
    let kept = release
        .found(group, "v1", kind, "windowspools.dormer.io")
        .await;
    assert!(kept.is_some(), "with its kind the pool would go");
    for (group, kind, name) in [
        ("apps", "StatefulSet", "dormer"),
        ("", "Service", "dormer"),
        ("", "Secret", "dormer-session"),
        ("rbac.authorization.k8s.io", "ClusterRole", "dormer-worker"),
        ("", "ServiceAccount", "dormer"),
    ] {
        let left = release.found(group, "v1", kind, name).await;
        assert!(left.is_none(), "{kind} {name} is left: {left:?}");
    }

    // A second install takes over what was kept.
    release.upgrade(&[]);
    let pool = release.pool().await.expect("the pool is there");
    assert_eq!(pool["spec"]["paused"], true, "{pool}");
}
