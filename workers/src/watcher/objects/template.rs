//! Fields of a Machine that the template of its MachineSet has otherwise.
//!
//! A MachineSet's controller changes no Machine that exists: a changed template reaches the Machines that are made
//! afterwards (docs/field-notes.md, Machines of OpenShift). Cluster API replaces the Machines of a MachineDeployment by
//! itself, and says on the condition `UpToDate` which of them are older.

use dormer_proto::{
    machine::{MachineApi, TemplateDifference},
    message::cut,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Most differences that a fact names.
const DIFFERENCES_MAX: usize = 8;
/// Most fields of an object that are compared.
const FIELDS_MAX: usize = 512;
/// Longest value, in bytes: a longer one is cut.
const VALUE_BYTES_MAX: usize = 120;
/// Parts of a Machine API's spec that make the machine and its Node. The rest (`providerID`, `lifecycleHooks`) belongs to
/// one Machine.
const OPENSHIFT: [&str; 3] = ["providerSpec", "metadata", "taints"];
/// Parts that Cluster API copies unchanged from a template. It clones `infrastructureRef` and the bootstrap
/// configuration under new names, and changes the rest in place.
const CLUSTER: [&str; 1] = ["version"];
/// Fields of a providerSpec that name its type and nothing of the machine: the webhooks rewrite them.
const TYPE_OF_PROVIDER: [&str; 3] = [
    "spec.providerSpec.value.apiVersion",
    "spec.providerSpec.value.kind",
    "spec.providerSpec.value.metadata",
];

/// Leaves of a spec by their path, as JSON. Absent, empty, zero and false are the same: Go leaves them out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::watcher) struct SpecFields(BTreeMap<String, String>);

impl SpecFields {
    /// Fields of a Machine's `spec`, or of the `spec.template.spec` of a MachineSet.
    pub(in crate::watcher) fn of(api: MachineApi, spec: &Value) -> Self {
        let parts: &[&str] = match api {
            MachineApi::OpenShift => &OPENSHIFT,
            MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => &CLUSTER,
            MachineApi::Host => &[],
        };
        let mut fields = Self::default();
        for part in parts {
            fields.add(format!("spec.{part}"), &spec[*part]);
        }
        fields
    }

    fn add(&mut self, path: String, value: &Value) {
        if TYPE_OF_PROVIDER.contains(&path.as_str()) || self.0.len() >= FIELDS_MAX {
            return;
        }
        match value {
            Value::Null | Value::Bool(false) => {}
            Value::String(text) if text.is_empty() => {}
            Value::Number(number) if number.as_f64() == Some(0.0) => {}
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.add(format!("{path}.{name}"), value);
                }
            }
            // Nothing adds elements to a list of a Machine, so another length is a difference.
            Value::Array(elements) if !elements.is_empty() => {
                for (index, value) in elements.iter().enumerate() {
                    self.add(format!("{path}[{index}]"), value);
                }
                self.0.insert(path + "[]", elements.len().to_string());
            }
            Value::Array(_) => {}
            Value::Bool(true) | Value::String(_) | Value::Number(_) => {
                self.0.insert(path, value.to_string());
            }
        }
    }

    /// Fields of this template that a Machine has otherwise. Fields that the Machine alone has are no difference: the
    /// API's webhooks and the cloud's controller fill them in. They add no taints.
    pub(in crate::watcher) fn that_differ_in(&self, machine: &Self) -> Vec<TemplateDifference> {
        let taint = |path: &str| path.starts_with("spec.taints");
        let dropped = machine.0.keys().filter(|path| taint(path));
        let paths: BTreeSet<&String> = self.0.keys().chain(dropped).collect();
        let differing = paths.into_iter().filter_map(|path| {
            let has = machine.0.get(path);
            let wanted = self.0.get(path);
            (has != wanted).then(|| TemplateDifference {
                field: cut(path.clone()),
                machine: has.map(|value| short(value)),
                template: wanted.map(|value| short(value)),
            })
        });
        differing.take(DIFFERENCES_MAX).collect()
    }
}

fn short(value: &str) -> String {
    let end = value.floor_char_boundary(VALUE_BYTES_MAX);
    if end < value.len() {
        format!("{}…", &value[..end])
    } else {
        value.to_owned()
    }
}

