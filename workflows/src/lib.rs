//! The machine and the rollout: pure state machines, the one workflow that holds both, and what people may ask of them.

pub mod actions;
mod combined;
pub mod machine;
pub mod rollout;

pub use combined::{Dormer, State, Timer};
