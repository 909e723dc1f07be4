//! Laboratory of dormer: benchmarks, the demonstration, and the simulated cluster as a process.

pub mod bench;
#[cfg(feature = "demo")]
mod clock;
#[cfg(feature = "demo")]
pub mod demo;
#[cfg(feature = "demo")]
pub mod fleet;
#[cfg(feature = "demo")]
mod payload;
#[cfg(feature = "demo")]
pub mod pipe;
mod usage;
