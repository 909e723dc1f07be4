//! Measuring dormer and showing it: the bench, the demonstration, and the simulated cluster as a process.

pub mod bench;
#[cfg(feature = "demo")]
pub mod demo;
#[cfg(feature = "demo")]
pub mod fleet;
