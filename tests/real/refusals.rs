//! Evictions refused for other reasons than a budget: each reason is reported, and holds no other pod.

use super::{
    accounts::worker,
    cluster::{Kind, PATIENCE, POD, Site, evict, open, plane, run},
};
use dormer_proto::machine::{MachineRef, Outcome};
use dormer_testkit::await_condition;
use dormer_workers::kubernetes::KubernetesExecutor;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{EvictParams, PostParams},
};
use serde_json::{Value, json};

const NAMESPACE: Kind = ("", "v1", "Namespace");
const POLICY: Kind = (
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
);
const BINDING: Kind = (
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
);

/// One pass: how many were evicted, how many are left, and what is in the way.
async fn pass(executor: &KubernetesExecutor, machine: &MachineRef) -> (u32, u32, Vec<String>) {
    let outcome = run(executor, evict(machine, 1, false)).await;
    let Ok(Outcome::Evicted {
        evicted,
        left,
        blockers,
        ..
    }) = outcome
    else {
        panic!("no pass: {outcome:?}")
    };
    (
        evicted,
        left,
        blockers
            .into_iter()
            .map(|b| format!("{}: {}", b.pod, b.why))
            .collect(),
    )
}

async fn opened(site: &Site) -> (KubernetesExecutor, MachineRef) {
    let executor = worker(site).await;
    let machine = site.joined("win-1").await;
    run(&executor, open(&machine, 1)).await.expect("it opens");
    (executor, machine)
}

/// A rule of the cluster's own about one kind of request in one namespace.
async fn policy(site: &Site, name: &str, namespace: &str, what: (&str, &str), rule: &str) {
    let (operation, resource) = what;
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation],
        "resources": [resource], "scope": "Namespaced"}]);
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    let constraints = json!({"resourceRules": rules, "namespaceSelector": here});
    site.world
        .create(
            json!({"apiVersion": format!("{}/{}", POLICY.0, POLICY.1), "kind": POLICY.2,
            "metadata": {"name": name}, "spec": {"failurePolicy": "Fail",
                "matchConstraints": constraints,
                "validations": [{"expression": rule, "message": "not before Monday"}]}}),
        )
        .await;
    site.world
        .create(
            json!({"apiVersion": format!("{}/{}", BINDING.0, BINDING.1), "kind": BINDING.2,
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]}}),
        )
        .await;
}

/// What the API server would say to an eviction; empty where it would carry it out.
async fn would_say(site: &Site, namespace: &str, pod: &str) -> String {
    let api: Api<Pod> = Api::namespaced(site.world.admin.clone(), namespace);
    let post_options = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let params = EvictParams {
        post_options,
        ..EvictParams::default()
    };
    api.evict(pod, &params)
        .await
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default()
}

#[tokio::test]
async fn a_policy_of_the_cluster_holds_its_pod_with_its_own_words() {
    let site = Site::new(plane!(), "policy").await;
    let (executor, m) = opened(&site).await;
    for name in ["a", "guarded", "z"] {
        site.pod(&m, name, json!({})).await;
    }
    let rule = "request.name != 'guarded'";
    policy(
        &site,
        "policy-guard",
        site.name,
        ("CREATE", "pods/eviction"),
        rule,
    )
    .await;
    await_condition("the policy holds", PATIENCE, || async {
        would_say(&site, site.name, "guarded")
            .await
            .contains("not before Monday")
    })
    .await;
    let (evicted, left, blockers) = pass(&executor, &m).await;
    assert_eq!((evicted, left, blockers.len()), (2, 3, 1), "{blockers:?}");
    let says = "policy/guarded: the API server refuses: ";
    assert!(blockers[0].starts_with(says), "{blockers:?}");
    assert!(
        blockers[0].contains("'policy-guard'"),
        "it names the policy: {blockers:?}"
    );
    assert!(blockers[0].contains("not before Monday"), "{blockers:?}");
    site.world.delete(BINDING, "", "policy-guard").await;
    site.world.delete(POLICY, "", "policy-guard").await;
    await_condition("the policy is gone", PATIENCE, || async {
        would_say(&site, site.name, "guarded").await.is_empty()
    })
    .await;
    assert_eq!(pass(&executor, &m).await, (1, 1, vec![]));
    assert_eq!(pass(&executor, &m).await, (0, 0, vec![]));
}

