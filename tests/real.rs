//! dormer's executors and its watcher against a real kube-apiserver with the real controllers, under the accounts that
//! `deploy/rbac.yaml`, `deploy/machine-tokens.yaml` and `deploy/account-tokens.yaml` give them.
//!
//! One control plane serves the whole binary, and each test has namespaces and Nodes of its own. Without the servers'
//! programs, and without Go to make them, every test is skipped and says so.

mod account_tokens;
pub(crate) mod accounts;
mod approver;
pub(crate) mod ask;
mod attacks;
mod bookmarks;
mod both;
mod canary;
mod chart;
mod cloud_nodes;
pub(crate) mod cluster;
mod csr;
mod drain;
mod fence;
mod guard;
mod hosts;
mod minor;
mod network;
mod olm;
mod people;
mod plain;
pub(crate) mod pods;
mod pool;
mod rbac;
mod refusals;
mod restored;
mod stolen;
mod store_lease;
mod stress;
mod tokens;
pub(crate) mod watcher;
pub(crate) mod watching;
mod whole;
mod wire;
