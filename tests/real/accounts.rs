//! dormer's accounts from `deploy/rbac.yaml`, `deploy/machine-tokens.yaml`, `deploy/account-tokens.yaml` and
//! `deploy/guard.yaml`, created for each test under its own names.

use super::{
    cluster::{Site, World, executor},
    watching::settings,
};
use dormer_profile::yaml;
use dormer_testkit::{Helm, Speaker};
use dormer_workers::kubernetes::KubernetesExecutor;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

/// The manifests as they are shipped.
const MANIFESTS: [&str; 4] = [
    include_str!("../../deploy/rbac.yaml"),
    include_str!("../../deploy/canary.yaml"),
    include_str!("../../deploy/machine-tokens.yaml"),
    include_str!("../../deploy/account-tokens.yaml"),
];
/// The account of Azure's cloud-node-managers, as shipped.
const CLOUD_NODES: &str = include_str!("../../deploy/cloud-nodes.yaml");
/// What the API server holds the accounts to, as shipped.
const GUARD: &str = include_str!("../../deploy/guard.yaml");

/// The objects of the manifests.
pub(crate) fn shipped() -> Vec<Value> {
    MANIFESTS
        .into_iter()
        .flat_map(|text| yaml::documents(text).expect("objects"))
        .collect()
}

/// The namespaces that the test's copy of the manifest has instead of `dormer` and `openshift-machine-api`. The others
/// are the cluster's, and shared.
pub(crate) fn moved(site: &Site, namespace: &str) -> String {
    match namespace {
        "dormer" => home(site),
        "dormer-join" => format!("{}-join", home(site)),
        "dormer-canary" => canaries(site),
        "openshift-machine-api" => site.machines.clone(),
        other => other.to_owned(),
    }
}

/// The test's stand-in for the namespace `dormer-canary`, which a person makes.
pub(crate) fn canaries(site: &Site) -> String {
    format!("{}-canary", home(site))
}

/// The test's stand-in for the namespace `dormer`.
pub(crate) fn home(site: &Site) -> String {
    format!("{}-home", site.name)
}

/// Applies the admission policies under the test's names, so that they hold the test's accounts.
pub(crate) async fn guard(site: &Site) {
    let home = home(site);
    let text = GUARD
        .replace(
            "system:serviceaccount:dormer:",
            &format!("system:serviceaccount:{home}:"),
        )
        .replace(
            "instance\"].orValue(\"\") == \"dormer\"",
            &format!("instance\"].orValue(\"\") == \"{home}\""),
        )
        .replace(
            "request.namespace == \"dormer\"",
            &format!("request.namespace == \"{home}\""),
        )
        .replace(
            "system:serviceaccount:dormer-join:",
            &format!("system:serviceaccount:{home}-join:"),
        )
        .replace("\"dormer-join\"", &format!("\"{home}-join\""))
        .replace("dormer-guard-", &format!("{}-guard-", site.name));
    for object in yaml::documents(&text).expect("policies") {
        site.world.create(object).await;
    }
}

/// Applies the account of cloud-node-managers, its rights and its policy under the test's names.
pub(crate) async fn cloud_nodes(site: &Site) {
    let home = home(site);
    let text = CLOUD_NODES
        .replace(
            "system:serviceaccount:dormer:",
            &format!("system:serviceaccount:{home}:"),
        )
        .replace("dormer-guard-", &format!("{}-guard-", site.name));
    for mut object in yaml::documents(&text).expect("objects") {
        if object["kind"] == "ClusterRole" || object["kind"] == "ClusterRoleBinding" {
            let name = object["metadata"]["name"].as_str().expect("a name");
            let name = format!("{}-{name}", site.name);
            object["metadata"]["name"] = name.into();
        }
        if let Some(named) = object["roleRef"]["name"].as_str().map(str::to_owned) {
            object["roleRef"]["name"] = format!("{}-{named}", site.name).into();
        }
        if object["metadata"]["namespace"].is_string() {
            object["metadata"]["namespace"] = home.clone().into();
        }
        for subject in object["subjects"].as_array_mut().into_iter().flatten() {
            subject["namespace"] = home.clone().into();
        }
        site.world.create(object).await;
    }
}

/// Applies the manifests with the admission policies under the test's names, each rule altered by `alter`, which answers
/// whether it stays.
pub(crate) async fn apply(site: &Site, alter: impl Fn(&str, &mut Value) -> bool) {
    unguarded(site, alter).await;
    guard(site).await;
}

/// The same without the admission policies.
pub(crate) async fn unguarded(site: &Site, alter: impl Fn(&str, &mut Value) -> bool) {
    site.world.namespace(&canaries(site)).await;
    for mut object in shipped() {
        let kind = object["kind"].as_str().expect("a kind").to_owned();
        if kind == "Namespace" {
            let name = object["metadata"]["name"].as_str().expect("a name");
            site.world.namespace(&moved(site, name)).await;
            continue;
        }
        let role = object["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            object["metadata"]["namespace"] = moved(site, namespace).into();
        }
        if let Some(rules) = object["rules"].as_array_mut() {
            rules.retain_mut(|rule| alter(&role, rule));
        }
        if kind != "ServiceAccount" {
            object["metadata"]["name"] = format!("{}-{role}", site.name).into();
        }
        if let Some(named) = object["roleRef"]["name"].as_str()
            && !named.starts_with("system:")
        {
            object["roleRef"]["name"] = format!("{}-{named}", site.name).into();
        }
        for subject in object["subjects"].as_array_mut().into_iter().flatten() {
            if subject["kind"] != "ServiceAccount" {
                continue;
            }
            let namespace = subject["namespace"].as_str().expect("a namespace");
            subject["namespace"] = moved(site, namespace).into();
        }
        site.world.create(object).await;
    }
}

