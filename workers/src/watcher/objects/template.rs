//! Fields of a Machine that differ from the template of its MachineSet.
//!
//! A MachineSet's controller changes no Machine that exists: a changed template reaches the Machines that are made
//! afterwards (docs/field-notes.md, Machines of OpenShift). Cluster API replaces the Machines of a MachineDeployment by
//! itself, and says on the condition `UpToDate` which of them are older.

use super::{
    filled::{self, PROVIDER},
    quantity::Quantity,
};
use dormer_profile::provider_fields::{self, Field};
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

/// Fields that are Kubernetes quantities: `16384Mi` and `16Gi` are the same. openshift/api, `machine/v1beta1` and
/// `machine/v1`, has no others in a providerSpec.
const QUANTITIES: [&str; 4] = ["diskSize", "maxPrice", "memorySize", "systemDiskSize"];

/// A value of a field.
#[derive(Debug, Clone, Eq)]
struct Leaf {
    /// As JSON, for people.
    text: String,
    /// Value of a quantity.
    quantity: Option<Quantity>,
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        match (self.quantity, other.quantity) {
            (Some(one), Some(other)) => one == other,
            _ => self.text == other.text,
        }
    }
}

/// Leaves of a spec by their path. Absent, empty, zero and false are the same: Go leaves them out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::watcher) struct SpecFields(BTreeMap<String, Leaf>);

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
            fields.add(format!("spec.{part}"), &spec[*part], &[]);
        }
        fields
    }

    /// Adds the leaves of a value. `known`: the fields that the Machine API reads there; none: all count.
    fn add(&mut self, path: String, value: &Value, known: &'static [Field]) {
        if TYPE_OF_PROVIDER.contains(&path.as_str()) || self.0.len() >= FIELDS_MAX {
            return;
        }
        match value {
            Value::Null | Value::Bool(false) => {}
            Value::String(text) if text.is_empty() => {}
            Value::Number(number) if number.as_f64() == Some(0.0) => {}
            Value::Object(fields) => {
                let known = match path.as_str() {
                    PROVIDER => provider_fields::of(platform(value)),
                    _ => known,
                };
                for (name, value) in fields {
                    let (name, below) = match Field::find(known, name) {
                        Some(field) => (field.name, field.below),
                        None if known.is_empty() => (name.as_str(), known),
                        // The Machine API ignores it: its webhook writes it into no Machine.
                        None => continue,
                    };
                    self.add(format!("{path}.{name}"), value, below);
                }
            }
            // Nothing adds elements to a list of a Machine, so another length is a difference.
            Value::Array(elements) if !elements.is_empty() => {
                for (index, value) in elements.iter().enumerate() {
                    self.add(format!("{path}[{index}]"), value, known);
                }
                self.put(path + "[]", &elements.len().into());
            }
            Value::Array(_) => {}
            Value::Bool(true) | Value::String(_) | Value::Number(_) => self.put(path, value),
        }
    }

    fn put(&mut self, path: String, value: &Value) {
        let name = path.rsplit('.').next().unwrap_or_default();
        let quantity = match QUANTITIES.contains(&name) {
            true => Quantity::of(value),
            false => None,
        };
        let text = value.to_string();
        self.0.insert(path, Leaf { text, quantity });
    }

    /// Whether a part of the object was left out.
    fn is_cut(&self) -> bool {
        self.0.len() >= FIELDS_MAX
    }

    /// Fields of this template that differ in a Machine. Fields that the API's webhooks or the cloud's controller fill
    /// in are no difference where the template lacks them.
    pub(in crate::watcher) fn that_differ_in(&self, machine: &Self) -> Vec<TemplateDifference> {
        let cut_off = self.is_cut() || machine.is_cut();
        let paths: BTreeSet<&String> = self.0.keys().chain(machine.0.keys()).collect();
        let differing = paths.into_iter().filter_map(|path| {
            let has = machine.0.get(path);
            let wanted = self.0.get(path);
            let same = match (has, wanted) {
                (None, _) | (_, None) if cut_off => true,
                (Some(_), None) => filled::in_by_others(path, |path| self.has(path)),
                (None, Some(_)) => filled::dropped(path),
                (has, wanted) => has == wanted,
            };
            (!same).then(|| TemplateDifference {
                field: cut(path.clone()),
                machine: has.map(|value| short(&value.text)),
                template: wanted.map(|value| short(&value.text)),
            })
        });
        differing.take(DIFFERENCES_MAX).collect()
    }

    /// Whether the object has this field, or one below it.
    fn has(&self, path: &str) -> bool {
        let below = |found: &String| {
            let rest = found.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let mut from = self.0.range(path.to_owned()..);
        from.next().is_some_and(|(found, _)| below(found))
    }
}

