//! What a task does: SSH, SFTP, Kubernetes; and the watcher.

pub mod pool;
pub mod port;
