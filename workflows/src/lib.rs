//! Workflows of machines and rollouts: pure state machines, and the one type that combines them.

mod combined;
pub mod machine;
pub mod rollout;

pub use combined::{Dormer, State, Timer};
