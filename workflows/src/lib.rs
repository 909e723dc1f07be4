//! The machine and the rollout: pure state machines.
