//! What nodes would become: rendered for one machine, and compared over a pool, before anything is changed.

mod compare;
mod desk;
mod steps;

pub(crate) use compare::{Candidate, compare};
pub use desk::Desk;
pub(crate) use steps::{Times, merge, tell as tell_steps, times};
