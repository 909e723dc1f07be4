//! One stored object: its JSON, and quick ways into its metadata.

use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::Value;

/// Where an object lives inside its kind: namespace (empty for cluster-wide kinds) and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace; empty for cluster-wide kinds.
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of an object, from its metadata.
    pub fn of(value: &Value) -> Self {
        let meta = &value["metadata"];
        Self::new(
            meta["namespace"].as_str().unwrap_or_default(),
            meta["name"].as_str().unwrap_or_default(),
        )
    }

    /// The namespace, if it has one.
    pub fn ns(&self) -> Option<&str> {
        Some(self.namespace.as_str()).filter(|ns| !ns.is_empty())
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ns() {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// An object as it is kept. Lists and watches share it, and its encoded bytes.
#[derive(Debug)]
pub struct Object {
    /// The whole object, `metadata.resourceVersion` included.
    pub value: Value,
    /// Its resourceVersion.
    pub revision: u64,
    json: OnceLock<Bytes>,
}

impl Object {
    /// An object that was written at `revision`.
    pub fn new(value: Value, revision: u64) -> Self {
        Self {
            value,
            revision,
            json: OnceLock::new(),
        }
    }

    /// The object's JSON, encoded once.
    pub fn json(&self) -> &Bytes {
        self.json
            .get_or_init(|| serde_json::to_vec(&self.value).unwrap_or_default().into())
    }
}

/// Shortcuts into an object's JSON; missing fields read as empty.
pub trait Meta {
    /// `metadata.name`.
    fn name(&self) -> &str;
    /// `metadata.namespace`.
    fn namespace(&self) -> &str;
    /// `metadata.uid`.
    fn uid(&self) -> &str;
    /// `metadata.resourceVersion` as a number; 0 if it is none.
    fn revision(&self) -> u64;
    fn label(&self, key: &str) -> Option<&str>;
    fn annotation(&self, key: &str) -> Option<&str>;
    /// Whether `metadata.deletionTimestamp` is set.
    fn deleting(&self) -> bool;
    /// The owner that is the controller: its kind and UID.
    fn controller(&self) -> Option<(&str, &str)>;
    /// The condition of this type in `status.conditions`.
    fn condition(&self, kind: &str) -> Option<&Value>;
    /// Whether the condition of this type is `True`.
    fn is(&self, condition: &str) -> bool;
    /// `metadata.finalizers`, as a slice of strings.
    fn has_finalizer(&self, name: &str) -> bool;
}

impl Meta for Value {
    fn name(&self) -> &str {
        self["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self["metadata"]["uid"].as_str().unwrap_or_default()
    }

    fn revision(&self) -> u64 {
        let text = self["metadata"]["resourceVersion"].as_str();
        text.and_then(|rv| rv.parse().ok()).unwrap_or(0)
    }

    fn label(&self, key: &str) -> Option<&str> {
        self["metadata"]["labels"][key].as_str()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self["metadata"]["annotations"][key].as_str()
    }

    fn deleting(&self) -> bool {
        self["metadata"]["deletionTimestamp"].is_string()
    }

    fn controller(&self) -> Option<(&str, &str)> {
        let owners = self["metadata"]["ownerReferences"].as_array()?;
        let owner = owners.iter().find(|o| o["controller"] == true)?;
        Some((owner["kind"].as_str()?, owner["uid"].as_str()?))
    }

    fn condition(&self, kind: &str) -> Option<&Value> {
        self["status"]["conditions"]
            .as_array()?
            .iter()
            .find(|c| c["type"] == kind)
    }

    fn is(&self, condition: &str) -> bool {
        self.condition(condition)
            .is_some_and(|c| c["status"] == "True")
    }

    fn has_finalizer(&self, name: &str) -> bool {
        let finalizers = self["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|f| f.iter().any(|f| f == name))
    }
}