/// Lines of Cluster API's condition `UpToDate`, where it is False: `* Version v1.33.1, v1.34.0 required`
/// (kubernetes-sigs/cluster-api, `internal/controllers/machineset`, `newMachineUpToDateCondition`). The API v1beta1 has
/// such conditions in `status.v1beta2`.
pub(super) fn not_up_to_date(api: MachineApi, status: &Value) -> Vec<TemplateDifference> {
    let conditions = match api {
        MachineApi::ClusterV1Beta1 => &status["v1beta2"]["conditions"],
        MachineApi::ClusterV1Beta2 => &status["conditions"],
        MachineApi::OpenShift | MachineApi::Host => return Vec::new(),
    };
    let listed = conditions.as_array().into_iter().flatten();
    let mut outdated = listed.filter(|it| it["type"] == UP_TO_DATE && it["status"] == "False");
    let Some(condition) = outdated.next() else {
        return Vec::new();
    };
    let message = condition["message"].as_str().unwrap_or_default();
    let lines = message
        .lines()
        .map(|line| line.trim().trim_start_matches("* "));
    let mut lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        lines.push(condition["reason"].as_str().unwrap_or(NOT_UP_TO_DATE));
    }
    let difference = |line: &str| TemplateDifference {
        field: cut(line.to_owned()),
        machine: None,
        template: None,
    };
    lines
        .into_iter()
        .take(DIFFERENCES_MAX)
        .map(difference)
        .collect()
}

