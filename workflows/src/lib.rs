//! The machine and the rollout: pure state machines, and the one workflow that holds both.

pub mod machine;
