//! Admission of an object: defaults, validation, and fields that only the server sets.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    auth::User,
    ca,
    kinds::{self, Kind},
    object::Meta,
    status::Refusal,
};

/// Longest name of an object.
pub const NAME_MAX: usize = 253;

/// Sets the fields that the server sets when an object of this kind is created.
pub fn on_create(kind: &Kind, value: &mut Value, user: &User) {
    match kind.store {
        "certificatesigningrequests.certificates.k8s.io" => {
            value["spec"]["username"] = json!(user.name);
            value["spec"]["groups"] = json!(user.groups);
            if !user.uid.is_empty() {
                value["spec"]["uid"] = json!(user.uid);
            }
            value["status"] = json!({});
        }
        "pods" => pod(value),
        "namespaces" => {
            value["spec"] = json!({"finalizers": ["kubernetes"]});
            value["status"] = json!({"phase": "Active"});
            let name = value.name().to_owned();
            value["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
        }
        "machinesets.machine.openshift.io" => {
            default(&mut value["spec"], "replicas", json!(1));
            value["status"] = json!({});
        }
        "machines.machine.openshift.io" => {
            default(&mut value["spec"], "lifecycleHooks", json!({}));
            value["status"] = json!({});
        }
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" => {
            default(&mut value["spec"], "replicas", json!(1));
            value["status"] = json!({});
        }
        "secrets" => {
            default(value, "type", json!("Opaque"));
            string_data(value);
        }
        _ => {}
    }
}

/// Turns a Secret's `stringData` into `data`.
pub fn string_data(secret: &mut Value) {
    let Some(texts) = secret.as_object_mut().and_then(|s| s.remove("stringData")) else {
        return;
    };
    for (name, text) in texts.as_object().into_iter().flatten() {
        let text = text.as_str().unwrap_or_default();
        secret["data"][name] = json!(BASE64_STANDARD.encode(text));
    }
}

fn pod(value: &mut Value) {
    let spec = &mut value["spec"];
    default(spec, "terminationGracePeriodSeconds", json!(30));
    default(spec, "restartPolicy", json!("Always"));
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        if !tolerations.iter().any(|t| t["key"] == key) {
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300});
            tolerations.push(toleration);
        }
    }
    spec["tolerations"] = json!(tolerations);
    if value["status"]["phase"].is_null() {
        value["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
    }
}

fn default(object: &mut Value, field: &str, to: Value) {
    if object[field].is_null() {
        object[field] = to;
    }
}

/// Checks what every object must be: a name that names, and per kind the little that matters.
///
/// # Errors
/// 422 with the field.
pub fn check(kind: &Kind, value: &Value, before: Option<&Value>) -> Result<(), Refusal> {
    let name = value.name();
    let bad = |field: &str, why: &str| Err(Refusal::invalid(kind, name, field, why));
    if name.is_empty() {
        return bad(
            "metadata.name",
            "Required value: name or generateName is required",
        );
    }
    let free = matches!(kind.group, "rbac.authorization.k8s.io");
    let message = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let fits = name.len() <= NAME_MAX
        && name.chars().all(message)
        && ends(name.chars().next())
        && ends(name.chars().last());
    if !free && !fits {
        return bad(
            "metadata.name",
            "Invalid value: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
             characters, '-' or '.', and must start and end with an alphanumeric character",
        );
    }
    if kind.store == kinds::MACHINE_SET.store {
        return machine_set(kind, value, before);
    }
    // Rules of deploy/crd.yaml that dormer's own parser does not have.
    if kind.store == kinds::WINDOWS_POOL.store && !value["spec"].is_object() {
        return bad("spec", "Required value");
    }
    if kind.store == kinds::WINDOWS_POOL.store && name != "windows" {
        let why = "Invalid value: there is one pool, and its name is windows";
        return bad("metadata.name", why);
    }
    if kind.store == kinds::CONFIG_MAP.store
        && before.is_some_and(|b| b["immutable"] == true && b["data"] != value["data"])
    {
        return bad(
            "data",
            "Forbidden: field is immutable when `immutable` is set",
        );
    }
    Ok(())
}

