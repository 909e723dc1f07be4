//! The host interface of `dormer-host` over Win32. What needs no Windows (parsing a security descriptor, the bytes of a
//! registry value, an HTTP answer) stands beside it and is tested everywhere.

pub mod data;
pub mod descriptor;
pub mod http;
#[cfg(windows)]
mod win32;

#[cfg(windows)]
pub use win32::{Win32, as_service, serve, watched};

/// What the programs of this package say elsewhere than on Windows.
pub const ELSEWHERE: &str = "This program runs on Windows only.";
/// Their exit code there, and where they are called wrongly.
pub const MISUSE: u8 = 2;
