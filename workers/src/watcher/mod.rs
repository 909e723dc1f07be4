//! The watcher: tells runs how the cluster's objects stand.

mod csr;
mod objects;
