//! The workers' integration tests, one module for each subject.
//!
//! `sshd.rs` is a binary of its own: its tests measure the memory of their process.

mod host;
mod kubernetes;
mod nats;
mod watcher;
mod worker;
