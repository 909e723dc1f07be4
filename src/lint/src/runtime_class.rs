//! Rules for RuntimeClasses, by which pods find Windows nodes.

use crate::{
    common::{Site, nearest, unknown},
    documents::Object,
    finding::Finding,
    workload,
};
use dormer_profile::yaml_tree::Node;
use dormer_support::version::DOCKER;

/// Handler of containerd on Windows.
const HANDLER: &str = "runhcs-wcow-process";

pub(crate) fn check(object: &Object<'_>, site: &Site<'_>, found: &mut Vec<Finding>) {
    let root = &object.root;
    if let Some(version) = root
        .get("apiVersion")
        .filter(|_| object.api_version != "node.k8s.io/v1")
    {
        let message = format!("`{}` is served no more", object.api_version);
        let finding = Finding::new("api-version", version.position, message);
        found.push(
            finding
                .mend("write `apiVersion: node.k8s.io/v1`")
                .replace(version.position, "node.k8s.io/v1"),
        );
    }
    let known = [
        "apiVersion",
        "kind",
        "metadata",
        "handler",
        "scheduling",
        "overhead",
    ];
    unknown(root, &known, "a RuntimeClass", found);
    let scheduling = root.get("scheduling");
    if let Some(scheduling) = scheduling {
        unknown(
            scheduling,
            &["nodeSelector", "tolerations"],
            "`scheduling`",
            found,
        );
    }
    let selector = scheduling.and_then(|it| it.get("nodeSelector"));
    workload::selector(selector, found);
    let tolerations = scheduling.and_then(|it| it.get("tolerations"));
    workload::tolerations(tolerations, site, found);
    let handler = root.get("handler");
    let is_docker = handler.and_then(Node::text) == Some("docker");
    if let Some(handler) = handler.filter(|_| is_docker) {
        let finding = Finding::new(
            "runtime-handler",
            handler.position,
            "the handler is `docker`",
        );
        let mend = format!("write `handler: {HANDLER}`. {DOCKER}");
        found.push(finding.mend(mend).replace(handler.position, HANDLER));
    }
    let is_windows = selector.is_some_and(workload::wants_windows);
    if is_windows && !workload::tolerates(tolerations) {
        let place = nearest(root, &["scheduling", "tolerations"]);
        let message = "the class selects Windows nodes, and does not tolerate their taint";
        found.push(Finding::new("windows-toleration", place, message));
    }
}