/// Cluster API's condition of a Machine that equals the template of its owner.
pub(super) const UP_TO_DATE: &str = "UpToDate";
/// Its usual reason.
const NOT_UP_TO_DATE: &str = "NotUpToDate";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn aws(ami: &str) -> Value {
        json!({"metadata": {"labels": {"node-role.kubernetes.io/win": ""}},
            "providerSpec": {"value": {
                "apiVersion": "machine.openshift.io/v1beta1", "kind": "AWSMachineProviderConfig",
                "metadata": {"creationTimestamp": null},
                "ami": {"id": ami}, "instanceType": "m5a.large",
                "blockDevices": [{"ebs": {"volumeSize": 120, "volumeType": "gp3"}}],
                "securityGroups": [{"filters": [{"name": "tag:Name", "values": ["node"]}]}],
                "publicIp": false, "userDataSecret": {"name": "windows-user-data"}}}})
    }

    fn differing(template: &Value, machine: &Value) -> Vec<String> {
        let template = SpecFields::of(MachineApi::OpenShift, template);
        let machine = SpecFields::of(MachineApi::OpenShift, machine);
        let differ = template.that_differ_in(&machine).into_iter();
        let value = |value: Option<String>| value.unwrap_or("nothing".into());
        differ
            .map(|it| {
                format!(
                    "{}: {} -> {}",
                    it.field,
                    value(it.machine),
                    value(it.template)
                )
            })
            .collect()
    }

    #[test]
    fn a_new_image_is_a_difference_and_what_the_cloud_fills_in_is_none() {
        let template = aws("ami-2");
        let mut machine = aws("ami-2");
        let value = &mut machine["providerSpec"]["value"];
        value["apiVersion"] = json!("awsproviderconfig.openshift.io/v1beta1");
        value["metadata"] = json!({"name": "x"});
        value["placement"] = json!({"region": "us-east-1", "availabilityZone": "us-east-1a"});
        value["blockDevices"][0]["ebs"]["encrypted"] = json!(true);
        value.as_object_mut().expect("an object").remove("publicIp");
        machine["providerID"] = json!("aws:///us-east-1a/i-1");
        machine["lifecycleHooks"] = json!({"preDrain": [{"name": "a", "owner": "b"}]});
        assert_eq!(differing(&template, &machine), [""; 0]);
        machine["providerSpec"]["value"]["ami"]["id"] = json!("ami-1");
        assert_eq!(
            differing(&template, &machine),
            [r#"spec.providerSpec.value.ami.id: "ami-1" -> "ami-2""#]
        );
    }

    #[test]
    fn every_part_of_a_template_that_makes_a_node_counts() {
        let machine = aws("ami-1");
        let changed = |pointer: &str, value: Value| {
            let mut template = aws("ami-1");
            let (parent, key) = pointer.rsplit_once('/').expect("a path");
            let parent = template.pointer_mut(parent).expect("its parent");
            match parent {
                Value::Array(elements) => elements.push(value),
                parent => parent[key] = value,
            }
            differing(&template, &machine)
        };
        let value = "spec.providerSpec.value";
        let disk = "/providerSpec/value/blockDevices";
        for (pointer, to, wanted) in [
            (
                "/providerSpec/value/blockDevices/0/ebs/volumeSize".to_owned(),
                json!(200),
                vec![format!(
                    "{value}.blockDevices[0].ebs.volumeSize: 120 -> 200"
                )],
            ),
            (
                format!("{disk}/-"),
                json!({"ebs": {"volumeSize": 50}}),
                vec![
                    format!("{value}.blockDevices[1].ebs.volumeSize: nothing -> 50"),
                    format!("{value}.blockDevices[]: 1 -> 2"),
                ],
            ),
            (
                "/providerSpec/value/publicIp".to_owned(),
                json!(true),
                vec![format!("{value}.publicIp: nothing -> true")],
            ),
            (
                "/metadata/labels/zone".to_owned(),
                json!("a"),
                vec![r#"spec.metadata.labels.zone: nothing -> "a""#.to_owned()],
            ),
            (
                "/taints".to_owned(),
                json!([{"key": "os", "value": "Windows", "effect": "NoSchedule"}]),
                vec![
                    r#"spec.taints[0].effect: nothing -> "NoSchedule""#.to_owned(),
                    r#"spec.taints[0].key: nothing -> "os""#.to_owned(),
                    r#"spec.taints[0].value: nothing -> "Windows""#.to_owned(),
                    "spec.taints[]: nothing -> 1".to_owned(),
                ],
            ),
        ] {
            assert_eq!(changed(&pointer, to), wanted, "{pointer}");
        }
    }

    #[test]
    fn a_taint_or_an_element_that_the_template_lacks_is_a_difference() {
        let mut tainted = aws("ami-1");
        tainted["taints"] = json!([{"key": "os"}]);
        assert_eq!(
            differing(&aws("ami-1"), &tainted),
            [
                r#"spec.taints[0].key: "os" -> nothing"#,
                "spec.taints[]: 1 -> nothing"
            ]
        );
        let mut machine = aws("ami-1");
        let groups = &mut machine["providerSpec"]["value"]["securityGroups"];
        groups
            .as_array_mut()
            .expect("a list")
            .push(json!({"id": "sg-1"}));
        assert_eq!(
            differing(&aws("ami-1"), &machine),
            ["spec.providerSpec.value.securityGroups[]: 2 -> 1"]
        );
    }

    #[test]
    fn long_lists_and_values_are_cut() {
        let labels: BTreeMap<String, String> = (0..2_000)
            .map(|at| (format!("l{at}"), "é".repeat(400)))
            .collect();
        let template = SpecFields::of(
            MachineApi::OpenShift,
            &json!({"metadata": {"labels": labels}}),
        );
        assert_eq!(template.0.len(), FIELDS_MAX);
        let differ = template.that_differ_in(&SpecFields::default());
        assert_eq!(differ.len(), DIFFERENCES_MAX);
        let value = differ[0].template.as_ref().expect("a value");
        assert!(value.len() <= VALUE_BYTES_MAX + '…'.len_utf8(), "{value}");
    }

    #[test]
    fn cluster_api_says_itself_which_machines_are_outdated() {
        let condition = |status: &str, message: &str| {
            json!([{"type": "Ready", "status": "False"},
                {"type": "UpToDate", "status": status, "reason": "NotUpToDate", "message": message}])
        };
        let message =
            "* Version v1.33.1, v1.34.0 required\n* InfrastructureMachine is not up-to-date";
        let newer = json!({"conditions": condition("False", message)});
        let older = json!({"v1beta2": {"conditions": condition("False", message)}});
        for (api, status) in [
            (MachineApi::ClusterV1Beta2, &newer),
            (MachineApi::ClusterV1Beta1, &older),
        ] {
            let fields: Vec<_> = not_up_to_date(api, status)
                .into_iter()
                .map(|it| it.field)
                .collect();
            assert_eq!(
                fields,
                [
                    "Version v1.33.1, v1.34.0 required",
                    "InfrastructureMachine is not up-to-date"
                ]
            );
        }
        let bare = json!({"conditions": condition("False", "")});
        assert_eq!(
            not_up_to_date(MachineApi::ClusterV1Beta2, &bare)[0].field,
            "NotUpToDate"
        );
        let current = json!({"conditions": condition("True", "")});
        assert!(not_up_to_date(MachineApi::ClusterV1Beta2, &current).is_empty());
        assert!(not_up_to_date(MachineApi::OpenShift, &newer).is_empty());
        let version = |version: &str| {
            SpecFields::of(
                MachineApi::ClusterV1Beta2,
                &json!({"version": version, "infrastructureRef": {"name": version}}),
            )
        };
        let differ = version("v1.34.0").that_differ_in(&version("v1.33.1"));
        assert_eq!((differ.len(), &*differ[0].field), (1, "spec.version"));
    }
}