/// Objects that a kubelet may create (Kubernetes' `NodeRestriction`): its own Node, and certificate requests in its own
/// name, which have to be valid.
///
/// # Errors
///
/// 403 for another node's, 422 for an invalid request.
pub fn on_behalf(kind: &Kind, value: &Value, user: &User) -> Result<(), Refusal> {
    let request = || {
        let text = value["spec"]["request"].as_str().unwrap_or_default();
        ca::read_request(&BASE64_STANDARD.decode(text).unwrap_or_default())
    };
    let asked = if kind.store == kinds::CSR.store {
        let bad = |error| format!("Invalid value: {error}");
        let read = request();
        Some(read.map_err(|e| Refusal::invalid(kind, value.name(), "spec.request", &bad(e)))?)
    } else {
        None
    };
    let in_group = user.groups.iter().any(|group| group == "system:nodes");
    let Some(node) = user.name.strip_prefix("system:node:").filter(|_| in_group) else {
        return Ok(());
    };
    match asked {
        Some(asked) if asked.common_name != user.name => {
            let why = format!("can only create a node CSR with CN={}", user.name);
            Err(Refusal::forbidden(kind, value.name(), &why))
        }
        None if kind.store == kinds::NODE.store && value.name() != node => {
            let other = value.name();
            let why = format!("node {node:?} is not allowed to modify node {other:?}");
            Err(Refusal::forbidden(kind, other, &why))
        }
        _ => Ok(()),
    }
}

fn machine_set(kind: &Kind, value: &Value, before: Option<&Value>) -> Result<(), Refusal> {
    let bad = |field: &str, why: &str| Err(Refusal::invalid(kind, value.name(), field, why));
    let spec = &value["spec"];
    if !spec["replicas"].is_null() && spec["replicas"].as_u64().is_none() {
        return bad(
            "spec.replicas",
            "Invalid value: must be a number not below 0",
        );
    }
    if before.is_some_and(|b| b["spec"]["selector"] != spec["selector"]) {
        return bad("spec.selector", "Forbidden: selector is immutable");
    }
    let selector = super::selector::Labels::of(&spec["selector"]);
    if selector.is_empty() || !selector.matches(&spec["template"]) {
        return bad(
            "spec.template.metadata.labels",
            "Invalid value: `selector` does not match",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_makes_nothing_in_another_nodes_name() {
        let kubelet = User::new("system:node:win-1", ["system:nodes"]);
        let node = |name: &str| json!({"metadata": {"name": name}});
        assert!(on_behalf(&kinds::NODE, &node("win-1"), &kubelet).is_ok());
        assert!(on_behalf(&kinds::NODE, &node("win-10"), &kubelet).is_err());
        assert!(on_behalf(&kinds::NODE, &node("win-10"), &User::admin()).is_ok());
        let csr = |common_name: &str| {
            let key = rcgen::KeyPair::generate().expect("a key");
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params
                .distinguished_name
                .push(rcgen::DnType::CommonName, common_name);
            let pem = params
                .serialize_request(&key)
                .expect("a request")
                .pem()
                .expect("PEM");
            json!({"metadata": {"name": "c"}, "spec": {"request": BASE64_STANDARD.encode(pem)}})
        };
        assert!(on_behalf(&kinds::CSR, &csr("system:node:win-1"), &kubelet).is_ok());
        assert!(on_behalf(&kinds::CSR, &csr("system:node:win-10"), &kubelet).is_err());
        let none = json!({"metadata": {"name": "c"}, "spec": {"request": "bm90aGluZw=="}});
        assert!(
            on_behalf(&kinds::CSR, &none, &User::admin()).is_err(),
            "it cannot be read"
        );
    }
}
