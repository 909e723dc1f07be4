//! Fields of Machines, MachineSets and Nodes that the watcher reads, checked and bounded.

mod condition;
mod filled;
mod machine;
mod machine_set;
mod node;
mod quantity;
mod template;

pub(super) use machine::{ObservedMachine, machine};
pub(super) use machine_set::{ObservedSet, machine_set};
pub(super) use node::{ObservedNode, node};
#[cfg(test)]
pub(super) use template::SpecFields;

use crate::kubernetes::keys;
use dormer_proto::{id::Timestamp, machine::TokenMark, message::cut};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use serde::de::DeserializeOwned;

/// Longest text that a fact takes over from an object, in bytes; an object with a longer one is unreadable.
pub(super) const TEXT_BYTES_MAX: usize = 1_024;
/// Most addresses, and most names, that a Machine's fact takes over; the rest is left out.
pub(super) const ADDRESSES_MAX: usize = 32;

/// An object that cannot be read; it is counted and warned about, and nothing follows from it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub(super) struct UnreadableObject {
    /// Where in the object.
    pub(super) field: &'static str,
    pub(super) problem: String,
}

fn odd(field: &'static str, problem: impl ToString) -> UnreadableObject {
    UnreadableObject {
        field,
        problem: problem.to_string(),
    }
}

fn body<T: DeserializeOwned>(data: serde_json::Value) -> Result<T, UnreadableObject> {
    serde_json::from_value(data).map_err(|error| odd("spec or status", cut(error.to_string())))
}

pub(super) fn uid(meta: &ObjectMeta) -> Result<String, UnreadableObject> {
    let uid = short("metadata.uid", meta.uid.clone())?;
    uid.filter(|uid| !uid.is_empty())
        .ok_or_else(|| odd("metadata.uid", "is absent"))
}

/// Its resourceVersion. Kubernetes calls it opaque; every API server's is the number of etcd's revision.
pub(super) fn resource(meta: &ObjectMeta) -> Result<u64, UnreadableObject> {
    let text = meta.resource_version.as_deref().unwrap_or_default();
    text.parse()
        .map_err(|_| odd("metadata.resourceVersion", format!("{text:?} is no number")))
}

fn short(field: &'static str, text: Option<String>) -> Result<Option<String>, UnreadableObject> {
    match text {
        Some(text) if text.len() > TEXT_BYTES_MAX => {
            Err(odd(field, format!("is longer than {TEXT_BYTES_MAX} bytes")))
        }
        text => Ok(text.filter(|text| !text.is_empty())),
    }
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

fn annotation(meta: &ObjectMeta, key: &str) -> Option<String> {
    meta.annotations.as_ref()?.get(key).cloned()
}

fn token(meta: &ObjectMeta) -> Option<TokenMark> {
    keys::fence(meta.annotations.as_ref()?.get(keys::FENCE)?)
}

fn time(stamp: Option<&Time>) -> Option<Timestamp> {
    Some(Timestamp(u64::try_from(stamp?.0.as_millisecond()).ok()?))
}

#[cfg(test)]
mod tests;
