//! The core of `dormer-host.exe`, the program that converges a Windows host: it reads a document, looks at the
//! host through the host interface ([`ops`]), and makes it so. It knows Windows through that interface alone, so the same
//! code runs over Win32, over the simulated host and over a recording.
//!
//! Workers send the file that `dormer run --host-program` names to hosts, and run it there; simulated hosts run this core.

pub mod arguments;
mod block_on;
mod boot_id;
mod boot_run;
pub mod containerd;
pub mod content;
mod document;
mod error_text;
mod facts;
mod files;
pub mod heartbeat;
mod items;
mod leftovers;
pub mod ops;
pub mod paths;
mod pending;
mod problem;
mod progress;
mod removal;
mod rights;
mod run;
mod services;
mod session;
pub mod state;
pub mod wire;

pub use block_on::block_on;
pub use boot_run::SERVICE as BOOT_SERVICE;
pub use run::run;
