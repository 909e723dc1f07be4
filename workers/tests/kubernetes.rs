//! Tasks at the Kubernetes API against the simulated cluster: success, repetition, each refusal, and a worker that
//! sleeps between any two calls.

mod addresses;
pub(crate) mod bench;
mod cloud_tokens;
mod cluster_config;
mod evict;
mod fence;
mod find;
mod guard;
mod join;
mod rollback;
mod sleep;
mod tokens;
mod unserved;
mod verify;
