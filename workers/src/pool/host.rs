//! The kind `WindowsHost`: a Windows host that no controller makes. People write the spec, dormer's watcher the status.
//!
//! `deploy/crd.yaml` is written from these types by a test.

#![allow(
    clippy::duplicated_attributes,
    reason = "clippy takes the same key in two of a derive's nested lists for a repeat"
)]

use super::v1beta1::without_null;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A host that is installed by others, and that dormer makes a node of the cluster.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource,
)]
#[kube(
    group = "dormer.io",
    version = "v1beta1",
    kind = "WindowsHost",
    shortname = "whost",
    namespaced,
    status = "WindowsHostStatus",
    doc = "A BYOH Windows host, which no controller makes: dormer configures it, upgrades it in place through \
           the same queue as every machine, and takes everything off it again when the object is deleted. It is in \
           dormer's namespace. dormer makes one for each entry of the ConfigMap windows-instances.",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeRef.name"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Accepted")].status"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_null)]
pub struct WindowsHostSpec {
    /// Address of the host as dormer reaches it over SSH: an IPv4 address or a DNS name. It may change.
    #[schemars(extend("minLength" = 1, "maxLength" = 253))]
    pub address: String,
    /// Administrator to log in as, with dormer's key. Default: `Administrator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 104))]
    pub user: Option<String>,
    /// Pool that the host belongs to. Default: the pool of the dormer in this namespace. A dormer of another pool leaves
    /// the host alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1, "maxLength" = 63))]
    pub pool: Option<String>,
    /// Labels of its Node. dormer adds those that are missing, changes none that is there, and adds none of Kubernetes'
    /// own domains but roles (`node-role.kubernetes.io/worker`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,
}

/// What dormer's watcher found out about the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_null)]
pub struct WindowsHostStatus {
    /// `Provisioned` once its address is known, `Running` once it has a Node.
    pub phase: Option<String>,
    /// Its address, and the names that it may have, in the form of a Machine's.
    pub addresses: Option<Vec<HostAddress>>,
    pub node_ref: Option<HostNode>,
    /// `Accepted`: whether it has an address, and is no other's host.
    #[schemars(with = "Option<Vec<HostCondition>>")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Value>>,
}

/// An address or a name of the host, in the form of a Machine's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostAddress {
    /// `InternalIP`, `InternalDNS` or `Hostname`.
    pub r#type: String,
    pub address: String,
}

/// The host's Node, by name and UID.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostNode {
    pub name: String,
    pub uid: String,
}

/// A condition, for the schema.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(
    dead_code,
    reason = "it describes conditions, which are written as JSON"
)]
struct HostCondition {
    /// Its name.
    r#type: String,
    /// `True`, `False` or `Unknown`.
    status: String,
    /// One word.
    reason: Option<String>,
    /// For people.
    message: Option<String>,
    /// When the status changed last.
    #[schemars(extend("format" = "date-time"))]
    last_transition_time: Option<String>,
}

/// The ConfigMap of the Windows Machine Config Operator, in dormer's namespace.
pub const INSTANCES: &str = "windows-instances";

/// Entries of the ConfigMap `windows-instances`, in the format of the Windows Machine Config Operator
/// (docs/field-notes.md, Entries of windows-instances): the key is the address, the value `username=<user>`.
#[must_use]
pub fn entries(data: &BTreeMap<String, String>) -> Vec<(String, Result<String, String>)> {
    let entry = |(address, value): (&String, &String)| {
        let address = address.trim().to_lowercase();
        let user = match value.trim().split_once('=') {
            _ if !is_address(&address) => Err(format!(
                "{address} is neither an IPv4 address nor a DNS name"
            )),
            Some(("username", user)) if is_user(user.trim()) => Ok(user.trim().to_owned()),
            Some(("username", _)) => Err("it names no user: write username=<user>".to_owned()),
            _ => Err("its value is not of the form username=<user>".to_owned()),
        };
        (address, user)
    };
    data.iter().map(entry).collect()
}

fn is_user(user: &str) -> bool {
    let odd = |c: char| c.is_control() || "\"/[]:;|=,+*?<>".contains(c);
    !user.is_empty() && user.len() <= 104 && !user.contains(odd)
}

/// Whether it is an IPv4 address or a DNS name, of the letters that an object's name may have.
#[must_use]
pub fn is_address(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let digits = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let address = text.parse::<std::net::Ipv4Addr>().is_ok();
    !text.is_empty() && text.len() <= 253 && text.split('.').all(label) && (!digits || address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_an_address_and_a_user_and_a_bad_one_harms_no_other() {
        let data = [
            ("10.0.0.5", "username=Administrator"),
            ("Win-1.Corp.Example", " username=core \n"),
            ("10.0.0.999", "username=core"),
            ("10.0.0.6", "user=core"),
            ("10.0.0.7", ""),
            ("10.0.0.8", "username="),
            ("fd00::1", "username=core"),
            ("-win", "username=core"),
            ("10.0.0.9", "username=a b"),
            ("10.0.1.1", "username=a\"; whoami"),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let read = entries(&BTreeMap::from(data));
        let good: Vec<_> = read
            .iter()
            .filter_map(|(address, user)| Some((address.as_str(), user.as_deref().ok()?)))
            .collect();
        let wanted = [
            ("10.0.0.5", "Administrator"),
            ("10.0.0.9", "a b"),
            ("win-1.corp.example", "core"),
        ];
        assert_eq!(good, wanted);
        assert_eq!(read.len(), 10);
    }
}
