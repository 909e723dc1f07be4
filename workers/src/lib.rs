//! Workers: the execution of tasks over SSH, SFTP and the Kubernetes API; and the watcher.

pub mod any;
pub mod catalog;
pub mod execute;
pub mod go_build;
pub mod host;
pub mod kubernetes;
mod machine_names;
pub mod message_bytes;
pub mod nats;
pub mod observer;
pub mod packed;
pub mod payload;
pub mod payload_keys;
pub mod pool;
pub mod port;
pub mod program_file;
pub mod progress;
mod sha256;
mod source;
pub mod ssh;
pub mod watcher;
pub mod worker;
