//! Workflows of machines and rollouts: pure state machines, the one type that combines them, and the actions of people.

pub mod actions;
mod combined;
pub mod machine;
pub mod rollout;

pub use combined::{Dormer, State, Timer};
