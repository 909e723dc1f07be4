//! Rule for the type of common fields: numbers and booleans in quotes, units where a number stands, labels that are no
//! text.

use crate::{common::Site, documents::Object, finding::Edit, finding::Finding, paste};
use dormer_profile::yaml_tree::{Node, Value};

/// Kinds whose fields are those below. Others may give the same names another meaning.
const KINDS: [&str; 11] = [
    "CronJob",
    "DaemonSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "Job",
    "MachineAutoscaler",
    "MachineSet",
    "Pod",
    "ReplicaSet",
    "Service",
    "StatefulSet",
];
/// Fields that are whole numbers.
const NUMBERS: [&str; 31] = [
    "activeDeadlineSeconds",
    "backoffLimit",
    "completions",
    "containerPort",
    "deviceIndex",
    "diskGiB",
    "diskSizeGB",
    "failureThreshold",
    "hostPort",
    "initialDelaySeconds",
    "iops",
    "maxReplicas",
    "memoryMiB",
    "minReadySeconds",
    "minReplicas",
    "nodePort",
    "numCPUs",
    "numCoresPerSocket",
    "parallelism",
    "periodSeconds",
    "progressDeadlineSeconds",
    "replicas",
    "revisionHistoryLimit",
    "sizeGb",
    "successThreshold",
    "terminationGracePeriodSeconds",
    "timeoutSeconds",
    "tolerationSeconds",
    "ttlSecondsAfterFinished",
    "vcpuSockets",
    "volumeSize",
];
/// Fields that are `true` or `false`.
const BOOLEANS: [&str; 16] = [
    "allowPrivilegeEscalation",
    "autoDelete",
    "automountServiceAccountToken",
    "boot",
    "enableServiceLinks",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostProcess",
    "paused",
    "privileged",
    "publicIP",
    "readOnly",
    "readOnlyRootFilesystem",
    "suspend",
    "tty",
];
/// Maps whose values are texts.
const TEXTS: [&str; 4] = ["annotations", "labels", "matchLabels", "nodeSelector"];

pub(crate) fn check(object: &Object<'_>, site: &Site<'_>, found: &mut Vec<Finding>) {
    if KINDS.contains(&object.kind.as_str()) {
        walk(&object.root, site, found);
    }
}

fn walk(node: &Node, site: &Site<'_>, found: &mut Vec<Finding>) {
    for (key, value) in node.entries() {
        let name = key.name.as_str();
        if TEXTS.contains(&name) {
            for (key, value) in value.entries() {
                text(&key.name, value, site, found);
            }
        } else if name == "env" {
            for value in value.elements().iter().filter_map(|it| it.get("value")) {
                text("value", value, site, found);
            }
        } else if NUMBERS.contains(&name) {
            number(name, value, found);
        } else if BOOLEANS.contains(&name) {
            boolean(name, value, found);
        } else {
            walk(value, site, found);
        }
    }
    for element in node.elements() {
        walk(element, site, found);
    }
}

fn number(name: &str, value: &Node, found: &mut Vec<Finding>) {
    let is = match &value.value {
        Value::Text(is) if !is.is_empty() && !paste::has_placeholder(is) => is,
        _ => return,
    };
    let message = format!("`{name}` is the text `{is}`, and has to be a whole number");
    let finding = Finding::new("field-type", value.position, message);
    // The fields of disks count in GiB.
    let digits = is.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &is[digits.len()..];
    let plain = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    let right = plain && matches!(unit, "" | "G" | "GB" | "Gi" | "GiB");
    found.push(match right {
        true => finding
            .mend(format!("write `{name}: {digits}`"))
            .replace(value.position, digits),
        false => finding.mend("write digits alone, with neither quotes nor a unit"),
    });
}

fn boolean(name: &str, value: &Node, found: &mut Vec<Finding>) {
    let is = match &value.value {
        Value::Text(is) if !is.is_empty() && !paste::has_placeholder(is) => is,
        _ => return,
    };
    let message = format!("`{name}` is the text `{is}`, and has to be true or false");
    let finding = Finding::new("field-type", value.position, message);
    let right = match is.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Some("true"),
        "false" | "no" | "off" => Some("false"),
        _ => None,
    };
    found.push(match right {
        Some(right) => finding
            .mend(format!("write `{name}: {right}`, without quotes"))
            .replace(value.position, right),
        None => finding.mend("write true or false, without quotes"),
    });
}

fn text(name: &str, value: &Node, site: &Site<'_>, found: &mut Vec<Finding>) {
    let what = match &value.value {
        Value::Number(_) => "a number",
        Value::Bool(_) => "true or false",
        Value::Null | Value::Text(_) | Value::List(_) | Value::Map(_) => return,
    };
    // As the person wrote it: 1.10 is no 1.1.
    let start = value.position.start;
    let end = start + value.position.len;
    let written = site.text.get(start..end).unwrap_or_default();
    let message = format!("`{name}` is {what} (`{written}`), and has to be a text");
    let finding = Finding::new("field-type", value.position, message);
    let edit = (!written.is_empty()).then(|| Edit {
        start,
        end,
        text: format!("\"{written}\""),
    });
    found.push(
        finding
            .mend(format!("write `{name}: \"{written}\"`, with quotes"))
            .edit(edit),
    );
}
