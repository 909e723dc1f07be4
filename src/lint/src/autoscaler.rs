//! Rules for autoscalers: bounds, target, what a set of size 0 cannot say, and how long a machine may take.

use crate::{
    common::{Site, filled, is_there, nearest, seconds},
    documents::Object,
    finding::Finding,
    machine_set,
};
use dormer_profile::yaml_tree::Node;

/// Shortest time to provision: as long as a MachineHealthCheck has to wait.
const PROVISION_MIN: u64 = 30 * 60;
/// What the autoscaler takes where nothing is set, in seconds.
const PROVISION_DEFAULT: u64 = 15 * 60;
/// Annotations from which the autoscaler knows a machine that does not exist yet.
const SIZES: [&str; 2] = ["machine.openshift.io/vCPU", "machine.openshift.io/memoryMb"];
/// Annotation with the labels that its nodes will have.
const LABELS: &str = "capacity.cluster-autoscaler.kubernetes.io/labels";

pub(crate) fn check(object: &Object<'_>, site: &Site<'_>, found: &mut Vec<Finding>) {
    let root = &object.root;
    let number = |key: &str| root.at(&["spec", key]).and_then(Node::number);
    let target = root.at(&["spec", "scaleTargetRef"]);
    if let Some(target) = target {
        for (key, wanted) in [
            ("apiVersion", "machine.openshift.io/v1beta1"),
            ("kind", "MachineSet"),
        ] {
            if let Some((is, place)) = filled(target, &[key]).filter(|(is, _)| *is != wanted) {
                let finding =
                    Finding::new("autoscaler-target", place, format!("`{key}` is `{is}`"));
                found.push(
                    finding
                        .mend(format!("write `{key}: {wanted}`"))
                        .replace(place, wanted),
                );
            }
        }
    } else {
        let place = nearest(root, &["spec"]);
        found.push(Finding::new(
            "autoscaler-target",
            place,
            "no `scaleTargetRef` names a MachineSet",
        ));
    }
    if let (Some(least), Some(most)) = (number("minReplicas"), number("maxReplicas"))
        && most < least
    {
        let place = nearest(root, &["spec", "maxReplicas"]);
        found.push(Finding::new(
            "autoscaler-range",
            place,
            format!("at most {most}, and at least {least}"),
        ));
    }
    if number("minReplicas") == Some(0) {
        from_zero(root, target, site, found);
    }
}

/// Rules for the ClusterAutoscaler.
pub(crate) fn of_cluster(object: &Object<'_>, found: &mut Vec<Finding>) {
    let root = &object.root;
    let node = root.at(&["spec", "maxNodeProvisionTime"]);
    let time = node.map_or(Some(PROVISION_DEFAULT), |it| it.text().and_then(seconds));
    let Some(time) = time.filter(|time| *time < PROVISION_MIN) else {
        return;
    };
    let place = node.map_or_else(|| nearest(root, &["spec"]), |it| it.position);
    let said = node.map_or("no `maxNodeProvisionTime` is set: ", |_| "");
    let minutes = time / 60;
    let message = format!(
        "{said}a Machine without a Node is deleted after {minutes} minutes, and its set is made smaller"
    );
    let finding = Finding::new("provision-time", place, message);
    found.push(match node {
        Some(node) => finding.replace(node.position, "40m"),
        None => finding,
    });
}

fn from_zero(root: &Node, target: Option<&Node>, site: &Site<'_>, found: &mut Vec<Finding>) {
    let Some(name) = target.and_then(|it| it.get("name")).and_then(Node::text) else {
        return;
    };
    let set = site
        .objects
        .iter()
        .find(|it| it.kind == "MachineSet" && it.name() == Some(name));
    let place = nearest(root, &["spec", "minReplicas"]);
    let Some(set) = set else {
        if name.split(['-', '.']).any(|part| part.starts_with("win")) {
            let message =
                format!("the MachineSet `{name}` may shrink to 0, and is not among what is linted");
            let finding = Finding::new("scale-from-zero", place, message);
            found.push(
                finding.mend("lint its MachineSet in the same file, or beside this one with cat"),
            );
        }
        return;
    };
    if !machine_set::is_windows(set) {
        return;
    }
    let annotations = set.root.at(&["metadata", "annotations"]);
    let text = |key: &str| annotations.and_then(|it| it.get(key)).and_then(Node::text);
    let mut missing: Vec<String> = SIZES
        .iter()
        .filter(|key| !is_there(annotations.and_then(|it| it.get(key))))
        .map(|key| (*key).to_owned())
        .collect();
    if !text(LABELS).is_some_and(|it| it.contains("kubernetes.io/os=windows")) {
        missing.push(format!("{LABELS}: kubernetes.io/os=windows"));
    }
    if !missing.is_empty() {
        let message = format!(
            "the MachineSet `{name}` may shrink to 0, and lacks {}",
            missing.join(", ")
        );
        found.push(Finding::new("scale-from-zero", place, message));
    }
}