/// The account of `mode: single`, with the rights of all roles, and its kubeconfig.
pub(crate) async fn alone(site: &Site) -> String {
    let home = home(site);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "dormer", "namespace": home}});
    site.world.create(account).await;
    let bindings = shipped().into_iter().filter(|object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        kind.ends_with("RoleBinding") && object["subjects"][0]["namespace"] == "dormer"
    });
    for mut binding in bindings {
        for field in ["metadata", "roleRef"] {
            let name = binding[field]["name"].as_str().expect("a name");
            let beside = if field == "metadata" { "-alone" } else { "" };
            binding[field]["name"] = format!("{}-{name}{beside}", site.name).into();
        }
        if let Some(namespace) = binding["metadata"]["namespace"].as_str() {
            binding["metadata"]["namespace"] = moved(site, namespace).into();
        }
        binding["subjects"] =
            json!([{"kind": "ServiceAccount", "name": "dormer", "namespace": home}]);
        site.world.create(binding).await;
    }
    site.plane.kubeconfig(&ours(site, "dormer").await)
}

/// Accounts, rights and policies as the chart renders them for plain Kubernetes, in the test's own namespaces: BYOH hosts,
/// machines of Cluster API, and a bootstrap token for each machine.
pub(crate) async fn plain(site: &Site, helm: &Helm) {
    let values = format!(
        "--set=platform=upstream,ownHosts=true,clusterApiNamespace={},\
         join.apiUrl=https://api.example:6443,join.serviceCidr=10.96.0.0/16",
        site.machines
    );
    of_chart(site, helm, &values, &["rbac", "machine-tokens", "guard"]).await;
}

/// The same for OpenShift with BYOH hosts, and machines of Cluster API in this namespace.
pub(crate) async fn every_kind(site: &Site, helm: &Helm, cluster_machines: &str) {
    let values = format!(
        "--set=platform=openshift,ownHosts=true,join.accountTokens=false,machineNamespace={},\
         clusterApiNamespace={cluster_machines}",
        site.machines
    );
    of_chart(site, helm, &values, &["rbac", "cloud-nodes", "guard"]).await;
}

/// Templates of the chart with these values, in the test's own namespaces.
async fn of_chart(site: &Site, helm: &Helm, values: &str, templates: &[&str]) {
    let shown = templates.iter();
    let shown: Vec<String> = shown
        .map(|name| format!("--show-only=templates/{name}.yaml"))
        .collect();
    let mut arguments: Vec<&str> = shown.iter().map(String::as_str).collect();
    // A part that is shown alone does not need the values of the others, but Helm renders all of them.
    arguments.extend([values, "--set=mode=split", "--set=namespace.create=true"]);
    let text = crate::chart::rendered(helm, &home(site), &arguments);
    let mut objects = crate::chart::objects(&text);
    objects.sort_by_key(|object| object["kind"] != "Namespace");
    for object in objects {
        if object["kind"] == "Namespace" {
            let name = object["metadata"]["name"].as_str().expect("a name");
            site.world.namespace(name).await;
        } else {
            site.world.create(object).await;
        }
    }
}

pub(crate) async fn token(site: &Site, namespace: &str, account: &str) -> Speaker {
    Speaker::Token(granted(&site.world, namespace, account).await)
}

/// The same as a text.
pub(crate) async fn granted(world: &World, namespace: &str, account: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(world.admin.clone(), namespace);
    let spec = TokenRequestSpec::default();
    let wish = TokenRequest {
        spec,
        ..TokenRequest::default()
    };
    let given = accounts
        .create_token_request(account, &PostParams::default(), &wish)
        .await;
    given.expect("a token").status.expect("a status").token
}

/// One of dormer's accounts.
pub(crate) async fn ours(site: &Site, account: &str) -> Speaker {
    token(site, &home(site), account).await
}

/// The executor of a worker under its account and the rules as they are shipped.
pub(crate) async fn worker(site: &Site) -> KubernetesExecutor {
    apply(site, |_, _| true).await;
    // Without a pool nothing is taken away.
    settings(site, json!({})).await;
    worker_beside(site).await
}

/// The same where the rules are there already.
pub(crate) async fn worker_beside(site: &Site) -> KubernetesExecutor {
    let client = site.client(&ours(site, "dormer-worker").await).await;
    executor(client, home(site)).of_worker()
}

/// The executor of an approver under its account and the rules as they are shipped.
pub(crate) async fn approver(site: &Site) -> KubernetesExecutor {
    apply(site, |_, _| true).await;
    let client = site.client(&ours(site, "dormer-approver").await).await;
    executor(client, home(site)).of_approver()
}
