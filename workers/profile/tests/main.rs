//! The profiles' integration tests, one module for each subject. One test binary links once.

mod golden;
mod lint;
mod real_programs;
mod support;
