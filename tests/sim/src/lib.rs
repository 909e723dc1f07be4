//! The production loop and core on a simulated world: every fault comes from a seed, every law is checked as it goes.

mod build;
mod chance;
mod laws;
mod older_build;
mod ports;
mod scheduler;
mod toy;
mod world;

pub use scheduler::{FAULTS_ALL, FAULTS_OF_LOST_RECORDS, Limits, Options, SimOutcome, report, run};
