//! The simulated Windows hosts.
