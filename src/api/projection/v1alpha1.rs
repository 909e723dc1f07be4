//! Kinds `WindowsMachine` and `WindowsPool` in version v1alpha1: a status that dormer writes, and no field that
//! people set.
//!
//! dormer no longer writes a v1alpha1 `WindowsPool` (v1beta1 is in `dormer_workers::pool`). The version is served
//! until no stored object has it, and passes v1beta1's fields through.
//!
//! `deploy/crd.yaml` is written from these types by a test. An absent value is `null` in what dormer writes, so that a
//! merge patch removes the field; the API server stores no `null`, so the schema has no nullable field.

#![allow(
    clippy::duplicated_attributes,
    reason = "clippy takes the same key in two of a derive's nested lists for a repeat"
)]

use dormer_workers::pool::v1beta1::{Condition, without_null};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Fields of a `WindowsMachine` beside its status: none.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "dormer.io",
    version = "v1alpha1",
    kind = "WindowsMachine",
    shortname = "wm",
    namespaced,
    no_spec,
    status = "MachineStatus",
    doc = "State of a Machine that is a Windows node or becomes one. It has the Machine's name.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.since"),
    printcolumn(
        name = "Waiting For",
        type_ = "string",
        json_path = ".status.waitingFor"
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".status.node",
        priority = 1
    ),
    printcolumn(
        name = "Attempt",
        type_ = "integer",
        json_path = ".status.attempt",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        priority = 1
    )
)]
pub(super) struct MachineFields {}

/// The status of a `WindowsMachine`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_null)]
pub(super) struct MachineStatus {
    /// One of Provisioned, Reachable, Configured, Joined, Draining, Recreated and Failed.
    pub(super) state: Option<String>,
    /// Phase within the state.
    pub(super) phase: Option<String>,
    /// Time at which it entered the state.
    #[schemars(extend("format" = "date-time"))]
    pub(super) since: Option<String>,
    /// Version that its node carries.
    pub(super) version: Option<String>,
    /// Version that its node should carry.
    pub(super) desired_version: Option<String>,
    /// What the machine waits for; absent when it serves.
    pub(super) waiting_for: Option<String>,
    /// Reason for its state.
    pub(super) reason: Option<String>,
    /// Name of its Node.
    pub(super) node: Option<String>,
    /// Address of its host.
    pub(super) address: Option<String>,
    /// Name of its pool.
    pub(super) pool: Option<String>,
    /// Attempt of the present task.
    #[schemars(with = "Option<i64>")]
    pub(super) attempt: Option<u64>,
    /// Conditions of the machine: Ready while it serves, UpToDate while it carries the version that it should,
    /// Reconciling while it changes, and Stalled when it failed.
    #[schemars(with = "Option<Vec<Condition>>")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub(super) conditions: Option<Vec<Value>>,
}

