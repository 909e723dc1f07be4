//! Configuration of a Windows node as data: profiles, payloads, and the documents for hosts.

pub mod answer;
pub mod builds;
pub mod builtin;
pub mod check;
pub mod clixml;
pub mod cluster_config;
pub mod document;
pub mod drift;
pub mod frame;
pub mod ignition;
pub mod invocation;
pub mod item;
pub mod kubelet_config;
mod kubelet_pairs;
pub mod layers;
pub mod mirrors;
pub mod payload;
pub mod platform;
pub mod problem;
pub mod profile;
pub mod provider_fields;
pub mod proxy;
pub mod registry_sources;
pub mod release;
pub mod render;
pub mod settings;
pub mod shown;
pub mod suggestion;
pub mod text;
pub mod userdata;
pub mod values;
pub mod variables;
pub mod version;
pub mod yaml;
pub mod yaml_tree;

pub use text::{hex, is_sha256, sha256_hex};
