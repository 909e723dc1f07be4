//! The workers' integration tests, one module for each subject.
//!
//! `sshd.rs` is a binary of its own: its tests measure the memory of their process.

#![allow(clippy::too_many_lines, reason = "a story reads from top to bottom")]

mod host;
mod kubernetes;
mod nats;
mod watcher;
mod worker;
