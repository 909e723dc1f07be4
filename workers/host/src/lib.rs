//! The core of `dormer-host.exe`, the native program that converges a Windows host: it reads a document, looks at the
//! host through the host interface ([`ops`]), and makes it so. It knows Windows through that interface alone, so the same
//! code runs over Win32, over the simulated host and over a recording.
//!
//! **The product does not use it yet.** Hosts are converged by `workers/profile/src/converge.ps1` until this program can
//! take over completely; then that script goes.

mod block_on;
pub mod content;
pub mod ops;

pub use block_on::block_on;
