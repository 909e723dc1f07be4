//! The simulated Windows hosts: SSH and SFTP as OpenSSH for Windows speaks them, the core of `dormer-host.exe` over a
//! virtual disk and service table, a kubelet that bootstraps over TLS.
//!
//! No shell is emulated: a host knows the command lines of dormer's program and fails loudly on anything else.

pub mod admin_keys;
pub mod body;
mod boot;
pub mod cloud;
pub mod computer;
pub mod counts;
pub mod disk;
mod ended;
mod exec;
mod inventory;
pub(crate) mod kubelet;
pub mod link;
mod listener;
pub mod path;
pub mod profile;
mod program;
mod remedy;
pub mod scm;
mod services;
mod sftp;
pub mod shell;
mod ssh;
pub mod state;
mod steps;

pub use cloud::{Hosts, Reach};
pub use computer::{Host, HostPhase};
pub use counts::{Execution, HostCounts};
pub use profile::{Image, ServerRelease};
pub use program::{later_stand_in, performing_stand_in, stand_in};
pub use shell::Shell;
