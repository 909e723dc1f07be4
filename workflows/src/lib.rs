//! Workflows of machines and rollouts: pure state machines, and the one type that combines them.

// A new phase, outcome or signal does not compile before every `match` names it.
#![warn(clippy::wildcard_enum_match_arm)]

mod combined;
pub mod machine;
pub mod rollout;

pub use combined::{Dormer, State, Timer};
