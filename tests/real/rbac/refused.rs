//! Refusals of everything that is not granted.

use super::rights::{allowed, rights};
use crate::real::{
    accounts::{apply, moved, ours},
    ask::OPERATOR,
    cluster::{Site, client, plane},
};
use serde_json::{Value, json};

/// What no account of dormer may, beside what the others may: namespace (`""`: cluster-wide), group, resource, name, verb.
pub(super) const FORBIDDEN: [(&str, &str, &str, &str, &str); 34] = [
    ("", "*", "*", "", "*"),
    ("", "", "secrets", "", "list"),
    ("", "", "secrets", "", "watch"),
    ("kube-system", "", "secrets", "", "list"),
    (
        "kube-system",
        "",
        "secrets",
        "bootstrap-token-abcdef",
        "get",
    ),
    (OPERATOR, "", "secrets", "another", "get"),
    (OPERATOR, "", "secrets", "node-bootstrapper-token", "update"),
    ("", "", "nodes", "", "create"),
    ("", "", "nodes", "win-1", "delete"),
    ("", "", "nodes", "win-1", "update"),
    ("", "", "nodes/status", "win-1", "patch"),
    ("", "", "nodes/proxy", "win-1", "get"),
    ("default", "", "pods", "", "create"),
    ("default", "", "pods", "p", "patch"),
    ("default", "", "pods", "", "deletecollection"),
    ("default", "", "pods/exec", "p", "create"),
    ("default", "", "pods/log", "p", "get"),
    ("", "", "namespaces", "default", "delete"),
    ("kube-system", "", "configmaps", "", "list"),
    (
        "kube-system",
        "",
        "configmaps",
        "extension-apiserver-authentication",
        "update",
    ),
    ("default", "", "serviceaccounts/token", "default", "create"),
    ("default", "", "serviceaccounts", "default", "impersonate"),
    ("", "", "users", "system:admin", "impersonate"),
    (
        "",
        "certificates.k8s.io",
        "certificatesigningrequests",
        "",
        "create",
    ),
    (
        "",
        "certificates.k8s.io",
        "certificatesigningrequests",
        "c",
        "delete",
    ),
    (
        "",
        "certificates.k8s.io",
        "certificatesigningrequests/status",
        "c",
        "patch",
    ),
    (
        "",
        "certificates.k8s.io",
        "signers",
        "kubernetes.io/kube-apiserver-client",
        "approve",
    ),
    (
        "",
        "certificates.k8s.io",
        "signers",
        "kubernetes.io/kubelet-serving",
        "sign",
    ),
    (
        "openshift-machine-api",
        "machine.openshift.io",
        "machines",
        "m",
        "delete",
    ),
    ("", "machine.openshift.io", "machines", "", "create"),
    ("", "policy", "poddisruptionbudgets", "", "delete"),
    (
        "",
        "rbac.authorization.k8s.io",
        "clusterroles",
        "",
        "escalate",
    ),
    (
        "",
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        "",
        "create",
    ),
    (
        "",
        "config.openshift.io",
        "infrastructures",
        "cluster",
        "patch",
    ),
];

fn asked(one: (&str, &str, &str, &str, &str)) -> Value {
    let (namespace, group, resource, name, verb) = one;
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    json!({"namespace": namespace, "group": group, "resource": resource, "subresource": part,
        "name": name, "verb": verb})
}

