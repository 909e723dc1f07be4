//! Plans: rendering for one machine, and comparison over a pool, before anything is changed.

mod compare;
mod renderer;
mod steps;

pub(crate) use compare::{Candidate, ChangeMethod, compare};
pub(crate) use renderer::NOT_PUBLISHED;
pub use renderer::PlanRenderer;
#[cfg(test)]
pub(crate) use steps::StepDuration;
pub(crate) use steps::{Times, add_steps, expected_ms, merge, times};
