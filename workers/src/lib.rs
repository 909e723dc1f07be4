//! What a task does: SSH, SFTP, Kubernetes; and the watcher.

pub mod catalog;
pub mod execute;
pub mod host;
pub mod kubernetes;
pub mod letter;
pub mod nats;
pub mod packed;
pub mod pool;
pub mod port;
pub mod progress;
pub mod ssh;
mod sum;
pub mod watcher;
pub mod witness;
pub mod worker;