#[tokio::test]
async fn what_is_not_granted_is_refused_and_the_engine_may_nothing() {
    let site = Site::new(plane!(), "refused").await;
    // As it is without --machine-tokens, whose role can be no narrower than its namespace.
    apply(&site, |role, _| role != "dormer-approver-tokens").await;
    let mut clients = Vec::new();
    for account in [
        "dormer-watcher",
        "dormer-worker",
        "dormer-engine",
        "dormer-console",
        "dormer-approver",
    ] {
        clients.push((
            account,
            client(&site.plane.kubeconfig(&ours(&site, account).await)).await,
        ));
    }
    for (account, client) in &clients {
        for one in FORBIDDEN {
            // The console's condition on Nodes, and nothing else there.
            if *account == "dormer-console" && one.2 == "nodes/status" {
                continue;
            }
            assert!(!allowed(client, &asked(one)).await, "{account} may {one:?}");
        }
    }
    // The watcher writes to nothing that it watches, and the worker lists no more than pods and Machines.
    for one in [
        (
            "refused-machines",
            "machine.openshift.io",
            "machines",
            "m",
            "patch",
        ),
        ("", "", "nodes", "n", "patch"),
        ("", "", "pods", "", "list"),
    ] {
        assert!(
            !allowed(&clients[0].1, &asked(one)).await,
            "the watcher may {one:?}"
        );
        assert!(
            allowed(&clients[1].1, &asked(one)).await,
            "the worker may not {one:?}"
        );
    }
    for one in [
        (
            "refused-machines",
            "machine.openshift.io",
            "machinesets",
            "",
            "list",
        ),
        (
            "refused-home",
            "",
            "configmaps",
            "dormer-pool-windows",
            "list",
        ),
    ] {
        assert!(
            allowed(&clients[0].1, &asked(one)).await,
            "the watcher may not {one:?}"
        );
        assert!(
            !allowed(&clients[1].1, &asked(one)).await,
            "the worker may {one:?}"
        );
    }
    // What approves is apart from what talks to hosts.
    for one in [
        (
            "",
            "certificates.k8s.io",
            "certificatesigningrequests/approval",
            "c",
            "patch",
        ),
        (
            "",
            "certificates.k8s.io",
            "signers",
            "kubernetes.io/kubelet-serving",
            "approve",
        ),
        (OPERATOR, "", "secrets", "node-bootstrapper-token", "get"),
        ("refused-home-join", "", "secrets", "", "list"),
        (
            "refused-machines",
            "machine.openshift.io",
            "machines",
            "",
            "list",
        ),
    ] {
        assert!(
            !allowed(&clients[1].1, &asked(one)).await,
            "the worker may {one:?}"
        );
        assert!(
            allowed(&clients[4].1, &asked(one)).await,
            "the approver may not {one:?}"
        );
    }
    for one in [
        ("", "", "pods", "", "list"),
        ("default", "", "pods/eviction", "p", "create"),
        ("", "", "nodes", "n", "patch"),
        (
            "refused-machines",
            "machine.openshift.io",
            "machines",
            "m",
            "patch",
        ),
        ("refused-home", "", "secrets", "cloud-private-key", "get"),
    ] {
        assert!(
            !allowed(&clients[4].1, &asked(one)).await,
            "the approver may {one:?}"
        );
        assert!(
            allowed(&clients[1].1, &asked(one)).await,
            "the worker may not {one:?}"
        );
    }
    let all = rights().into_iter();
    let of_console: Vec<_> = all
        .filter(|right| right.role.starts_with("dormer-console"))
        .collect();
    for right in rights() {
        let namespace = right.namespace.clone().unwrap_or_default();
        let name = right.name.clone().unwrap_or_default();
        let attributes = asked((
            &namespace,
            &right.group,
            &right.resource,
            &name,
            &right.verb,
        ));
        assert!(
            !allowed(&clients[2].1, &attributes).await,
            "the engine may {right:?}"
        );
        let consoles = right.role.starts_with("dormer-console");
        // Some of it others may, too.
        let shared = of_console.iter().any(|own| own.gives(&right));
        if !shared && right.resource != "events" {
            assert!(
                !allowed(&clients[3].1, &attributes).await,
                "the console may {right:?}"
            );
        }
        if consoles {
            let namespace = right.namespace.as_deref().map(|name| moved(&site, name));
            let attributes = asked((
                &namespace.unwrap_or_default(),
                &right.group,
                &right.resource,
                &name,
                &right.verb,
            ));
            assert!(
                allowed(&clients[3].1, &attributes).await,
                "the console may not {right:?}"
            );
        }
    }
}
