//! What a task does at the Kubernetes API: fences, evictions, deletions, certificates, annotations.

pub mod keys;