/// A namespace ends, and something keeps the namespace controller from deleting a pod in it.
#[tokio::test]
async fn a_namespace_that_ends_takes_no_eviction_and_is_named() {
    let site = Site::new(plane!(), "terminate").await;
    let (executor, m) = opened(&site).await;
    let ends = "terminate-soon";
    site.world.namespace(ends).await;
    site.pod(&m, "other", json!({})).await;
    pod_in(&site, &m, ends, "stuck").await;
    policy(&site, "terminate-guard", ends, ("DELETE", "pods"), "false").await;
    let api: Api<Pod> = Api::namespaced(site.world.admin.clone(), ends);
    let dry = kube::api::DeleteParams {
        dry_run: true,
        ..Default::default()
    };
    await_condition("the policy holds", PATIENCE, || async {
        let said = api
            .delete("stuck", &dry)
            .await
            .err()
            .map(|error| error.to_string());
        said.is_some_and(|said| said.contains("not before Monday"))
    })
    .await;
    site.world.delete(NAMESPACE, "", ends).await;
    await_condition("the namespace ends", PATIENCE, || async {
        would_say(&site, ends, "stuck")
            .await
            .contains("being terminated")
    })
    .await;
    let (evicted, left, blockers) = pass(&executor, &m).await;
    assert_eq!(
        (evicted, left),
        (1, 2),
        "the other goes all the same: {blockers:?}"
    );
    let says = "terminate-soon/stuck: its namespace is being deleted and takes no eviction: it goes with the namespace";
    assert_eq!(blockers, [says]);
    site.world.delete(BINDING, "", "terminate-guard").await;
    site.world.delete(POLICY, "", "terminate-guard").await;
    await_condition("the namespace is gone", PATIENCE * 2, || async {
        site.world.get(NAMESPACE, "", ends).await.is_none()
    })
    .await;
    assert_eq!(pass(&executor, &m).await, (0, 0, vec![]));
}

/// A pod on the Machine's Node that runs, in another namespace than the test's.
async fn pod_in(site: &Site, machine: &MachineRef, namespace: &str, name: &str) {
    let pod: Value = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": machine.name, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}], "tolerations": [{"operator": "Exists"}]}});
    site.world.create(pod).await;
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let status = json!({"phase": "Running", "conditions": ready});
    site.world.status(POD, namespace, name, status).await;
}

/// A role without the right to evict: the pod stays, and who may not do what is said.
#[tokio::test]
async fn without_the_right_to_evict_the_pods_stay_and_the_right_is_named() {
    let site = Site::new(plane!(), "noright").await;
    super::accounts::apply(&site, |role, rule| {
        let evicts = rule["resources"] == json!(["pods/eviction"]);
        !(role == "dormer-worker" && evicts)
    })
    .await;
    let account = super::accounts::ours(&site, "dormer-worker").await;
    super::watching::settings(&site, json!({})).await;
    let executor =
        super::cluster::executor(site.client(&account).await, super::accounts::home(&site));
    let m = site.joined("win-1").await;
    run(&executor, open(&m, 1)).await.expect("it opens");
    site.pod(&m, "a", json!({})).await;
    let (evicted, left, blockers) = pass(&executor, &m).await;
    assert_eq!((evicted, left), (0, 1));
    let says = "noright/a: the cluster's rules do not let dormer move it: ";
    assert!(
        blockers[0].starts_with(says) && blockers[0].contains("pods/eviction"),
        "{blockers:?}"
    );
}
