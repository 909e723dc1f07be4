//! The worker's SSH and SFTP against OpenSSH's own sshd, and against servers that mean harm.

#[path = "sshd/agent.rs"]
mod agent;
#[path = "sshd/bench.rs"]
mod bench;
#[path = "sshd/blackhole.rs"]
mod blackhole;
#[path = "sshd/hostile.rs"]
mod hostile;
#[path = "sshd/keys.rs"]
mod keys;
#[path = "sshd/relay.rs"]
mod relay;
#[path = "sshd/rotation.rs"]
mod rotation;
#[path = "sshd/stress.rs"]
mod stress;
#[path = "sshd/talk.rs"]
mod talk;
#[path = "sshd/upload.rs"]
mod upload;
