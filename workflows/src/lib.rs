//! The machine and the rollout: pure state machines, and the one workflow that holds both.

mod both;
pub mod machine;
pub mod rollout;

pub use both::{Dormer, State, Timer};