#[cfg(test)]
mod tests {
    use super::{super::v1alpha1_pool, *};
    use dormer_profile::yaml;
    use dormer_workers::pool::{
        host::WindowsHost,
        v1beta1::{self, ONE_POOL},
    };
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, JSONSchemaProps, ValidationRule,
    };
    use kube::{CustomResourceExt, core::crd::merge_crds};
    use std::{collections::BTreeMap, fs, path::Path};

    const HEAD: &str = "\
# Written by a test from src/api/projection/, workers/src/pool/v1beta1.rs and workers/src/pool/host.rs.
#
# A WindowsHost is a Windows host that no controller makes (docs/kinds.md): people write its spec.
#
# A WindowsPool is what the machines should be, and how they may be changed: people write its spec (deploy/pool.yaml), dormer
# writes its status. Without one nothing is upgraded. A WindowsMachine has a status alone, which the console writes from
# the histories: deleting the object loses nothing, and within a minute it is there again.
#
# v1alpha1 of WindowsPool is served for objects of earlier builds. When `kubectl get windowspools -A` shows none without a
# spec, write each again (kubectl get windowspools -A -o yaml | kubectl replace -f -) and take v1alpha1 out of the
# definition's status.storedVersions.
";

    /// Schema of an arbitrary object that is passed through.
    fn kept(description: &str) -> JSONSchemaProps {
        JSONSchemaProps {
            type_: Some("object".into()),
            description: Some(description.into()),
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        }
    }

    /// CRD of the pool: v1beta1 is stored, and a write through v1alpha1 keeps its fields.
    fn pool() -> CustomResourceDefinition {
        let mut old = v1alpha1_pool::WindowsPool::crd();
        let schema = old.spec.versions[0].schema.as_mut();
        let schema = schema
            .and_then(|it| it.open_api_v3_schema.as_mut())
            .expect("a schema");
        let fields = schema.properties.get_or_insert_with(BTreeMap::new);
        fields.insert("spec".into(), kept("Spec of v1beta1, kept as it is."));
        let status = fields.get_mut("status").expect("a status");
        status.x_kubernetes_preserve_unknown_fields = Some(true);
        let mut new = v1beta1::WindowsPool::crd();
        let schema = new.spec.versions[0].schema.as_mut();
        let schema = schema
            .and_then(|it| it.open_api_v3_schema.as_mut())
            .expect("a schema");
        schema.x_kubernetes_validations = Some(vec![ValidationRule {
            rule: ONE_POOL.0.into(),
            message: Some(ONE_POOL.1.into()),
            ..ValidationRule::default()
        }]);
        merge_crds(vec![old, new], "v1beta1").expect("one kind")
    }

    /// CRDs without the nullable fields that kube's derive adds.
    fn definitions() -> [CustomResourceDefinition; 3] {
        [WindowsMachine::crd(), pool(), WindowsHost::crd()].map(|crd| {
            let mut json = serde_json::to_value(&crd).expect("JSON");
            never_null(&mut json);
            serde_json::from_value(json).expect("a definition")
        })
    }

    fn never_null(json: &mut Value) {
        match json {
            Value::Object(fields) => {
                fields.remove("nullable");
                fields.values_mut().for_each(never_null);
            }
            Value::Array(items) => items.iter_mut().for_each(never_null),
            _ => {}
        }
    }

    #[test]
    fn the_committed_definitions_are_what_the_types_give() {
        let written = definitions().map(|crd| yaml::to_string(&crd).expect("YAML"));
        let made = format!("{HEAD}{}", written.join("---\n"));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crd.yaml");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&path, &made).expect("written");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, made, "run this test with UPDATE_EXPECT=1");
    }

    /// The API server rejects a CRD whose schema is not structural.
    #[test]
    fn the_schemas_are_structural_and_have_no_nullable_field() {
        for crd in definitions() {
            let text = serde_json::to_string(&crd.spec.versions).expect("JSON");
            // Labels are a map of strings with arbitrary keys.
            let text = text.replace(r#""additionalProperties":{"type":"string"}"#, "");
            for refused in ["nullable", "$ref", "anyOf", "oneOf", "additionalProperties"] {
                assert!(!text.contains(refused), "{refused}: {text}");
            }
        }
    }

    /// An earlier build's object without a spec must not read as one with the defaults.
    #[test]
    fn a_pool_without_a_spec_is_not_one_with_the_defaults() {
        let crd = pool();
        let stored = crd.spec.versions.iter().find(|one| one.storage);
        let stored = stored.expect("a stored version");
        assert_eq!(stored.name, "v1beta1");
        let schema = stored
            .schema
            .as_ref()
            .and_then(|it| it.open_api_v3_schema.as_ref());
        let schema = schema.expect("a schema");
        assert_eq!(schema.required, Some(vec!["spec".to_owned()]));
        let spec = &schema.properties.as_ref().expect("fields")["spec"];
        assert!(spec.default.is_none(), "it is people's to write");
        let served: Vec<&str> = crd
            .spec
            .versions
            .iter()
            .filter(|one| one.served)
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(served, ["v1beta1", "v1alpha1"]);
    }
}