/// The platform of a providerSpec, by its kind, such as `AWSMachineProviderConfig`.
fn platform(value: &Value) -> &'static str {
    let kind = value["kind"].as_str().unwrap_or_default().to_lowercase();
    let all = ["aws", "azure", "gcp", "vsphere", "nutanix"];
    let found = all.into_iter().find(|name| kind.starts_with(name));
    found.unwrap_or_default()
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
        value["placement"] = json!({"region": "us-east-1"});
        value["credentialsSecret"] = json!({"name": "aws-cloud-credentials"});
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
            [
                r#"spec.providerSpec.value.securityGroups[1].id: "sg-1" -> nothing"#,
                "spec.providerSpec.value.securityGroups[]: 2 -> 1"
            ]
        );
    }

    /// Of a platform: what the webhook fills in, and what it does not.
    #[test]
    fn a_field_that_was_taken_out_of_a_template_is_a_difference() {
        let provider = |value: Value| json!({"providerSpec": {"value": value}});
        let secrets = json!({"userDataSecret": {"name": "windows-user-data"},
            "credentialsSecret": {"name": "c", "namespace": "openshift-machine-api"}});
        let with = |kind: &str, more: Value| {
            let mut value = secrets.clone();
            value["kind"] = json!(kind);
            for (name, field) in more.as_object().expect("fields") {
                value[name] = field.clone();
            }
            provider(value)
        };
        let azure = "AzureMachineProviderSpec";
        let gcp = "GCPMachineProviderSpec";
        let aws = "AWSMachineProviderConfig";
        for (kind, more) in [
            (
                aws,
                json!({"instanceType": "m5.large", "placement": {"region": "r"}}),
            ),
            (
                azure,
                json!({"vmSize": "D4", "vnet": "v", "subnet": "s", "image": {"sku": "s", "type": "t"},
                    "location": "l", "resourceGroup": "r", "networkResourceGroup": "n"}),
            ),
            (
                gcp,
                json!({"machineType": "n2", "networkInterfaces": [{"network": "n", "subnetwork": "s"}],
                    "disks": [{"boot": true, "type": "pd", "sizeGb": 128}], "tags": ["x-worker"]}),
            ),
        ] {
            let template = provider(json!({"kind": kind}));
            assert_eq!(differing(&template, &with(kind, more)), [""; 0], "{kind}");
        }
        let value = "spec.providerSpec.value";
        for (kind, in_both, machines, wanted) in [
            (
                aws,
                json!({}),
                json!({"blockDevices": [{"ebs": {"encrypted": true}}]}),
                vec!["blockDevices[0].ebs.encrypted: true", "blockDevices[]: 1"],
            ),
            (
                aws,
                json!({}),
                json!({"publicIp": true}),
                vec!["publicIp: true"],
            ),
            (
                aws,
                json!({}),
                json!({"placement": {"availabilityZone": "a"}}),
                vec![r#"placement.availabilityZone: "a""#],
            ),
            // The webhook fills in both or none of these.
            (
                azure,
                json!({"subnet": "s"}),
                json!({"subnet": "s", "vnet": "v"}),
                vec![r#"vnet: "v""#],
            ),
            (
                azure,
                json!({"image": {"publisher": "p"}}),
                json!({"image": {"publisher": "p", "sku": "old"}}),
                vec![r#"image.sku: "old""#],
            ),
            (
                gcp,
                json!({"disks": [{"boot": true}]}),
                json!({"disks": [{"boot": true, "type": "pd", "image": "i", "sizeGb": 200}]}),
                vec!["disks[0].sizeGb: 200"],
            ),
        ] {
            let differ = differing(&with(kind, in_both), &with(kind, machines));
            let wanted: Vec<_> = wanted
                .into_iter()
                .map(|it| format!("{value}.{it} -> nothing"))
                .collect();
            assert_eq!(differ, wanted, "{kind}");
        }
        let labelled = json!({"metadata": {"labels": {"zone": "a"}}});
        assert_eq!(
            differing(&json!({}), &labelled),
            [r#"spec.metadata.labels.zone: "a" -> nothing"#]
        );
    }

    #[test]
    fn quantities_are_compared_by_value() {
        let nutanix = |memory: Value, disk: &str| {
            json!({"providerSpec": {"value": {"kind": "NutanixMachineProviderConfig",
                "memorySize": memory, "systemDiskSize": disk}}})
        };
        let template = nutanix(json!("16384Mi"), "0.5Ti");
        assert_eq!(
            differing(&template, &nutanix(json!("16Gi"), "512Gi")),
            [""; 0]
        );
        assert_eq!(
            differing(&template, &nutanix(json!(17_179_869_184_u64), "512Gi")),
            [""; 0]
        );
        assert_eq!(
            differing(&template, &nutanix(json!("16G"), "512Gi")),
            [r#"spec.providerSpec.value.memorySize: "16G" -> "16384Mi""#]
        );
        // Elsewhere a text is a text.
        let named = |name: &str| json!({"metadata": {"labels": {"size": name}}});
        assert_eq!(differing(&named("1024Mi"), &named("1Gi")).len(), 1);
    }

    /// The webhook keeps what it knows: neither a mistyped field nor a namespace that the type has not.
    #[test]
    fn a_field_that_the_machine_api_ignores_is_no_difference() {
        let mut template = aws("ami-1");
        let value = &mut template["providerSpec"]["value"];
        value["instanceTyp"] = json!("m5a.xlarge");
        value["ami"]["name"] = json!("windows");
        value["userDataSecret"]["namespace"] = json!("openshift-machine-api");
        // Known fields are read in any case.
        let lower = value.as_object_mut().expect("an object");
        let of_type = lower.remove("instanceType").expect("it is there");
        lower.insert("instancetype".into(), of_type);
        assert_eq!(differing(&template, &aws("ami-1")), [""; 0]);
        // Of a provider that is not known here, every field counts.
        let other = |value: Value| json!({"providerSpec": {"value": value}});
        let differ = differing(
            &other(json!({"kind": "Other", "x": 1})),
            &other(json!({"kind": "Other", "x": 2})),
        );
        assert_eq!(differ, ["spec.providerSpec.value.x: 2 -> 1"]);
    }

    #[test]
    fn long_lists_and_values_are_cut() {
        let labels: BTreeMap<String, String> = (0..2_000)
            .map(|at| (format!("l{at}"), "é".repeat(400)))
            .collect();
        let template = SpecFields::of(
            MachineApi::OpenShift,
            &json!({"metadata": {"labels": &labels}}),
        );
        assert_eq!(template.0.len(), FIELDS_MAX);
        let differ = template.that_differ_in(&SpecFields::default());
        assert!(differ.is_empty(), "what was left out is not known");
        let labels = labels.into_iter().take(FIELDS_MAX - 1);
        let labels: BTreeMap<_, _> = labels.collect();
        let template = SpecFields::of(
            MachineApi::OpenShift,
            &json!({"metadata": {"labels": labels}}),
        );
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
